"""Task queues that are granted to tenants.

Part of the store: the truth, to be backed up. Few rows, read as a whole.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.audit_store import AuditEntry, insert_entry
from activities.database import reading, writing
from activities.deadline import Deadline
from activities.mirror_row import storable
from activities.tables import JOBS
from activities.tables import TASK_QUEUE_GRANTS as GRANTS
from workflows.job import Lifecycle


@dataclass(frozen=True, kw_only=True)
class NamedQueue:
    """A queue that jobs of a tenant name."""

    tenant: str
    task_queue: str
    jobs: int


class TaskQueueStore:
    """Grants through one engine. Raises ``Unavailable`` when the database does not answer."""

    def __init__(self, engine: AsyncEngine, *, limit: timedelta = timedelta(seconds=5)) -> None:
        self._engine = engine
        self._deadline = Deadline(limit)

    async def close(self) -> None:
        """Wait for work that ran out of time. The engine is the caller's."""
        await self._deadline.close()

    async def read_grants(self) -> Mapping[str, tuple[str, ...]]:
        """Read the patterns of all tenants that have any."""

        async def read() -> dict[str, tuple[str, ...]]:
            query = select(GRANTS.c.tenant, GRANTS.c.pattern).order_by(GRANTS.c.tenant, GRANTS.c.pattern)
            found: dict[str, tuple[str, ...]] = {}
            async with reading(self._engine) as connection:
                for tenant, pattern in await connection.execute(query):
                    found[tenant] = (*found.get(tenant, ()), pattern)
            return found

        return await self._deadline.ask(read())

    async def grant(self, tenant: str, patterns: Iterable[str], *, now: datetime, entry: AuditEntry) -> None:
        """Let these be all that a tenant has."""
        rows = [
            {"tenant": storable(tenant), "pattern": storable(pattern), "granted_at": now} for pattern in set(patterns)
        ]

        async def write() -> None:
            async with writing(self._engine) as connection:
                await connection.execute(delete(GRANTS).where(GRANTS.c.tenant == storable(tenant)))
                if rows:
                    await connection.execute(insert(GRANTS), rows)
                await insert_entry(connection, entry)

        await self._deadline.ask(write())

    async def count_named(self) -> list[NamedQueue]:
        """Count the jobs that may still fire, by tenant and by the queue that they name."""
        is_firing = JOBS.c.state.in_((Lifecycle.ACTIVE.value, Lifecycle.PAUSED.value))
        columns = (JOBS.c.tenant, JOBS.c.task_queue)
        query = select(*columns, func.count()).where(is_firing).group_by(*columns).order_by(*columns)

        async def read() -> list[NamedQueue]:
            async with reading(self._engine) as connection:
                return [
                    NamedQueue(tenant=tenant, task_queue=task_queue, jobs=jobs)
                    for tenant, task_queue, jobs in await connection.execute(query)
                ]

        return await self._deadline.ask(read())
