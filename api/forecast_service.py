"""What the forecast promises: fires ahead of all jobs of a tenant, within a bounded time and a bounded answer.

Counting is arithmetic, and runs in a thread of its own, a page of jobs at a time: other requests go on. Jobs are taken in the
order of their next fires, so that what there is no time for are the fires furthest ahead.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from anyio import to_thread

from activities.queries import Queries, ScheduledJob
from api.forecast import ForecastAnswer, ForecastTally, Horizon
from api.problem import FieldError, InvalidRequest
from workflows.duration import parse_duration
from workflows.error import InvalidSchedule

WITHIN: Final = timedelta(seconds=5)
"""For one forecast. 20,000 jobs take about a second."""

PAGE: Final = 500

JOBS_LIMIT: Final = 100_000
"""More than there is time for."""

SHORTEST_STEP: Final = timedelta(minutes=1)
LONGEST_RANGE: Final = timedelta(days=31)
FURTHEST: Final = timedelta(days=3_650)
STEPS_LIMIT: Final = 1_000

DEFAULT_STEP: Final = "1h"
DEFAULT_RANGE: Final = timedelta(days=1)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ForecastService:
    """Forecasts, on behalf of one tenant a call."""

    def __init__(self, *, queries: Queries, within: timedelta = WITHIN) -> None:
        self._queries = queries
        self._within = within.total_seconds()

    async def forecast(self, horizon: Horizon, *, tenant: str) -> ForecastAnswer:
        """Count the fires ahead. Raises ``Unavailable``."""
        deadline = time.monotonic() + self._within
        tally = ForecastTally(horizon)
        await self._add_active(tally, tenant=tenant, deadline=deadline)
        await self._add_paused(tally, tenant=tenant, deadline=deadline)
        return await to_thread.run_sync(tally.answer)

    async def _add_active(self, tally: ForecastTally, *, tenant: str, deadline: float) -> None:
        end = tally.horizon.end
        firing = await self._queries.list_firing(tenant, before=end, limit=JOBS_LIMIT)
        for start in range(0, len(firing), PAGE):
            page = firing[start : start + PAGE]
            found = await self._queries.read_schedules(tenant, [job_id for job_id, _ in page])
            jobs = [found[job_id] for job_id, _ in page if job_id in found]
            done = await to_thread.run_sync(partial(_add_some, tally, jobs, deadline=deadline))
            if done < len(jobs):
                left = await self._queries.count_firing(tenant, before=end) - start - done
                tally.leave_out(max(left, len(jobs) - done), next_fire=page[done][1])
                return
        if (
            len(firing) == JOBS_LIMIT
            and (left := await self._queries.count_firing(tenant, before=end) - JOBS_LIMIT) > 0
        ):
            tally.leave_out(left, next_fire=firing[-1][1])

    async def _add_paused(self, tally: ForecastTally, *, tenant: str, deadline: float) -> None:
        """Count the fires of jobs that resume by themselves."""
        after = ""
        while True:
            page = await self._queries.read_paused_schedules(tenant, after=after, limit=PAGE)
            resuming = [job for job in page if job.resumes_at is not None and job.resumes_at < tally.horizon.end]
            done = await to_thread.run_sync(partial(_add_some, tally, resuming, deadline=deadline))
            for job in resuming[done:]:
                tally.leave_out(1, next_fire=job.resumes_at or tally.horizon.start)
            if len(page) < PAGE:
                return
            after = page[-1].job_id


def read_horizon(*, start: datetime | None, end: datetime | None, step: str, now: datetime) -> Horizon:
    """Read which steps are asked for: by default a day of hours, from the present one on.

    Raises:
        InvalidRequest: they are too many, too short, or not ahead.
    """
    width = _read_step(step)
    begin = _round_down(now, width) if start is None else start.replace(microsecond=0)
    if begin > now + FURTHEST:
        raise _bad("from", "more than ten years ahead")
    if begin + width <= now:
        raise _bad("from", "lies in the past: a forecast is of fires ahead")
    last = begin + max(DEFAULT_RANGE, width) if end is None else end
    if last <= begin:
        raise _bad("to", "must be later than from")
    if last - begin > LONGEST_RANGE:
        raise _bad("to", f"more than {LONGEST_RANGE.days} days after from")
    steps = -(-(last - begin) // width)
    if steps > STEPS_LIMIT:
        raise _bad("step", f"{steps} steps; {STEPS_LIMIT} are allowed")
    return Horizon(start=begin, step=width, steps=steps, now=now)


def _read_step(text: str) -> timedelta:
    is_number = text.isascii() and text.isdigit()
    try:
        step = parse_duration(int(text) if is_number else text, pointer="/step")
    except InvalidSchedule as error:
        raise _bad("step", error.reason) from error
    if step < SHORTEST_STEP:
        raise _bad("step", f"at least {SHORTEST_STEP.seconds} seconds")
    if step > LONGEST_RANGE:
        raise _bad("step", f"at most {LONGEST_RANGE.days} days")
    return step


def _round_down(moment: datetime, step: timedelta) -> datetime:
    return moment - (moment - _EPOCH) % step


def _bad(parameter: str, detail: str) -> InvalidRequest:
    return InvalidRequest(FieldError(parameter=parameter, detail=detail))


def _add_some(tally: ForecastTally, jobs: Sequence[ScheduledJob], *, deadline: float) -> int:
    """Count jobs until the time is over; say how many."""
    for done, job in enumerate(jobs):
        if time.monotonic() > deadline:
            return done
        tally.add(job)
    return len(jobs)
