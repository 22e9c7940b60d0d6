"""Control by updates: delete, register again, and what repeated or late commands do."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from tests.eventually import eventually
from tests.temporal_servers import unique
from tests.workflow.harness import QUICK, Harness, job, kinds_of, refusal_of, running
from workflows.contracts import INVALID_SCHEDULE, JOB_WORKFLOW, LOGIC_VERSION, WORKFLOW_TASK_TIMEOUT, job_workflow_id
from workflows.job import FirePlan, JobInput, Lifecycle
from workflows.lifecycle import PASSED_BEFORE
from workflows.run import Outcome, RunStatus
from workflows.schedule import Fire, OneOffRule, Schedule


@pytest.fixture
async def harness(temporal_client: Client) -> AsyncIterator[Harness]:
    """Workers of the test's own."""
    async with running(temporal_client) as harness:
        yield harness


async def test_a_deleted_job_lets_its_run_end_and_fires_no_more(harness: Harness) -> None:
    """The answer shows it deleted; the workflow closes when the run has ended and all is recorded."""
    job_id = await harness.register(job("take", payload=3))
    await eventually(lambda: harness.code.of(job_id))
    record = await harness.delete(job_id)
    assert (record.lifecycle, record.next_run_at, record.active_runs) == (Lifecycle.DELETED, None, 1)
    await harness.until_closed(job_id, Lifecycle.DELETED)
    assert [call.how for call in harness.code.of(job_id)] == ["answered"]
    assert harness.mirror.statuses(job_id)[RunStatus.SUCCESS] == 1


async def test_deleting_with_its_runs_cancels_them(harness: Harness) -> None:
    """Waiting ones at once, running ones by their next heartbeat."""
    job_id = await harness.register(
        job("take", payload=60, overlap="buffer_one", heartbeat_timeout=timedelta(seconds=1.5))
    )
    await eventually(lambda: harness.mirror.runs.get(job_id))
    await harness.delete(job_id, cancel_active=True)
    await harness.until_closed(job_id, Lifecycle.DELETED)
    assert harness.code.of(job_id)[0].how == "CancelledError"
    assert harness.mirror.statuses(job_id) == {RunStatus.CANCELLED: 2}
    reasons = {run.reason for run in harness.mirror.runs[job_id].values()}
    assert reasons == {"the job was deleted"}


async def test_a_repeated_command_changes_nothing_and_is_answered_as_before(harness: Harness) -> None:
    """One after the other, and at the same time; under the same key."""
    job_id = await harness.register(job("take", payload=5))
    await eventually(lambda: harness.code.of(job_id))
    first = await harness.delete(job_id, key="k")
    again = await harness.delete(job_id, key="k", cancel_active=True)
    both = await asyncio.gather(*(harness.delete(job_id, key="k") for _ in range(3)))
    assert {record.version for record in (first, again, *both)} == {first.version}
    assert first == again
    other = await harness.delete(job_id, key="another")
    assert other.version > first.version


async def test_a_job_registered_again_while_a_run_is_active_fires_at_once(harness: Harness) -> None:
    """SB-075: 10 times deleted and registered within moments; the old run is in nobody's way and stays in the books."""
    job_id = await harness.register(job("take", payload=4))
    await eventually(lambda: harness.code.of(job_id))
    old = harness.code.of(job_id)[0].run.run_id
    for number in range(10):
        await harness.delete(job_id)
        record = await harness.register_again(job(every_seconds=2), job_id=job_id, key=f"register-{number}")
        assert record.lifecycle is Lifecycle.ACTIVE
    await eventually(lambda: len(harness.code.of(job_id)) >= 3)
    runs = await harness.until_runs(job_id, 3)
    assert {run.status for run in runs} == {RunStatus.SUCCESS}
    assert old in {run.run_id for run in runs}
    versions = [harness.mirror.jobs[job_id].version]
    assert versions[0] > record.version - 1
    assert harness.mirror.conflicts == []


async def test_a_job_that_is_there_refuses_to_be_registered(harness: Harness) -> None:
    """With a conflict, again and again under the same key; it fires on."""
    job_id = await harness.register(job())
    await harness.until_runs(job_id, 1)
    for _ in range(2):
        refused = harness.register_again(job(every_seconds=5), job_id=job_id, key="k")
        assert await refusal_of(refused) == "Conflict"
    await harness.until_runs(job_id, 3)
    assert harness.mirror.jobs[job_id].definition == job()


def once(at: datetime) -> Schedule:
    """A schedule that fires at one time."""
    return Schedule(rule=OneOffRule(at=at), jitter_window_seconds=0)


async def test_a_one_off_that_has_passed_by_temporals_clock_is_missed(harness: Harness) -> None:
    """SB-116: the clock of the front door is an hour behind, and has promised it. The job completes, and says why."""
    now = (await harness.now()).replace(microsecond=0)
    due, job_id = now - timedelta(minutes=30), unique("job")
    harness.jobs.append(job_id)
    state = await harness.state(job(schedule=once(due)), job_id=job_id, registered_at=now - timedelta(hours=1))
    promised = FirePlan(revision=0, planned_at=due, upcoming=(Fire(nominal=due, target=due),))
    await harness.start(JobInput(state=state.model_copy(update={"plan": promised})))
    record = await harness.until_closed(job_id, Lifecycle.COMPLETED)
    assert record.counts.missed == 1
    assert harness.mirror.outcomes(job_id) == [(due, Outcome.MISSED)]
    assert harness.mirror.ledger[job_id][due].reason == PASSED_BEFORE


async def test_a_change_to_a_time_that_has_passed_by_temporals_clock_is_refused(harness: Harness) -> None:
    """SB-116: it would complete the job without a word. The job goes on as it was, and takes a time to come."""
    now = (await harness.now()).replace(microsecond=0)
    later = now + timedelta(days=1)
    job_id = await harness.register(job(schedule=once(later)))
    passed = now - timedelta(seconds=1)
    refused = harness.change(job_id, job(schedule=once(passed)), one_fire=passed)
    assert await refusal_of(refused) == INVALID_SCHEDULE
    shown = (await harness.show(job_id)).job
    assert shown is not None
    assert (shown.revision, shown.next_run_at) == (1, later)
    other = later + timedelta(days=1)
    changed = await harness.change(job_id, job(schedule=once(other)), one_fire=other)
    assert (changed.revision, changed.next_run_at) == (2, other)


async def test_commands_reach_a_job_in_the_middle_of_its_continuations(harness: Harness) -> None:
    """Thirty of them while it continues as new every other second: each is answered, no fire is lost."""
    job_id = await harness.register(job(), tuning=QUICK.model_copy(update={"history_limit": 12}))
    await harness.until_runs(job_id, 1)

    async def send(number: int) -> str:
        while True:
            try:
                return await refusal_of(harness.register_again(job(), job_id=job_id, key=f"k{number}"))
            except RPCError as error:
                # The workflow closed under it: the caller repeats it, under the same key.
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise

    answers = []
    for number in range(0, 30, 5):
        answers += await asyncio.gather(*(send(number + more) for more in range(5)))
        known = len(harness.mirror.runs[job_id])
        await harness.until_runs(job_id, known)
    assert answers == ["Conflict"] * 30
    assert {outcome for _, outcome in harness.mirror.outcomes(job_id)} <= {Outcome.RAN, Outcome.SKIPPED}


async def test_a_job_cancelled_in_temporal_ends_as_deleted(harness: Harness) -> None:
    """Its run is cancelled too, and the mirror says what became of it."""
    job_id = await harness.register(job("take", payload=60, heartbeat_timeout=timedelta(seconds=1.5)))
    await eventually(lambda: harness.code.of(job_id))
    await harness.handle(job_id).cancel()
    await harness.until_closed(job_id, Lifecycle.DELETED)
    described = await harness.handle(job_id).describe()
    assert described.status is WorkflowExecutionStatus.COMPLETED
    [run] = [run for run in harness.mirror.runs[job_id].values() if run.attempt]
    assert (run.status, run.reason) == (RunStatus.CANCELLED, "the job was deleted")


async def test_a_worker_that_meets_a_newer_logic_version_fails_the_task_loudly(harness: Harness) -> None:
    """And leaves the job as it is, for a worker that knows it."""
    harness.may_fail_tasks = True
    job_id = unique("job")
    harness.jobs.append(job_id)
    state = await harness.state(job(), job_id=job_id)
    await harness.client.start_workflow(
        JOB_WORKFLOW,
        JobInput(state=state, logic_version=LOGIC_VERSION + 1),
        id=job_workflow_id(tenant="default", job_id=job_id),
        task_queue="horarium",
        task_timeout=WORKFLOW_TASK_TIMEOUT,
    )

    async def has_failed() -> bool:
        [history] = await harness.histories(job_id)
        return "workflow_task_failed" in kinds_of(history)

    await eventually(has_failed)
    assert harness.code.of(job_id) == []
