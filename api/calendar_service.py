"""What the calendar routes promise: calendars written, read, and deleted where no job uses them.

Whoever writes a calendar tells the jobs that use it, as many as there is time for. The others, and those of an API that died
in between, are found by the version that they carry and told by whichever API looks next.
"""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from anyio import to_thread
from pydantic import JsonValue

from activities.calendar_store import CalendarStore
from activities.trouble import Trouble
from api.audit import Audit
from api.calendar_body import CalendarAnswer, CalendarSummary, describe_calendar, read_calendar, summarise_calendar
from api.change_service import ChangeService
from workflows.calendar import Calendar
from workflows.error import Conflict, NotFound

logger = logging.getLogger(__name__)

TOLD_AT_ONCE: Final = 8
"""Jobs: each is a few calls of the database and one of Temporal."""

PATIENCE: Final = timedelta(seconds=3)
"""For whom writes a calendar: longer is left to the next look."""

LOOK_EVERY: Final = timedelta(seconds=20)

_BATCH: Final = 200

CALENDARS_LIMIT: Final = 1_000
"""Of one tenant: a list of them is one answer."""


class CalendarService:
    """Calendars, on behalf of one tenant a call."""

    def __init__(self, *, store: CalendarStore, changes: ChangeService, audit: Audit) -> None:
        self._store = store
        self._changes = changes
        self._audit = audit
        self._trouble = Trouble(logger)

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
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                await self._tell_jobs(tenant, name, written.version)
        except TimeoutError:
            logger.info("jobs are still told of a calendar", extra={"tenant": tenant, "calendar": name})
        return await self._describe(written, tenant=tenant), before is None

    async def tell_jobs_for_ever(self) -> None:
        """Look again and again for jobs that carry other days than their calendars have now."""
        while True:
            await asyncio.sleep(LOOK_EVERY.total_seconds())
            with self._trouble.survived("jobs cannot be told of calendars now"):
                for tenant, name, version in await self._store.list_versions():
                    with self._trouble.survived("jobs cannot be told of a calendar now", tenant=tenant, calendar=name):
                        await self._tell_jobs(tenant, name, version)

    async def _tell_jobs(self, tenant: str, name: str, version: int) -> None:
        after = ""
        while behind := await self._store.find_outdated(tenant, name, version, after=after, limit=_BATCH):
            for start in range(0, len(behind), TOLD_AT_ONCE):
                told = behind[start : start + TOLD_AT_ONCE]
                await asyncio.gather(*(self._tell_job(tenant, name, job_id) for job_id in told))
            after = behind[-1]

    async def _tell_job(self, tenant: str, name: str, job_id: str) -> None:
        about = {"tenant": tenant, "calendar": name, "job_id": job_id}
        # The next look finds the job again.
        with self._trouble.survived("a job cannot be told of a calendar now", **about):
            if not await self._changes.renew_calendars(job_id, tenant=tenant):
                logger.warning("with its new days a job would never fire; it keeps the old ones", extra=about)

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
        use = await self._store.find_use(tenant, calendar.name)
        behind = await self._store.count_outdated(tenant, calendar.name, calendar.version) if use.count else 0
        return describe_calendar(calendar, use, behind=behind)


def _facts(calendar: Calendar) -> JsonValue:
    """What the audit log keeps of a calendar."""
    return {"version": calendar.version, "definition": calendar.definition}
