"""The measurements of one contender on its stand: cost and lateness, the rate held, bursts.

All jobs are due at whole seconds. Counters are read just before one, when most of what came before is over.
"""

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from tests.bench.column import OURS, Column
from tests.bench.fire_log import BenchJob, look
from tests.bench.result import Burst, Cost, Rate
from tests.bench.stand import ALWAYS, WAKE_AHEAD, Stand
from tests.bench.statistic import percentile
from tests.eventually import eventually

Tell = Callable[[str], None]
"""Shows where a measurement is."""

TOO_LATE = 1.0
"""Seconds; the 99th percentile of lateness that a held rate stays below."""

REGISTER_RATE = 70
"""Jobs a second; about what two cores take in."""

SETTLED_WITHIN = 2
"""Seconds from the last registration until all jobs sleep."""

OURS_SLACK, NATIVE_SLACK = 1.15, 1.5
"""Times as long as registering should take, before what was registered is due. A Schedule whose own workflow has not begun
by then fires a day later."""

SECOND_SLACK = 4
"""The same, when a machine was too slow for that."""

HOPELESS_AFTER = 15
"""Seconds without any fire."""

CALM = 0.25
"""Seconds; while the 99th percentile stays below, the rate is raised in large steps."""

CALM_GROWTH, GROWTH = 0.3, 0.1
"""Of the number of jobs, from one stretch to the next."""

SHRINKAGE, DOWN_STRETCHES = 0.2, 3
"""Of the number of jobs, when even the first load was too much, and how many periods a smaller one must hold."""

TAKEN_IN_WITHIN = timedelta(seconds=30)
"""The last of the jobs that were registered."""

STEADY = "steady"
"""How the ids of jobs under a steady load begin; others sleep beside them."""

WARM_UP = 20
"""Jobs."""

SETTLE = timedelta(seconds=5)
"""After which a fire that has not begun counts as lost."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """Jobs with one period, due evenly in its seconds."""

    jobs: int
    period: int
    """Seconds."""

    warm: int
    """Seconds before the measurement."""

    window: int
    """Seconds of the measurement."""


async def measure_cost(
    stand: Stand, load: Load, tell: Tell, *, with_events: bool = True
) -> tuple[Cost, list[BenchJob]]:
    """Measure a steady load. The jobs go on. Counting their events asks the server for each of them."""
    jobs = await begin_load(stand, load, tell)
    return await measure_running(stand, jobs, load, tell, with_events=with_events), jobs


async def begin_load(stand: Stand, load: Load, tell: Tell) -> list[BenchJob]:
    """Register the jobs of a steady load."""
    jobs = make_jobs(load.jobs, period=load.period)
    tell("registers")
    await _register_and_settle(stand, jobs)
    return jobs


async def _register_and_settle(stand: Stand, jobs: list[BenchJob]) -> None:
    """Register them, and wait until all are taken in: on a slow machine registering would still be part of the load."""
    before = stand.count_jobs() if stand.column in OURS else 0
    await stand.register_all(jobs, rate=REGISTER_RATE)
    if stand.column in OURS:
        await eventually(lambda: stand.count_jobs() >= before + len(jobs), limit=TAKEN_IN_WITHIN)


async def measure_running(
    stand: Stand, jobs: list[BenchJob], load: Load, tell: Tell, *, with_events: bool = True
) -> Cost:
    """Measure a steady load of jobs that are registered."""
    tell("warms up")
    await asyncio.sleep(load.warm)
    begun = len(stand.log.starts())
    events = await stand.count_events(STEADY) if with_events else 0
    start = await _just_before_a_second()
    before = stand.counters()
    tell("fires")
    end = await _just_before_a_second(start + load.window)
    used = stand.counters().since(before)
    events = await stand.count_events(STEADY) - events if with_events else 0
    begun = len(stand.log.starts()) - begun
    await _until_all_begun(stand, jobs, start, end)
    seen = look(stand.log, jobs, start, end)
    fires = max(1, len(seen.lateness))
    return Cost(
        fires=len(seen.lateness),
        lateness=seen.lateness,
        lost=seen.lost,
        persistence_requests=used.persistence_requests / fires,
        state_writes=used.state_writes / fires,
        events=events / max(1, begun) if with_events else math.nan,
        server_ms=_milliseconds(used.server_cpu, fires),
        worker_ms=_milliseconds(used.worker_cpu, fires),
    )


async def measure_rate(stand: Stand, jobs: list[BenchJob], tell: Tell, *, limit: float) -> Rate:
    """Add jobs, from one stretch of a period to the next, until fires are late; ``limit`` is where to stop anyway.

    Where fires are late from the start, jobs are taken away until they are not.
    """
    period = jobs[0].every
    steps: list[tuple[float, float]] = []
    begin = await _just_before_a_second()
    while True:
        end = await _just_before_a_second(begin + period)
        # Between two stretches, so that registering disturbs neither; and known so far is what those due before are late by.
        growth = CALM_GROWTH if _p99(stand, jobs, begin, end) < CALM else GROWTH
        added = make_jobs(_more(jobs, growth), period=period, first=len(jobs))
        await stand.register_all(added, rate=4 * len(added))
        begin = await _just_before_a_second(end + TOO_LATE)
        # A fire that was due in the stretch, and has not begun a second later, is late by more.
        rate, late = len(jobs) / period, _p99(stand, jobs, end - period, end)
        steps.append((rate, min(late, 60.0)))
        tell(f"{rate:.0f} fires a second, p99 {late:.2f} s")
        if late > TOO_LATE or rate >= limit:
            break
        jobs = [*jobs, *added]
    if len(steps) == 1 and late > TOO_LATE:
        await stand.remove_all(added)
        steps += await _step_down(stand, jobs, tell)
    held = [rate for rate, late in steps if late <= TOO_LATE]
    return Rate(held=max(held, default=0.0), steps=tuple(steps))


async def _step_down(stand: Stand, jobs: list[BenchJob], tell: Tell) -> list[tuple[float, float]]:
    """Take jobs away, a fifth each time, until fires are on time, or hardly any are left."""
    period = jobs[0].every
    steps: list[tuple[float, float]] = []
    while len(jobs) > 2 * period and all(late > TOO_LATE for _, late in steps):
        kept = len(jobs) - _more(jobs, SHRINKAGE)
        jobs, removed = jobs[:kept], jobs[kept:]
        await stand.remove_all(removed)
        # What piled up before is none of this rate's.
        begin = await _just_before_a_second(math.ceil(time.time()) + SETTLE.total_seconds())
        end = await _just_before_a_second(begin + DOWN_STRETCHES * period)
        await _just_before_a_second(end + TOO_LATE)
        rate, late = len(jobs) / period, _p99(stand, jobs, begin, end)
        steps.append((rate, min(late, 60.0)))
        tell(f"{rate:.0f} fires a second, p99 {late:.2f} s")
    return steps


def _p99(stand: Stand, jobs: list[BenchJob], start: float, end: float) -> float:
    """Say how late fires were; those that have not begun are late beyond measure."""
    seen = look(stand.log, jobs, start, end)
    return percentile([*seen.lateness, *[math.inf] * seen.lost], 0.99)


def _more(jobs: list[BenchJob], growth: float) -> int:
    period = jobs[0].every
    return max(period, round(len(jobs) * growth / period) * period)


def lead_seconds(column: Column, count: int) -> float:
    """Say how long before their instant the jobs of a burst are registered."""
    slack = OURS_SLACK if column in OURS else NATIVE_SLACK
    return count / REGISTER_RATE * slack + SETTLED_WITHIN + ahead_seconds(column)


def ahead_seconds(column: Column) -> float:
    """Say how long before its instant a burst may begin to be prepared."""
    return (ALWAYS + WAKE_AHEAD).total_seconds() if column is Column.LONG_SLEEP else 0.0


async def measure_burst(stand: Stand, count: int, tell: Tell, *, prefix: str = "burst") -> Burst:
    """Register jobs that are all due at one instant, and watch them fire; once more where that came before they were asleep."""
    lead = lead_seconds(stand.column, count)
    burst = await _try_burst(stand, count, tell, prefix=prefix, lead=lead)
    if burst is None:
        burst = await _try_burst(stand, count, tell, prefix=f"again-{prefix}", lead=SECOND_SLACK * lead)
    if burst is None:
        raise RuntimeError(f"{count} jobs could not be registered in {SECOND_SLACK * lead:.0f} s")
    return burst


async def _try_burst(
    stand: Stand, count: int, tell: Tell, *, prefix: str, lead: float, patience: float = 120
) -> Burst | None:
    """Answer ``None`` when the jobs were not asleep before their instant."""
    due = math.ceil(time.time() + lead)
    jobs = [BenchJob(f"{prefix}-{number}", 86_400, due) for number in range(count)]
    tell(f"registers {count}")
    await stand.register_all(jobs, rate=REGISTER_RATE)
    ahead = ahead_seconds(stand.column)
    if time.time() > due - 1 - ahead:
        return None
    await asyncio.sleep(due - 0.5 - ahead - time.time())
    before = stand.counters()
    await asyncio.sleep(due - 0.5 - time.time())
    tell(f"{count} are due")
    drained = math.nan
    while math.isnan(drained) and time.time() < due + patience:
        await asyncio.sleep(0.25)
        if await stand.count_ended(prefix) >= count:
            drained = time.time() - due
        elif time.time() > due + HOPELESS_AFTER and look(stand.log, jobs, due, due + 1).lost == count:
            return None
    used = stand.counters().since(before)
    seen = look(stand.log, jobs, due, due + 1)
    return Burst(
        jobs=count,
        drained=drained,
        lateness=seen.lateness,
        lost=seen.lost,
        server_ms=_milliseconds(used.server_cpu, count),
        worker_ms=_milliseconds(used.worker_cpu, count),
    )


async def warm_up(stand: Stand) -> None:
    """Let a few jobs fire, so that nothing is done for the first time in what follows."""
    due = math.ceil(time.time() + SETTLED_WITHIN)
    await stand.register_all([BenchJob(f"warm-{number}", 86_400, due) for number in range(WARM_UP)], rate=REGISTER_RATE)
    await asyncio.sleep(max(0.0, due + SETTLED_WITHIN - time.time()))


def make_jobs(count: int, *, period: int, first: int = 0) -> list[BenchJob]:
    """Name jobs that are due evenly in the seconds of a period."""
    return [BenchJob(f"{STEADY}-{number}", period, number % period) for number in range(first, first + count)]


def _milliseconds(seconds: float, fires: int) -> float:
    return seconds * 1000 / max(1, fires)


async def _just_before_a_second(at_least: float | None = None) -> float:
    """Sleep until the tenth of a second before a whole one, and answer that whole one."""
    now = time.time()
    whole = math.ceil((now + 0.1) if at_least is None else at_least)
    await asyncio.sleep(max(0.0, whole - 0.1 - now))
    return float(whole)


async def _until_all_begun(stand: Stand, jobs: list[BenchJob], start: float, end: float) -> None:
    with suppress(AssertionError):
        await eventually(lambda: not look(stand.log, jobs, start, end).lost, limit=SETTLE)
