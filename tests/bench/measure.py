"""The measurements of one contender on its stand: cost and lateness, the rate held, bursts, the cache.

All jobs are due at whole seconds. Counters are read just before one, when most of what came before is over.
"""

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from tests.bench.fire_log import BenchJob, look
from tests.bench.result import Burst, Cost, Rate
from tests.bench.stand import Stand
from tests.bench.statistic import percentile
from tests.eventually import eventually

Tell = Callable[[str], None]
"""Shows where a measurement is."""

TOO_LATE = 1.0
"""Seconds; the 99th percentile of lateness that a held rate stays below."""

REGISTER_RATE = 60
"""Jobs a second."""

SETTLE = timedelta(seconds=10)
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


async def measure_cost(stand: Stand, load: Load, tell: Tell) -> tuple[Cost, list[BenchJob]]:
    """Measure a steady load. The jobs go on."""
    jobs = make_jobs(load.jobs, period=load.period)
    tell("registers")
    await stand.register_all(jobs, rate=REGISTER_RATE)
    tell("warms up")
    await asyncio.sleep(load.warm)
    events, begun = await stand.count_events(), len(stand.log.starts())
    start = await _just_before_a_second()
    before = stand.counters()
    tell("fires")
    end = await _just_before_a_second(start + load.window)
    used = stand.counters().since(before)
    events, begun = await stand.count_events() - events, len(stand.log.starts()) - begun
    await _until_all_begun(stand, jobs, start, end)
    seen = look(stand.log, jobs, start, end)
    fires = max(1, len(seen.lateness))
    cost = Cost(
        fires=len(seen.lateness),
        lateness=seen.lateness,
        lost=seen.lost,
        persistence_requests=used.persistence_requests / fires,
        state_writes=used.state_writes / fires,
        events=events / max(1, begun),
        server_ms=_milliseconds(used.server_cpu, fires),
        worker_ms=_milliseconds(used.worker_cpu, fires),
    )
    return cost, jobs


async def measure_rate(stand: Stand, jobs: list[BenchJob], tell: Tell, *, growth: float, limit: float) -> Rate:
    """Add jobs, each period by a share of those there are, until fires are late; ``limit`` is where to stop anyway."""
    period = jobs[0].every
    steps: list[tuple[float, float]] = []
    begin = await _just_before_a_second()
    while True:
        end = begin + period
        more = max(period, round(len(jobs) * growth / period) * period)
        added = make_jobs(more, period=period, first=len(jobs))
        await stand.register_all(added, rate=10 * more)
        await _just_before_a_second(end + TOO_LATE)
        # A fire that was due in the period, and has not begun a second later, is late by more.
        seen = look(stand.log, jobs, begin, end)
        late = percentile([*seen.lateness, *[math.inf] * seen.lost], 0.99)
        steps.append((len(jobs) / period, min(late, 60.0)))
        tell(f"{steps[-1][0]:.0f} fires a second, p99 {late:.2f} s")
        if _is_broken(steps) or steps[-1][0] >= limit:
            break
        jobs = [*jobs, *added]
        begin = end + math.ceil(TOO_LATE)
    held = [rate for rate, late in steps if late <= TOO_LATE]
    return Rate(held=max(held, default=0.0), steps=tuple(steps))


def _is_broken(steps: list[tuple[float, float]]) -> bool:
    """Two stretches in a row are late: one may be a hiccup of the machine."""
    return len(steps) >= 2 and all(late > TOO_LATE for _, late in steps[-2:])


async def measure_burst(stand: Stand, count: int, tell: Tell, *, prefix: str = "burst", patience: float = 120) -> Burst:
    """Register jobs that are all due at one instant, and watch them fire."""
    due = math.ceil(time.time() + count / REGISTER_RATE * 1.5 + 3)
    jobs = [BenchJob(f"{prefix}-{number}", 86_400, due) for number in range(count)]
    tell(f"registers {count}")
    before_all = await stand.count_ended()
    await stand.register_all(jobs, rate=REGISTER_RATE)
    if time.time() > due - 2:
        raise RuntimeError(f"registering {count} jobs took so long that they are due already")
    await asyncio.sleep(due - 0.5 - time.time())
    before = stand.counters()
    tell(f"{count} are due")
    drained = math.nan
    while math.isnan(drained) and time.time() < due + patience:
        await asyncio.sleep(0.25)
        if await stand.count_ended() >= before_all + count:
            drained = time.time() - due
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


def make_jobs(count: int, *, period: int, first: int = 0) -> list[BenchJob]:
    """Name jobs that are due evenly in the seconds of a period."""
    return [BenchJob(f"job-{number}", period, number % period) for number in range(first, first + count)]


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
