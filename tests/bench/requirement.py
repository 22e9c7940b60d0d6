"""What the bench is to show, and the lines of its table. Pure: results in, text out."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.bench.column import OURS, TITLES, Column
from tests.bench.measure import TOO_LATE
from tests.bench.result import Burst, Cache, Cost, Knob, Nights, Results, Sleepers
from tests.bench.statistic import median, percentile

SAME_BYTES: Final = 2_000
"""Bytes a job that a worker's memory may wander by: with its load it does, by some tens of megabytes in all. A job in its cache
would hold fifty times as much, so that 20,000 would be seen as two gigabytes."""

T, L, N, R = Column.TIMERS, Column.LONG_SLEEP, Column.NATIVE, Column.RAISED


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the table."""

    title: str
    cells: dict[Column, str]
    required: str = ""
    met: bool | None = None
    """``None`` where nothing is required, or what it is compared with was not measured."""


@dataclass
class _Figures:
    """Medians over the runs, by column."""

    title: str
    digits: int
    values: dict[Column, float] = field(default_factory=dict)
    suffix: str = ""

    def line(self, required: str = "", met: bool | None = None) -> Line:
        cells = {column: f"{value:.{self.digits}f}{self.suffix}" for column, value in self.values.items()}
        return Line(title=self.title, cells=cells, required=required, met=met)

    def share(self, column: Column, of: Column) -> float:
        """How many times as much; not a number where either was not measured."""
        divisor = self.values.get(of, math.nan)
        return self.values.get(column, math.nan) / divisor if divisor else math.nan


def make_lines(results: Results) -> list[Line]:
    """Lay all results out."""
    return [
        *_rate_lines(results),
        *_cost_lines(results),
        *_burst_lines(results.burst, required=True),
        *_burst_lines(results.large_burst, required=False),
        *_cache_lines(results.cache),
        *([] if results.sleepers is None else _sleeper_lines(results.sleepers)),
        *(
            Line(title=f"mirror on {each.database}, rows a second", cells={T: f"{each.rows_a_second:,.0f}"})
            for each in results.mirror
        ),
        *([] if results.dst is None else [_nights_line(results.dst)]),
    ]


def _nights_line(nights: Nights) -> Line:
    right = {T: nights.rows - nights.ours_wrong, N: nights.rows - nights.native_wrong}
    cells = {column: f"{count} of {nights.rows}" for column, count in right.items()}
    return Line(
        title="nights of clock changes: rows right", cells=cells, required="all ours", met=not nights.ours_wrong
    )


def _rate_lines(results: Results) -> Iterator[Line]:
    held = _Figures("rate held, fires a second", 0, _medians(results.rate, lambda each: each.held))
    if held.values:
        native, raised = held.share(T, N), held.share(T, R)
        yield held.line(
            f"timers: 3 x native ({native:.2f}), 1.5 x raised ({raised:.2f})",
            _all_met(native >= 3, raised >= 1.5, known=(native, raised)),
        )


def _cost_lines(results: Results) -> Iterator[Line]:
    cost = results.cost
    if not cost:
        return
    seen = {column: f"{sum(run.fires for run in runs):,}" for column, runs in cost.items()}
    yield Line(title="steady load: fires seen", cells=seen)
    yield _Figures("  lost", 0, {c: float(sum(r.lost for r in runs)) for c, runs in cost.items()}).line()
    pooled = {column: [late for run in runs for late in _lateness_of(run)] for column, runs in cost.items()}
    yield _lateness("  lateness p50, s", pooled, 0.5).line()
    yield _p99_line("  lateness p99, s", pooled)
    yield _lateness("  lateness worst, s", pooled, 1.0).line()
    yield from _writing_lines(cost)
    yield _cost_figures("  history events a fire", 1, cost, lambda run: run.events).line()
    yield _cost_figures("  server CPU a fire, ms", 1, cost, lambda run: run.server_ms).line()
    yield _cost_figures("  worker CPU a fire, ms", 1, cost, lambda run: run.worker_ms).line()


def _writing_lines(cost: dict[Column, list[Cost]]) -> Iterator[Line]:
    writes = _cost_figures("  workflow-state writes a fire", 2, cost, lambda run: run.state_writes)
    timers = writes.values.get(T, math.nan)
    yield writes.line("timers: at most 7.0", _all_met(timers <= 7.0, known=[timers]))
    requests = _cost_figures("  persistence requests a fire", 1, cost, lambda run: run.persistence_requests)
    ours = requests.share(T, N), requests.share(L, N)
    yield requests.line(
        f"of native's: timers at most 60% ({ours[0]:.0%}), long sleep 90% ({ours[1]:.0%})",
        _all_met(ours[0] <= 0.6, ours[1] <= 0.9, known=ours),
    )


def _burst_lines(bursts: dict[Column, list[Burst]], *, required: bool) -> Iterator[Line]:
    if not bursts:
        return
    jobs = next(iter(bursts.values()))[0].jobs
    drained = _Figures(
        f"{jobs:,} due at once: drained, s", 1, {c: median(_drains(c, runs)) for c, runs in bursts.items()}
    )
    if required:
        shares = drained.share(T, N), drained.share(L, N)
        yield drained.line(
            f"of native's: timers at most 25% ({shares[0]:.0%}), long sleep 50% ({shares[1]:.0%})",
            _all_met(shares[0] <= 0.25, shares[1] <= 0.5, known=shares),
        )
    else:
        yield drained.line()
    yield _Figures("  worst start, s", 1, _medians(bursts, lambda each: max(each.lateness, default=math.nan))).line()
    yield _Figures("  lost", 0, {c: float(sum(run.lost for run in runs)) for c, runs in bursts.items()}).line()
    yield _Figures("  server CPU a fire, ms", 1, _medians(bursts, lambda each: each.server_ms)).line()
    yield _Figures("  worker CPU a fire, ms", 1, _medians(bursts, lambda each: each.worker_ms)).line()


def _drains(column: Column, bursts: list[Burst]) -> list[float]:
    """List the times to drain. One of ours that never drained took for ever; one of native's proves nothing."""
    drains = [burst.drained for burst in bursts]
    return [math.inf if math.isnan(drained) and column in OURS else drained for drained in drains]


def _cache_lines(cache: dict[Column, list[Cache]]) -> Iterator[Line]:
    if not cache:
        return
    yield _p99_line(
        "10 fires a second of 500 jobs: lateness p99, s",
        {column: [late for run in runs for late in _lateness_of(run.warm)] for column, runs in cache.items()},
    )
    yield _Figures("  all in the cache: CPU a fire, ms", 1, _medians(cache, lambda each: each.warm.cpu_ms)).line()
    ratio = median([each.ratio for each in cache.get(L, ())])
    yield _Figures("  cache of 20: CPU a fire, ms", 1, _medians(cache, lambda each: each.cold.cpu_ms)).line(
        f"long sleep: at most 2 x warm ({ratio:.2f})", _all_met(ratio <= 2, known=[ratio])
    )
    late = {column: [late for run in runs for late in _lateness_of(run.cold)] for column, runs in cache.items()}
    yield _lateness("  cache of 20: lateness p99, s", late, 0.99).line()


def _sleeper_lines(found: Sleepers) -> Iterator[Line]:
    asleep = (found.worker_bytes_asleep - found.worker_bytes_before) / found.jobs
    fired = (found.worker_bytes_fired - found.worker_bytes_tenth_fired) / (found.due - found.due // 10)
    p99 = percentile([*found.lateness, *[math.inf] * found.lost], 0.99)
    on_time = not found.lost and not found.repeated and p99 < TOO_LATE
    rows: Sequence[tuple[str, str, str, bool | None]] = (
        ("worker memory, MB", f"{found.worker_bytes_asleep / 1e6:.0f}", "", None),
        ("  grown while they fell asleep, bytes a job", f"{asleep:.0f}", "does not grow", asleep < SAME_BYTES),
        ("  grown while nine in ten fired, bytes a job", f"{fired:.0f}", "does not grow", fired < SAME_BYTES),
        ("  server memory, bytes a job", f"{found.server_bytes:,.0f}", "", None),
        ("  Temporal's database, bytes a job", f"{found.database_bytes:,.0f}", "", None),
        ("  mirror, bytes a job", f"{found.mirror_bytes:,.0f}", "", None),
        ("  came due; fires a second", f"{found.due:,}; {found.fires_a_second:.0f}", "", None),
        (
            "  lateness p99 (worst), s; lost; twice",
            f"{p99:.2f} ({max(found.lateness, default=math.nan):.2f}); {found.lost}; {found.repeated}",
            "all fire on time, once",
            on_time,
        ),
    )
    for number, (title, text, required, met) in enumerate(rows):
        head = f"{found.jobs:,} jobs, {found.asleep_at_once:,} asleep at once: {title}" if number == 0 else title
        yield Line(title=head, cells={L: text}, required=required, met=met)


def knob_lines(results: Results) -> list[tuple[str, ...]]:
    """Lay the workers with one thing set otherwise out: medians, and how many times as much that is as with the usual one."""
    groups: dict[tuple[Column, str, str], list[Knob]] = {}
    for knob in results.knobs:
        groups.setdefault((knob.column, knob.name, knob.value), []).append(knob)
    usual = {column: runs for (column, _, value), runs in groups.items() if not value}
    return [
        (TITLES[column], f"`{name}` {value}" if value else name, *_knob_cells(runs, usual.get(column, runs)))
        for (column, name, value), runs in groups.items()
    ]


KNOB_HEAD: Final = (
    "",
    "",
    "worker CPU a fire, ms",
    "server CPU a fire, ms",
    "state writes a fire",
    "persistence requests a fire",
    "lateness p99, s",
    "burst drained, s",
)


def _knob_cells(runs: list[Knob], usual: list[Knob]) -> Iterator[str]:
    figures: Sequence[tuple[int, Callable[[Knob], float]]] = (
        (1, lambda each: each.cost.worker_ms),
        (1, lambda each: each.cost.server_ms),
        (2, lambda each: each.cost.state_writes),
        (1, lambda each: each.cost.persistence_requests),
        (2, lambda each: percentile(_lateness_of(each.cost), 0.99)),
        (1, lambda each: each.burst.drained),
    )
    for digits, figure in figures:
        value, other = median([figure(each) for each in runs]), median([figure(each) for each in usual])
        times = "" if runs is usual or not other else f" ({value / other:.2f})"
        yield f"{value:.{digits}f}{times}"


def _lateness_of(cost: Cost) -> list[float]:
    """List how late fires were; those that were lost are late beyond measure."""
    return [*cost.lateness, *[math.inf] * cost.lost]


def _p99_line(title: str, pooled: dict[Column, list[float]]) -> Line:
    p99 = _lateness(title, pooled, 0.99)
    ours = [p99.values.get(column, math.nan) for column in OURS]
    return p99.line("ours: below 1 s", _all_met(*(late < TOO_LATE for late in ours), known=ours))


def _medians(runs: dict[Column, list], figure: Callable[..., float]) -> dict[Column, float]:  # type: ignore[type-arg]
    return {column: median([figure(run) for run in each]) for column, each in runs.items()}


def _cost_figures(title: str, digits: int, cost: dict[Column, list[Cost]], figure: Callable[[Cost], float]) -> _Figures:
    return _Figures(title, digits, _medians(cost, figure))


def _lateness(title: str, pooled: dict[Column, list[float]], share: float) -> _Figures:
    return _Figures(title, 2, {column: percentile(values, share) for column, values in pooled.items()})


def _all_met(*conditions: bool, known: Sequence[float]) -> bool | None:
    """Say whether all hold; ``None`` where a figure is missing."""
    return None if any(math.isnan(value) for value in known) else all(conditions)
