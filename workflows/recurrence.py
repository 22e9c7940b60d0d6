"""RFC 5545 recurrence rules, before any zone.

Owns what an RRULE means on the wall clock: its periods, its grid, its end. Nothing is counted up from DTSTART, so that
a rule of seconds that began in 1970 is as quick as one of years. (python-dateutil does count, and looks for the first
fire of a rule that never fires until the year 9999; it is the oracle of the tests instead.)

Two readings that the RFC leaves open: DTSTART itself fires only if the rule names it (as in dateutil), and a date as
UNTIL includes that whole day.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import MAXYEAR, date, datetime, timedelta
from functools import lru_cache
from math import gcd

from workflows.clock_mask import FULL_DAY, clock_mask, cut, grid_mask, list_seconds
from workflows.error import InvalidSchedule
from workflows.recurrence_filter import build_date_filter
from workflows.recurrence_text import Frequency, RecurrenceParts, parse_recurrence
from workflows.schedule import RRuleRule
from workflows.zone import DAY, LAST_INSTANT, to_date, to_day, to_instant, to_local

DEFAULT_START = datetime(1970, 1, 1)  # noqa: DTZ001 - local by definition
"""DTSTART of a rule that gives none, fixed so that a preview and a job agree."""

_SEARCH_DAYS = 15_000
"""How far ahead the next day is looked for, times INTERVAL: 41 years of days, for 29 February on a given weekday."""

_LONGEST_CYCLE = 60
"""Days in which a grid with filters on its times of day must come round, so that its next fire is found soon."""

_COUNTED_DAYS = 4_000
_COUNTED_SPAN = 36_600
"""Days with fires, and days in all, in which COUNT must be reached, so that its end is found within the time of a call."""

_MASKS_KEPT = 64

_UNITS = {Frequency.DAILY: DAY, Frequency.HOURLY: 3_600, Frequency.MINUTELY: 60, Frequency.SECONDLY: 1}
_LAST_DAY = LAST_INSTANT // DAY
_ONE_DAY = timedelta(days=1)
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
    if not 2 <= start.year <= 9998:
        raise InvalidSchedule("DTSTART must lie in the years 2 to 9998")
    _refuse_long_cycle(parts)
    recurrence = Recurrence(_resolve_defaults(parts, start), to_local(start))
    if parts.until is not None and parts.until.tzinfo is not None:
        return replace(recurrence, until_instant=to_instant(parts.until))
    if parts.until is not None:
        return replace(recurrence, until_local=to_local(parts.until))
    if parts.count is not None:
        return replace(recurrence, until_local=_end_of_count(recurrence, parts.count))
    return recurrence


def _refuse_long_cycle(parts: RecurrenceParts) -> None:
    """Refuse grids such as every 1,441 minutes, but only at nine, which meet their filters once in years."""
    filters = (parts.by_hour, parts.by_minute, parts.by_second)[: max(parts.frequency - Frequency.DAILY, 0)]
    if not any(filters):
        return
    step = _UNITS[parts.frequency] * parts.interval
    if step // gcd(step, DAY) > _LONGEST_CYCLE:
        raise InvalidSchedule(
            f"INTERVAL={parts.interval} drifts through the day so slowly that it hardly ever meets BYHOUR, BYMINUTE or "
            "BYSECOND; use FREQ=DAILY",
            position=0,
        )


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
    pattern, left, start = RecurrencePattern(recurrence), count, recurrence.start // DAY
    day = pattern.next_day(start, 0)
    for _ in range(_COUNTED_DAYS):
        if day is None:
            return LAST_INSTANT
        if day > start + _COUNTED_SPAN:
            break
        mask = pattern.times_on(day, 0)
        if mask.bit_count() >= left:
            return day * DAY + next(second for number, second in enumerate(list_seconds(mask), 1) if number == left)
        left -= mask.bit_count()
        day = pattern.next_day(day + 1, 0)
    raise InvalidSchedule(
        f"COUNT={count} reaches over more than {_COUNTED_DAYS} days with fires or a hundred years; use UNTIL",
        position=0,
    )


class RecurrencePattern:
    """The local times of a recurrence."""

    def __init__(self, recurrence: Recurrence) -> None:
        self.recurrence = recurrence
        self._start_day = recurrence.start // DAY
        self._last_day = _LAST_DAY if recurrence.until_local is None else recurrence.until_local // DAY
        self._exhausted_from: int | None = None
        """A day from which on a search found nothing: later ones are not worth another."""
        by_dates = recurrence.parts.frequency <= Frequency.WEEKLY
        self._days = _PeriodDays(recurrence) if by_dates else _GridDays(recurrence)

    @property
    def start(self) -> int:
        """The instant, to within a day, of the local time before which nothing fires."""
        return self.recurrence.start - DAY

    @property
    def step(self) -> int:
        """Seconds from one point of its grid to the next, for a rule by the day or less."""
        parts = self.recurrence.parts
        return _UNITS[parts.frequency] * parts.interval

    @property
    def daily_times(self) -> int | None:
        """Mask of the times that all its days share; ``None`` for a rule by the hour or less."""
        return self.recurrence.times if self.recurrence.parts.frequency <= Frequency.DAILY else None

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
        until = self.recurrence.until_local
        first = self.recurrence.start - day * DAY
        last = DAY if until is None else until - day * DAY
        return cut(mask, first, last) if first > 0 or last < DAY else mask


class _PeriodDays:
    """Days of a rule by the week, month or year."""

    def __init__(self, recurrence: Recurrence) -> None:
        self._parts = recurrence.parts
        self._start = to_date(recurrence.start // DAY)
        self._times = recurrence.times
        self._filter = build_date_filter(recurrence.parts)
        self._picked: tuple[date, tuple[date, ...]] | None = None
        """The period looked at last and what BYSETPOS picks of it."""

    def next_day(self, day: int) -> int | None:
        on, period_end = to_date(min(day, _LAST_DAY)), date.min
        horizon = to_date(min(day + _SEARCH_DAYS * self._parts.interval, _LAST_DAY))
        while on < horizon:
            if on >= period_end:
                period = self._period_of(on)
                period_end = self._period_after(period, 1)
                if ahead := -self._periods_since_start(period) % self._parts.interval:
                    on = period_end = self._period_after(period, ahead)
                    continue
            if (candidate := self._filter.skip_from(on)) > on:
                on = candidate
            elif self._parts.by_set_position:
                picked = next((pick for pick in self._pick(self._period_of(on)) if pick >= on), None)
                if picked is not None:
                    return to_day(picked)
                on = period_end
            elif self._filter.passes(on):
                return to_day(on)
            else:
                on += _ONE_DAY
        return None

    def times_on(self, day: int) -> int:
        return self._times

    def _pick(self, period: date) -> tuple[date, ...]:
        """List the dates that BYSETPOS picks from those of a period."""
        if self._picked is None or self._picked[0] != period:
            days = list(self._list_passing(period, self._period_after(period, 1)))
            wanted = self._parts.by_set_position
            picks = (day for index, day in enumerate(days) if index + 1 in wanted or index - len(days) in wanted)
            self._picked = (period, tuple(picks))
        return self._picked[1]

    def _list_passing(self, on: date, end: date) -> Iterator[date]:
        while on < end:
            if (candidate := self._filter.skip_from(on)) > on:
                on = candidate
                continue
            if self._filter.passes(on):
                yield on
            on += _ONE_DAY

    def _period_of(self, on: date) -> date:
        """First date of the period around a date."""
        match self._parts.frequency:
            case Frequency.YEARLY:
                return date(on.year, 1, 1)
            case Frequency.MONTHLY:
                return date(on.year, on.month, 1)
            case _:
                return on - timedelta(days=(on.weekday() - self._parts.week_start) % 7)

    def _period_after(self, period: date, count: int) -> date:
        """First date of a later period; past the last one, the last date there is."""
        match self._parts.frequency:
            case Frequency.YEARLY:
                year, month = period.year + count, 1
            case Frequency.MONTHLY:
                year, month = divmod(period.year * 12 + period.month - 1 + count, 12)
                month += 1
            case _:
                return period + timedelta(days=min(7 * count, (date.max - period).days))
        return date(year, month, 1) if year <= MAXYEAR else date.max

    def _periods_since_start(self, period: date) -> int:
        first = self._period_of(self._start)
        match self._parts.frequency:
            case Frequency.YEARLY:
                return period.year - first.year
            case Frequency.MONTHLY:
                return (period.year - first.year) * 12 + period.month - first.month
            case _:
                return (period - first).days // 7


class _GridDays:
    """Days of a rule by the day, hour, minute or second: a grid from DTSTART on, filtered."""

    def __init__(self, recurrence: Recurrence) -> None:
        parts = recurrence.parts
        unit = _UNITS[parts.frequency]
        self._dates = build_date_filter(parts)
        self._step = unit * parts.interval
        self._anchor = recurrence.start // unit * unit
        self._inner = _times_within(parts)
        self._masks: dict[int, int] = {}
        """Masks made so far, by the seconds from midnight to the first point of the grid."""
        hours, minutes, seconds = (frozenset(by) or _ALL for by in (parts.by_hour, parts.by_minute, parts.by_second))
        self._filter = clock_mask(hours, minutes, seconds) & FULL_DAY
        # Starts that no filter can pass are dropped early; a start may lie before the minute or second it stands for.
        self._start_filter = {
            Frequency.HOURLY: clock_mask(hours, _ALL, _ALL),
            Frequency.MINUTELY: clock_mask(hours, minutes, _ALL),
        }.get(parts.frequency, FULL_DAY) & FULL_DAY

    def next_day(self, day: int) -> int | None:
        horizon = min(day + _SEARCH_DAYS * max(1, self._step // DAY), _LAST_DAY)
        empty = 0
        while empty < _LONGEST_CYCLE:
            day = (day * DAY + self._wait(day)) // DAY
            if day >= horizon:
                break
            on = to_date(day)
            if (candidate := self._dates.skip_from(on)) > on:
                day = to_day(candidate)
                continue
            if self._dates.passes(on):
                if self.times_on(day):
                    return day
                empty += 1
            day += 1
        return None

    def times_on(self, day: int) -> int:
        wait = self._wait(day)
        if wait >= DAY:
            return 0
        if wait not in self._masks:
            if len(self._masks) == _MASKS_KEPT:
                self._masks.clear()
            starts = (grid_mask(self._step) << wait) & self._start_filter
            self._masks[wait] = _repeat(self._inner, starts) & self._filter if starts else 0
        return self._masks[wait]

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
