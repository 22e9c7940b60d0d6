"""What is measured, how much of it, and how long that should take. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.bench.column import OURS, Column
from tests.bench.measure import REGISTER_RATE, Load, lead_seconds
from tests.bench.sleepers import Plan as SleepersPlan

T, L, N, R, C = Column.TIMERS, Column.LONG_SLEEP, Column.NATIVE, Column.RAISED, Column.CHASM


class Measure(StrEnum):
    """What can be asked for alone."""

    MIRROR = "mirror"
    DST = "dst"

    BURST = "burst"
    """500 and 1,000 jobs due at one instant."""

    STEADY = "steady"
    """Cost and lateness of fires under an even load, and then the rate held."""

    CACHE = "cache"
    SLEEPERS = "sleepers"

    TUNING = "tuning"
    """Workers with one thing set otherwise. Only where it is asked for."""


USUAL: Final = tuple(measure for measure in Measure if measure is not Measure.TUNING)

ONCE_BURST: Final = frozenset({R, C})
"""Columns whose bursts nothing is required of: the smaller one alone, in the first run alone."""

ONCE_RATE: Final = frozenset({C})


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured."""

    runs: int
    """Through all columns, one after another."""

    steady: Load
    timers_history_limit: int
    """Of jobs on timers: low enough for each to continue as new within the window, which costs them more, not less."""

    rate_limit: float
    """Fires a second at which the search ends anyway."""

    burst: int
    large_burst: int
    """In the first run alone."""

    cache: Load
    cache_slots: int
    sleepers: SleepersPlan
    mirror_seconds: float
    tuning: Load
    tuning_burst: int


FULL: Final = Plan(
    runs=3,
    # 28 fires a second, a little less than the 30 that native starts as it comes; 2,016 of them in three runs.
    steady=Load(jobs=56, period=2, warm=2, window=24),
    timers_history_limit=160,
    rate_limit=200,
    burst=500,
    large_burst=1_000,
    # Ten fires a second.
    cache=Load(jobs=500, period=50, warm=2, window=14),
    cache_slots=20,
    sleepers=SleepersPlan(jobs=20_000, registered=500, start_rate=180, fire_rate=46, fire_seconds=180),
    mirror_seconds=3,
    # Light, so that ratios mean something on a machine that does other things as well.
    tuning=Load(jobs=30, period=3, warm=3, window=15),
    tuning_burst=200,
)
"""Takes less than thirty minutes on two cores."""


QUICK: Final = Plan(
    runs=1,
    steady=Load(jobs=20, period=2, warm=2, window=8),
    timers_history_limit=160,
    rate_limit=20,
    burst=30,
    large_burst=60,
    cache=Load(jobs=60, period=10, warm=2, window=6),
    cache_slots=20,
    sleepers=SleepersPlan(jobs=300, registered=30, start_rate=30, fire_rate=10, fire_seconds=30),
    mirror_seconds=1,
    tuning=Load(jobs=20, period=2, warm=2, window=6),
    tuning_burst=30,
)
"""To see that everything works. Its figures mean nothing."""


STAND_SECONDS: Final = 7.5
"""For a server and a worker to start, to be warmed, and to stop."""

DRAIN_RATES: Final[Mapping[Column, float]] = {T: 75, L: 60, N: 28, R: 60, C: 150}
"""Fires a second, about, in a burst on two cores."""

CLIMB_SECONDS: Final[Mapping[Column, float]] = {T: 30, L: 15, N: 9, R: 15, C: 21}
"""To the highest rate that is held, about."""


def burst_seconds(column: Column, count: int) -> float:
    """Expect so long for a burst."""
    return lead_seconds(column, count) + 1 + count / DRAIN_RATES[column]


def load_seconds(load: Load) -> float:
    """Expect so long for a steady load, its jobs registered before it."""
    return load.jobs / REGISTER_RATE + load.warm + load.window + 3


def round_seconds(plan: Plan, column: Column, measures: frozenset[Measure], *, run: int) -> float:
    """Expect so long for one visit of a column."""
    seconds = STAND_SECONDS
    if takes_burst(column, measures, run=run):
        seconds += burst_seconds(column, plan.burst)
        seconds += burst_seconds(column, plan.large_burst) if takes_large_burst(column, run=run) else 0.0
    if Measure.STEADY in measures:
        seconds += load_seconds(plan.steady) + (CLIMB_SECONDS[column] if takes_rate(column, run=run) else 0.0)
        seconds += STAND_SECONDS if column in OURS else 0.0
        seconds += load_seconds(plan.steady) - plan.steady.window if column is T else 0.0
    return seconds


def takes_burst(column: Column, measures: frozenset[Measure], *, run: int) -> bool:
    """Whether a column's visit in a run holds bursts."""
    return Measure.BURST in measures and (run == 0 or column not in ONCE_BURST)


def takes_large_burst(column: Column, *, run: int) -> bool:
    """Whether the larger burst follows the smaller one."""
    return run == 0 and column not in ONCE_BURST


def takes_rate(column: Column, *, run: int) -> bool:
    """Whether a column's visit in a run ends with the search for the rate that is held."""
    return run == 0 or column not in ONCE_RATE


def sleepers_seconds(plan: SleepersPlan) -> float:
    """Expect so long for the sleepers."""
    return STAND_SECONDS + 1.3 * plan.jobs / plan.start_rate + 10 + plan.due / plan.fire_rate + 3


def cache_seconds(plan: Plan) -> float:
    """Expect so long for one column's cache, warm and cold."""
    return STAND_SECONDS + 2 * load_seconds(plan.cache) - plan.cache.jobs / REGISTER_RATE + 3


def knob_seconds(plan: Plan, column: Column) -> float:
    """Expect so long for a worker with one thing set otherwise."""
    return STAND_SECONDS + burst_seconds(column, plan.tuning_burst) + load_seconds(plan.tuning)
