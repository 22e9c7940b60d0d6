"""Which fires a schedule's owner does not want.

An exclusion looks at the local time at which a fire really happens: one that a gap moved from 02:30 to 03:00 is
compared as 03:00, on the date it has then.
"""

from dataclasses import dataclass
from datetime import date

from workflows.clock_mask import FULL_DAY, clock_mask
from workflows.cron_expression import CronExpression, parse_cron
from workflows.fire_walk import DayFires
from workflows.schedule import Exclusions
from workflows.zone import to_date

_EVERY_SECOND = frozenset(range(60))


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

    dates: frozenset[date]
    rules: tuple[tuple[str, CronExpression, int], ...]
    """(why, expression, mask of the excluded times of a matching date)"""

    def sort(self, fires: DayFires) -> SortedFires:
        """Tell wanted fires from unwanted ones. The first reason that applies is the one given: dates, then crons."""
        if not self.dates and not self.rules:
            return SortedFires(fires, fires.mask)
        day = to_date(fires.day)
        if day in self.dates:
            return SortedFires(fires, 0, ((f"date {day}", fires.mask),))
        return self._sort_by_rules(fires, day)

    def _sort_by_rules(self, fires: DayFires, day: date) -> SortedFires:
        wanted, unwanted = fires.mask, []
        for why, expression, mask in self.rules:
            if wanted & mask and expression.matches_date(day):
                unwanted.append((why, wanted & mask))
                wanted &= ~mask
        return SortedFires(fires, wanted, tuple(unwanted))


def build_filter(exclude: Exclusions, *, job_id: str) -> ExclusionFilter:
    """Prepare a schedule's exclusions. Raises InvalidSchedule for a cron expression that cannot be read."""
    rules = []
    for index, text in enumerate(exclude.cron):
        expression = parse_cron(text, job_id=job_id, pointer=f"/exclude/cron/{index}")
        rules.append((f"cron {expression.text}", expression, _excluded_times(expression)))
    return ExclusionFilter(frozenset(exclude.dates), tuple(rules))


def _excluded_times(expression: CronExpression) -> int:
    # Five fields name minutes, so they exclude a fire at any second of theirs.
    seconds = expression.second.values if expression.has_seconds else _EVERY_SECOND
    return clock_mask(expression.hour.values, expression.minute.values, seconds) & FULL_DAY
