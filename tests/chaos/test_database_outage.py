"""Something befalls the database while jobs fire: firing does not notice, and afterwards every run is there."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import get_args

import pytest

from activities.database import open_database
from activities.queries import Queries, RunFilter
from tests.chaos.faulty_postgres import Fault, FaultyPostgres, faulty_postgres
from tests.chaos.stack import Stack, register
from tests.eventually import eventually
from workflows.fire_times import jitter_offset
from workflows.job import JobDefinition
from workflows.run import Run, RunStatus
from workflows.schedule import IntervalRule, Schedule
from workflows.target import ActivityTarget

pytestmark = pytest.mark.slow

LONG = os.environ.get("HORARIUM_CHAOS") == "long"
BEFORE = timedelta(seconds=60 if LONG else 8)
OUTAGE = timedelta(seconds=60 if LONG else 14)
PERIOD = timedelta(seconds=2)
JOBS = 10
"""With the period, five fires a second."""

EVENLY = timedelta(milliseconds=10)

EVERY_TWO_SECONDS = Schedule(rule=IntervalRule(every=PERIOD), jitter_window_seconds=1.99)
BACK_WITHIN = timedelta(seconds=60)
SLOWLY_WITHIN = timedelta(seconds=150)
"""A transaction takes a minute, at two seconds an answer, and its predecessor may have just begun."""

SETTLED_AFTER = timedelta(seconds=4)
"""The first fires of a new stack meet cold caches."""


@pytest.fixture
def database(postgres_data: Path) -> Iterator[FaultyPostgres]:
    """A server of the test's own."""
    with faulty_postgres(postgres_data) as database:
        yield database


@pytest.fixture
async def stack(tmp_path: Path, database: FaultyPostgres) -> AsyncIterator[Stack]:
    """One worker for everything."""
    stack = Stack(tmp_path, database_url=database.url)
    try:
        await stack.start_worker("worker", role="both")
        yield stack
    finally:
        stack.stop()


@pytest.fixture
async def queries(database: FaultyPostgres) -> AsyncIterator[Queries]:
    """What people read, were they nearer to the database."""
    engine = open_database(database.direct_url)
    queries = Queries(engine)
    yield queries
    await queries.close()
    await engine.dispose()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", get_args(Fault))
async def test_a_database_in_trouble_delays_no_fire_and_loses_no_run(
    stack: Stack, database: FaultyPostgres, queries: Queries, fault: Fault
) -> None:
    """SB-101, SB-117: at five fires a second lateness stays as it was, and a minute after the return every run is there, once.

    ``killed`` refuses connections, ``frozen`` leaves every query hanging, ``full`` has no byte left on its disk. From a ``slow``
    one, which takes two seconds for every answer, they are there while it is slow.
    """
    client = await stack.connect()
    jobs = names_of_jobs()
    for job_id in jobs:
        await register(client, job_id, definition())
    begun = datetime.now(UTC) + SETTLED_AFTER
    await asyncio.sleep((SETTLED_AFTER + BEFORE).total_seconds())

    befallen = datetime.now(UTC)
    database.begin(fault)
    await asyncio.sleep(OUTAGE.total_seconds())
    until = datetime.now(UTC)
    assert "the mirror cannot be written" in stack.worker("worker").log.read_text(), "the fault was noticed"
    if fault != "slow":
        database.end(fault)
    limit = SLOWLY_WITHIN if fault == "slow" else BACK_WITHIN
    runs = await eventually(lambda: all_runs(queries, jobs, begun, until), limit=limit, every=timedelta(seconds=1))
    took = datetime.now(UTC) - until
    database.end(fault)

    assert {run.status for run in runs} == {RunStatus.SUCCESS}
    before = latenesses(run for run in runs if run.scheduled_at < befallen)
    during = latenesses(run for run in runs if run.scheduled_at >= befallen)
    print(
        f"\n{fault}: {len(before)} fires before, {len(during)} during, all recorded after {took.total_seconds():.0f} s; "
        f"lateness {compared(before, during)}"
    )
    assert max(during) < 1.0, "no fire waited for the database"


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


async def all_runs(queries: Queries, jobs: list[str], start: datetime, end: datetime) -> list[Run]:
    """The final runs of jobs between two times, once there are as many as there must be."""
    return [run for job_id in jobs for run in await runs_of(queries, job_id, start, end)]


async def runs_of(queries: Queries, job_id: str, start: datetime, end: datetime) -> list[Run]:
    """Those of one job."""
    page = await queries.list_runs("default", job_id, RunFilter(start=start, end=end), limit=1000)
    runs = [each.record.run for each in page.items]
    expected = int((end - start) / PERIOD) - 1
    assert len(runs) >= expected, f"{job_id}: {len(runs)} of {expected}"
    assert all(run.finished_at for run in runs)
    times = sorted(run.scheduled_at for run in runs)
    assert all(later - earlier == PERIOD for earlier, later in pairwise(times)), f"{job_id}: a hole"
    return runs


def latenesses(runs: Iterable[Run]) -> list[float]:
    """How long after its target each run began, in seconds."""
    return [(run.started_at - run.target_at).total_seconds() for run in runs if run.started_at is not None]


def compared(before: list[float], during: list[float]) -> str:
    """Say how median and tail have changed, and how large they were."""
    pairs = zip(("p50", "p99"), middle_and_tail(before), middle_and_tail(during), strict=True)
    return ", ".join(f"{name} x {after / earlier:.2f} ({earlier * 1000:.0f} ms)" for name, earlier, after in pairs)


def middle_and_tail(values: list[float]) -> tuple[float, float]:
    """Median and 99th percentile."""
    return median(values), quantiles(values, n=100)[98]
