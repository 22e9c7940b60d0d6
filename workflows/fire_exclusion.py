"""Which fires a schedule's owner does not want.

An exclusion looks at the local time at which a fire really happens: one that a gap moved from 02:30 to 03:00 is
compared as 03:00, on the date it has then; one that was moved to a business day is looked at there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from workflows.calendar_day import DaySet, day_set, find_calendar, working_days
from workflows.clock_mask import FULL_DAY, clock_mask
from workflows.cron_expression import CronExpression, parse_cron
from workflows.fire_walk import DayFires
from workflows.schedule import Exclusions, OnlyOn, Roll, Schedule
from workflows.wording import join_words
from workflows.zone import to_date, to_day

_EVERY_SECOND = frozenset(range(60))

DayTest: TypeAlias = Callable[[int], str | None]
"""Says why nothing fires on a day, or ``None``."""


@dataclass(frozen=True, slots=True)
class SortedFires:
    """The fires of one day, told apart by whether they are wanted."""

    fires: DayFires
    wanted: int
    unwanted: tuple[tuple[str, int], ...] = ()
    """(why, mask); no fire stands in two of them."""


@dataclass(frozen=True, slots=True)
class ExclusionFilter:
    """A schedule's exclusions, ready to be applied to many days."""

    day_tests: tuple[DayTest, ...]
    rules: tuple[tuple[str, CronExpression, int], ...]
    """(why, expression, mask of the excluded times of a matching date)"""

    def sort(self, fires: DayFires) -> SortedFires:
        """Tell wanted fires from unwanted ones. The first reason that applies is the one given: dates, calendars,
        business days, days that a calendar would have to have, crons."""
        for test in self.day_tests:
            if why := test(fires.day):
                return SortedFires(fires, 0, ((why, fires.mask),))
        return self._sort_by_rules(fires)

    def _sort_by_rules(self, fires: DayFires) -> SortedFires:
        wanted, unwanted = fires.mask, []
        day = to_date(fires.day) if self.rules else None
        for why, expression, mask in self.rules:
            if day is not None and wanted & mask and expression.matches_date(day):
                unwanted.append((why, wanted & mask))
                wanted &= ~mask
        return SortedFires(fires, wanted, tuple(unwanted))


def excludes_anything(schedule: Schedule) -> bool:
    """Say whether a schedule may have fires that are not wanted."""
    skips = schedule.business_days is not None and schedule.business_days.roll is Roll.SKIP
    return skips or schedule.exclude != Exclusions() or schedule.only != OnlyOn()


def build_filter(schedule: Schedule, *, job_id: str) -> ExclusionFilter:
    """Prepare a schedule's exclusions.

    Raises InvalidSchedule for a cron expression that cannot be read, and for a calendar that the schedule does not carry.
    """
    rules = []
    for index, text in enumerate(schedule.exclude.cron):
        expression = parse_cron(text, job_id=job_id, pointer=f"/exclude/cron/{index}")
        rules.append((f"cron {expression.text}", expression, _excluded_times(expression)))
    return ExclusionFilter(tuple(_day_tests(schedule)), tuple(rules))


def _day_tests(schedule: Schedule) -> list[DayTest]:
    tests: list[DayTest] = []
    if schedule.exclude.dates:
        tests.append(_test_dates(frozenset(map(to_day, schedule.exclude.dates))))
    for index, name in enumerate(schedule.exclude.calendars):
        calendar = find_calendar(schedule, name, pointer=f"/exclude/calendars/{index}")
        tests.append(_test_calendar(f"calendar {name}", day_set(calendar)))
    rule = schedule.business_days
    if rule is not None and rule.roll is Roll.SKIP:
        days, of_calendar = working_days(schedule, rule), f" of calendar {rule.calendar}" if rule.calendar else ""
        tests.append(lambda day: None if day in days else f"no business day{of_calendar}")
    if schedule.only.calendars:
        tests.append(_test_only(schedule))
    return tests


def _test_dates(dates: frozenset[int]) -> DayTest:
    return lambda day: f"date {to_date(day)}" if day in dates else None


def _test_calendar(why: str, days: DaySet) -> DayTest:
    return lambda day: why if day in days else None


def _test_only(schedule: Schedule) -> DayTest:
    names = schedule.only.calendars
    days = [
        day_set(find_calendar(schedule, name, pointer=f"/only/calendars/{index}")) for index, name in enumerate(names)
    ]
    why = f"not in calendar {join_words(names, last='or')}"
    return lambda day: None if any(day in each for each in days) else why


def _excluded_times(expression: CronExpression) -> int:
    # Five fields name minutes, so they exclude a fire at any second of theirs.
    seconds = expression.second.values if expression.has_seconds else _EVERY_SECOND
    return clock_mask(expression.hour.values, expression.minute.values, seconds) & FULL_DAY
