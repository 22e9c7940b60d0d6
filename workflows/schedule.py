"""When a job fires, as values.

Owns the shape of a schedule and of a fire. Says nothing about how fire times are computed (``fire_times``) or how a
caller spells a schedule (``schedule_parser``). All instants are aware and in UTC; local times are naive and belong to
``Schedule.timezone``.
"""

from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from workflows.value import Value


class GapPolicy(StrEnum):
    """What becomes of a local time that a zone change removes."""

    FIRST_VALID = "first_valid"
    """One fire at the first valid instant after the gap, however many times fell into it."""

    SKIP = "skip"
    """No fire."""

    KEEP_OFFSET = "keep_offset"
    """The instant that the offset before the gap gives: 02:30 becomes 03:30 on the new clock."""


class FoldPolicy(StrEnum):
    """In which pass of a repeated local time a job fires."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class DstPolicy(Value):
    """What a job does in the nights of zone changes. ``None`` means the rule of docs/schedules.md, "Daylight saving"."""

    gap: GapPolicy | None = None
    """``None``: ``first_valid`` where the hours are named; else the job follows real time."""

    fold: FoldPolicy | None = None
    """``None``: ``first`` for a fixed-time expression and for local one-offs and RRULEs; ``both`` for any other."""


class CronRule(Value):
    """A cron expression of five fields, or six with seconds first, or a nickname. See ``cron_expression``."""

    kind: Literal["cron"] = "cron"
    expression: str = ""


class IntervalRule(Value):
    """Every ``every`` of elapsed time, on the grid through ``anchor``. A zone does not move it."""

    kind: Literal["interval"] = "interval"
    every: timedelta = timedelta(hours=1)
    """Whole seconds, at least one."""

    anchor: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    """A point of the grid, whole seconds. Default the Unix epoch, so that a preview and a job agree."""


class OneOffRule(Value):
    """One fire. Exactly one of ``at`` and ``local`` is given."""

    kind: Literal["one_off"] = "one_off"
    at: datetime | None = None
    """The instant, whole seconds."""

    local: datetime | None = None
    """A naive local time in the schedule's zone, whole seconds."""


class IfPast(StrEnum):
    """What a new job does whose one fire lies in the past. Without a word about it, such a job is refused."""

    RUN_NOW = "run_now"
    SKIP = "skip"
    """Nothing: the job is completed at once, and the ledger says ``missed``."""


class RRuleRule(Value):
    """An RFC 5545 recurrence in the schedule's zone."""

    kind: Literal["rrule"] = "rrule"
    rrule: str = ""
    """The RRULE value without its name, such as ``FREQ=MONTHLY;BYDAY=-1FR``."""

    dtstart: datetime | None = None
    """Naive local start, whole seconds. ``None`` only before ``schedule_parser`` has filled in the default."""


Rule = Annotated[CronRule | IntervalRule | OneOffRule | RRuleRule, Field(discriminator="kind")]


class CalendarDays(Value):
    """A calendar as a job knows it: its days, of the time when the job or the calendar was written last."""

    name: str = ""
    version: int = 0
    """Of the calendar: microseconds when it was written. Another version may have the same days."""

    spans: tuple[tuple[date, date], ...] = ()
    """First and last date of each stretch of days, both inclusive; in order, none touching the next."""

    weekend: tuple[int, ...] = (5, 6)
    """Weekdays, Monday 0, that are no business days either. They are no days of the calendar."""


class Roll(StrEnum):
    """What becomes of a fire on a day that is no business day."""

    NEXT = "next"
    """It moves to the next business day, at the same local time, and merges with a fire that is there."""

    PREVIOUS = "previous"
    """It moves to the business day before, in the same way."""

    SKIP = "skip"
    """It is excluded."""


class BusinessDays(Value):
    """On which days a job may fire, and what becomes of fires on others."""

    calendar: str | None = None
    """Name of the calendar of holidays; ``None``: only Saturday and Sunday are no business days."""

    roll: Roll = Roll.NEXT


class Exclusions(Value):
    """Fires that the rule names and the owner does not want. An excluded fire stands in the ledger as ``excluded``."""

    dates: tuple[date, ...] = ()
    """Local dates on which nothing fires."""

    calendars: tuple[str, ...] = ()
    """Names of calendars on whose days nothing fires."""

    cron: tuple[str, ...] = ()
    """Cron expressions in the schedule's zone; a fire whose local minute (second, for six fields) matches is excluded."""


class OnlyOn(Value):
    """Days outside of which every fire is excluded. Empty: there is no such bound."""

    calendars: tuple[str, ...] = ()
    """Names of calendars; a day of any of them will do."""


class Schedule(Value):
    """Everything that decides the nominal times of a job."""

    rule: Rule = CronRule()
    timezone: str = "UTC"
    dst: DstPolicy = DstPolicy()
    business_days: BusinessDays | None = None
    """Applied to what the rule names; exclusions and bounds then look at the times that come of it."""

    exclude: Exclusions = Exclusions()
    only: OnlyOn = OnlyOn()
    calendars: tuple[CalendarDays, ...] = ()
    """Those that are named above, by name. Kept here so that a fire asks nobody for them."""

    start_at: datetime | None = None
    """No fire before this instant; one exactly at it counts."""

    end_at: datetime | None = None
    """No fire after this instant; one exactly at it counts."""

    max_runs: int | None = None
    """At most so many scheduled and catch-up runs are started; then the job is completed."""

    jitter_window_seconds: float | None = None
    """Width of the jitter window. ``None``: 60 s or a tenth of the shortest gap, whichever is less; 0 for one-offs."""

    time_critical: bool = False
    """No jitter at all."""


class Fire(Value):
    """One nominal time of a job."""

    nominal: datetime
    """The identity of the fire: what the schedule says, in UTC, whole seconds."""

    target: datetime
    """Nominal time plus the job's jitter offset: when it should start."""

    excluded_by: str | None = None
    """Why this fire is not wanted, such as ``date 2026-12-25`` or ``calendar de-holidays``; ``None`` for one that is."""


class FireRange(Value):
    """Consecutive fires of one kind, told by their ends."""

    first: datetime
    last: datetime
    count: int
    excluded_by: str | None = None
    """As in ``Fire``; all fires of the range share it."""


class FireSurvey(Value):
    """What lies in a stretch of time, without a line for each fire."""

    ranges: tuple[FireRange, ...] = ()
    """All fires of the stretch in order, neighbours of one kind joined."""

    newest: tuple[Fire, ...] = ()
    """The newest fires that are not excluded, oldest of them first."""

    through: datetime
    """The stretch was surveyed up to and including this instant: the asked end, or earlier where there was too much."""
