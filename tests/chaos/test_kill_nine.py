"""Processes die at any moment: every nominal time has one outcome all the same, and no run is lost or doubled."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path

import pytest
from temporalio.client import Client

from activities.database import open_database
from activities.queries import Queries, RunFilter
from tests.chaos.stack import TEMPORAL, Stack, register
from tests.eventually import eventually
from workflows.contracts import job_workflow_id, scheduled_run_id
from workflows.job import JobDefinition, LedgerEntry
from workflows.run import FINAL_STATUSES, Outcome
from workflows.schedule import IntervalRule, Schedule
from workflows.target import ActivityTarget

pytestmark = pytest.mark.slow

KILLS = 20
ON_TIMER = timedelta(seconds=2)
SLEEPER = timedelta(seconds=5)
LONG_SLEEP_FROM = "3"
"""Seconds: between the periods of the first two."""

WOKEN_AHEAD = timedelta(seconds=13)
WAKE_AHEAD = "10"
"""Seconds, at most: more than the sleeper's period, so that it is woken at its fire, and less than this one's."""


def job_of_every(period: timedelta) -> JobDefinition:
    """A job whose lost attempts are noticed within a test."""
    return JobDefinition(
        name="noop",
        schedule=Schedule(rule=IntervalRule(every=period), jitter_window_seconds=0),
        target=ActivityTarget(activity="noop"),
        timeout=timedelta(seconds=10),
        heartbeat_timeout=timedelta(seconds=2),
    )


@pytest.fixture
async def stack(tmp_path: Path, postgresql_url: str) -> AsyncIterator[Stack]:
    """Two scheduler workers and a job worker."""
    stack = Stack(tmp_path, database_url=postgresql_url, long_sleep_threshold=LONG_SLEEP_FROM, wake_ahead=WAKE_AHEAD)
    try:
        for name, role in (("scheduler-1", "scheduler"), ("scheduler-2", "scheduler"), ("job", "job")):
            await stack.start_worker(name, role=role)
        yield stack
    finally:
        stack.stop()


@pytest.mark.timeout(400)
async def test_kill_nine_at_any_moment_loses_and_doubles_nothing(stack: Stack, postgresql_url: str) -> None:
    """20 times ``kill -9`` of scheduler worker, job worker and Temporal server in turn, each restarted within seconds."""
    client = await stack.connect()
    await register(client, "on-timer", job_of_every(ON_TIMER))
    await register(client, "sleeper", job_of_every(SLEEPER))
    await register(client, "woken-ahead", job_of_every(WOKEN_AHEAD))
    queries = Queries(open_database(postgresql_url))
    chance = random.Random(20261129)
    started = datetime.now(UTC)

    for victim in islice(cycle(["scheduler-1", "job", TEMPORAL, "scheduler-2"]), KILLS):
        await asyncio.sleep(chance.uniform(0.5, 3.0))
        await stack.kill_and_restart(victim)
    ended = datetime.now(UTC)

    client = await stack.connect()
    fires = Counter[Outcome]()
    for job_id, period in (("on-timer", ON_TIMER), ("sleeper", SLEEPER), ("woken-ahead", WOKEN_AHEAD)):
        expected = grid(started + timedelta(seconds=5), ended, period)
        entries = await eventually(
            lambda job_id=job_id, expected=expected: all_decided(queries, job_id, expected),  # type: ignore[misc]
            limit=timedelta(seconds=90),
        )
        assert sorted(nominal_times(entries, period)) == sorted(set(nominal_times(entries, period))), "one outcome each"
        assert set(expected) <= set(nominal_times(entries, period)), stack.logs()
        least = KILLS / 2 if period <= SLEEPER else len(expected) / 2
        await assert_one_run_each(queries, job_id, entries, until=ended, least=least)
        for entry in entries:
            fires[entry.outcome] += entry.count
    outcomes = ", ".join(f"{outcome.value} {count}" for outcome, count in fires.items())
    print(
        f"\n{KILLS} kills in {(ended - started).total_seconds():.0f} s: {fires.total()} fires, one outcome each: {outcomes}"
    )
    assert await slept_the_long_way(client, "sleeper")
    assert await slept_the_long_way(client, "woken-ahead")
    assert not await slept_the_long_way(client, "on-timer")


async def all_decided(queries: Queries, job_id: str, expected: list[datetime]) -> list[LedgerEntry]:
    """The ledger, once it reaches the last expected time and no run up to there is under way."""
    entries: list[LedgerEntry] = []
    page = await queries.list_ledger("default", job_id, limit=1000)
    entries += page.items
    assert page.next is None
    assert entries, "nothing is in the ledger yet"
    assert entries[-1].last >= expected[-1], entries[-1]
    runs = await queries.list_runs("default", job_id, RunFilter(), limit=1000)
    open_runs = [each.record.run for each in runs.items if each.record.run.status not in FINAL_STATUSES]
    assert not [run for run in open_runs if run.scheduled_at <= expected[-1]], open_runs
    return entries


async def assert_one_run_each(
    queries: Queries, job_id: str, entries: list[LedgerEntry], *, until: datetime, least: float
) -> None:
    """Every fire that ran has its run in SQL, under the name of its nominal time, and no run has another name."""
    runs = await queries.list_runs("default", job_id, RunFilter(), limit=1000)
    named = [each.record.run for each in runs.items]
    assert [run.run_id for run in named] == [scheduled_run_id(job_id=job_id, nominal=run.scheduled_at) for run in named]
    assert len({run.run_id for run in named}) == len(named)
    ran = {entry.first for entry in entries if entry.outcome is Outcome.RAN and entry.first <= until}
    assert ran <= {run.scheduled_at for run in named}
    assert len(ran) > least, "most of the time the jobs did run"


async def slept_the_long_way(client: Client, job_id: str) -> bool:
    """Whether some run of the job's workflow began with a backoff: its history proves it."""
    workflow_id = job_workflow_id(tenant="default", job_id=job_id)
    async for execution in client.list_workflows(f"WorkflowId = '{workflow_id}'"):
        history = await client.get_workflow_handle(workflow_id, run_id=execution.run_id).fetch_history()
        begun = history.events[0].workflow_execution_started_event_attributes
        if begun.first_workflow_task_backoff.ToTimedelta() >= timedelta(seconds=1):
            return True
    return False


def grid(start: datetime, end: datetime, period: timedelta) -> list[datetime]:
    """Points of the epoch's grid between two times."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    first = epoch + period * -(-(start - epoch) // period)
    return [first + period * n for n in range(int((end - first) / period) + 1)]


def nominal_times(entries: list[LedgerEntry], period: timedelta) -> list[datetime]:
    """Every nominal time that the entries tell, as often as they tell it."""
    return [entry.first + period * n for entry in entries for n in range(entry.count)]
