"""Goes through what was asked for, step by step, and shows on bars where it is.

A step has a planned time and a bound. One that fails is reported with the results, and the others go on; one that would
end after the budget is left out, and is reported too.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

from rich.progress import Progress, TaskID

from tests.bench import dst_table
from tests.bench.column import OURS, TITLES, Column
from tests.bench.fire_log import BenchJob
from tests.bench.knob import KNOBS, Setting, measure_knob
from tests.bench.machine import watching
from tests.bench.measure import Tell, begin_load, measure_burst, measure_cost, measure_rate, measure_running, warm_up
from tests.bench.mirror_rate import measure_mirror
from tests.bench.plan import (
    Measure,
    Plan,
    cache_seconds,
    knob_seconds,
    round_seconds,
    sleepers_seconds,
    takes_burst,
    takes_large_burst,
    takes_rate,
)
from tests.bench.result import Cache, Failure, Nights, Results
from tests.bench.sleepers import Plan as SleepersPlan
from tests.bench.sleepers import measure_sleepers
from tests.bench.stand import Stand, standing
from tests.bench.statistic import median

PATIENCE = 3
"""Times as long as planned, and a minute, a step may take."""

SLEEPERS_SHARE = 0.5
"""Fires a second that sleepers are due at, of those that jobs on the long sleep held: that was for seconds, this for minutes."""

SLEEPERS_FASTEST = 50

DST_SECONDS, DATABASE_SECONDS = 10, 4


@dataclass(frozen=True, kw_only=True)
class Step:
    """One visit of a contender, or one thing alone."""

    group: str
    """Title of its bar."""

    about: str
    seconds: float
    """Planned."""

    work: Callable[[Tell], Awaitable[None]]
    watched: bool = True
    """Whether all that it uses are children of this process, so that others' use can be told apart."""


class Bench:
    """Measures the columns that were asked for, as much as planned."""

    def __init__(self, plan: Plan, *, columns: Sequence[Column]) -> None:
        self.results = Results()
        self._plan = plan
        self._columns = columns

    def list_steps(self, measures: Sequence[Measure]) -> list[Step]:
        """Plan everything. The last run comes last: the others have all that is required but its share of the medians."""
        steps = [*self._mirror_steps(measures), *self._dst_steps(measures)]
        rounds = [list(self._round(frozenset(measures), run)) for run in range(self._plan.runs)]
        steps += [step for each in rounds[:-1] for step in each]
        steps += [*self._cache_steps(measures), *self._sleepers_steps(measures)]
        steps += [step for each in rounds[-1:] for step in each]
        return [*steps, *self._knob_steps(measures)]

    async def run(self, steps: Sequence[Step], progress: Progress, *, budget: float | None = None) -> None:
        """Go through the steps, in at most ``budget`` seconds as far as their plans hold."""
        begin = time.monotonic()
        self.results.planned_seconds = sum(step.seconds for step in steps)
        bars = {
            group: _Bar(progress, group, total=sum(step.group == group for step in steps))
            for group in dict.fromkeys(step.group for step in steps)
        }
        for step in steps:
            bar = bars[step.group]
            bar.about = step.about
            if budget is not None and time.monotonic() - begin + step.seconds > budget:
                self._fail(f"{step.group}, {step.about}", f"left out: over the budget of {budget / 60:g} minutes")
            else:
                await self._take(step, bar.tell)
            bar.advance()
            self.results.seconds = time.monotonic() - begin

    async def _take(self, step: Step, tell: Tell) -> None:
        with watching(self.results.strangers.append) if step.watched else nullcontext():
            await self._attempt(f"{step.group}, {step.about}", step.seconds, step.work(tell))

    async def _attempt(self, what: str, seconds: float, work: Awaitable[None]) -> None:
        """Do a part, within a bound; what becomes of it does not keep the others from being done."""
        limit = PATIENCE * seconds + 60
        try:
            async with asyncio.timeout(limit):
                await work
        except TimeoutError:
            self._fail(what, f"took longer than {limit:.0f} s")
        except Exception as error:  # whatever broke, the other figures are still worth having
            self._fail(what, _reason(error))

    def _fail(self, what: str, reason: str) -> None:
        self.results.failures.append(Failure(what=what, reason=reason))

    def _round(self, measures: frozenset[Measure], run: int) -> Iterator[Step]:
        """List the visits of all columns in turn, so that a slow minute of the machine hits all alike."""
        if not measures & {Measure.BURST, Measure.STEADY}:
            return
        for column in self._columns:
            seconds = round_seconds(self._plan, column, measures, run=run)
            if Measure.STEADY in measures or takes_burst(column, measures, run=run):
                work = partial(self._visit, column, measures, run)
                yield Step(
                    group="loads and bursts", about=f"run {run + 1}, {TITLES[column]}", seconds=seconds, work=work
                )

    async def _visit(self, column: Column, measures: frozenset[Measure], run: int, tell: Tell) -> None:
        """Measure bursts, the steady load and the rate held; a part that fails leaves the next ones their turn.

        Our jobs under the steady load have a stand of their own: those of the bursts would go back to their long sleep in the
        midst of it. And those on timers continue as new sooner there than they do as they come, which the rate is measured with.
        """
        about = f"run {run + 1}, {TITLES[column]}"
        is_ours, is_on_timers = column in OURS, column is Column.TIMERS
        is_steady = Measure.STEADY in measures
        with_rate = is_steady and takes_rate(column, run=run)
        async with standing(column) as stand:
            await warm_up(stand)
            if takes_burst(column, measures, run=run):
                await self._attempt(f"burst, {about}", 120, self._burst(stand, tell))
                if takes_large_burst(column, run=run):
                    await self._attempt(f"large burst, {about}", 180, self._large_burst(stand, tell))
            if with_rate and is_on_timers:
                await self._attempt(f"rate, {about}", 90, self._rate(stand, tell))
            if is_steady and not is_ours:
                await self._attempt(f"steady load, {about}", 120, self._steady(stand, tell, then_rate=with_rate))
        if is_steady and is_ours:
            altered = {"history_limit": str(self._plan.timers_history_limit)} if is_on_timers else {}
            async with standing(column, **altered) as stand:
                await warm_up(stand)
                then_rate = with_rate and not is_on_timers
                await self._attempt(f"steady load, {about}", 120, self._steady(stand, tell, then_rate=then_rate))

    async def _burst(self, stand: Stand, tell: Tell) -> None:
        burst = await measure_burst(stand, self._plan.burst, tell)
        self.results.burst.setdefault(stand.column, []).append(burst)

    async def _large_burst(self, stand: Stand, tell: Tell) -> None:
        burst = await measure_burst(stand, self._plan.large_burst, tell, prefix="large")
        self.results.large_burst.setdefault(stand.column, []).append(burst)

    async def _steady(self, stand: Stand, tell: Tell, *, then_rate: bool) -> None:
        cost, jobs = await measure_cost(stand, self._plan.steady, tell)
        self.results.cost.setdefault(stand.column, []).append(cost)
        if then_rate:
            await self._climb(stand, jobs, tell)

    async def _rate(self, stand: Stand, tell: Tell) -> None:
        await self._climb(stand, await begin_load(stand, self._plan.steady, tell), tell)

    async def _climb(self, stand: Stand, jobs: list[BenchJob], tell: Tell) -> None:
        rate = await measure_rate(stand, jobs, tell, limit=self._plan.rate_limit)
        self.results.rate.setdefault(stand.column, []).append(rate)

    def _cache_steps(self, measures: Sequence[Measure]) -> Iterator[Step]:
        if Measure.CACHE in measures:
            for column in (each for each in self._columns if each in OURS):
                work = partial(self._cache, column)
                yield Step(group="cache", about=TITLES[column], seconds=cache_seconds(self._plan), work=work)

    async def _cache(self, column: Column, tell: Tell) -> None:
        """The same jobs, first with a worker that has them all in its cache, then with one that has hardly any."""
        load, slots = self._plan.cache, str(self._plan.cache_slots)
        async with standing(column) as stand:
            warm, jobs = await measure_cost(stand, load, tell, with_events=False)
            await stand.restart_worker(max_cached_workflows=slots, workflow_task_slots=slots)
            cold = await measure_running(stand, jobs, load, tell, with_events=False)
        self.results.cache.setdefault(column, []).append(Cache(warm=warm, cold=cold))

    def _sleepers_steps(self, measures: Sequence[Measure]) -> Iterator[Step]:
        if Measure.SLEEPERS in measures:
            plan = self._plan.sleepers
            title = f"{plan.jobs:,} sleeping jobs"
            yield Step(group=title, about="", seconds=sleepers_seconds(plan), work=self._sleepers)

    async def _sleepers(self, tell: Tell) -> None:
        self.results.sleepers = await measure_sleepers(self._paced(), tell)

    def _paced(self) -> SleepersPlan:
        plan = self._plan.sleepers
        held = [rate.held for rate in self.results.rate.get(Column.LONG_SLEEP, ())]
        if not held or not median(held):
            return plan
        return replace(plan, fire_rate=min(math.ceil(SLEEPERS_SHARE * median(held)), SLEEPERS_FASTEST))

    def _mirror_steps(self, measures: Sequence[Measure]) -> Iterator[Step]:
        if Measure.MIRROR in measures:
            for database in ("sqlite", "postgresql"):
                seconds = self._plan.mirror_seconds + DATABASE_SECONDS
                work = partial(self._mirror, database)
                yield Step(group="mirror", about=database, seconds=seconds, work=work, watched=False)

    async def _mirror(self, database: str, tell: Tell) -> None:
        self.results.mirror.append(await measure_mirror(database, tell, seconds=self._plan.mirror_seconds))

    def _dst_steps(self, measures: Sequence[Measure]) -> Iterator[Step]:
        if Measure.DST in measures:
            yield Step(group="nights of clock changes", about="", seconds=DST_SECONDS, work=self._dst, watched=False)

    async def _dst(self, tell: Tell) -> None:
        tell("asks native")
        rows = await dst_table.ask_native(dst_table.make_rows())
        dst_table.write_document(rows)
        self.results.dst = Nights(
            rows=len(rows),
            ours_wrong=sum(row.ours != row.truth for row in rows),
            native_wrong=sum(row.native != row.truth for row in rows),
        )

    def _knob_steps(self, measures: Sequence[Measure]) -> Iterator[Step]:
        if Measure.TUNING not in measures:
            return
        for run in range(self._plan.runs):
            for setting in (each for each in KNOBS if each.column in self._columns):
                seconds = knob_seconds(self._plan, setting.column)
                work = partial(self._knob, setting)
                yield Step(group="tuning", about=f"run {run + 1}, {setting.title}", seconds=seconds, work=work)

    async def _knob(self, setting: Setting, tell: Tell) -> None:
        plan = self._plan
        self.results.knobs.append(await measure_knob(setting, tell, burst=plan.tuning_burst, load=plan.tuning))


class _Bar:
    """A bar."""

    def __init__(self, progress: Progress, title: str, *, total: int) -> None:
        self._progress = progress
        self._task: TaskID = self._progress.add_task(title, total=total, what="")
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
        self._progress.update(self._task, advance=1, what="")


def _reason(error: BaseException) -> str:
    """Say in one line what went wrong; of a group, what went wrong first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]
