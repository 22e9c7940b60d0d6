"""Jobs that go on whatever is done to what surrounds them: a mirror with wrong times, a zone that nobody knows, every second."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from activities.database import open_database, writing
from activities.queries import Queries, RunFilter
from tests.chaos.stack import Stack, register
from tests.eventually import eventually
from workflows.job import JobDefinition, JobRecord, LedgerEntry
from workflows.run import Outcome, RunStatus
from workflows.schedule import CronRule, IntervalRule, Schedule
from workflows.target import ActivityTarget

JOB_CODE = '''
"""A job that takes between nothing and two seconds."""

import asyncio

from temporalio import activity

from horarium import JobRun


@activity.defn
async def up_to_two_seconds(run: JobRun) -> None:
    """Take as long as the second of the fire says."""
    await asyncio.sleep(run.scheduled_at.second % 3)
'''


@pytest.fixture
async def stack(tmp_path: Path, sqlite_url: str) -> AsyncIterator[Stack]:
    """One worker for everything."""
    (tmp_path / "worker").mkdir()
    (tmp_path / "worker" / "slow_jobs.py").write_text(JOB_CODE)
    stack = Stack(tmp_path, database_url=sqlite_url, activities="slow_jobs")
    try:
        await stack.start_worker("worker", role="both")
        yield stack
    finally:
        stack.stop()


@pytest.fixture
async def queries(sqlite_url: str) -> AsyncIterator[Queries]:
    """Reads of the mirror."""
    engine = open_database(sqlite_url)
    queries = Queries(engine)
    yield queries
    await queries.close()
    await engine.dispose()


def every(seconds: int, *, activity: str = "noop", timezone: str = "UTC") -> JobDefinition:
    """A job without jitter."""
    rule = IntervalRule(every=timedelta(seconds=seconds))
    return JobDefinition(
        name=activity,
        schedule=Schedule(rule=rule, timezone=timezone, jitter_window_seconds=0),
        target=ActivityTarget(activity=activity),
    )


async def test_sb_118_a_mirror_with_a_wrong_next_fire_is_corrected(
    stack: Stack, queries: Queries, sqlite_url: str
) -> None:
    """The workflow decides; what somebody wrote into SQL is overwritten, and no fire follows from it."""
    await register(await stack.connect(), "steady", every(3))
    await eventually(lambda: has_run(queries, "steady"))
    engine = open_database(sqlite_url)
    async with writing(engine) as connection:
        await connection.execute(text("UPDATE jobs SET next_run_at = '2020-01-01 00:00:00.000000'"))
    await engine.dispose()
    await stack.kill_and_restart("worker")

    async def is_corrected() -> bool:
        job = await queries.get_job("default", "steady")
        return job is not None and job.next_run_at is not None and job.next_run_at > datetime.now(UTC)

    await eventually(is_corrected)
    page = await queries.list_ledger("default", "steady", limit=1000)
    assert all(entry.first.year >= 2026 for entry in page.items)


async def test_sb_156_a_job_of_an_unknown_zone_is_in_trouble_alone(stack: Stack, queries: Queries) -> None:
    """SB-109: its record says so; other jobs fire; and it is asked again, so that a newer worker heals it."""
    client = await stack.connect()
    lost = JobDefinition(name="noop", schedule=Schedule(rule=CronRule(expression="* * * * *"), timezone="Mars/Base"))
    await register(client, "lost", lost)
    await register(client, "steady", every(2))

    async def trouble() -> str | None:
        job: JobRecord | None = await queries.get_job("default", "lost")
        return job.trouble if job else None

    assert "Mars/Base" in str(await eventually(trouble))
    await eventually(lambda: has_run(queries, "steady"))


async def test_sb_136_every_second_has_a_run_or_a_skip_and_lateness_does_not_add_up(
    stack: Stack, queries: Queries
) -> None:
    """A job of every second whose code takes up to two: the grid is that of the nominal times."""
    await register(await stack.connect(), "second-by-second", every(1, activity="up_to_two_seconds"))

    async def twelve_seconds() -> list[LedgerEntry]:
        page = await queries.list_ledger("default", "second-by-second", limit=1000)
        entries: list[LedgerEntry] = list(page.items)
        assert entries, "nothing is in the ledger yet"
        told = [entry.first + timedelta(seconds=n) for entry in entries for n in range(entry.count)]
        assert len(told) == len(set(told)), "one outcome each"
        missing = {told[0] + timedelta(seconds=n) for n in range(12)} - set(told)
        assert not missing, f"not told yet: {missing}"
        return entries

    entries = await eventually(twelve_seconds, limit=timedelta(seconds=60))
    assert {entry.outcome for entry in entries} <= {Outcome.RAN, Outcome.SKIPPED}
    runs = (await queries.list_runs("default", "second-by-second", RunFilter(), limit=1000)).items
    late = [run.record.run.started_at - run.record.run.target_at for run in runs if run.record.run.started_at]
    assert max(late[: len(late) // 2]) < timedelta(seconds=3), "the later half is no later than the first"


async def has_run(queries: Queries, job_id: str) -> bool:
    """Whether a run of the job has succeeded."""
    page = await queries.list_runs("default", job_id, RunFilter(), limit=10)
    return any(each.record.run.status is RunStatus.SUCCESS for each in page.items)
