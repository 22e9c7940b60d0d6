"""RFC 5545 recurrence rules, before any zone.

Owns what an RRULE means on the wall clock. Rules by the week, month and year get their dates from python-dateutil;
shorter ones are a grid with filters and are laid out here, because dateutil counts them up one by one from their start.
Two readings that the RFC leaves open: DTSTART itself fires only if the rule names it (as in dateutil), and a date as
UNTIL includes that whole day.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import MAXYEAR, date, datetime, time, timedelta
from functools import lru_cache
from typing import Literal

from dateutil import rrule as dateutil_rrule

from workflows.clock_mask import FULL_DAY, clock_mask, cut, grid_mask, list_seconds
from workflows.cron_expression import days_in_month
from workflows.error import InvalidSchedule
from workflows.recurrence_text import Frequency, RecurrenceParts, parse_recurrence
from workflows.schedule import RRuleRule
from workflows.zone import DAY, LAST_INSTANT, to_date, to_instant, to_local

DEFAULT_START = datetime(1970, 1, 1)  # noqa: DTZ001 - local by definition
"""DTSTART of a rule that gives none, fixed so that a preview and a job agree."""

_SEARCH_PERIODS = {Frequency.YEARLY: 60, Frequency.MONTHLY: 60 * 12, Frequency.WEEKLY: 60 * 53}
"""How far ahead a next date is looked for. 29 February on a given weekday can be forty years away."""

_DATEUTIL_FREQUENCIES: dict[Frequency, Literal[0, 1, 2]] = {
    Frequency.YEARLY: dateutil_rrule.YEARLY,
    Frequency.MONTHLY: dateutil_rrule.MONTHLY,
    Frequency.WEEKLY: dateutil_rrule.WEEKLY,
}

_SEARCH_STEPS = 20_000
"""Periods of a day or less that are looked at for the next day with a time: 54 years of days."""

_SEARCH_EMPTY_DAYS = 2_000
"""Days among them that pass the date filters and then hold no time. More than a grid of minutes needs to come round."""

_COUNTED_DAYS = 4_000
"""Days with fires in which COUNT must be reached, so that its end is found within the time of one call."""

_UNITS = {Frequency.DAILY: DAY, Frequency.HOURLY: 3_600, Frequency.MINUTELY: 60, Frequency.SECONDLY: 1}
_LAST_DAY = LAST_INSTANT // DAY
_ALL = frozenset(range(60))


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A rule with its start and with every default resolved."""

    parts: RecurrenceParts
    start: int
    """Local time of DTSTART."""

    until_local: int | None = None
    """Last local time that may fire: UNTIL without a zone, or the end of COUNT."""

    until_instant: int | None = None
    """Last instant that may fire: UNTIL in UTC."""

    @property
    def times(self) -> int:
        """Mask of the times of each day of a rule by days or longer."""
        parts = self.parts
        return clock_mask(frozenset(parts.by_hour), frozenset(parts.by_minute), frozenset(parts.by_second))


def read_recurrence(rule: RRuleRule) -> Recurrence:
    """Read a rule. Raises InvalidSchedule with the reason."""
    return _read(rule.rrule, rule.dtstart or DEFAULT_START)


@lru_cache(maxsize=1024)
def _read(text: str, start: datetime) -> Recurrence:
    parts = parse_recurrence(text)
    recurrence = Recurrence(_resolve_defaults(parts, start), to_local(start))
    if parts.until is not None and parts.until.tzinfo is not None:
        return replace(recurrence, until_instant=to_instant(parts.until))
    if parts.until is not None:
        return replace(recurrence, until_local=to_local(parts.until))
    if parts.count is not None:
        return replace(recurrence, until_local=_end_of_count(recurrence, parts.count))
    return recurrence


def _resolve_defaults(parts: RecurrenceParts, start: datetime) -> RecurrenceParts:
    """Fill in what the rule leaves to DTSTART (RFC 5545: "information missing from the rule")."""
    frequency = parts.frequency
    parts = replace(
        parts,
        by_hour=parts.by_hour or ((start.hour,) if frequency < Frequency.HOURLY else ()),
        by_minute=parts.by_minute or ((start.minute,) if frequency < Frequency.MINUTELY else ()),
        by_second=parts.by_second or ((start.second,) if frequency < Frequency.SECONDLY else ()),
    )
    if parts.by_day or parts.by_month_day or parts.by_year_day or frequency >= Frequency.DAILY:
        return parts
    if frequency is Frequency.WEEKLY or parts.by_week_number:
        return replace(parts, by_day=((start.weekday(), 0),))
    months = parts.by_month or ((start.month,) if frequency is Frequency.YEARLY else ())
    return replace(parts, by_month=months, by_month_day=(start.day,))


def _end_of_count(recurrence: Recurrence, count: int) -> int:
    """Find the local time of the last of ``count`` fires. Raises InvalidSchedule where that takes too long."""
    pattern, left = RecurrencePattern(recurrence), count
    day = pattern.next_day(recurrence.start // DAY, 0)
    for _ in range(_COUNTED_DAYS):
        if day is None:
            break
        mask = pattern.times_on(day, 0)
        if mask.bit_count() >= left:
            return day * DAY + next(second for number, second in enumerate(list_seconds(mask), 1) if number == left)
        left -= mask.bit_count()
        day = pattern.next_day(day + 1, 0)
    if day is None:
        return LAST_INSTANT
    raise InvalidSchedule(f"COUNT={count} reaches over more than {_COUNTED_DAYS} days; use UNTIL", position=0)


class RecurrencePattern:
    """The local times of a recurrence."""

    def __init__(self, recurrence: Recurrence) -> None:
        self._recurrence = recurrence
        self._start_day = recurrence.start // DAY
        self._last_day = _LAST_DAY if recurrence.until_local is None else recurrence.until_local // DAY
        self._exhausted_from: int | None = None
        """A day from which on a search found nothing: later ones are not worth another."""
        by_dates = recurrence.parts.frequency <= Frequency.WEEKLY
        self._days = _DateutilDays(recurrence) if by_dates else _GridDays(recurrence)

    @property
    def start(self) -> int:
        """The instant, to within a day, of the local time before which nothing fires."""
        return self._recurrence.start - DAY

    @property
    def daily_times(self) -> int | None:
        """Mask of the times that all its days share; ``None`` for a rule by the hour or less."""
        return self._recurrence.times if self._recurrence.parts.frequency <= Frequency.DAILY else None

    def next_day(self, day: int, offset: int) -> int | None:
        day = max(day, self._start_day)
        if self._exhausted_from is not None and day >= self._exhausted_from:
            return None
        found = self._days.next_day(day)
        if found is None or found > self._last_day:
            self._exhausted_from = day
            return None
        return found

    def times_on(self, day: int, offset: int) -> int:
        mask = self._days.times_on(day)
        until = self._recurrence.until_local
        first = self._recurrence.start - day * DAY
        last = DAY if until is None else until - day * DAY
        return cut(mask, first, last) if first > 0 or last < DAY else mask


class _DateutilDays:
    """Days of a rule by the week, month or year."""

    def __init__(self, recurrence: Recurrence) -> None:
        self._parts = recurrence.parts
        self._start = to_date(recurrence.start // DAY)
        self._times = recurrence.times
        self._dates: Iterator[int] = iter(())
        self._asked = 0
        self._found: int | None = None

    def next_day(self, day: int) -> int | None:
        if day >= _LAST_DAY:
            return None
        # Dates come from a running rule; only a step back, or one so far ahead that the rule is better started
        # anew, leaves it.
        if self._found is None or not self._asked <= day <= self._found + 2 * 366:
            self._dates = self._dates_from(day)
            self._found = next(self._dates, None)
        self._asked = day
        while self._found is not None and self._found < day:
            self._found = next(self._dates, None)
        return self._found

    def times_on(self, day: int) -> int:
        return self._times

    def _dates_from(self, day: int) -> Iterator[int]:
        """Start the rule at the last period of its grid that begins at or before ``day``."""
        anchor = self._period_before(max(to_date(day), self._start))
        for moment in _build_rule(self._parts, anchor):
            yield to_local(moment) // DAY

    def _period_before(self, day: date) -> date:
        start, interval = self._start, self._parts.interval
        match self._parts.frequency:
            case Frequency.YEARLY:
                return date(day.year - (day.year - start.year) % interval, 1, 1)
            case Frequency.MONTHLY:
                months = (day.year - start.year) * 12 + day.month - start.month
                month = start.year * 12 + start.month - 1 + months - months % interval
                return date(month // 12, month % 12 + 1, 1)
            case _:
                week = start - timedelta(days=(start.weekday() - self._parts.week_start) % 7)
                return week + timedelta(days=(day - week).days // (7 * interval) * 7 * interval)


def _build_rule(parts: RecurrenceParts, anchor: date) -> dateutil_rrule.rrule:
    """Spell the dates of a rule for dateutil, from the beginning of one of its periods on."""
    periods = _SEARCH_PERIODS[parts.frequency] * parts.interval
    days = {Frequency.YEARLY: 366, Frequency.MONTHLY: 31, Frequency.WEEKLY: 7}[parts.frequency] * periods
    limit = date(MAXYEAR, 12, 31)
    until = limit if (limit - anchor).days <= days else anchor + timedelta(days=days)
    return dateutil_rrule.rrule(
        _DATEUTIL_FREQUENCIES[parts.frequency],
        dtstart=datetime.combine(anchor, time()),
        interval=parts.interval,
        wkst=parts.week_start,
        until=datetime.combine(until, time()),
        bysetpos=parts.by_set_position or None,
        bymonth=parts.by_month or None,
        bymonthday=parts.by_month_day or None,
        byyearday=parts.by_year_day or None,
        byweekno=parts.by_week_number or None,
        byweekday=_spell_weekdays(parts) or None,
    )


def _spell_weekdays(parts: RecurrenceParts) -> list[dateutil_rrule.weekday]:
    """Weekdays for dateutil. It joins plain and numbered ones by *and*; so plain ones are numbered through."""
    days = [dateutil_rrule.weekday(weekday, nth or None) for weekday, nth in parts.by_day]
    if all(nth == 0 for _, nth in parts.by_day) or all(nth != 0 for _, nth in parts.by_day):
        return days
    most = 5 if parts.frequency is Frequency.MONTHLY or parts.by_month else 53
    return [
        dateutil_rrule.weekday(weekday, which)
        for weekday, nth in parts.by_day
        for which in ((nth,) if nth else range(1, most + 1))
    ]


class _GridDays:
    """Days of a rule by the day, hour, minute or second: a grid from DTSTART on, filtered."""

    def __init__(self, recurrence: Recurrence) -> None:
        parts = recurrence.parts
        unit = _UNITS[parts.frequency]
        self._parts = parts
        self._step = unit * parts.interval
        self._anchor = recurrence.start // unit * unit
        self._inner = _times_within(parts)
        self._filter = clock_mask(
            frozenset(parts.by_hour) or _ALL, frozenset(parts.by_minute) or _ALL, frozenset(parts.by_second) or _ALL
        )

    def next_day(self, day: int) -> int | None:
        empty = 0
        for _ in range(_SEARCH_STEPS):
            day = (day * DAY + self._wait(day)) // DAY
            if day >= _LAST_DAY or empty == _SEARCH_EMPTY_DAYS:
                return None
            if _passes_filters(self._parts, to_date(day)):
                if self.times_on(day):
                    return day
                empty += 1
            day += 1
        return None

    def times_on(self, day: int) -> int:
        wait = self._wait(day)
        if wait >= DAY:
            return 0
        starts = (grid_mask(self._step) << wait) & FULL_DAY
        return _repeat(self._inner, starts) & self._filter

    def _wait(self, day: int) -> int:
        return (self._anchor - day * DAY) % self._step


def _times_within(parts: RecurrenceParts) -> int:
    """Mask, from the start of one unit of the grid, of the times in it."""
    zero = frozenset((0,))
    hours = frozenset(parts.by_hour) if parts.frequency is Frequency.DAILY else zero
    minutes = frozenset(parts.by_minute) if parts.frequency <= Frequency.HOURLY else zero
    seconds = frozenset(parts.by_second) if parts.frequency <= Frequency.MINUTELY else zero
    return clock_mask(hours, minutes, seconds)


def _repeat(inner: int, starts: int) -> int:
    """Lay ``inner`` at every start. The copies do not overlap, so that a product is their union."""
    if starts.bit_count() > 24:
        return inner * starts
    total = 0
    for start in list_seconds(starts):
        total |= inner << start
    return total


def _passes_filters(parts: RecurrenceParts, day: date) -> bool:
    if parts.by_month and day.month not in parts.by_month:
        return False
    if parts.by_day and (day.weekday(), 0) not in parts.by_day:
        return False
    length = days_in_month(day.year, day.month)
    if parts.by_month_day and not {day.day, day.day - length - 1} & set(parts.by_month_day):
        return False
    if not parts.by_year_day:
        return True
    number = day.timetuple().tm_yday
    year_length = 337 + days_in_month(day.year, 2)
    return bool({number, number - year_length - 1} & set(parts.by_year_day))
