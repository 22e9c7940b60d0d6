"""Forgets history that is older than its retention: on PostgreSQL months as a whole, and everywhere row by row.

Never in the way of a fire: reads go by indexes, a transaction deletes a few hundred rows, and a month is dropped only where its
table can be locked at once. Goes by when a run ended and not by its nominal time: a backfill of last year is as young as it is.
Jobs that were deleted go when nothing of their history is left. All others stay, the completed ones too: that a time is run once
at most, and that the same definition written again changes nothing, rests on their row.
"""

import logging
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, Table, and_, delete, exists, func, literal, or_, select, text, tuple_
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from activities.database import POSTGRESQL, cause_of, reading, writing
from activities.deadline import Deadline
from activities.mirror_glance import JobKey
from activities.partition import existing_months, partitions_of
from activities.tables import ATTEMPTS, BACKFILLS, JOBS, KEY, LEDGER, RUNS
from workflows.error import Unavailable
from workflows.job import Lifecycle
from workflows.job_state import microseconds
from workflows.reconciliation import PURGED_TABLES, PurgeReport
from workflows.run import FINAL_STATUSES

logger = logging.getLogger(__name__)

BATCH: Final = 300
"""Rows that leave in one transaction: short ones hold up nobody."""

STATEMENT_LIMIT: Final = timedelta(minutes=1)
"""For one statement. Most take milliseconds; a month is looked through once before it is dropped."""

LOCK_WITHIN: Final = "200ms"
"""Whoever waits for a table's lock makes everybody after it wait. A month that is in use is dropped an hour later."""


LOOK_AGAIN_WITHIN: Final = "5s"
"""Whoever writes into a month that is about to be dropped waits so long at most. A month that is too large goes row by row."""


class Purger:
    """Forgets through one engine."""

    def __init__(self, engine: AsyncEngine, *, limit: timedelta = STATEMENT_LIMIT) -> None:
        self._engine = engine
        self._deadline = Deadline(limit)

    async def close(self) -> None:
        """Wait for work that ran out of time. The engine is the caller's."""
        await self._deadline.close()

    async def purge(self, *, before: datetime, dry_run: bool = False) -> PurgeReport:
        """Forget runs that ended before, and what belongs to them. A report with ``trouble`` says what it came to until then."""
        work = _Purge(self._engine, self._deadline, before=before, dry_run=dry_run)
        try:
            await work.carry_out()
        except Unavailable as error:
            work.report = work.report.model_copy(update={"trouble": str(error)})
        _log(work.report, dry_run=dry_run)
        return work.report


class _Purge:
    def __init__(self, engine: AsyncEngine, deadline: Deadline, *, before: datetime, dry_run: bool) -> None:
        self._engine = engine
        self._deadline = deadline
        self._before = before
        self._dry_run = dry_run
        self.report = PurgeReport(before=before)

    async def carry_out(self) -> None:
        if self._engine.dialect.name == POSTGRESQL:
            await self._drop_months()
        async for owner in self._owners(RUNS):
            await self._purge_runs(owner)
        async for owner in self._owners(LEDGER):
            await self._purge_ledger(owner)
        await self._purge_backfills()
        await self._purge_jobs()

    async def _drop_months(self) -> None:
        for month in await self._read(_find_months):
            is_past = _end_of(month) <= self._before
            if is_past and not await self._read(
                lambda connection, month=month: self._has_fresh_rows(connection, month)
            ):
                if not self._dry_run and not await self._drop(month):
                    continue
                self.report = self.report.model_copy(update={"months": (*self.report.months, f"{month:%Y-%m}")})

    async def _has_fresh_rows(self, connection: AsyncConnection, month: date) -> bool:
        """Look through a month, until something is found that is to stay."""
        within = (_starts(month), _starts(_end_of(month).date()))
        for table, column, is_old in (
            (RUNS, RUNS.c.scheduled_at, _is_old_run(self._before)),
            (LEDGER, LEDGER.c.first, _is_old_entry(self._before)),
        ):
            fresh = select(literal(1)).select_from(table).where(column >= within[0], column < within[1], ~is_old)
            if (await connection.execute(fresh.limit(1))).first() is not None:
                return True
        return False

    async def _drop(self, month: date) -> bool:
        try:
            return await self._deadline.run(self._look_again_and_drop(month))
        except (DBAPIError, TimeoutError) as error:
            logger.info("a month is not dropped now", extra={"month": f"{month:%Y-%m}", "error": cause_of(error)})
            return False

    async def _look_again_and_drop(self, month: date) -> bool:
        """Drop a month, unless something was written into it after the look. Meanwhile it can be read, and not written."""
        async with writing(self._engine) as connection:
            await connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_WITHIN}'"))
            await connection.execute(text(f"SET LOCAL statement_timeout = '{LOOK_AGAIN_WITHIN}'"))
            # Only what is locked is dropped: a partition made a moment later may hold rows already.
            names = ", ".join(await connection.run_sync(partitions_of, month))
            if not names:
                return False
            await connection.execute(text(f"LOCK TABLE {names} IN SHARE ROW EXCLUSIVE MODE"))
            if await self._has_fresh_rows(connection, month):
                return False
            await connection.execute(text(f"DROP TABLE {names}"))
            return True

    async def _owners(self, table: Table) -> AsyncIterator[JobKey]:
        """Go through the jobs that have rows in a table, whether they are there or not: one step in an index each."""
        after: JobKey | None = None
        owner = (table.c.tenant, table.c.job_id)
        query = select(*owner).order_by(*owner).limit(1)
        while True:
            beyond = [] if after is None else [tuple_(*owner) > tuple_(*(literal(each, KEY) for each in after))]
            found = await self._rows(query.where(*beyond))
            if not found:
                return
            after = (found[0].tenant, found[0].job_id)
            yield after

    async def _purge_runs(self, owner: JobKey) -> None:
        old = and_(*_of(RUNS, owner), RUNS.c.scheduled_at < self._before, _is_old_run(self._before))
        if self._dry_run:
            attempts = select(func.count()).select_from(ATTEMPTS.join(RUNS, _attempt_of_run())).where(old)
            self._count(runs=await self._scalar(select(func.count()).select_from(RUNS).where(old)))
            self._count(attempts=await self._scalar(attempts))
            return
        query = select(RUNS.c.tenant, RUNS.c.run_id, RUNS.c.scheduled_at).where(old).order_by(RUNS.c.scheduled_at)
        while keys := await self._rows(query.limit(BATCH)):
            self._count(attempts=await self._delete(ATTEMPTS, keys), runs=await self._delete(RUNS, keys))

    async def _purge_ledger(self, owner: JobKey) -> None:
        old = and_(*_of(LEDGER, owner), LEDGER.c.first < self._before, _is_old_entry(self._before))
        if self._dry_run:
            self._count(ledger=await self._scalar(select(func.count()).select_from(LEDGER).where(old)))
            return
        query = select(LEDGER.c.tenant, LEDGER.c.job_id, LEDGER.c.first).where(old).order_by(LEDGER.c.first)
        while keys := await self._rows(query.limit(BATCH)):
            self._count(ledger=await self._delete(LEDGER, keys))

    async def _purge_backfills(self) -> None:
        old = BACKFILLS.c.finished_at < self._before
        if self._dry_run:
            self._count(backfills=await self._scalar(select(func.count()).select_from(BACKFILLS).where(old)))
            return
        query = select(BACKFILLS.c.tenant, BACKFILLS.c.backfill_id).where(old)
        while keys := await self._rows(query.limit(BATCH)):
            self._count(backfills=await self._delete(BACKFILLS, keys))

    async def _purge_jobs(self) -> None:
        """Forget jobs that were deleted and have no history. In a dry run: those whose history would be gone."""
        query = select(JOBS.c.tenant, JOBS.c.job_id, JOBS.c.version).where(
            *_is_old_job(self._before, dry_run=self._dry_run)
        )
        if self._dry_run:
            self._count(jobs=await self._scalar(select(func.count()).select_from(query.subquery())))
            return
        while keys := await self._rows(query.limit(BATCH)):
            # One that was registered again meanwhile has another version.
            gone = await self._delete(JOBS, keys)
            self._count(jobs=gone)
            if not gone:
                return

    def _count(self, **more: int) -> None:
        counted = {name: getattr(self.report, name) + count for name, count in more.items()}
        self.report = self.report.model_copy(update=counted)

    async def _delete(self, table: Table, keys: Sequence[Row[Any]]) -> int:
        columns = tuple_(*(table.c[name] for name in keys[0]._fields))

        async def carry_out() -> int:
            async with writing(self._engine) as connection:
                done = await connection.execute(delete(table).where(columns.in_([tuple(key) for key in keys])))
                return int(done.rowcount)

        return await self._deadline.ask(carry_out())

    async def _rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        async def read(connection: AsyncConnection) -> Sequence[Row[Any]]:
            found: Sequence[Row[Any]] = (await connection.execute(query)).all()
            return found

        answer: Sequence[Row[Any]] = await self._read(read)
        return answer

    async def _scalar(self, query: Select[Any]) -> int:
        return int((await self._rows(query))[0][0])

    async def _read(self, read: Any) -> Any:
        async def connect_and_read() -> Any:
            async with reading(self._engine) as connection:
                return await read(connection)

        return await self._deadline.ask(connect_and_read())


def _is_old_run(before: datetime) -> ColumnElement[bool]:
    return and_(RUNS.c.status.in_(FINAL_STATUSES), func.coalesce(RUNS.c.finished_at, RUNS.c.created_at) < before)


def _is_old_entry(before: datetime) -> ColumnElement[bool]:
    """An entry bears no time of its own, but the version of its record does."""
    return and_(LEDGER.c.last < before, LEDGER.c.version < microseconds(before))


def _is_old_job(before: datetime, *, dry_run: bool) -> list[ColumnElement[bool]]:
    runs = [*_same_owner(RUNS)]
    entries = [*_same_owner(LEDGER)]
    if dry_run:
        runs.append(~_is_old_run(before))
        entries.append(~_is_old_entry(before))
    return [
        JOBS.c.state == Lifecycle.DELETED.value,
        JOBS.c.active_runs == 0,
        JOBS.c.waiting_runs == 0,
        JOBS.c.updated_at < before,
        or_(JOBS.c.last_finished_at.is_(None), JOBS.c.last_finished_at < before),
        ~exists(select(literal(1)).where(*runs).correlate(JOBS)),
        ~exists(select(literal(1)).where(*entries).correlate(JOBS)),
    ]


def _same_owner(table: Table) -> tuple[ColumnElement[bool], ...]:
    return table.c.tenant == JOBS.c.tenant, table.c.job_id == JOBS.c.job_id


def _attempt_of_run() -> ColumnElement[bool]:
    return and_(*(ATTEMPTS.c[name] == RUNS.c[name] for name in ("tenant", "run_id", "scheduled_at")))


def _of(table: Table, owner: JobKey) -> tuple[ColumnElement[bool], ...]:
    return table.c.tenant == owner[0], table.c.job_id == owner[1]


async def _find_months(connection: AsyncConnection) -> list[date]:
    return await connection.run_sync(existing_months)


def _starts(month: date) -> datetime:
    return datetime(month.year, month.month, 1, tzinfo=UTC)


def _end_of(month: date) -> datetime:
    return datetime(month.year + month.month // 12, month.month % 12 + 1, 1, tzinfo=UTC)


def _log(report: PurgeReport, *, dry_run: bool) -> None:
    counts = {name: getattr(report, name) for name in PURGED_TABLES}
    if report.trouble:
        logger.warning("old history could not be forgotten", extra={"reason": report.trouble, **counts})
    elif not dry_run and (report.months or any(counts.values())):
        logger.info("old history was forgotten", extra={"months": ",".join(report.months), **counts})
