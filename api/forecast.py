"""How many runs are to start, step by step, and where they crowd. Pure.

Counted from definitions alone, with the calculator that fires the jobs: retries, catch-up and triggers are not foreseen. A run is
counted where it is to start, jitter included. Many jobs of a fleet have the same schedule; each is counted once.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import nlargest
from typing import Final

from pydantic import BaseModel, Field

from activities.queries import ScheduledJob
from workflows.duration import describe_duration
from workflows.error import InvalidSchedule
from workflows.fire_times import FireCount, count_fires, jitter_offset
from workflows.schedule import CronRule, OneOffRule, Schedule

HOT_SPOTS: Final = 5
JOBS_NAMED: Final = 10
"""Of a hot spot: those with the most fires in it."""

HOT: Final = 1.25
"""Times the average that a hot spot has at least."""

WORTH_IT: Final = 0.1
"""Share of a hot spot's fires that jitter must be able to move for it to be advised."""

WIDEST_JITTER: Final = timedelta(hours=1)
"""That is advised."""

DEFAULT_JITTER: Final = 60.0
"""Seconds; see ``jitter_window``."""

_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, kw_only=True)
class Horizon:
    """Which steps are told."""

    start: datetime
    step: timedelta
    steps: int
    now: datetime
    """Fires before are not ahead."""

    @property
    def end(self) -> datetime:
        """Where the last step ends."""
        return self.start + self.steps * self.step


class StepAnswer(BaseModel):
    """One step."""

    at: datetime = Field(description="Where it begins.")
    fires: int


class CrowdedJob(BaseModel):
    """A job in a hot spot."""

    job_id: str
    name: str
    fires: int


class HotSpot(BaseModel):
    """One of the busiest steps, busier than the average by a quarter at least."""

    at: datetime
    fires: int
    jobs: int = Field(description="How many jobs make it.")
    busiest: list[CrowdedJob] = Field(description="Those with the most fires in it.")
    suggestion: str | None = Field(description="What would spread it; null where jitter would not.")


class ForecastAnswer(BaseModel):
    """Fires ahead, step by step."""

    start: datetime = Field(alias="from", serialization_alias="from")
    to: datetime = Field(description="Where the last step ends.")
    step_seconds: int
    fires: int = Field(description="In all steps.")
    jobs: int = Field(description="Jobs that were counted.")
    steps: list[StepAnswer]
    hot_spots: list[HotSpot] = Field(description="The busiest first.")
    complete: bool = Field(description="false where there was not the time to count all jobs.")
    left_out: int = Field(description="Jobs that were not counted: those whose next fire comes last.")
    exact_until: datetime = Field(description="Steps that end by then have all their fires.")


@dataclass
class _Counted:
    """A job that was counted."""

    job: ScheduledJob
    schedule: Schedule
    per_step: Sequence[int]


@dataclass
class ForecastTally:
    """The count while jobs are added."""

    horizon: Horizon
    left_out: int = 0
    exact_until: datetime = field(init=False)
    _counted: list[_Counted] = field(default_factory=list)
    _schedules: dict[str, Schedule] = field(default_factory=dict)
    _known: dict[tuple[str, timedelta, str], FireCount] = field(default_factory=dict)
    _alike: Counter[int] = field(default_factory=Counter)
    """How many jobs have the same count, by its identity."""

    def __post_init__(self) -> None:
        self.exact_until = self.horizon.end

    def add(self, job: ScheduledJob) -> None:
        """Count a job. One whose schedule means nothing to this release has no fires."""
        try:
            schedule = self._read(job.schedule)
            per_step = self._count(job, schedule)
        except InvalidSchedule:
            return
        self._counted.append(_Counted(job, schedule, per_step))
        self._alike[id(per_step)] += 1

    def leave_out(self, jobs: int, *, next_fire: datetime) -> None:
        """Note jobs that there is no time for, and when the first of them fires."""
        self.left_out += jobs
        self.exact_until = min(self.exact_until, max(next_fire, self.horizon.start))

    def answer(self) -> ForecastAnswer:
        """Say what was counted."""
        horizon, totals = self.horizon, self._add_up()
        return ForecastAnswer.model_validate(
            {
                "from": horizon.start,
                "to": horizon.end,
                "step_seconds": horizon.step // _SECOND,
                "fires": sum(totals),
                "jobs": len(self._counted),
                "steps": [
                    StepAnswer(at=horizon.start + index * horizon.step, fires=fires)
                    for index, fires in enumerate(totals)
                ],
                "hot_spots": [self._describe(index, totals) for index in self._hottest(totals)],
                "complete": self.left_out == 0,
                "left_out": self.left_out,
                "exact_until": self.exact_until,
            }
        )

    def _add_up(self) -> list[int]:
        totals = [0] * self.horizon.steps
        for per_step in {id(each.per_step): each.per_step for each in self._counted}.values():
            jobs = self._alike[id(per_step)]
            for index, fires in enumerate(per_step):
                if fires:
                    totals[index] += fires * jobs
        return totals

    def _read(self, text: str) -> Schedule:
        if (schedule := self._schedules.get(text)) is None:
            schedule = self._schedules[text] = Schedule.model_validate_json(text)
        return schedule

    def _count(self, job: ScheduledJob, schedule: Schedule) -> Sequence[int]:
        offset = _offset_of(job, schedule)
        if schedule.max_runs is not None:
            counts = self._count_from(job, schedule, offset=offset).per_step
            return _first_of(counts, max(0, schedule.max_runs - job.started))
        key = (job.schedule, offset, job.job_id if _may_be_hashed(schedule) else "")
        if (known := self._known.get(key)) is None:
            known = self._known[key] = self._count_after(job.job_id, schedule, offset=offset, after=None)
        first = job.resumes_at or job.next_run_at
        if known.first is None or first is None or known.first >= first:
            return known.per_step
        # Fires of this job alone were used up, or are held.
        return self._count_from(job, schedule, offset=offset).per_step

    def _count_from(self, job: ScheduledJob, schedule: Schedule, *, offset: timedelta) -> FireCount:
        after = job.resumes_at
        if after is None and job.next_run_at is not None:
            after = job.next_run_at - _SECOND
        return self._count_after(job.job_id, schedule, offset=offset, after=after)

    def _count_after(self, job_id: str, schedule: Schedule, *, offset: timedelta, after: datetime | None) -> FireCount:
        """Count by nominal times, with steps that are as much earlier as targets are later."""
        horizon = self.horizon
        ahead = _last_second_before(horizon.now) - offset
        return count_fires(
            schedule,
            job_id=job_id,
            start=horizon.start - offset,
            steps=horizon.steps,
            step=horizon.step,
            after=ahead if after is None else max(after, ahead),
        )

    def _describe(self, index: int, totals: Sequence[int]) -> HotSpot:
        crowd = [each for each in self._counted if each.per_step[index]]
        busiest = nlargest(JOBS_NAMED, crowd, key=lambda each: each.per_step[index])
        return HotSpot(
            at=self.horizon.start + index * self.horizon.step,
            fires=totals[index],
            jobs=len(crowd),
            busiest=[
                CrowdedJob(job_id=each.job.job_id, name=each.job.name, fires=each.per_step[index]) for each in busiest
            ],
            suggestion=self._suggest(index, crowd, fires=totals[index], usual=self._usual(totals)),
        )

    def _usual(self, totals: Sequence[int]) -> float:
        """Say how many fires a step has on average. One that has begun has no longer all of its own."""
        whole = totals[1:] if self.horizon.start < self.horizon.now and len(totals) > 1 else totals
        return sum(whole) / len(whole)

    def _hottest(self, totals: Sequence[int]) -> list[int]:
        least = self._usual(totals) * HOT
        busy = [index for index, fires in enumerate(totals) if fires > least]
        return nlargest(HOT_SPOTS, busy, key=lambda index: (totals[index], -index))

    def _suggest(self, index: int, crowd: Sequence[_Counted], *, fires: int, usual: float) -> str | None:
        """Say how wide a jitter would bring a step down to the average."""
        step = self.horizon.step
        wanted = WIDEST_JITTER if usual == 0 else min(step * (fires / usual), WIDEST_JITTER)
        window = timedelta(minutes=-(-wanted // timedelta(minutes=1)))
        narrow = [
            each
            for each in crowd
            # Those that fire more often than that cannot be spread so far.
            if each.per_step[index] <= max(1, step / window) and _may_be_spread(each.schedule, window)
        ]
        if len(narrow) < 2 or sum(each.per_step[index] for each in narrow) < fires * WORTH_IT:
            return None
        return (
            f"jitter_window_seconds of {window // _SECOND} ({describe_duration(window)}) on the {len(narrow)} jobs here "
            "that have less and are not time_critical would spread their starts"
        )


def _offset_of(job: ScheduledJob, schedule: Schedule) -> timedelta:
    """Say how much later than its nominal times a job starts, in whole seconds."""
    if job.next_run_at is not None and job.next_target_at is not None:
        # What the planner has found costs nothing to know.
        exact = job.next_target_at - job.next_run_at
    else:
        exact = jitter_offset(schedule, job_id=job.job_id)
    return timedelta(seconds=exact // _SECOND)


def _may_be_hashed(schedule: Schedule) -> bool:
    """Say whether the fires may depend on the job's id: those of an ``H`` do."""
    expressions = [*schedule.exclude.cron, *([schedule.rule.expression] if isinstance(schedule.rule, CronRule) else [])]
    return any("h" in expression.lower() for expression in expressions)


def _last_second_before(moment: datetime) -> datetime:
    return (moment - timedelta(microseconds=1)).replace(microsecond=0)


def _first_of(counts: Sequence[int], most: int) -> Sequence[int]:
    """Keep the first ``most`` fires."""
    kept = []
    for count in counts:
        kept.append(min(count, most))
        most -= kept[-1]
    return kept


def _may_be_spread(schedule: Schedule, window: timedelta) -> bool:
    if schedule.time_critical or isinstance(schedule.rule, OneOffRule):
        return False
    asked = DEFAULT_JITTER if schedule.jitter_window_seconds is None else schedule.jitter_window_seconds
    return timedelta(seconds=asked) < window
