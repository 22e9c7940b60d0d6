"""Short ways to say in a test what a caller would send."""

import os
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter

from workflows.fire_times import next_fires
from workflows.schedule import CronRule, DstPolicy, Fire, FoldPolicy, GapPolicy, Schedule
from workflows.schedule_input import ScheduleInput
from workflows.schedule_parser import NO_CALENDARS, Calendars, ParsedSchedule, parse_schedule

EXAMPLES = int(os.environ.get("HORARIUM_EXAMPLES", "12"))
"""Examples of each property. Few by default, so that the folder stays quick; a change of the calculator deserves 2,000."""

_INPUT = TypeAdapter(ScheduleInput)


def parsed(
    schedule: Any,
    timezone: str | None = None,
    *,
    job_id: str = "job",
    calendars: Calendars = NO_CALENDARS,
    **fields: Any,
) -> ParsedSchedule:
    """Read a body of JSON values as the API does."""
    given = {"schedule": schedule, "timezone": timezone, **fields}
    return parse_schedule(_INPUT.validate_python(given), job_id=job_id, calendars=calendars)


def cron(
    expression: str, timezone: str = "UTC", *, gap: GapPolicy | None = None, fold: FoldPolicy | None = None
) -> Schedule:
    """A cron schedule without jitter, not parsed."""
    rule = CronRule(expression=expression)
    return Schedule(rule=rule, timezone=timezone, dst=DstPolicy(gap=gap, fold=fold), time_critical=True)


def at(text: str) -> datetime:
    """An instant from its ISO form, in UTC."""
    return datetime.fromisoformat(text).astimezone(UTC)


def nominals(fires: list[Fire]) -> list[str]:
    """Nominal times as ``2026-03-08T07:00Z``, with seconds only where there are any."""
    return [_show(fire.nominal) for fire in fires]


def next_nominals(schedule: Schedule, after: str, count: int) -> list[str]:
    """The next fires, as ``nominals`` shows them."""
    return nominals(next_fires(schedule, job_id="job", after=at(after), count=count))


def _show(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M}" + (f":{moment:%S}" if moment.second else "") + "Z"
