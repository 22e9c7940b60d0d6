"""Lists of holds: each is a few counts in the database, and a list has many."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from activities.hold_store import HoldSpread, StoredHold
from activities.page import Page
from api import hold_service
from api.hold_service import DESCRIBED_AT_ONCE, HOLDS_LIMIT, HoldService
from tests.records import NOON
from workflows.error import Unavailable
from workflows.job import Hold


class Store:
    """Has a full page of holds, the jobs of which take a while to be counted."""

    def __init__(self, *, takes: timedelta) -> None:
        self.most_at_once = 0
        self._takes = takes
        self._at_once = 0

    async def list_holds(self, tenant: str, **_: Any) -> Page[StoredHold]:
        """All of them."""
        holds = (Hold(hold_id=f"h_{number}", at=NOON) for number in range(HOLDS_LIMIT))
        return Page(tuple(StoredHold(tenant=tenant, hold=hold) for hold in holds), next="more")

    async def find_spread(self, stored: StoredHold) -> HoldSpread:
        """Count, and note how many do."""
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await asyncio.sleep(self._takes.total_seconds())
        self._at_once -= 1
        return HoldSpread(jobs=1, held=1, job_ids=(f"job of {stored.hold.hold_id}",))


async def list_with(store: Store) -> Page[Any]:
    """List the holds of a tenant."""
    service = HoldService(store=store, jobs=None, control=None, audit=None)  # type: ignore[arg-type]
    return await service.list_holds(in_force=None, tenant="t", cursor=None, limit=HOLDS_LIMIT)


async def test_jobs_of_a_few_holds_are_counted_at_once() -> None:
    """In time, and with connections left for others; and each hold has its own, in its place."""
    store = Store(takes=timedelta(milliseconds=1))
    page = await list_with(store)
    assert store.most_at_once == DESCRIBED_AT_ONCE
    assert [each.job_ids for each in page.items] == [[f"job of h_{number}"] for number in range(HOLDS_LIMIT)]
    assert page.next == "more"


async def test_a_list_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked is told to ask for fewer, while they wait still."""
    monkeypatch.setattr(hold_service, "LIST_PATIENCE", timedelta(milliseconds=20))
    with pytest.raises(Unavailable, match="fewer"):
        await list_with(Store(takes=timedelta(seconds=30)))
