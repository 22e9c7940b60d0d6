"""One list of what became of each nominal time of a job, out of two tables.

Fires that have a run are told by the run, all others by ranges in ``ledger``. Pure but for being SQL: builds statements, and puts
together what they found.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, func, literal, select, true

from activities.tables import LEDGER, RUNS
from workflows.job import LedgerEntry
from workflows.run import RunKind, RunStatus

BACKFILLED_LISTED: Final = 100_000
"""Backfilled times that are looked at for one page of a ledger. Of more, only the first are counted."""


class ListedEntry(LedgerEntry):
    """An entry as it is listed. What a fire came to stays so when it is backfilled later; that is told beside."""

    backfilled: int = 0
    """How many of its fires have been backfilled; a run that was cancelled does not count."""

    backfill_run_id: str | None = None
    """Such a run; of several the one of the last fire."""


class Rank(IntEnum):
    """Which comes first of two that begin at the same time."""

    RUN = 0
    RANGE = 1


@dataclass(frozen=True)
class Place:
    """An entry and where it stands in the list."""

    rank: Rank
    entry: LedgerEntry

    @property
    def order(self) -> tuple[datetime, Rank]:
        """What the list is sorted by, and goes on from."""
        return self.entry.first, self.rank


@dataclass(frozen=True, kw_only=True)
class LedgerWindow:
    """Which part of a job's ledger is wanted."""

    tenant: str
    job_id: str
    start: datetime | None = None
    """Inclusive."""

    end: datetime | None = None
    """Inclusive."""

    after: tuple[datetime, Rank] | None = None
    """``Place.order`` of the last one listed before; ``None`` to begin with."""


def select_fires(window: LedgerWindow) -> Select[Any]:
    """Tell the scheduled and catch-up runs of the window as ledger entries, oldest first."""
    nominal = RUNS.c.scheduled_at
    columns = (nominal.label("first"), nominal.label("last"), literal(1).label("count"))
    query = select(*columns, RUNS.c.outcome, RUNS.c.reason, RUNS.c.run_id, RUNS.c.revision).where(
        RUNS.c.tenant == window.tenant,
        RUNS.c.job_id == window.job_id,
        # Spelled out, not bound, so that it is seen to match the partial index.
        RUNS.c.kind.in_([literal(kind.value, literal_execute=True) for kind in (RunKind.SCHEDULED, RunKind.CATCH_UP)]),
        nominal >= window.start if window.start is not None else true(),
        nominal <= window.end if window.end is not None else true(),
        nominal > window.after[0] if window.after is not None else true(),
    )
    return query.order_by(nominal)


def select_backfilled(tenant: str, job_id: str, entries: Sequence[LedgerEntry]) -> Select[Any]:
    """Select the nominal times of a stretch of time that were backfilled, oldest first, each with one of its runs."""
    nominal = RUNS.c.scheduled_at
    query = select(nominal, func.max(RUNS.c.run_id).label("run_id")).where(
        RUNS.c.tenant == tenant,
        RUNS.c.job_id == job_id,
        # Spelled out, not bound, so that it is seen to match the partial index.
        RUNS.c.kind == literal(RunKind.BACKFILL.value, literal_execute=True),
        RUNS.c.status != RunStatus.CANCELLED,
        nominal >= min(entry.first for entry in entries),
        nominal <= max(entry.last for entry in entries),
    )
    return query.group_by(nominal).order_by(nominal).limit(BACKFILLED_LISTED)


def tell_backfilled(
    entries: Iterable[LedgerEntry], backfilled: Sequence[tuple[datetime, str]]
) -> tuple[ListedEntry, ...]:
    """Add to entries what was backfilled of them: nominal times, oldest first, and their runs."""
    times = [nominal for nominal, _ in backfilled]
    told = []
    for entry in entries:
        begin, end = bisect_left(times, entry.first), bisect_right(times, entry.last)
        run_id = backfilled[end - 1][1] if end > begin else None
        told.append(ListedEntry(**dict(entry), backfilled=end - begin, backfill_run_id=run_id))
    return tuple(told)


def select_ranges(window: LedgerWindow) -> list[Select[Any]]:
    """Select the ranges that lie in the window, each part oldest first: those that reach into it, and those that begin in it."""
    query, first = _ranges(window).order_by(LEDGER.c.first), LEDGER.c.first
    if window.start is None:
        return [query]
    reaching_in = query.where(first < window.start, LEDGER.c.last >= window.start)
    # SQLite keeps no statistics unless told to, and would read the ledger from its beginning.
    reaching_in = reaching_in.with_hint(LEDGER, "INDEXED BY ix_ledger_tenant_job_id_last_first", "sqlite")
    return [reaching_in, query.where(first >= window.start)]


def _ranges(window: LedgerWindow) -> Select[Any]:
    first = LEDGER.c.first
    return select(LEDGER).where(
        LEDGER.c.tenant == window.tenant,
        LEDGER.c.job_id == window.job_id,
        first <= window.end if window.end is not None else true(),
        _is_beyond(first, window.after),
    )


def _is_beyond(first: ColumnElement[datetime], after: tuple[datetime, Rank] | None) -> ColumnElement[bool]:
    if after is None:
        return true()
    moment, rank = after
    return first >= moment if rank is Rank.RUN else first > moment


def merge_ledger(
    fires: Iterable[LedgerEntry], ranges: Iterable[LedgerEntry], *, after: tuple[datetime, Rank] | None
) -> list[Place]:
    """Put runs and ranges in order of time. A single fire that is in both is told once, by its run."""
    told = [Place(Rank.RUN, fire) for fire in fires]
    with_run = {place.entry.first for place in told}
    if after is not None and after[1] is Rank.RUN:
        with_run.add(after[0])
    others = [Place(Rank.RANGE, each) for each in ranges if each.count > 1 or each.first not in with_run]
    return sorted([*told, *others], key=lambda place: place.order)
