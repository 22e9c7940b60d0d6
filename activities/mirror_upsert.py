"""Writes batches of records to the mirror's tables: the statements, and what happens when one is refused.

Owns the SQL of every mirror write. Promises that writing a record twice, late or out of order changes nothing, that what can
be written of a group is written whatever else is in it, and that writers in several processes do not wait for each other in a
circle. When to write, and how long to try, is ``mirror_writer``'s business.
"""

import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import date, datetime
from functools import cache
from typing import Any, Final

from sqlalchemy import ColumnElement, Table, case, literal, or_, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, StatementError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.sql.dml import Insert

from activities.database import POSTGRESQL, cause_of, reading, writing
from activities.deadline import Deadline
from activities.mirror_row import Row, attempt_row, backfill_row, job_row, ledger_row, newest, run_row
from activities.partition import create_partitions, months_of
from activities.tables import ATTEMPTS, BACKFILLS, JOBS, LEDGER, RUNS
from workflows.job import MirrorBatch

logger = logging.getLogger(__name__)

DEFINED_COLUMNS: Final = frozenset(
    {
        "definition",
        "name",
        "owner",
        "labels",
        "target",
        "task_queue",
        "downstream",
        "search_text",
        "calendars",
    }
)
"""Columns of ``jobs`` that only a new definition changes."""

_REFUSING_STATES: Final = frozenset({"22", "23", "54"})
"""SQLSTATE classes that blame the data: data exception, integrity violation, limit exceeded (a document nested too deep)."""

_UNIQUE_VIOLATION: Final = frozenset({"23505", "SQLITE_CONSTRAINT_UNIQUE"})


class MirrorUpsert:
    """Writes groups of batches through one engine. Counts what it did; nothing else is kept but the months made so far."""

    def __init__(self, engine: AsyncEngine, *, deadline: Deadline) -> None:
        self._engine = engine
        self._deadline = deadline
        self._months: frozenset[date] = frozenset()
        self.transactions = 0
        """Committed ones."""

        self.rows_written = 0
        """Rows sent in transactions that were committed, unchanged ones included."""

        self.records_refused = 0
        """Records that the database does not take, each time they were tried."""

        self.nominal_conflicts = 0
        """Runs refused because another run has their nominal time. Anything but 0 means that a promise was broken."""

    async def prepare(self, moments: Iterable[datetime]) -> None:
        """Connect, and make the partitions for rows of these times."""
        await self._deadline.run(self._connect_and_make_partitions(months_of(moments)))

    async def write(self, batches: Sequence[MirrorBatch]) -> AsyncIterator[Exception | None]:
        """Write a group; say of each batch in turn, as soon as it is committed, what refused it, or ``None``.

        It is one transaction if all of it can be written. Where something is refused, the group is halved until that stands
        alone, so that everything else gets written. Raises when the database cannot be used, or a transaction takes too long;
        what has not been told then may be written or not.
        """
        try:
            await self._deadline.run(self._transact(batches))
        except Exception as error:
            if not is_refusal(error):
                raise
            refusal = error
        else:
            for _ in batches:
                yield None
            return
        if len(batches) == 1:
            yield await self._write_apart(batches[0], refusal)
            return
        middle = len(batches) // 2
        for half in (batches[:middle], batches[middle:]):
            async for each in self.write(half):
                yield each

    async def _write_apart(self, batch: MirrorBatch, error: Exception) -> Exception | None:
        """Write what can be written of a batch that was refused; say what refused the rest."""
        records = list(_records_of(batch))
        if len(records) == 1:
            return self._give_up(records[0], error)
        refusals = [each async for each in self.write(records) if each is not None]
        return refusals[0] if refusals else None

    async def _connect_and_make_partitions(self, months: frozenset[date]) -> None:
        async with reading(self._engine) as connection:
            await connection.execute(select(literal(1)))
        await self._make_partitions(months)

    def _give_up(self, record: MirrorBatch, error: Exception) -> Exception | None:
        """Report a record that cannot be written. A second run for a nominal time never can be, so it counts as dealt with."""
        if record.runs and _is_unique_violation(error):
            run = record.runs[0]
            self.nominal_conflicts += 1
            logger.error(
                "another run has this nominal time; the mirror keeps the first",
                extra={"tenant": run.tenant, "job_id": run.job_id, "run_id": run.run.run_id},
            )
            return None
        self.records_refused += 1
        logger.error("the mirror refused a record", extra={"record": _name(record), "error": cause_of(error)})
        return error

    async def _transact(self, batches: Sequence[MirrorBatch]) -> None:
        rows = {table: _rows_for(table, batches) for table in (JOBS, RUNS, ATTEMPTS, LEDGER, BACKFILLS)}
        await self._make_partitions(months_of(_times(rows)))
        async with writing(self._engine) as connection:
            for table, of_table in rows.items():
                await _upsert(connection, table, of_table)
        self.transactions += 1
        self.rows_written += sum(map(len, rows.values()))

    async def _make_partitions(self, months: frozenset[date]) -> None:
        """Make the months that are met for the first time, outside of the transaction that writes the rows."""
        missing = months - self._months
        if missing and self._engine.dialect.name == POSTGRESQL:
            async with writing(self._engine) as connection:
                await connection.run_sync(create_partitions, missing)
            self._months |= missing


def is_refusal(error: BaseException) -> bool:
    """Tell an error that the data causes, whichever database it meets, from one of the database."""
    if isinstance(error, DBAPIError):
        state = getattr(error.orig, "sqlstate", None)
        if state is not None:
            return str(state)[:2] in _REFUSING_STATES
        # The drivers refuse some values themselves; asyncpg's error for that is a ValueError in disguise.
        return isinstance(error, IntegrityError | DataError) or isinstance(_driver_error(error), ValueError)
    return isinstance(error, StatementError | ValueError | TypeError | OverflowError | RecursionError)


def _is_unique_violation(error: Exception) -> bool:
    if not isinstance(error, DBAPIError):
        return False
    names = (getattr(error.orig, "sqlstate", None), getattr(error.orig, "sqlite_errorname", None))
    return not _UNIQUE_VIOLATION.isdisjoint(names)


def _driver_error(error: DBAPIError) -> BaseException | None:
    return None if error.orig is None else error.orig.__cause__


def _records_of(batch: MirrorBatch) -> Iterator[MirrorBatch]:
    """Take a batch apart into batches of one record."""
    if batch.job is not None:
        yield MirrorBatch(job=batch.job)
    yield from (MirrorBatch(runs=(run,)) for run in batch.runs)
    yield from (MirrorBatch(attempts=(attempt,)) for attempt in batch.attempts)
    yield from (MirrorBatch(ledger=(entry,)) for entry in batch.ledger)
    yield from (MirrorBatch(backfills=(backfill,)) for backfill in batch.backfills)


def _name(record: MirrorBatch) -> str:
    if record.job is not None:
        return f"job {record.job.job_id}"
    if record.runs:
        return f"run {record.runs[0].run.run_id}"
    if record.attempts:
        return f"attempt {record.attempts[0].attempt.number} of {record.attempts[0].attempt.run_id}"
    if record.backfills:
        return f"backfill {record.backfills[0].backfill_id}"
    return f"ledger entry of {record.ledger[0].job_id}"


def _rows_for(table: Table, batches: Sequence[MirrorBatch]) -> list[Row]:
    """Lay out what a group holds for one table: one row a key, in the order that all writers keep to."""
    return newest(_all_rows(table, batches), key=tuple(column.name for column in table.primary_key))


def _all_rows(table: Table, batches: Sequence[MirrorBatch]) -> Iterator[Row]:
    if table is JOBS:
        return (job_row(batch.job) for batch in batches if batch.job is not None)
    if table is RUNS:
        return (run_row(record) for batch in batches for record in batch.runs)
    if table is ATTEMPTS:
        return (attempt_row(record) for batch in batches for record in batch.attempts)
    if table is BACKFILLS:
        return (backfill_row(record) for batch in batches for record in batch.backfills)
    return (ledger_row(record) for batch in batches for record in batch.ledger)


def _times(rows: dict[Table, list[Row]]) -> Iterator[datetime]:
    for table, column in ((RUNS, "scheduled_at"), (ATTEMPTS, "scheduled_at"), (LEDGER, "first")):
        yield from (moment for row in rows[table] if isinstance(moment := row[column], datetime))


async def _upsert(connection: AsyncConnection, table: Table, rows: list[Row]) -> None:
    if rows:
        await connection.execute(_upsert_statement(table, connection.dialect.name), rows)


@cache
def _upsert_statement(table: Table, dialect: str) -> Insert:
    """Insert, or replace where the row has a lower version."""
    insert: postgresql.Insert | sqlite.Insert
    insert = postgresql.insert(table) if dialect == POSTGRESQL else sqlite.insert(table)
    replacements: dict[str, ColumnElement[Any]] = {
        column.name: insert.excluded[column.name] for column in table.columns if not column.primary_key
    }
    if table is JOBS:
        replacements |= {name: _if_redefined(insert, name) for name in DEFINED_COLUMNS}
    if table is BACKFILLS:
        # No record has it; see `backfill_definition`.
        del replacements[BACKFILLS.c.definition.name]
    return insert.on_conflict_do_update(
        index_elements=list(table.primary_key),
        set_=replacements,
        where=insert.excluded.version > table.c.version,
    )


def _if_redefined(insert: postgresql.Insert | sqlite.Insert, name: str) -> ColumnElement[Any]:
    """Replace a column only by that of another definition: PostgreSQL then leaves a large one where it lies."""
    is_another = or_(
        insert.excluded.revision != JOBS.c.revision,
        insert.excluded.registered_at != JOBS.c.registered_at,
    )
    return case((is_another, insert.excluded[name]), else_=JOBS.c[name])
