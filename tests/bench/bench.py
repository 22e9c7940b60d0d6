"""Goes through what was asked for, and shows on bars where it is."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from rich.progress import Progress

from tests.bench import dst_table
from tests.bench.column import OURS, TITLES, Column
from tests.bench.measure import Tell, measure_burst, measure_cost, measure_rate
from tests.bench.mirror_rate import measure_mirror
from tests.bench.plan import Measure, Plan
from tests.bench.result import Cache, Nights, Results
from tests.bench.sleepers import measure_sleepers
from tests.bench.stand import Stand, standing

WARM_UP = 20
"""Jobs that fire before the measurement."""


class Bench:
    """Goes through what was asked for, in alternating runs, and shows where it is."""

    def __init__(self, plan: Plan, progress: Progress, *, columns: Sequence[Column]) -> None:
        self.results = Results()
        self._plan = plan
        self._progress = progress
        self._columns = columns

    async def run(self, measures: Sequence[Measure]) -> None:
        """Measure all that was asked for."""
        steps: dict[Measure, Callable[[], Awaitable[None]]] = {
            Measure.STEADY: self._steady,
            Measure.BURST: self._burst,
            Measure.CACHE: self._cache,
            Measure.SLEEPERS: self._sleepers,
            Measure.MIRROR: self._mirror,
            Measure.DST: self._dst,
        }
        begin = time.monotonic()
        for measure in measures:
            await steps[measure]()
        self.results.seconds = time.monotonic() - begin

    async def _steady(self) -> None:
        await self._alternate("steady load and rate held", self._measure_steady, runs=self._plan.runs)

    async def _measure_steady(self, column: Column, tell: Tell) -> None:
        load, plan = self._plan.cost, self._plan
        if column is Column.TIMERS:
            load = replace(load, window=plan.timers_window)
        async with standing(column) as stand:
            cost, jobs = await measure_cost(stand, load, tell)
            rate = await measure_rate(stand, jobs, tell, growth=plan.growth, limit=plan.rate_limit)
        self.results.cost.setdefault(column, []).append(cost)
        self.results.rate.setdefault(column, []).append(rate)

    async def _burst(self) -> None:
        await self._alternate(f"{self._plan.burst} due at once", self._measure_burst, runs=self._plan.runs)
        await self._alternate(f"{self._plan.large_burst} due at once", self._measure_large_burst, runs=1)

    async def _measure_burst(self, column: Column, tell: Tell) -> None:
        async with standing(column) as stand:
            await _warm_up(stand)
            burst = await measure_burst(stand, self._plan.burst, tell)
        self.results.burst.setdefault(column, []).append(burst)

    async def _measure_large_burst(self, column: Column, tell: Tell) -> None:
        async with standing(column) as stand:
            await _warm_up(stand)
            burst = await measure_burst(stand, self._plan.large_burst, tell)
        self.results.large_burst.setdefault(column, []).append(burst)

    async def _cache(self) -> None:
        ours = [column for column in self._columns if column in OURS]
        await self._alternate("cold cache", self._measure_cache, runs=1, columns=ours)

    async def _measure_cache(self, column: Column, tell: Tell) -> None:
        slots = str(self._plan.cache_slots)
        async with standing(column) as stand:
            warm, _ = await measure_cost(stand, self._plan.cache, tell)
        async with standing(column, max_cached_workflows=slots, workflow_task_slots=slots) as stand:
            cold, _ = await measure_cost(stand, self._plan.cache, tell)
        self.results.cache[column] = Cache(
            warm_server_ms=warm.server_ms,
            warm_worker_ms=warm.worker_ms,
            cold_server_ms=cold.server_ms,
            cold_worker_ms=cold.worker_ms,
            cold_lateness=cold.lateness,
        )

    async def _sleepers(self) -> None:
        with _Step(self._progress, f"{self._plan.sleepers.jobs:,} sleeping jobs", 1) as step:
            self.results.sleepers = await measure_sleepers(self._plan.sleepers, step.tell)
            step.advance()

    async def _mirror(self) -> None:
        databases = ("sqlite", "postgresql")
        with _Step(self._progress, "mirror", len(databases)) as step:
            for database in databases:
                self.results.mirror.append(await measure_mirror(database, step.tell, seconds=self._plan.mirror_seconds))
                step.advance()

    async def _dst(self) -> None:
        with _Step(self._progress, "nights of clock changes", 1) as step:
            rows = await dst_table.ask_native(dst_table.make_rows())
            dst_table.write_document(rows)
            self.results.dst = Nights(
                rows=len(rows),
                ours_wrong=sum(row.ours != row.truth for row in rows),
                native_wrong=sum(row.native != row.truth for row in rows),
            )
            step.advance()

    async def _alternate(
        self,
        title: str,
        measure: Callable[[Column, Tell], Awaitable[None]],
        *,
        runs: int,
        columns: Sequence[Column] | None = None,
    ) -> None:
        """Measure every column in turn, and all of them again, so that a slow minute of the machine hits all alike."""
        columns = self._columns if columns is None else columns
        with _Step(self._progress, title, runs * len(columns)) as step:
            for run in range(runs):
                for column in columns:
                    step.about = f"run {run + 1}, {TITLES[column]}"
                    await measure(column, step.tell)
                    step.advance()


class _Step:
    """A bar."""

    def __init__(self, progress: Progress, title: str, total: int) -> None:
        self._progress = progress
        self._task = self._progress.add_task(title, total=total, what="")
        self._title = title
        self._log_again_at = 0.0
        self.about = ""

    def tell(self, what: str) -> None:
        text = f"{self.about}: {what}" if self.about else what
        self._progress.update(self._task, what=text)
        if not self._progress.console.is_terminal:
            # Bars would show nothing until the end: a line a quarter of a minute is enough for a log.
            self._log(text)

    def _log(self, text: str) -> None:
        now = time.monotonic()
        if now >= self._log_again_at:
            self._log_again_at = now + 15
            self._progress.console.print(f"{self._title}: {text}")

    def advance(self) -> None:
        self._progress.advance(self._task)

    def __enter__(self) -> "_Step":
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.update(self._task, what="")


async def _warm_up(stand: Stand) -> None:
    """Let a few jobs fire, so that nothing is done for the first time in the burst."""
    await measure_burst(stand, WARM_UP, lambda _: None, prefix="warm")
