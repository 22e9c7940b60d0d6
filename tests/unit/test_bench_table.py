"""What the bench makes of its figures: who was late, what is met, what is not known."""

import math
from pathlib import Path

import pytest

from tests.bench.column import Column
from tests.bench.fire_log import BenchJob, FireLog, look
from tests.bench.requirement import Line, make_lines
from tests.bench.result import Burst, Cost, Rate, Results
from tests.bench.statistic import median, percentile


def test_a_percentile_is_a_value_that_was_seen() -> None:
    """The nearest rank, as most tables of latency have it."""
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.99, 1.0)] == [50, 99, 100]
    assert math.isnan(percentile([], 0.5))


def test_a_median_leaves_out_what_was_not_measured() -> None:
    """A run that never ended does not hide the two that did."""
    assert median([3.0, math.nan, 1.0, 2.0]) == 2.0
    assert median([1.0, 2.0]) == 1.5


def test_due_times_are_those_of_the_grid() -> None:
    """From the start, which counts, to the end, which does not."""
    job = BenchJob("a", 5, 2)
    assert job.due_between(2, 13) == [2, 7, 12]
    assert job.due_between(2.5, 12) == [7]
    assert job.due_between(100, 105) == [102]


def test_fires_are_late_lost_or_repeated(tmp_path: Path) -> None:
    """A fire without a line is lost, one with two began twice, and half a line is not read yet."""
    log = FireLog(tmp_path / "fires.log")
    log.path.write_text("a 10 10.5\na 12 12.25\na 12 13.0\nb 10 1")
    seen = look(log, [BenchJob("a", 2, 0), BenchJob("b", 2, 0)], 10, 14)
    assert (seen.lateness, seen.lost, seen.repeated) == ((0.25, 0.5), 2, 1)
    with log.path.open("a") as more:
        more.write("0.75\n")
    assert look(log, [BenchJob("b", 2, 0)], 10, 12).lateness == (0.75,)


def _cost(*, requests: float, writes: float = 6.0) -> Cost:
    return Cost(
        fires=100,
        lateness=(0.1,) * 100,
        lost=0,
        persistence_requests=requests,
        state_writes=writes,
        events=14,
        server_ms=15,
        worker_ms=10,
    )


def _line(results: Results, word: str) -> Line:
    return next(line for line in make_lines(results) if word in line.title)


@pytest.mark.parametrize(("timers", "long_sleep", "met"), [(18, 27, True), (19, 27, False), (18, 28, False)])
def test_persistence_is_compared_with_native(timers: float, long_sleep: float, met: bool) -> None:
    """At most 60% of native's on timers and 90% on the long sleep, by the medians."""
    cost = {
        Column.TIMERS: [_cost(requests=99), _cost(requests=timers), _cost(requests=1)],
        Column.LONG_SLEEP: [_cost(requests=long_sleep)],
        Column.NATIVE: [_cost(requests=30)],
    }
    assert _line(Results(cost=cost), "persistence").met is met


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    """A column that was left out says nothing."""
    assert _line(Results(cost={Column.TIMERS: [_cost(requests=1)]}), "persistence").met is None
    assert _line(Results(rate={Column.TIMERS: [Rate(held=90)]}), "rate held").met is None


def test_a_burst_that_never_drains_is_not_hidden() -> None:
    """Where native never ends, nothing is claimed of the share."""
    bursts = {
        column: [Burst(jobs=500, drained=drained, lateness=(1.0,), lost=0, server_ms=1, worker_ms=1)]
        for column, drained in ((Column.TIMERS, 6.0), (Column.LONG_SLEEP, 12.0), (Column.NATIVE, math.nan))
    }
    assert _line(Results(burst=bursts), "drained").met is None
    bursts[Column.NATIVE] = [Burst(jobs=500, drained=24.0, lateness=(1.0,), lost=0, server_ms=1, worker_ms=1)]
    assert _line(Results(burst=bursts), "drained").met is True
