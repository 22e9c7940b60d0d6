"""What the routes of downstreams promise: how each stands, and a breaker that an operator closes."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from activities.downstream_control import DownstreamControl
from activities.downstream_store import DownstreamStore, KnownDownstream
from activities.page import Page
from api.audit import Audit
from api.downstream_answer import DownstreamAnswer, describe_downstream
from api.service import JobService
from workflows.downstream import BreakerLook
from workflows.error import NotFound, Unavailable

AT_ONCE: Final = 20
"""Breakers asked about at the same time."""

LOOK_WITHIN: Final = timedelta(seconds=2)
"""For the breakers of a page; then what schedulers have said is told instead."""


class DownstreamService:
    """Everything that the API does with downstreams, on behalf of one tenant a call."""

    def __init__(self, *, jobs: JobService, store: DownstreamStore, control: DownstreamControl, audit: Audit) -> None:
        self._jobs = jobs
        self._store = store
        self._control = control
        self._audit = audit

    async def list_downstreams(self, *, tenant: str, cursor: str | None, limit: int) -> Page[DownstreamAnswer]:
        """List what the jobs of a tenant call, by name. Raises ``InvalidCursor`` and ``Unavailable``."""
        page = await self._store.list(tenant, cursor=cursor, limit=limit, now=datetime.now(UTC))
        answers = await self._describe(page.items, tenant=tenant)
        return Page(tuple(answers), next=page.next, previous=page.previous)

    async def get_downstream(self, name: str, *, tenant: str) -> DownstreamAnswer:
        """Say how one stands. Raises ``NotFound`` where nothing calls it, and ``Unavailable``."""
        known = await self._store.get(tenant, name, now=datetime.now(UTC))
        [answer] = await self._describe([known], tenant=tenant)
        if not known.jobs and not known.reports and answer.open_until is None:
            raise NotFound("no job calls such a downstream")
        return answer

    async def reset(self, name: str, *, tenant: str) -> DownstreamAnswer:
        """Close the breaker of one; a closed one stays closed.

        Raises:
            NotFound: nothing calls it.
            Unavailable: Temporal or its workers do not answer; the breaker may be closed all the same.
        """
        await self._jobs.require_temporal()
        await self.get_downstream(name, tenant=tenant)
        async with self._audit.recording("downstream.reset", tenant=tenant, subject=name):
            await self._control.reset(name, tenant=tenant)
        known = await self._store.get(tenant, name, now=datetime.now(UTC))
        [answer] = await self._describe([known], tenant=tenant)
        return answer

    async def _describe(self, known: Sequence[KnownDownstream], *, tenant: str) -> list[DownstreamAnswer]:
        looks = await self._look_at([each.downstream for each in known], tenant=tenant)
        now = datetime.now(UTC)
        if looks is None:
            return [describe_downstream(each, None, is_stale=True, now=now) for each in known]
        return [
            describe_downstream(each, look, is_stale=False, now=now) for each, look in zip(known, looks, strict=True)
        ]

    async def _look_at(self, names: list[str], *, tenant: str) -> list[BreakerLook | None] | None:
        """Look at breakers; ``None`` where Temporal does not tell of all of them."""
        if await self._jobs.is_stale():
            return None
        free = asyncio.Semaphore(AT_ONCE)

        async def look(name: str) -> BreakerLook | None:
            async with free:
                return await self._control.look_at(name, tenant=tenant)

        try:
            async with asyncio.timeout(LOOK_WITHIN.total_seconds()):
                return await asyncio.gather(*(look(name) for name in names))
        except (TimeoutError, Unavailable):
            return None
