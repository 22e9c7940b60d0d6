"""The other schedulers: how each is started, on a store of its own, and stopped."""

import os
import shutil
import subprocess
import tempfile
import venv
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

import psutil

from tests.bench.fire_log import FIRE_LOG_VARIABLE, FireLog
from tests.bench.stand import ROOT
from tests.databases import fresh_database, running_postgres
from tests.eventually import eventually
from workers.child_process import ChildCommand, ChildProcess
from workers.devserver import free_port

REQUIREMENTS: Final = Path(__file__).with_name("requirements.txt")

READY_WITHIN: Final = timedelta(minutes=2)
"""With all schedules added, one after another."""

TERMINATED_WITHIN: Final = timedelta(seconds=5)


class Other(StrEnum):
    """A contender of the second table."""

    APSCHEDULER = "APScheduler 4, PostgreSQL"
    DBOS = "DBOS, PostgreSQL"
    CELERY = "Celery beat, Redis"


class MissingProgram(Exception):
    """Something that the option needs is not on this machine; the text says what, and how to get it."""


class NotReady(Exception):
    """It took too long to add all schedules."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a process is given to do; see ``workload.Workload``."""

    jobs: int
    period: int = 2
    due: int = 0
    work: float = 0.0


class OtherProcess:
    """A scheduler with its worker, which may be killed and started again on the same store."""

    def __init__(self, other: Other, given: Given, *, python: Path, store: str, folder: Path) -> None:
        self.log = FireLog(folder / "fires.log")
        self._ready = folder / "ready"
        self._command = ChildCommand(
            name="other",
            arguments=_arguments(other, python, folder),
            log_path=folder / "other.log",
            environment=os.environ
            | {
                FIRE_LOG_VARIABLE: str(self.log.path),
                "PYTHONPATH": str(ROOT),
                "BENCH_JOBS": str(given.jobs),
                "BENCH_PERIOD": str(given.period),
                "BENCH_DUE": str(given.due),
                "BENCH_WORK": str(given.work),
                "BENCH_STORE": store,
                "BENCH_READY": str(self._ready),
            },
        )

    async def start(self) -> None:
        """Start, and wait until all schedules are there."""
        self._ready.unlink(missing_ok=True)
        self._process = ChildProcess(self._command)
        try:
            await eventually(self._is_ready, limit=READY_WITHIN)
        except AssertionError as error:
            raise NotReady(f"not all schedules were added within {READY_WITHIN}") from error

    def _is_ready(self) -> bool:
        if self._process.exit_code() is not None:
            raise RuntimeError(f"it has ended:\n{self._process.log_tail()}")
        return self._ready.exists()

    def kill(self) -> None:
        """Kill all of its processes, as ``kill -9`` does."""
        self._process.kill()
        self._process.wait(limit=TERMINATED_WITHIN)

    def cpu_seconds(self) -> float:
        """Processor time of all of its processes."""
        root = psutil.Process(self._process.pid)
        times = [each.cpu_times() for each in (root, *root.children(recursive=True))]
        return sum(each.user + each.system for each in times)


@asynccontextmanager
async def running_other(other: Other, given: Given, *, python: Path) -> AsyncIterator[OtherProcess]:
    """Start one on a fresh store, and leave nothing behind."""
    folder = Path(tempfile.mkdtemp(prefix="horarium-bench-"))
    with _fresh_store(other, folder) as store:
        process = OtherProcess(other, given, python=python, store=store, folder=folder)
        try:
            await process.start()
            yield process
        finally:
            process.kill()
            shutil.rmtree(folder, ignore_errors=True)


def prepare_environment(folder: Path) -> Path:
    """Make the virtual environment of the others, once, and name its Python. Raises ``MissingProgram``."""
    if shutil.which("redis-server") is None:
        raise MissingProgram("Celery needs a Redis server: apt-get install redis-server")
    python = folder / "bin" / "python"
    done = folder / "requirements.txt"
    if not done.exists() or done.read_text() != REQUIREMENTS.read_text():
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--requirement", str(REQUIREMENTS)], check=True)
        shutil.copy(REQUIREMENTS, done)
    return python


def _arguments(other: Other, python: Path, folder: Path) -> list[str]:
    match other:
        case Other.APSCHEDULER:
            return [str(python), "-m", "tests.bench.others.apscheduler_driver"]
        case Other.DBOS:
            return [str(python), "-m", "tests.bench.others.dbos_driver"]
        case Other.CELERY:
            options = [
                "--beat",
                "--pool",
                "threads",
                "--concurrency",
                "100",
                "--loglevel",
                "ERROR",
                "-s",
                str(folder / "beat"),
            ]
            return [str(python), "-m", "celery", "-A", "tests.bench.others.celery_app", "worker", *options]


@contextmanager
def _fresh_store(other: Other, folder: Path) -> Iterator[str]:
    if other is Other.CELERY:
        with _running_redis(folder) as url:
            yield url
        return
    with running_postgres() as server, fresh_database(server, template="template1") as url:
        yield url


@contextmanager
def _running_redis(folder: Path) -> Iterator[str]:
    """Run a Redis that writes each command to its log file, so that it loses nothing itself."""
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--appendonly", "yes"]
    redis = ChildProcess(
        ChildCommand(
            name="redis",
            arguments=[str(shutil.which("redis-server")), *options],
            log_path=Path(tempfile.gettempdir()) / "horarium-bench-redis.log",
        )
    )
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        redis.stop(grace=TERMINATED_WITHIN)
