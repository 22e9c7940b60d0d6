"""Plain fires: on timers, through continue-as-new, and to the end of a schedule. All jobs here live side by side."""

from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
import pytest_asyncio

from tests.eventually import eventually
from tests.workflow.harness import (
    QUICK,
    Harness,
    count_kind,
    every,
    is_gapless,
    job,
    kinds_of,
    lateness,
    side_by_side,
)
from workers.devserver import DevServer
from workflows.job import Lifecycle, OverlapPolicy, Tuning
from workflows.run import Outcome, RunStatus
from workflows.schedule import OneOffRule, Schedule

pytestmark = pytest.mark.asyncio(loop_scope="module")

ON_TIME = timedelta(seconds=3)
"""Generous: tests share the machine. The promise is measured by the benchmarks."""

ENOUGH = timedelta(seconds=40)

EVERY = timedelta(seconds=2)

LIMITS = {1: 8, 2: 18, 3: 28, 7: 70, 1000: 400}
"""Events after which a job continues as new, by how many fires they are enough for."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(temporal_server: DevServer) -> AsyncIterator[Harness]:
    """All of them, on one server and one set of workers."""
    soon = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=9)
    jobs = {
        "plain": job(every_seconds=EVERY.seconds),
        "unplannable": job(),
        **{f"continues_{fires}": job(every_seconds=EVERY.seconds) for fires in LIMITS},
        "max_runs": job(schedule=every(1, max_runs=2)),
        "end_at": job(schedule=every(1, end_at=soon)),
        "one_off": job("take", payload=1, schedule=Schedule(rule=OneOffRule(at=soon))),
        "excluded": job(schedule=every(1, exclude={"cron": ("*/2 * * * * *",)})),
    }
    tunings = {
        f"continues_{fires}": QUICK.model_copy(update={"history_limit": limit}) for fires, limit in LIMITS.items()
    }
    tunings["unplannable"] = QUICK.model_copy(update={"batch_size": 3})
    async with side_by_side(temporal_server, jobs, **tunings) as harness:
        yield harness


async def test_a_job_that_cannot_plan_says_so_and_recovers(harness: Harness) -> None:
    """Known fires go on; when none is known any more the job has trouble, and is mended within seconds of the planner."""
    job_id = harness.named["unplannable"]
    await harness.until_runs(job_id, 1)
    harness.planner.broken.add(job_id)
    await eventually(lambda: "no such zone" in (harness.mirror.jobs[job_id].trouble or ""))
    harness.planner.broken.remove(job_id)
    known = len(harness.mirror.runs[job_id])
    await harness.until_runs(job_id, known + 3, limit=ENOUGH)
    assert harness.mirror.jobs[job_id].trouble is None
    [history] = await harness.histories(job_id)
    assert count_kind([history], "workflow_task_failed") == 0


async def test_a_job_fires_on_its_grid_and_is_recorded(harness: Harness) -> None:
    """Each fire has one run, on time and successful, or on a machine that stalls a skip; the job's row names the next one."""
    job_id = harness.named["plain"]
    runs = await harness.until_runs(job_id, 5)
    assert set(await harness.until_decided(job_id, 5, step=EVERY)) <= {Outcome.RAN, Outcome.SKIPPED}
    assert {(run.status, run.outcome, run.attempt) for run in runs} == {(RunStatus.SUCCESS, Outcome.RAN, 1)}
    assert max(map(lateness, runs)) < ON_TIME
    assert [call.run.scheduled_at for call in harness.code.of(job_id)][:5] == [run.scheduled_at for run in runs][:5]
    assert {run.worker for run in runs} == {harness.client.identity}
    record = harness.mirror.jobs[job_id]
    assert record.next_run_at is not None
    assert record.next_run_at - record.high_water == EVERY
    fences = [call.run.fence for call in harness.code.of(job_id)]
    assert fences == sorted(set(fences))


async def test_no_fire_is_lost_or_doubled_by_continuing_as_new_after_any_number_of_them(harness: Harness) -> None:
    """After 1, 2, 3, 7 and many fires; several jobs at once."""
    continued = {}
    for fires in LIMITS:
        job_id = harness.named[f"continues_{fires}"]
        runs = await harness.until_runs(job_id, 7, limit=ENOUGH)
        await harness.until_decided(job_id, 7, step=EVERY)
        assert {run.status for run in runs} == {RunStatus.SUCCESS}
        continued[fires] = len(await harness.histories(job_id)) - 1
    assert continued[1000] == 0
    assert 1 <= continued[7] < continued[3] <= continued[2] <= continued[1]
    assert continued[1] >= 5


async def test_a_fire_on_a_timer_costs_twelve_events(harness: Harness) -> None:
    """Timer, two decisions, attempt, record, and no timer for looks that the next fire can see to. A plan is for 14 fires."""
    job_id = harness.named["continues_1000"]
    await harness.until_runs(job_id, 6)
    [history] = await harness.histories(job_id)
    fired = [index for index, kind in enumerate(kinds_of(history)) if kind == "timer_fired"]
    [(usual, times)] = Counter(later - earlier for earlier, later in pairwise(fired)).most_common(1)
    assert usual == 12
    assert times >= 3


async def test_jobs_of_every_end_complete(harness: Harness) -> None:
    """By ``max_runs``, by ``end_at``, and a one-off by its fire; the workflow ends when the last run is recorded."""
    runs = {}
    for name in ("max_runs", "end_at", "one_off"):
        job_id = harness.named[name]
        record = await harness.until_closed(job_id, Lifecycle.COMPLETED)
        assert (record.next_run_at, record.active_runs) == (None, 0)
        runs[name] = sorted(harness.mirror.runs[job_id].values(), key=lambda run: run.scheduled_at)
    assert len(runs["max_runs"]) == 2
    [one_off] = runs["one_off"]
    assert one_off.result == "took 1.0"
    last, _ = harness.mirror.outcomes(harness.named["end_at"])[-1]
    assert last == one_off.scheduled_at


async def test_excluded_fires_are_explained_in_the_ledger(harness: Harness) -> None:
    """Even seconds are excluded; each has an entry that says by what, the others have runs."""
    job_id = harness.named["excluded"]
    await harness.until_runs(job_id, 3)
    await harness.until_decided(job_id, 6)
    outcomes = harness.mirror.outcomes(job_id)
    assert all((at.second % 2 == 0) == (outcome is Outcome.EXCLUDED) for at, outcome in outcomes)
    reasons = {entry.reason for entry in harness.mirror.ledger[job_id].values() if entry.outcome is Outcome.EXCLUDED}
    assert reasons == {"cron */2 * * * * *"}


async def test_all_that_is_late_is_worked_off_in_one_run(harness: Harness) -> None:
    """SB-122 in small: a job that is behind does not continue as new once for each fire, which the server would slow down."""
    late = datetime.now(UTC) - timedelta(seconds=4)
    job_id = await harness.register(
        job(overlap=OverlapPolicy.ALLOW.value), registered_at=late, tuning=Tuning(history_limit=60)
    )
    runs = await harness.until_runs(job_id, 4)
    assert is_gapless([run.scheduled_at for run in runs], timedelta(seconds=1))
