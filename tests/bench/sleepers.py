"""Twenty thousand jobs that sleep the long way: what they hold while they sleep, and whether all of them fire on time.

Compressed in time and not in number: they are registered as fast as they are taken in, sleep for some seconds together, and
come due one after another at a rate that one worker holds.
"""

import asyncio
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta

from tests.bench.column import Column
from tests.bench.fire_log import BenchJob, Seen, look
from tests.bench.measure import Tell
from tests.bench.result import Sleepers
from tests.bench.stand import MIRROR, Stand, standing
from tests.eventually import eventually

BEHIND_AT_MOST = 100
"""Registered jobs that are not asleep yet. More at once would only starve each other of planning."""

ASLEEP_WITHIN = timedelta(minutes=1)
"""The last of them; a record that the mirror did not take at first comes later."""

GIVE_UP_AFTER = 30
"""Seconds without any fire."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many, and how compressed."""

    jobs: int
    register_rate: float
    """Jobs a second that are taken in at least; decides when the first one is due."""

    fire_rate: int
    """Jobs due in each second."""


async def measure_sleepers(plan: Plan, tell: Tell) -> Sleepers:
    """Put them to sleep, look, and let them fire."""
    async with standing(Column.LONG_SLEEP) as stand:
        databases = stand.database_bytes()
        server = stand.memory()[0]
        first_due = int(time.time() + plan.jobs / plan.register_rate + 10)
        jobs = [BenchJob(f"sleeper-{n}", 86_400, first_due + n // plan.fire_rate) for n in range(plan.jobs)]
        begin = time.time()
        tenth = plan.jobs // 10
        await _put_to_sleep(stand, jobs[:tenth], already=0, tell=tell)
        before = stand.memory()[1]
        await _put_to_sleep(stand, jobs[tenth:], already=tenth, tell=tell)
        registered = time.time()
        if registered > first_due:
            raise RuntimeError(f"registering took {registered - begin:.0f} s: too slow a machine for {plan}")
        asleep = stand.memory()
        held = [now - then for now, then in zip(stand.database_bytes(), databases, strict=True)]
        seen, seconds = await _let_fire(stand, jobs, first_due, tell)
        return Sleepers(
            jobs=plan.jobs,
            registered_a_second=plan.jobs / (registered - begin),
            worker_bytes_before=before,
            worker_bytes_asleep=asleep[1],
            worker_bytes_fired=stand.memory()[1],
            server_bytes=(asleep[0] - server) / plan.jobs,
            database_bytes=held[0] / plan.jobs,
            mirror_bytes=held[1] / plan.jobs,
            fires_a_second=len(seen.lateness) / seconds,
            lateness=seen.lateness,
            lost=seen.lost,
            repeated=seen.repeated,
        )


async def _put_to_sleep(stand: Stand, jobs: list[BenchJob], *, already: int, tell: Tell) -> None:
    """Register jobs as fast as they fall asleep, which each of them does once its first record is in the mirror."""
    sent = 0
    while sent < len(jobs):
        asleep = _count_jobs(stand) - already
        room = BEHIND_AT_MOST - (sent - asleep)
        tell(f"{already + asleep} sleep")
        if room > 0:
            await stand.register_all(jobs[sent : sent + room], rate=10_000)
            sent += room
        await asyncio.sleep(0.1)
    await eventually(lambda: _count_jobs(stand) >= already + len(jobs), limit=ASLEEP_WITHIN)
    await asyncio.sleep(3)


async def _let_fire(stand: Stand, jobs: list[BenchJob], first_due: int, tell: Tell) -> tuple[Seen, float]:
    last_due = max(job.offset for job in jobs)
    quiet_since, count = time.time(), 0
    while count < len(jobs) and time.time() < max(quiet_since, last_due) + GIVE_UP_AFTER:
        await asyncio.sleep(1)
        begun = len(stand.log.starts())
        if begun > count:
            quiet_since, count = time.time(), begun
        tell(f"{count} have fired")
    return look(stand.log, jobs, first_due, last_due + 1), quiet_since - first_due


def _count_jobs(stand: Stand) -> int:
    with closing(sqlite3.connect(f"file:{stand.folder / MIRROR}?mode=ro", uri=True)) as mirror:
        return int(mirror.execute("SELECT count(*) FROM jobs").fetchone()[0])
