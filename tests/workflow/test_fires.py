"""Plain fires: on timers, through continue-as-new, with a tiny cache, and to the end of a schedule."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from temporalio.client import Client

from tests.eventually import eventually
from tests.workflow.harness import QUICK, count_kind, every, is_gapless, job, kinds_of, lateness, running
from workers.settings import Settings
from workflows.job import Lifecycle, OverlapPolicy, Tuning
from workflows.run import Outcome, RunStatus
from workflows.schedule import OneOffRule, Schedule

ON_TIME = timedelta(seconds=2)
"""Generous: tests share the machine. The promise is measured by the benchmarks."""


async def test_a_job_fires_on_its_grid_and_is_recorded(temporal_client: Client) -> None:
    """Each fire has one run, on time and successful; the job's row names the next one."""
    async with running(temporal_client) as harness:
        job_id = await harness.register(job())
        runs = await harness.until_runs(job_id, 5)
        assert is_gapless([run.scheduled_at for run in runs], timedelta(seconds=1))
        assert {(run.status, run.outcome, run.attempt) for run in runs} == {(RunStatus.SUCCESS, Outcome.RAN, 1)}
        assert max(map(lateness, runs)) < ON_TIME
        assert [call.run.scheduled_at for call in harness.code.of(job_id)][:5] == [run.scheduled_at for run in runs][:5]
        assert {run.worker for run in runs} == {temporal_client.identity}
        record = harness.mirror.jobs[job_id]
        assert record.next_run_at is not None
        assert record.next_run_at - record.high_water == timedelta(seconds=1)
        fences = [call.run.fence for call in harness.code.of(job_id)]
        assert fences == sorted(set(fences))


async def test_no_fire_is_lost_or_doubled_by_continuing_as_new_after_any_number_of_them(
    temporal_client: Client,
) -> None:
    """After 1, 2, 3, 7 and many fires; several jobs at once."""
    limits = {1: 8, 2: 18, 3: 28, 7: 70, 1000: 400}
    async with running(temporal_client) as harness:
        jobs = {
            fires: await harness.register(
                job(every_seconds=2), tuning=QUICK.model_copy(update={"history_limit": limit})
            )
            for fires, limit in limits.items()
        }
        for fires, job_id in jobs.items():
            runs = await harness.until_runs(job_id, 8, limit=timedelta(seconds=30))
            assert is_gapless([run.scheduled_at for run in runs], timedelta(seconds=2)), fires
            assert {run.status for run in runs} == {RunStatus.SUCCESS}
        continued = {fires: len(await harness.histories(job_id)) - 1 for fires, job_id in jobs.items()}
    assert continued[1000] == 0
    assert 1 <= continued[7] < continued[3] <= continued[2] <= continued[1]
    assert continued[1] >= 6


async def test_a_tiny_cache_costs_time_and_nothing_else(temporal_client: Client) -> None:
    """Fifteen jobs on a worker that keeps ten: each decision may begin with a replay, and every fire still comes once."""
    settings = Settings(
        max_cached_workflows=10,
        workflow_task_slots=5,
        local_activity_slots=20,
        job_slots=20,
        graceful_shutdown=timedelta(0),
    )
    async with running(temporal_client, settings=settings) as harness:
        jobs = [await harness.register(job(every_seconds=2)) for _ in range(15)]
        for job_id in jobs:
            await harness.until_runs(job_id, 3, limit=timedelta(seconds=40))
            fires = [nominal for nominal, _ in harness.mirror.outcomes(job_id)]
            assert is_gapless(fires, timedelta(seconds=2))


async def test_a_fire_on_a_timer_costs_fourteen_events(temporal_client: Client) -> None:
    """Timer, two decisions, attempt, record, and the look that comes only where no answer does. A plan is for 14 fires."""
    async with running(temporal_client) as harness:
        job_id = await harness.register(job())
        await harness.until_runs(job_id, 8)
        [history] = await harness.histories(job_id)
    kinds = kinds_of(history)
    fired = [index for index, kind in enumerate(kinds) if kind == "timer_fired"]
    assert [later - earlier for earlier, later in pairwise(fired)][1:4] == [14, 14, 14]


async def test_jobs_of_every_end_complete(temporal_client: Client) -> None:
    """By ``max_runs``, by ``end_at``, and a one-off by its fire; the workflow ends when the last run is recorded."""
    async with running(temporal_client) as harness:
        now = datetime.now(UTC)
        soon = now.replace(microsecond=0) + timedelta(seconds=3)
        jobs = {
            "max_runs": await harness.register(job(schedule=every(1, max_runs=2))),
            "end_at": await harness.register(job(schedule=every(1, end_at=soon))),
            "one_off": await harness.register(job("take", payload=1, schedule=Schedule(rule=OneOffRule(at=soon)))),
        }
        for job_id in jobs.values():
            record = await harness.until_closed(job_id, Lifecycle.COMPLETED)
            assert (record.next_run_at, record.active_runs) == (None, 0)
        runs = {
            name: sorted(harness.mirror.runs[job_id].values(), key=lambda run: run.scheduled_at)
            for name, job_id in jobs.items()
        }
        assert len(runs["max_runs"]) == 2
        assert runs["end_at"][-1].scheduled_at == soon
        assert [run.scheduled_at for run in runs["one_off"]] == [soon]
        assert runs["one_off"][0].result == "took 1.0"


async def test_excluded_fires_are_explained_in_the_ledger(temporal_client: Client) -> None:
    """Even seconds are excluded; each has an entry that says by what, the others have runs."""
    async with running(temporal_client) as harness:
        schedule = every(1, exclude={"cron": ("*/2 * * * * *",)})
        job_id = await harness.register(job(schedule=schedule))
        await harness.until_runs(job_id, 3)
        outcomes = harness.mirror.outcomes(job_id)
    assert is_gapless([at for at, _ in outcomes], timedelta(seconds=1))
    assert all((at.second % 2 == 0) == (outcome is Outcome.EXCLUDED) for at, outcome in outcomes)
    assert {entry.reason for entry in harness.mirror.ledger[job_id].values()} == {"cron */2 * * * * *"}


async def test_all_that_is_late_is_worked_off_in_one_run(temporal_client: Client) -> None:
    """SB-122 in small: a job that is behind does not continue as new once for each fire, which the server would slow down."""
    async with running(temporal_client, tuning=Tuning(history_limit=60)) as harness:
        late = datetime.now(UTC) - timedelta(seconds=4)
        job_id = await harness.register(job(overlap=OverlapPolicy.ALLOW.value), registered_at=late)
        runs = await harness.until_runs(job_id, 4)
        assert is_gapless([run.scheduled_at for run in runs], timedelta(seconds=1))


async def test_a_job_that_cannot_plan_says_so_and_recovers(temporal_client: Client) -> None:
    """Known fires go on; when none is known any more the job has trouble, and is mended within seconds of the planner."""
    async with running(temporal_client, tuning=QUICK.model_copy(update={"batch_size": 3})) as harness:
        job_id = await harness.register(job())
        await harness.until_runs(job_id, 1)
        harness.planner.broken = True
        await eventually(lambda: "no such zone" in (harness.mirror.jobs[job_id].trouble or ""))
        harness.planner.broken = False
        known = len(harness.mirror.runs[job_id])
        await harness.until_runs(job_id, known + 3, limit=timedelta(seconds=25))
        assert harness.mirror.jobs[job_id].trouble is None
        [history] = await harness.histories(job_id)
        assert count_kind([history], "workflow_task_failed") == 0
