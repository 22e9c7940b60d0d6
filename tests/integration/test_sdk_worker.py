"""The SDK's plugin on a real worker and a real server, called by a workflow that stands for the scheduler's."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, TimeoutError
from temporalio.worker import Worker

from horarium import (
    AttemptReport,
    HorariumPlugin,
    JobRun,
    PermanentError,
    RetryLater,
    checkpoint,
    current_run,
    parse_attempt_report,
)
from tests.eventually import eventually
from tests.temporal_servers import unique
from workers.devserver import DevServer
from workflows.contracts import WORKFLOW_TASK_TIMEOUT

RUN: dict[str, Any] = {
    "tenant": "default",
    "job_id": "j",
    "run_id": "j:20260608T130000Z",
    "kind": "scheduled",
    "scheduled_at": "2026-06-08T13:00:00Z",
    "target_at": "2026-06-08T13:00:07Z",
    "attempt": 2,
    "max_attempts": 4,
    "idempotency_key": "j:1780923600",
    "fence": 41,
    "stands_for": 3,
    "payload": None,
    "checkpoint": {"row": 1},
    "a_member_of_a_later_release": True,
}


@dataclass
class Call:
    """Which activity the workflow calls, and how."""

    activity: str
    arguments: list[Any]
    task_queue: str = ""
    heartbeat_seconds: float = 30


async def call_activity(call: Call) -> Any:
    """Call as the scheduler does: one attempt, one argument of plain JSON."""
    return await workflow.execute_activity(
        call.activity,
        args=call.arguments,
        task_queue=call.task_queue or None,
        start_to_close_timeout=timedelta(seconds=60),
        heartbeat_timeout=timedelta(seconds=call.heartbeat_seconds),
        retry_policy=RetryPolicy(maximum_attempts=1),
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )


@workflow.defn(name="HorariumJob", sandboxed=False)
class CallingJob:
    """Stands for the scheduler's workflow: same type name."""

    @workflow.run
    async def run(self, call: Call) -> Any:
        """Call the activity."""
        return await call_activity(call)


@workflow.defn(name="TeamWorkflow", sandboxed=False)
class TeamWorkflow:
    """A workflow of the team's own, which shares the team's activities."""

    @workflow.run
    async def run(self, call: Call) -> Any:
        """Call the activity."""
        return await call_activity(call)


class Report(BaseModel):
    """A payload, and a result."""

    kind: str
    day: datetime | None = None


@activity.defn
async def no_parameter() -> str:
    """Take nothing."""
    return f"{current_run().run_id} {current_run().payload}"


@activity.defn
async def whole_run(run: JobRun[Report]) -> dict[str, Any]:
    """Take the run."""
    assert current_run().fence == run.fence
    return {"run": run, "payload_type": type(run.payload).__name__}


@activity.defn
async def own_payload(report: Report) -> Report:
    """Take the payload."""
    return report.model_copy(update={"kind": report.kind.upper()})


@activity.defn(name="renamed")
def in_thread(kind: str, copies: int = 1) -> list[Any]:
    """Take members of the payload."""
    return [kind, copies, current_run().attempt, threading.current_thread() is threading.main_thread()]


@activity.defn
async def two_models(first: Report, second: Report) -> list[str]:
    """Take two arguments of a team's workflow."""
    return [type(first).__name__, second.kind]


@activity.defn
async def outside_run() -> str:
    """Ask for a run that is not there."""
    try:
        current_run()
    except RuntimeError:
        return "no run"
    return "a run"


class Jobs:
    """Activities with a connection of their own."""

    def __init__(self, connection: str) -> None:
        self.connection = connection

    @activity.defn
    async def method(self, report: Report) -> str:
        """Take the payload."""
        return f"{self.connection} {report.kind}"


def caused_by(error: BaseException, cause: BaseException) -> BaseException:
    """Make what ``raise error from cause`` raises."""
    error.__cause__ = cause
    return error


FAILURES: dict[str, Callable[[], BaseException]] = {
    "value": lambda: ValueError("row 7 is odd"),
    "permanent": lambda: PermanentError("no such customer"),
    "later": lambda: RetryLater(timedelta(seconds=90), "rate limited"),
    "own": lambda: ApplicationError("quota", {"mine": 1}, type="Quota", non_retryable=True),
    "exit": lambda: SystemExit(3),
    "interrupt": lambda: KeyboardInterrupt(),
    "self_cancelled": lambda: asyncio.CancelledError(),
    "long": lambda: ValueError("x" * 5_000_000),
    "odd_text": lambda: ValueError("\ud800"),
    "details": lambda: ApplicationError("quota", {"mine": 1}, object()),
    "wrapped": lambda: caused_by(ValueError("bad row"), KeyError("customer")),
    "empty": lambda: ValueError(),
}


@activity.defn
async def fail(how: str) -> None:
    """Save, and fail."""
    checkpoint({"row": 7})
    raise FAILURES[how]()


@activity.defn
def fail_in_thread(how: str) -> None:
    """The same, in a thread."""
    checkpoint({"row": 7})
    raise FAILURES[how]()


@activity.defn
async def give_back(what: str) -> Any:
    """Return something that is not JSON, or too much of it."""
    return {"nan": float("nan"), "object": object(), "large": "x" * 1024 * 1024, "fits": "x" * (1024 * 1024 - 2)}[what]


@activity.defn
async def sleep_and_clean_up() -> None:
    """Sleep until cancelled."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        CLEANED_UP.append("async")
        raise


@activity.defn
def sleep_and_clean_up_in_thread() -> None:
    """The same, in a thread, where the cancellation is raised at the next instruction."""
    pause = threading.Event()
    try:
        for _ in range(600):
            pause.wait(0.1)
    except CancelledError:
        CLEANED_UP.append("thread")
        raise


CLEANED_UP: list[str] = []

ACTIVITIES = [
    no_parameter, whole_run, own_payload, in_thread, two_models, outside_run, Jobs("db").method, fail, fail_in_thread,
    give_back, sleep_and_clean_up, sleep_and_clean_up_in_thread,
]  # fmt: skip


class Stage:
    """A queue with the workflows and a team's worker on it."""

    def __init__(self, client: Client, task_queue: str) -> None:
        self.client = client
        self.task_queue = task_queue

    async def start(
        self, activity: str, *arguments: Any, workflow: str = "HorariumJob", **how: Any
    ) -> WorkflowHandle[Any, Any]:
        """Start a workflow that calls the activity."""
        call = Call(activity, list(arguments), **how)
        # As the scheduler's workflows have it: a task that a stopping worker has lost is given out again soon.
        return await self.client.start_workflow(
            workflow, call, id=unique("sdk"), task_queue=self.task_queue, task_timeout=WORKFLOW_TASK_TIMEOUT
        )

    async def run_job(self, activity: str, payload: Any = None) -> AttemptReport:
        """Call as a job, and read the report."""
        handle = await self.start(activity, RUN | {"payload": payload})
        report = parse_attempt_report(await handle.result())
        assert report is not None
        return report

    async def fail_job(self, activity: str, payload: Any = None) -> ApplicationError:
        """Call as a job that fails, and get the failure."""
        handle = await self.start(activity, RUN | {"payload": payload})
        error = await failure_of(handle)
        assert isinstance(error, ApplicationError)
        return error


async def failure_of(handle: WorkflowHandle[Any, Any]) -> BaseException | None:
    """Wait for the failure of the activity that a workflow called."""
    with pytest.raises(WorkflowFailureError) as caught:
        await handle.result()
    assert isinstance(caught.value.cause, ActivityError)
    return caught.value.cause.cause


@asynccontextmanager
async def staged(server: DevServer, **worker: Any) -> AsyncIterator[Stage]:
    """Run the scheduler's stand-in and a team's worker, which has a client and a converter of its own."""
    scheduler = await Client.connect(server.options.address, data_converter=pydantic_data_converter)
    team = await Client.connect(server.options.address, identity="team@host")
    queue = unique("sdk")
    workflows = Worker(scheduler, task_queue=queue, workflows=[CallingJob, TeamWorkflow])
    options: dict[str, Any] = {"activities": ACTIVITIES, "activity_executor": ThreadPoolExecutor(8)} | worker
    jobs = Worker(team, task_queue=queue, plugins=[HorariumPlugin()], **options)
    async with workflows, jobs:
        yield Stage(scheduler, queue)


@pytest.fixture
async def stage(temporal_server: DevServer) -> AsyncIterator[Stage]:
    """A stage with all activities of this module."""
    async with staged(temporal_server) as stage:
        yield stage


class TestSignatures:
    """A job's function may look as its author likes."""

    async def test_a_function_without_parameters_finds_its_run(self, stage: Stage) -> None:
        """``current_run()`` tells what is not asked for."""
        report = await stage.run_job("no_parameter", {"kind": "weekly"})
        assert report.result == "j:20260608T130000Z {'kind': 'weekly'}"

    async def test_a_function_may_ask_for_the_run(self, stage: Stage) -> None:
        """With its payload read as the type that it names, and members of later releases ignored."""
        report = await stage.run_job("whole_run", {"kind": "weekly"})
        expected = {name: value for name, value in RUN.items() if name != "a_member_of_a_later_release"}
        expected["payload"] = {"kind": "weekly", "day": None}
        assert report.result == {"run": expected, "payload_type": "Report"}

    async def test_a_function_may_ask_for_its_payload(self, stage: Stage) -> None:
        """Pydantic models pass, although the team's worker has Temporal's default data converter."""
        report = await stage.run_job("own_payload", {"kind": "weekly", "day": "2026-06-08T09:00:00-04:00"})
        assert report.result == {"kind": "WEEKLY", "day": "2026-06-08T09:00:00-04:00"}

    async def test_a_function_that_is_not_async_runs_in_a_thread(self, stage: Stage) -> None:
        """And is found by the name that its decorator gives."""
        report = await stage.run_job("renamed", {"kind": "weekly"})
        assert report.result == ["weekly", 1, 2, False]

    async def test_a_method_is_a_job(self, stage: Stage) -> None:
        """Bound to the object that was registered."""
        assert (await stage.run_job("method", {"kind": "weekly"})).result == "db weekly"

    async def test_a_payload_that_does_not_fit_is_never_retried(self, stage: Stage) -> None:
        """And the failure says which member is wrong."""
        error = await stage.fail_job("own_payload", {"day": None})
        assert (error.type, error.non_retryable) == ("PermanentError", True)
        assert error.message == "payload.kind: Field required"

    async def test_an_unreadable_run_is_never_retried(self, stage: Stage) -> None:
        """A worker too old for its scheduler says so."""
        error = await failure_of(await stage.start("no_parameter", {"tenant": "default"}))
        assert isinstance(error, ApplicationError)
        assert error.non_retryable
        assert "cannot read this run" in error.message


class TestReport:
    """What the scheduler learns besides the result."""

    async def test_a_report_tells_worker_and_start(self, stage: Stage) -> None:
        """By the worker's own clock and identity."""
        before = datetime.now(UTC)
        report = await stage.run_job("no_parameter")
        assert report.worker == "team@host"
        assert before <= report.started_at <= datetime.now(UTC)

    async def test_a_result_of_the_greatest_size_passes(self, stage: Stage) -> None:
        """1 MiB of JSON, quotes included."""
        assert (await stage.run_job("give_back", "fits")).result == "x" * (1024 * 1024 - 2)

    @pytest.mark.parametrize(
        ("what", "message"),
        [("nan", "cannot be written as JSON"), ("object", "cannot be written as JSON"), ("large", "at most 1,048,576")],
    )
    async def test_a_result_that_is_not_json_is_never_retried(self, stage: Stage, what: str, message: str) -> None:
        """It would be the same again."""
        error = await stage.fail_job("give_back", what)
        assert (error.type, error.non_retryable) == ("PermanentError", True)
        assert message in error.message


@pytest.mark.filterwarnings("ignore:The `:pydantic.PydanticDeprecatedSince20", "ignore:If you're using Pydantic v2")
class TestOtherWorkflows:
    """A team's own workflows see no difference."""

    async def test_arguments_are_decoded_by_the_functions_types(self, stage: Stage) -> None:
        """As many as there are."""
        handle = await stage.start("two_models", {"kind": "a"}, {"kind": "b"}, workflow="TeamWorkflow")
        assert await handle.result() == ["Report", "b"]

    async def test_defaults_and_results_are_as_without_the_plugin(self, stage: Stage) -> None:
        """No envelope, and no run."""
        handle = await stage.start("own_payload", {"kind": "a"}, workflow="TeamWorkflow")
        assert await handle.result() == {"kind": "A", "day": None}
        assert await (await stage.start("outside_run", workflow="TeamWorkflow")).result() == "no run"

    async def test_failures_are_as_without_the_plugin(self, stage: Stage) -> None:
        """No details that the team did not write."""
        error = await failure_of(await stage.start("two_models", 1, 2, workflow="TeamWorkflow"))
        assert isinstance(error, ApplicationError)
        assert error.message == "Failed decoding arguments"


@pytest.mark.parametrize("function", ["fail", "fail_in_thread"])
class TestFailures:
    """Whatever job code raises is the failure of one attempt, told in full."""

    @pytest.mark.parametrize(
        ("how", "kind", "message", "permanent"),
        [
            ("value", "ValueError", "row 7 is odd", False),
            ("permanent", "PermanentError", "no such customer", True),
            ("own", "Quota", "quota", True),
            ("exit", "SystemExit", "3", False),
            ("interrupt", "KeyboardInterrupt", "KeyboardInterrupt", False),
            ("self_cancelled", "CancelledError", "CancelledError", False),
            ("odd_text", "ValueError", "?", False),
            ("empty", "ValueError", "ValueError", False),
        ],
    )
    async def test_a_failure_says_type_message_and_checkpoint(
        self, stage: Stage, function: str, how: str, kind: str, message: str, permanent: bool
    ) -> None:
        """The next attempt needs the checkpoint, people need the rest. The worker lives on."""
        error = await stage.fail_job(function, how)
        assert (error.type, error.message, error.non_retryable) == (kind, message, permanent)
        report = parse_attempt_report(error.details[0])
        assert report is not None
        assert (report.worker, report.checkpoint, report.result) == ("team@host", {"row": 7}, None)
        assert (await stage.run_job("no_parameter")).worker == "team@host"

    async def test_retry_later_says_when(self, stage: Stage, function: str) -> None:
        """The scheduler waits at least so long."""
        error = await stage.fail_job(function, "later")
        assert (error.type, error.message, error.non_retryable) == ("RetryLater", "rate limited", False)
        assert error.next_retry_delay == timedelta(seconds=90)

    async def test_a_message_of_megabytes_is_cut(self, stage: Stage, function: str) -> None:
        """SB-120: the server refuses failures of such a size, and the report would be lost with it."""
        error = await stage.fail_job(function, "long")
        assert (len(error.message), error.message[-1]) == (2_000, "…")
        assert parse_attempt_report(error.details[0]) is not None

    async def test_the_web_ui_shows_where_it_went_wrong(self, stage: Stage, function: str) -> None:
        """The stack trace of job code is in the history."""
        error = await stage.fail_job(function, "value")
        assert error.failure is not None
        assert "raise FAILURES[how]()" in error.failure.stack_trace

    async def test_the_cause_of_an_error_is_told(self, stage: Stage, function: str) -> None:
        """Libraries wrap errors; the first one is what people look for."""
        error = await stage.fail_job(function, "wrapped")
        assert isinstance(error.cause, ApplicationError)
        assert (error.cause.type, error.cause.message) == ("KeyError", "'customer'")

    async def test_details_of_its_own_follow_the_report(self, stage: Stage, function: str) -> None:
        """Those that have no JSON form are left out, and cost nothing else."""
        error = await stage.fail_job(function, "details")
        assert parse_attempt_report(error.details[0]) is not None
        assert error.details[1:] == ({"mine": 1},)


class TestCancellation:
    """A cancellation reaches job code, whatever it is doing."""

    @pytest.mark.parametrize(
        ("function", "trace"), [("sleep_and_clean_up", "async"), ("sleep_and_clean_up_in_thread", "thread")]
    )
    async def test_a_cancelled_attempt_may_clean_up(self, stage: Stage, function: str, trace: str) -> None:
        """And then ends as cancelled, not as failed."""
        CLEANED_UP.clear()
        handle = await stage.start(function, RUN, heartbeat_seconds=3)
        await has_pending_heartbeat(handle)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
        assert isinstance(caught.value.cause, CancelledError)
        assert [trace] == CLEANED_UP

    @pytest.mark.parametrize("function", ["sleep_and_clean_up", "sleep_and_clean_up_in_thread"])
    async def test_an_attempt_stopped_with_its_worker_is_a_failure_that_keeps_the_checkpoint(
        self, temporal_server: DevServer, function: str
    ) -> None:
        """It is to be tried again, from where it was."""
        async with staged(temporal_server) as stage:
            handle = await stage.start(function, RUN, task_queue=stage.task_queue)
            await has_pending_heartbeat(handle)
        scheduler = Worker(stage.client, task_queue=stage.task_queue, workflows=[CallingJob])
        async with scheduler:
            error = await failure_of(handle)
        assert isinstance(error, ApplicationError)
        assert (error.type, error.non_retryable) == ("WorkerShutdown", False)
        report = parse_attempt_report(error.details[0])
        assert report is not None
        assert report.checkpoint == {"row": 1}


async def has_pending_heartbeat(handle: WorkflowHandle[Any, Any]) -> Any:
    """Wait until the server knows a heartbeat of the workflow's activity, and get its details."""

    async def heartbeats() -> list[Any]:
        description = await handle.describe()
        return [
            pydantic_data_converter.payload_converter.from_payloads(pending.heartbeat_details.payloads)[0]
            for pending in description.raw_description.pending_activities
            if pending.heartbeat_details.payloads
        ]

    return (await eventually(heartbeats))[0]


class TestHeartbeats:
    """The author of a job does not think of heartbeats."""

    @pytest.mark.parametrize(
        ("function", "saved"),
        [("save_and_hang", {"row": 7}), ("save_and_hang_in_thread", {"row": 8}), ("hang", {"row": 1})],
    )
    async def test_after_the_death_of_a_worker_its_report_is_known(
        self, temporal_server: DevServer, stage: Stage, function: str, saved: Any
    ) -> None:
        """SB-090: noticed within the heartbeat timeout; worker, start and checkpoint are in the last heartbeat."""
        queue = unique("doomed")
        script = Path(__file__).with_name("job_worker.py")
        worker = await asyncio.create_subprocess_exec(
            sys.executable, str(script), temporal_server.options.address, queue
        )
        try:
            handle = await stage.start(function, RUN, task_queue=queue, heartbeat_seconds=2)
            seen = parse_attempt_report(await has_pending_heartbeat(handle))
            assert seen is not None
            assert seen.checkpoint == saved
        finally:
            worker.kill()
            await worker.wait()
        error = await failure_of(handle)
        assert isinstance(error, TimeoutError)
        report = parse_attempt_report(error.last_heartbeat_details[0])
        assert report is not None
        assert (report.worker, report.checkpoint) == ("doomed", saved)

    async def test_a_long_attempt_outlives_its_heartbeat_timeout(self, temporal_server: DevServer) -> None:
        """SB-102: heartbeats go out without the author's doing, from event loop and thread. It is one attempt."""
        began: list[str] = []

        @activity.defn
        async def long() -> None:
            began.append("long")
            await asyncio.sleep(2.5)

        @activity.defn
        def long_in_thread() -> None:
            began.append("long_in_thread")
            threading.Event().wait(2.5)

        async with staged(temporal_server, activities=[long, long_in_thread]) as stage:
            handles = [await stage.start(name, RUN, heartbeat_seconds=1) for name in ("long", "long_in_thread")]
            reports = [parse_attempt_report(await handle.result()) for handle in handles]
        assert all(reports)
        assert sorted(began) == ["long", "long_in_thread"]

    async def test_an_ended_attempt_leaves_no_thread(self, stage: Stage) -> None:
        """A worker that has run a million jobs is as light as a new one."""
        for _ in range(3):
            await stage.run_job("renamed", {"kind": "a"})
        await eventually(lambda: all(thread.name != "horarium-heartbeat" for thread in threading.enumerate()))


async def test_a_process_pool_is_refused_at_once(temporal_client: Client) -> None:
    """With the reason, and not in the first run."""
    with ProcessPoolExecutor(1) as pool, pytest.raises(ValueError, match="give the worker a ThreadPoolExecutor"):
        Worker(
            temporal_client,
            task_queue=unique("sdk"),
            activities=[in_thread],
            activity_executor=pool,
            plugins=[HorariumPlugin()],
        )
