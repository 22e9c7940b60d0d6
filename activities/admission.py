"""What a scheduler process knows of the downstreams that its jobs call: who may go, who waits, who may try again; and when
the next run of the catch-up lane may start.

Process state, by design: the breaker of a healthy downstream and its retry budget are counted here, without a round trip. An
open breaker is a workflow; this module starts it, asks it for probes, and learns from it that it is over. Where Temporal does
not answer in time, an attempt is let through: a breaker protects, it does not decide whether a job runs. Times are those of the
workflows that ask, which is Temporal's clock: this process's may be minutes off, and parks or probes nobody at a wrong time.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from temporalio import activity
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from activities.downstream_tally import DownstreamCounts, DownstreamTally
from workflows.admission import (
    Admission,
    AdmissionRequest,
    AttemptNotice,
    DownstreamInput,
    ProbeReport,
    ProbeRequest,
    Verdict,
    VerdictKind,
)
from workflows.breaker import BreakerPolicy, ProbeAnswer, RetryBudget, open_breaker
from workflows.contracts import (
    ADMIT_ATTEMPT,
    DOWNSTREAM_WORKFLOW,
    NOTE_ATTEMPT,
    UPDATE_ASK_PROBE,
    UPDATE_END_PROBE,
    WORKFLOW_TASK_TIMEOUT,
    downstream_workflow_id,
)
from workflows.downstream import GateReport, breaker_memo, read_breaker_memo
from workflows.pace import LONG_AGO, Pace, Parking, Places
from workflows.resilience import breaker_is_open
from workflows.target import DEFAULT_TASK_QUEUE

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

ASK_WITHIN: Final = timedelta(milliseconds=350)
"""For one question to Temporal. An admission may have to ask two."""

TELL_WITHIN: Final = timedelta(seconds=10)
PROBE_TELLINGS: Final = 6
"""A probe whose end is never told holds the breaker open until it expires."""

ASK_SOON: Final = timedelta(seconds=5)
"""Before an open breaker that did not answer is asked again."""

LOOK_AGAIN: Final = timedelta(seconds=5)
"""Between two looks whether a breaker is still open: somebody may have reset it, or the probe of another process closed it."""

ANSWERS_WITHIN: Final = timedelta(seconds=2)
"""A dead downstream mostly says so at once."""

PROVEN_FOR: Final = timedelta(seconds=60)
"""After a success, as many attempts may be out as there are."""

LANE_IS_BUSY: Final = "waits in the catch-up lane: many runs are caught up"

STREAK: Final = 3
"""Consecutive failures that are no accident. From then on a process asks whether another one has opened the breaker, and
retries are the breaker's business: it opens before they are many, and nothing dies of a budget meanwhile."""

FORGET_AFTER: Final = timedelta(hours=1)
"""A downstream that nobody has called for so long is met anew. Its streak of failures and its budget are of the past by then."""

LOOKS_BACK: Final = 2
"""Downstreams that are looked at, each time that one is called, whether they are called no more. One can come at a time."""


@dataclass
class Gate:
    """One downstream of one tenant, as this process sees it."""

    budget: RetryBudget
    pace: Pace
    """Of attempts, while the breaker is closed."""

    parking: Parking
    """Runs that were parked because it was open."""

    counts: DownstreamCounts
    """Shared with others, where it is none of the first."""

    well_since: datetime = LONG_AGO
    """When its breaker closed last, as far as this process knows. An attempt that began before, and fails, says nothing about
    how the downstream is now."""

    turns: Places = field(default_factory=Places)
    """Runs that wait for their place among many others, while it is closed."""

    is_known: bool = False
    """Whether this process has asked, once, if the breaker is open already."""

    failures: int = 0
    """Consecutive ones."""

    open_until: datetime | None = None
    """``None`` while the breaker is closed."""

    looked_at: datetime = LONG_AGO
    """When it was asked last whether the breaker is open, or opened it."""

    probing: set[str] = field(default_factory=set)
    """Runs that were granted a probe here, and have not told of its end. One whose workflow task was lost asks once more."""

    sent: Places = field(default_factory=Places)
    """Attempts that were let through a moment ago and have not answered, with when that was."""

    answered_at: datetime | None = None
    """The last success."""

    out: int = 0
    """Attempts that were let through and have not answered, however long ago. Too high where one has answered elsewhere."""

    out_until: datetime = LONG_AGO
    """When the last of them has answered, or never will."""

    used_at: datetime = LONG_AGO
    """When it was last asked about, told of, or found to be needed."""


class Admissions:
    """The gates of a process."""

    def __init__(self, client: Client, policy: BreakerPolicy, *, catch_up_per_second: float = 0) -> None:
        """``catch_up_per_second`` bounds the starts of the catch-up lane over all jobs; 0 is no bound."""
        self._client = client
        self._policy = policy
        self._lane = Pace(rate=catch_up_per_second, burst=1) if catch_up_per_second else None
        self._lane_places = Places()
        self._gates: OrderedDict[tuple[str, str], Gate] = OrderedDict()
        """The one that was used last stands last."""

        self._tally = DownstreamTally()
        self._forget_after = max(FORGET_AFTER, policy.budget_window)
        self._telling: set[asyncio.Task[None]] = set()
        self._clock_lag = timedelta(0)
        """How far the clock of this process is behind Temporal's."""

    def reports(self, *, now: datetime) -> list[GateReport]:
        """Say how each downstream stands that this process has met. Changes nothing; for the event loop that admits.

        ``now`` is by the clock of this process. What is told is by Temporal's, as everything here.
        """
        return [self._report(*key, gate, now=now + self._clock_lag) for key, gate in self._gates.items()]

    def counts(self) -> Mapping[tuple[str, str] | None, DownstreamCounts]:
        """Get the counts by tenant and downstream, as ``DownstreamTally.read`` tells them. May be called in any thread."""
        return self._tally.read()

    @activity.defn(name=ADMIT_ATTEMPT)
    async def admit_attempt(self, request: AdmissionRequest) -> Admission:
        """Say whether an attempt may be made now, and until when it is parked if not."""
        now = request.now
        self._clock_lag = now - datetime.now(UTC)
        place = self._place_in_lane(request.run_id, now=now) if request.is_catch_up else now
        if place > now:
            return _parked(place, reason=LANE_IS_BUSY)
        if not request.downstream:
            return Admission()
        gate = self._gate(request.tenant, request.downstream, now=now)
        if not gate.is_known or self._should_look_again(gate, now=now):
            await self._learn(gate, request.tenant, request.downstream, now=now)
        if gate.open_until is not None and (now >= gate.open_until or request.run_id in gate.probing):
            answer = await self._ask_for_probe(request)
            if answer.granted:
                gate.probing.add(request.run_id)
                # The others of this process need not ask while the probe is out.
                gate.open_until = now + self._policy.open_for
                gate.parking.places.take(request.run_id)
                _let_out(gate, request)
                return Admission(is_probe=True)
            gate.probing.discard(request.run_id)
            _take_in(gate, answer, now=now)
        if gate.open_until is not None:
            until = gate.parking.park_until_probed(request.run_id, open_until=gate.open_until, now=now)
            return _parked(until, reason=breaker_is_open(request.downstream))
        return self._admit_in_turn(gate, request, now=now)

    @staticmethod
    def _should_look_again(gate: Gate, *, now: datetime) -> bool:
        # When a probe is due, the breaker is asked anyway.
        return gate.open_until is not None and now < gate.open_until and now - gate.looked_at >= LOOK_AGAIN

    def _place_in_lane(self, run_id: str, *, now: datetime) -> datetime:
        """Say when a catch-up run may start: it comes back then, and finds its place kept."""
        if self._lane is None or self._lane_places.take(run_id):
            return now
        place = self._lane.take_place(now=now)
        return place if place <= now else self._lane_places.give(run_id, place, now=now)

    def _admit_in_turn(self, gate: Gate, request: AdmissionRequest, *, now: datetime) -> Admission:
        """Let an attempt through to a downstream that nobody knows to be ill, unless it is one of too many."""
        waits = f"waits its turn: many runs for {request.downstream}"
        had_turn = gate.turns.take(request.run_id)
        if request.was_parked and not had_turn and not gate.parking.may_return(request.run_id, now=now):
            return _parked(gate.parking.park_again(request.run_id, now=now), reason=waits)
        if self._is_untried(gate, now=now):
            return _parked(gate.turns.give(request.run_id, now + ANSWERS_WITHIN, now=now), reason=waits)
        if not request.was_parked and (turn := gate.pace.take_place(now=now)) > now:
            return _parked(gate.turns.give(request.run_id, turn, now=now), reason=waits)
        gate.sent.give(request.run_id, now, now=now)
        _let_out(gate, request)
        if request.is_first:
            gate.budget.count_first(now=now)
        return Admission()

    @activity.defn(name=NOTE_ATTEMPT)
    async def note_attempt(self, notice: AttemptNotice) -> Verdict:
        """Take in how an attempt ended, and say what may follow."""
        now = notice.now
        gate = self._gate(notice.tenant, notice.downstream, now=now)
        gate.sent.take(notice.run_id)
        gate.out = max(0, gate.out - 1)
        if not gate.is_known and not notice.ok and not notice.is_void:
            await self._learn(gate, notice.tenant, notice.downstream, now=now)
        if notice.is_probe:
            await self._end_probe(gate, notice)
        elif notice.is_void:
            return Verdict()
        elif notice.ok:
            gate.failures = 0
            gate.answered_at = now
        elif not _is_of_the_past(gate, notice):
            await self._count_failure(gate, notice, now=now)
        is_excused = notice.is_probe or _is_of_the_past(gate, notice)
        if not notice.wants_retry or (notice.is_last and not is_excused):
            return Verdict()
        verdict = self._judge(gate, notice, is_excused=is_excused, now=now)
        gate.counts.verdicts[verdict.kind] += 1
        return verdict

    @staticmethod
    def _judge(gate: Gate, notice: AttemptNotice, *, is_excused: bool, now: datetime) -> Verdict:
        """Say what may follow an attempt that has failed and would be retried."""
        if gate.open_until is not None:
            park = gate.parking.park_after_probe if notice.is_probe else gate.parking.park_until_probed
            until = park(notice.run_id, open_until=gate.open_until, now=now)
            return Verdict(kind=VerdictKind.PARK, parked_until=until)
        if is_excused:
            return Verdict(kind=VerdictKind.PARK, parked_until=gate.parking.park_again(notice.run_id, now=now))
        if gate.failures >= STREAK or gate.budget.take_retry(now=now):
            return Verdict()
        return Verdict(kind=VerdictKind.EXHAUSTED)

    def _gate(self, tenant: str, downstream: str, *, now: datetime) -> Gate:
        key = tenant, downstream
        gate = self._gates.get(key) or self._gates.setdefault(key, self._make_gate(tenant, downstream, now=now))
        gate.used_at = max(gate.used_at, now)
        self._gates.move_to_end(key)
        self._forget_unused(now=now)
        return gate

    def _make_gate(self, tenant: str, downstream: str, *, now: datetime) -> Gate:
        policy = self._policy
        return Gate(
            budget=RetryBudget(policy=policy),
            pace=Pace(rate=policy.admission_rate, burst=policy.failures_to_open),
            parking=Parking(rate=policy.readmission_rate),
            counts=self._tally.of(tenant, downstream),
        )

    def _forget_unused(self, *, now: datetime) -> None:
        """Forget downstreams that are called no more: a process meets as many as jobs name, and some name each only once."""
        for _ in range(LOOKS_BACK):
            key, gate = next(iter(self._gates.items()))
            if now - gate.used_at < self._forget_after:
                return
            if _is_needed(gate, now=now):
                gate.used_at = now
                self._gates.move_to_end(key)
            else:
                del self._gates[key]

    def _report(self, tenant: str, downstream: str, gate: Gate, *, now: datetime) -> GateReport:
        return GateReport(
            tenant=tenant,
            downstream=downstream,
            worker=self._client.identity,
            seen_at=now,
            open_until=gate.open_until,
            consecutive_failures=gate.failures,
            window=self._policy.budget_window,
            first_attempts=gate.budget.firsts(now=now),
            retries=gate.budget.retries(now=now),
            retries_allowed=gate.budget.allowed(now=now),
            parked_runs=len(gate.parking),
            in_flight=sum(now - at < ANSWERS_WITHIN for at in gate.sent.of_runs.values()),
        )

    def _is_untried(self, gate: Gate, *, now: datetime) -> bool:
        """Say whether enough attempts are on their way to a downstream of which nobody knows whether it is well.

        One that has not failed within ``ANSWERS_WITHIN`` does not fail at once: a slow downstream is not held back.
        """
        if gate.answered_at is not None and now - gate.answered_at < PROVEN_FOR and not gate.failures:
            return False
        gate.sent.forget(until=now - ANSWERS_WITHIN)
        return len(gate.sent) >= self._policy.failures_to_open

    async def _count_failure(self, gate: Gate, notice: AttemptNotice, *, now: datetime) -> None:
        gate.failures += 1
        if gate.open_until is not None:
            return
        if gate.failures >= self._policy.failures_to_open:
            await self._open(gate, notice, now=now)
        elif gate.failures >= STREAK:
            await self._learn(gate, notice.tenant, notice.downstream, now=now)

    async def _open(self, gate: Gate, notice: AttemptNotice, *, now: datetime) -> None:
        gate.open_until = now + self._policy.open_for
        gate.looked_at = now
        gate.counts.openings += 1
        tenant, downstream = notice.tenant, notice.downstream
        logger.warning("circuit breaker opens", extra={"tenant": tenant, "downstream": downstream})
        breaker = open_breaker(tenant=tenant, downstream=downstream, policy=self._policy, now=now)
        start = self._client.start_workflow(
            DOWNSTREAM_WORKFLOW,
            DownstreamInput(tenant=tenant, downstream=downstream, policy=self._policy),
            id=downstream_workflow_id(tenant=tenant, downstream=downstream),
            task_queue=DEFAULT_TASK_QUEUE,
            task_timeout=WORKFLOW_TASK_TIMEOUT,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            memo=breaker_memo(breaker),
            static_summary=f"circuit breaker of {downstream}",
        )
        await _within_bounds(start)

    async def _learn(self, gate: Gate, tenant: str, downstream: str, *, now: datetime) -> None:
        """Ask whether the breaker is open: opened by another process, or before this one began; or closed meanwhile."""
        gate.looked_at, known_before = now, gate.open_until
        handle = self._client.get_workflow_handle(downstream_workflow_id(tenant=tenant, downstream=downstream))
        try:
            described = await _within_bounds(handle.describe())
        except RPCError as error:
            # While this was asked, `note_attempt` may have opened the breaker: then the answer is older than that.
            if error.status is RPCStatusCode.NOT_FOUND and gate.open_until == known_before:
                _close(gate, at=LONG_AGO if known_before is None else now)
            return
        if described is None:
            return
        if described.status is not WorkflowExecutionStatus.RUNNING:
            if gate.open_until == known_before:
                _close(gate, at=described.close_time or now)
            return
        gate.is_known = True
        look = read_breaker_memo(await described.memo(), started_at=described.start_time)
        # Where this process waits for longer, a probe is out.
        gate.open_until = max(look.open_until, gate.open_until or look.open_until)

    async def _ask_for_probe(self, request: AdmissionRequest) -> ProbeAnswer:
        wish = ProbeRequest(run_id=request.run_id, lasts=request.lasts)
        answer = await self._ask(UPDATE_ASK_PROBE, wish, request.tenant, request.downstream, within=ASK_WITHIN)
        return answer or ProbeAnswer(ask_again_at=request.now + ASK_SOON)

    async def _end_probe(self, gate: Gate, notice: AttemptNotice) -> None:
        """Tell the breaker how its probe ended. It must hear of it, even if that takes longer than this attempt can wait."""
        gate.counts.probes_succeeded += notice.ok and not notice.is_void
        gate.counts.probes_failed += not notice.ok and not notice.is_void
        gate.probing.discard(notice.run_id)
        telling = asyncio.create_task(self._tell_until_heard(gate, notice))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)
        await asyncio.wait({telling}, timeout=ASK_WITHIN.total_seconds())

    async def _tell_until_heard(self, gate: Gate, notice: AttemptNotice) -> None:
        report = ProbeReport(run_id=notice.run_id, ok=notice.ok, is_void=notice.is_void)
        for _ in range(PROBE_TELLINGS):
            answer = await self._ask(UPDATE_END_PROBE, report, notice.tenant, notice.downstream, within=TELL_WITHIN)
            if answer is not None:
                return _take_in(gate, answer, now=notice.now)
        logger.warning("the end of a probe could not be told", extra={"downstream": notice.downstream})

    async def _ask(
        self, update: str, argument: ProbeRequest | ProbeReport, tenant: str, downstream: str, *, within: timedelta
    ) -> ProbeAnswer | None:
        """Ask the open breaker; ``None`` when Temporal does not answer in time."""
        handle = self._client.get_workflow_handle(downstream_workflow_id(tenant=tenant, downstream=downstream))
        asking = handle.execute_update(update, argument, result_type=ProbeAnswer)
        try:
            return await _within_bounds(asking, within=within)
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            return None
        except WorkflowUpdateFailedError:
            # It was closing when it was asked: the breaker is closed.
            return ProbeAnswer(closed=True)
        except RPCError as error:
            return ProbeAnswer(closed=True) if error.status is RPCStatusCode.NOT_FOUND else None


def _parked(until: datetime, *, reason: str) -> Admission:
    return Admission(admitted=False, parked_until=until, reason=reason)


def _let_out(gate: Gate, request: AdmissionRequest) -> None:
    gate.out += 1
    gate.out_until = max(gate.out_until, request.now + request.waits + request.lasts)


def _is_needed(gate: Gate, *, now: datetime) -> bool:
    """Say whether a downstream that was not called for long is to be remembered all the same.

    While an attempt is out, for one that is met anew excuses all that began before. A breaker that is due for a probe is no
    reason: whoever calls next asks Temporal about it in either case.
    """
    if (gate.open_until is not None and now < gate.open_until) or (gate.out and now < gate.out_until):
        return True
    return any(places.are_awaited(now=now) for places in (gate.turns, gate.parking.places))


def _is_of_the_past(gate: Gate, notice: AttemptNotice) -> bool:
    """Say whether an attempt began before the downstream was known to be well. It failed with what came before."""
    return notice.admitted_at < gate.well_since


def _take_in(gate: Gate, answer: ProbeAnswer, *, now: datetime) -> None:
    if answer.closed:
        _close(gate, at=now)
    else:
        gate.open_until = answer.ask_again_at


def _close(gate: Gate, *, at: datetime) -> None:
    gate.is_known = True
    gate.well_since = max(gate.well_since, at)
    if gate.open_until is not None:
        gate.open_until = None
        gate.failures = 0
        gate.probing.clear()


async def _within_bounds(asking: Awaitable[Answer], *, within: timedelta = ASK_WITHIN) -> Answer | None:
    """Wait for Temporal's answer; ``None`` when it takes too long."""
    try:
        async with asyncio.timeout(within.total_seconds()):
            return await asking
    except TimeoutError:
        return None
