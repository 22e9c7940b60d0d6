"""Holds of tenants, and which jobs carry them.

Part of the store: whether a hold is in force is found nowhere else. Jobs do not ask for it: each carries the holds over it, and
those that do not carry what they should, or carry what they should not, are found here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    and_,
    delete,
    exists,
    false,
    func,
    literal,
    not_,
    or_,
    select,
    true,
    tuple_,
    type_coerce,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.database import POSTGRESQL, reading, writing
from activities.deadline import Deadline
from activities.label_condition import have_labels
from activities.mirror_row import storable
from activities.page import Page, decode_cursor, fingerprint, make_page, moment_in, page_size
from activities.tables import HOLDS, JOBS, KEY, UtcDateTime
from workflows.hold import chooses
from workflows.job import Hold, Lifecycle, PausedFires

JOBS_NAMED: Final = 100
"""Jobs that are told by name when somebody asks about a hold."""

_IS_FIRING = JOBS.c.state.in_((Lifecycle.ACTIVE.value, Lifecycle.PAUSED.value))


@dataclass(frozen=True, kw_only=True)
class StoredHold:
    """A hold as the store has it."""

    tenant: str
    hold: Hold
    selector: dict[str, str] = field(default_factory=dict)
    """Labels that a job must have, all of them; empty: it is over every job."""

    released_at: datetime | None = None
    """When somebody released it, before it ended by itself."""

    def is_in_force(self, *, now: datetime) -> bool:
        """Say whether jobs are to be held."""
        return self.released_at is None and not self.is_expired(now=now)

    def is_expired(self, *, now: datetime) -> bool:
        """Say whether it has ended by itself."""
        return self.released_at is None and self.hold.until is not None and self.hold.until <= now


@dataclass(frozen=True, kw_only=True)
class HoldSpread:
    """Which jobs a hold is over, as far as the mirror knows."""

    jobs: int
    """Those with its labels that fire, but for it."""

    held: int
    """Those that carry it."""

    job_ids: tuple[str, ...]
    """The first of those with its labels, by id."""


@dataclass(frozen=True)
class Untold:
    """A job that is not as a hold says."""

    job_id: str
    is_to_be_held: bool
    """Else it is to be released."""


class HoldStore:
    """Reads and writes through one engine. Raises ``Unavailable`` when the database does not answer."""

    def __init__(self, engine: AsyncEngine, *, limit: timedelta = timedelta(seconds=5)) -> None:
        self._engine = engine
        self._deadline = Deadline(limit)

    async def close(self) -> None:
        """Wait for work that ran out of time. The engine is the caller's."""
        await self._deadline.close()

    async def find(self, tenant: str, hold_id: str) -> StoredHold | None:
        """Find a hold."""
        found = await self._rows(select(HOLDS).where(*_is(tenant, hold_id)))
        return _hold_from(found[0]) if found else None

    async def list_in_force(self, tenant: str | None = None, *, now: datetime) -> list[StoredHold]:
        """List the holds that are in force, of one tenant or of all; the oldest first."""
        mine = () if tenant is None else (HOLDS.c.tenant == storable(tenant),)
        query = select(HOLDS).where(*mine, _in_force(now)).order_by(HOLDS.c.created_at, HOLDS.c.hold_id)
        return [_hold_from(row) for row in await self._rows(query)]

    async def holds_over(self, tenant: str, labels: dict[str, str], *, now: datetime) -> tuple[Hold, ...]:
        """List the holds in force over a job with these labels."""
        in_force = await self.list_in_force(tenant, now=now)
        return tuple(each.hold for each in in_force if chooses(each.selector, labels))

    async def list_holds(
        self, tenant: str, *, in_force: bool | None, now: datetime, cursor: str | None = None, limit: int = 50
    ) -> Page[StoredHold]:
        """List holds, the newest first: those in force, those that are over, or with ``None`` all. Raises ``InvalidCursor``."""
        listing = fingerprint("holds", tenant, in_force)
        at = decode_cursor(cursor, listing=listing, key_length=2) if cursor is not None else None
        backwards = at is not None and at.backwards
        query = select(HOLDS).where(HOLDS.c.tenant == storable(tenant))
        if in_force is not None:
            query = query.where(_in_force(now) if in_force else not_(_in_force(now)))
        if at is not None:
            here = tuple_(HOLDS.c.created_at, HOLDS.c.hold_id)
            there = tuple_(literal(moment_in(at.key[0]), UtcDateTime), literal(at.key[1], KEY))
            query = query.where(here > there if backwards else here < there)
        keys = (HOLDS.c.created_at, HOLDS.c.hold_id)
        query = query.order_by(*(keys if backwards else (key.desc() for key in keys)))
        size = page_size(limit)
        found = [_hold_from(row) for row in await self._rows(query.limit(size + 1))]
        return make_page(found, size=size, at=at, listing=listing, key_of=_key_of)

    async def add(self, stored: StoredHold) -> StoredHold:
        """Write a new hold; answers what is there then: of a repeated request, the hold that it made before."""
        return await self._deadline.ask(self._add(stored))

    async def release(
        self, tenant: str, hold_id: str, *, catch_up: PausedFires | None, now: datetime
    ) -> StoredHold | None:
        """Note that a hold is released; one that is over stays as it is. ``None`` where there is none."""
        changes: dict[str, Any] = {"released_at": now} | ({} if catch_up is None else {"catch_up": catch_up.value})
        statement = update(HOLDS).where(*_is(tenant, hold_id), _in_force(now)).values(changes)

        async def write() -> None:
            async with writing(self._engine) as connection:
                await connection.execute(statement)

        await self._deadline.ask(write())
        return await self.find(tenant, hold_id)

    async def find_spread(self, stored: StoredHold) -> HoldSpread:
        """Say which jobs a hold is over, and how many carry it."""
        chosen = self._chosen(stored)
        [counted] = await self._rows(select(func.count()).select_from(JOBS).where(*chosen))
        carrying = (JOBS.c.tenant == storable(stored.tenant), _IS_FIRING, self._carries(stored.hold.hold_id))
        [held] = await self._rows(select(func.count()).select_from(JOBS).where(*carrying))
        query = select(JOBS.c.job_id).where(*chosen).order_by(JOBS.c.job_id).limit(JOBS_NAMED)
        ids = tuple(str(row.job_id) for row in await self._rows(query))
        return HoldSpread(jobs=int(counted[0]), held=int(held[0]), job_ids=ids)

    async def find_untold(self, stored: StoredHold, *, now: datetime, after: str = "", limit: int) -> list[Untold]:
        """List jobs that are not as a hold says, by id, from the one with ``after`` on."""
        carries = self._carries(stored.hold.hold_id)
        query = (
            select(JOBS.c.job_id, carries.label("carries"))
            .where(*self._untold(stored, now=now), JOBS.c.job_id > after)
            .order_by(JOBS.c.job_id)
        )
        return [Untold(str(row.job_id), not row.carries) for row in await self._rows(query.limit(limit))]

    async def count_untold(self, stored: StoredHold, *, now: datetime) -> int:
        """Count the jobs that ``find_untold`` lists."""
        query = select(func.count()).select_from(JOBS).where(*self._untold(stored, now=now))
        [row] = await self._rows(query)
        return int(row[0])

    async def list_unfinished(self, *, now: datetime, released_after: datetime) -> list[StoredHold]:
        """List the holds of all tenants of which jobs may still have to be told: in force, or released since a moment."""
        query = select(HOLDS).where(or_(_in_force(now), HOLDS.c.released_at > released_after))
        return [_hold_from(row) for row in await self._rows(query)]

    async def list_carried(self) -> list[StoredHold]:
        """List the holds of all tenants that were released, whenever, and that jobs carry all the same."""
        query = select(HOLDS).where(HOLDS.c.released_at.is_not(None), self._is_carried())
        return [_hold_from(row) for row in await self._rows(query)]

    async def prune(self, *, before: datetime) -> int:
        """Forget holds that were over by then, but for those that jobs carry still; answers how many."""
        is_old = or_(HOLDS.c.released_at < before, HOLDS.c.until < before)
        was_over = and_(is_old, not_(self._is_carried()))

        async def forget() -> int:
            async with writing(self._engine) as connection:
                return int((await connection.execute(delete(HOLDS).where(was_over))).rowcount)

        return await self._deadline.ask(forget())

    async def _add(self, stored: StoredHold) -> StoredHold:
        insert: postgresql.Insert | sqlite.Insert
        is_postgresql = self._engine.dialect.name == POSTGRESQL
        insert = postgresql.insert(HOLDS) if is_postgresql else sqlite.insert(HOLDS)
        async with writing(self._engine) as connection:
            await connection.execute(insert.values(_row_of(stored)).on_conflict_do_nothing())
            query = select(HOLDS).where(*_is(stored.tenant, stored.hold.hold_id))
            return _hold_from((await connection.execute(query)).one())

    async def _rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        async def read() -> Sequence[Row[Any]]:
            async with reading(self._engine) as connection:
                found: Sequence[Row[Any]] = (await connection.execute(query)).all()
                return found

        return await self._deadline.ask(read())

    def _chosen(self, stored: StoredHold) -> tuple[ColumnElement[bool], ...]:
        labels = have_labels(stored.selector, dialect=self._engine.dialect.name)
        return (JOBS.c.tenant == storable(stored.tenant), _IS_FIRING, *labels)

    def _untold(self, stored: StoredHold, *, now: datetime) -> tuple[ColumnElement[bool], ...]:
        """Say that a job lacks a hold over it, or carries one that is not. What ends by itself needs nobody to be told."""
        mine = (JOBS.c.tenant == storable(stored.tenant), _IS_FIRING)
        if stored.is_expired(now=now):
            return (false(),)
        carries = self._carries(stored.hold.hold_id)
        if stored.released_at is not None:
            return (*mine, carries)
        labels = have_labels(stored.selector, dialect=self._engine.dialect.name)
        is_over = and_(*labels) if labels else true()
        return (*mine, or_(and_(is_over, not_(carries)), and_(not_(is_over), carries)))

    def _is_carried(self) -> ColumnElement[bool]:
        """Say that a hold is carried by any job that fires, but for it."""
        if self._engine.dialect.name == POSTGRESQL:
            each = func.jsonb_object_keys(type_coerce(JOBS.c.holds, JSONB)).table_valued("key").render_derived()
        else:
            each = func.json_each(JOBS.c.holds).table_valued("key")
        carried = select(JOBS.c.tenant, each.c.key).select_from(JOBS).join(each, true())
        carried = carried.where(JOBS.c.holds.is_not(None), _IS_FIRING)
        return tuple_(HOLDS.c.tenant, HOLDS.c.hold_id).in_(carried)

    def _carries(self, hold_id: str) -> ColumnElement[bool]:
        if self._engine.dialect.name == POSTGRESQL:
            return and_(JOBS.c.holds.is_not(None), type_coerce(JOBS.c.holds, JSONB).has_key(storable(hold_id)))
        each = func.json_each(JOBS.c.holds).table_valued("key", "value")
        is_it = exists(select(literal(1)).select_from(each).where(each.c.key == storable(hold_id)))
        return and_(JOBS.c.holds.is_not(None), is_it)


def _in_force(now: datetime) -> ColumnElement[bool]:
    return and_(HOLDS.c.released_at.is_(None), or_(HOLDS.c.until.is_(None), HOLDS.c.until > now))


def _is(tenant: str, hold_id: str) -> tuple[ColumnElement[bool], ...]:
    return HOLDS.c.tenant == storable(tenant), HOLDS.c.hold_id == storable(hold_id)


def _key_of(stored: StoredHold) -> tuple[str, ...]:
    return stored.hold.at.isoformat(), stored.hold.hold_id


def _row_of(stored: StoredHold) -> dict[str, Any]:
    hold = stored.hold
    return {
        "tenant": storable(stored.tenant),
        "hold_id": hold.hold_id,
        "selector": {storable(name): storable(value) for name, value in stored.selector.items()},
        "reason": storable(hold.reason),
        "held_by": storable(hold.by),
        "created_at": hold.at,
        "until": hold.until,
        "catch_up": hold.catch_up.value,
        "released_at": stored.released_at,
    }


def _hold_from(row: Row[Any]) -> StoredHold:
    return StoredHold(
        tenant=row.tenant,
        hold=Hold(
            hold_id=row.hold_id,
            at=row.created_at,
            reason=row.reason,
            by=row.held_by,
            until=row.until,
            catch_up=PausedFires(row.catch_up),
        ),
        selector=row.selector,
        released_at=row.released_at,
    )
