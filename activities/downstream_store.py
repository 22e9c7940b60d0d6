"""What is known of downstreams in SQL: which jobs call them, how many runs wait, and what scheduler processes say of them.

Retry budgets and the failures that may open a breaker are counted in each scheduler process for itself. So that people can see
them, each process writes down every few seconds how the downstreams stand with which it has to do. Nothing is decided by these
reports: with the database down they are missing, and that is all.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, delete, func, literal, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from activities.database import POSTGRESQL, reading, writing
from activities.deadline import Deadline, end_task
from activities.mirror_row import storable
from activities.page import Page, decode_cursor, fingerprint, make_page, page_size
from activities.tables import GATE_REPORTS, JOBS, KEY, RUNS
from activities.trouble import Trouble
from workflows.downstream import GateReport
from workflows.job import Lifecycle
from workflows.resilience import UNKNOWN_ACTIVITY
from workflows.run import RunStatus

logger = logging.getLogger(__name__)

REPORT_EVERY: Final = timedelta(seconds=5)

REPORT_LASTS: Final = timedelta(seconds=30)
"""What a process said longer ago is not told any more: it has stopped, or has nothing to do with the downstream."""

KEPT: Final = timedelta(hours=1)
FORGET_EVERY: Final = timedelta(minutes=10)


@dataclass(frozen=True, kw_only=True)
class KnownDownstream:
    """What SQL knows of a downstream."""

    downstream: str
    jobs: int = 0
    """That call it, the deleted ones left out."""

    parked_runs: int = 0
    """Of these jobs: they wait until it is well, or for their turn."""

    reports: tuple[GateReport, ...] = ()
    """Of the last half minute, one a process."""


class DownstreamStore:
    """Reads and writes through one engine."""

    def __init__(self, engine: AsyncEngine, *, limit: timedelta = timedelta(seconds=3)) -> None:
        self._engine = engine
        self._deadline = Deadline(limit)

    async def close(self) -> None:
        """Wait for what ran out of time. The engine is the caller's."""
        await self._deadline.close()

    async def list(
        self, tenant: str, *, cursor: str | None = None, limit: int = 50, now: datetime
    ) -> Page[KnownDownstream]:
        """List what the jobs of a tenant call, by name. Raises ``InvalidCursor`` and ``Unavailable``."""
        listing = fingerprint("downstreams", tenant)
        at = decode_cursor(cursor, listing=listing, key_length=1) if cursor is not None else None
        backwards = at is not None and at.backwards
        name = JOBS.c.downstream
        query = _select_called(tenant).group_by(name).order_by(name.desc() if backwards else name)
        if at is not None:
            query = query.where(name < at.key[0] if backwards else name > at.key[0])
        size = page_size(limit)

        async def read(connection: AsyncConnection) -> Sequence[KnownDownstream]:
            rows = (await connection.execute(query.limit(size + 1))).all()
            return await _complete(connection, tenant, rows, now=now)

        found = await self._deadline.ask(self._read(read))
        return make_page(list(found), size=size, at=at, listing=listing, key_of=lambda each: (each.downstream,))

    async def get(self, tenant: str, downstream: str, *, now: datetime) -> KnownDownstream:
        """Say what is known of one, which may be nothing. Raises ``Unavailable``."""
        name = storable(downstream)

        async def read(connection: AsyncConnection) -> Sequence[KnownDownstream]:
            query = _select_called(tenant).where(JOBS.c.downstream == name).group_by(JOBS.c.downstream)
            rows = (await connection.execute(query)).all()
            if rows:
                return await _complete(connection, tenant, rows, now=now)
            reports = await _reports(connection, tenant, [name], now=now)
            return [KnownDownstream(downstream=downstream, reports=tuple(reports))]

        [found] = await self._deadline.ask(self._read(read))
        return found

    async def write(self, reports: Sequence[GateReport]) -> None:
        """Write down how downstreams stand, instead of what their process said before. Raises ``Unavailable``."""
        if reports:
            await self._deadline.ask(self._write(reports))

    async def forget_old(self, *, now: datetime) -> None:
        """Remove what nobody is told any more. Raises ``Unavailable``."""
        await self._deadline.ask(self._forget(now - KEPT))

    async def _read(self, read: Callable[[AsyncConnection], Any]) -> Sequence[KnownDownstream]:
        async with reading(self._engine) as connection:
            found: Sequence[KnownDownstream] = await read(connection)
            return found

    async def _write(self, reports: Sequence[GateReport]) -> None:
        table = GATE_REPORTS
        insert: postgresql.Insert | sqlite.Insert
        insert = postgresql.insert(table) if self._engine.dialect.name == POSTGRESQL else sqlite.insert(table)
        statement = insert.on_conflict_do_update(
            index_elements=list(table.primary_key),
            set_={"seen_at": insert.excluded.seen_at, "report": insert.excluded.report},
        )
        rows = [
            {
                "tenant": storable(each.tenant),
                "downstream": storable(each.downstream),
                "worker": storable(each.worker),
                "seen_at": each.seen_at,
                "report": each.model_dump(mode="json"),
            }
            for each in sorted(reports, key=lambda each: (each.tenant, each.downstream))
        ]
        async with writing(self._engine) as connection:
            await connection.execute(statement, rows)

    async def _forget(self, before: datetime) -> None:
        async with writing(self._engine) as connection:
            await connection.execute(delete(GATE_REPORTS).where(GATE_REPORTS.c.seen_at < before))


@asynccontextmanager
async def reporting(store: DownstreamStore, look: Callable[[datetime], Sequence[GateReport]]) -> AsyncIterator[None]:
    """Write down for the length of the block what ``look`` says of a process."""
    task = asyncio.create_task(_report_for_ever(store, look))
    try:
        yield
    finally:
        await end_task(task)


async def _report_for_ever(store: DownstreamStore, look: Callable[[datetime], Sequence[GateReport]]) -> None:
    forget_at = datetime.now(UTC)
    trouble = Trouble(logger)
    while True:
        now = datetime.now(UTC)
        with trouble.survived("downstreams cannot be reported now"):
            await store.write([each for each in look(now) if is_of_interest(each)])
            if now >= forget_at:
                await store.forget_old(now=now)
                forget_at = now + FORGET_EVERY
        await asyncio.sleep(REPORT_EVERY.total_seconds())


def is_of_interest(report: GateReport) -> bool:
    """Say whether a process has anything to do with a downstream at present."""
    counts = (report.consecutive_failures, report.first_attempts, report.retries, report.parked_runs, report.in_flight)
    return report.open_until is not None or any(counts)


def _select_called(tenant: str) -> Select[Any]:
    """Select what jobs call; by the partial index, whose condition is spelled out and not bound so that it is seen to match."""
    deleted = literal(Lifecycle.DELETED.value, literal_execute=True)
    nothing = literal("", KEY, literal_execute=True)
    return select(JOBS.c.downstream, func.count().label("jobs")).where(
        JOBS.c.tenant == storable(tenant), JOBS.c.downstream != nothing, JOBS.c.state != deleted
    )


async def _complete(
    connection: AsyncConnection, tenant: str, rows: Sequence[Row[Any]], *, now: datetime
) -> list[KnownDownstream]:
    if not rows:
        return []
    names = [str(row.downstream) for row in rows]
    parked = await _count_parked(connection, tenant, names)
    reports = await _reports(connection, tenant, names, now=now)
    return [
        KnownDownstream(
            downstream=str(row.downstream),
            jobs=int(row.jobs),
            parked_runs=parked.get(str(row.downstream), 0),
            reports=tuple(each for each in reports if storable(each.downstream) == row.downstream),
        )
        for row in rows
    ]


async def _count_parked(connection: AsyncConnection, tenant: str, names: Sequence[str]) -> dict[str, int]:
    query = (
        select(JOBS.c.downstream, func.count().label("runs"))
        .join_from(RUNS, JOBS, (JOBS.c.tenant == RUNS.c.tenant) & (JOBS.c.job_id == RUNS.c.job_id))
        .where(RUNS.c.tenant == storable(tenant), _waits_for_downstream(), JOBS.c.downstream.in_(names))
        .group_by(JOBS.c.downstream)
    )
    return {str(row.downstream): int(row.runs) for row in await connection.execute(query)}


def _waits_for_downstream() -> ColumnElement[bool]:
    parked = RUNS.c.status == literal(RunStatus.PARKED.value, literal_execute=True)
    return parked & ~RUNS.c.reason.startswith(UNKNOWN_ACTIVITY, autoescape=True)


async def _reports(
    connection: AsyncConnection, tenant: str, names: Sequence[str], *, now: datetime
) -> list[GateReport]:
    table = GATE_REPORTS
    query = (
        select(table.c.report)
        .where(table.c.tenant == storable(tenant), table.c.downstream.in_(names), table.c.seen_at > now - REPORT_LASTS)
        .order_by(table.c.downstream, table.c.worker)
    )
    return [GateReport.model_validate(row.report) for row in await connection.execute(query)]
