"""Summarising fires day by day without a line for each.

A day's fires are counted as bits of its mask; only where exclusions chop them up is a day told in more than one range.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from workflows.clock_mask import first_second, last_second, list_last_seconds
from workflows.fire_exclusion import SortedFires


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
        """(midnight, mask) of the wanted fires of the newest days, just enough to hold ``newest`` of them."""
        self._recent_count = 0

    @property
    def last(self) -> int | None:
        """The newest fire counted so far."""
        return self.ranges[-1].last if self.ranges else None

    def add(self, day: SortedFires) -> bool:
        """Count a day. False when the ranges are used up: then only fires up to ``last`` are counted."""
        midnight = day.fires.midnight
        for excluded_by, mask in _split_runs(day):
            run = InstantRange(
                midnight + first_second(mask), midnight + last_second(mask), mask.bit_count(), excluded_by
            )
            if not self._append(run):
                return False
            if excluded_by is None:
                self._remember(midnight, mask)
        return True

    def list_newest(self) -> list[int]:
        """List the newest wanted instants, oldest first."""
        newest: list[int] = []
        for midnight, mask in reversed(self._recent):
            seconds = list_last_seconds(mask, self._newest - len(newest))
            newest = [*(midnight + second for second in seconds), *newest]
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

    def _remember(self, midnight: int, mask: int) -> None:
        self._recent.append((midnight, mask))
        self._recent_count += mask.bit_count()
        while self._recent and self._recent_count - self._recent[0][1].bit_count() >= self._newest:
            self._recent_count -= self._recent.popleft()[1].bit_count()


def _split_runs(day: SortedFires) -> Iterator[tuple[str | None, int]]:
    """Cut a day's mask, in order, into runs of one kind."""
    rest = day.fires.mask
    if not day.unwanted:
        if rest:
            yield None, rest
        return
    kinds: list[tuple[str | None, int]] = [(None, day.wanted), *day.unwanted]
    while rest:
        lowest = rest & -rest
        excluded_by, own = next(kind for kind in kinds if kind[1] & lowest)
        others = rest & ~own
        run = rest & ((others & -others) - 1) if others else rest
        yield excluded_by, run
        rest ^= run
