"""The rule of DESIGN.md "Daylight saving", followed by looking at every minute (or second) there is.

Slow and plain on purpose: it shares nothing with the calculator, neither parsing nor masks nor stretches.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo

Matches = Callable[[datetime], bool]


@dataclass(frozen=True)
class PlainCron:
    """A cron expression as its writer meant it: text and values side by side, so that no parser is needed."""

    text: str
    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    starred: frozenset[str] = field(default_factory=frozenset)
    """Which of minute, hour, day and weekday begin with ``*``."""

    def matches(self, local: datetime) -> bool:
        return (
            local.second in self.seconds
            and local.minute in self.minutes
            and local.hour in self.hours
            and self.matches_date(local.date())
        )

    def matches_date(self, day: date) -> bool:
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        together = by_day and by_weekday if self.starred & {"day", "weekday"} else by_day or by_weekday
        return day.month in self.months and together


@lru_cache(maxsize=64)
def package_zone(name: str) -> ZoneInfo:
    """A zone as the tzdata package has it, whatever the host has."""
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as table:
        return ZoneInfo.from_file(table, key=name)


@lru_cache(maxsize=64)
def walk(zone: str, start: datetime, end: datetime, step: timedelta) -> list[tuple[datetime, datetime]]:
    """Every instant ``start < instant <= end`` of the grid, with its local time."""
    count = (end - start) // step
    return [
        (moment, moment.astimezone(package_zone(zone)))
        for moment in (start + number * step for number in range(1, count + 1))
    ]


def list_fires(
    matches: Matches, zone: str, start: datetime, end: datetime, step: timedelta, *, gap: str, fold: str
) -> list[datetime]:
    """List the fires ``start < fire <= end``. ``gap`` may be ``none``: real time, nothing extra."""
    fires = set()
    before = start.astimezone(package_zone(zone))
    for moment, local in walk(zone, start, end, step):
        if matches(local.replace(tzinfo=None)) and _is_wanted_pass(local, fold):
            fires.add(moment)
        if _offset(local) > _offset(before):
            fires |= _fires_for_gap(matches, moment, local, before, step, gap)
        before = local
    return sorted(fire for fire in fires if start < fire <= end)


def _offset(local: datetime) -> timedelta:
    return local.utcoffset() or timedelta()


def _is_wanted_pass(local: datetime, fold: str) -> bool:
    other = local.replace(fold=1 - local.fold)
    if fold == "both" or other.utcoffset() == local.utcoffset():
        return True
    return local.fold == (1 if fold == "second" else 0)


def _fires_for_gap(
    matches: Matches, moment: datetime, local: datetime, before: datetime, step: timedelta, gap: str
) -> set[datetime]:
    missing = before.replace(tzinfo=None, fold=0) + step
    found = set()
    while missing < local.replace(tzinfo=None, fold=0):
        if matches(missing):
            found.add((missing - _offset(before)).replace(tzinfo=UTC))
        missing += step
    if gap == "keep_offset":
        return found
    return {moment} if found and gap == "first_valid" else set()
