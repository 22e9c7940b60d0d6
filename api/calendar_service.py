"""What the calendar routes promise: calendars written, read, and deleted where no job uses them."""

from datetime import UTC, datetime
from functools import partial
from typing import Final

from anyio import to_thread
from pydantic import JsonValue

from activities.calendar_store import CalendarStore
from api.audit import Audit
from api.calendar_body import CalendarAnswer, CalendarSummary, describe_calendar, read_calendar, summarise_calendar
from workflows.calendar import Calendar
from workflows.error import Conflict, NotFound

CALENDARS_LIMIT: Final = 1_000
"""Of one tenant: a list of them is one answer."""


class CalendarService:
    """Calendars, on behalf of one tenant a call."""

    def __init__(self, *, store: CalendarStore, audit: Audit) -> None:
        self._store = store
        self._audit = audit

    async def write_calendar(self, name: str, body: JsonValue, *, tenant: str) -> tuple[CalendarAnswer, bool]:
        """Create or replace a calendar; says whether it is new.

        Raises:
            InvalidRequest: the body is wrong.
            Conflict: the tenant has very many.
            Unavailable: it may be written all the same.
        """
        now = datetime.now(UTC)
        asked = await to_thread.run_sync(partial(read_calendar, name, body, now=now))
        found = await self._store.find(tenant, name)
        if found is None and await self._store.count(tenant) >= CALENDARS_LIMIT:
            raise Conflict(f"there are {CALENDARS_LIMIT} calendars; delete one first")
        if found is not None and found.is_same(asked):
            return await self._describe(found, tenant=tenant), False
        facts = None if found is None else _facts(found)
        async with self._audit.recording("calendar.write", tenant=tenant, subject=name, before=facts) as note:
            written, before = await self._store.write(tenant, asked)
            note.after = _facts(written)
        return await self._describe(written, tenant=tenant), before is None

    async def get_calendar(self, name: str, *, tenant: str) -> CalendarAnswer:
        """Read a calendar. Raises ``NotFound``."""
        return await self._describe(await self._find(name, tenant=tenant), tenant=tenant)

    async def list_calendars(self, *, tenant: str) -> list[CalendarSummary]:
        """List all calendars by name."""
        return [summarise_calendar(calendar) for calendar in await self._store.find_all(tenant)]

    async def delete_calendar(self, name: str, *, tenant: str) -> CalendarAnswer:
        """Delete a calendar.

        Raises:
            NotFound: there is none.
            Conflict: jobs use it.
        """
        calendar = await self._find(name, tenant=tenant)
        use = await self._store.find_use(tenant, name)
        if use.count:
            named = ", ".join(use.job_ids[:5]) + (", ..." if use.count > 5 else "")
            raise Conflict(f"used by {use.count} job{'s' if use.count > 1 else ''}: {named}")
        async with self._audit.recording("calendar.delete", tenant=tenant, subject=name, before=_facts(calendar)):
            await self._store.delete(tenant, name)
        return describe_calendar(calendar, use)

    async def _find(self, name: str, *, tenant: str) -> Calendar:
        calendar = await self._store.find(tenant, name)
        if calendar is None:
            raise NotFound("there is no such calendar")
        return calendar

    async def _describe(self, calendar: Calendar, *, tenant: str) -> CalendarAnswer:
        return describe_calendar(calendar, await self._store.find_use(tenant, calendar.name))


def _facts(calendar: Calendar) -> JsonValue:
    """What the audit log keeps of a calendar."""
    return {"version": calendar.version, "definition": calendar.definition}
