"""Worker processes as operators run them: roles, settings, what they wait for, and how they end."""

import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import EventType, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, RegisterNamespaceRequest
from temporalio.client import Client, WorkflowHandle

from tests.eventually import eventually
from tests.temporal_servers import connect_to, running_server, server_options
from tests.worker_process import WorkerProcess, run_to_end
from workers.devserver import DevServer, free_port
from workflows.contracts import JOB_WORKFLOW, SCHEDULER_TASK_QUEUE, WORKFLOW_TASK_TIMEOUT, job_workflow_id
from workflows.job import JobDefinition, JobInput, JobState
from workflows.schedule import IntervalRule, Schedule
from workflows.target import DEFAULT_TASK_QUEUE, ActivityTarget

JOB_CODE = '''
"""Jobs that leave traces in the working directory."""

import asyncio
import time
from pathlib import Path

from temporalio import activity

from horarium import checkpoint


@activity.defn
async def three_seconds() -> None:
    """Take a while, and end."""
    Path("started").touch()
    await asyncio.sleep(3)
    Path("ended").touch()


@activity.defn
async def an_hour() -> None:
    """Take too long."""
    checkpoint("half-way")
    Path("started").touch()
    try:
        await asyncio.sleep(3600)
    finally:
        Path("cleaned_up").touch()


@activity.defn
def an_hour_in_thread() -> None:
    """Take too long, and not listen."""
    Path("started").touch()
    time.sleep(3600)
'''

WORKFLOW = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
ACTIVITY = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY


@pytest.fixture
def server(tmp_path: Path) -> Iterator[DevServer]:
    """A server of the test's own: all workers poll the same queues."""
    with running_server(server_options(tmp_path / "temporal")) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with job code in it."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "traced_jobs.py").write_text(JOB_CODE)
    return folder


@asynccontextmanager
async def ready_worker(folder: Path, server: DevServer, **settings: str) -> AsyncIterator[WorkerProcess]:
    """Run a worker that polls."""
    with WorkerProcess(folder, address=server.options.address, activities="traced_jobs", **settings) as worker:
        yield await worker.until_ready()


async def start_job(client: Client, activity: str) -> WorkflowHandle[object, object]:
    """Start a job that fires every second."""
    now = datetime.now(UTC)
    definition = JobDefinition(
        name="j",
        schedule=Schedule(rule=IntervalRule(every=timedelta(seconds=1)), time_critical=True),
        target=ActivityTarget(activity=activity),
        heartbeat_timeout=timedelta(seconds=3),
    )
    state = JobState(job_id="j", definition=definition, registered_at=now, high_water=now)
    return await client.start_workflow(
        JOB_WORKFLOW,
        JobInput(state=state),
        id=job_workflow_id(tenant="default", job_id="j"),
        task_queue=DEFAULT_TASK_QUEUE,
        task_timeout=WORKFLOW_TASK_TIMEOUT,
    )


async def pollers(client: Client, queue: str, kind: TaskQueueType.ValueType) -> set[str]:
    """List who polls a queue, by the name before the process id."""
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
    )
    answer = await client.workflow_service.describe_task_queue(request)
    return {poller.identity.split(":")[0] for poller in answer.pollers}


class TestRoles:
    """What each role polls."""

    async def test_scheduler_and_job_workers_keep_to_their_queues(self, server: DevServer, folder: Path) -> None:
        """No job code runs in a scheduler, and nothing of the scheduler in a team's process."""
        other = folder.parent / "other"
        other.mkdir()
        async with (
            ready_worker(folder, server, role="job", task_queues="horarium,reports"),
            ready_worker_without_code(other, server, role="scheduler"),
        ):
            client = await connect_to(server)
            assert await pollers(client, DEFAULT_TASK_QUEUE, WORKFLOW) == {"horarium-scheduler"}
            assert await pollers(client, SCHEDULER_TASK_QUEUE, ACTIVITY) == {"horarium-scheduler"}
            assert await pollers(client, DEFAULT_TASK_QUEUE, ACTIVITY) == {"horarium-job"}
            assert await pollers(client, "reports", ACTIVITY) == {"horarium-job"}
            assert await pollers(client, "reports", WORKFLOW) == set()

    async def test_a_worker_of_both_roles_polls_all(self, server: DevServer, folder: Path) -> None:
        """The default, for development and small installations."""
        async with ready_worker(folder, server):
            client = await connect_to(server)
            for queue, kind in [
                (DEFAULT_TASK_QUEUE, WORKFLOW),
                (DEFAULT_TASK_QUEUE, ACTIVITY),
                (SCHEDULER_TASK_QUEUE, ACTIVITY),
            ]:
                assert await pollers(client, queue, kind) == {"horarium-both"}


@asynccontextmanager
async def ready_worker_without_code(folder: Path, server: DevServer, **settings: str) -> AsyncIterator[WorkerProcess]:
    """Run a worker that polls and has no modules of a team's."""
    with WorkerProcess(folder, address=server.options.address, **settings) as worker:
        yield await worker.until_ready()


class TestStart:
    """What a worker needs in order to work, and what it does not."""

    async def test_a_worker_waits_for_temporal_and_stops_while_it_waits(self, folder: Path) -> None:
        """Processes start in any order."""
        with WorkerProcess(folder, address=f"127.0.0.1:{free_port()}") as worker:
            await eventually(lambda: "waiting for Temporal" in worker.log.read_text())
            worker.signal(signal.SIGTERM)
            assert await worker.ended(limit=timedelta(seconds=5)) == 0

    async def test_a_worker_waits_for_its_namespace(self, server: DevServer, folder: Path) -> None:
        """Somebody creates it, sooner or later."""
        with WorkerProcess(folder, address=server.options.address, temporal_namespace="crons") as worker:
            await eventually(lambda: "waiting_for=namespace crons" in worker.log.read_text())
            client = await connect_to(server)
            retention = Duration(seconds=86_400)
            await client.workflow_service.register_namespace(
                RegisterNamespaceRequest(namespace="crons", workflow_execution_retention_period=retention)
            )
            await worker.until_ready()
            assert "search attributes registered" in worker.log.read_text()

    async def test_jobs_fire_although_the_database_has_never_been_there(self, server: DevServer, folder: Path) -> None:
        """SQL remembers, Temporal decides."""
        database = f"postgresql://nobody@127.0.0.1:{free_port()}/none"
        async with ready_worker(folder, server, database_url=database):
            await start_job(await connect_to(server), "three_seconds")
            await eventually((folder / "started").exists)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"role": "boss"}, "HORARIUM_ROLE: input should be 'scheduler', 'job' or 'both', not 'boss'"),
            (
                {"activities": "no_such_module"},
                "HORARIUM_ACTIVITIES: cannot import no_such_module: ModuleNotFoundError",
            ),
            ({"database_url": "mysql://secret@host/db"}, "HORARIUM_DATABASE_URL: no driver for mysql"),
            ({"temporal_address": "not an address"}, "HORARIUM_TEMPORAL_ADDRESS or TEMPORAL_ADDRESS: "),
        ],
    )
    async def test_a_wrong_setting_is_one_line_that_names_it(
        self, folder: Path, settings: dict[str, str], message: str
    ) -> None:
        """Exit code 2, at once, and no secret in the line."""
        code, said = await run_to_end(folder, **settings)
        assert code == 2
        [line] = [line for line in said.splitlines() if "HORARIUM_" in line]
        assert line.startswith(message)
        assert "secret" not in said
        assert "Traceback" not in said


class TestEnd:
    """How a worker ends."""

    async def test_sigterm_lets_running_attempts_end(self, server: DevServer, folder: Path) -> None:
        """SB-087: their results are with the server when the process has gone, with exit code 0."""
        async with ready_worker(folder, server) as worker:
            job = await start_job(await connect_to(server), "three_seconds")
            await eventually((folder / "started").exists)
            worker.signal(signal.SIGTERM)
            assert await worker.ended() == 0
        assert (folder / "ended").exists()
        assert not worker.ready_file.exists()
        assert EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED in await event_types(job)

    async def test_attempts_that_outlast_the_grace_are_cancelled_and_told(
        self, server: DevServer, folder: Path
    ) -> None:
        """SB-087: they may clean up, and the next attempt follows from their checkpoint."""
        async with ready_worker(folder, server, graceful_shutdown="1") as worker:
            job = await start_job(await connect_to(server), "an_hour")
            await eventually((folder / "started").exists)
            worker.signal(signal.SIGINT)
            assert await worker.ended() == 0
        assert (folder / "cleaned_up").exists()
        assert EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED in await event_types(job)

    async def test_an_attempt_that_does_not_listen_does_not_keep_the_process(
        self, server: DevServer, folder: Path
    ) -> None:
        """Five seconds after the grace it is left behind."""
        async with ready_worker(folder, server, graceful_shutdown="0") as worker:
            await start_job(await connect_to(server), "an_hour_in_thread")
            await eventually((folder / "started").exists)
            worker.signal(signal.SIGTERM)
            assert await worker.ended(limit=timedelta(seconds=8)) == 0
        assert "some attempts did not end" in worker.log.read_text()

    async def test_the_second_signal_ends_it_at_once(self, server: DevServer, folder: Path) -> None:
        """Whatever is running."""
        async with ready_worker(folder, server) as worker:
            await start_job(await connect_to(server), "an_hour")
            await eventually((folder / "started").exists)
            worker.signal(signal.SIGTERM)
            await eventually(lambda: "worker stops" in worker.log.read_text())
            before = time.monotonic()
            worker.signal(signal.SIGTERM)
            assert await worker.ended() == 128 + signal.SIGTERM
            assert time.monotonic() - before < 2

    async def test_a_worker_survives_the_server_and_goes_on_with_the_next(self, tmp_path: Path, folder: Path) -> None:
        """Temporal may be restarted at any time."""
        options = server_options(tmp_path / "temporal")
        with ExitStack() as servers:
            async with ready_worker(folder, servers.enter_context(running_server(options))):
                servers.close()
                server = servers.enter_context(running_server(options))
                await start_job(await connect_to(server), "three_seconds")
                await eventually((folder / "ended").exists, limit=timedelta(seconds=40))


async def event_types(handle: WorkflowHandle[object, object]) -> list[int]:
    """List the types of a workflow's events."""
    return [event.event_type async for event in handle.fetch_history_events()]
