"""An open breaker is one for all processes, and outlives them and whatever is done to its jobs."""

from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowHandle

from tests.eventually import eventually
from tests.temporal_servers import unique
from tests.workflow.harness import Harness, job, running
from workflows.breaker import BreakerPolicy, ProbeAnswer
from workflows.contracts import UPDATE_RESET_BREAKER, downstream_workflow_id
from workflows.run import RunStatus

FOR_AN_HOUR = BreakerPolicy(failures_to_open=3, open_for=timedelta(hours=1), longest_open=timedelta(hours=1))


async def test_an_open_breaker_stays_open_whatever_becomes_of_processes_and_jobs(temporal_client: Client) -> None:
    """SB-106: all workers are replaced, and a job is changed, paused and resumed: it is open until when it was, for the runs of
    before and for those that come, and no attempt goes to the downstream."""
    bank = unique("bank")
    breaker = temporal_client.get_workflow_handle(downstream_workflow_id(tenant="default", downstream=bank))
    async with running(temporal_client, breaker=FOR_AN_HOUR) as harness:
        harness.code.is_downstream_down = True
        fields: dict[str, Any] = {"every_seconds": 3600, "overlap": "allow", "retry": {"max_attempts": 1}}
        calling = job("call_out", downstream=bank, **fields)
        job_id = await harness.register(calling)
        for failures in range(1, 4):
            await harness.trigger(job_id)
            await eventually(lambda failures=failures: harness.mirror.statuses(job_id)[RunStatus.DEAD] == failures)  # type: ignore[misc]
        await harness.trigger(job_id)
        await eventually(lambda: count_parked(harness, job_id) == 1)
        opened = await memo_of(breaker)
        assert opened["openings"] == "1"

        await harness.stop_workers()
        await harness.start_workers()
        await harness.pause(job_id)
        await harness.change(job_id, calling.model_copy(update={"description": "changed"}))
        await harness.resume(job_id)
        await harness.trigger(job_id)
        await eventually(lambda: count_parked(harness, job_id) == 2)
        assert await memo_of(breaker) == opened
        assert len(harness.code.of(job_id)) == 3
        await harness.delete(job_id, cancel_active=True)
        await breaker.execute_update(UPDATE_RESET_BREAKER, result_type=ProbeAnswer)


def count_parked(harness: Harness, job_id: str) -> int:
    """Count the runs that wait for the downstream, without having used up an attempt."""
    runs = harness.mirror.runs.get(job_id, {}).values()
    return sum(run.status is RunStatus.PARKED and run.attempt == 0 for run in runs)


async def memo_of(breaker: WorkflowHandle[object, object]) -> dict[str, object]:
    """What an open breaker shows of itself."""
    return dict(await (await breaker.describe()).memo())
