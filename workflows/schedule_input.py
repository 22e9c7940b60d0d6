"""What a caller sends to describe a schedule, before anything of it is believed.

Types are wide where people make mistakes, so that ``schedule_parser`` can refuse in words that help; what is no JSON of
this shape at all is pydantic's to refuse. All local times without an offset are meant in ``timezone``.
"""

from datetime import date, datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Strict, StrictBool, StrictFloat, StrictInt, StrictStr

StrictTime = Annotated[datetime, Strict()]
"""A time as a value: a number is none, which pydantic would take for seconds since 1970."""


class _Input(BaseModel):
    """A frozen value from outside; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ScheduleObject(_Input):
    """A schedule spelled as an object. Exactly one of ``cron``, ``every``, ``at`` and ``rrule`` is given."""

    cron: StrictStr | None = None
    every: StrictStr | StrictInt | StrictFloat | StrictBool | None = None
    """Elapsed time: seconds, ``15m``, ``1h30m`` or ISO 8601 such as ``PT6H``."""

    anchor: StrictStr | StrictTime | None = None
    """With ``every``: a point of the grid."""

    at: StrictStr | StrictTime | None = None
    rrule: StrictStr | None = None
    """The RRULE value, or lines ``DTSTART...`` and ``RRULE:...``."""

    dtstart: StrictStr | StrictTime | None = None
    """With ``rrule``: its start, where the text has none."""


class DstInput(_Input):
    gap: StrictStr | None = None
    fold: StrictStr | None = None


class ExcludeInput(_Input):
    dates: tuple[StrictStr | Annotated[date, Strict()], ...] = ()
    calendars: tuple[StrictStr, ...] = ()
    """Names of calendars on whose days nothing fires."""

    cron: tuple[StrictStr, ...] = ()


class OnlyInput(_Input):
    calendars: tuple[StrictStr, ...] = ()
    """Names of calendars; on days that are in none of them nothing fires."""


class BusinessDaysInput(_Input):
    calendar: StrictStr | None = None
    """The calendar of holidays, which also says what a weekend is; without one, Saturday and Sunday alone count."""

    roll: StrictStr
    """What becomes of a fire on another day: ``next`` or ``previous`` business day at the same local time, or ``skip``."""


class ScheduleInput(_Input):
    """The fields of a job or a preview that say when it fires."""

    schedule: StrictStr | ScheduleObject
    """A cron expression, an ISO 8601 time, ``@every 15m``, or an object."""

    timezone: StrictStr | None = None
    """``None``: the zone that the schedule itself names, else UTC."""

    dst: DstInput | None = None
    exclude: ExcludeInput | None = None
    only: OnlyInput | None = None
    business_days: BusinessDaysInput | None = None
    start_at: StrictStr | StrictTime | None = None
    end_at: StrictStr | StrictTime | None = None
    max_runs: StrictInt | None = None
    jitter_window_seconds: StrictInt | StrictFloat | None = None
    time_critical: StrictBool = False
