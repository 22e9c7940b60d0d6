"""Jobs whose fires start workflows of a team: what they are given, how they end, and that nothing of them stays behind."""

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError
from temporalio.worker import Worker

from tests.eventually import eventually
from tests.temporal_servers import connect_to, unique
from tests.workflow.harness import QUICK, Harness, chain_of, every, job, kinds_of, side_by_side
from tests.workflow.team_workflow import Pair, Settlement, Stranger, hang, refuse
from workers.devserver import DevServer
from workflows.contracts import attempt_workflow_id, run_workflow_id, scheduled_run_id
from workflows.job import JobDefinition, Lifecycle
from workflows.run import AttemptStatus, Run, RunStatus
from workflows.target import WorkflowArgument, WorkflowTarget

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENOUGH = timedelta(seconds=40)
SOON = {"max_attempts": 3, "base": timedelta(milliseconds=1), "cap": timedelta(milliseconds=1)}
TEAM = unique("team")
NOBODY = unique("nobody")


def settle(
    what: str, *, workflow: str = "Settlement", task_queue: str = TEAM, args: tuple[str, ...] = ("run",), **fields: Any
) -> JobDefinition:
    """A job that runs a workflow of the team, once unless another schedule is given."""
    target = WorkflowTarget(
        workflow=workflow, task_queue=task_queue, args=tuple(WorkflowArgument(each) for each in args)
    )
    values: dict[str, Any] = {"schedule": every(1, max_runs=1), "retry": SOON, "payload": what, "target": target}
    return job(workflow, **(values | fields))


JOBS = {
    "tell": settle("tell"),
    "stranger": settle("order 7", workflow="Stranger", args=("payload",)),
    "pair": settle("order 7", workflow="Pair", args=("payload", "run")),
    "bytes": settle("bytes"),
    "continued": settle("twice as new"),
    "retried": settle("fail twice"),
    "never_again": settle("never again"),
    "inside": settle("fail inside"),
    "hung": settle("hang inside", retry={**SOON, "max_attempts": 1}),
    "timed_out": settle("for ever as new", timeout=timedelta(seconds=3), retry={**SOON, "max_attempts": 1}),
    "cancelled": settle("clean up"),
    "cancelled_by_hand": settle("sleep"),
    "terminated": settle("sleep"),
    "replaced": settle("clean up", schedule=every(3), overlap="cancel_other"),
    "given_up": settle("ignore", schedule=every(3), overlap="terminate_other"),
    "skipping": settle("sleep", schedule=every(1)),
    "untaken": settle("tell", task_queue=NOBODY, queue_timeout=timedelta(seconds=3)),
    "unwanted": settle("tell", task_queue=NOBODY),
    "run_terminated": settle("ignore"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(temporal_server: DevServer) -> AsyncIterator[Harness]:
    """All of them, and a worker of the team that has nothing of ours."""
    client = await connect_to(temporal_server)
    team = Worker(client, task_queue=TEAM, workflows=[Settlement, Stranger, Pair], activities=[refuse, hang])
    async with team, side_by_side(temporal_server, JOBS, tuning=QUICK) as harness:
        yield harness


async def only_run(harness: Harness, name: str) -> Run:
    """Wait for the end of a job's first run."""
    [run, *_] = await harness.until_runs(harness.named[name], 1, limit=ENOUGH)
    return run


def child(harness: Harness, run_id: str, attempt: int = 1) -> WorkflowHandle[Any, Any]:
    """The workflow of an attempt."""
    name = attempt_workflow_id(tenant="default", run_id=run_id, attempt=attempt)
    return harness.client.get_workflow_handle(name)


async def active_run(harness: Harness, name: str) -> str:
    """Wait until the workflow of a job's first run is at work; answers the run's id."""
    job_id = harness.named[name]

    async def look() -> str:
        running = [run for run in harness.mirror.runs.get(job_id, {}).values() if run.status is RunStatus.RUNNING]
        return running[0].run_id if running else ""

    return await eventually(look, limit=ENOUGH)


async def status_of(handle: WorkflowHandle[Any, Any]) -> WorkflowExecutionStatus | None:
    """How a workflow stands."""
    return (await handle.describe()).status


async def test_a_workflow_is_given_its_run(harness: Harness) -> None:
    """One argument: the ``JobRun``, payload and fence inside. Its result is the run's."""
    run = await only_run(harness, "tell")
    assert run.status is RunStatus.SUCCESS
    assert isinstance(run.result, dict)
    told = {key: run.result[key] for key in ("run_id", "payload", "fence", "attempt", "idempotency_key")}
    assert told == {
        "run_id": run.run_id,
        "payload": "tell",
        "fence": run.fence,
        "attempt": 1,
        "idempotency_key": run.idempotency_key,
    }
    described = await child(harness, run.run_id).describe()
    assert described.workflow_type == "Settlement"
    assert described.task_queue == TEAM
    started = (await child(harness, run.run_id).fetch_history()).events[0].workflow_execution_started_event_attributes
    assert started.workflow_execution_timeout.ToTimedelta() == timedelta(seconds=300)


async def test_a_workflow_that_knows_nothing_of_horarium_is_given_its_payload_alone(harness: Harness) -> None:
    """Whose attempt it is stands in its memo, the fence included."""
    run = await only_run(harness, "stranger")
    assert run.result == f"order 7 {run.fence}"


async def test_a_workflow_may_take_both(harness: Harness) -> None:
    """In the order in which the job names them."""
    run = await only_run(harness, "pair")
    assert run.result == f"order 7 order 7 {run.fence}"


async def test_a_result_that_is_no_json_is_left_out(harness: Harness) -> None:
    """It is somebody else's workflow; whatever it answers, the run ends."""
    run = await only_run(harness, "bytes")
    assert run.status is RunStatus.SUCCESS
    assert run.result == {"omitted": "2 bytes of binary/plain; see the Temporal history"}


async def test_a_workflow_that_continues_as_new_has_not_ended(harness: Harness) -> None:
    """The end of the last of its runs is its end."""
    run = await only_run(harness, "continued")
    assert (run.status, run.attempt, run.result) == (RunStatus.SUCCESS, 1, "the end")
    name = attempt_workflow_id(tenant="default", run_id=run.run_id, attempt=1)
    assert len(await chain_of(harness.client, name)) == 3


async def test_a_workflow_that_fails_is_tried_again_as_another_workflow(harness: Harness) -> None:
    """By the job's policy, under a new id, with the same key and a higher fence."""
    run = await only_run(harness, "retried")
    assert (run.status, run.attempt, run.result) == (RunStatus.SUCCESS, 3, "at last")
    rows = harness.mirror.attempts[harness.named["retried"]]
    assert [rows[run.run_id, number].status for number in (1, 2, 3)] == [
        AttemptStatus.FAILED,
        AttemptStatus.FAILED,
        AttemptStatus.SUCCESS,
    ]
    failure = rows[run.run_id, 1].failure
    assert failure is not None
    assert (failure.type, failure.message) == ("Hiccup", "attempt 1")
    assert [await status_of(child(harness, run.run_id, number)) for number in (1, 2, 3)] == [
        WorkflowExecutionStatus.FAILED,
        WorkflowExecutionStatus.FAILED,
        WorkflowExecutionStatus.COMPLETED,
    ]
    fences = [rows[run.run_id, number].fence for number in (1, 2, 3)]
    assert fences == sorted(set(fences))


@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("never_again", ("PermanentError", "no such customer")),
        ("inside", ("BankError", "the bank said no")),
        ("hung", ("timeout", "hang inside the workflow did not answer in time")),
    ],
)
async def test_what_a_workflow_failed_of_is_told(harness: Harness, name: str, failure: tuple[str, str]) -> None:
    """The first cause, and not that "an activity failed". What says never is never tried again."""
    run = await only_run(harness, name)
    assert (run.status, run.attempt) == (RunStatus.DEAD, 1)
    assert run.failure is not None
    assert (run.failure.type, run.failure.message) == failure


async def test_the_timeout_is_for_the_whole_chain(harness: Harness) -> None:
    """A workflow that continues as new for ever is ended by the job's timeout."""
    run = await only_run(harness, "timed_out")
    assert run.status is RunStatus.DEAD
    [attempt] = harness.mirror.attempts[harness.named["timed_out"]].values()
    assert attempt.status is AttemptStatus.TIMED_OUT
    assert run.failure is not None
    assert run.failure.type == "timeout"


async def test_a_cancellation_passes_on_and_is_waited_for(harness: Harness) -> None:
    """The workflow cleans up; only then has the run ended."""
    run_id = await active_run(harness, "cancelled")
    await harness.delete(harness.named["cancelled"], cancel_active=True)
    await harness.until_closed(harness.named["cancelled"], Lifecycle.DELETED)
    run = await only_run(harness, "cancelled")
    assert (run.run_id, run.status, run.reason) == (run_id, RunStatus.CANCELLED, "the job was deleted")
    history = await child(harness, run_id).fetch_history()
    assert kinds_of(history)[-1] == "workflow_execution_canceled"
    assert "timer_fired" in kinds_of(history)


async def test_a_workflow_cancelled_by_hand_is_a_cancelled_run(harness: Harness) -> None:
    """Somebody did so in Temporal; no other attempt follows."""
    run_id = await active_run(harness, "cancelled_by_hand")
    await child(harness, run_id).cancel()
    run = await only_run(harness, "cancelled_by_hand")
    assert (run.status, run.attempt) == (RunStatus.CANCELLED, 1)
    assert run.reason == "its attempt was cancelled in Temporal"


async def test_a_workflow_terminated_by_hand_is_a_dead_run(harness: Harness) -> None:
    """Whoever terminates it does not want it again."""
    run_id = await active_run(harness, "terminated")
    await child(harness, run_id).terminate()
    run = await only_run(harness, "terminated")
    assert (run.status, run.attempt) == (RunStatus.DEAD, 1)
    assert run.failure is not None
    assert run.failure.type == "terminated"


async def test_when_the_runs_own_workflow_is_terminated_so_is_the_teams(harness: Harness) -> None:
    """And the job learns of it at once."""
    run_id = await active_run(harness, "run_terminated")
    await harness.client.get_workflow_handle(run_workflow_id(tenant="default", run_id=run_id)).terminate()
    run = await only_run(harness, "run_terminated")
    assert (run.status, run.reason) == (RunStatus.DEAD, "its workflow closed without a report")
    assert await status_of(child(harness, run_id)) is WorkflowExecutionStatus.TERMINATED


async def begun_runs(harness: Harness, name: str, *, count: int) -> list[tuple[Run, WorkflowExecutionDescription]]:
    """Wait for runs whose workflow a worker has taken, oldest first. On a busy machine some fires are overtaken before that."""
    job_id = harness.named[name]

    async def look() -> list[tuple[Run, WorkflowExecutionDescription]]:
        found = []
        for run in sorted(harness.mirror.runs.get(job_id, {}).values(), key=lambda run: run.scheduled_at):
            with suppress(RPCError):
                handle = child(harness, run.run_id)
                if "workflow_task_completed" in kinds_of(await handle.fetch_history()):
                    found.append((run, await handle.describe()))
        return found if len(found) >= count else []

    return await eventually(look, limit=ENOUGH)


async def test_a_newer_fire_replaces_a_workflow(harness: Harness) -> None:
    """``cancel_other``: the next one starts when the last one has cleaned up."""
    (old, first), (_, second), *_ = await begun_runs(harness, "replaced", count=2)
    assert (old.status, old.reason) == (RunStatus.CANCELLED, "overlap: cancelled for a newer fire")
    assert first.status is WorkflowExecutionStatus.CANCELED
    assert first.close_time is not None
    assert first.close_time <= second.start_time


async def test_a_workflow_that_is_given_up_does_not_stay_behind(harness: Harness) -> None:
    """``terminate_other``: one that ignores its cancellation is terminated, and the newer one did not wait for that."""
    (old, _), _, *_ = await begun_runs(harness, "given_up", count=2)

    def has_ended() -> Run | None:
        run = harness.mirror.runs[harness.named["given_up"]][old.run_id]
        return run if run.finished_at else None

    run = await eventually(has_ended)
    assert run is not None
    assert (run.status, run.reason) == (RunStatus.CANCELLED, "overlap: given up for a newer fire")
    gone = child(harness, run.run_id)
    await eventually(lambda: _is(gone, WorkflowExecutionStatus.TERMINATED))


async def _is(handle: WorkflowHandle[Any, Any], status: WorkflowExecutionStatus) -> bool:
    return await status_of(handle) is status


async def test_fires_are_skipped_while_the_workflow_is_at_work(harness: Harness) -> None:
    """A workflow that takes hours is an active run."""
    job_id = harness.named["skipping"]
    run_id = await active_run(harness, "skipping")
    await eventually(lambda: harness.mirror.jobs[job_id].counts.skipped >= 2, limit=ENOUGH)
    assert {entry.run_id for entry in harness.mirror.ledger[job_id].values()} == {run_id}
    assert len(harness.mirror.runs[job_id]) == 1


async def test_a_workflow_that_no_worker_takes_in_time_is_given_up(harness: Harness) -> None:
    """After ``queue_timeout_seconds`` the run is dead, and the workflow will not run later."""
    run = await only_run(harness, "untaken")
    assert (run.status, run.reason) == (RunStatus.DEAD, "not_started: no worker took it in time")
    await eventually(lambda: _is(child(harness, run.run_id), WorkflowExecutionStatus.TERMINATED))


async def test_a_workflow_that_no_worker_has_taken_can_be_cancelled(harness: Harness) -> None:
    """It is said what it waits for. Nobody is there to hear of a cancellation, so that is not waited for."""
    job_id = harness.named["unwanted"]
    waits = f"no worker polls task queue {NOBODY}"
    await eventually(lambda: any(run.reason == waits for run in harness.mirror.runs.get(job_id, {}).values()))
    await harness.delete(job_id, cancel_active=True)
    await harness.until_closed(job_id, Lifecycle.DELETED)
    run = await only_run(harness, "unwanted")
    assert (run.status, run.reason) == (RunStatus.CANCELLED, "the job was deleted")
    await eventually(lambda: _is(child(harness, run.run_id), WorkflowExecutionStatus.TERMINATED))


async def test_a_workflow_of_the_same_id_is_left_alone(harness: Harness) -> None:
    """It is not ours. The run fails, clearly, and is not tried under another id."""
    job_id = unique("job")
    nominal = (await harness.now()).replace(microsecond=0) + timedelta(seconds=3)
    run_id = scheduled_run_id(job_id=job_id, nominal=nominal)
    name = attempt_workflow_id(tenant="default", run_id=run_id, attempt=1)
    foreign = await harness.client.start_workflow("Settlement", {"payload": "sleep"}, id=name, task_queue=TEAM)
    await harness.register(
        settle("tell", schedule=every(1, max_runs=1, start_at=nominal)), job_id=job_id, registered_at=nominal
    )
    [run] = await harness.until_runs(job_id, 1, limit=ENOUGH)
    assert run.run_id == run_id
    assert (run.status, run.attempt) == (RunStatus.DEAD, 1)
    assert run.failure is not None
    assert (run.failure.type, run.failure.retryable) == ("workflow_id_conflict", False)
    assert name in run.failure.message
    assert await status_of(foreign) is WorkflowExecutionStatus.RUNNING
    await foreign.terminate()
