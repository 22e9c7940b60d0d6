"""Days of calendars: whether a date is one, and which the next business day is.

Pure. Days count from 1970-01-01, as in ``fire_walk``. A calendar has at most a few thousand spans, and every question is
answered by a search among them, or by stepping over those that touch.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta

from workflows.error import InvalidSchedule
from workflows.schedule import BusinessDays, CalendarDays, Schedule
from workflows.zone import DAY, FIRST_INSTANT, LAST_INSTANT, to_day

_FIRST_DAY = FIRST_INSTANT // DAY
_LAST_DAY = LAST_INSTANT // DAY

_THURSDAY = 3
"""Weekday of day 0, Monday being 0."""


@dataclass(frozen=True, slots=True)
class DaySet:
    """Stretches of days, in order, none touching the next."""

    firsts: tuple[int, ...] = ()
    lasts: tuple[int, ...] = ()

    def span_of(self, day: int) -> tuple[int, int] | None:
        """Find the stretch that a day lies in."""
        index = bisect_right(self.firsts, day) - 1
        return (self.firsts[index], self.lasts[index]) if index >= 0 and day <= self.lasts[index] else None

    def __contains__(self, day: int) -> bool:
        return self.span_of(day) is not None


@dataclass(frozen=True, slots=True)
class WorkingDays:
    """Which days are business days: those neither at the weekend nor in the calendar."""

    closed: DaySet
    """The calendar's stretches with the weekends that they touch, so that none is followed by another."""

    weekend: frozenset[int]

    def __contains__(self, day: int) -> bool:
        return not _is_one_of(self.weekend, day) and day not in self.closed

    def next_from(self, day: int) -> int | None:
        """The first business day from ``day`` on; ``None`` where time as we know it ends before."""
        while day <= _LAST_DAY:
            span = self.closed.span_of(day)
            if span is not None:
                day = span[1] + 1
            elif _is_one_of(self.weekend, day):
                day += 1
            else:
                return day
        return None

    def previous_from(self, day: int) -> int | None:
        """The last business day up to ``day``; ``None`` where there is none since the year 1."""
        while day >= _FIRST_DAY:
            span = self.closed.span_of(day)
            if span is not None:
                day = span[0] - 1
            elif _is_one_of(self.weekend, day):
                day -= 1
            else:
                return day
        return None


def join_spans(spans: Iterable[tuple[date, date]]) -> tuple[tuple[date, date], ...]:
    """Put stretches of days in order, and join those that touch or overlap."""
    joined: list[tuple[date, date]] = []
    for first, last in sorted(spans):
        if joined and (joined[-1][1] == date.max or first <= joined[-1][1] + timedelta(days=1)):
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return tuple(joined)


def day_set(calendar: CalendarDays) -> DaySet:
    """Prepare a calendar's days for many questions."""
    spans = calendar.spans
    return DaySet(tuple(to_day(first) for first, _ in spans), tuple(to_day(last) for _, last in spans))


def find_calendar(schedule: Schedule, name: str, *, pointer: str) -> CalendarDays:
    """Find a calendar that a schedule names. Raises InvalidSchedule where the schedule does not carry it."""
    found = next((each for each in schedule.calendars if each.name == name), None)
    if found is None:
        raise InvalidSchedule(f"there is no calendar {name[:100]!r}", pointer=pointer)
    return found


def working_days(schedule: Schedule, rule: BusinessDays) -> WorkingDays:
    """Prepare the business days of a schedule for many questions. Raises InvalidSchedule as ``find_calendar`` does."""
    calendar = CalendarDays()
    if rule.calendar is not None:
        calendar = find_calendar(schedule, rule.calendar, pointer="/business_days/calendar")
    weekend = frozenset(calendar.weekend)
    return WorkingDays(_with_weekends(day_set(calendar), weekend), weekend)


def _with_weekends(days: DaySet, weekend: frozenset[int]) -> DaySet:
    """Let stretches reach over the weekends that they touch, and be one where they then touch each other."""
    firsts: list[int] = []
    lasts: list[int] = []
    for first, last in zip(days.firsts, days.lasts, strict=True):
        while first > _FIRST_DAY and _is_one_of(weekend, first - 1):
            first -= 1
        while last < _LAST_DAY and _is_one_of(weekend, last + 1):
            last += 1
        if lasts and first <= lasts[-1] + 1:
            lasts[-1] = last
        else:
            firsts.append(first)
            lasts.append(last)
    return DaySet(tuple(firsts), tuple(lasts))


def _is_one_of(weekdays: frozenset[int], day: int) -> bool:
    return (day + _THURSDAY) % 7 in weekdays
