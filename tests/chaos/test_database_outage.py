"""The database goes away while jobs fire: firing does not notice, and afterwards every run is there."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from pathlib import Path
from statistics import median, quantiles

import pytest

from activities.database import open_database
from activities.queries import Queries, RunFilter
from tests.chaos.stack import Stack, register
from tests.databases import PostgresServer, fresh_database
from tests.eventually import eventually
from workflows.fire_times import jitter_offset
from workflows.job import JobDefinition
from workflows.run import Run, RunStatus
from workflows.schedule import IntervalRule, Schedule
from workflows.target import ActivityTarget

pytestmark = pytest.mark.slow

LONG = os.environ.get("HORARIUM_CHAOS") == "long"
BEFORE = timedelta(seconds=60 if LONG else 20)
OUTAGE = timedelta(seconds=60 if LONG else 25)
PERIOD = timedelta(seconds=2)
JOBS = 10
"""With the period, five fires a second."""

EVENLY = timedelta(milliseconds=10)

EVERY_TWO_SECONDS = Schedule(rule=IntervalRule(every=PERIOD), jitter_window_seconds=1.99)
BACK_WITHIN = timedelta(seconds=60)
SETTLED_AFTER = timedelta(seconds=4)
"""The first fires of a new stack meet cold caches."""


@pytest.fixture
def database(postgres_of_its_own: PostgresServer) -> Iterator[str]:
    """A database on a server that the test may stop."""
    with fresh_database(postgres_of_its_own) as url:
        yield url


@pytest.fixture
async def stack(tmp_path: Path, database: str) -> AsyncIterator[Stack]:
    """One worker for everything."""
    stack = Stack(tmp_path, database_url=database)
    try:
        await stack.start_worker("worker", role="both")
        yield stack
    finally:
        stack.stop()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("fault", ["killed", "frozen"])
async def test_a_stopped_database_delays_no_fire_and_loses_no_run(
    stack: Stack, database: str, postgres_of_its_own: PostgresServer, fault: str
) -> None:
    """At five fires a second: lateness stays as it was, and a minute after the return every run is there.

    ``killed`` refuses connections, ``frozen`` leaves every query hanging.
    """
    client = await stack.connect()
    jobs = names_of_jobs()
    for job_id in jobs:
        await register(client, job_id, definition())
    begun = datetime.now(UTC) + SETTLED_AFTER
    await asyncio.sleep((SETTLED_AFTER + BEFORE).total_seconds())

    stopped = datetime.now(UTC)
    postgres_of_its_own.kill() if fault == "killed" else postgres_of_its_own.freeze()
    await asyncio.sleep(OUTAGE.total_seconds())
    returned = datetime.now(UTC)
    postgres_of_its_own.start() if fault == "killed" else postgres_of_its_own.thaw()

    engine = open_database(database)
    queries = Queries(engine)
    expected = int((returned - begun) / PERIOD) - 1
    runs = [
        run
        for job_id in jobs
        for run in await eventually(
            lambda job_id=job_id: all_runs(queries, job_id, begun, returned, at_least=expected),  # type: ignore[misc]
            limit=BACK_WITHIN,
            every=timedelta(seconds=1),
        )
    ]
    assert {run.status for run in runs} == {RunStatus.SUCCESS}

    before = latenesses(run for run in runs if run.scheduled_at < stopped)
    during = latenesses(run for run in runs if run.scheduled_at >= stopped)
    print(f"\n{fault}: {len(before)} fires before, {len(during)} during; lateness {compared(before, during)}")
    assert max(during) < 1.0, "no fire waited for the database"
    await queries.close()
    await engine.dispose()


def names_of_jobs() -> list[str]:
    """Name jobs so that, by the hashes of their ids, they fire one after another, evenly."""
    return [
        next(
            name
            for attempt in count()
            if abs(jitter_offset(EVERY_TWO_SECONDS, job_id=(name := f"job-{attempt}")) - PERIOD * slot / JOBS) < EVENLY
        )
        for slot in range(JOBS)
    ]


def definition() -> JobDefinition:
    """A job that does nothing."""
    return JobDefinition(
        name="noop",
        schedule=EVERY_TWO_SECONDS,
        target=ActivityTarget(activity="noop"),
    )


async def all_runs(queries: Queries, job_id: str, start: datetime, end: datetime, *, at_least: int) -> list[Run]:
    """The final runs of a job between two times, once there are as many as there must be."""
    page = await queries.list_runs("default", job_id, RunFilter(start=start, end=end), limit=1000)
    runs = [each.record.run for each in page.items]
    assert len(runs) >= at_least, f"{job_id}: {len(runs)} of {at_least}"
    assert all(run.finished_at for run in runs)
    times = sorted(run.scheduled_at for run in runs)
    assert all(later - earlier == PERIOD for earlier, later in pairwise(times)), f"{job_id}: a hole"
    return runs


def latenesses(runs: Iterator[Run]) -> list[float]:
    """How long after its target each run began, in seconds."""
    return [(run.started_at - run.target_at).total_seconds() for run in runs if run.started_at is not None]


def compared(before: list[float], during: list[float]) -> str:
    """Say how median and tail have changed, and how large they were."""
    pairs = zip(("p50", "p99"), middle_and_tail(before), middle_and_tail(during), strict=True)
    return ", ".join(f"{name} x {after / earlier:.2f} ({earlier * 1000:.0f} ms)" for name, earlier, after in pairs)


def middle_and_tail(values: list[float]) -> tuple[float, float]:
    """Median and 99th percentile."""
    return median(values), quantiles(values, n=100)[98]
