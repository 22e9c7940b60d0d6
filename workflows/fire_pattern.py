"""Patterns that need no calendar: intervals and single times."""

from dataclasses import dataclass

from workflows.clock_mask import FULL_DAY, grid_mask
from workflows.zone import DAY


@dataclass(frozen=True, slots=True)
class IntervalPattern:
    """Every ``every`` seconds of elapsed time through the instant ``anchor``, before and after it."""

    every: int
    anchor: int

    def next_day(self, day: int, offset: int) -> int:
        midnight = day * DAY - offset
        return (midnight + self._wait(midnight) + offset) // DAY

    def times_on(self, day: int, offset: int) -> int:
        wait = self._wait(day * DAY - offset)
        return (grid_mask(self.every) << wait) & FULL_DAY if wait < DAY else 0

    def _wait(self, instant: int) -> int:
        """Seconds from an instant to the next point of the grid, 0 on it."""
        return (self.anchor - instant) % self.every


@dataclass(frozen=True, slots=True)
class InstantPattern:
    """One instant."""

    instant: int

    def next_day(self, day: int, offset: int) -> int | None:
        own = (self.instant + offset) // DAY
        return own if own >= day else None

    def times_on(self, day: int, offset: int) -> int:
        return 1 << ((self.instant + offset) % DAY)


@dataclass(frozen=True, slots=True)
class LocalTimePattern:
    """One time of the wall clock, in seconds since 1970-01-01T00:00 local."""

    local: int

    def next_day(self, day: int, offset: int) -> int | None:
        own = self.local // DAY
        return own if own >= day else None

    def times_on(self, day: int, offset: int) -> int:
        return 1 << (self.local % DAY)
