"""What tenants may have, and what their jobs take of it.

Part of the store: the truth, to be backed up. A job claims its share before it is registered or changed, in one transaction that
no other claim of its tenant overlaps, so that any number of requests to any number of replicas stay within the quota together. A
claim counts as long as the mirror has its job as active or paused, and for ``IN_FLIGHT`` before the mirror has it.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, delete, exists, func, literal, select, text, union, union_all, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from activities.audit_store import AuditEntry, insert_entry
from activities.database import POSTGRESQL, reading, writing
from activities.deadline import Deadline
from activities.mirror_row import storable
from activities.quota import Quota, Share, Usage, is_too_much
from activities.tables import API_KEYS, JOBS, TASK_QUEUE_GRANTS, TENANTS
from activities.tables import QUOTA_CLAIMS as CLAIMS
from workflows.job import Lifecycle

IN_FLIGHT: Final = timedelta(minutes=1)
"""Longer than any request takes from its claim to its row in the mirror."""

COUNTED: Final = (Lifecycle.ACTIVE.value, Lifecycle.PAUSED.value)
"""Jobs that are over, or deleted, take nothing."""


@dataclass(frozen=True)
class Granted:
    """The claim is written; ``before`` is what to go back to."""

    before: Share
    fires_per_minute: float
    """What is claimed: enough for the job as it was and as it is to be, until it is known which it is."""

    claimed_at: datetime
    """Tells this claim from a later one of the same job."""


@dataclass(frozen=True)
class Exceeded:
    """There is not enough left for the job. Nothing was written."""

    quota: Quota
    others: Usage


@dataclass(frozen=True, kw_only=True)
class TenantStanding:
    """A tenant, as an operator sees it."""

    tenant: str
    quota: Quota
    """Its own; what is ``None`` is as the settings say."""

    usage: Usage


class QuotaStore:
    """Quotas and claims through one engine. Raises ``Unavailable`` when the database does not answer."""

    def __init__(self, engine: AsyncEngine, *, default: Quota, limit: timedelta = timedelta(seconds=5)) -> None:
        """``default`` is the quota of tenants that have none of their own."""
        self._engine = engine
        self._default = default
        self._deadline = Deadline(limit)

    async def close(self) -> None:
        """Wait for work that ran out of time. The engine is the caller's."""
        await self._deadline.close()

    async def claim(self, tenant: str, job_id: str, *, fires_per_minute: float, now: datetime) -> Granted | Exceeded:
        """Claim the share of a job that is to be registered or changed; ``settle`` it when it is, or ``give_back``."""

        async def claim() -> Granted | Exceeded:
            async with writing(self._engine) as connection:
                await self._wait_for_turn(connection, tenant)
                quota = (await _read_quota(connection, tenant)).or_default(self._default)
                before = await _read_share(connection, tenant, job_id)
                # Adding up takes as long as there are jobs, and all who write wait for it: not where nothing is limited.
                if quota != Quota():
                    others = await _read_usage(connection, tenant, but=job_id, now=now)
                    if is_too_much(quota, others, before, fires_per_minute=fires_per_minute):
                        return Exceeded(quota, others)
                claimed = max(fires_per_minute, before.fires_per_minute or 0)
                await connection.execute(self._put(tenant, job_id, fires_per_minute=claimed, now=now))
                return Granted(before, claimed, claimed_at=now)

        return await self._deadline.ask(claim())

    async def give_back(self, tenant: str, job_id: str, claim: Granted) -> None:
        """Go back to what a job had claimed before: its change was refused. A later claim of the job stays."""
        fires = claim.before.fires_per_minute
        back = delete(CLAIMS) if fires is None else update(CLAIMS).values(fires_per_minute=fires)
        await self._deadline.ask(self._write(back.where(*_is_claim(tenant, job_id, claim))))

    async def settle(self, tenant: str, job_id: str, claim: Granted, *, fires_per_minute: float) -> None:
        """Claim no more than what a job takes whose change is made. A later claim of the job stays."""
        settled = update(CLAIMS).values(fires_per_minute=fires_per_minute)
        await self._deadline.ask(self._write(settled.where(*_is_claim(tenant, job_id, claim))))

    async def read_share(self, tenant: str, job_id: str) -> Share:
        """Say what a job has claimed."""

        async def read() -> Share:
            async with reading(self._engine) as connection:
                return await _read_share(connection, tenant, job_id)

        return await self._deadline.ask(read())

    async def release(self, tenant: str, job_id: str) -> None:
        """Forget the claim of a job that is deleted."""
        await self._deadline.ask(self._write(delete(CLAIMS).where(*_is_job(tenant, job_id))))

    async def read_standing(self, tenant: str, *, now: datetime) -> TenantStanding:
        """Say how a tenant stands; its quota as it is in force."""

        async def read() -> TenantStanding:
            async with reading(self._engine) as connection:
                quota = (await _read_quota(connection, tenant)).or_default(self._default)
                return TenantStanding(
                    tenant=tenant, quota=quota, usage=await _read_usage(connection, tenant, but=None, now=now)
                )

        return await self._deadline.ask(read())

    async def list_tenants(self, *, now: datetime) -> list[TenantStanding]:
        """List everybody who has jobs, keys, a quota or task queues, by name; quotas as they are in force."""
        named = union(*(select(table.c.tenant) for table in (JOBS, API_KEYS, TENANTS, TASK_QUEUE_GRANTS)))

        async def read() -> Iterable[str]:
            async with reading(self._engine) as connection:
                return [str(name) for name in (await connection.execute(named)).scalars()]

        return [await self.read_standing(tenant, now=now) for tenant in sorted(await self._deadline.ask(read()))]

    async def set_quota(self, tenant: str, quota: Quota, *, now: datetime, entry: AuditEntry) -> None:
        """Settle what a tenant may have. What it has already stays."""
        values = {"max_jobs": quota.jobs, "max_fires_per_minute": quota.fires_per_minute, "updated_at": now}
        put = self._insert(TENANTS).values(tenant=tenant, **values)
        put = put.on_conflict_do_update(index_elements=[TENANTS.c.tenant], set_=values)

        async def write() -> None:
            async with writing(self._engine) as connection:
                await connection.execute(put)
                await insert_entry(connection, entry)

        await self._deadline.ask(write())

    async def prune(self, *, now: datetime) -> None:
        """Forget the claims of jobs that are over."""
        job = select(literal(1)).where(_same_job(), JOBS.c.state.in_(COUNTED))
        is_void = (CLAIMS.c.claimed_at < now - IN_FLIGHT, ~exists(job.correlate(CLAIMS)))
        await self._deadline.ask(self._write(delete(CLAIMS).where(*is_void)))

    async def _wait_for_turn(self, connection: AsyncConnection, tenant: str) -> None:
        """Let claims of one tenant follow each other. On SQLite they do: a transaction that writes is alone."""
        if connection.dialect.name == POSTGRESQL:
            number = int.from_bytes(hashlib.sha256(f"quota\0{tenant}".encode()).digest()[:8], "big", signed=True)
            await connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": number})

    async def _write(self, statement: Any) -> None:
        async with writing(self._engine) as connection:
            await connection.execute(statement)

    def _put(self, tenant: str, job_id: str, *, fires_per_minute: float, now: datetime) -> Any:
        values = {"fires_per_minute": fires_per_minute, "claimed_at": now}
        put = self._insert(CLAIMS).values(tenant=storable(tenant), job_id=storable(job_id), **values)
        return put.on_conflict_do_update(index_elements=[CLAIMS.c.tenant, CLAIMS.c.job_id], set_=values)

    def _insert(self, table: Any) -> Any:
        return postgresql.insert(table) if self._engine.dialect.name == POSTGRESQL else sqlite.insert(table)


async def _read_quota(connection: AsyncConnection, tenant: str) -> Quota:
    row = (await connection.execute(select(TENANTS).where(TENANTS.c.tenant == storable(tenant)))).first()
    return Quota() if row is None else Quota(jobs=row.max_jobs, fires_per_minute=row.max_fires_per_minute)


async def _read_share(connection: AsyncConnection, tenant: str, job_id: str) -> Share:
    claimed = (await connection.execute(select(CLAIMS.c.fires_per_minute).where(*_is_job(tenant, job_id)))).scalar()
    of_job = (JOBS.c.tenant == storable(tenant), JOBS.c.job_id == storable(job_id))
    state = (await connection.execute(select(JOBS.c.state).where(*of_job))).scalar()
    return Share(claimed, is_counted=state in COUNTED)


async def _read_usage(connection: AsyncConnection, tenant: str, *, but: str | None, now: datetime) -> Usage:
    """Add up what the jobs of a tenant take, one left out."""
    parts = union_all(*(_without(query, but) for query in _counted_shares(tenant, now=now))).subquery()
    total = select(func.count(), func.coalesce(func.sum(parts.c.fires), 0.0))
    jobs, fires = (await connection.execute(total.select_from(parts))).one()
    # Sums of thirds and sevenths: what people read, and compare with a quota, is exact to a millionth.
    return Usage(jobs=int(jobs), fires_per_minute=round(float(fires), 6))


def _counted_shares(tenant: str, *, now: datetime) -> tuple[Select[Any], Select[Any]]:
    """Select jobs that the mirror has, and those that it will have in a moment."""
    known = (
        select(JOBS.c.job_id, func.coalesce(CLAIMS.c.fires_per_minute, 0.0).label("fires"))
        .select_from(JOBS.outerjoin(CLAIMS, _same_job()))
        .where(JOBS.c.tenant == storable(tenant), JOBS.c.state.in_(COUNTED))
    )
    has_job = select(literal(1)).where(_same_job(), JOBS.c.state.in_(COUNTED)).correlate(CLAIMS)
    in_flight = select(CLAIMS.c.job_id, CLAIMS.c.fires_per_minute.label("fires")).where(
        CLAIMS.c.tenant == storable(tenant), CLAIMS.c.claimed_at > now - IN_FLIGHT, ~exists(has_job)
    )
    return known, in_flight


def _without(query: Select[Any], job_id: str | None) -> Select[Any]:
    return query if job_id is None else query.where(query.selected_columns.job_id != storable(job_id))


def _same_job() -> ColumnElement[bool]:
    return (JOBS.c.tenant == CLAIMS.c.tenant) & (JOBS.c.job_id == CLAIMS.c.job_id)


def _is_job(tenant: str, job_id: str) -> tuple[ColumnElement[bool], ...]:
    return CLAIMS.c.tenant == storable(tenant), CLAIMS.c.job_id == storable(job_id)


def _is_claim(tenant: str, job_id: str, claim: Granted) -> tuple[ColumnElement[bool], ...]:
    return (*_is_job(tenant, job_id), CLAIMS.c.claimed_at == claim.claimed_at)
