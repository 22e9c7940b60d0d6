"""The database is never on the firing path: it may be down, hang or refuse, and jobs fire on."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from tests.eventually import eventually
from tests.workflow.harness import QUICK, SLEEPY, Harness, is_gapless, job, lateness, running
from workflows.contracts import records_workflow_id
from workflows.job import Lifecycle, Tuning
from workflows.run import RunStatus

ENOUGH = timedelta(seconds=40)


@pytest.fixture
async def harness(temporal_client: Client) -> AsyncIterator[Harness]:
    """Workers of the test's own."""
    async with running(temporal_client) as harness:
        yield harness


async def until_called(harness: Harness, job_id: str, count: int) -> None:
    """Wait until a job's code was called so often."""
    await eventually(lambda: len(harness.code.of(job_id)) >= count, limit=ENOUGH)


@pytest.mark.parametrize("trouble", ["down", "hung"])
async def test_jobs_fire_on_time_while_the_mirror_is_away_and_it_catches_up(harness: Harness, trouble: str) -> None:
    """SB-117: on timers, asleep, with retries inline and detached; when it is back every run is there, each once."""
    often = {"max_attempts": 3, "base": timedelta(milliseconds=1), "cap": timedelta(milliseconds=1)}
    jobs = {
        "timer": await harness.register(job()),
        "sleepy": await harness.register(job(every_seconds=3), tuning=SLEEPY),
        "inline": await harness.register(job("fail", every_seconds=4, payload=1, retry=often)),
        "detached": await harness.register(job("fail", every_seconds=4, payload=1, retry=often, isolation="workflow")),
    }
    for job_id in jobs.values():
        await harness.until_runs(job_id, 1, limit=ENOUGH)
    harness.mirror.trouble = trouble
    before = {name: len(harness.code.of(job_id)) for name, job_id in jobs.items()}
    for name, more in (("timer", 8), ("sleepy", 3), ("inline", 4), ("detached", 4)):
        await until_called(harness, jobs[name], before[name] + more)
    assert harness.mirror.refusals > 0
    harness.mirror.trouble = ""
    for name, job_id in jobs.items():
        called = {call.run.run_id for call in harness.code.of(job_id)}
        await eventually(lambda job_id=job_id, called=called: called <= _final(harness, job_id), limit=ENOUGH)  # type: ignore[misc]
        rows = harness.mirror.runs[job_id].values()
        assert {run.status for run in rows if run.finished_at} == {RunStatus.SUCCESS}, name
    seconds = sorted(run.scheduled_at for run in harness.mirror.runs[jobs["timer"]].values())
    assert is_gapless(seconds, timedelta(seconds=1))
    assert max(map(lateness, harness.mirror.runs[jobs["timer"]].values())) < timedelta(seconds=3)


async def test_a_backlog_moves_to_a_workflow_that_retries_for_ever(harness: Harness) -> None:
    """So that a job's state does not grow with an outage, and the job may sleep; the records arrive all the same."""
    harness.mirror.trouble = "down"
    job_id = await harness.register(job(), tuning=QUICK.model_copy(update={"outbox_limit": 8}))
    await until_called(harness, job_id, 12)
    histories = await harness.histories(job_id)
    children = [
        event.start_child_workflow_execution_initiated_event_attributes.workflow_id
        for history in histories
        for event in history.events
        if event.HasField("start_child_workflow_execution_initiated_event_attributes")
    ]
    assert children
    prefix = records_workflow_id(tenant="default", job_id=job_id, version=0).removesuffix("0")
    assert all(name.startswith(prefix) for name in children)
    called = {call.run.run_id for call in harness.code.of(job_id)}
    harness.mirror.trouble = ""
    await eventually(lambda: called <= _final(harness, job_id), limit=ENOUGH)

    async def is_done() -> bool:
        described = await harness.client.get_workflow_handle(children[0]).describe()
        return described.status is WorkflowExecutionStatus.COMPLETED

    await eventually(is_done)


async def test_a_job_whose_backlog_was_handed_over_goes_on_sleeping(harness: Harness) -> None:
    """Nothing is left to send: it must not stay awake, nor go round in circles, until the database is back."""
    harness.mirror.trouble = "down"
    sleepy = Tuning(long_sleep_threshold=timedelta(seconds=10), outbox_limit=1, search_attributes=False)
    job_id = await harness.register(job(every_seconds=30), tuning=sleepy)

    async def sleeps_long() -> bool:
        histories = await harness.histories(job_id)
        started = histories[-1].events[0].workflow_execution_started_event_attributes
        assert max(len(history.events) for history in histories) < 120
        return started.first_workflow_task_backoff.ToTimedelta() > timedelta(seconds=5)

    await eventually(sleeps_long, limit=timedelta(seconds=60))
    harness.mirror.trouble = ""


async def test_a_record_that_can_never_be_written_holds_up_no_other(harness: Harness) -> None:
    """The mirror takes the rest of its batch and says so; the job does not send it for ever."""
    job_id = await harness.register(job())
    await harness.until_runs(job_id, 1)
    poison = harness.code.of(job_id)[-1].run
    harness.mirror.poison = f"{job_id}:{poison.scheduled_at + timedelta(seconds=2):%Y%m%dT%H%M%SZ}"
    runs = await harness.until_runs(job_id, 6)
    assert harness.mirror.poison not in {run.run_id for run in runs}
    [history] = await harness.histories(job_id)
    assert not [
        e for e in history.events if e.activity_task_scheduled_event_attributes.activity_type.name == "record_events"
    ]


async def test_a_job_deleted_while_the_mirror_is_away_ends_when_it_is_back(harness: Harness) -> None:
    """The command is answered at once; the workflow stays until the mirror knows."""
    job_id = await harness.register(job())
    await harness.until_runs(job_id, 1)
    harness.mirror.trouble = "down"
    record = await harness.delete(job_id)
    assert record.lifecycle is Lifecycle.DELETED
    assert harness.mirror.jobs[job_id].lifecycle is Lifecycle.ACTIVE
    harness.mirror.trouble = ""
    await harness.until_closed(job_id, Lifecycle.DELETED)


def _final(harness: Harness, job_id: str) -> set[str]:
    return {run.run_id for run in harness.mirror.runs.get(job_id, {}).values() if run.finished_at}
