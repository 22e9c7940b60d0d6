"""What people read of the mirror. The only reads of its tables; nothing here decides whether a job fires.

Every read is bounded in time and in size, and raises ``Unavailable`` when the database does not answer. What a caller hands in is
data, never SQL: any text is allowed, and text that no database can hold finds nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any, Final, TypeVar

from sqlalchemy import (
    JSON,
    Column,
    ColumnElement,
    FromClause,
    Row,
    Select,
    Table,
    Text,
    cast,
    func,
    literal,
    select,
    tuple_,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from activities.database import reading
from activities.dead_letter_listing import select_dead_letters
from activities.deadline import Deadline
from activities.label_condition import have_labels
from activities.ledger_listing import (
    LedgerWindow,
    ListedEntry,
    Place,
    Rank,
    merge_ledger,
    select_backfilled,
    select_fires,
    select_ranges,
    tell_backfilled,
)
from activities.mirror_row import SqlValue, attempt_from, backfill_from, entry_from, job_from, run_from, storable
from activities.page import Page, Position, decode_cursor, fingerprint, make_page, moment_in, page_size
from activities.tables import ATTEMPTS, BACKFILLS, JOBS, KEY, RUNS, UnreadDocument, UtcDateTime
from workflows.backfill_record import OPEN_STATUSES as OPEN_BACKFILLS
from workflows.backfill_record import BackfillRecord
from workflows.dead_letter import DeadLetterFilter, LetterPlace
from workflows.error import InvalidCursor
from workflows.job import Hold, JobCounts, JobRecord, LedgerEntry, Lifecycle, Pause, RunRecord
from workflows.run import FINAL_STATUSES, Attempt, Run, RunKind, RunStatus

FAILED: Final = frozenset({RunStatus.RETRYING, RunStatus.DEAD})
"""What ``status=failed`` means."""

OPEN_STATUSES: Final = frozenset(RunStatus) - FINAL_STATUSES

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class JobFilter:
    """Which jobs are listed. All conditions hold together."""

    state: Lifecycle | None = None
    """``None``: all but the deleted ones."""

    labels: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    """Exactly this name."""

    q: str | None = None
    """Found, as it stands and in any case, in the id, name, description, owner or target."""

    target: str | None = None
    """Exactly this activity, type of workflow, or method and URL."""

    next_after: datetime | None = None
    """Nominal time of the next fire, inclusive. Jobs that have none are left out."""

    next_before: datetime | None = None
    """Nominal time of the next fire, inclusive. Jobs that have none are left out."""


@dataclass(frozen=True, kw_only=True)
class RunFilter:
    """Which runs of a job are listed."""

    statuses: frozenset[RunStatus] = frozenset()
    """Empty: all."""

    start: datetime | None = None
    """Nominal time, inclusive."""

    end: datetime | None = None
    """Nominal time, inclusive."""


@dataclass(frozen=True)
class RecordedRun:
    """A run with those of its attempts that were asked for, first attempt first."""

    record: RunRecord
    attempts: tuple[Attempt, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ScheduledJob:
    """What is needed of a job to say when it fires."""

    job_id: str
    name: str
    schedule: str
    """``Schedule``, as JSON."""

    next_run_at: datetime | None
    next_target_at: datetime | None
    started: int
    """Runs so far, which ``max_runs`` bounds."""

    resumes_at: datetime | None
    """Of a paused job: when it resumes by itself, and no hold is over it; ``None`` for any other."""


_SCHEDULE_COLUMNS: Final = (
    JOBS.c.job_id,
    JOBS.c.name,
    cast(JOBS.c.definition["schedule"], Text).label("schedule"),
    JOBS.c.next_run_at,
    JOBS.c.next_target_at,
    JOBS.c.counts,
    JOBS.c.pause,
    JOBS.c.holds,
)

_SHOWN: Final = tuple(column for column in BACKFILLS.c if column is not BACKFILLS.c.definition)
"""What a ``BackfillRecord`` has. The definition may be large, and is read for one backfill alone: see ``backfill_definition``."""


def _unread(columns: Iterable[Column[Any]]) -> list[ColumnElement[Any]]:
    """Select documents as their text: a page of them may be 100 MB, which are not read in the event loop."""
    return [
        cast(column, UnreadDocument).label(column.name) if isinstance(column.type, JSON) else column
        for column in columns
    ]


_LISTED_JOB: Final = _unread(JOBS.c)
_LETTER: Final = _unread(RUNS.c)
_LISTED_RUN: Final = _unread(column for column in RUNS.c if column is not RUNS.c.checkpoint)
_ATTEMPT: Final = _unread(ATTEMPTS.c)


class Queries:
    """Reads through one engine, for any number of callers at once."""

    def __init__(self, engine: AsyncEngine, *, limit: timedelta = timedelta(seconds=5)) -> None:
        self._engine = engine
        self._deadline = Deadline(limit)

    async def close(self) -> None:
        """Wait for reads that ran out of time. The engine is the caller's."""
        await self._deadline.close()

    async def get_job(self, tenant: str, job_id: str) -> JobRecord | None:
        """Find a job, a deleted one too."""
        found = await self._rows(select(JOBS).where(*_is(JOBS, tenant=tenant, job_id=job_id)))
        return job_from(_mapping(found[0])) if found else None

    async def list_jobs(
        self,
        tenant: str,
        chosen: JobFilter,
        *,
        cursor: str | None = None,
        limit: int = 50,
        with_payloads: bool = False,
    ) -> Page[JobRecord]:
        """List jobs by id, without their payloads where nobody asks for them. Raises ``InvalidCursor``."""
        labels = tuple(sorted(chosen.labels.items()))
        exactly = (chosen.name, chosen.q, chosen.target, chosen.next_after, chosen.next_before)
        listing = fingerprint("jobs", tenant, chosen.state, labels, *exactly)
        at = decode_cursor(cursor, listing=listing, key_length=1) if cursor is not None else None
        backwards = at is not None and at.backwards
        query = select(*_LISTED_JOB).where(*_is(JOBS, tenant=tenant), *self._job_conditions(chosen))
        if at is not None:
            query = query.where(JOBS.c.job_id < at.key[0] if backwards else JOBS.c.job_id > at.key[0])
        query = query.order_by(JOBS.c.job_id.desc() if backwards else JOBS.c.job_id)
        size = page_size(limit)
        rows = await self._rows(query.limit(size + 1))
        found = await _read_rows(rows, partial(job_from, with_payload=with_payloads))
        return make_page(found, size=size, at=at, listing=listing, key_of=lambda job: (job.job_id,))

    async def list_firing(self, tenant: str, *, before: datetime, limit: int) -> list[tuple[str, datetime]]:
        """Name the active jobs with a next fire before a moment, and when that is: the soonest first, at most ``limit``."""
        query = select(JOBS.c.job_id, JOBS.c.next_run_at).where(*_firing_before(tenant, before))
        rows = await self._rows(query.order_by(JOBS.c.next_run_at, JOBS.c.job_id).limit(limit))
        return [(str(row.job_id), row.next_run_at) for row in rows]

    async def count_firing(self, tenant: str, *, before: datetime) -> int:
        """Count the jobs that ``list_firing`` names without a limit."""
        [row] = await self._rows(select(func.count()).select_from(JOBS).where(*_firing_before(tenant, before)))
        return int(row[0])

    async def read_schedules(self, tenant: str, job_ids: Sequence[str]) -> dict[str, ScheduledJob]:
        """Read when jobs fire, by their ids. Without their payloads, which may be large."""
        query = select(*_SCHEDULE_COLUMNS).where(*_is(JOBS, tenant=tenant), JOBS.c.job_id.in_(job_ids))
        return {str(row.job_id): _scheduled_job(row) for row in await self._rows(query)}

    async def read_paused_schedules(self, tenant: str, *, after: str = "", limit: int = 500) -> list[ScheduledJob]:
        """Read when paused jobs would fire, by id, from the one with ``after`` on."""
        conditions = (*_is(JOBS, tenant=tenant), JOBS.c.state == Lifecycle.PAUSED, JOBS.c.job_id > after)
        query = select(*_SCHEDULE_COLUMNS).where(*conditions).order_by(JOBS.c.job_id)
        return [_scheduled_job(row) for row in await self._rows(query.limit(page_size(limit)))]

    async def count_jobs(self, tenant: str) -> dict[Lifecycle, int]:
        """Count jobs by state."""
        query = select(JOBS.c.state, func.count().label("jobs")).where(*_is(JOBS, tenant=tenant)).group_by(JOBS.c.state)
        found = {str(row.state): int(row.jobs) for row in await self._rows(query)}
        return {state: found.get(state, 0) for state in Lifecycle}

    async def get_run(self, tenant: str, run_id: str) -> RecordedRun | None:
        """Find a run with its attempts."""
        query = select(RUNS).where(*_is(RUNS, tenant=tenant, run_id=run_id)).order_by(RUNS.c.scheduled_at.desc())

        async def read(connection: AsyncConnection) -> RecordedRun | None:
            row = (await connection.execute(query.limit(1))).first()
            if row is None:
                return None
            return (await _with_attempts(connection, [run_from(_mapping(row))]))[0]

        return await self._read(read)

    async def get_last_run(self, job: JobRecord) -> Run | None:
        """Find the run of a job that ended last; ``None`` where there is none, or none any more."""
        found = None if job.last_run_id is None else await self.get_run(job.tenant, job.last_run_id)
        return None if found is None else found.record.run

    async def list_runs(
        self,
        tenant: str,
        job_id: str,
        chosen: RunFilter,
        *,
        cursor: str | None = None,
        limit: int = 50,
        include_attempts: bool = False,
    ) -> Page[RecordedRun]:
        """List the runs of a job, newest first. Raises ``InvalidCursor``."""
        listing = fingerprint("runs", tenant, job_id, sorted(chosen.statuses), chosen.start, chosen.end)
        at = decode_cursor(cursor, listing=listing, key_length=2) if cursor is not None else None
        size = page_size(limit)
        conditions = [
            *_is(RUNS, tenant=tenant, job_id=job_id),
            *_between(RUNS.c.scheduled_at, chosen.start, chosen.end),
        ]
        backwards = at is not None and at.backwards
        query = _select_runs([*conditions, *_beyond(at)], chosen.statuses, backwards=backwards, count=size + 1)

        async def read(connection: AsyncConnection) -> list[RecordedRun]:
            found = await _read_rows((await connection.execute(query)).all(), run_from)
            return await _with_attempts(connection, found) if include_attempts else [RecordedRun(run) for run in found]

        return make_page(await self._read(read), size=size, at=at, listing=listing, key_of=_run_key)

    async def list_dead_letters(
        self, tenant: str, chosen: DeadLetterFilter, *, cursor: str | None = None, limit: int = 50
    ) -> Page[RecordedRun]:
        """List dead letters with their attempts, those that ended last first. Raises ``InvalidCursor``."""
        labels = tuple(sorted(chosen.labels.items()))
        filters = (chosen.job_id, chosen.reason, chosen.start, chosen.end, labels, chosen.redriven)
        listing = fingerprint("dead letters", tenant, *filters)
        at = decode_cursor(cursor, listing=listing, key_length=2) if cursor is not None else None
        beyond = None if at is None else LetterPlace(finished_at=moment_in(at.key[0]), run_id=at.key[1])
        query = select_dead_letters(
            tenant,
            chosen,
            beyond=beyond,
            oldest_first=at is not None and at.backwards,
            label_conditions=self._label_conditions(chosen.labels),
        )
        size = page_size(limit)

        async def read(connection: AsyncConnection) -> list[RecordedRun]:
            rows = (await connection.execute(query.with_only_columns(*_LETTER).limit(size + 1))).all()
            found = await _read_rows(rows, run_from)
            return await _with_attempts(connection, found)

        return make_page(await self._read(read), size=size, at=at, listing=listing, key_of=_letter_key)

    async def read_dead_letters(
        self, tenant: str, chosen: DeadLetterFilter, *, after: LetterPlace | None = None, limit: int = 100
    ) -> list[RunRecord]:
        """Read dead letters without their attempts, those that ended first first, from a place on."""
        labels = self._label_conditions(chosen.labels)
        query = select_dead_letters(tenant, chosen, beyond=after, oldest_first=True, label_conditions=labels)
        return [run_from(_mapping(row)) for row in await self._rows(query.limit(page_size(limit)))]

    async def read_open_runs(self, tenant: str, job_id: str) -> list[RunRecord]:
        """Read every run of a job that is not final as far as the mirror knows."""
        query = select(RUNS).where(*_is(RUNS, tenant=tenant, job_id=job_id), RUNS.c.status.in_(OPEN_STATUSES))
        return [run_from(_mapping(row)) for row in await self._rows(query.order_by(RUNS.c.scheduled_at))]

    async def read_runs_at(self, tenant: str, job_id: str, nominals: Sequence[datetime]) -> list[RunRecord]:
        """Read every run of a job that has one of these nominal times, whatever its kind."""
        if not nominals:
            return []
        query = select(RUNS).where(*_is(RUNS, tenant=tenant, job_id=job_id), RUNS.c.scheduled_at.in_(nominals))
        return [run_from(_mapping(row)) for row in await self._rows(query.order_by(RUNS.c.scheduled_at))]

    async def count_times_with_runs(self, tenant: str, job_id: str, start: datetime, end: datetime) -> int:
        """Count the nominal times of a range, both ends inclusive, that have a run; see ``answers_for``."""
        query = select(func.count(RUNS.c.scheduled_at.distinct()).label("times")).where(
            *_is(RUNS, tenant=tenant, job_id=job_id),
            *_between(RUNS.c.scheduled_at, start, end),
            RUNS.c.kind != RunKind.MANUAL,
            RUNS.c.status != RunStatus.CANCELLED,
        )
        [row] = await self._rows(query)
        return int(row.times)

    async def get_backfill(self, tenant: str, backfill_id: str) -> BackfillRecord | None:
        """Find a backfill."""
        found = await self._rows(select(*_SHOWN).where(*_is(BACKFILLS, tenant=tenant, backfill_id=backfill_id)))
        return backfill_from(_mapping(found[0])) if found else None

    async def read_open_backfills(self, tenant: str, job_id: str) -> list[BackfillRecord]:
        """Read every backfill of a job that is not over as far as the mirror knows."""
        query = select(*_SHOWN).where(
            *_is(BACKFILLS, tenant=tenant, job_id=job_id), BACKFILLS.c.status.in_(OPEN_BACKFILLS)
        )
        return [backfill_from(_mapping(row)) for row in await self._rows(query)]

    async def read_unfinished_backfills(
        self, *, after: tuple[str, str] | None = None, limit: int = 100
    ) -> list[BackfillRecord]:
        """Read backfills of all tenants that are not over as far as the mirror knows, in the order of tenant and id.

        From the one with ``after`` on. Reads all backfills.
        """
        keys = (BACKFILLS.c.tenant, BACKFILLS.c.backfill_id)
        query = select(*_SHOWN).where(BACKFILLS.c.status.in_(OPEN_BACKFILLS)).order_by(*keys)
        if after is not None:
            query = query.where(tuple_(*keys) > tuple_(*(literal(each, KEY) for each in after)))
        return [backfill_from(_mapping(row)) for row in await self._rows(query.limit(page_size(limit)))]

    async def list_backfills(
        self, tenant: str, job_id: str, *, cursor: str | None = None, limit: int = 50
    ) -> Page[BackfillRecord]:
        """List the backfills of a job, those asked for last first. Raises ``InvalidCursor``."""
        listing = fingerprint("backfills", tenant, job_id)
        at = decode_cursor(cursor, listing=listing, key_length=2) if cursor is not None else None
        keys = (BACKFILLS.c.requested_at, BACKFILLS.c.backfill_id)
        query = select(*_SHOWN).where(*_is(BACKFILLS, tenant=tenant, job_id=job_id))
        backwards = at is not None and at.backwards
        if at is not None:
            here, there = tuple_(*keys), tuple_(literal(moment_in(at.key[0]), UtcDateTime), literal(at.key[1], KEY))
            query = query.where(here > there if backwards else here < there)
        query = query.order_by(*(keys if backwards else (key.desc() for key in keys)))
        size = page_size(limit)
        found = [backfill_from(_mapping(row)) for row in await self._rows(query.limit(size + 1))]
        return make_page(found, size=size, at=at, listing=listing, key_of=_backfill_key)

    async def read_all_jobs(self, *, after: tuple[str, str] | None = None, limit: int = 100) -> list[JobRecord]:
        """Read jobs of all tenants in any state, in the order of tenant and id, from the one with ``after`` on."""
        query = select(JOBS).order_by(JOBS.c.tenant, JOBS.c.job_id)
        if after is not None:
            query = query.where(tuple_(JOBS.c.tenant, JOBS.c.job_id) > tuple_(*(literal(each, KEY) for each in after)))
        return [job_from(_mapping(row)) for row in await self._rows(query.limit(page_size(limit)))]

    async def last_news_at(self) -> datetime | None:
        """Say when the last thing happened that the mirror knows of; ``None`` where it knows nothing. Reads all jobs."""
        columns = (JOBS.c.last_finished_at, JOBS.c.high_water, JOBS.c.updated_at)
        [row] = await self._rows(select(*(func.max(column) for column in columns)))
        return max((moment for moment in row if moment is not None), default=None)

    async def list_ledger(
        self,
        tenant: str,
        job_id: str,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[ListedEntry]:
        """List what became of the nominal times of a job from ``start`` to ``end``, both inclusive, oldest first.

        Runs and ranges are told alike; a range that reaches into the window is listed whole. Raises ``InvalidCursor``. Goes
        forward only.
        """
        listing = fingerprint("ledger", tenant, job_id, start, end)
        at = Position(decode_cursor(cursor, listing=listing, key_length=2).key) if cursor is not None else None
        size = page_size(limit)
        window = LedgerWindow(tenant=storable(tenant), job_id=storable(job_id), start=start, end=end, after=_place(at))

        async def read(connection: AsyncConnection) -> list[Place]:
            fires = await _entries(connection, select_fires(window).limit(size + 1))
            # One more: the entry of the fire that the cursor stands on may be left out.
            parts = [await _entries(connection, query.limit(size + 2)) for query in select_ranges(window)]
            return merge_ledger(fires, chain.from_iterable(parts), after=window.after)

        page = make_page(await self._read(read), size=size, at=at, listing=listing, key_of=_place_key)
        told = await self.tell_backfilled(tenant, job_id, [place.entry for place in page.items])
        return Page(told, next=page.next)

    async def tell_backfilled(
        self, tenant: str, job_id: str, entries: Sequence[LedgerEntry]
    ) -> tuple[ListedEntry, ...]:
        """Add to ledger entries of a job what was backfilled of them."""
        if not entries:
            return ()
        rows = await self._rows(select_backfilled(storable(tenant), storable(job_id), entries))
        return tell_backfilled(entries, [(row.scheduled_at, row.run_id) for row in rows])

    async def _rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        async def read(connection: AsyncConnection) -> Sequence[Row[Any]]:
            found: Sequence[Row[Any]] = (await connection.execute(query)).all()
            return found

        return await self._read(read)

    async def _read(self, read: Callable[[AsyncConnection], Awaitable[Answer]]) -> Answer:
        async def connect_and_read() -> Answer:
            async with reading(self._engine) as connection:
                return await read(connection)

        return await self._deadline.ask(connect_and_read())

    def _job_conditions(self, chosen: JobFilter) -> list[ColumnElement[bool]]:
        state = JOBS.c.state
        conditions = [state != Lifecycle.DELETED if chosen.state is None else state == chosen.state]
        if chosen.name is not None:
            conditions.append(JOBS.c.name == storable(chosen.name))
        if chosen.target is not None:
            conditions.append(JOBS.c.target == storable(chosen.target))
        conditions += _between(JOBS.c.next_run_at, chosen.next_after, chosen.next_before)
        if chosen.q:
            conditions.append(JOBS.c.search_text.contains(storable(chosen.q).casefold(), autoescape=True))
        return [*conditions, *self._label_conditions(chosen.labels)]

    def _label_conditions(self, labels: Mapping[str, str]) -> tuple[ColumnElement[bool], ...]:
        return have_labels(labels, dialect=self._engine.dialect.name)


def _firing_before(tenant: str, moment: datetime) -> tuple[ColumnElement[bool], ...]:
    return (*_is(JOBS, tenant=tenant), JOBS.c.state == Lifecycle.ACTIVE, JOBS.c.next_run_at < moment)


def _scheduled_job(row: Row[Any]) -> ScheduledJob:
    pause = None if row.pause is None else Pause.model_validate(row.pause)
    holds = tuple(map(Hold.model_validate, (row.holds or {}).values()))
    ends = [None if pause is None else pause.until, *(hold.until for hold in holds)]
    known = [end for end in ends if end is not None]
    return ScheduledJob(
        job_id=row.job_id,
        name=row.name,
        schedule=row.schedule,
        next_run_at=row.next_run_at,
        next_target_at=row.next_target_at,
        started=JobCounts.model_validate(row.counts).started,
        resumes_at=max(known) if pause is not None and len(known) == len(ends) else None,
    )


def _mapping(row: Row[Any]) -> Mapping[str, SqlValue]:
    found: Mapping[str, SqlValue] = row._asdict()
    return found


def _is(table: Table, **texts: str) -> list[ColumnElement[bool]]:
    return [table.c[name] == storable(text) for name, text in texts.items()]


def _between(
    column: ColumnElement[datetime], start: datetime | None, end: datetime | None
) -> list[ColumnElement[bool]]:
    from_start = [column >= start] if start is not None else []
    return [*from_start, column <= end] if end is not None else from_start


def _select_runs(
    conditions: Sequence[ColumnElement[bool]],
    statuses: frozenset[RunStatus],
    *,
    backwards: bool,
    count: int,
) -> Select[Any]:
    """Select the newest runs, or going backwards the oldest.

    Each status is looked up by itself, in the order of the index, and then merged: a job may have millions of runs of each.
    """
    if len(statuses) <= 1:
        query = select(*_LISTED_RUN).where(*conditions, *(RUNS.c.status == status for status in statuses))
        return _in_order(query, RUNS, backwards=backwards).limit(count)
    each = (_select_runs(conditions, frozenset({status}), backwards=backwards, count=count) for status in statuses)
    merged = union_all(*(query.subquery().select() for query in each)).subquery()
    return _in_order(merged.select(), merged, backwards=backwards).limit(count)


def _in_order(query: Select[Any], source: FromClause, *, backwards: bool) -> Select[Any]:
    keys = (source.c.scheduled_at, source.c.run_id)
    return query.order_by(*(keys if backwards else (key.desc() for key in keys)))


def _beyond(at: Position | None) -> list[ColumnElement[bool]]:
    """Say what lies behind a position: older runs, or newer ones when going backwards."""
    if at is None:
        return []
    moment, run_id = literal(moment_in(at.key[0]), UtcDateTime), literal(at.key[1], KEY)
    here, there = tuple_(RUNS.c.scheduled_at, RUNS.c.run_id), tuple_(moment, run_id)
    # The plain condition says nothing new, but lets PostgreSQL leave whole months out.
    if at.backwards:
        return [here > there, RUNS.c.scheduled_at >= moment]
    return [here < there, RUNS.c.scheduled_at <= moment]


async def _with_attempts(connection: AsyncConnection, runs: list[RunRecord]) -> list[RecordedRun]:
    """Add their attempts to runs of one tenant."""
    if not runs:
        return []
    times = [record.run.scheduled_at for record in runs]
    query = select(*_ATTEMPT).where(
        ATTEMPTS.c.tenant == runs[0].tenant,
        ATTEMPTS.c.run_id.in_([record.run.run_id for record in runs]),
        ATTEMPTS.c.scheduled_at.between(min(times), max(times)),
    )
    found: dict[tuple[str, datetime], list[Attempt]] = {}
    rows = (await connection.execute(query.order_by(ATTEMPTS.c.number))).all()
    for attempt in await _read_rows(rows, attempt_from):
        found.setdefault((attempt.run_id, attempt.scheduled_at), []).append(attempt)
    return [RecordedRun(record, tuple(found.get((record.run.run_id, record.run.scheduled_at), ()))) for record in runs]


async def _read_rows(rows: Sequence[Row[Any]], read: Callable[[Mapping[str, SqlValue]], Answer]) -> list[Answer]:
    """Read rows in a thread: other requests go on meanwhile."""
    return await asyncio.to_thread(lambda: [read(_mapping(row)) for row in rows])


async def _entries(connection: AsyncConnection, query: Select[Any]) -> list[LedgerEntry]:
    return [entry_from(_mapping(row)) for row in await connection.execute(query)]


def _run_key(run: RecordedRun) -> tuple[str, ...]:
    return run.record.run.scheduled_at.isoformat(), run.record.run.run_id


def _backfill_key(record: BackfillRecord) -> tuple[str, ...]:
    return record.requested_at.isoformat(), record.backfill_id


def _letter_key(run: RecordedRun) -> tuple[str, ...]:
    finished_at = run.record.run.finished_at
    assert finished_at is not None
    return finished_at.isoformat(), run.record.run.run_id


def _place_key(place: Place) -> tuple[str, ...]:
    moment, rank = place.order
    return moment.isoformat(), rank.name


def _place(at: Position | None) -> tuple[datetime, Rank] | None:
    if at is None:
        return None
    moment, rank = at.key
    if rank not in Rank.__members__:
        raise InvalidCursor("the cursor was not given by this service")
    return moment_in(moment), Rank[rank]
