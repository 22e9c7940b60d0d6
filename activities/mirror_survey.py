"""How things stand with all jobs together, for gauges: what the mirror shows, in two passes over its jobs.

A gauge is read off what is there and never counted up and down, so it survives every restart, is never negative, and what
belongs to a deleted job is gone with it.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, and_, case, func, or_, select
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.database import reading
from activities.deadline import Deadline
from activities.tables import JOBS, RUNS
from workflows.job import Lifecycle
from workflows.run import RunStatus

OVERDUE_AFTER: Final = timedelta(minutes=1)
"""A fire may be late by a restart of a worker; past this somebody should look."""

BUSY_FOR: Final = timedelta(minutes=10)
"""A job with a run that blocks its fires decides several of them at once, within half of their grace; it is not late by that."""

MOST_QUEUES: Final = 200
"""Task queues that are told of, those with most jobs. A question to Temporal is asked about each."""


@dataclass(frozen=True, kw_only=True)
class TenantSurvey:
    """How things stand with the jobs of a tenant, the deleted ones left out."""

    jobs: Mapping[Lifecycle, int]
    active_runs: int
    waiting_runs: int
    troubled: int
    """Jobs that cannot go on, such as with a zone that workers do not know."""

    parked_runs: int = 0
    """Active runs that wait for a downstream to recover, or for a worker that knows their activity."""

    overdue: int = 0
    """Jobs whose fire should have started more than a minute ago."""

    due_since: datetime | None = None
    """The earliest target time that has passed and whose fire is not known to have started."""


@dataclass(frozen=True, kw_only=True)
class MirrorSurvey:
    """How things stand with all jobs."""

    tenants: Mapping[str, TenantSurvey] = field(default_factory=dict)
    task_queues: tuple[str, ...] = ()
    """Where jobs that are not over have their attempts, at most ``MOST_QUEUES``."""


class MirrorSurveyor:
    """Reads through one engine."""

    def __init__(self, engine: AsyncEngine, *, limit: timedelta) -> None:
        self._engine = engine
        self._deadline = Deadline(limit)

    async def close(self) -> None:
        """Wait for reads that ran out of time. The engine is the caller's."""
        await self._deadline.close()

    async def survey(self, *, now: datetime) -> MirrorSurvey:
        """Look at all jobs. Raises ``Unavailable``."""
        return await self._deadline.ask(self._survey(now))

    async def _survey(self, now: datetime) -> MirrorSurvey:
        async with reading(self._engine) as connection:
            counted = (await connection.execute(_COUNTED)).all()
            due = {str(row.tenant): row for row in await connection.execute(_select_due(now))}
            parked = {str(row.tenant): int(row.runs) for row in await connection.execute(_PARKED)}
            queues = (await connection.execute(_QUEUES)).all()
        of_tenant: dict[str, list[Row[Any]]] = defaultdict(list)
        for row in counted:
            of_tenant[str(row.tenant)].append(row)
        return MirrorSurvey(
            tenants={
                tenant: _tenant_survey(rows, due.get(tenant), parked_runs=parked.get(tenant, 0))
                for tenant, rows in of_tenant.items()
            },
            task_queues=tuple(str(row.task_queue) for row in queues),
        )


def _tenant_survey(rows: list[Row[Any]], due: Row[Any] | None, *, parked_runs: int) -> TenantSurvey:
    return TenantSurvey(
        jobs={Lifecycle(row.state): int(row.jobs) for row in rows},
        active_runs=sum(int(row.active_runs) for row in rows),
        waiting_runs=sum(int(row.waiting_runs) for row in rows),
        troubled=sum(int(row.troubled) for row in rows),
        parked_runs=parked_runs,
        overdue=0 if due is None else int(due.overdue),
        due_since=None if due is None else due.due_since,
    )


def _count_if(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)


_COUNTED: Final = (
    select(
        JOBS.c.tenant,
        JOBS.c.state,
        func.count().label("jobs"),
        func.sum(JOBS.c.active_runs).label("active_runs"),
        func.sum(JOBS.c.waiting_runs).label("waiting_runs"),
        _count_if(JOBS.c.trouble.is_not(None)).label("troubled"),
    )
    .where(JOBS.c.state != Lifecycle.DELETED.value)
    .group_by(JOBS.c.tenant, JOBS.c.state)
)

_PARKED_OF_JOB: Final = (
    select(func.count())
    .where(RUNS.c.tenant == JOBS.c.tenant, RUNS.c.job_id == JOBS.c.job_id, RUNS.c.status == RunStatus.PARKED.value)
    .correlate(JOBS)
    .scalar_subquery()
)
"""Not a join: SQLite would begin it with all runs, of which there is no index by status alone."""

_PARKED: Final = (
    select(JOBS.c.tenant, func.sum(_PARKED_OF_JOB).label("runs"))
    .where(JOBS.c.active_runs > 0, JOBS.c.state != Lifecycle.DELETED.value)
    .group_by(JOBS.c.tenant)
)

_QUEUES: Final = (
    select(JOBS.c.task_queue)
    .where(JOBS.c.state.in_([Lifecycle.ACTIVE.value, Lifecycle.PAUSED.value]))
    .group_by(JOBS.c.task_queue)
    .order_by(func.count().desc(), JOBS.c.task_queue)
    .limit(MOST_QUEUES)
)


def _select_due(now: datetime) -> Select[Any]:
    """Find what is due; by the index of active jobs by their next nominal time, which is never after the target."""
    return (
        select(
            JOBS.c.tenant,
            func.min(JOBS.c.next_target_at).label("due_since"),
            _count_if(JOBS.c.next_target_at < now - OVERDUE_AFTER).label("overdue"),
        )
        .where(
            JOBS.c.state == Lifecycle.ACTIVE.value,
            JOBS.c.next_run_at < now,
            and_(
                JOBS.c.next_target_at < now,
                or_(JOBS.c.active_runs == 0, JOBS.c.next_target_at < now - BUSY_FOR),
            ),
        )
        .group_by(JOBS.c.tenant)
    )
