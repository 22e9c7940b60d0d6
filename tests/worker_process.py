"""Worker processes for tests: started as an operator starts them, and ended by real signals."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from tests.eventually import eventually

READY_WITHIN = timedelta(seconds=60)


class WorkerProcess:
    """``python -P -m workers`` in a folder of its own, where its log and the modules with job code are."""

    def __init__(self, folder: Path, *, address: str, python: Path | str = sys.executable, **settings: str) -> None:
        """Start it. ``settings`` are those of the environment, in small letters and without their prefix."""
        self.folder = folder
        self.ready_file = folder / "ready"
        self.log = folder / "worker.log"
        given = {"database_url": f"sqlite:///{folder}/horarium.sqlite", "ready_file": str(self.ready_file)} | settings
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [python, "-P", "-m", "workers"],
                cwd=folder,
                env=environment(given) | {"TEMPORAL_ADDRESS": address},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    async def until_ready(self) -> "WorkerProcess":
        """Wait until it polls its task queues."""

        def is_ready() -> bool:
            if self.process.poll() is not None:
                raise RuntimeError(f"it has ended:\n{self.log.read_text()}")
            return self.ready_file.exists()

        await eventually(is_ready, limit=READY_WITHIN)
        return self

    async def ended(self, *, limit: timedelta = timedelta(seconds=30)) -> int:
        """Wait for its end, and say its exit code."""
        await eventually(lambda: self.process.poll() is not None, limit=limit)
        return self.process.returncode

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def __enter__(self) -> "WorkerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Make the environment of a process from this one's, less what could disturb it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HORARIUM_", "TEMPORAL_"))}
    return inherited | {f"HORARIUM_{name.upper()}": value for name, value in settings.items()}


async def run_to_end(folder: Path, *, address: str = "127.0.0.1:1", **settings: str) -> tuple[int, str]:
    """Start a worker that should end by itself; its exit code and what it said."""
    with WorkerProcess(folder, address=address, **settings) as worker:
        code = await worker.ended()
        return code, await asyncio.to_thread(worker.log.read_text)
