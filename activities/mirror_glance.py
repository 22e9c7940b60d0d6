"""Rows of jobs as far as they are compared with Temporal: many at once, without their definitions."""

from collections.abc import AsyncIterator, Collection
from datetime import timedelta
from typing import Any, Final, TypeAlias

from sqlalchemy import Row, Select, literal, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.database import reading
from activities.deadline import Deadline
from activities.tables import JOBS, KEY
from workflows.job import Lifecycle
from workflows.reconciliation import JobGlance

PAGE: Final = 500

JobKey: TypeAlias = tuple[str, str]
"""Tenant and id."""

_COMPARED: Final = (
    JOBS.c.tenant,
    JOBS.c.job_id,
    JOBS.c.version,
    JOBS.c.revision,
    JOBS.c.state,
    JOBS.c.updated_at,
    JOBS.c.next_run_at,
)

_NEEDS_A_WORKFLOW: Final = or_(
    JOBS.c.state.in_([Lifecycle.ACTIVE.value, Lifecycle.PAUSED.value]), JOBS.c.active_runs > 0, JOBS.c.waiting_runs > 0
)


class MirrorGlances:
    """Reads through one engine. Raises ``Unavailable`` when the database does not answer."""

    def __init__(self, engine: AsyncEngine, *, limit: timedelta = timedelta(seconds=15)) -> None:
        self._engine = engine
        self._deadline = Deadline(limit)

    async def close(self) -> None:
        """Wait for reads that ran out of time. The engine is the caller's."""
        await self._deadline.close()

    async def find(self, keys: Collection[JobKey]) -> dict[JobKey, JobGlance]:
        """Find the rows of jobs, those that there are."""
        is_wanted = tuple_(JOBS.c.tenant, JOBS.c.job_id).in_(list(keys))
        rows = await self._rows(select(*_COMPARED).where(is_wanted))
        return {(each.tenant, each.job_id): each for each in rows}

    async def pages_with_workflow(self) -> AsyncIterator[list[JobGlance]]:
        """Go through all jobs that should have a workflow: those that are not over, and those whose last runs are not."""
        after: JobKey | None = None
        query = select(*_COMPARED).where(_NEEDS_A_WORKFLOW).order_by(JOBS.c.tenant, JOBS.c.job_id).limit(PAGE)
        while page := await self._rows(query if after is None else query.where(_comes_after(after))):
            yield page
            after = (page[-1].tenant, page[-1].job_id)

    async def _rows(self, query: Select[Any]) -> list[JobGlance]:
        async def read() -> list[JobGlance]:
            async with reading(self._engine) as connection:
                return [_glance(row) for row in await connection.execute(query)]

        return await self._deadline.ask(read())


def _comes_after(key: JobKey) -> Any:
    return tuple_(JOBS.c.tenant, JOBS.c.job_id) > tuple_(*(literal(each, KEY) for each in key))


def _glance(row: Row[Any]) -> JobGlance:
    return JobGlance(**row._asdict())
