"""Workers in a process of their own, which a test can kill: ``python -m tests.workflow.mortal_workers ADDRESS DOOR``.

The process that imports everything once is forked for each, so that one costs a fraction of a second. The mirror stays with the
test, behind a socket, as SQL would: what it has written outlives whoever has sent it, and what was on its way is lost or not.
"""

import asyncio
import os
import pickle
import signal
import subprocess
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NoReturn

from temporalio import activity
from temporalio.client import Client

from tests.worker_process import environment
from tests.workflow.harness import QUICK, Harness, MemoryMirror, Planner
from workflows.contracts import RECORD_EVENTS
from workflows.data_converter import DATA_CONVERTER
from workflows.job import JobRecord, MirrorBatch, RunRecord
from workflows.run import Run

BORN: Final = "born"
"""What a process says when its workers poll. From then on it lives as long as its connection."""

BORN_WITHIN: Final = timedelta(seconds=60)

SIZE_BYTES: Final = 8


class DistantMirror(MemoryMirror):
    """The mirror of the test, as the workers see it."""

    def __init__(self, door: str) -> None:
        super().__init__()
        self._door = door

    @activity.defn(name=RECORD_EVENTS)
    async def record_events(self, batch: MirrorBatch) -> None:
        """Write a batch."""
        await self._ask("record_events", batch)

    async def get_job(self, tenant: str, job_id: str) -> JobRecord | None:
        """Find a job."""
        found: JobRecord | None = await self._ask("get_job", tenant, job_id)
        return found

    async def get_last_run(self, job: JobRecord) -> Run | None:
        """Find the run of a job that ended last."""
        found: Run | None = await self._ask("get_last_run", job)
        return found

    async def read_runs_at(self, tenant: str, job_id: str, nominals: Sequence[datetime]) -> list[RunRecord]:
        """Read the runs of nominal times."""
        found: list[RunRecord] = await self._ask("read_runs_at", tenant, job_id, nominals)
        return found

    async def _ask(self, name: str, *arguments: object) -> Any:
        reader, writer = await asyncio.open_unix_connection(self._door)
        try:
            await _send(writer, (name, arguments))
            return await _receive(reader)
        finally:
            writer.close()


@dataclass(frozen=True)
class MortalProcess:
    """A process of workers that lives."""

    pid: int
    reader: StreamReader
    writer: StreamWriter

    async def stop(self) -> None:
        """Let it end as at a deployment: its workers say goodbye."""
        self.writer.write_eof()
        await self._ended()

    async def kill(self) -> None:
        """``kill -9`` it, whatever it is doing."""
        os.kill(self.pid, signal.SIGKILL)
        await self._ended()

    async def _ended(self) -> None:
        with suppress(ConnectionError):
            await self.reader.read()
        self.writer.close()


class Zygote:
    """Makes processes of workers that share a mirror of this process. To be used as a context manager; ends them all."""

    def __init__(self, address: str, mirror: MemoryMirror) -> None:
        self._address = address
        self._mirror = mirror
        self._born = asyncio.Queue[MortalProcess]()

    async def fork(self) -> MortalProcess:
        """Make one, and wait until its workers poll."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        await self._process.stdin.drain()
        async with asyncio.timeout(BORN_WITHIN.total_seconds()):
            return await self._born.get()

    async def _answer(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Carry out what a process asks of the mirror. One that was killed meanwhile hears no answer."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            name, arguments = await _receive(reader)
            if name == BORN:
                [pid] = arguments
                self._born.put_nowait(MortalProcess(pid, reader, writer))
                return
            await _send(writer, await getattr(self._mirror, name)(*arguments))
        writer.close()

    async def __aenter__(self) -> "Zygote":
        self._folder = TemporaryDirectory()
        door = f"{self._folder.name}/door"
        self._server = await asyncio.start_unix_server(self._answer, door)
        command = (sys.executable, "-m", "tests.workflow.mortal_workers", self._address, door)
        self._process = await asyncio.create_subprocess_exec(
            *command, cwd=Path(__file__).parents[2], env=environment({}), stdin=subprocess.PIPE
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        self._server.close()
        self._folder.cleanup()


@dataclass
class MortalHarness(Harness):
    """Jobs whose workers are a process that may die."""

    zygote: Zygote = field(kw_only=True)
    _process: MortalProcess | None = None

    async def start_workers(self) -> None:
        """Start a process of workers."""
        self._process = await self.zygote.fork()

    async def stop_workers(self) -> None:
        """End it in good order."""
        if self._process is not None:
            await self._process.stop()
            self._process = None

    async def kill_workers(self) -> None:
        """End it in no order at all."""
        if self._process is not None:
            await self._process.kill()
            self._process = None


async def _send(writer: StreamWriter, message: object) -> None:
    data = pickle.dumps(message)
    writer.write(len(data).to_bytes(SIZE_BYTES) + data)
    await writer.drain()


async def _receive(reader: StreamReader) -> Any:
    size = int.from_bytes(await reader.readexactly(SIZE_BYTES))
    return pickle.loads(await reader.readexactly(size))


async def be_workers(address: str, door: str) -> None:
    """Work until the test wants no more, or is no more."""
    client = await Client.connect(address, data_converter=DATA_CONVERTER)
    harness = Harness(client, Planner(QUICK), mirror=DistantMirror(door))
    await harness.start_workers()
    reader, writer = await asyncio.open_unix_connection(door)
    await _send(writer, (BORN, (os.getpid(),)))
    await reader.read()
    await harness.stop_workers()


def main(address: str, door: str) -> NoReturn:
    """Fork a process of workers for each line."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the dead
    for _ in sys.stdin:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asyncio.run(be_workers(address, door))
            os._exit(0)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
