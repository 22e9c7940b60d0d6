"""The workflow of a detached run, when it has to continue as new itself."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from tests.eventually import eventually
from tests.workflow.harness import QUICK, Harness, chain_of, count_kind, every, job, kinds_of, side_by_side
from workers.devserver import DevServer
from workflows.contracts import run_workflow_id
from workflows.job import JobDefinition, Lifecycle
from workflows.run import AttemptStatus, RunStatus

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENOUGH = timedelta(seconds=60)
SHORT = QUICK.model_copy(update={"history_limit": 30})
OFTEN = {"max_attempts": 50, "base": timedelta(milliseconds=1), "cap": timedelta(milliseconds=1)}


def detached(times: int, **fields: Any) -> JobDefinition:
    """A job whose one run fails so often."""
    values: dict[str, Any] = {"schedule": every(1, max_runs=1), "retry": OFTEN, "isolation": "workflow"}
    return job("fail", payload=times, **(values | fields))


JOBS = {"retries": detached(7), "cancelled": detached(1_000), "crosses": detached(7, schedule=every(1))}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(temporal_server: DevServer) -> AsyncIterator[Harness]:
    """All of them; histories end soon."""
    async with side_by_side(temporal_server, JOBS, tuning=SHORT) as harness:
        yield harness


async def test_no_attempt_is_lost_or_made_twice_by_continuing_as_new(harness: Harness) -> None:
    """Between two attempts the run is plain state: number, fence and key go on, and each attempt has a row."""
    job_id = harness.named["retries"]
    [run] = await harness.until_runs(job_id, 1, limit=ENOUGH)
    assert (run.status, run.attempt, run.result) == (RunStatus.SUCCESS, 8, "at last")
    chain = await chain_of(harness.client, run_workflow_id(tenant="default", run_id=run.run_id))
    assert len(chain) >= 3
    assert run.workflow_run_id == chain[-1].run_id
    assert count_kind(chain, "signal_external_workflow_execution_initiated") == 1
    calls = harness.code.of(job_id)
    assert [call.run.attempt for call in calls] == [*range(1, 9)]
    fences = [call.run.fence for call in calls]
    assert fences == sorted(set(fences))
    assert len({call.run.idempotency_key for call in calls}) == 1
    rows = harness.mirror.attempts[job_id]
    assert [rows[run.run_id, number].status for number in range(1, 9)] == [AttemptStatus.FAILED] * 7 + [
        AttemptStatus.SUCCESS
    ]
    await eventually(lambda: harness.mirror.jobs[job_id].counts.succeeded == 1)


async def test_a_run_that_has_continued_as_new_is_cancelled_all_the_same(harness: Harness) -> None:
    """The request goes to whichever run is the present one."""
    job_id = harness.named["cancelled"]
    await eventually(lambda: harness.code.of(job_id))
    run_id = harness.code.of(job_id)[0].run.run_id
    name = run_workflow_id(tenant="default", run_id=run_id)

    async def has_continued() -> bool:
        return len(await chain_of(harness.client, name)) >= 2

    await eventually(has_continued, limit=ENOUGH)
    await harness.delete(job_id, cancel_active=True)
    await harness.until_closed(job_id, Lifecycle.DELETED)
    # Its job does not wait for the row of its end, which the run's own workflow writes beside its report.
    [run] = await harness.until_runs(job_id, 1)
    assert (run.run_id, run.status, run.reason) == (run_id, RunStatus.CANCELLED, "the job was deleted")


async def test_a_run_reports_to_its_job_when_both_have_continued_as_new(harness: Harness) -> None:
    """The job skips its fires meanwhile, and goes on when it has heard."""
    job_id = harness.named["crosses"]
    [first, *_] = await harness.until_runs(job_id, 1, limit=ENOUGH)
    assert (first.status, first.attempt) == (RunStatus.SUCCESS, 8)
    await eventually(lambda: harness.mirror.jobs[job_id].counts.succeeded >= 1)
    assert harness.mirror.jobs[job_id].counts.skipped >= 5
    await eventually(lambda: any(call.run.run_id != first.run_id for call in harness.code.of(job_id)))
    assert len(await harness.histories(job_id)) >= 2
    chain = await chain_of(harness.client, run_workflow_id(tenant="default", run_id=first.run_id))
    assert len(chain) >= 3
    assert all("workflow_task_failed" not in kinds_of(history) for history in chain)
