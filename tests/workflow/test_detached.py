"""Runs in workflows of their own: they outlive continuations of their job, report to it, and are missed when they vanish."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from temporalio.client import WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy

from tests.eventually import eventually
from tests.temporal_servers import unique
from tests.workflow.harness import QUICK, Harness, chain_of, job, kinds_of, side_by_side
from workers.devserver import DevServer
from workflows.contracts import RECORDS_WORKFLOW, run_workflow_id, scheduled_run_id
from workflows.job import JobDefinition, Lifecycle, MirrorBatch
from workflows.run import AttemptStatus, Outcome, Run, RunStatus

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENOUGH = timedelta(seconds=40)
OFTEN = {"max_attempts": 3, "base": timedelta(milliseconds=1), "cap": timedelta(milliseconds=1)}


def detached(activity: str, **fields: Any) -> JobDefinition:
    """A job whose runs are workflows."""
    return job(activity, isolation="workflow", **fields)


JOBS = {
    "reports": detached("take", every_seconds=2, payload=0.2),
    "crosses": detached("take", payload=4, overlap="allow", max_concurrent=8),
    "retries": detached("fail", every_seconds=5, payload=1, retry=OFTEN),
    "terminated": detached("take", every_seconds=2, payload=60),
    "deleted": detached("take", every_seconds=2, payload=60, heartbeat_timeout=timedelta(seconds=1.5)),
    "replaced": detached(
        "take", every_seconds=4, payload=60, overlap="cancel_other", heartbeat_timeout=timedelta(seconds=1.5)
    ),
    "given_up": detached("take", every_seconds=3, payload=60, overlap="terminate_other"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(temporal_server: DevServer) -> AsyncIterator[Harness]:
    """All of them."""
    short = QUICK.model_copy(update={"history_limit": 50})
    async with side_by_side(temporal_server, JOBS, crosses=short) as harness:
        yield harness


def workflow_of(run: Run) -> str:
    """The id of a run's workflow."""
    return run_workflow_id(tenant="default", run_id=run.run_id)


async def test_a_detached_run_is_recorded_and_reported(harness: Harness) -> None:
    """Its workflow writes its rows, and its job counts it; where it ran is told."""
    job_id = harness.named["reports"]
    run, *_ = await harness.until_runs(job_id, 2, limit=ENOUGH)
    assert (run.status, run.detached, run.workflow_id) == (RunStatus.SUCCESS, True, workflow_of(run))
    await eventually(lambda: harness.mirror.jobs[job_id].counts.succeeded >= 2)
    [history] = await chain_of(harness.client, workflow_of(run))
    assert kinds_of(history)[-1] == "workflow_execution_completed"
    assert kinds_of(history).count("signal_external_workflow_execution_initiated") == 1
    assert history.run_id == run.workflow_run_id


async def test_detached_runs_cross_the_continuations_of_their_job(harness: Harness) -> None:
    """Several are always active; each is counted once, however many runs of the job's workflow it saw."""
    job_id = harness.named["crosses"]
    runs = await harness.until_runs(job_id, 8, limit=ENOUGH)
    assert len(await harness.histories(job_id)) >= 3
    assert {run.status for run in runs} == {RunStatus.SUCCESS}
    await eventually(lambda: harness.mirror.jobs[job_id].counts.succeeded >= 8)


async def test_a_detached_run_makes_its_own_attempts(harness: Harness) -> None:
    """With the same rows, keys and fences as an inline one."""
    job_id = harness.named["retries"]
    [run, *_] = await harness.until_runs(job_id, 1, limit=ENOUGH)
    assert (run.status, run.attempt, run.result) == (RunStatus.SUCCESS, 2, "at last")
    rows = harness.mirror.attempts[job_id]
    assert [rows[run.run_id, number].status for number in (1, 2)] == [AttemptStatus.FAILED, AttemptStatus.SUCCESS]
    first, second = harness.code.of(job_id)[:2]
    assert first.run.idempotency_key == second.run.idempotency_key
    assert first.run.fence < second.run.fence


async def test_a_run_whose_workflow_was_terminated_is_noticed(harness: Harness) -> None:
    """SB-099: behind our back; the row says so and the next fire goes on."""
    job_id = harness.named["terminated"]
    await eventually(lambda: harness.code.of(job_id))
    run_id = harness.code.of(job_id)[0].run.run_id
    await harness.client.get_workflow_handle(run_workflow_id(tenant="default", run_id=run_id)).terminate()
    [run, *_] = await harness.until_runs(job_id, 1, limit=ENOUGH)
    assert (run.run_id, run.status) == (run_id, RunStatus.DEAD)
    assert run.reason == "its workflow closed without a report"
    await eventually(lambda: len(harness.code.of(job_id)) > 1)


async def test_a_run_is_cancelled_with_its_job(harness: Harness) -> None:
    """Its handler hears of it, and the job's workflow ends when it has."""
    job_id = harness.named["deleted"]
    await eventually(lambda: harness.code.of(job_id))
    await harness.delete(job_id, cancel_active=True)
    record = await harness.until_closed(job_id, Lifecycle.DELETED)
    assert record.active_runs == 0
    # Its row is written by its own workflow, beside the report that its job waits for.
    await eventually(lambda: any(run.attempt and run.finished_at for run in harness.mirror.runs[job_id].values()))
    [run] = [run for run in harness.mirror.runs[job_id].values() if run.attempt]
    assert (run.status, run.reason) == (RunStatus.CANCELLED, "the job was deleted")
    assert harness.code.of(job_id)[0].how == "CancelledError"

    async def is_done() -> bool:
        described = await harness.client.get_workflow_handle(workflow_of(run)).describe()
        return described.status is WorkflowExecutionStatus.COMPLETED

    await eventually(is_done)


async def test_a_detached_run_is_replaced(harness: Harness) -> None:
    """``cancel_other``: the new run starts after the report of the old one."""
    job_id = harness.named["replaced"]
    runs = await harness.until_runs(job_id, 2, limit=ENOUGH)
    started = [run for run in runs if run.attempt]
    assert {run.status for run in started} == {RunStatus.CANCELLED}
    assert started[0].reason == "overlap: cancelled for a newer fire"
    first, second = harness.code.of(job_id)[:2]
    assert first.ended is not None
    assert first.ended <= second.began


async def test_a_detached_run_is_given_up(harness: Harness) -> None:
    """``terminate_other``: its workflow is cancelled and writes its end."""
    job_id = harness.named["given_up"]
    runs = await harness.until_runs(job_id, 2, limit=ENOUGH)
    started = [run for run in runs if run.attempt]
    assert (started[0].status, started[0].reason) == (RunStatus.CANCELLED, "overlap: given up for a newer fire")
    fences = [call.run.fence for call in harness.code.of(job_id)]
    assert fences == sorted(set(fences))


async def test_a_workflow_of_the_runs_id_makes_that_fire_fail_to_start(harness: Harness) -> None:
    """SB-096: started by hand, before; it is left alone, the ledger says so, and later fires go on."""
    now = await harness.now()
    fires = [now.replace(microsecond=0) + timedelta(seconds=seconds) for seconds in range(2, 9)]
    job_id = unique("job")
    nominal = next(fire for fire in fires if fire.timestamp() % 3 == 0)
    taken = run_workflow_id(tenant="default", run_id=scheduled_run_id(job_id=job_id, nominal=nominal))
    foreign = await harness.client.start_workflow(
        RECORDS_WORKFLOW,
        MirrorBatch(),
        id=taken,
        task_queue=unique("nobody"),
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
    )
    await harness.register(
        detached("noop", every_seconds=3), job_id=job_id, registered_at=nominal - timedelta(seconds=1)
    )
    await eventually(lambda: len(harness.code.of(job_id)) >= 2 and len(harness.mirror.runs[job_id]) >= 3)
    refused = harness.mirror.runs[job_id][scheduled_run_id(job_id=job_id, nominal=nominal)]
    assert (refused.status, refused.outcome) == (RunStatus.CANCELLED, Outcome.FAILED_TO_START)
    assert refused.reason == "Temporal has a workflow of this run's id already"
    assert max(call.run.scheduled_at for call in harness.code.of(job_id)) > nominal
    described = await foreign.describe()
    assert described.status is WorkflowExecutionStatus.RUNNING
    await foreign.terminate()
