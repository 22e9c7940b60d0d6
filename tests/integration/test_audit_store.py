"""The audit log, on both databases."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from activities.audit_store import AuditEntry, AuditFilter, AuditOutcome, AuditStore, new_entry_id
from activities.database import open_database
from activities.page import Page
from workflows.error import InvalidCursor

NOON = datetime(2026, 6, 8, 12, tzinfo=UTC)


@pytest.fixture
async def log(database_url: str) -> AsyncIterator[AuditStore]:
    """An empty one."""
    engine = open_database(database_url)
    yield AuditStore(engine)
    await engine.dispose()


def entry_at(minute: int, **fields: object) -> AuditEntry:
    """A change at some minute after noon."""
    at = NOON + timedelta(minutes=minute)
    given = {"tenant": "default", "request_id": "r", "actor": "k1", "action": "job.create", "job_id": "a"} | fields
    return AuditEntry(entry_id=new_entry_id(at), at=at, **given)  # type: ignore[arg-type]


async def test_a_change_is_there_before_it_is_made_and_is_told_its_outcome(log: AuditStore) -> None:
    """Any JSON and any text read back as they were."""
    entry = entry_at(0, before={"payload": "\x00 é \ud800", "n": 1.0}, actor_name="CI")
    await log.begin(entry)
    [found] = (await log.list_entries("default", AuditFilter())).items
    assert found == entry
    assert found.outcome is AuditOutcome.BEGUN
    await log.end(entry, outcome=AuditOutcome.REFUSED, after={"b": [None]}, detail="NUL \x00")
    [found] = (await log.list_entries("default", AuditFilter())).items
    assert (found.outcome, found.after, found.detail) == (AuditOutcome.REFUSED, {"b": [None]}, "NUL \u2400")
    assert found.before == entry.before


async def test_changes_are_found_by_what_they_are(log: AuditStore) -> None:
    """The newest first; another tenant's are not there."""
    for n in range(6):
        await log.begin(
            entry_at(n, job_id="ab"[n % 2], actor=f"k{n % 3}", action="job.pause" if n == 5 else "job.create")
        )
    await log.begin(entry_at(9, tenant="acme"))

    async def minutes(chosen: AuditFilter) -> list[int]:
        found = await log.list_entries("default", chosen)
        return [(entry.at - NOON) // timedelta(minutes=1) for entry in found.items]

    assert await minutes(AuditFilter()) == [5, 4, 3, 2, 1, 0]
    assert await minutes(AuditFilter(job_id="b")) == [5, 3, 1]
    assert await minutes(AuditFilter(actor="k0")) == [3, 0]
    assert await minutes(AuditFilter(action="job.pause")) == [5]
    start, end = NOON + timedelta(minutes=1), NOON + timedelta(minutes=3)
    assert await minutes(AuditFilter(start=start, end=end)) == [3, 2, 1]
    assert await minutes(AuditFilter(job_id="a", start=start)) == [4, 2]
    assert await minutes(AuditFilter(job_id="\x00 ' OR 1=1")) == []


async def test_pages_are_stable_while_changes_come_in(log: AuditStore) -> None:
    """Forward and back, each once; and a cursor is good for its own list alone."""
    for n in range(25):
        await log.begin(entry_at(n))
    first = await log.list_entries("default", AuditFilter(), limit=10)
    seen = list(first.items)
    await log.begin(entry_at(99))
    page: Page[AuditEntry] = first
    while page.next is not None:
        page = await log.list_entries("default", AuditFilter(), cursor=page.next, limit=10)
        seen += page.items
    assert [entry.at for entry in seen] == [NOON + timedelta(minutes=n) for n in reversed(range(25))]
    back = await log.list_entries("default", AuditFilter(), cursor=page.previous, limit=10)
    assert back.items == tuple(seen[10:20])
    for tenant, chosen in (("acme", AuditFilter()), ("default", AuditFilter(job_id="a"))):
        with pytest.raises(InvalidCursor):
            await log.list_entries(tenant, chosen, cursor=first.next)


async def test_what_is_older_than_the_retention_is_forgotten(log: AuditStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches, and of all tenants."""
    monkeypatch.setattr("activities.pruning.BATCH", 4)
    for n in range(10):
        await log.begin(entry_at(n, tenant=f"t{n % 2}"))
    assert await log.prune(before=NOON + timedelta(minutes=9)) == 9
    assert [entry.at for entry in (await log.list_entries("t1", AuditFilter())).items] == [NOON + timedelta(minutes=9)]
    assert (await log.list_entries("t0", AuditFilter())).items == ()
