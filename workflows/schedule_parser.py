"""From what a caller sends to a ``Schedule``.

Owns the spelling of schedules: strings and objects, ISO times, lengths of time, zone names. Whatever is sent, the answer
is a schedule that the calculator can read, or InvalidSchedule with a JSON pointer and a reason that the sender
understands. Whether a readable schedule will ever fire is a second question, ``check_fires``, because it needs to know
from when on.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import TypeAlias, TypeVar

from workflows.cron_expression import parse_cron, refuse_impossible_dates
from workflows.duration import parse_duration
from workflows.error import InvalidSchedule
from workflows.fire_exclusion import excludes_anything
from workflows.fire_times import NO_ROLL, can_roll, next_fires, shortest_gap
from workflows.recurrence import DEFAULT_START, read_recurrence
from workflows.schedule import (
    BusinessDays,
    CalendarDays,
    CronRule,
    DstPolicy,
    Exclusions,
    FoldPolicy,
    GapPolicy,
    IntervalRule,
    OneOffRule,
    OnlyOn,
    Roll,
    RRuleRule,
    Rule,
    Schedule,
)
from workflows.schedule_input import BusinessDaysInput, DstInput, ExcludeInput, OnlyInput, ScheduleInput, ScheduleObject
from workflows.zone import load_zone, require_zone

_FIRST_MOMENT = datetime(1, 1, 1, tzinfo=UTC)
_LAST_MOMENT = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)

MAX_EXCLUDED_DATES = 1_000
MAX_EXCLUDED_CRONS = 20
MAX_CALENDARS = 10
"""Bounds of what is looked at for each fire."""

Calendars: TypeAlias = Mapping[str, CalendarDays]
"""The calendars that a schedule may name, by name."""

NO_CALENDARS: Calendars = {}

_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?(?:[Zz]|[+-][0-9]{2}:?[0-9]{2})?",
    re.ASCII,
)
_LOOKS_LIKE_TIME = re.compile(r"[0-9]{4}-[0-9]|[0-9]{8}T", re.ASCII)
_LOOKS_LIKE_RRULE = re.compile(r"(?:RRULE:|DTSTART|FREQ=)", re.IGNORECASE | re.ASCII)
_LOCAL_FORM = re.compile(r"([0-9]{8})(?:T([0-9]{6})(Z?))?", re.ASCII)
_DTSTART = re.compile(r"DTSTART((?:;[A-Z-]+=[^:;]*)*):(.*)", re.IGNORECASE | re.ASCII)

Policy = TypeVar("Policy", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class ParsedSchedule:
    """A readable schedule, and what its sender may not have expected of it."""

    schedule: Schedule
    warnings: tuple[str, ...] = ()
    pointer: str = "/schedule"
    """Where in the body the rule stands, for refusals found later."""


def parse_schedule(body: ScheduleInput, *, job_id: str, calendars: Calendars = NO_CALENDARS) -> ParsedSchedule:
    """Read what a caller sent. ``job_id`` may be empty for a preview without a job.

    Raises InvalidSchedule. Accepts schedules that never fire; ``check_fires`` refuses those.
    """
    reader = _RuleReader(body)
    rule = reader.read()
    exclude = _read_exclusions(body.exclude or ExcludeInput(), job_id)
    only = _read_only(body.only)
    business_days = _read_business_days(body.business_days)
    schedule = Schedule(
        rule=rule,
        timezone=reader.zone,
        dst=_read_dst(body.dst or DstInput()),
        business_days=business_days,
        exclude=exclude,
        only=only,
        calendars=_find_calendars(exclude, only, business_days, calendars),
        start_at=_read_bound(body.start_at, reader.zone, "/start_at"),
        end_at=_read_bound(body.end_at, reader.zone, "/end_at"),
        max_runs=_read_max_runs(body.max_runs),
        jitter_window_seconds=_read_jitter_window(body.jitter_window_seconds),
        time_critical=body.time_critical,
    )
    _refuse_unreadable(schedule, job_id, reader.pointer)
    return ParsedSchedule(schedule, tuple(_list_warnings(schedule, body, job_id)), reader.pointer)


def check_fires(parsed: ParsedSchedule, *, job_id: str, after: datetime) -> None:
    """Raise InvalidSchedule, with the reason, for a schedule that has no fire after ``after`` that is wanted."""
    schedule = parsed.schedule
    if schedule.start_at and schedule.end_at and schedule.end_at < schedule.start_at:
        raise InvalidSchedule("end_at is before start_at", pointer="/end_at")
    if isinstance(schedule.rule, CronRule):
        refuse_impossible_dates(parse_cron(schedule.rule.expression, job_id=job_id), pointer=parsed.pointer)
    if not next_fires(schedule, job_id=job_id, after=after, count=1):
        raise _explain_no_fire(parsed, job_id, after)


def parse_moment(given: str, *, timezone: str, pointer: str) -> datetime:
    """Read a time in UTC; without an offset it is local in ``timezone``. Raises InvalidSchedule."""
    return _to_utc(_read_time(given, pointer), timezone, pointer)


def _explain_no_fire(parsed: ParsedSchedule, job_id: str, after: datetime) -> InvalidSchedule:
    """Say which field is to blame, by leaving the others out one by one."""
    schedule = parsed.schedule
    unlimited = schedule.model_copy(update={"end_at": None})
    everything = unlimited.model_copy(update={"exclude": Exclusions(), "only": OnlyOn(), "business_days": None})
    if schedule.end_at is not None and next_fires(unlimited, job_id=job_id, after=after, count=1):
        return InvalidSchedule("never fires: end_at is before the first fire", pointer="/end_at")
    if excludes_anything(schedule) and next_fires(everything, job_id=job_id, after=after, count=1):
        return InvalidSchedule("never fires: every fire is excluded", pointer=_excluding_field(schedule))
    if isinstance(schedule.rule, OneOffRule):
        has_passed = next_fires(schedule, job_id=job_id, after=_FIRST_MOMENT, count=1)
        reason = (
            "its time has passed; a new job may say if_past: run_now or skip"
            if has_passed
            else "its time is outside of the calendar, which ends with the year 9999"
        )
        return InvalidSchedule(f"never fires: {reason}", pointer=parsed.pointer)
    return InvalidSchedule("never fires: no date and time match", pointer=parsed.pointer)


def _excluding_field(schedule: Schedule) -> str:
    if schedule.exclude != Exclusions():
        return "/exclude"
    return "/only" if schedule.only != OnlyOn() else "/business_days"


class _RuleReader:
    """Reads the rule and the zone, which the rule itself may name."""

    def __init__(self, body: ScheduleInput) -> None:
        self._schedule = body.schedule
        self._given_zone = body.timezone
        if body.timezone is not None:
            require_zone(body.timezone)
        self.zone = body.timezone or "UTC"
        self.pointer = "/schedule"

    def read(self) -> Rule:
        if isinstance(self._schedule, str):
            return self._read_text(self._schedule)
        return self._read_object(self._schedule)

    def _read_text(self, text: str) -> Rule:
        stripped = text.strip()
        if stripped[:6].lower() == "@every":
            return IntervalRule(every=parse_duration(stripped[6:], pointer=self.pointer))
        if _LOOKS_LIKE_TIME.match(stripped):
            return self._read_one_off(stripped)
        if _LOOKS_LIKE_RRULE.match(stripped):
            raise InvalidSchedule('a recurrence rule is given as an object: {"rrule": "FREQ=..."}')
        return CronRule(expression=text)

    def _read_object(self, given: ScheduleObject) -> Rule:
        kinds = [kind for kind in ("cron", "every", "at", "rrule") if getattr(given, kind) is not None]
        if len(kinds) != 1:
            raise InvalidSchedule("a schedule is exactly one of cron, every, at and rrule")
        self.pointer = f"/schedule/{kinds[0]}"
        if given.anchor is not None and given.every is None:
            raise InvalidSchedule("anchor goes with every only", pointer="/schedule/anchor")
        if given.dtstart is not None and given.rrule is None:
            raise InvalidSchedule("dtstart goes with rrule only", pointer="/schedule/dtstart")
        if given.cron is not None:
            return CronRule(expression=given.cron)
        if given.every is not None:
            return self._read_interval(given.every, given.anchor)
        if given.at is not None:
            return self._read_one_off(given.at)
        return self._read_rrule(given.rrule or "", given.dtstart)

    def _read_interval(self, every: str | float | bool, anchor: str | datetime | None) -> IntervalRule:
        length = parse_duration(every, pointer=self.pointer)
        if anchor is None:
            return IntervalRule(every=length)
        moment = _to_utc(_read_whole_time(anchor, "/schedule/anchor"), self.zone, "/schedule/anchor")
        return IntervalRule(every=length, anchor=moment)

    def _read_one_off(self, at: str | datetime) -> OneOffRule:
        moment = _read_whole_time(at, self.pointer)
        if moment.tzinfo is None:
            return OneOffRule(local=moment)
        return OneOffRule(at=_to_utc(moment, self.zone, self.pointer))

    def _read_rrule(self, text: str, dtstart: str | datetime | None) -> RRuleRule:
        value, start_line = _split_rrule(text)
        start = self._read_start_line(start_line) if start_line is not None else None
        if dtstart is not None:
            if start is not None:
                raise InvalidSchedule("DTSTART stands in the rule as well", pointer="/schedule/dtstart")
            start = self._to_local(_read_whole_time(dtstart, "/schedule/dtstart"), "/schedule/dtstart")
        return RRuleRule(rrule=value, dtstart=start or DEFAULT_START)

    def _read_start_line(self, line: str) -> datetime:
        match = _DTSTART.fullmatch(line)
        moment = _parse_local_form(match[2].strip()) if match else None
        if match is None or moment is None:
            raise self._refuse("DTSTART must look like DTSTART;TZID=Europe/Berlin:20260101T090000")
        for parameter in match[1].split(";")[1:]:
            name, _, value = parameter.partition("=")
            if name.upper() == "TZID":
                self._take_zone(value)
            elif name.upper() != "VALUE":
                raise self._refuse(f"{name} is not a parameter of DTSTART")
        return self._to_local(moment, self.pointer)

    def _take_zone(self, name: str) -> None:
        require_zone(name, pointer=self.pointer)
        if self._given_zone not in (None, name):
            raise self._refuse(f"its TZID {name!r} is not the timezone {self._given_zone!r}")
        self.zone = name

    def _to_local(self, moment: datetime, pointer: str) -> datetime:
        if moment.tzinfo is None:
            return moment
        try:
            return moment.astimezone(load_zone(self.zone)).replace(tzinfo=None, fold=0)
        except OverflowError as error:
            raise InvalidSchedule("the time is outside the years 1 to 9999", pointer=pointer) from error

    def _refuse(self, reason: str) -> InvalidSchedule:
        return InvalidSchedule(reason, pointer=self.pointer)


def _split_rrule(text: str) -> tuple[str, str | None]:
    """Find the rule's value and the DTSTART line, if there is one."""
    value: str | None = None
    start: str | None = None
    for line in (line.strip() for line in text.splitlines() if line.strip()):
        name = re.split("[:;=]", line, maxsplit=1)[0].upper()
        if name == "DTSTART" and start is None:
            start = line
        elif name in ("RRULE", "FREQ") or (value is None and name not in ("RDATE", "EXDATE", "EXRULE", "DTSTART")):
            if value is not None:
                raise InvalidSchedule("one RRULE a schedule", pointer="/schedule/rrule")
            value = line.partition(":")[2] if name == "RRULE" else line
        else:
            raise InvalidSchedule(f"{name[:20]!r} is not supported; use exclude for dates", pointer="/schedule/rrule")
    if value is None:
        raise InvalidSchedule("there is no recurrence rule such as FREQ=DAILY", pointer="/schedule/rrule")
    return value, start


def _parse_local_form(text: str) -> datetime | None:
    match = _LOCAL_FORM.fullmatch(text)
    if match is None:
        return None
    try:
        moment = datetime.strptime(match[1] + (match[2] or "000000"), "%Y%m%d%H%M%S")  # noqa: DTZ007
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if match[3] else moment


def _read_time(given: str | datetime, pointer: str) -> datetime:
    """Read an ISO 8601 time, aware where it has an offset."""
    if isinstance(given, datetime):
        return given
    text = given.strip()
    if not _TIME.fullmatch(text):
        shown = f"{text[:40]!r} is not a time such as 2026-06-08T09:00:00Z, or without Z for local time"
        raise InvalidSchedule(shown, pointer=pointer)
    try:
        return datetime.fromisoformat(text.upper().replace(" ", "T").replace(",", "."))
    except ValueError as error:
        raise InvalidSchedule(f"{text!r} is not a time: {error}", pointer=pointer) from error


def _read_whole_time(given: str | datetime, pointer: str) -> datetime:
    moment = _read_time(given, pointer)
    if moment.microsecond:
        raise InvalidSchedule("fires are at whole seconds", pointer=pointer)
    return moment


def _to_utc(moment: datetime, zone: str, pointer: str) -> datetime:
    """The instant of a time; a naive one is local in ``zone``, in the first pass where it comes twice."""
    try:
        return (moment if moment.tzinfo else moment.replace(tzinfo=load_zone(zone))).astimezone(UTC)
    except OverflowError as error:
        raise InvalidSchedule("the time is outside the years 1 to 9999", pointer=pointer) from error


def _read_bound(given: str | datetime | None, zone: str, pointer: str) -> datetime | None:
    """Read start_at or end_at. One that no clock can show in UTC is the nearest that it can."""
    if given is None:
        return None
    moment = _read_time(given, pointer)
    try:
        return _to_utc(moment, zone, pointer)
    except InvalidSchedule:
        return _FIRST_MOMENT if moment.year == 1 else _LAST_MOMENT


def _read_dst(given: DstInput) -> DstPolicy:
    return DstPolicy(
        gap=_read_policy(GapPolicy, given.gap, "/dst/gap"), fold=_read_policy(FoldPolicy, given.fold, "/dst/fold")
    )


def _read_policy(kind: type[Policy], given: str | None, pointer: str) -> Policy | None:
    if given is None:
        return None
    if given.lower() not in {member.value for member in kind}:
        raise InvalidSchedule(f"{given[:40]!r} is not one of {', '.join(kind)}", pointer=pointer)
    return kind(given.lower())


def _read_exclusions(given: ExcludeInput, job_id: str) -> Exclusions:
    if len(given.dates) > MAX_EXCLUDED_DATES:
        raise InvalidSchedule(f"at most {MAX_EXCLUDED_DATES} dates", pointer="/exclude/dates")
    if len(given.cron) > MAX_EXCLUDED_CRONS:
        raise InvalidSchedule(f"at most {MAX_EXCLUDED_CRONS} expressions", pointer="/exclude/cron")
    for index, text in enumerate(given.cron):
        parse_cron(text, job_id=job_id, pointer=f"/exclude/cron/{index}")
    dates = (_read_date(day, f"/exclude/dates/{index}") for index, day in enumerate(given.dates))
    calendars = _read_names(given.calendars, "/exclude/calendars")
    return Exclusions(dates=tuple(sorted(set(dates))), calendars=calendars, cron=given.cron)


def _read_only(given: OnlyInput | None) -> OnlyOn:
    if given is None:
        return OnlyOn()
    if not given.calendars:
        raise InvalidSchedule("name at least one calendar, or leave only out", pointer="/only/calendars")
    return OnlyOn(calendars=_read_names(given.calendars, "/only/calendars"))


def _read_business_days(given: BusinessDaysInput | None) -> BusinessDays | None:
    if given is None:
        return None
    roll = _read_policy(Roll, given.roll, "/business_days/roll")
    return BusinessDays(calendar=given.calendar, roll=roll or Roll.NEXT)


def _read_names(given: Sequence[str], pointer: str) -> tuple[str, ...]:
    if len(given) > MAX_CALENDARS:
        raise InvalidSchedule(f"at most {MAX_CALENDARS} calendars", pointer=pointer)
    return tuple(dict.fromkeys(given))


def _find_calendars(
    exclude: Exclusions, only: OnlyOn, business_days: BusinessDays | None, calendars: Calendars
) -> tuple[CalendarDays, ...]:
    """Take along the days of all calendars that are named. Raises InvalidSchedule for one that is not there."""
    named = {name: f"/only/calendars/{index}" for index, name in enumerate(only.calendars)}
    named |= {name: f"/exclude/calendars/{index}" for index, name in enumerate(exclude.calendars)}
    if business_days is not None and business_days.calendar is not None:
        named[business_days.calendar] = "/business_days/calendar"
    for name, pointer in named.items():
        if name not in calendars:
            raise InvalidSchedule(f"there is no calendar {name[:100]!r}", pointer=pointer)
    return tuple(calendars[name] for name in sorted(named))


def _read_date(given: str | date, pointer: str) -> date:
    if isinstance(given, date):
        return given
    try:
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", given, re.ASCII):
            raise ValueError("it must look like 2026-12-25")
        return date.fromisoformat(given)
    except ValueError as error:
        raise InvalidSchedule(f"{given[:40]!r} is not a date: {error}", pointer=pointer) from error


def _read_max_runs(given: int | None) -> int | None:
    if given is not None and not 1 <= given < 2**31:
        raise InvalidSchedule("max_runs must be at least 1", pointer="/max_runs")
    return given


def _read_jitter_window(given: float | None) -> float | None:
    if given is None:
        return None
    if not (math.isfinite(given) and 0 <= given <= 86_400):
        raise InvalidSchedule("the jitter window must be 0 to 86400 seconds", pointer="/jitter_window_seconds")
    return float(given)


def _refuse_unreadable(schedule: Schedule, job_id: str, pointer: str) -> None:
    _refuse_unreadable_rule(schedule, job_id, pointer)
    rule = schedule.business_days
    if rule is not None and rule.roll is not Roll.SKIP and not can_roll(schedule.rule):
        raise InvalidSchedule(NO_ROLL, pointer="/business_days/roll")


def _refuse_unreadable_rule(schedule: Schedule, job_id: str, pointer: str) -> None:
    match schedule.rule:
        case CronRule(expression=text):
            parse_cron(text, job_id=job_id, pointer=pointer)
        case RRuleRule() as rule:
            try:
                read_recurrence(rule)
            except InvalidSchedule as error:
                raise InvalidSchedule(error.reason, pointer=pointer, position=error.position) from None
        case IntervalRule() | OneOffRule():
            pass


def _list_warnings(schedule: Schedule, body: ScheduleInput, job_id: str) -> list[str]:
    expressions = list(schedule.exclude.cron)
    if isinstance(schedule.rule, CronRule):
        expressions.insert(0, schedule.rule.expression)
    parsed = [parse_cron(text, job_id=job_id) for text in expressions]
    warnings = [warning for expression in parsed for warning in expression.warnings]
    if not job_id and any(expression.is_hashed for expression in parsed):
        warnings.append("H depends on the job's id: without one this preview shows the times of no job in particular")
    warnings += [
        f"the excluded expression {expression.text!r} never matches a date"
        for expression in parsed[len(parsed) - len(schedule.exclude.cron) :]
        if not expression.names_any_date()
    ]
    return warnings + _list_time_warnings(schedule, job_id)


def _list_time_warnings(schedule: Schedule, job_id: str) -> list[str]:
    warnings = []
    if isinstance(schedule.rule, IntervalRule) and schedule.timezone != "UTC":
        warnings.append("an interval is elapsed time, not local days: the timezone does not move it")
    if schedule.timezone.startswith("Etc/GMT") and schedule.timezone[7:8] in ("+", "-"):
        sign = "-" if schedule.timezone[7] == "+" else "+"
        warnings.append(f"{schedule.timezone} is UTC{sign}{schedule.timezone[8:]}: these names turn the sign round")
    window = schedule.jitter_window_seconds
    gap = shortest_gap(schedule, job_id=job_id) if window else None
    if window and gap is not None and timedelta(seconds=window) > gap:
        warnings.append("the jitter window is longer than the shortest gap between two fires and is cut to it")
    return warnings
