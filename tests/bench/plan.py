"""What is measured, and how much of it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.bench.measure import Load
from tests.bench.sleepers import Plan as SleepersPlan


class Measure(StrEnum):
    """What can be asked for alone."""

    STEADY = "steady"
    """Cost and lateness of fires under an even load, and then the rate held."""

    BURST = "burst"
    """500 and 1,000 jobs due at one instant."""

    CACHE = "cache"
    SLEEPERS = "sleepers"
    MIRROR = "mirror"
    DST = "dst"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured."""

    runs: int
    """Through all columns, one after another."""

    cost: Load
    timers_window: int
    """In place of the window of ``cost``: seconds in which each job on timers continues as new as often as it does."""

    growth: float
    """Of the number of jobs, each period, in search of the rate that is held."""

    rate_limit: float
    """Fires a second at which the search ends anyway."""

    burst: int
    large_burst: int
    """Measured once."""

    cache: Load
    cache_slots: int
    sleepers: SleepersPlan
    mirror_seconds: float


FULL: Final = Plan(
    runs=3,
    # 20 fires a second; 28 fires fill the history of a job on timers.
    cost=Load(jobs=40, period=2, warm=4, window=36),
    timers_window=56,
    growth=0.08,
    rate_limit=200,
    burst=500,
    large_burst=1_000,
    cache=Load(jobs=500, period=20, warm=12, window=20),
    cache_slots=20,
    sleepers=SleepersPlan(jobs=20_000, register_rate=45, fire_rate=35),
    mirror_seconds=5,
)
"""Takes less than thirty minutes on two cores."""


QUICK: Final = Plan(
    runs=1,
    cost=Load(jobs=20, period=2, warm=3, window=8),
    timers_window=8,
    growth=0.5,
    rate_limit=40,
    burst=50,
    large_burst=100,
    cache=Load(jobs=60, period=10, warm=5, window=10),
    cache_slots=20,
    sleepers=SleepersPlan(jobs=200, register_rate=10, fire_rate=10),
    mirror_seconds=1,
)
"""To see that everything works. Its figures mean nothing."""
