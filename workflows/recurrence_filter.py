"""Which dates a recurrence rule lets through.

Once the defaults of DTSTART are filled in, every BY part that speaks of dates is a filter on single dates, whether RFC
5545 calls it one that expands or one that limits.
"""

from dataclasses import dataclass
from datetime import MAXYEAR, date, timedelta
from functools import lru_cache

from workflows.cron_expression import days_in_month
from workflows.recurrence_text import Frequency, RecurrenceParts


@dataclass(frozen=True, slots=True)
class DateFilter:
    """The date parts of a rule, ready to be asked."""

    months: frozenset[int]
    month_days: frozenset[int]
    year_days: frozenset[int]
    week_numbers: frozenset[int]
    weekdays: frozenset[tuple[int, int]]
    week_start: int
    counts_weekdays_by_year: bool
    """Whether ``20MO`` is the twentieth of the year: by the year without a month; else they count within the month."""

    def passes(self, day: date) -> bool:
        return self.skip_from(day) == day and (not self.weekdays or self._passes_weekdays(day))

    def skip_from(self, day: date) -> date:
        """The first date from ``day`` on that months, days of month, days of year and weeks do not rule out at a glance.

        It may still not pass; but none before it does.
        """
        if self.months and day.month not in self.months:
            return first_of_next_month(day)
        if self.month_days:
            number = _next_named(day.day, days_in_month(day.year, day.month), self.month_days)
            if number != day.day:
                return day.replace(day=number) if number else first_of_next_month(day)
        if self.year_days:
            first, number = date(day.year, 1, 1), _day_of_year(day)
            named = _next_named(number, _days_in_year(day.year), self.year_days)
            if named != number:
                return first + timedelta(days=named - 1) if named else first_of_next_year(day)
        if self.week_numbers and not self._passes_week_numbers(day):
            left = 7 - (day.weekday() - self.week_start) % 7
            return day + timedelta(days=min(left, (date.max - day).days))
        return day

    def _passes_weekdays(self, day: date) -> bool:
        weekday = day.weekday()
        if (weekday, 0) in self.weekdays:
            return True
        if self.counts_weekdays_by_year:
            number, length = _day_of_year(day), _days_in_year(day.year)
        else:
            number, length = day.day, days_in_month(day.year, day.month)
        from_start, from_end = (number + 6) // 7, -((length - number) // 7 + 1)
        return (weekday, from_start) in self.weekdays or (weekday, from_end) in self.weekdays

    def _passes_week_numbers(self, day: date) -> bool:
        year, number = week_of(day, self.week_start)
        return _is_named(number, _weeks_in_year(year, self.week_start), self.week_numbers)


def build_date_filter(parts: RecurrenceParts) -> DateFilter:
    """Prepare the date parts of a rule whose defaults are filled in."""
    return DateFilter(
        months=frozenset(parts.by_month),
        month_days=frozenset(parts.by_month_day),
        year_days=frozenset(parts.by_year_day),
        week_numbers=frozenset(parts.by_week_number),
        weekdays=frozenset(parts.by_day),
        week_start=parts.week_start,
        counts_weekdays_by_year=parts.frequency is Frequency.YEARLY and not parts.by_month,
    )


def week_of(day: date, week_start: int) -> tuple[int, int]:
    """Year and number of a date's week. A week belongs to the year in which it has four days or more."""
    fourth = day - timedelta(days=(day.weekday() - week_start) % 7) + timedelta(days=3)
    return fourth.year, (_day_of_year(fourth) + 6) // 7


@lru_cache(maxsize=1024)
def _weeks_in_year(year: int, week_start: int) -> int:
    # 28 December is in the last week of its year, wherever weeks start.
    return week_of(date(year, 12, 28), week_start)[1]


def first_of_next_month(day: date) -> date:
    """The first day of the next month; past the last month, the last date there is."""
    if (day.year, day.month) == (MAXYEAR, 12):
        return date.max
    return date(day.year + day.month // 12, day.month % 12 + 1, 1)


def first_of_next_year(day: date) -> date:
    """The first day of the next year; past the last year, the last date there is."""
    return date(day.year + 1, 1, 1) if day.year < MAXYEAR else date.max


def _next_named(number: int, length: int, names: frozenset[int]) -> int | None:
    """The next number from ``number`` on that is named, counted from the start or, negative, from the end."""
    if number in names or number - length - 1 in names:
        return number
    resolved = (name if name > 0 else length + 1 + name for name in names)
    return min((name for name in resolved if number < name <= length), default=None)


def _is_named(number: int, length: int, names: frozenset[int]) -> bool:
    """Whether a number of 1 to ``length`` is named, counted from the start or, negative, from the end."""
    return number in names or number - length - 1 in names


def _day_of_year(day: date) -> int:
    return day.toordinal() - date(day.year, 1, 1).toordinal() + 1


def _days_in_year(year: int) -> int:
    return 337 + days_in_month(year, 2)
