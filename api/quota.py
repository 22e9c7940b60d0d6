"""Quotas of tenants: what a job takes of them, and that it is claimed before anything is done."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial

from anyio import to_thread
from pydantic import BaseModel, Field

from activities.quota_store import Exceeded, QuotaStore, TenantStanding
from api.problem import QuotaExceeded, QuotaProblem
from api.task_queue import TaskQueues
from workflows.error import HorariumError, Unavailable
from workflows.fire_times import shortest_gap
from workflows.schedule import Schedule


class QuotaAnswer(BaseModel):
    """What a tenant may have, and what it has."""

    tenant: str
    jobs: int = Field(description="Active and paused ones.")
    max_jobs: int | None = Field(description="null: no limit.")
    fires_per_minute: float = Field(description="Of all these jobs together, each at its densest.")
    max_fires_per_minute: float | None = Field(description="null: no limit.")
    task_queues: list[str] = Field(
        description="Patterns of the task queues that its jobs may name, beside the default one; empty: any that no other "
        "tenant has."
    )


class Quotas:
    """The quotas of all tenants."""

    def __init__(self, store: QuotaStore, *, task_queues: TaskQueues) -> None:
        self._store = store
        self._task_queues = task_queues

    @asynccontextmanager
    async def claiming(self, job_id: str, schedule: Schedule, *, tenant: str) -> AsyncIterator[None]:
        """Hold the share of a job that is registered or changed within the block; it is given back where that is refused.

        Until it is known what became of it, a job that is there holds as much as it took before, where that is more.

        Raises:
            QuotaExceeded: the tenant has not so much left.
            Unavailable: the database does not answer; nothing was done.
        """
        fires = await to_thread.run_sync(partial(fires_per_minute, schedule, job_id=job_id))
        claimed = await self._store.claim(tenant, job_id, fires_per_minute=fires, now=datetime.now(UTC))
        if isinstance(claimed, Exceeded):
            raise QuotaExceeded(_describe(claimed, fires_per_minute=fires))
        try:
            yield
        except Unavailable:
            # It may be done all the same, or not. A claim without a job lapses by itself.
            raise
        except HorariumError:
            with suppress(Unavailable):
                await self._store.give_back(tenant, job_id, claimed)
            raise
        if claimed.fires_per_minute > fires:
            with suppress(Unavailable):
                await self._store.settle(tenant, job_id, claimed, fires_per_minute=fires)

    async def is_overclaimed(self, job_id: str, schedule: Schedule, *, tenant: str) -> bool:
        """Say whether a job holds more than it takes, since a change of it that was in doubt. Raises ``Unavailable``."""
        share = await self._store.read_share(tenant, job_id)
        if not share.is_counted or not share.fires_per_minute:
            return False
        return share.fires_per_minute > await to_thread.run_sync(partial(fires_per_minute, schedule, job_id=job_id))

    async def release(self, job_id: str, *, tenant: str) -> None:
        """Give back the share of a job that was deleted. What cannot be given back now lapses."""
        with suppress(Unavailable):
            await self._store.release(tenant, job_id)

    async def describe(self, *, tenant: str) -> QuotaAnswer:
        """Say how a tenant stands."""
        standing = await self._store.read_standing(tenant, now=datetime.now(UTC))
        return describe_standing(standing, task_queues=await self._task_queues.granted_to(tenant))


def fires_per_minute(schedule: Schedule, *, job_id: str) -> float:
    """Say how often a job fires at its densest; 0 for a job that fires once."""
    gap = shortest_gap(schedule, job_id=job_id)
    return 0.0 if gap is None else timedelta(minutes=1) / gap


def describe_standing(standing: TenantStanding, *, task_queues: Iterable[str]) -> QuotaAnswer:
    """Say a quota, what is taken of it, and which task queues go with it."""
    return QuotaAnswer(
        tenant=standing.tenant,
        jobs=standing.usage.jobs,
        max_jobs=standing.quota.jobs,
        fires_per_minute=standing.usage.fires_per_minute,
        max_fires_per_minute=standing.quota.fires_per_minute,
        task_queues=list(task_queues),
    )


def _describe(exceeded: Exceeded, *, fires_per_minute: float) -> QuotaProblem:
    quota, others = exceeded.quota, exceeded.others
    if quota.jobs is not None and others.jobs + 1 > quota.jobs:
        return QuotaProblem(name="jobs", limit=quota.jobs, current=others.jobs, requested=1)
    assert quota.fires_per_minute is not None
    return QuotaProblem(
        name="fires_per_minute",
        limit=quota.fires_per_minute,
        current=others.fires_per_minute,
        requested=round(fires_per_minute, 6),
    )
