"""What is measured of the other schedulers: the rate held, a burst, CPU a fire, and what a death and an outage lose."""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.bench.fire_log import FireLog
from tests.bench.others.other import Given, NotReady, Other, OtherProcess, running_other
from tests.bench.others.workload import END

PERIOD = 2

LIMIT = 900
"""Seconds for one of them."""

HELD = 0.99
"""Share of the fires due in the window that have begun at its end."""

FAULT_JOBS = 20
WORK = 0.5
"""Seconds that a run takes while its process is killed."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured of each."""

    rates: tuple[int, ...] = (10, 20, 40, 80, 120, 160, 240, 320)
    """Fires a second that are tried, upwards."""

    window: int = 10
    """Seconds of each measurement of a rate."""

    burst: int = 500
    burst_lead: int = 45
    """Seconds, at least, in which all schedules are added."""

    outage: int = 30
    """Seconds."""

    watched: int = 45
    """Seconds after the restart: leases of the process that was killed have run out by then."""


QUICK = Plan(rates=(10, 20), window=4, burst=50, outage=5, watched=6)
"""To see that everything works. Its figures mean nothing."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What became of fires and runs around a fault."""

    due: int
    never_begun: int
    cut_off: int
    """Began, and neither ended nor ran again."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All about one of them."""

    other: Other
    plan: Plan
    held: float
    cpu_ms: float
    """A fire, at the lowest rate."""

    burst_drained: float
    burst_lost: int
    killed: Loss
    outage: Loss


async def compare(other: Other, python: Path, plan: Plan, tell: Callable[[str], None]) -> Comparison:
    """Measure one."""
    held, cpu = await _find_rate(other, python, plan, tell)
    tell(f"{plan.burst} due at once")
    drained, lost = await _measure_burst(other, python, plan)
    tell("kill -9")
    killed = await _measure_loss(other, python, plan, outage=0)
    tell(f"{plan.outage} s of downtime")
    outage = await _measure_loss(other, python, plan, outage=plan.outage)
    return Comparison(
        other=other,
        plan=plan,
        held=held,
        cpu_ms=cpu,
        burst_drained=drained,
        burst_lost=lost,
        killed=killed,
        outage=outage,
    )


async def _find_rate(other: Other, python: Path, plan: Plan, tell: Callable[[str], None]) -> tuple[float, float]:
    held, cpu = 0.0, math.nan
    for rate in plan.rates:
        tell(f"{rate} fires a second")
        try:
            begun, used = await _run_at(rate, other, python, plan)
        except NotReady:
            break
        cpu = used * 1000 / max(1, begun) if math.isnan(cpu) else cpu
        if begun < HELD * rate * plan.window:
            break
        held = float(rate)
    return held, cpu


async def _run_at(rate: int, other: Other, python: Path, plan: Plan) -> tuple[int, float]:
    """Count the fires that begin in a window, and the processor time that is used meanwhile."""
    async with running_other(other, Given(jobs=rate * PERIOD, period=PERIOD), python=python) as process:
        await asyncio.sleep(2 * PERIOD)
        begun, used = len(process.log.lines()), process.cpu_seconds()
        await asyncio.sleep(plan.window)
        return len(process.log.lines()) - begun, process.cpu_seconds() - used


async def _measure_burst(other: Other, python: Path, plan: Plan) -> tuple[float, int]:
    count = plan.burst
    # Celery's finest calendar is the minute.
    due = math.ceil((time.time() + plan.burst_lead) / 60) * 60
    async with running_other(other, Given(jobs=count, due=due), python=python) as process:
        await asyncio.sleep(max(0.0, due - time.time()))
        await _until_quiet(process.log, count)
        begun = {job: at for job, _, at in process.log.lines()}
    return max(begun.values(), default=math.nan) - due, count - len(begun)


async def _measure_loss(other: Other, python: Path, plan: Plan, *, outage: float) -> Loss:
    given = Given(jobs=FAULT_JOBS, period=PERIOD, work=WORK)
    async with running_other(other, given, python=python) as process:
        await asyncio.sleep(3 * PERIOD)
        start = time.time()
        await asyncio.sleep(2 * PERIOD + 0.1)
        process.kill()
        await asyncio.sleep(outage)
        await process.start()
        await asyncio.sleep(plan.watched)
        end = time.time()
        await asyncio.sleep(2 * PERIOD)
        return _count_loss(process, start, end)


def _count_loss(process: OtherProcess, start: float, end: float) -> Loss:
    lines = [line for line in process.log.lines() if start <= line[2] < end + PERIOD]
    begun = {(job, due) for job, due, _ in lines if not job.startswith(END) and due < end}
    ended = {(job.removeprefix(END), due) for job, due, _ in lines if job.startswith(END)}
    due = round(FAULT_JOBS * (end - start) / PERIOD)
    return Loss(due=due, never_begun=max(0, due - len(begun)), cut_off=len(begun - ended))


async def _until_quiet(log: FireLog, expected: int, *, quiet: float = 10) -> None:
    count, since = len(log.lines()), time.time()
    while time.time() - since < quiet and count < expected:
        await asyncio.sleep(0.5)
        if len(log.lines()) > count:
            count, since = len(log.lines()), time.time()
