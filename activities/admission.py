"""What a scheduler process knows of the downstreams that its jobs call: who may go, who waits, who may try again.

Process state, by design: the breaker of a healthy downstream and its retry budget are counted here, without a round trip. An
open breaker is a workflow; this module starts it, asks it for probes, and learns from it that it is over. Where Temporal does
not answer in time, an attempt is let through: a breaker protects, it does not decide whether a job runs.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable
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
from workflows.job import DEFAULT_TASK_QUEUE
from workflows.resilience import BREAKER_OPEN

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

ASK_WITHIN: Final = timedelta(milliseconds=350)
"""For one question to Temporal: less than the half second that a local activity has."""

SHORTEST_SPREAD: Final = timedelta(seconds=5)
"""Over which even a few parked runs come back."""

LEARN_AFTER: Final = 3
"""Consecutive failures after which a process asks whether another one has opened the breaker."""


@dataclass
class Gate:
    """One downstream of one tenant, as this process sees it."""

    budget: RetryBudget
    is_known: bool = False
    """Whether this process has asked, once, if the breaker is open already."""

    failures: int = 0
    """Consecutive ones."""

    open_until: datetime | None = None
    """``None`` while the breaker is closed."""

    parked: int = 0
    """Runs that were parked since it opened, and have not come back."""

    next_return_at: datetime = field(default_factory=lambda: datetime(1970, 1, 1, tzinfo=UTC))
    """When the next of them may."""


class Admissions:
    """The gates of a process."""

    def __init__(self, client: Client, policy: BreakerPolicy) -> None:
        self._client = client
        self._policy = policy
        self._gates: dict[tuple[str, str], Gate] = {}
        self._chance = random.Random()

    @activity.defn(name=ADMIT_ATTEMPT)
    async def admit_attempt(self, request: AdmissionRequest) -> Admission:
        """Say whether an attempt may be made now, and until when it is parked if not."""
        gate, now = self._gate(request.tenant, request.downstream), datetime.now(UTC)
        if not gate.is_known:
            await self._learn(gate, request.tenant, request.downstream)
        if gate.open_until is not None and now >= gate.open_until:
            answer = await self._ask_for_probe(request)
            if answer.granted:
                # The others of this process need not ask while the probe is out.
                gate.open_until = now + self._policy.open_for
                return Admission(is_probe=True)
            self._take_in(gate, answer)
        if gate.open_until is not None:
            return self._park(gate, from_=gate.open_until, was_parked=request.was_parked)
        if request.was_parked and not self._may_return(gate, now=now):
            return self._park(gate, from_=now, was_parked=True)
        if request.is_first:
            gate.budget.count_first(now=now)
        return Admission()

    @activity.defn(name=NOTE_ATTEMPT)
    async def note_attempt(self, notice: AttemptNotice) -> Verdict:
        """Take in how an attempt ended, and say what may follow."""
        gate, now = self._gate(notice.tenant, notice.downstream), datetime.now(UTC)
        if notice.is_probe:
            self._take_in(gate, await self._end_probe(notice))
        elif notice.ok:
            gate.failures = 0
        else:
            await self._count_failure(gate, notice, now=now)
        if not notice.wants_retry:
            return Verdict()
        if gate.open_until is not None:
            parked = self._park(gate, from_=gate.open_until, was_parked=False)
            return Verdict(kind=VerdictKind.PARK, parked_until=parked.parked_until)
        return Verdict(kind=VerdictKind.RETRY if gate.budget.take_retry(now=now) else VerdictKind.EXHAUSTED)

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

    async def _count_failure(self, gate: Gate, notice: AttemptNotice, *, now: datetime) -> None:
        gate.failures += 1
        if gate.open_until is not None:
            return
        if gate.failures >= self._policy.failures_to_open:
            await self._open(gate, notice, now=now)
        elif gate.failures >= LEARN_AFTER:
            await self._learn(gate, notice.tenant, notice.downstream)

    async def _open(self, gate: Gate, notice: AttemptNotice, *, now: datetime) -> None:
        gate.open_until = now + self._policy.open_for
        gate.parked = 0
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

    async def _learn(self, gate: Gate, tenant: str, downstream: str) -> None:
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
            now = datetime.now(UTC)
            gate.open_until = datetime.fromisoformat(until) if until else now + self._policy.open_for

    async def _ask_for_probe(self, request: AdmissionRequest) -> ProbeAnswer:
        return await self._ask(
            UPDATE_ASK_PROBE,
            ProbeRequest(run_id=request.run_id, lasts=request.lasts),
            request.tenant,
            request.downstream,
        )

    async def _end_probe(self, notice: AttemptNotice) -> ProbeAnswer:
        report = ProbeReport(run_id=notice.run_id, ok=notice.ok)
        return await self._ask(UPDATE_END_PROBE, report, notice.tenant, notice.downstream)

    async def _ask(
        self, update: str, argument: ProbeRequest | ProbeReport, tenant: str, downstream: str
    ) -> ProbeAnswer:
        handle = self._client.get_workflow_handle(downstream_workflow_id(tenant=tenant, downstream=downstream))
        try:
            answer = await _within_bounds(handle.execute_update(update, argument, result_type=ProbeAnswer))
        except WorkflowUpdateRPCTimeoutOrCancelledError:
            return self._ask_again_soon()
        except WorkflowUpdateFailedError:
            # It was closing when it was asked: the breaker is closed.
            return ProbeAnswer(closed=True)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                return self._ask_again_soon()
            return ProbeAnswer(closed=True)
        return answer if answer is not None else self._ask_again_soon()

    def _ask_again_soon(self) -> ProbeAnswer:
        return ProbeAnswer(ask_again_at=datetime.now(UTC) + SHORTEST_SPREAD)

    def _take_in(self, gate: Gate, answer: ProbeAnswer) -> None:
        if answer.closed:
            gate.open_until = None
            gate.failures = 0
        else:
            gate.open_until = answer.ask_again_at


async def _within_bounds(asking: Awaitable[Answer]) -> Answer | None:
    """Wait for Temporal's answer; ``None`` when it takes too long."""
    try:
        async with asyncio.timeout(ASK_WITHIN.total_seconds()):
            return await asking
    except TimeoutError:
        return None
