"""One contender on a server of its own: fresh data, the same binary and settings for all, and counters to read.

The server and the worker are child processes, so that their processor time and memory can be told apart.
"""

import asyncio
import os
import re
import shutil
import sqlite3
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import psutil
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleIntervalSpec,
    ScheduleSpec,
    WorkflowExecutionStatus,
)
from temporalio.contrib.pydantic import pydantic_data_converter

import workflows.schedule as kernel
from tests.bench.column import DYNAMIC_CONFIG, OURS, Column
from tests.bench.fire_log import FIRE_LOG_VARIABLE, BenchJob, FireLog
from tests.bench.native_workflow import NATIVE_TASK_QUEUE, NoopWorkflow
from tests.chaos.stack import register
from tests.eventually import eventually
from tests.worker_process import READY_WITHIN, environment
from workers.child_process import ChildCommand, ChildProcess
from workers.devserver import DevServer, DevServerOptions, free_port
from workflows.contracts import job_workflow_id
from workflows.job import DEFAULT_TENANT, JobDefinition
from workflows.target import ActivityTarget

ROOT: Final = Path(__file__).parents[2]

MIRROR: Final = "mirror.sqlite"

ALWAYS: Final = timedelta(seconds=1)
NEVER: Final = timedelta(days=365)

WAKE_AHEAD: Final = timedelta(seconds=15)
"""A quarter of the default, so that jobs of a burst need not be registered long before."""

REGISTER_AT_ONCE: Final = 16

STOPPED_WITHIN: Final = timedelta(seconds=5)

_SCHEDULERS: Final = "TemporalNamespaceDivision = 'TemporalScheduler'"


@dataclass(frozen=True)
class Counters:
    """What a server and a worker have used up since their start."""

    persistence_requests: float
    state_writes: float
    server_cpu: float
    """Seconds."""

    worker_cpu: float

    def since(self, earlier: "Counters") -> "Counters":
        """Subtract."""
        return Counters(
            **{each.name: getattr(self, each.name) - getattr(earlier, each.name) for each in fields(Counters)}
        )


class Stand:
    """See the module. Made by ``standing``."""

    def __init__(self, column: Column, folder: Path, settings: Mapping[str, str], *, altered: str = "") -> None:
        self.column = column
        self.folder = folder
        self.log = FireLog(folder / "fires.log")
        self.server = DevServer(_server_options(column, folder))
        self._settings = settings
        self._altered = altered

    async def start(self) -> None:
        """Wait for the server, connect, and start the worker."""
        await asyncio.to_thread(self.server.wait_until_ready, limit=timedelta(seconds=60))
        self.client = await Client.connect(self.server.options.address, data_converter=pydantic_data_converter)
        self.worker = ChildProcess(self._worker_command())
        await self._until_working()

    async def restart_worker(self, **settings: str) -> None:
        """Put another worker in the place of this one, with these settings as well."""
        self._stop_worker()
        self._ready_file.unlink(missing_ok=True)
        self._settings = {**self._settings, **settings}
        self.worker = ChildProcess(self._worker_command())
        await self._until_working()

    def stop(self) -> None:
        """End everything, at once, and wait for it: what they have used up is known only then."""
        if hasattr(self, "worker"):
            self._stop_worker()
        self.server.process.kill()
        self.server.stop()

    def _stop_worker(self) -> None:
        self.worker.kill()
        self.worker.wait(limit=STOPPED_WITHIN)

    async def register_all(self, jobs: Sequence[BenchJob], *, rate: float) -> None:
        """Register jobs, at most ``rate`` a second and some at a time."""
        begin = asyncio.get_running_loop().time()
        free = asyncio.Semaphore(REGISTER_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for number, job in enumerate(jobs):
                await asyncio.sleep(begin + number / rate - asyncio.get_running_loop().time())
                await free.acquire()
                group.create_task(self._register(job)).add_done_callback(lambda _: free.release())

    async def _register(self, job: BenchJob) -> None:
        if self.column in OURS:
            await register(self.client, job.job_id, define(job))
        else:
            await self.client.create_schedule(job.job_id, _native_schedule(job))

    async def remove_all(self, jobs: Sequence[BenchJob]) -> None:
        """End jobs at once."""
        for job in jobs:
            if self.column in OURS:
                workflow_id = job_workflow_id(tenant=DEFAULT_TENANT, job_id=job.job_id)
                await self.client.get_workflow_handle(workflow_id).terminate()
            else:
                await self.client.get_schedule_handle(job.job_id).delete()

    def counters(self) -> Counters:
        """Read the counters."""
        text = self._metrics()
        return Counters(
            persistence_requests=_sum_metric(text, "persistence_requests"),
            state_writes=_sum_metric(text, "state_transition_count_count"),
            server_cpu=_cpu_seconds(self.server.process.pid),
            worker_cpu=_cpu_seconds(self.worker.pid),
        )

    def memory(self) -> tuple[int, int]:
        """Bytes that the server and the worker hold."""
        return _resident_bytes(self.server.process.pid), _resident_bytes(self.worker.pid)

    def database_bytes(self) -> tuple[int, int]:
        """Bytes in Temporal's database and in the mirror, logs of the last writes included."""
        return _file_bytes(self.server.options.database), _file_bytes(self.folder / MIRROR)

    async def count_events(self, prefix: str) -> int:
        """Count the events in all histories of the jobs whose ids begin so, in those of schedules' own workflows too."""
        queries = ("", _SCHEDULERS)
        every = [each for query in queries async for each in self.client.list_workflows(query)]
        found = [each for each in every if re.search(rf"(^|[/:]){prefix}-", each.id)]
        running = [each for each in found if each.status is WorkflowExecutionStatus.RUNNING]
        lengths = [each.history_length for each in found if each.status is not WorkflowExecutionStatus.RUNNING]
        for each in running:
            described = await self.client.get_workflow_handle(each.id, run_id=each.run_id).describe()
            lengths.append(described.history_length)
        return sum(lengths)

    def count_jobs(self) -> int:
        """Count the jobs in the mirror."""
        return self._ask_mirror("SELECT count(*) FROM jobs")

    async def count_ended(self, prefix: str) -> int:
        """Count the fires that are over, of jobs whose ids begin so: recorded in the mirror, or their workflow closed."""
        if self.column not in OURS:
            ended = "WorkflowType = 'BenchNoop' AND ExecutionStatus != 'Running'"
            return (await self.client.count_workflows(f"{ended} AND WorkflowId STARTS_WITH '{prefix}-'")).count
        return self._ask_mirror("SELECT count(*) FROM runs WHERE status = 'success' AND job_id LIKE ?", f"{prefix}-%")

    def _ask_mirror(self, query: str, *given: str) -> int:
        with closing(sqlite3.connect(f"file:{self.folder / MIRROR}?mode=ro", uri=True)) as mirror:
            return int(mirror.execute(query, given).fetchone()[0])

    def _metrics(self) -> str:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.server.options.metrics_port}/metrics", timeout=10
        ) as answer:
            text: str = answer.read().decode()
            return text

    def _worker_command(self) -> ChildCommand:
        ours = self.column in OURS
        module = ["workers"] if ours else ["tests.bench.native_worker", self.server.options.address]
        if self._altered:
            module = ["tests.bench.altered_worker", self._altered]
        given = {
            "database_url": f"sqlite:///{self.folder / MIRROR}",
            "ready_file": str(self._ready_file),
            "temporal_address": self.server.options.address,
            "activities": "tests.bench.job_code",
            "log_level": "warning",
            "long_sleep_threshold": str((ALWAYS if self.column is Column.LONG_SLEEP else NEVER).total_seconds()),
            "wake_ahead": str(WAKE_AHEAD.total_seconds()),
            **self._settings,
        }
        bench = {FIRE_LOG_VARIABLE: str(self.log.path), "PYTHONPATH": str(ROOT)}
        return ChildCommand(
            name="worker",
            arguments=[sys.executable, "-P", "-m", *module],
            log_path=self.folder / "worker.log",
            environment=_with_bytecode(environment(given) if ours else dict(os.environ)) | bench,
        )

    @property
    def _ready_file(self) -> Path:
        return self.folder / "ready"

    async def _until_working(self) -> None:
        def is_ready() -> bool:
            if self.worker.exit_code() is not None:
                raise RuntimeError(f"the worker ended:\n{self.worker.log_tail()}")
            return self._ready_file.exists()

        if self.column in OURS:
            await eventually(is_ready, limit=READY_WITHIN)
        else:
            warm = f"warm-{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
            await self.client.execute_workflow(NoopWorkflow.run, id=warm, task_queue=NATIVE_TASK_QUEUE)


def _with_bytecode(variables: dict[str, str]) -> dict[str, str]:
    """Let workers keep compiled modules, as they do in production: in the sandbox, each job that wakes loads the workflow's."""
    return {name: value for name, value in variables.items() if name != "PYTHONDONTWRITEBYTECODE"}


@asynccontextmanager
async def standing(column: Column, *, altered: str = "", **settings: str) -> AsyncIterator[Stand]:
    """Set up a contender for the length of the block; ``settings`` are for Horarium's worker, ``altered`` for one altered."""
    folder = Path(tempfile.mkdtemp(prefix="horarium-bench-"))
    stand = Stand(column, folder, settings, altered=altered)
    try:
        await stand.start()
        yield stand
    finally:
        stand.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _server_options(column: Column, folder: Path) -> DevServerOptions:
    return DevServerOptions(
        data_dir=folder / "temporal",
        port=free_port(),
        ui_port=None,
        metrics_port=free_port(),
        log_level="error",
        dynamic_config=DYNAMIC_CONFIG[column],
    )


def define(job: BenchJob, *, jitter: float = 0.0, max_runs: int | None = None) -> JobDefinition:
    """Define a job as Horarium knows it; ``jitter`` is the width of the window in seconds."""
    anchor = datetime.fromtimestamp(job.offset, UTC)
    rule = kernel.IntervalRule(every=timedelta(seconds=job.every), anchor=anchor)
    return JobDefinition(
        name=job.job_id,
        schedule=kernel.Schedule(rule=rule, jitter_window_seconds=jitter, max_runs=max_runs),
        target=ActivityTarget(activity="bench_noop"),
    )


def _native_schedule(job: BenchJob) -> Schedule:
    spec = ScheduleIntervalSpec(every=timedelta(seconds=job.every), offset=timedelta(seconds=job.offset % job.every))
    action = ScheduleActionStartWorkflow(NoopWorkflow.run, id=job.job_id, task_queue=NATIVE_TASK_QUEUE)
    return Schedule(action=action, spec=ScheduleSpec(intervals=[spec]))


def _sum_metric(text: str, name: str) -> float:
    return sum(float(value) for value in re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE))


def _cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def _resident_bytes(pid: int) -> int:
    size: int = psutil.Process(pid).memory_info().rss
    return size


def _file_bytes(path: Path) -> int:
    return sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*"))
