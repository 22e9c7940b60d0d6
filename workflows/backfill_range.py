"""Which fires the range of a backfill has, asked of the fire-time calculator.

Pure. Never called in workflow code, as ``planner`` is not: zone rules and croniter change between releases, and a replay must not
notice. Both ends of a range belong to it.
"""

from datetime import datetime
from typing import Final

from workflows.backfill import FireList, FireListRequest, just_before
from workflows.fire_times import fires_between, survey_fires
from workflows.schedule import Schedule
from workflows.value import Value

SURVEYS: Final = 100
"""Bound of the work that counting a range may be. Each looks at years of any schedule."""

COUNTED: Final = 1_000_000
"""More than any backfill may have: of a longer range nobody has to know how much longer."""


class FireCount(Value):
    """How many fires a range has."""

    total: int = 0
    """Those that nothing excludes; at least so many where ``is_exact`` is false."""

    excluded: int = 0
    first: datetime | None = None
    last: datetime | None = None
    is_exact: bool = True


def count_fires(schedule: Schedule, *, job_id: str, start: datetime, end: datetime) -> FireCount:
    """Count the fires with ``start <= nominal <= end``, with bounded work.

    Raises:
        InvalidSchedule: the schedule means nothing to this release.
    """
    count, after = FireCount(), just_before(start)
    for _ in range(SURVEYS):
        survey = survey_fires(schedule, job_id=job_id, after=after, until=end, newest=0)
        wanted = [each for each in survey.ranges if each.excluded_by is None]
        unwanted = sum(each.count for each in survey.ranges if each.excluded_by is not None)
        count = FireCount(
            total=count.total + sum(each.count for each in wanted),
            excluded=count.excluded + unwanted,
            first=count.first or (wanted[0].first if wanted else None),
            last=wanted[-1].last if wanted else count.last,
        )
        after = survey.through
        if after >= end:
            return count
        if count.total > COUNTED:
            break
    return count.model_copy(update={"is_exact": False})


def list_fires(request: FireListRequest) -> FireList:
    """List the next fires of a range; the answer says how far it came, and the caller asks again from there.

    Raises:
        InvalidSchedule: the schedule or its zone means nothing to this release.
    """
    fires = fires_between(request.schedule, request.after, request.until, job_id=request.job_id, limit=request.limit)
    through = fires[-1].nominal if len(fires) == request.limit else request.until
    return FireList(fires=tuple(fire for fire in fires if fire.excluded_by is None), through=through)
