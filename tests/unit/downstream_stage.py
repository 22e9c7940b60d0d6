"""A downstream, scheduler processes and a Temporal that holds the open breaker, all by one explicit clock."""

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.admission import Admissions
from workflows.admission import AdmissionRequest, AttemptNotice, DownstreamInput, ProbeReport, ProbeRequest, VerdictKind
from workflows.breaker import (
    BreakerPolicy,
    OpenBreaker,
    ProbeAnswer,
    ask_for_probe,
    end_probe,
    expire_probes,
    give_back_probe,
    open_breaker,
)
from workflows.downstream import breaker_memo

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)

ANSWERS_AFTER = timedelta(milliseconds=50)
"""How long the downstream takes to fail or to succeed."""


@dataclass
class Breaker:
    """What Temporal knows: the workflow of one downstream's breaker, by the pure decisions that it carries out."""

    now: datetime = NOON
    breaker: OpenBreaker | None = None
    has_been: bool = False
    closed_at: datetime | None = None

    identity: str = "scheduler"

    async def start_workflow(self, _: str, given: DownstreamInput, **__: object) -> None:
        """Open it, unless it is open."""
        if self.breaker is None:
            self.has_been = True
            self.breaker = open_breaker(
                tenant=given.tenant, downstream=given.downstream, policy=given.policy, now=self.now
            )

    def get_workflow_handle(self, _: str) -> "Breaker":
        """It is its own."""
        return self

    async def describe(self) -> Any:
        """Say how it stands."""
        if not self.has_been:
            raise _not_found()
        status = WorkflowExecutionStatus.COMPLETED if self.breaker is None else WorkflowExecutionStatus.RUNNING
        return SimpleNamespace(status=status, memo=self._memo, start_time=self.now, close_time=self.closed_at)

    async def execute_update(self, _: str, argument: ProbeRequest | ProbeReport, **__: object) -> ProbeAnswer:
        """Ask for a probe, or tell of its end."""
        if self.breaker is None:
            raise _not_found()
        if isinstance(argument, ProbeRequest):
            self.breaker, answer = ask_for_probe(self.breaker, argument.run_id, now=self.now, lasts=argument.lasts)
            return answer
        if argument.is_void:
            self.breaker = give_back_probe(self.breaker, argument.run_id)
        else:
            self.breaker = end_probe(self.breaker, argument.run_id, ok=argument.ok, now=self.now)
        self.closed_at = self.now if self.breaker is None else None
        return ProbeAnswer(closed=True) if self.breaker is None else ProbeAnswer(ask_again_at=self.breaker.open_until)

    def pass_time(self, now: datetime) -> None:
        """Count probes that nobody has heard of again as failed."""
        self.now = now
        if self.breaker is not None:
            self.breaker = expire_probes(self.breaker, now=now)

    async def _memo(self) -> dict[str, str]:
        assert self.breaker is not None
        return breaker_memo(self.breaker)


def _not_found() -> RPCError:
    return RPCError("there is no such workflow", RPCStatusCode.NOT_FOUND, b"")


@dataclass
class Outage:
    """Runs that all call one downstream, which is down at first."""

    runs: int
    lasts: timedelta
    policy: BreakerPolicy
    processes: int = 2
    dies_at: timedelta | None = None
    """Then one process dies, with all that it knows, and another one takes its place."""

    resets_at: timedelta | None = None
    """Then an operator closes the breaker."""

    seed: int = 0
    calls: list[tuple[datetime, bool]] = field(default_factory=list)
    """When it was called, and whether it was well."""

    ended: Counter[str] = field(default_factory=Counter)
    _coming: list[tuple[datetime, int, str, dict[str, Any]]] = field(default_factory=list)

    async def play(self) -> None:
        """Let time pass until every run has ended."""
        chance, temporal = random.Random(self.seed), Breaker()
        schedulers = [self._scheduler(temporal) for _ in range(self.processes)]
        for number in range(self.runs):
            self._push(NOON + timedelta(seconds=2 * chance.random()), number, "asks", attempt=1, parkings=0)
        dies_at, resets_at = self.dies_at, self.resets_at
        while self._coming:
            now, number, what, about = heapq.heappop(self._coming)
            temporal.pass_time(now)
            if dies_at is not None and now >= NOON + dies_at:
                schedulers[0], dies_at = self._scheduler(temporal), None
            if resets_at is not None and now >= NOON + resets_at:
                temporal.breaker = resets_at = None
                temporal.closed_at = now
            scheduler = schedulers[number % self.processes]
            if what == "asks":
                await self._ask(scheduler, now, number, about)
            else:
                await self._note(scheduler, now, number, about, noise=chance.random())

    def in_a_second(self, *, after: timedelta) -> int:
        """Most calls in one second from a moment on."""
        seconds = Counter(int((at - NOON).total_seconds()) for at, _ in self.calls if at >= NOON + after)
        return max(seconds.values())

    def _scheduler(self, temporal: Breaker) -> Admissions:
        return Admissions(temporal, self.policy)  # type: ignore[arg-type]

    def _push(self, at: datetime, number: int, what: str, **about: Any) -> None:
        heapq.heappush(self._coming, (at, number, what, about))

    async def _ask(self, scheduler: Admissions, now: datetime, number: int, about: dict[str, Any]) -> None:
        request = AdmissionRequest(
            tenant="t",
            downstream="bank",
            run_id=f"r{number}",
            is_first=about["attempt"] == 1,
            was_parked=about["parkings"] > 0,
            lasts=timedelta(seconds=10),
            now=now,
        )
        answer = await scheduler.admit_attempt(request)
        if not answer.admitted:
            assert answer.parked_until > now
            about = about | {"parkings": about["parkings"] + 1}
            return self._push(answer.parked_until, number, "asks", **about)
        is_up = now >= NOON + self.lasts
        self.calls.append((now, is_up))
        about = about | {"is_up": is_up, "is_probe": answer.is_probe, "admitted_at": now}
        self._push(now + ANSWERS_AFTER, number, "ends", **about)

    async def _note(
        self, scheduler: Admissions, now: datetime, number: int, about: dict[str, Any], *, noise: float
    ) -> None:
        is_up = about.pop("is_up")
        notice = AttemptNotice(
            tenant="t",
            downstream="bank",
            run_id=f"r{number}",
            is_probe=about.pop("is_probe"),
            ok=is_up,
            wants_retry=not is_up,
            admitted_at=about.pop("admitted_at"),
            now=now,
        )
        verdict = await scheduler.note_attempt(notice)
        if is_up:
            self.ended["success"] += 1
        elif verdict.kind is VerdictKind.PARK:
            self._push(verdict.parked_until, number, "asks", attempt=about["attempt"], parkings=1)
        elif verdict.kind is VerdictKind.RETRY:
            wait = timedelta(seconds=1 + noise * 2 ** min(about["attempt"] - 1, 9))
            self._push(now + wait, number, "asks", attempt=about["attempt"] + 1, parkings=0)
        else:
            self.ended["retry_budget_exhausted"] += 1
