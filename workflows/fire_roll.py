"""Fires moved from days that are no business days to the nearest that is.

A fire keeps its local time; several that come to lie on one time are one. The move is made on the clock of the wall, before
a zone's changes are looked at: a time that does not exist on the new date follows the gap policy there.
"""

from dataclasses import dataclass
from typing import Literal

from workflows.calendar_day import WorkingDays
from workflows.fire_walk import Pattern
from workflows.schedule import Roll
from workflows.zone import DAY, FIRST_INSTANT, LAST_INSTANT


@dataclass(frozen=True, slots=True)
class RolledPattern:
    """A pattern that has the same times on each of its days, moved to business days."""

    pattern: Pattern
    times: int
    """Mask of the pattern's times; on its first and last day some may be left out."""

    days: WorkingDays
    roll: Literal[Roll.NEXT, Roll.PREVIOUS]

    def next_day(self, day: int, offset: int) -> int | None:
        business = self.days.next_from(day)
        if business is None:
            return None
        # The sources of earlier business days end where those of this one begin.
        source = self.pattern.next_day(self._sources_of(business)[0], offset)
        if source is None:
            return None
        return self.days.next_from(source) if self.roll is Roll.NEXT else self.days.previous_from(source)

    def times_on(self, day: int, offset: int) -> int:
        first, last = self._sources_of(day)
        mask, source = 0, self.pattern.next_day(first, offset)
        while source is not None and source <= last and mask != self.times:
            mask |= self.pattern.times_on(source, offset)
            source = self.pattern.next_day(source + 1, offset)
        return mask

    def _sources_of(self, business: int) -> tuple[int, int]:
        """First and last of the days whose fires come to lie on a business day."""
        if self.roll is Roll.NEXT:
            before = self.days.previous_from(business - 1)
            return (FIRST_INSTANT // DAY if before is None else before + 1), business
        after = self.days.next_from(business + 1)
        return business, (LAST_INSTANT // DAY if after is None else after - 1)
