"""Schedulers die at chosen moments of a fire, and Temporal in a burst: every fire is accounted for, no attempt is made twice."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import TimeoutType
from temporalio.client import Client

from activities.queries import Queries, RunFilter
from tests.chaos.stack import TEMPORAL, Stack, register
from tests.chaos.test_kill_nine import all_decided, grid, nominal_times
from tests.eventually import eventually
from tests.workflow.harness import chain_of
from workflows.contracts import job_workflow_id
from workflows.job import Backoff, JobDefinition, RetryPolicy
from workflows.run import FINAL_STATUSES, Outcome, Run, RunStatus
from workflows.schedule import IntervalRule, OneOffRule, Rule, Schedule
from workflows.target import ActivityTarget

pytestmark = pytest.mark.slow

LONG = os.environ.get("HORARIUM_CHAOS") == "long"

SCHEDULERS = ("scheduler-1", "scheduler-2")
PERIOD = timedelta(seconds=5)
LONG_SLEEP_FROM = "3"
"""Seconds: less than the period, so that each fire ends in a continue-as-new."""

ATTEMPTS = 3
"""Of each run of the job that fails at first; about a second lies between two."""

MOMENTS = (
    [0.0, 0.02, 0.05, 0.1, 0.6, 1.4] if not LONG else [n * 0.01 for n in range(20)] + [n * 0.2 for n in range(1, 13)]
)
"""Seconds after a fire is due: while it is decided, dispatched, recorded, and put to sleep, and while it waits for a retry."""

BURST = 500 if LONG else 100
INTO_THE_BURST = timedelta(seconds=0.5)

JOB_CODE = '''
"""Jobs whose calls are counted in a file, outside of Horarium."""

from pathlib import Path

from temporalio import activity

from horarium import current_run

SINK = Path("{sink}")


def note() -> int:
    """Write a call down; answers which attempt it is."""
    run = current_run()
    with SINK.open("a") as calls:
        calls.write(f"{{run.run_id}} {{run.attempt}}\\n")
    return run.attempt


@activity.defn
def count() -> None:
    """Be called."""
    note()


@activity.defn
def fail_at_first() -> None:
    """Fail but for the last attempt."""
    if note() < {attempts}:
        raise ValueError("not yet")
'''


def job(activity: str, rule: Rule) -> JobDefinition:
    """A job whose lost attempts are noticed within a test."""
    return JobDefinition(
        name=activity,
        schedule=Schedule(rule=rule, jitter_window_seconds=0),
        target=ActivityTarget(activity=activity),
        timeout=timedelta(seconds=20),
        heartbeat_timeout=timedelta(seconds=3),
        retry=RetryPolicy(max_attempts=2 * ATTEMPTS, backoff=Backoff.FIXED, base=timedelta(milliseconds=1)),
    )


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    """Where calls are counted."""
    sink = tmp_path / "calls"
    sink.touch()
    return sink


@pytest.fixture
async def stack(tmp_path: Path, postgresql_url: str, sink: Path) -> AsyncIterator[Stack]:
    """Two scheduler workers and a job worker."""
    stack = Stack(
        tmp_path, database_url=postgresql_url, long_sleep_threshold=LONG_SLEEP_FROM, activities="counted_jobs"
    )
    try:
        for name, role in ((SCHEDULERS[0], "scheduler"), (SCHEDULERS[1], "scheduler"), ("job", "job")):
            (tmp_path / name).mkdir()
            (tmp_path / name / "counted_jobs.py").write_text(JOB_CODE.format(sink=sink, attempts=ATTEMPTS))
            await stack.start_worker(name, role=role)
        yield stack
    finally:
        stack.stop()


@pytest.mark.timeout(600)
async def test_schedulers_that_die_at_any_moment_of_a_fire_lose_and_double_nothing(
    stack: Stack, queries: Queries, sink: Path
) -> None:
    """All of them at once, at chosen moments: while deciding, in the midst of retries, and of continue-as-new."""
    client = await stack.connect()
    await register(client, "sleeper", job("count", IntervalRule(every=PERIOD)))
    await register(client, "retrier", job("fail_at_first", IntervalRule(every=PERIOD)))
    started = datetime.now(UTC)
    kills = [await kill_schedulers(stack, after=timedelta(seconds=moment)) for moment in MOMENTS]
    ended = datetime.now(UTC)

    for job_id in ("sleeper", "retrier"):
        expected = grid(started + timedelta(seconds=2), ended, PERIOD)
        entries = await eventually(
            lambda job_id=job_id, expected=expected: all_decided(queries, job_id, expected),  # type: ignore[misc]
            limit=timedelta(seconds=60),
        )
        told = Counter(nominal_times(entries, PERIOD))
        assert max(told.values()) == 1, "one outcome each"
        assert set(expected) <= set(told), stack.logs()
    runs = {job_id: await runs_of(queries, job_id) for job_id in ("sleeper", "retrier")}
    calls = calls_in(sink)
    assert max(calls.values()) == 1, "no attempt was made twice"
    for run in (*runs["sleeper"], *runs["retrier"]):
        if run.status in FINAL_STATUSES and run.outcome is Outcome.RAN:
            assert run.status is RunStatus.SUCCESS, run
            assert [calls[run.run_id, number] for number in range(1, run.attempt + 1)] == [1] * run.attempt

    amid_retries = sum(is_amid(run, kill) for kill in kills for run in runs["retrier"])
    amid_tasks = sum([await lost_tasks(client, job_id) for job_id in runs])
    print(
        f"\n{len(kills)} times all schedulers killed: {amid_retries} times amid the retries of a run, {amid_tasks} workflow "
        f"tasks lost; {len(runs['sleeper']) + len(runs['retrier'])} runs, {calls.total()} attempts, each made once"
    )
    assert amid_retries >= 1


@pytest.mark.timeout(300)
async def test_a_server_that_dies_in_a_burst_accounts_for_all_its_fires(
    stack: Stack, queries: Queries, sink: Path
) -> None:
    """Many jobs are due in one second; ``kill -9`` half a second later, and started again at once."""
    client = await stack.connect()
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=5 + BURST / 10)
    await asyncio.gather(
        *(register(client, f"burst-{number}", job("count", OneOffRule(at=due))) for number in range(BURST))
    )
    assert datetime.now(UTC) < due, "all are registered in time"
    await asyncio.sleep((due + INTO_THE_BURST - datetime.now(UTC)).total_seconds())
    before = calls_in(sink).total()
    await stack.kill_and_restart(TEMPORAL)

    async def all_ended() -> list[Run]:
        runs = [run for number in range(BURST) for run in await runs_of(queries, f"burst-{number}")]
        assert len(runs) == BURST, f"{len(runs)} runs"
        assert all(run.status in FINAL_STATUSES for run in runs)
        return runs

    runs = await eventually(all_ended, limit=timedelta(seconds=120), every=timedelta(seconds=2))
    assert {run.status for run in runs} == {RunStatus.SUCCESS}
    calls = calls_in(sink)
    assert max(calls.values()) == 1, "no attempt was made twice"
    assert {run_id for run_id, _ in calls} == {run.run_id for run in runs}
    last = max(run.finished_at for run in runs if run.finished_at)
    print(
        f"\n{BURST} due at once, {before} begun when Temporal was killed; all ended {(last - due).total_seconds():.1f} s after "
        f"they were due, with {calls.total()} attempts"
    )
    assert before < BURST, "it died amid the burst"


async def kill_schedulers(stack: Stack, *, after: timedelta) -> datetime:
    """``kill -9`` them all at a moment of the next fire, and start them again; answers when that was."""
    [fire, *_] = grid(datetime.now(UTC) + timedelta(seconds=1), datetime.now(UTC) + 2 * PERIOD, PERIOD)
    await asyncio.sleep((fire + after - datetime.now(UTC)).total_seconds())
    killed_at = datetime.now(UTC)
    for name in SCHEDULERS:
        stack.worker(name).signal(signal.SIGKILL)
    await asyncio.gather(*map(stack.kill_and_restart, SCHEDULERS))
    return killed_at


async def runs_of(queries: Queries, job_id: str) -> list[Run]:
    """All runs of a job in the mirror."""
    page = await queries.list_runs("default", job_id, RunFilter(), limit=1000)
    return [each.record.run for each in page.items]


def is_amid(run: Run, moment: datetime) -> bool:
    """Whether a run had begun at a moment, and had not ended."""
    return run.started_at is not None and run.finished_at is not None and run.started_at < moment < run.finished_at


def calls_in(sink: Path) -> Counter[tuple[str, int]]:
    """How often each attempt of each run was made."""
    lines = [line.split() for line in sink.read_text().splitlines()]
    return Counter((run_id, int(attempt)) for run_id, attempt in lines)


async def lost_tasks(client: Client, job_id: str) -> int:
    """How many workflow tasks of a job a worker had begun, and never ended."""
    start_to_close = TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE
    histories = await chain_of(client, job_workflow_id(tenant="default", job_id=job_id))
    return sum(
        event.workflow_task_timed_out_event_attributes.timeout_type == start_to_close
        for history in histories
        for event in history.events
    )
