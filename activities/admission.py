"""What a scheduler process knows of the downstreams that its jobs call: who may go, who waits, who may try again.

Process state, by design: the breaker of a healthy downstream and its retry budget are counted here, without a round trip. An
open breaker is a workflow; this module starts it, asks it for probes, and learns from it that it is over. Where Temporal does
not answer in time, an attempt is let through: a breaker protects, it does not decide whether a job runs. Times are those of the
workflows that ask, which is Temporal's clock: this process's may be minutes off, and parks or probes nobody at a wrong time.
"""

import asyncio
import logging
import random
from collections import Counter
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
from workflows.breaker import BreakerPolicy, ProbeAnswer, RetryBudget
from workflows.contracts import (
    ADMIT_ATTEMPT,
    DOWNSTREAM_WORKFLOW,
    NOTE_ATTEMPT,
    UPDATE_ASK_PROBE,
    UPDATE_END_PROBE,
    downstream_workflow_id,
)
from workflows.resilience import BREAKER_OPEN
from workflows.target import DEFAULT_TASK_QUEUE

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

ASK_WITHIN: Final = timedelta(milliseconds=350)
"""For one question to Temporal: less than the half second that a local activity has."""

TELL_WITHIN: Final = timedelta(seconds=10)
PROBE_TELLINGS: Final = 6
"""A probe whose end is never told holds the breaker open until it expires."""

SHORTEST_SPREAD: Final = timedelta(seconds=5)
"""Over which even a few parked runs come back."""

ANSWERS_WITHIN: Final = timedelta(seconds=2)
"""A dead downstream mostly says so at once."""

PROVEN_FOR: Final = timedelta(seconds=60)
"""After a success, as many attempts may be out as there are."""

WAITS_ITS_TURN: Final = "waits its turn: many runs for one downstream"

STREAK: Final = 3
"""Consecutive failures that are no accident. From then on a process asks whether another one has opened the breaker, and
retries are the breaker's business: it opens before they are many, and nothing dies of a budget meanwhile."""


@dataclass
class DownstreamCounts:
    """What has become of a downstream's attempts in this process, since it began. For metrics; nothing is decided by it."""

    openings: int = 0
    """How often this process has opened the breaker."""

    probes_succeeded: int = 0
    probes_failed: int = 0
    verdicts: Counter[VerdictKind] = field(default_factory=Counter)
    """What attempts were told that had failed and would be retried."""


@dataclass
class Gate:
    """One downstream of one tenant, as this process sees it."""

    budget: RetryBudget
    counts: DownstreamCounts = field(default_factory=DownstreamCounts)
    is_known: bool = False
    """Whether this process has asked, once, if the breaker is open already."""

    failures: int = 0
    """Consecutive ones."""

    open_until: datetime | None = None
    """``None`` while the breaker is closed."""

    parked: int = 0
    """Runs that were parked since it opened, and have not come back."""

    sent: dict[str, datetime] = field(default_factory=dict)
    """Attempts that were let through and have not answered, by run id."""

    answered_at: datetime | None = None
    """The last success."""

    next_place_at: datetime = field(default_factory=lambda: datetime(1970, 1, 1, tzinfo=UTC))
    """When an attempt could be sent if all were sent evenly."""

    next_return_at: datetime = field(default_factory=lambda: datetime(1970, 1, 1, tzinfo=UTC))
    """When the next of them may."""


class Admissions:
    """The gates of a process."""

    def __init__(self, client: Client, policy: BreakerPolicy) -> None:
        self._client = client
        self._policy = policy
        self._gates: dict[tuple[str, str], Gate] = {}
        self._chance = random.Random()
        self._telling: set[asyncio.Task[None]] = set()

    def counts(self) -> Mapping[tuple[str, str], DownstreamCounts]:
        """Get the counts by tenant and downstream. May be called in any thread."""
        return {key: gate.counts for key, gate in self._gates.copy().items()}

    @activity.defn(name=ADMIT_ATTEMPT)
    async def admit_attempt(self, request: AdmissionRequest) -> Admission:
        """Say whether an attempt may be made now, and until when it is parked if not."""
        gate, now = self._gate(request.tenant, request.downstream), request.now
        if not gate.is_known:
            await self._learn(gate, request.tenant, request.downstream, now=now)
        if gate.open_until is not None and now >= gate.open_until:
            answer = await self._ask_for_probe(request)
            if answer.granted:
                # The others of this process need not ask while the probe is out.
                gate.open_until = now + self._policy.open_for
                return Admission(is_probe=True)
            self._take_in(gate, answer)
        if gate.open_until is not None:
            return self._park(gate, from_=gate.open_until, was_parked=request.was_parked)
        if request.was_parked and gate.parked and not self._may_return(gate, now=now):
            return self._park(gate, from_=now, was_parked=True)
        if self._is_untried(gate, now=now):
            return Admission(admitted=False, parked_until=now + ANSWERS_WITHIN, reason=WAITS_ITS_TURN)
        if not request.was_parked and (turn := self._take_place(gate, now=now)) > now:
            return Admission(admitted=False, parked_until=turn, reason=WAITS_ITS_TURN)
        gate.sent[request.run_id] = now
        if request.is_first:
            gate.budget.count_first(now=now)
        return Admission()

    @activity.defn(name=NOTE_ATTEMPT)
    async def note_attempt(self, notice: AttemptNotice) -> Verdict:
        """Take in how an attempt ended, and say what may follow."""
        gate, now = self._gate(notice.tenant, notice.downstream), notice.now
        gate.sent.pop(notice.run_id, None)
        if notice.is_probe:
            await self._end_probe(gate, notice)
        elif notice.ok:
            gate.failures = 0
            gate.answered_at = now
        else:
            await self._count_failure(gate, notice, now=now)
        if not notice.wants_retry:
            return Verdict()
        verdict = self._judge(gate, now=now)
        gate.counts.verdicts[verdict.kind] += 1
        return verdict

    def _judge(self, gate: Gate, *, now: datetime) -> Verdict:
        """Say what may follow an attempt that has failed and would be retried."""
        if gate.open_until is not None:
            parked = self._park(gate, from_=gate.open_until, was_parked=False)
            return Verdict(kind=VerdictKind.PARK, parked_until=parked.parked_until)
        if gate.failures >= STREAK or gate.budget.take_retry(now=now):
            return Verdict()
        return Verdict(kind=VerdictKind.EXHAUSTED)

    def _gate(self, tenant: str, downstream: str) -> Gate:
        return self._gates.setdefault((tenant, downstream), Gate(RetryBudget(policy=self._policy)))

    def _park(self, gate: Gate, *, from_: datetime, was_parked: bool) -> Admission:
        """Park a run until a moment of its own: all that wait come back spread out, not together."""
        gate.parked += not was_parked
        spread = max(SHORTEST_SPREAD, timedelta(seconds=gate.parked / self._policy.readmission_rate))
        until = max(from_, gate.next_return_at) + self._chance.random() * spread
        return Admission(admitted=False, parked_until=until, reason=BREAKER_OPEN)

    def _may_return(self, gate: Gate, *, now: datetime) -> bool:
        """Let one parked run back, unless another one has just come."""
        if now < gate.next_return_at:
            return False
        gate.parked = max(0, gate.parked - 1)
        gate.next_return_at = now + timedelta(seconds=1 / self._policy.readmission_rate)
        return True

    def _is_untried(self, gate: Gate, *, now: datetime) -> bool:
        """Say whether enough attempts are on their way to a downstream of which nobody knows whether it is well.

        One that has not failed within ``ANSWERS_WITHIN`` does not fail at once: a slow downstream is not held back.
        """
        if gate.answered_at is not None and now - gate.answered_at < PROVEN_FOR and not gate.failures:
            return False
        gate.sent = {run_id: at for run_id, at in gate.sent.items() if now - at < ANSWERS_WITHIN}
        return len(gate.sent) >= self._policy.failures_to_open

    def _take_place(self, gate: Gate, *, now: datetime) -> datetime:
        """Say when an attempt may be sent: now within a burst, else in its turn (the generic cell rate algorithm)."""
        step = timedelta(seconds=1 / self._policy.admission_rate)
        due = max(gate.next_place_at, now)
        gate.next_place_at = due + step
        return now if due - now <= step * self._policy.failures_to_open else due

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
        gate.parked = 0
        gate.counts.openings += 1
        logger.warning("circuit breaker opens", extra={"tenant": notice.tenant, "downstream": notice.downstream})
        given = DownstreamInput(tenant=notice.tenant, downstream=notice.downstream, policy=self._policy)
        start = self._client.start_workflow(
            DOWNSTREAM_WORKFLOW,
            given,
            id=downstream_workflow_id(tenant=notice.tenant, downstream=notice.downstream),
            task_queue=DEFAULT_TASK_QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            static_summary=f"circuit breaker of {notice.downstream}",
        )
        await _within_bounds(start)

    async def _learn(self, gate: Gate, tenant: str, downstream: str, *, now: datetime) -> None:
        """Ask whether the breaker is open already: opened by another process, or before this one began."""
        handle = self._client.get_workflow_handle(downstream_workflow_id(tenant=tenant, downstream=downstream))
        try:
            described = await _within_bounds(handle.describe())
        except RPCError as error:
            gate.is_known = error.status is RPCStatusCode.NOT_FOUND
            return
        if described is None:
            return
        gate.is_known = True
        if described.status is WorkflowExecutionStatus.RUNNING:
            until = (await described.memo()).get("open_until")
            gate.open_until = datetime.fromisoformat(until) if until else now + self._policy.open_for

    async def _ask_for_probe(self, request: AdmissionRequest) -> ProbeAnswer:
        wish = ProbeRequest(run_id=request.run_id, lasts=request.lasts)
        answer = await self._ask(UPDATE_ASK_PROBE, wish, request.tenant, request.downstream, within=ASK_WITHIN)
        return answer or ProbeAnswer(ask_again_at=request.now + SHORTEST_SPREAD)

    async def _end_probe(self, gate: Gate, notice: AttemptNotice) -> None:
        """Tell the breaker how its probe ended. It must hear of it, even if that takes longer than this attempt can wait."""
        gate.counts.probes_succeeded += notice.ok
        gate.counts.probes_failed += not notice.ok
        telling = asyncio.create_task(self._tell_until_heard(gate, notice))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)
        await asyncio.wait({telling}, timeout=ASK_WITHIN.total_seconds())

    async def _tell_until_heard(self, gate: Gate, notice: AttemptNotice) -> None:
        report = ProbeReport(run_id=notice.run_id, ok=notice.ok)
        for _ in range(PROBE_TELLINGS):
            answer = await self._ask(UPDATE_END_PROBE, report, notice.tenant, notice.downstream, within=TELL_WITHIN)
            if answer is not None:
                return self._take_in(gate, answer)
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

    def _take_in(self, gate: Gate, answer: ProbeAnswer) -> None:
        if answer.closed:
            gate.open_until = None
            gate.failures = 0
        else:
            gate.open_until = answer.ask_again_at


async def _within_bounds(asking: Awaitable[Answer], *, within: timedelta = ASK_WITHIN) -> Answer | None:
    """Wait for Temporal's answer; ``None`` when it takes too long."""
    try:
        async with asyncio.timeout(within.total_seconds()):
            return await asking
    except TimeoutError:
        return None
