"""What a scheduler process lets through, with explicit time and no Temporal: attempts at a downstream that fails, and the
catch-up lane, whose starts come at a rate over all jobs.
"""

import asyncio
import heapq
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.service import RPCError, RPCStatusCode

from activities.admission import LANE_IS_BUSY, Admissions
from tests.unit.downstream_stage import Breaker, Outage
from workflows.admission import Admission, AdmissionRequest, AttemptNotice, Verdict, VerdictKind
from workflows.breaker import BreakerPolicy

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def lane(rate: float) -> Admissions:
    """A process that asks nobody: no job here has a downstream."""
    return Admissions(None, BreakerPolicy(), catch_up_per_second=rate)  # type: ignore[arg-type]


async def start(admissions: Admissions, run_id: str, *, now: datetime, was_parked: bool = False) -> Admission:
    """Ask for the start of a catch-up run."""
    request = AdmissionRequest(run_id=run_id, is_catch_up=True, was_parked=was_parked, now=now)
    return await admissions.admit_attempt(request)


@pytest.mark.parametrize("rate", [0.5, 5, 20])
async def test_catch_up_runs_start_at_the_rate_whatever_many_jobs_have_missed(rate: float) -> None:
    """A thousand jobs wake at once: in any span no more start than the rate allows, each waits once, and none is forgotten."""
    admissions = lane(rate)
    coming = [(NOON, n, False) for n in range(1_000)]
    started: list[datetime] = []
    while coming:
        now, run, was_parked = heapq.heappop(coming)
        answer = await start(admissions, f"r{run}", now=now, was_parked=was_parked)
        if answer.admitted:
            started.append(now)
            continue
        assert not was_parked, "a run that comes at its place finds it kept"
        assert answer.reason == LANE_IS_BUSY
        heapq.heappush(coming, (answer.parked_until, run, True))
    assert len(started) == 1_000
    assert (started[-1] - NOON).total_seconds() == pytest.approx(999 / rate)
    for before, after in zip(started, started[2:], strict=False):
        assert (after - before).total_seconds() >= 1 / rate - 1e-6


async def test_a_run_that_waited_in_another_process_takes_a_place_like_any_other() -> None:
    """The rate of a process holds, whoever has died."""
    admissions = lane(1)
    for run in ("a", "b"):
        assert (await start(admissions, run, now=NOON)).admitted
    answer = await start(admissions, "stranger", now=NOON, was_parked=True)
    assert (answer.admitted, answer.parked_until) == (False, NOON + timedelta(seconds=2))


async def test_without_a_rate_as_many_start_as_come() -> None:
    """The bound of each job is its own affair."""
    admissions = lane(0)
    answers = [await start(admissions, f"r{n}", now=NOON) for n in range(100)]
    assert all(answer.admitted for answer in answers)


async def test_what_is_no_start_of_the_lane_waits_for_nothing() -> None:
    """Live runs, and further attempts of runs that have started."""
    admissions = lane(0.001)
    answers = [await admissions.admit_attempt(AdmissionRequest(run_id=f"r{n}", now=NOON)) for n in range(10)]
    assert all(answer.admitted for answer in answers)


POLICY = BreakerPolicy(readmission_rate=20)


@pytest.mark.parametrize("seed", range(3))
async def test_a_downstream_that_fails_is_left_alone_and_every_run_completes_afterwards(seed: int) -> None:
    """SB-104: a thousand runs, two processes of which one is replaced meanwhile, five minutes of outage. What is sent stays
    within what opens the breakers, the budget and the probes; nothing dies; and there is no second wave."""
    lasts = timedelta(minutes=5)
    outage = Outage(runs=1_000, lasts=lasts, policy=POLICY, dies_at=lasts / 2, seed=seed)
    await outage.play()
    assert outage.ended == {"success": 1_000}
    while_down = sum(not is_up for _, is_up in outage.calls)
    probes = lasts / POLICY.open_for + 2
    assert while_down <= 3 * (2 * POLICY.failures_to_open + POLICY.budget_floor) + probes
    assert outage.in_a_second(after=lasts) <= 2 * (1.5 * POLICY.readmission_rate + 1)
    last = max(at for at, _ in outage.calls)
    assert last - NOON <= lasts + POLICY.longest_open + timedelta(seconds=2 * 1_000 / POLICY.readmission_rate)


async def test_after_a_reset_parked_runs_come_back_at_their_times_and_spread_out() -> None:
    """Nobody resets a breaker to start a second outage."""
    policy = BreakerPolicy(open_for=timedelta(minutes=10), readmission_rate=20)
    lasts, resets_at = timedelta(seconds=30), timedelta(seconds=60)
    outage = Outage(runs=300, lasts=lasts, policy=policy, resets_at=resets_at)
    await outage.play()
    assert outage.ended == {"success": 300}
    assert outage.in_a_second(after=lasts) <= 2 * (1.5 * policy.readmission_rate + 1)


async def test_a_few_failures_are_retried_within_the_budget() -> None:
    """A hiccup of a second opens no breaker for a job alone, and each run succeeds in the end."""
    outage = Outage(runs=3, lasts=timedelta(seconds=1.5), policy=BreakerPolicy())
    await outage.play()
    assert outage.ended == {"success": 3}
    assert len(outage.calls) <= 3 + BreakerPolicy().budget_floor


class LateBreaker(Breaker):
    """Tells how it stands when it is asked, but not at once."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answers = asyncio.Event(), asyncio.Event()

    async def describe(self) -> Any:
        """Look, wait, and answer what was seen."""
        is_there = self.has_been
        self.asked.set()
        await self.answers.wait()
        if not is_there:
            raise RPCError("there is no such workflow", RPCStatusCode.NOT_FOUND, b"")
        return await super().describe()


async def test_a_breaker_stays_open_whatever_was_asked_before_it_opened() -> None:
    """Many attempts fail at once: one of them asks whether the breaker is open, and is told "no" after another has opened it.
    None of them dies of a budget that is used up, as it would if the breaker were closed again."""
    temporal = LateBreaker()
    admissions = Admissions(temporal, BreakerPolicy(failures_to_open=4, budget_floor=2))  # type: ignore[arg-type]
    kinds = [(await fail(admissions, run)).kind for run in ("a", "b")]
    asking = asyncio.create_task(fail(admissions, "c"))
    await temporal.asked.wait()
    kinds.append((await fail(admissions, "d")).kind)
    temporal.answers.set()
    kinds.append((await asking).kind)
    kinds.append((await fail(admissions, "e")).kind)
    assert kinds == [VerdictKind.RETRY, VerdictKind.RETRY, VerdictKind.PARK, VerdictKind.PARK, VerdictKind.PARK]


async def fail(admissions: Admissions, run_id: str) -> Verdict:
    """Tell of an attempt that has failed, and may be made again."""
    notice = AttemptNotice(tenant="t", downstream="bank", run_id=run_id, ok=False, wants_retry=True, now=NOON)
    return await admissions.note_attempt(notice)
