"""A stack whose job workers may be killed and stopped while they carry out effects, and a database that may be taken away."""

import asyncio
import shutil
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pydantic import JsonValue
from temporalio.client import Client

from activities.database import open_database
from activities.queries import Queries, RecordedRun
from tests.chaos import effect_jobs
from tests.chaos.effect_jobs import Sink
from tests.chaos.faulty_postgres import FaultyPostgres, faulty_postgres
from tests.chaos.stack import Stack, register
from tests.eventually import eventually
from tests.temporal_servers import unique
from tests.worker_process import WorkerProcess
from workflows.contracts import scheduled_run_id
from workflows.job import Backoff, JobDefinition, RetryPolicy
from workflows.run import FINAL_STATUSES
from workflows.schedule import OneOffRule, Rule, Schedule
from workflows.target import ActivityTarget

JOB_WORKERS: Final = ("job-1", "job-2")
"""So that one is there when the other is not."""

HEARTBEAT_TIMEOUT: Final = timedelta(seconds=2)
BEGINS_AFTER: Final = timedelta(seconds=2)
MODULES: Final = f"{effect_jobs.__name__.rpartition('.')[2]},activities.examples_payroll"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What runs."""

    stack: Stack
    database: FaultyPostgres
    """Where mirror and claims are."""

    folder: Path

    def sink(self) -> tuple[Path, Sink]:
        """Make a sink of a test's own."""
        path = self.folder / f"{unique('sink')}.sqlite"
        return path, Sink(str(path))

    async def start(self, activity: str, payload: JsonValue, *, attempts: int = 6, **fields: Any) -> str:
        """Register a job that runs once, in a moment. Answers the run's id."""
        client: Client = await self.stack.connect()
        job_id = unique(activity.replace("_", "-"))
        at = datetime.now(UTC).replace(microsecond=0) + BEGINS_AFTER
        rule = OneOffRule(at=at)
        await register(client, job_id, effectful(activity, rule, payload=payload, attempts=attempts, **fields))
        return scheduled_run_id(job_id=job_id, nominal=at)

    async def end_of(self, run_id: str, *, limit: timedelta = timedelta(seconds=40)) -> RecordedRun:
        """Wait until a run is over, and its last attempt is recorded too."""
        engine = open_database(self.database.direct_url)
        queries = Queries(engine)

        async def over() -> RecordedRun | None:
            found = await queries.get_run("default", run_id)
            return found if found is not None and found.record.run.status in FINAL_STATUSES else None

        try:
            found = await eventually(over, limit=limit, every=timedelta(milliseconds=200))
            assert found is not None
            return found
        except AssertionError as error:
            raise AssertionError(self.stack.logs()) from error
        finally:
            await queries.close()
            await engine.dispose()

    def worker_of(self, pid: int) -> str:
        """Name the worker that has a process id."""
        [name] = [name for name in JOB_WORKERS if self.stack.worker(name).process.pid == pid]
        return name

    def process_of(self, pid: int) -> WorkerProcess:
        """Get the worker that has a process id."""
        return self.stack.worker(self.worker_of(pid))

    async def kill(self, names: Iterable[str], *, after: float) -> None:
        """``kill -9`` job workers after some seconds, all at once, and start them again."""
        await asyncio.sleep(after)
        for name in names:
            self.stack.worker(name).signal(signal.SIGKILL)
        for name in names:
            await self.stack.worker(name).ended()
        await asyncio.gather(*(start_job_worker(self, name) for name in names))

    async def require_workers(self) -> None:
        """Start again what a test has killed."""
        for name in JOB_WORKERS:
            if name not in self.stack.names or self.stack.worker(name).process.poll() is not None:
                await start_job_worker(self, name)


def effectful(
    activity: str, rule: Rule, *, payload: JsonValue = None, attempts: int = 6, **fields: Any
) -> JobDefinition:
    """A job with effects, whose workers may die."""
    values: dict[str, Any] = {
        "name": activity,
        "schedule": Schedule(rule=rule, jitter_window_seconds=0),
        "target": ActivityTarget(activity=activity),
        "payload": payload,
        "timeout": timedelta(seconds=60),
        "heartbeat_timeout": HEARTBEAT_TIMEOUT,
        "retry": RetryPolicy(max_attempts=attempts, backoff=Backoff.FIXED),
    }
    return JobDefinition.model_validate(values | fields)


async def start_job_worker(stage: Stage, name: str) -> None:
    """Start a worker with the tests' jobs, and wait until it polls."""
    folder = stage.folder / name
    folder.mkdir(exist_ok=True)
    (folder / "ready").unlink(missing_ok=True)
    shutil.copy(str(effect_jobs.__file__), folder)
    await stage.stack.start_worker(name, role="job")


@contextmanager
def running_stage(folder: Path, *, data: Path) -> Iterator[Stage]:
    """Run it for the length of the block; ``data`` is what the database begins with."""
    with faulty_postgres(data) as database:
        stack = Stack(folder, database_url=database.url, activities=MODULES)
        stage = Stage(stack=stack, database=database, folder=folder)
        try:
            asyncio.run(_start(stage))
            yield stage
        finally:
            for name in stack.names:
                stack.worker(name).signal(signal.SIGCONT)
            stack.stop()


async def _start(stage: Stage) -> None:
    await asyncio.gather(
        stage.stack.start_worker("scheduler", role="scheduler"),
        *(start_job_worker(stage, name) for name in JOB_WORKERS),
    )
