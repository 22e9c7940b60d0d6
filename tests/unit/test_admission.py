"""What a scheduler process lets through, with explicit time and no Temporal: attempts at a downstream that fails, and the
catch-up lane, whose starts come at a rate over all jobs.
"""

import asyncio
import heapq
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.service import RPCError, RPCStatusCode

from activities.admission import LANE_IS_BUSY, Admissions
from tests.unit.downstream_stage import Breaker, Outage
from workflows.admission import Admission, AdmissionRequest, AttemptNotice, DownstreamInput, Verdict, VerdictKind
from workflows.breaker import BreakerPolicy
from workflows.contracts import downstream_workflow_id

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
    temporal.answers.set()
    kinds = [(await fail(admissions, run)).kind for run in ("a", "b")]
    temporal.answers.clear()
    temporal.asked.clear()
    asking = asyncio.create_task(fail(admissions, "c"))
    await temporal.asked.wait()
    kinds.append((await fail(admissions, "d")).kind)
    temporal.answers.set()
    kinds.append((await asking).kind)
    kinds.append((await fail(admissions, "e")).kind)
    assert kinds == [VerdictKind.RETRY, VerdictKind.RETRY, VerdictKind.PARK, VerdictKind.PARK, VerdictKind.PARK]


async def test_attempts_that_began_before_a_breaker_closed_count_for_nothing_and_kill_no_run() -> None:
    """A hundred are out when the downstream fails. It recovers, and they fail of what was: nothing dies of a budget for retries
    of the present, nothing opens the breaker again, and they come back one after the other."""
    policy = BreakerPolicy(failures_to_open=4, budget_floor=2, readmission_rate=10)
    temporal = Breaker()
    admissions = Admissions(temporal, policy)  # type: ignore[arg-type]
    slow = [f"slow-{number}" for number in range(100)]
    await admit(admissions, "first", now=NOON)
    for run in ("a", "b", "c", "d"):
        await fail(admissions, run)
    reopens = NOON + policy.open_for
    temporal.pass_time(reopens)
    probe = await admit(admissions, "p", now=reopens)
    assert probe.is_probe
    ended = AttemptNotice(tenant="t", downstream="bank", run_id="p", is_probe=True, admitted_at=reopens, now=reopens)
    await admissions.note_attempt(ended)
    later = reopens + timedelta(seconds=1)
    verdicts = [await fail(admissions, run, admitted_at=NOON, now=later, is_last=run == slow[0]) for run in slow]
    assert {verdict.kind for verdict in verdicts} == {VerdictKind.PARK}
    comes_back = [verdict.parked_until - later for verdict in verdicts]
    assert comes_back == sorted(comes_back)
    assert comes_back[-1] - comes_back[0] == timedelta(seconds=99 / policy.readmission_rate)
    assert (await admit(admissions, "next", now=later)).admitted, "the breaker is still closed"


async def test_a_run_whose_workflow_task_was_lost_gets_its_probe_once_more() -> None:
    """Otherwise nobody tries the downstream until the probe has expired, and then it counts as failed."""
    temporal, policy = Breaker(), BreakerPolicy(failures_to_open=1)
    admissions = Admissions(temporal, policy)  # type: ignore[arg-type]
    await fail(admissions, "a")
    reopens = NOON + policy.open_for
    temporal.pass_time(reopens)
    for run, is_probe in (("a", True), ("b", False), ("a", True)):
        assert (await admit(admissions, run, now=reopens)).is_probe is is_probe, run


@pytest.mark.parametrize(("is_probe", "kind"), [(True, VerdictKind.PARK), (False, VerdictKind.RETRY)])
async def test_a_run_does_not_die_of_having_been_the_probe(is_probe: bool, kind: VerdictKind) -> None:
    """No attempt counts that was made while the breaker was open, the last one included; one made before is made."""
    admissions = Admissions(Breaker(), BreakerPolicy(failures_to_open=2))  # type: ignore[arg-type]
    await fail(admissions, "a")
    await fail(admissions, "b")
    verdict = await fail(admissions, "c", is_last=True, is_probe=is_probe)
    assert verdict.kind is kind


HOUR = timedelta(hours=1)


class Breakers:
    """What Temporal knows of several downstreams."""

    identity = "scheduler"

    def __init__(self) -> None:
        self.named = defaultdict[str, Breaker](Breaker)

    async def start_workflow(self, kind: str, given: DownstreamInput, **about: str) -> None:
        """Open one."""
        await self.named[about["id"]].start_workflow(kind, given)

    def get_workflow_handle(self, workflow_id: str) -> Breaker:
        """Each is its own."""
        return self.named[workflow_id]


def known(admissions: Admissions, *, now: datetime) -> set[str]:
    """The downstreams that a process remembers."""
    return {report.downstream for report in admissions.reports(now=now)}


async def call(admissions: Admissions, downstream: str, *, now: datetime) -> None:
    """Make an attempt that succeeds at once."""
    assert (await admit(admissions, "r", now=now, downstream=downstream)).admitted
    await admissions.note_attempt(
        AttemptNotice(tenant="t", downstream=downstream, run_id="r", admitted_at=now, now=now)
    )


async def test_a_process_forgets_downstreams_that_are_called_no_more() -> None:
    """Jobs name a thousand new ones an hour, for ten hours: it remembers those of the last hour."""
    admissions = Admissions(Breaker(), BreakerPolicy())  # type: ignore[arg-type]
    most = 0
    for number in range(10_000):
        now = NOON + number * HOUR / 1_000
        await call(admissions, f"host-{number}", now=now)
        if number % 500 == 0:
            most = max(most, len(known(admissions, now=now)))
    assert most == 1_000


async def test_it_forgets_two_with_each_call_whatever_many_there_are() -> None:
    """No call pays for all of them; and what is called every hour but a minute is not forgotten."""
    admissions = Admissions(Breaker(), BreakerPolicy())  # type: ignore[arg-type]
    for number in range(100):
        await call(admissions, f"host-{number}", now=NOON)
    almost = NOON + HOUR - timedelta(minutes=1)
    await call(admissions, "host-7", now=almost)
    assert len(known(admissions, now=almost)) == 100
    for number in range(10):
        request = AdmissionRequest(tenant="t", downstream="host-7", run_id="r", now=NOON + HOUR)
        await admissions.admit_attempt(request)
        assert len(known(admissions, now=NOON + HOUR)) == 100 - 2 * (number + 1)
    assert "host-7" in known(admissions, now=NOON + HOUR)


async def test_it_remembers_a_downstream_that_an_attempt_may_still_answer_for() -> None:
    """It takes three hours and fails then: that counts against it, and is not excused as if it had begun under another breaker.
    Once it has answered, an hour is enough."""
    admissions = Admissions(Breaker(), BreakerPolicy(budget_floor=0))  # type: ignore[arg-type]
    await admit(admissions, "slow", now=NOON, lasts=3 * HOUR)
    later = NOON + 3 * HOUR
    await call(admissions, "other", now=later)
    assert known(admissions, now=later) == {"bank", "other"}
    assert (await fail(admissions, "slow", now=later)).kind is VerdictKind.EXHAUSTED
    await call(admissions, "other", now=later + HOUR)
    assert known(admissions, now=later) == {"other"}


async def test_it_waits_no_longer_for_an_answer_than_it_can_take() -> None:
    """The process that heard of it was another one: after a day in a queue, and its timeout, it is over."""
    admissions = Admissions(Breaker(), BreakerPolicy())  # type: ignore[arg-type]
    await admit(admissions, "lost", now=NOON, lasts=3 * HOUR)
    for hours, is_known in ((26, True), (27, False)):
        await call(admissions, "other", now=NOON + hours * HOUR)
        assert ("bank" in known(admissions, now=NOON)) is is_known, hours


async def test_it_remembers_a_downstream_while_runs_wait_for_their_turn() -> None:
    """As many as the rate allows in four hours; those that have not come a minute after theirs come no more."""
    policy = BreakerPolicy(failures_to_open=1, admission_rate=1 / 3_600)
    admissions = Admissions(Breaker(), policy)  # type: ignore[arg-type]
    for _ in range(2):
        await call(admissions, "bank", now=NOON)
    waits = [await admit(admissions, f"r{number}", now=NOON) for number in range(3)]
    assert [answer.parked_until - NOON for answer in waits] == [2 * HOUR, 3 * HOUR, 4 * HOUR]
    for hours, is_known in ((3, True), (4, True), (5, False)):
        await call(admissions, "other", now=NOON + hours * HOUR)
        assert ("bank" in known(admissions, now=NOON)) is is_known, hours


async def test_a_forgotten_breaker_is_asked_about_when_its_downstream_is_called_again() -> None:
    """It is remembered until a probe is due, for which the parked run comes; afterwards, Temporal knows it better."""
    temporal, policy = Breakers(), BreakerPolicy(failures_to_open=1, open_for=2 * HOUR)
    admissions = Admissions(temporal, policy)  # type: ignore[arg-type]
    await fail(admissions, "a")
    for hours, is_known in ((1, True), (2, True), (3, False)):
        await call(admissions, "other", now=NOON + hours * HOUR)
        assert ("bank" in known(admissions, now=NOON)) is is_known, hours
    due = NOON + 3 * HOUR
    temporal.named[downstream_workflow_id(tenant="t", downstream="bank")].pass_time(due)
    assert (await admit(admissions, "b", now=due)).is_probe
    assert not (await admit(admissions, "c", now=due)).admitted


async def test_no_count_falls_when_a_downstream_is_forgotten() -> None:
    """Neither that of one that is told apart nor that of the others; one that is met again counts on."""
    policy = BreakerPolicy(failures_to_open=1, open_for=timedelta(seconds=1))
    temporal = Breakers()
    admissions = Admissions(temporal, policy)  # type: ignore[arg-type]
    names = [f"host-{number}" for number in range(150)]
    for name in names:
        await fail(admissions, "r", downstream=name)
    before = {key: counts.openings for key, counts in admissions.counts().items()}
    assert (before["t", "host-0"], before[None], len(before)) == (1, 50, 101)
    later = NOON + HOUR
    for number in range(len(names)):
        await call(admissions, "other", now=later + timedelta(seconds=number))
    assert known(admissions, now=later) == {"other"}
    assert {key: counts.openings for key, counts in admissions.counts().items()} == before
    for breaker in temporal.named.values():
        breaker.breaker, breaker.closed_at = None, NOON
    for name in (names[0], names[-1]):
        await fail(admissions, "r", downstream=name, admitted_at=later, now=later)
    after = admissions.counts()
    assert (after["t", "host-0"].openings, after[None].openings) == (2, 51)


async def test_one_run_that_always_fails_does_not_keep_the_breaker_open_for_the_others() -> None:
    """The downstream is well again and refuses one run alone, the first that was parked. Another one is the next to try."""
    temporal, policy = Breaker(), BreakerPolicy(failures_to_open=1)
    admissions = Admissions(temporal, policy)  # type: ignore[arg-type]
    comes_at = {"poison": (await fail(admissions, "poison")).parked_until}
    comes_at["other"] = (await admit(admissions, "other", now=NOON)).parked_until
    tried: list[str] = []
    while "other" not in tried:
        assert len(tried) < 3, tried
        run, now = min(comes_at.items(), key=lambda each: each[1])
        temporal.pass_time(now)
        answer = await admit(admissions, run, now=now)
        comes_at[run] = answer.parked_until
        if answer.is_probe:
            tried.append(run)
            verdict = await fail(admissions, run, admitted_at=now, now=now, is_probe=True, ok=run == "other")
            comes_at[run] = verdict.parked_until
    assert tried == ["poison", "other"]
    assert temporal.breaker is None


async def test_a_process_that_has_just_met_a_downstream_excuses_nothing() -> None:
    """Nor does it judge an attempt that another one let through, before the breaker closed, by what the downstream is now."""
    temporal = Breaker()
    admissions = Admissions(temporal, BreakerPolicy())  # type: ignore[arg-type]
    later = NOON + timedelta(minutes=1)
    assert (await fail(admissions, "a", now=later)).kind is VerdictKind.RETRY
    temporal.has_been, temporal.closed_at = True, NOON + timedelta(seconds=30)
    another = Admissions(temporal, BreakerPolicy())  # type: ignore[arg-type]
    assert (await fail(another, "b", now=later)).kind is VerdictKind.PARK
    assert (await fail(another, "c", admitted_at=NOON + timedelta(seconds=31), now=later)).kind is VerdictKind.RETRY


async def test_a_probe_that_tells_nothing_is_given_back() -> None:
    """It was cancelled, lost with its worker, or never begun: the breaker stays open, no longer than it was, for the next."""
    temporal, policy = Breaker(), BreakerPolicy(failures_to_open=1)
    admissions = Admissions(temporal, policy)  # type: ignore[arg-type]
    await fail(admissions, "a")
    reopens = NOON + policy.open_for
    temporal.pass_time(reopens)
    assert (await admit(admissions, "a", now=reopens)).is_probe
    assert (await fail(admissions, "a", now=reopens, is_probe=True, is_void=True)).kind is VerdictKind.RETRY
    assert temporal.breaker is not None
    assert (temporal.breaker.openings, temporal.breaker.open_until, temporal.breaker.probes) == (1, reopens, ())
    assert (await admit(admissions, "b", now=reopens)).is_probe


async def admit(
    admissions: Admissions,
    run_id: str,
    *,
    now: datetime,
    downstream: str = "bank",
    lasts: timedelta = timedelta(minutes=5),
) -> Admission:
    """Ask for an attempt."""
    request = AdmissionRequest(tenant="t", downstream=downstream, run_id=run_id, lasts=lasts, now=now)
    return await admissions.admit_attempt(request)


async def fail(
    admissions: Admissions,
    run_id: str,
    *,
    downstream: str = "bank",
    admitted_at: datetime = NOON,
    now: datetime = NOON,
    is_last: bool = False,
    is_probe: bool = False,
    is_void: bool = False,
    ok: bool = False,
) -> Verdict:
    """Tell of an attempt that has failed, and may be made again."""
    notice = AttemptNotice(
        tenant="t",
        downstream=downstream,
        run_id=run_id,
        is_probe=is_probe,
        ok=ok or is_void,
        is_void=is_void,
        wants_retry=not ok and not is_void,
        is_last=is_last,
        admitted_at=admitted_at,
        now=now,
    )
    return await admissions.note_attempt(notice)
