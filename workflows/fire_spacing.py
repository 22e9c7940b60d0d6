"""How close together the fires of a pattern can come.

Jitter must not reorder fires, so the answer may be less than what a schedule ever does, but never more: the changes of
the zone's clock are tried as if the schedule named every date.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import chain, islice, repeat

from workflows.clock_mask import first_second, last_second, shortest_distance
from workflows.fire_walk import ClockRule, DayFires, Pattern, walk_days
from workflows.zone import DAY, LAST_INSTANT, Stretch, list_changes, to_day

_CHANGES_TRIED = (1990, 2037)
"""Years whose clock changes are tried. After that they repeat by rule; before that no job fires."""

_FIRST_DAY = to_day(date(2000, 1, 1))
_DAYS_LOOKED_AT = 28 * 365 + 7
"""28 years hold every combination of leap year and weekday."""

_DAYS_WALKED = 70
"""Days with fires in which a grid of hours or less has come round."""

_DAYS_WALKED_AT_CHANGE = 8


@dataclass(frozen=True, slots=True)
class Timetable:
    """The same times on every date, or on one."""

    times: int
    only: int | None = None

    def next_day(self, day: int, offset: int) -> int | None:
        if self.only is None:
            return day
        return self.only if day <= self.only else None

    def times_on(self, day: int, offset: int) -> int:
        return self.times


def find_daily_spacing(pattern: Pattern, clock: ClockRule, times: int) -> int:
    """Fewest seconds between two fires of a pattern that has the same ``times`` on each of its days."""
    days = _fewest_days_between(pattern)
    spacing = days * DAY - last_second(times) + first_second(times)
    changes = _list_kinds_of_change(clock.zone)
    if days > 1:
        # Only the clock can bring fires of different days closer, by as much as it jumps.
        spacing -= max((change.offset - change.before for change in changes), default=0)
    tried = [_shortest_near(change, clock, times, every_date=days == 1) for change in changes]
    return max(1, min(found for found in (spacing, shortest_distance(times), *tried) if found is not None))


def find_walked_spacing(pattern: Pattern, clock: ClockRule, first: int, *, step: int) -> int | None:
    """Fewest seconds between two fires of a pattern on a grid of ``step`` seconds.

    Looks at the first days from the instant ``first`` on and, because the grid meets each of them at another phase, at
    every change of the clock.
    """
    margin = 2 * DAY + step
    walks = [walk_days(pattern, clock, first, LAST_INSTANT)]
    walks += [
        walk_days(pattern, clock, change.start - margin, change.start + margin)
        for change in list_changes(clock.zone, *_CHANGES_TRIED)
    ]
    counts = chain((_DAYS_WALKED,), repeat(_DAYS_WALKED_AT_CHANGE))
    found = [_shortest_in(islice(walk, count)) for walk, count in zip(walks, counts, strict=False)]
    return min((spacing for spacing in found if spacing is not None), default=None)


def _shortest_near(change: Stretch, clock: ClockRule, times: int, *, every_date: bool) -> int | None:
    """Fewest seconds between two fires around one change of the clock."""
    day = (change.start + change.before) // DAY
    timetables = [Timetable(times)] if every_date else [Timetable(times, day + away) for away in (-1, 0, 1)]
    first, last = change.start - 2 * DAY, change.start + 2 * DAY
    found = [_shortest_in(walk_days(timetable, clock, first, last)) for timetable in timetables]
    return min((spacing for spacing in found if spacing is not None), default=None)


def _shortest_in(days: Iterable[DayFires]) -> int | None:
    shortest: int | None = None
    before: int | None = None
    for fires in days:
        if not fires.mask:
            continue
        between = None if before is None else fires.midnight + first_second(fires.mask) - before
        found = [spacing for spacing in (shortest, between, shortest_distance(fires.mask)) if spacing is not None]
        shortest = min(found, default=None)
        if shortest == 1:
            break
        before = fires.midnight + last_second(fires.mask)
    return shortest


def _fewest_days_between(pattern: Pattern) -> int:
    """Fewest days from one day of a pattern to its next; 28 years where none is nearer."""
    fewest = _DAYS_LOOKED_AT
    before = pattern.next_day(_FIRST_DAY, 0)
    while before is not None and before < _FIRST_DAY + _DAYS_LOOKED_AT and fewest > 1:
        day = pattern.next_day(before + 1, 0)
        fewest = fewest if day is None else min(fewest, day - before)
        before = day
    return fewest


@lru_cache(maxsize=1024)
def _list_kinds_of_change(zone: str) -> tuple[Stretch, ...]:
    """One example for each way in which a zone's clock changes: at which time of day, from and to which offset."""
    kinds = {
        ((change.start + change.before) % DAY, change.before, change.offset): change
        for change in list_changes(zone, *_CHANGES_TRIED)
    }
    return tuple(kinds.values())
