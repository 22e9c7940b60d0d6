"""The walk over a schedule's fires: local times in, instants out.

Owns daylight saving. A pattern says at which local times something happens; the walk lays them over the stretches of
constant offset of a zone, and at each change of the clock applies the gap and fold policies of docs/schedules.md "Daylight
saving". Its unit is the local day with all its times as one mask, so that dense schedules cost no more than sparse ones.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from heapq import merge
from itertools import groupby
from operator import itemgetter, or_
from typing import Protocol, assert_never

from workflows.clock_mask import FULL_DAY, cut
from workflows.schedule import FoldPolicy, GapPolicy
from workflows.zone import DAY, FIRST_INSTANT, LAST_INSTANT, Stretch, stretch_at


class Pattern(Protocol):
    """When something happens, told per local day. Days count from 1970-01-01.

    ``offset`` is the zone's offset on that day; patterns that follow the wall clock ignore it.
    """

    def next_day(self, day: int, offset: int) -> int | None:
        """The first day from ``day`` on that has a time; ``None`` when there is none within the pattern's search."""
        ...

    def times_on(self, day: int, offset: int) -> int:
        """Mask of the times of a day that ``next_day`` named."""
        ...


@dataclass(frozen=True, slots=True)
class ClockRule:
    """How a pattern meets the changes of one zone's clock."""

    zone: str
    gap: GapPolicy
    fold: FoldPolicy


@dataclass(frozen=True, slots=True)
class DayFires:
    """Fires of one local day under one offset."""

    day: int
    offset: int
    mask: int
    """Empty where the walk looked at a day and nothing of it fires, so that a caller can bound its looking."""

    @property
    def midnight(self) -> int:
        """The instant of bit 0."""
        return self.day * DAY - self.offset


def walk_days(pattern: Pattern, rule: ClockRule, first: int, last: int) -> Iterator[DayFires]:
    """Yield the fires at instants ``first <= fire <= last`` in order, day by day.

    A day that the clock enters twice is yielded twice. Ends early only where the pattern has nothing more. Takes bounded
    time to the next day that it yields; how many days to take is the caller's to bound.
    """
    at, last = max(first, FIRST_INSTANT), min(last, LAST_INSTANT)
    while at <= last:
        stretch = stretch_at(rule.zone, at)
        yield from _walk_stretch(pattern, rule, stretch, at, min(last, stretch.end - 1))
        # Far from its change a pattern's next day is found without visiting the stretches between. Two days of
        # margin: local days of different offsets differ by at most that.
        day = pattern.next_day((stretch.end + stretch.offset) // DAY - 2, stretch.offset)
        if day is None:
            return
        at = max(stretch.end, (day - 2) * DAY)


def _walk_stretch(pattern: Pattern, rule: ClockRule, stretch: Stretch, first: int, last: int) -> Iterator[DayFires]:
    offset = stretch.offset
    local_first, local_last = _bounds_in_fold(rule.fold, stretch, first + offset, last + offset)
    regular = _times_between(pattern, offset, local_first, local_last)
    moved = _times_moved_out_of_gap(pattern, rule.gap, stretch)
    moved_inside = [(day, cut(mask, first + offset - day * DAY, last + offset - day * DAY)) for day, mask in moved]
    for day, mask in _join_days(regular, moved_inside) if moved else regular:
        yield DayFires(day, offset, mask)


def _times_between(pattern: Pattern, offset: int, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield (day, mask) of the pattern's local times ``first <= time <= last``, in order."""
    day = pattern.next_day(first // DAY, offset) if first <= last else None
    while day is not None and day * DAY <= last:
        mask = pattern.times_on(day, offset)
        yield day, cut(mask, first - day * DAY, last - day * DAY)
        day = pattern.next_day(day + 1, offset)


def _join_days(*streams: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for day, entries in groupby(merge(*streams, key=itemgetter(0)), key=itemgetter(0)):
        yield day, reduce(or_, (mask for _, mask in entries))


def _bounds_in_fold(fold: FoldPolicy, stretch: Stretch, first: int, last: int) -> tuple[int, int]:
    """Narrow local bounds so that of a repeated time only the wanted pass is left."""
    match fold:
        case FoldPolicy.FIRST:
            return max(first, stretch.start + stretch.before), last
        case FoldPolicy.SECOND:
            return first, min(last, stretch.end + stretch.after - 1)
        case FoldPolicy.BOTH:
            return first, last
        case _ as never:
            assert_never(never)


def _times_moved_out_of_gap(pattern: Pattern, gap: GapPolicy, stretch: Stretch) -> list[tuple[int, int]]:
    """List, as (day, mask) on the stretch's own clock, what stands for the times removed just before it."""
    forward = stretch.offset - stretch.before
    if forward <= 0 or gap is GapPolicy.SKIP:
        return []
    gap_start = stretch.start + stretch.before
    missing = [
        entry for entry in _times_between(pattern, stretch.before, gap_start, gap_start + forward - 1) if entry[1]
    ]
    match gap:
        case GapPolicy.FIRST_VALID:
            day, second = divmod(gap_start + forward, DAY)
            return [(day, 1 << second)] if missing else []
        case GapPolicy.KEEP_OFFSET:
            return [part for day, mask in missing for part in _shift(day, mask, forward)]
        case _ as never:
            assert_never(never)


def _shift(day: int, mask: int, seconds: int) -> list[tuple[int, int]]:
    """Move a day's times later; they may come to lie on two days."""
    first_day, phase = divmod(day * DAY + seconds, DAY)
    moved = mask << phase
    return [(first_day, moved & FULL_DAY), (first_day + 1, moved >> DAY)]
