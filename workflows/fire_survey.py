"""Summarising fires day by day without a line for each.

A day's fires are counted as bits of its mask; only where exclusions chop them up is a day told in more than one range.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_

from workflows.clock_mask import HOUR, HOUR_BITS, first_second, last_second, list_last_seconds
from workflows.fire_exclusion import SortedFires
from workflows.zone import DAY


@dataclass(frozen=True, slots=True)
class InstantRange:
    """Consecutive fires of one kind."""

    first: int
    last: int
    count: int
    excluded_by: str | None


class FireTally:
    """The growing summary of a stretch of time. Days are added in order."""

    def __init__(self, *, newest: int, max_ranges: int) -> None:
        self.ranges: list[InstantRange] = []
        self._newest = newest
        self._max_ranges = max_ranges
        self._recent: deque[tuple[int, int]] = deque()
        """(start, mask) of the newest runs of wanted fires, just enough to hold ``newest`` of them."""
        self._recent_count = 0

    @property
    def last(self) -> int | None:
        """The newest fire counted so far."""
        return self.ranges[-1].last if self.ranges else None

    def add(self, day: SortedFires) -> bool:
        """Count a day. False when the ranges are used up: then only fires up to ``last`` are counted."""
        for excluded_by, start, mask in _split_runs(day):
            run = InstantRange(start + first_second(mask), start + last_second(mask), mask.bit_count(), excluded_by)
            if not self._append(run):
                return False
            if excluded_by is None:
                self._remember(start, mask)
        return True

    def list_newest(self) -> list[int]:
        """List the newest wanted instants, oldest first."""
        newest: list[int] = []
        for start, mask in reversed(self._recent):
            seconds = list_last_seconds(mask, self._newest - len(newest))
            newest = [*(start + second for second in seconds), *newest]
        return newest

    def _append(self, run: InstantRange) -> bool:
        before = self.ranges[-1] if self.ranges else None
        if before is not None and before.excluded_by == run.excluded_by:
            self.ranges[-1] = InstantRange(before.first, run.last, before.count + run.count, run.excluded_by)
            return True
        if len(self.ranges) == self._max_ranges:
            return False
        self.ranges.append(run)
        return True

    def _remember(self, start: int, mask: int) -> None:
        self._recent.append((start, mask))
        self._recent_count += mask.bit_count()
        while self._recent and self._recent_count - self._recent[0][1].bit_count() >= self._newest:
            self._recent_count -= self._recent.popleft()[1].bit_count()


def _split_runs(day: SortedFires) -> Iterator[tuple[str | None, int, int]]:
    """Cut a day, in order, into runs of one kind: (why excluded, instant of bit 0, mask)."""
    kinds = [kind for kind in ((None, day.wanted), *day.unwanted) if kind[1]]
    if len(kinds) == 1:
        yield kinds[0][0], day.fires.midnight, kinds[0][1]
    if len(kinds) < 2:
        return
    # An hour at a time: cutting off run after run would else move the whole day each time.
    for start in range(0, DAY, HOUR):
        in_hour = [(why, mask >> start & HOUR_BITS) for why, mask in kinds]
        for why, run in _split_bits([kind for kind in in_hour if kind[1]]):
            yield why, day.fires.midnight + start, run


def _split_bits(kinds: list[tuple[str | None, int]]) -> Iterator[tuple[str | None, int]]:
    rest = reduce(or_, (mask for _, mask in kinds), 0)
    while rest:
        lowest = rest & -rest
        why, own = next(kind for kind in kinds if kind[1] & lowest)
        others = rest & ~own
        run = rest & ((others & -others) - 1) if others else rest
        yield why, run
        rest ^= run
