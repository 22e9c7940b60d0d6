"""A schedule in words, for people who check that they wrote what they meant.

Never raises for a schedule that ``schedule_parser`` accepts. Intervals say *elapsed time* and never a time of day,
because a zone does not move them.
"""

from datetime import UTC, datetime
from typing import assert_never

from workflows.clock_mask import clock_mask, list_seconds
from workflows.cron_description import describe_cron
from workflows.cron_expression import parse_cron
from workflows.duration import describe_duration
from workflows.recurrence import read_recurrence
from workflows.recurrence_text import Frequency, RecurrenceParts, parse_recurrence
from workflows.schedule import (
    BusinessDays,
    CronRule,
    DstPolicy,
    Exclusions,
    FoldPolicy,
    GapPolicy,
    IntervalRule,
    OneOffRule,
    Roll,
    RRuleRule,
    Schedule,
)
from workflows.wording import MONTHS, WEEKDAYS, capitalise, join_words, list_ordinals, list_runs, ordinal

_DEFAULT_ANCHOR = IntervalRule().anchor
_MOST_LISTED = 3
_MOST_TIMES = 6

_UNITS = {
    Frequency.YEARLY: "year",
    Frequency.MONTHLY: "month",
    Frequency.WEEKLY: "week",
    Frequency.DAILY: "day",
    Frequency.HOURLY: "hour",
    Frequency.MINUTELY: "minute",
    Frequency.SECONDLY: "second",
}

_GAPS = {
    GapPolicy.FIRST_VALID: "times that a clock change skips run once, right after it",
    GapPolicy.SKIP: "times that a clock change skips are left out",
    GapPolicy.KEEP_OFFSET: "times that a clock change skips run as much later as it skips",
}
_FOLDS = {
    FoldPolicy.FIRST: "times that come twice run the first time only",
    FoldPolicy.SECOND: "times that come twice run the second time only",
    FoldPolicy.BOTH: "times that come twice run both times",
}


def describe_schedule(schedule: Schedule, *, job_id: str = "") -> str:
    """Describe a schedule, such as ``At 09:00, only on Monday, New York time``.

    With a job's id, what ``H`` stands for is told as well.
    """
    parts = [
        _describe_rule(schedule, job_id),
        *_describe_business_days(schedule.business_days),
        *_describe_bounds(schedule),
        *_describe_exclusions(schedule.exclude, job_id),
        *([f"only on days of {join_words(only, last='or')}"] if (only := schedule.only.calendars) else []),
    ]
    deviations = _describe_dst(schedule.dst) if not isinstance(schedule.rule, IntervalRule) else []
    return "; ".join([", ".join(part for part in parts if part), *deviations])


def describe_zone(name: str) -> str:
    """Name a zone as people do: ``New York time``, ``UTC``."""
    if name.startswith("Etc/GMT") and name[7:8] in ("+", "-"):
        return f"UTC{'-' if name[7] == '+' else '+'}{name[8:]}"
    if "/" not in name or name.startswith("Etc/"):
        return name.removeprefix("Etc/")
    return f"{name.rpartition('/')[2].replace('_', ' ')} time"


def _describe_rule(schedule: Schedule, job_id: str) -> str:
    rule, zone = schedule.rule, describe_zone(schedule.timezone)
    match rule:
        case CronRule():
            expression = parse_cron(rule.expression, job_id=job_id)
            return f"{describe_cron(expression, knows_job=bool(job_id))}, {zone}"
        case IntervalRule():
            since = "" if rule.anchor == _DEFAULT_ANCHOR else f", counted from {_show(rule.anchor)}"
            return f"Every {describe_duration(rule.every)} of elapsed time{since}"
        case OneOffRule():
            return f"Once, at {_show(rule.at)}" if rule.at else f"Once, at {rule.local:%Y-%m-%d %H:%M:%S}, {zone}"
        case RRuleRule():
            return f"{_describe_recurrence(rule)}, {zone}"
        case _ as never:
            assert_never(never)


def _describe_bounds(schedule: Schedule) -> list[str]:
    parts = []
    if schedule.start_at is not None:
        parts.append(f"from {_show(schedule.start_at)}")
    if schedule.end_at is not None:
        parts.append(f"until {_show(schedule.end_at)}")
    if schedule.max_runs is not None:
        parts.append(f"at most {schedule.max_runs} run" + ("s" if schedule.max_runs > 1 else ""))
    return parts


def _describe_business_days(rule: BusinessDays | None) -> list[str]:
    if rule is None:
        return []
    days = f"business days of {rule.calendar}" if rule.calendar else "business days"
    match rule.roll:
        case Roll.NEXT:
            return [f"moved to the next of the {days}"]
        case Roll.PREVIOUS:
            return [f"moved to the last of the {days} before"]
        case Roll.SKIP:
            return [f"only on {days}"]
        case _ as never:
            assert_never(never)


def _describe_exclusions(exclude: Exclusions, job_id: str) -> list[str]:
    parts = []
    if exclude.dates:
        listed = join_words(day.isoformat() for day in exclude.dates)
        parts.append(f"except on {listed if len(exclude.dates) <= _MOST_LISTED else f'{len(exclude.dates)} dates'}")
    if exclude.calendars:
        parts.append(f"except on days of {join_words(exclude.calendars)}")
    for text in exclude.cron:
        words = describe_cron(parse_cron(text, job_id=job_id), knows_job=bool(job_id))
        parts.append(f"except {words[:1].lower()}{words[1:]}")
    return parts


def _describe_dst(dst: DstPolicy) -> list[str]:
    gap = [_GAPS[dst.gap]] if dst.gap else []
    return [*gap, _FOLDS[dst.fold]] if dst.fold else gap


def _describe_recurrence(rule: RRuleRule) -> str:
    given, resolved = parse_recurrence(rule.rrule), read_recurrence(rule).parts
    unit = _UNITS[resolved.frequency]
    every = f"every {unit}" if resolved.interval == 1 else f"every {resolved.interval} {unit}s"
    parts = [every, *_describe_recurrence_days(resolved), _describe_recurrence_times(resolved)]
    if resolved.by_set_position:
        parts.append(f"only the {list_ordinals(resolved.by_set_position)} of these each {unit}")
    if rule.dtstart is not None and rule.dtstart.year > 1970:
        parts.append(f"from {rule.dtstart:%Y-%m-%d}")
    if given.until is not None:
        parts.append(f"until {_show(given.until)}")
    if given.count is not None:
        parts.append(f"{given.count} times" if given.count > 1 else "once")
    return capitalise(", ".join(part for part in parts if part))


def _describe_recurrence_days(parts: RecurrenceParts) -> list[str]:
    days = []
    if parts.by_month:
        days.append(f"in {list_runs(parts.by_month, lambda month: MONTHS[month - 1])}")
    if parts.by_week_number:
        days.append(f"in the {list_ordinals(parts.by_week_number)} week of the year")
    if parts.by_year_day:
        days.append(f"on the {list_ordinals(parts.by_year_day)} day of the year")
    if parts.by_month_day:
        days.append(f"on the {list_ordinals(parts.by_month_day)} day of the month")
    if parts.by_day:
        days.append(f"{'if it is' if parts.by_month_day or parts.by_year_day else 'on'} {_describe_weekdays(parts)}")
    return days


def _describe_weekdays(parts: RecurrenceParts) -> str:
    plain = [weekday for weekday, nth in parts.by_day if not nth]
    words = [list_runs(plain, lambda weekday: WEEKDAYS[weekday])] if plain else []
    words += [f"the {ordinal(nth)} {WEEKDAYS[weekday]}" for weekday, nth in parts.by_day if nth]
    return join_words(words)


def _describe_recurrence_times(parts: RecurrenceParts) -> str:
    if parts.frequency > Frequency.DAILY:
        fields = ((parts.by_hour, "hour"), (parts.by_minute, "minute"), (parts.by_second, "second"))
        return ", ".join(f"at {unit} {list_runs(values)}" for values, unit in fields if values and values != (0,))
    seconds = list(list_seconds(clock_mask(*map(frozenset, (parts.by_hour, parts.by_minute, parts.by_second)))))
    if len(seconds) > _MOST_TIMES:
        return f"at {len(seconds)} times of the day"
    shown = (f"{at // 3600:02}:{at // 60 % 60:02}" + (f":{at % 60:02}" if at % 60 else "") for at in seconds)
    return f"at {join_words(shown)}"


def _show(moment: datetime) -> str:
    if moment.tzinfo is None:
        return f"{moment:%Y-%m-%d %H:%M:%S}"
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
