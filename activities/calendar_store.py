"""Calendars of tenants, and which jobs carry them.

Part of the store: the truth about a calendar is found nowhere else. Jobs do not ask for it when they fire: the days of a
calendar are in their definitions, with the version that they were taken from, so that those with an older one are found.
"""

from collections.abc import Collection, Sequence
from datetime import date, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, and_, delete, exists, func, literal, select, type_coerce
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.database import POSTGRESQL, reading, writing
from activities.deadline import Deadline
from activities.mirror_row import storable
from activities.tables import CALENDARS, JOBS
from workflows.calendar import Calendar, CalendarEntry, CalendarUse
from workflows.job import Lifecycle

USERS_NAMED: Final = 100
"""Jobs that are told by name when somebody asks who uses a calendar."""


_IS_FIRING = JOBS.c.state.in_((Lifecycle.ACTIVE, Lifecycle.PAUSED))


class CalendarStore:
    """Reads and writes through one engine. Raises ``Unavailable`` when the database does not answer."""

    def __init__(self, engine: AsyncEngine, *, limit: timedelta = timedelta(seconds=5)) -> None:
        self._engine = engine
        self._deadline = Deadline(limit)

    async def close(self) -> None:
        """Wait for work that ran out of time. The engine is the caller's."""
        await self._deadline.close()

    async def find(self, tenant: str, name: str) -> Calendar | None:
        """Find a calendar."""
        found = await self._rows(select(CALENDARS).where(*_named(tenant, name)))
        return _calendar_from(found[0]) if found else None

    async def find_all(self, tenant: str, names: Collection[str] | None = None) -> list[Calendar]:
        """Find those of some names that there are, or all of a tenant, by name."""
        query = select(CALENDARS).where(CALENDARS.c.tenant == storable(tenant)).order_by(CALENDARS.c.name)
        if names is not None:
            query = query.where(CALENDARS.c.name.in_([storable(name) for name in names]))
        return [_calendar_from(row) for row in await self._rows(query)]

    async def list_versions(self) -> list[tuple[str, str, int]]:
        """List tenant, name and version of all calendars there are."""
        rows = await self._rows(select(CALENDARS.c.tenant, CALENDARS.c.name, CALENDARS.c.version))
        return [(str(row.tenant), str(row.name), int(row.version)) for row in rows]

    async def count(self, tenant: str) -> int:
        """Count the calendars of a tenant."""
        [row] = await self._rows(select(func.count()).where(CALENDARS.c.tenant == storable(tenant)))
        return int(row[0])

    async def write(self, tenant: str, calendar: Calendar) -> tuple[Calendar, Calendar | None]:
        """Create or replace a calendar; say what is there now, and what was before. One that is the same is left alone.

        The version is found here: later than any that the calendar had.
        """
        return await self._deadline.ask(self._write(tenant, calendar))

    async def delete(self, tenant: str, name: str) -> bool:
        """Delete a calendar. False when there is none."""
        return await self._deadline.ask(self._delete(tenant, name))

    async def find_use(self, tenant: str, name: str) -> CalendarUse:
        """Say which jobs carry a calendar."""
        conditions = (*self._carrying(tenant, name), _IS_FIRING)
        [counted] = await self._rows(select(func.count()).select_from(JOBS).where(*conditions))
        query = select(JOBS.c.job_id).where(*conditions).order_by(JOBS.c.job_id).limit(USERS_NAMED)
        ids = tuple(str(row.job_id) for row in await self._rows(query))
        return CalendarUse(count=int(counted[0]), job_ids=ids)

    async def find_outdated(self, tenant: str, name: str, version: int, *, after: str = "", limit: int) -> list[str]:
        """List jobs that are to fire and carry another version of a calendar, by id, from the one with ``after`` on."""
        conditions = (*self._carrying(tenant, name, other_than=version), _IS_FIRING, JOBS.c.job_id > after)
        query = select(JOBS.c.job_id).where(*conditions).order_by(JOBS.c.job_id).limit(limit)
        return [str(row.job_id) for row in await self._rows(query)]

    async def count_outdated(self, tenant: str, name: str, version: int) -> int:
        """Count the jobs that ``find_outdated`` lists."""
        conditions = (*self._carrying(tenant, name, other_than=version), _IS_FIRING)
        [row] = await self._rows(select(func.count()).select_from(JOBS).where(*conditions))
        return int(row[0])

    async def _write(self, tenant: str, calendar: Calendar) -> tuple[Calendar, Calendar | None]:
        async with writing(self._engine) as connection:
            query = select(CALENDARS).where(*_named(tenant, calendar.name))
            row = (await connection.execute(query.with_for_update())).first()
            before = None if row is None else _calendar_from(row)
            if before is not None and before.is_same(calendar):
                return before, before
            microseconds = int(calendar.updated_at.timestamp() * 1_000_000)
            written = Calendar(
                name=storable(calendar.name),
                definition=calendar.definition,
                entries=calendar.entries,
                weekend=calendar.weekend,
                version=max(microseconds, 0 if before is None else before.version + 1),
                created_at=calendar.created_at if before is None else before.created_at,
                updated_at=calendar.updated_at,
            )
            await connection.execute(_upsert(tenant, written, dialect=self._engine.dialect.name))
            return written, before

    async def _delete(self, tenant: str, name: str) -> bool:
        async with writing(self._engine) as connection:
            return int((await connection.execute(delete(CALENDARS).where(*_named(tenant, name)))).rowcount) == 1

    async def _rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        async def read() -> Sequence[Row[Any]]:
            async with reading(self._engine) as connection:
                found: Sequence[Row[Any]] = (await connection.execute(query)).all()
                return found

        return await self._deadline.ask(read())

    def _carrying(self, tenant: str, name: str, *, other_than: int | None = None) -> tuple[ColumnElement[bool], ...]:
        name = storable(name)
        mine = (JOBS.c.tenant == storable(tenant), JOBS.c.calendars.is_not(None))
        if self._engine.dialect.name == POSTGRESQL:
            carried = type_coerce(JOBS.c.calendars, JSONB)
            other = () if other_than is None else (~carried.contains({name: other_than}),)
            return (*mine, carried.has_key(name), *other)
        each = func.json_each(JOBS.c.calendars).table_valued("key", "value")
        is_it = and_(each.c.key == name, *(() if other_than is None else (each.c.value != other_than,)))
        return (*mine, exists(select(literal(1)).select_from(each).where(is_it)))


def _upsert(tenant: str, calendar: Calendar, *, dialect: str) -> postgresql.Insert | sqlite.Insert:
    insert: postgresql.Insert | sqlite.Insert
    insert = postgresql.insert(CALENDARS) if dialect == POSTGRESQL else sqlite.insert(CALENDARS)
    written = {
        "version": calendar.version,
        "definition": calendar.definition,
        "days": [[entry.first.isoformat(), entry.last.isoformat(), entry.name] for entry in calendar.entries],
        "weekend": list(calendar.weekend),
        "updated_at": calendar.updated_at,
    }
    identity = {"tenant": storable(tenant), "name": calendar.name}
    return insert.values({**identity, **written, "created_at": calendar.created_at}).on_conflict_do_update(
        index_elements=list(identity), set_=written
    )


def _calendar_from(row: Row[Any]) -> Calendar:
    return Calendar(
        name=row.name,
        definition=row.definition,
        entries=tuple(
            CalendarEntry(first=date.fromisoformat(first), last=date.fromisoformat(last), name=name)
            for first, last, name in row.days
        ),
        weekend=tuple(row.weekend),
        version=row.version,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _named(tenant: str, name: str) -> tuple[ColumnElement[bool], ...]:
    return CALENDARS.c.tenant == storable(tenant), CALENDARS.c.name == storable(name)
