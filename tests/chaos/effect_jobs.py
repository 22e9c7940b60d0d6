"""Job code that worker processes of the tests run, and the sink in which its effects are counted.

The sink is a SQLite file of the test's own, apart from all of our tables. It stands for a receiver that honours idempotency keys.
"""

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from temporalio import activity

from horarium import EffectRefused, JobRun, checkpoint, current_run, once

SCHEMA = """
CREATE TABLE IF NOT EXISTS calls (name TEXT, key TEXT, attempt INT, worker INT, at REAL);
CREATE TABLE IF NOT EXISTS effects (key TEXT PRIMARY KEY, name TEXT);
CREATE TABLE IF NOT EXISTS notes (what TEXT, value TEXT, attempt INT, at REAL);
"""


@dataclass(frozen=True)
class Call:
    """What a receiver saw of one request."""

    name: str
    key: str
    attempt: int
    worker: int
    """Process id."""

    at: float


class Sink:
    """Where effects go."""

    def __init__(self, path: str) -> None:
        self._path = path

    def call(self, name: str, key: str) -> None:
        """Carry an effect out, unless its key was seen before."""
        with closing(self._open()) as connection, connection:
            values = (name, key, current_run().attempt, os.getpid(), time.time())
            connection.execute("INSERT INTO calls VALUES (?, ?, ?, ?, ?)", values)
            connection.execute("INSERT INTO effects VALUES (?, ?) ON CONFLICT DO NOTHING", (key, name))

    def note(self, what: str, value: object) -> None:
        """Tell the test something."""
        with closing(self._open()) as connection, connection:
            values = (what, str(value), current_run().attempt, time.time())
            connection.execute("INSERT INTO notes VALUES (?, ?, ?, ?)", values)

    def calls(self) -> list[Call]:
        """List all requests, in order."""
        return [Call(*row) for row in self._query("SELECT * FROM calls ORDER BY rowid")]

    def effects(self) -> list[str]:
        """List what was carried out, by name."""
        return [name for (name,) in self._query("SELECT name FROM effects ORDER BY rowid")]

    def notes(self, what: str) -> list[tuple[str, int]]:
        """List what attempts have noted: value and attempt."""
        return [
            tuple(row) for row in self._query("SELECT value, attempt FROM notes WHERE what = ? ORDER BY rowid", what)
        ]

    def _query(self, sql: str, *parameters: object) -> Sequence[Any]:
        with closing(self._open()) as connection:
            return connection.execute(sql, parameters).fetchall()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=30)
        connection.executescript(SCHEMA)
        return connection


class Steps(BaseModel):
    """Payload of the jobs."""

    sink: str
    steps: int = 12


STEP_SECONDS = 0.1


@activity.defn
async def take_steps(run: JobRun[Steps]) -> int:
    """One effect and one checkpoint every 100 ms."""
    sink, first = Sink(run.payload.sink), int(run.checkpoint or 0)
    sink.note("begun", first)
    for step in range(first, run.payload.steps):
        await _take(sink, step)
        checkpoint(step + 1)
        await asyncio.sleep(STEP_SECONDS)
    return run.payload.steps


async def _take(sink: Sink, step: int) -> None:
    async def call(key: str) -> None:
        sink.call(f"step:{step}", key)

    await once(f"step:{step}", call)


@activity.defn
async def never_give_up(run: JobRun[Steps]) -> int:
    """Go on with everything, deaf to cancellation and to refusals: the worst zombie that job code can be.

    Every effect takes a while after its receiver has had it.
    """
    await asyncio.shield(asyncio.create_task(_take_all(Sink(run.payload.sink), run.payload.steps)))
    return run.attempt


async def _take_all(sink: Sink, steps: int) -> None:
    for step in range(steps):
        try:
            sink.note("got", await _take_slowly(sink, step))
        except EffectRefused:
            sink.note("refused", step)


async def _take_slowly(sink: Sink, step: int) -> str:
    async def call(key: str) -> str:
        sink.call(f"step:{step}", key)
        await asyncio.sleep(0.3)
        return f"of attempt {current_run().attempt}"

    return await once(f"step:{step}", call)


@activity.defn
async def charge_and_die(run: JobRun[Steps]) -> str:
    """Carry one effect out, and die with the first attempt before anybody hears of it."""
    sink = Sink(run.payload.sink)

    async def charge(key: str) -> str:
        sink.call("charge", key)
        return f"receipt of attempt {run.attempt}"

    receipt = await once("charge", charge)
    if run.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return receipt
