"""What the bench makes of its figures: who was late, what is met, what is not known."""

import math
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from tests.bench.__main__ import DOCUMENT, OTHERS_MARK, TABLE_MARK, TUNING_MARK
from tests.bench.bench import Bench, Step
from tests.bench.column import Column
from tests.bench.document import put_between
from tests.bench.fire_log import BenchJob, FireLog, look
from tests.bench.measure import Tell
from tests.bench.plan import FULL, USUAL
from tests.bench.requirement import Line, make_lines
from tests.bench.result import Burst, Cache, Cost, Rate, Results, Sleepers
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


def _cost(*, requests: float = 15, writes: float = 6.0, lost: int = 0, worker_ms: float = 10) -> Cost:
    return Cost(
        fires=100,
        lateness=(0.1,) * 100,
        lost=lost,
        persistence_requests=requests,
        state_writes=writes,
        events=14,
        server_ms=15,
        worker_ms=worker_ms,
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


def _burst(drained: float) -> Burst:
    return Burst(jobs=500, drained=drained, lateness=(1.0,), lost=0, server_ms=1, worker_ms=1)


@pytest.mark.parametrize(
    ("timers", "long_sleep", "native", "met"),
    [
        ([6, 6, 6], [12, 12, 12], [24, 24, 24], True),
        ([6.1, 6.1, 1], [12, 12, 12], [24, 24, 24], False),
        ([6, 6, 6], [12.1, 12.1, 1], [24, 24, 24], False),
        ([6, math.nan, math.nan], [12, 12, 12], [24, 24, 24], False),
        ([6, 6, 6], [12, 12, 12], [math.nan] * 3, None),
    ],
)
def test_bursts_are_compared_by_their_medians(
    timers: list[float], long_sleep: list[float], native: list[float], met: bool | None
) -> None:
    """A burst of ours that never drains counts as endless; where native never ends, nothing is claimed of the share."""
    columns = zip((Column.TIMERS, Column.LONG_SLEEP, Column.NATIVE), (timers, long_sleep, native), strict=True)
    bursts = {column: [_burst(drained) for drained in drains] for column, drains in columns}
    assert _line(Results(burst=bursts), "drained").met is met


@pytest.mark.parametrize(("native", "raised", "met"), [(25, 50, True), (25.1, 50, False), (25, 50.1, False)])
def test_the_rate_held_is_compared_with_both_natives(native: float, raised: float, met: bool) -> None:
    """Three times native's as it comes, one and a half times with its limiter raised."""
    rate = {
        Column.TIMERS: [Rate(held=75), Rate(held=200), Rate(held=1)],
        Column.NATIVE: [Rate(held=native)],
        Column.RAISED: [Rate(held=raised)],
    }
    assert _line(Results(rate=rate), "rate held").met is met


@pytest.mark.parametrize(("cold", "met"), [(35, True), (36, False)])
def test_a_cold_cache_is_compared_with_a_warm_one(cold: float, met: bool) -> None:
    """Server and worker together, at most twice."""
    cache = {Column.LONG_SLEEP: [Cache(warm=_cost(), cold=_cost(worker_ms=cold))]}
    assert _line(Results(cache=cache), "cache of 20: CPU").met is met


@pytest.mark.parametrize(("lost", "met"), [(1, True), (2, False)])
def test_a_lost_fire_is_late_beyond_measure(lost: int, met: bool) -> None:
    """It is in the 99th percentile; two of 102 are more than a hundredth."""
    cost = {
        column: [_cost(lost=lost if column is Column.TIMERS else 0)] for column in (Column.TIMERS, Column.LONG_SLEEP)
    }
    assert _line(Results(cost=cost), "lateness p99").met is met


def _sleepers(*, asleep: int = 100_000_000, fired: int = 110_000_000, late: float = 0.2, lost: int = 0) -> Sleepers:
    return Sleepers(
        jobs=20_000,
        due=20_000,
        asleep_at_once=20_000,
        started_a_second=200,
        worker_bytes_before=100_000_000,
        worker_bytes_asleep=asleep,
        worker_bytes_tenth_fired=105_000_000,
        worker_bytes_fired=fired,
        server_bytes=9_000,
        database_bytes=28_000,
        mirror_bytes=2_000,
        fires_a_second=42,
        lateness=(late,) * 100,
        lost=lost,
        repeated=0,
    )


@pytest.mark.parametrize(
    ("sleepers", "unmet"),
    [
        (_sleepers(), []),
        (_sleepers(asleep=141_000_000), ["asleep"]),
        (_sleepers(fired=142_000_000), ["fired"]),
        (_sleepers(late=1.1), ["on time"]),
        (_sleepers(lost=2), ["on time"]),
    ],
)
def test_sleepers_hold_no_memory_of_a_worker_and_fire_on_time(sleepers: Sleepers, unmet: list[str]) -> None:
    """Two kilobytes a job are as much as memory may wander."""
    lines = [line for line in make_lines(Results(sleepers=sleepers)) if line.met is False]
    assert len(lines) == len(unmet)
    assert all(word in f"{line.title} {line.required}" for line, word in zip(lines, unmet, strict=True))


def test_a_full_bench_is_planned_to_take_less_than_thirty_minutes() -> None:
    """Three runs of all columns, and everything else that is measured by default."""
    steps = Bench(FULL, columns=list(Column)).list_steps(USUAL)
    assert sum(step.seconds for step in steps) < 30 * 60
    visits = [step.about for step in steps if step.group == "loads and bursts"]
    assert len(visits) == len(set(visits)) == 3 * len(Column)


async def test_what_fails_or_takes_too_long_is_reported_and_the_rest_goes_on() -> None:
    """Never a hang, and never a table without what was measured."""

    async def fail(_: Tell) -> None:
        raise RuntimeError("broken")

    done: list[str] = []

    async def do(_: Tell) -> None:
        done.append("done")

    bench = Bench(FULL, columns=[])
    steps = [
        Step(group="all", about="first", seconds=1, work=fail),
        Step(group="all", about="second", seconds=1, work=do),
        Step(group="all", about="third", seconds=100, work=do),
    ]
    with Progress(console=Console(quiet=True)) as progress:
        await bench.run(steps, progress, budget=60)
    assert done == ["done"]
    assert [(each.what, each.reason) for each in bench.results.failures] == [
        ("all, first", "RuntimeError: broken"),
        ("all, third", "left out: over the budget of 1 minutes"),
    ]


def test_text_is_put_between_marks(tmp_path: Path) -> None:
    """Again and again, and what stands around it stays; a document without the marks is refused."""
    document = tmp_path / "document.md"
    document.write_text("before\n<!-- a -->\n<!-- end -->\nbetween\n<!-- b -->\n<!-- end -->\n")
    for text in ("one", "two"):
        put_between(document, "<!-- b -->", text)
    assert document.read_text() == "before\n<!-- a -->\n<!-- end -->\nbetween\n<!-- b -->\n\ntwo\n\n<!-- end -->\n"
    with pytest.raises(ValueError, match="<!-- c -->"):
        put_between(document, "<!-- c -->", "three")


def test_the_document_has_the_marks_that_the_bench_writes_between() -> None:
    """So that a bench of half an hour does not end with an error."""
    text = DOCUMENT.read_text()
    for mark in (TABLE_MARK, TUNING_MARK, OTHERS_MARK):
        assert text.count(mark) == 1
