"""What is older than its retention is forgotten, by when it ended; on both databases."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, inspect, select

from activities.database import POSTGRESQL, open_database, reading
from activities.mirror_writer import MirrorWriter, WriterOptions
from activities.partition import partition_name
from activities.purge import BATCH, Purger, _Purge
from activities.tables import ATTEMPTS, BACKFILLS, JOBS, LEDGER, RUNS
from tests.records import attempt_record, job_record, run_record
from workflows.backfill_record import BackfillRecord
from workflows.job import JobRecord, LedgerEntry, LedgerRecord, Lifecycle, MirrorBatch
from workflows.job_state import microseconds
from workflows.run import Outcome, RunKind, RunStatus

NOW = datetime(2026, 6, 20, 12, tzinfo=UTC)
KEPT = timedelta(days=90)
BEFORE = NOW - KEPT
OLD = datetime(2026, 2, 10, 9, tzinfo=UTC)
"""In a month that is older than the retention as a whole."""

SPLIT = datetime(2026, 3, 5, 9, tzinfo=UTC)
"""Older, in a month of which a part is not."""

YOUNG = datetime(2026, 6, 1, 9, tzinfo=UTC)

COUNTED = (JOBS, RUNS, ATTEMPTS, LEDGER)


class Stage:
    """A mirror with some history."""

    def __init__(self, url: str) -> None:
        self.engine = open_database(url)
        self.writer = MirrorWriter(url, options=WriterOptions(budget=timedelta(seconds=10)))
        self.purger = Purger(self.engine)

    async def add_run(
        self, at: datetime, *, job_id: str = "report", ended: datetime | None = None, **fields: Any
    ) -> None:
        """A run with two attempts; it ended a minute after its nominal time, unless something else is said."""
        ended = ended or at + timedelta(minutes=1)
        values: dict[str, Any] = {
            "status": RunStatus.SUCCESS,
            "finished_at": ended,
            "version": microseconds(ended),
        } | fields
        run = run_record(job_id, at=at, **values)
        attempts = tuple(attempt_record(run, number=number, version=microseconds(ended)) for number in (1, 2))
        await self.writer.write(MirrorBatch(runs=(run,), attempts=attempts))

    async def add_missed(self, at: datetime, *, job_id: str = "report", written: datetime | None = None) -> None:
        """A fire that was missed."""
        entry = LedgerEntry(first=at, last=at, outcome=Outcome.MISSED)
        record = LedgerRecord(job_id=job_id, version=microseconds(written or at), entry=entry)
        await self.writer.write(MirrorBatch(ledger=(record,)))

    async def add_job(self, record: JobRecord) -> None:
        """A job."""
        await self.writer.write(MirrorBatch(job=record))

    async def counts(self) -> dict[str, int]:
        """How many rows there are."""
        async with reading(self.engine) as connection:
            return {
                table.name: (await connection.execute(select(func.count()).select_from(table))).scalar_one()
                for table in COUNTED
            }

    async def has_month(self, at: datetime) -> bool:
        """Whether a month has a table of its own."""
        async with reading(self.engine) as connection:
            names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
        return partition_name("runs", at.date().replace(day=1)) in names


@pytest.fixture
async def stage(database_url: str) -> AsyncIterator[Stage]:
    """An empty mirror."""
    stage = Stage(database_url)
    yield stage
    await stage.writer.close()
    await stage.purger.close()
    await stage.engine.dispose()


def over(job_id: str, at: datetime, *, state: Lifecycle = Lifecycle.DELETED, **fields: Any) -> JobRecord:
    """A job that ended at a time."""
    return job_record(job_id, lifecycle=state, updated_at=at, registered_at=at, high_water=at, **fields)


async def test_backfills_that_ended_long_ago_go(stage: Stage) -> None:
    """Those that ended since stay, and those that go on, whenever they were asked for."""
    for name, ended in (("old", OLD), ("young", YOUNG), ("open", None)):
        about = {"tenant": "default", "job_id": "report", "backfill_id": name, "version": 1}
        record = BackfillRecord.model_validate(about | {"requested_at": OLD, "finished_at": ended})
        await stage.writer.write(MirrorBatch(backfills=(record,)))
    assert (await stage.purger.purge(before=BEFORE, dry_run=True)).backfills == 1
    assert (await stage.purger.purge(before=BEFORE)).backfills == 1
    async with reading(stage.engine) as connection:
        left = (await connection.execute(select(BACKFILLS.c.backfill_id))).scalars().all()
    assert sorted(left) == ["open", "young"]


async def test_old_history_goes_and_the_rest_stays(stage: Stage) -> None:
    """SB-125: runs with their attempts, and the ledger; an active job stays, however old, with what it says of its last run."""
    last: dict[str, Any] = {
        "last_run_id": "report:old",
        "last_status": "success",
        "last_finished_at": OLD,
        "last_success_at": OLD,
    }
    await stage.add_job(job_record("report", updated_at=OLD, **last))
    for at in (OLD, SPLIT, YOUNG):
        await stage.add_run(at)
        await stage.add_missed(at + timedelta(hours=1))
    report = await stage.purger.purge(before=BEFORE)
    assert report.trouble == ""
    assert await stage.counts() == {"jobs": 1, "runs": 1, "attempts": 2, "ledger": 1}
    if stage.engine.dialect.name == POSTGRESQL:
        assert report.months == ("2026-02",)
        assert not await stage.has_month(OLD)
        assert await stage.has_month(SPLIT)
        assert (report.runs, report.attempts, report.ledger, report.jobs) == (1, 2, 1, 0)
    else:
        assert (report.runs, report.attempts, report.ledger, report.jobs) == (2, 4, 2, 0)
    async with reading(stage.engine) as connection:
        [row] = (await connection.execute(select(JOBS))).mappings().all()
    assert {name: row[name] for name in last} == last
    again = await stage.purger.purge(before=BEFORE)
    assert (again.runs, again.attempts, again.ledger, again.jobs, again.months) == (0, 0, 0, 0, ())


async def test_a_dry_run_counts_and_changes_nothing(stage: Stage) -> None:
    """What it says is what then happens."""
    await stage.add_job(over("once", OLD))
    await stage.add_run(OLD, job_id="once")
    await stage.add_run(SPLIT)
    await stage.add_missed(SPLIT)
    before = await stage.counts()
    dry = await stage.purger.purge(before=BEFORE, dry_run=True)
    assert await stage.counts() == before
    assert (dry.ledger, dry.jobs) == (1, 1)
    assert dry.runs == 2
    report = await stage.purger.purge(before=BEFORE)
    assert report.jobs == dry.jobs
    assert (await stage.counts()) == {"jobs": 0, "runs": 0, "attempts": 0, "ledger": 0}


async def test_history_of_old_times_that_is_young_stays(stage: Stage) -> None:
    """A backfill of last year, a run that is still under way, and a range that was told yesterday: none ended before."""
    long_ago = OLD - timedelta(days=365)
    await stage.add_run(long_ago, ended=NOW - timedelta(days=1), kind=RunKind.BACKFILL, request_id="b-1")
    await stage.add_run(OLD, status=RunStatus.RETRYING, finished_at=None)
    await stage.add_missed(OLD, written=NOW - timedelta(days=1))
    report = await stage.purger.purge(before=BEFORE)
    assert report.months == ()
    assert await stage.counts() == {"jobs": 0, "runs": 2, "attempts": 4, "ledger": 1}


async def test_jobs_that_were_deleted_go_after_their_history(stage: Stage) -> None:
    """One with something left, or that was not deleted, stays."""
    await stage.add_job(over("gone", OLD))
    await stage.add_job(over("removed", OLD))
    await stage.add_job(over("just-gone", YOUNG))
    await stage.add_job(over("draining", OLD, active_runs=1))
    await stage.add_job(over("redriven", OLD))
    await stage.add_job(job_record("paused", lifecycle=Lifecycle.PAUSED, updated_at=OLD))
    await stage.add_run(OLD, job_id="gone")
    await stage.add_run(YOUNG, job_id="redriven")
    report = await stage.purger.purge(before=BEFORE)
    assert report.jobs == 2
    async with reading(stage.engine) as connection:
        left = (await connection.execute(select(JOBS.c.job_id).order_by(JOBS.c.job_id))).scalars().all()
    assert left == ["draining", "just-gone", "paused", "redriven"]


async def test_jobs_that_are_completed_stay(stage: Stage) -> None:
    """Their history goes. Without their row, a one-off of the past that is written again would run a second time."""
    await stage.add_job(over("once", OLD, state=Lifecycle.COMPLETED))
    await stage.add_run(OLD, job_id="once")
    await stage.add_missed(SPLIT, job_id="once")
    assert (await stage.purger.purge(before=BEFORE, dry_run=True)).jobs == 0
    assert (await stage.purger.purge(before=BEFORE)).jobs == 0
    assert await stage.counts() == {"jobs": 1, "runs": 0, "attempts": 0, "ledger": 0}


async def test_more_rows_than_one_transaction_takes_go_in_several(stage: Stage) -> None:
    """Of one job, and of one that has no row."""
    times = [SPLIT + timedelta(seconds=number) for number in range(BATCH + 5)]
    runs = [run_record("busy", at=at, status=RunStatus.SUCCESS, finished_at=at) for at in times]
    await asyncio.gather(*(stage.writer.write(MirrorBatch(runs=(run,))) for run in runs))
    report = await stage.purger.purge(before=BEFORE)
    assert report.runs == BATCH + 5
    assert (await stage.counts())["runs"] == 0


async def test_a_month_that_is_in_use_is_left_for_later(stage: Stage) -> None:
    """Whoever reads is not waited for, and nobody waits for whoever waits."""
    if stage.engine.dialect.name != POSTGRESQL:
        pytest.skip("SQLite has no months")
    await stage.add_run(OLD)
    async with stage.engine.connect() as connection:
        await connection.execute(select(func.count()).select_from(RUNS))
        report = await stage.purger.purge(before=BEFORE)
        assert report.months == ()
        assert await stage.has_month(OLD)
    assert (await stage.counts())["runs"] == 0, "row by row all the same"


async def test_what_is_written_into_a_month_after_the_look_keeps_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backfill into a month that was found to be old all through, and is about to be dropped."""
    if stage.engine.dialect.name != POSTGRESQL:
        pytest.skip("SQLite has no months")
    await stage.add_run(OLD)
    drop = _Purge._drop

    async def write_and_drop(purge: _Purge, month: date) -> bool:
        await stage.add_run(OLD + timedelta(hours=1), ended=NOW, kind=RunKind.BACKFILL, request_id="b-1")
        return await drop(purge, month)

    monkeypatch.setattr(_Purge, "_drop", write_and_drop)
    report = await stage.purger.purge(before=BEFORE)
    assert (report.trouble, report.months, report.runs) == ("", (), 1)
    assert await stage.has_month(OLD)
    assert await stage.counts() == {"jobs": 0, "runs": 1, "attempts": 2, "ledger": 0}


async def test_a_month_that_was_dropped_takes_late_records_all_the_same(stage: Stage, database_url: str) -> None:
    """In the default partition, as before its table was made; by a process that knew the table, and by one that did not."""
    await stage.add_run(OLD)
    await stage.purger.purge(before=BEFORE)
    await stage.add_run(OLD + timedelta(hours=1), ended=NOW)
    other = Stage(database_url)
    await other.add_run(OLD + timedelta(hours=2), ended=NOW)
    assert (await stage.counts())["runs"] == 2
    await other.writer.close()
    await other.engine.dispose()


async def test_an_unreachable_database_is_told() -> None:
    """The next pass tries again."""
    broken = Purger(open_database("sqlite:////nowhere/at/all.sqlite"))
    report = await broken.purge(before=BEFORE)
    assert report.trouble == "the database does not answer"
