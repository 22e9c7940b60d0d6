"""The database is never on the firing path: it may be down, hang or refuse, and jobs fire on. All jobs here live side by side."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from temporalio.client import WorkflowExecutionStatus

from tests.eventually import eventually
from tests.workflow.harness import QUICK, SLEEPY, Harness, children_in, job, lateness, side_by_side
from workers.devserver import DevServer
from workflows.contracts import records_workflow_id
from workflows.job import Lifecycle, Tuning
from workflows.run import Run, RunStatus

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENOUGH = timedelta(seconds=40)
OFTEN = {"max_attempts": 3, "base": timedelta(milliseconds=1), "cap": timedelta(milliseconds=1)}

FIRING = {
    "timer": job(every_seconds=2),
    "sleepy": job(every_seconds=3),
    "inline": job("fail", every_seconds=4, payload=1, retry=OFTEN),
    "detached": job("fail", every_seconds=4, payload=1, retry=OFTEN, isolation="workflow"),
}
"""On timers, asleep, with retries inline and detached."""

OUTAGES = {(trouble, kind): f"{kind}_{trouble}" for trouble in ("down", "hung") for kind in FIRING}
"""Names of the jobs that fire through an outage of each kind."""

JOBS = {
    **{name: FIRING[kind] for (_, kind), name in OUTAGES.items()},
    "backlog": job(),
    "handed_over": job(every_seconds=30),
    "deleted": job(),
    "poisoned": job(every_seconds=2),
}

TUNINGS = {
    "sleepy_down": SLEEPY,
    "sleepy_hung": SLEEPY,
    "backlog": QUICK.model_copy(update={"outbox_limit": 8}),
    "handed_over": Tuning(long_sleep_threshold=timedelta(seconds=10), outbox_limit=1, search_attributes=False),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(temporal_server: DevServer) -> AsyncIterator[Harness]:
    """All jobs, after outages that the firing ones and the one with a backlog have fired through, and that are over."""
    async with side_by_side(temporal_server, JOBS, **TUNINGS) as harness:
        trouble_of, named = harness.mirror.trouble_of, harness.named
        trouble_of |= {named["backlog"]: "down", named["handed_over"]: "down"}
        [poisoned, *_] = await harness.until_runs(named["poisoned"], 1, limit=ENOUGH)
        harness.mirror.poison = f"{named['poisoned']}:{poisoned.scheduled_at + timedelta(seconds=4):%Y%m%dT%H%M%SZ}"
        for name in OUTAGES.values():
            await harness.until_runs(named[name], 1, limit=ENOUGH)
        trouble_of |= {named[name]: trouble for (trouble, _), name in OUTAGES.items()}
        before = {name: len(harness.code.of(named[name])) for name in OUTAGES.values()}
        for name in OUTAGES.values():
            await until_called(harness, name, before[name] + 3)
        await until_called(harness, "backlog", 12)
        for name in (*OUTAGES.values(), "backlog"):
            del trouble_of[named[name]]
        yield harness


async def until_called(harness: Harness, name: str, count: int) -> None:
    """Wait until a job's code was called so often."""
    await eventually(lambda: len(harness.code.of(harness.named[name])) >= count, limit=ENOUGH)


async def until_told(harness: Harness, name: str) -> list[Run]:
    """Wait until all runs that a job has begun so far are final in the mirror; answers the final ones."""
    job_id = harness.named[name]
    begun = {call.run.run_id for call in harness.code.of(job_id)}

    def look() -> list[Run]:
        final = {run.run_id: run for run in harness.mirror.runs[job_id].values() if run.finished_at}
        assert begun <= final.keys(), begun - final.keys()
        return sorted(final.values(), key=lambda run: run.scheduled_at)

    return await eventually(look, limit=ENOUGH)


@pytest.mark.parametrize("trouble", ["down", "hung"])
async def test_jobs_fire_on_time_while_the_mirror_is_away_and_it_catches_up(harness: Harness, trouble: str) -> None:
    """SB-117: on timers, asleep, with retries inline and detached; when it is back every run is there, each once."""
    assert harness.mirror.refusals > 0
    for kind in FIRING:
        runs = await until_told(harness, OUTAGES[trouble, kind])
        assert {run.status for run in runs} == {RunStatus.SUCCESS}, kind
    await harness.until_decided(harness.named[OUTAGES[trouble, "timer"]], 4, step=timedelta(seconds=2))
    assert max(map(lateness, await until_told(harness, OUTAGES[trouble, "timer"]))) < timedelta(seconds=3)


async def test_a_backlog_moves_to_a_workflow_that_retries_for_ever(harness: Harness) -> None:
    """So that a job's state does not grow with an outage, and the job may sleep; the records arrive all the same."""
    job_id = harness.named["backlog"]
    await until_told(harness, "backlog")
    children = children_in(await harness.histories(job_id))
    assert children
    prefix = records_workflow_id(tenant="default", job_id=job_id, version=0).removesuffix("0")
    assert all(name.startswith(prefix) for name in children)

    async def is_done() -> bool:
        described = await harness.client.get_workflow_handle(children[0]).describe()
        return described.status is WorkflowExecutionStatus.COMPLETED

    await eventually(is_done)


async def test_a_job_whose_backlog_was_handed_over_goes_on_sleeping(harness: Harness) -> None:
    """Nothing is left to send: it must not stay awake, nor go round in circles, until the database is back."""
    job_id = harness.named["handed_over"]
    assert harness.mirror.trouble_of[job_id] == "down"

    async def sleeps_long() -> bool:
        histories = await harness.histories(job_id)
        started = histories[-1].events[0].workflow_execution_started_event_attributes
        assert max(len(history.events) for history in histories) < 120
        return started.first_workflow_task_backoff.ToTimedelta() > timedelta(seconds=5)

    await eventually(sleeps_long, limit=timedelta(seconds=60))
    del harness.mirror.trouble_of[job_id]


async def test_a_record_that_can_never_be_written_holds_up_no_other(harness: Harness) -> None:
    """The mirror takes the rest of its batch and says so; the job does not send it for ever."""
    job_id = harness.named["poisoned"]
    runs = await harness.until_runs(job_id, 4, limit=ENOUGH)
    assert harness.mirror.poison in {call.run.run_id for call in harness.code.of(job_id)}
    assert harness.mirror.poison not in {run.run_id for run in runs}
    assert max(run.run_id for run in runs) > harness.mirror.poison
    scheduled = [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for history in await harness.histories(job_id)
        for event in history.events
    ]
    assert "record_events" not in scheduled


async def test_a_job_deleted_while_the_mirror_is_away_ends_when_it_is_back(harness: Harness) -> None:
    """The command is answered at once; the workflow stays until the mirror knows."""
    job_id = harness.named["deleted"]
    await harness.until_runs(job_id, 1)
    harness.mirror.trouble_of[job_id] = "down"
    record = await harness.delete(job_id)
    assert record.lifecycle is Lifecycle.DELETED
    assert harness.mirror.jobs[job_id].lifecycle is Lifecycle.ACTIVE
    del harness.mirror.trouble_of[job_id]
    await harness.until_closed(job_id, Lifecycle.DELETED)
