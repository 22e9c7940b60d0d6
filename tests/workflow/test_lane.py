"""The catch-up lane on a real server: what many jobs have missed starts at the rate of the process, behind live fires."""

from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import pairwise

import pytest_asyncio

from tests.eventually import eventually
from tests.temporal_servers import connect_to, unique
from tests.workflow.harness import QUICK, Harness, job, lateness, running
from workers.devserver import DevServer
from workflows.attempt import CATCH_UP_PRIORITY
from workflows.job import JobInput
from workflows.run import Run, RunKind, RunStatus

JOBS = 3
RATE = 4.0
WEIGHT = 3.0
AWAY = timedelta(seconds=5)
ENOUGH = timedelta(seconds=40)


@pytest_asyncio.fixture
async def harness(temporal_server: DevServer) -> AsyncIterator[Harness]:
    """Workers whose process starts four catch-up runs a second."""
    tuning = QUICK.model_copy(update={"paces_catch_up": True, "fairness_weight": WEIGHT})
    async with running(await connect_to(temporal_server), tuning=tuning, catch_up_per_second=RATE) as harness:
        yield harness


async def test_what_several_jobs_have_missed_starts_at_the_rate_of_the_process(harness: Harness) -> None:
    """Each run waits without using up an attempt and says why; live fires go on in time beside them."""
    jobs = [await missed(harness) for _ in range(JOBS)]
    runs = await eventually(lambda: caught_up(harness, jobs), limit=ENOUGH)
    starts = sorted(run.dispatched_at for run in runs if run.dispatched_at is not None)
    assert len(starts) >= JOBS * 3
    # Timers are late by as much as the server makes them, so neighbours may come closer than the rate; all together cannot.
    assert (starts[-1] - starts[0]).total_seconds() >= (len(starts) - 2) / RATE - 0.5
    assert {run.attempt for run in runs} == {1}
    assert any(run.parkings for run in runs)
    for job_id in jobs:
        live = [run for run in harness.mirror.runs[job_id].values() if run.kind is RunKind.SCHEDULED]
        assert live
        assert max(lateness(run) for run in live) < timedelta(seconds=5)
    assert await priorities(harness, jobs[0]) == {("default", WEIGHT, None), ("default", WEIGHT, CATCH_UP_PRIORITY)}


async def priorities(harness: Harness, job_id: str) -> set[tuple[str, float, int | None]]:
    """As the server has them from a job's attempts: whose it is, with what weight, and how far behind."""
    history = await harness.handle(job_id).fetch_history()
    scheduled = [event.activity_task_scheduled_event_attributes for event in history.events]
    attempts = [each.priority for each in scheduled if each.activity_id]
    return {(each.fairness_key, each.fairness_weight, each.priority_key or None) for each in attempts}


async def missed(harness: Harness) -> str:
    """Start a job that has been away for a while."""
    job_id = unique("job")
    definition = job(missed_window="RUN_ALL", misfire_grace=timedelta(seconds=1), catch_up_rate=6_000)
    state = await harness.state(definition, job_id=job_id, registered_at=await harness.now() - AWAY)
    await harness.start(JobInput(state=state, resumed=True))
    harness.jobs.append(job_id)
    return job_id


def caught_up(harness: Harness, jobs: list[str]) -> list[Run]:
    """The catch-up runs of jobs, once each has some and all have ended."""
    found = []
    for job_id in jobs:
        runs = [run for run in harness.mirror.runs.get(job_id, {}).values() if run.kind is RunKind.CATCH_UP]
        assert len(runs) >= 3, runs
        assert {run.status for run in runs} == {RunStatus.SUCCESS}, runs
        fires = sorted(run.scheduled_at for run in runs)
        assert all(after - before == timedelta(seconds=1) for before, after in pairwise(fires))
        found += runs
    return found
