"""What the hold routes promise: jobs are held and released by their labels, those that come later included.

The store is written first, and then a workflow tells the jobs; whoever asked waits a little for that. Where an API dies in
between, or a job slipped through while it was registered, the next look of any API finds the jobs and has them told.
"""

import asyncio
import base64
import hashlib
import itertools
import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from pydantic import JsonValue

from activities.hold_control import HoldControl
from activities.hold_store import HoldStore, StoredHold
from activities.page import Page
from activities.trouble import Trouble
from api.audit import Audit
from api.hold_body import HoldAnswer, describe_hold, hold_of, read_hold, read_release
from api.registration import new_command_key
from api.service import JobService
from workflows.error import Conflict, NotFound, Unavailable

logger = logging.getLogger(__name__)

HOLDS_LIMIT: Final = 100
"""In force at once, of one tenant: each job carries those over it."""

PATIENCE: Final = timedelta(seconds=3)
"""For jobs to be told, by whom somebody waits."""

LIST_PATIENCE: Final = timedelta(seconds=10)
"""For a list: each hold on it is a few counts among the tenant's jobs."""

DESCRIBED_AT_ONCE: Final = 4
"""Holds on a list, of the ten connections that this process has."""

LOOK_AGAIN: Final = timedelta(milliseconds=100)

LOOK_EVERY: Final = timedelta(seconds=20)

UNFINISHED_FOR: Final = timedelta(days=1)
"""Since its release, a hold is looked for among jobs at each look: some may have been away."""

LOOKS_A_LONG_ONE: Final = 15
"""Every so many, all holds are looked for that were ever released: a job that was away for days may be there again."""

HOLD_ID_PREFIX: Final = "h_"


class HoldService:
    """Holds, on behalf of one tenant a call."""

    def __init__(self, *, jobs: JobService, store: HoldStore, control: HoldControl, audit: Audit) -> None:
        self._jobs = jobs
        self._store = store
        self._control = control
        self._audit = audit
        self._trouble = Trouble(logger)

    async def create_hold(self, body: JsonValue, *, tenant: str, key: str | None) -> HoldAnswer:
        """Hold jobs by their labels, or with ``dry_run`` only say which. Repeated with its key, it is the same hold.

        Raises:
            InvalidRequest: the body is wrong.
            InvalidSchedule: its time is.
            Conflict: the tenant has very many holds.
            Unavailable: the hold may be in force all the same.
        """
        now = datetime.now(UTC)
        asked = read_hold(body)
        wanted = hold_of(asked, tenant=tenant, hold_id=new_hold_id(tenant=tenant, key=key), now=now)
        if asked.dry_run:
            return describe_hold(wanted, await self._store.find_spread(wanted), now=now, is_dry_run=True)
        await self._jobs.require_temporal()
        hold_id = wanted.hold.hold_id
        in_force = await self._store.list_in_force(tenant, now=now)
        if len(in_force) >= HOLDS_LIMIT and all(each.hold.hold_id != hold_id for each in in_force):
            raise Conflict(f"{HOLDS_LIMIT} holds are in force; release one first")
        async with self._audit.recording("hold.create", tenant=tenant, subject=hold_id) as note:
            stored = await self._store.add(wanted)
            note.after = _facts(stored)
            await self._control.spread(hold_id, tenant=tenant)
        return await self._when_told(stored)

    async def release_hold(self, hold_id: str, body: JsonValue, *, tenant: str) -> HoldAnswer:
        """End a hold before it ends by itself; one that is over stays as it is, but jobs that carry it are told again.

        Raises:
            InvalidRequest: the body is wrong.
            NotFound: there is no such hold.
            Unavailable: it may be released all the same.
        """
        catch_up = read_release(body)
        await self._jobs.require_temporal()
        now = datetime.now(UTC)
        found = await self._find(hold_id, tenant=tenant)
        if found.is_in_force(now=now):
            before = _facts(found)
            async with self._audit.recording("hold.release", tenant=tenant, subject=hold_id, before=before) as note:
                found = await self._store.release(tenant, hold_id, catch_up=catch_up, now=now) or found
                note.after = _facts(found)
                await self._control.spread(hold_id, tenant=tenant)
        elif await self._store.count_untold(found, now=now):
            await self._control.spread(hold_id, tenant=tenant)
        return await self._when_told(found)

    async def get_hold(self, hold_id: str, *, tenant: str) -> HoldAnswer:
        """Read a hold, one that is over too. Raises ``NotFound``."""
        return await self._describe(await self._find(hold_id, tenant=tenant))

    async def list_holds(
        self, *, in_force: bool | None, tenant: str, cursor: str | None, limit: int
    ) -> Page[HoldAnswer]:
        """List holds, the newest first. Raises ``InvalidCursor``, and ``Unavailable`` where it takes too long."""
        now = datetime.now(UTC)
        page = await self._store.list_holds(tenant, in_force=in_force, now=now, cursor=cursor, limit=limit)
        try:
            async with asyncio.timeout(LIST_PATIENCE.total_seconds()):
                answers = await self._describe_all(page.items)
        except TimeoutError as error:
            raise Unavailable(
                "the jobs of so many holds cannot be counted in time; ask for fewer with limit"
            ) from error
        return Page(tuple(answers), next=page.next, previous=page.previous)

    async def tell_jobs_for_ever(self) -> None:
        """Look again and again for jobs that are not as the holds say, and have them told."""
        for number in itertools.count():
            await asyncio.sleep(LOOK_EVERY.total_seconds())
            with self._trouble.survived("jobs cannot be told of holds now"):
                await self._look(is_long=number % LOOKS_A_LONG_ONE == 0)

    async def _look(self, *, is_long: bool) -> None:
        now = datetime.now(UTC)
        found = await self._store.list_unfinished(now=now, released_after=now - UNFINISHED_FOR)
        if is_long:
            found += [stored for stored in await self._store.list_carried() if stored not in found]
        for stored in found:
            tenant, hold_id = stored.tenant, stored.hold.hold_id
            with self._trouble.survived("jobs cannot be told of a hold now", tenant=tenant, hold_id=hold_id):
                if await self._store.count_untold(stored, now=now):
                    await self._control.spread(hold_id, tenant=tenant)

    async def _when_told(self, stored: StoredHold) -> HoldAnswer:
        """Answer when all jobs have been told, or there was no more time for it."""
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                while await self._store.count_untold(stored, now=datetime.now(UTC)):  # noqa: ASYNC110 (the mirror sets no event)
                    await asyncio.sleep(LOOK_AGAIN.total_seconds())
        except TimeoutError:
            about = {"tenant": stored.tenant, "hold_id": stored.hold.hold_id}
            logger.info("jobs are still told of a hold", extra=about)
        return await self._describe(stored)

    async def _describe_all(self, holds: Iterable[StoredHold]) -> list[HoldAnswer]:
        """Describe holds, in their order."""
        free = asyncio.Semaphore(DESCRIBED_AT_ONCE)

        async def describe(stored: StoredHold) -> HoldAnswer:
            async with free:
                return await self._describe(stored)

        described = [asyncio.create_task(describe(stored)) for stored in holds]
        try:
            return await asyncio.gather(*described)
        finally:
            # Those that are left when one has failed.
            for each in described:
                each.cancel()

    async def _describe(self, stored: StoredHold) -> HoldAnswer:
        return describe_hold(stored, await self._store.find_spread(stored), now=datetime.now(UTC))

    async def _find(self, hold_id: str, *, tenant: str) -> StoredHold:
        stored = await self._store.find(tenant, hold_id)
        if stored is None:
            raise NotFound("there is no such hold, or it was over long ago")
        return stored


def new_hold_id(*, tenant: str, key: str | None) -> str:
    """Make an id. From an idempotency key it is always the same."""
    seed = f"hold\0{tenant}\0{key or new_command_key()}"
    return HOLD_ID_PREFIX + base64.b32encode(hashlib.sha256(seed.encode()).digest()[:10]).decode().lower()


def _facts(stored: StoredHold) -> JsonValue:
    """What the audit log keeps of a hold."""
    released_at = None if stored.released_at is None else stored.released_at.isoformat()
    return {**stored.hold.model_dump(mode="json"), "selector": {**stored.selector}, "released_at": released_at}
