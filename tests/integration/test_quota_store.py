"""Claims of quotas, on both databases."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import event

from activities.audit_store import AuditEntry, AuditFilter, AuditOutcome, AuditStore
from activities.database import open_database
from activities.mirror_writer import MirrorWriter, WriterOptions
from activities.quota import Quota, Share, Usage
from activities.quota_store import IN_FLIGHT, Exceeded, Granted, QuotaStore
from tests.records import job_record
from workflows.job import Lifecycle, MirrorBatch

NOW = datetime(2026, 6, 8, 12, tzinfo=UTC)
LATER = NOW + IN_FLIGHT + timedelta(seconds=1)


class Stage:
    """A database with quotas and a mirror."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = open_database(url)
        self._writer = MirrorWriter(url, options=WriterOptions(budget=timedelta(seconds=10)))

    def store(self, default: Quota) -> QuotaStore:
        """That of one process, with a quota for everybody."""
        return QuotaStore(self.engine, default=default)

    async def mirror(self, job_id: str, *, state: Lifecycle = Lifecycle.ACTIVE, version: int = 1) -> None:
        """Have a job in the mirror."""
        await self._writer.write(MirrorBatch(job=job_record(job_id, lifecycle=state, version=version)))

    async def close(self) -> None:
        """Let go of the database."""
        await self._writer.close()
        await self.engine.dispose()


@pytest.fixture
async def stage(database_url: str) -> AsyncIterator[Stage]:
    """An empty one."""
    stage = Stage(database_url)
    yield stage
    await stage.close()


async def test_claims_of_many_requests_to_many_replicas_stay_within_the_quota(stage: Stage) -> None:
    """Exactly as many as there is room for are granted, whoever asks at the same moment."""
    engines = [open_database(stage.url) for _ in range(3)]
    stores = [QuotaStore(engine, default=Quota(jobs=7)) for engine in engines]
    claims = [stores[n % 3].claim("default", f"job-{n}", fires_per_minute=1, now=NOW) for n in range(30)]
    answers = await asyncio.gather(*claims)
    assert sum(isinstance(answer, Granted) for answer in answers) == 7
    assert all(answer.others.jobs == 7 for answer in answers if isinstance(answer, Exceeded))
    for engine in engines:
        await engine.dispose()


async def test_nothing_is_added_up_where_nothing_is_limited(stage: Stage) -> None:
    """The claim is written all the same, and counts when a limit is set."""
    seen: list[str] = []
    event.listen(stage.engine.sync_engine, "before_cursor_execute", lambda *given: seen.append(given[2]))
    unlimited, limited = stage.store(Quota()), stage.store(Quota(fires_per_minute=10))
    assert isinstance(await unlimited.claim("default", "a", fires_per_minute=6, now=NOW), Granted)
    assert not any("sum(" in statement for statement in seen)
    assert isinstance(await limited.claim("default", "b", fires_per_minute=5, now=NOW), Exceeded)
    assert any("sum(" in statement for statement in seen)


async def test_a_claim_counts_while_its_job_is_on_its_way_and_then_with_its_job(stage: Stage) -> None:
    """One whose job never came lapses; one whose job is over, or deleted, counts no more."""
    store = stage.store(Quota(jobs=3))
    for job_id in ("a", "b", "c"):
        assert isinstance(await store.claim("default", job_id, fires_per_minute=2, now=NOW), Granted)
    assert isinstance(await store.claim("default", "d", fires_per_minute=2, now=NOW), Exceeded)
    await stage.mirror("a")
    await stage.mirror("b", state=Lifecycle.PAUSED)
    assert (await store.read_standing("default", now=NOW)).usage == Usage(jobs=3, fires_per_minute=6)
    assert (await store.read_standing("default", now=LATER)).usage == Usage(jobs=2, fires_per_minute=4)
    await stage.mirror("a", state=Lifecycle.COMPLETED, version=2)
    assert (await store.read_standing("default", now=LATER)).usage == Usage(jobs=1, fires_per_minute=2)
    await store.release("default", "b")
    await stage.mirror("b", state=Lifecycle.DELETED, version=2)
    await store.prune(now=LATER)
    assert (await store.read_standing("default", now=NOW)).usage == Usage()


async def test_a_refused_change_goes_back_to_what_was_claimed_before(stage: Stage) -> None:
    """A new job's claim disappears, a changed job's is as it was."""
    store = stage.store(Quota(fires_per_minute=10))
    granted = await store.claim("default", "a", fires_per_minute=6, now=NOW)
    assert granted == Granted(Share(None, is_counted=False), 6, claimed_at=NOW)
    await stage.mirror("a")
    granted = await store.claim("default", "a", fires_per_minute=9, now=NOW)
    assert granted == Granted(Share(6, is_counted=True), 9, claimed_at=NOW)
    await store.give_back("default", "a", granted)
    assert (await store.read_standing("default", now=LATER)).usage == Usage(jobs=1, fires_per_minute=6)
    exceeded = await store.claim("default", "b", fires_per_minute=5, now=NOW)
    assert exceeded == Exceeded(Quota(fires_per_minute=10), Usage(jobs=1, fires_per_minute=6))
    granted = await store.claim("default", "b", fires_per_minute=4, now=NOW)
    assert isinstance(granted, Granted)
    await store.give_back("default", "b", granted)
    assert (await store.read_standing("default", now=NOW)).usage == Usage(jobs=1, fires_per_minute=6)


async def test_a_change_to_less_holds_what_the_job_takes_until_it_is_made(stage: Stage) -> None:
    """Nobody else is given it meanwhile, nor where nobody knows what became of the change."""
    store = stage.store(Quota(fires_per_minute=10))
    await store.claim("default", "a", fires_per_minute=9, now=NOW)
    await stage.mirror("a")
    later = NOW + timedelta(seconds=1)
    granted = await store.claim("default", "a", fires_per_minute=1, now=later)
    assert granted == Granted(Share(9, is_counted=True), 9, claimed_at=later)
    assert isinstance(await store.claim("default", "b", fires_per_minute=5, now=later), Exceeded)
    assert await store.read_share("default", "a") == Share(9, is_counted=True)
    await store.settle("default", "a", granted, fires_per_minute=1)
    assert await store.read_share("default", "a") == Share(1, is_counted=True)
    assert isinstance(await store.claim("default", "b", fires_per_minute=5, now=later), Granted)
    await store.claim("default", "a", fires_per_minute=2, now=LATER)
    await store.settle("default", "a", granted, fires_per_minute=1)
    assert await store.read_share("default", "a") == Share(2, is_counted=True)


async def test_a_refused_request_takes_nothing_from_the_one_that_won(stage: Stage) -> None:
    """Two replicas register one id: the claim of the second, whose job is there, outlives the refusal of the first."""
    store = stage.store(Quota(fires_per_minute=10))
    loser = await store.claim("default", "a", fires_per_minute=6, now=NOW)
    winner = await store.claim("default", "a", fires_per_minute=6, now=NOW + timedelta(microseconds=1))
    assert isinstance(loser, Granted)
    assert isinstance(winner, Granted)
    await stage.mirror("a")
    await store.give_back("default", "a", loser)
    assert (await store.read_standing("default", now=LATER)).usage == Usage(jobs=1, fires_per_minute=6)


async def test_a_tenant_has_its_own_quota_and_uses_nobody_elses(stage: Stage) -> None:
    """Settled by an operator, with an entry in the audit log."""
    store = stage.store(Quota(jobs=1))
    entry = AuditEntry(
        tenant="acme", request_id="", actor="operator", action="tenant.set_quota", outcome=AuditOutcome.APPLIED
    )
    await store.set_quota("acme", Quota(jobs=2), now=NOW, entry=entry)
    for tenant, job_id, fits in (
        ("acme", "a", True),
        ("acme", "b", True),
        ("acme", "c", False),
        ("default", "a", True),
        ("default", "b", False),
    ):
        claimed = await store.claim(tenant, job_id, fires_per_minute=1, now=NOW)
        assert isinstance(claimed, Granted) is fits, (tenant, job_id)
    [found] = (await AuditStore(stage.engine).list_entries("acme", AuditFilter())).items
    assert found.action == "tenant.set_quota"
    await stage.mirror("a")
    assert [standing.tenant for standing in await store.list_tenants(now=NOW)] == ["acme", "default"]
