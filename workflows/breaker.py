"""A downstream that fails: when it is left alone, who may try it again, and how many retries it is spared.

Pure, with explicit time. While its breaker is closed, a downstream is watched by each scheduler process for itself (as Envoy
does); an open breaker is one for all, held by ``DownstreamWorkflow``. Only errors of the downstream count, never bugs.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from workflows.value import Value


class BreakerPolicy(Value):
    """Bounds of breakers and budgets, set by whoever runs the workers."""

    failures_to_open: int = 20
    """Consecutive failures, as one scheduler process sees them."""

    open_for: timedelta = timedelta(seconds=30)
    """The first time; each failed probe doubles it."""

    longest_open: timedelta = timedelta(minutes=10)
    probes: int = 1
    """Attempts let through at once when an open breaker tries again."""

    budget_ratio: float = 0.1
    """Retries to first attempts, within the window."""

    budget_floor: int = 5
    """Retries that are always allowed within the window: a job of every hour must not die of a ratio."""

    budget_window: timedelta = timedelta(seconds=60)
    admission_rate: float = 100.0
    """Attempts a second, at most, for each scheduler process, beyond a burst of ``failures_to_open``. Without it, two
    thousand runs due at once have all been sent to a dead downstream before the first of them says so."""

    readmission_rate: float = 50.0
    """Parked runs that return a second, at most, for each scheduler process."""


class Probe(Value):
    """An attempt that was let through to an open downstream."""

    run_id: str
    expires_at: datetime
    """Lost, and counted as failed, from then on."""


class OpenBreaker(Value):
    """The state of an open breaker."""

    tenant: str = ""
    downstream: str = ""
    opened_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    open_until: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    """No probe before."""

    openings: int = 1
    """How often it opened without having been closed."""

    probes: tuple[Probe, ...] = ()
    last_asked_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    policy: BreakerPolicy = BreakerPolicy()


class ProbeAnswer(Value):
    """What a run is told that asks for a probe."""

    granted: bool = False
    closed: bool = False
    """The breaker is closed: no probe is needed."""

    ask_again_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)


def open_breaker(*, tenant: str, downstream: str, policy: BreakerPolicy, now: datetime) -> OpenBreaker:
    """Open a breaker that was closed."""
    return OpenBreaker(
        tenant=tenant,
        downstream=downstream,
        opened_at=now,
        open_until=now + policy.open_for,
        last_asked_at=now,
        policy=policy,
    )


def ask_for_probe(
    breaker: OpenBreaker, run_id: str, *, now: datetime, lasts: timedelta
) -> tuple[OpenBreaker, ProbeAnswer]:
    """Grant a probe, if the time has come and not too many are out. ``lasts`` bounds how long the attempt can take."""
    breaker = expire_probes(breaker, now=now).model_copy(update={"last_asked_at": now})
    if any(probe.run_id == run_id for probe in breaker.probes):
        # Asked again after an answer that was lost.
        return breaker, ProbeAnswer(granted=True)
    if now < breaker.open_until:
        return breaker, ProbeAnswer(ask_again_at=breaker.open_until)
    if len(breaker.probes) >= breaker.policy.probes:
        return breaker, ProbeAnswer(ask_again_at=now + breaker.policy.open_for)
    probe = Probe(run_id=run_id, expires_at=now + lasts)
    return breaker.model_copy(update={"probes": (*breaker.probes, probe)}), ProbeAnswer(granted=True)


def end_probe(breaker: OpenBreaker, run_id: str, *, ok: bool, now: datetime) -> OpenBreaker | None:
    """Take in how a probe ended; ``None`` for a breaker that is closed by it. A probe that has expired changes nothing."""
    breaker = expire_probes(breaker, now=now)
    if not any(probe.run_id == run_id for probe in breaker.probes):
        return breaker
    left = tuple(probe for probe in breaker.probes if probe.run_id != run_id)
    return None if ok else _reopen(breaker.model_copy(update={"probes": left}), now=now)


def give_back_probe(breaker: OpenBreaker, run_id: str) -> OpenBreaker:
    """Take back a probe that has told nothing of the downstream: the next run that asks may try."""
    return breaker.model_copy(update={"probes": tuple(probe for probe in breaker.probes if probe.run_id != run_id)})


def expire_probes(breaker: OpenBreaker, *, now: datetime) -> OpenBreaker:
    """Count probes that never answered as failed."""
    left = tuple(probe for probe in breaker.probes if probe.expires_at > now)
    return breaker if left == breaker.probes else _reopen(breaker.model_copy(update={"probes": left}), now=now)


def _reopen(breaker: OpenBreaker, *, now: datetime) -> OpenBreaker:
    policy = breaker.policy
    widest = min(policy.longest_open, policy.open_for * 2 ** min(breaker.openings, 30))
    return breaker.model_copy(update={"openings": breaker.openings + 1, "open_until": now + widest})


@dataclass(kw_only=True)
class RetryBudget:
    """First attempts and retries of a downstream in a sliding window, counted by the second. One a process and downstream."""

    policy: BreakerPolicy
    _firsts: dict[int, int] = field(default_factory=dict)
    _retries: dict[int, int] = field(default_factory=dict)

    def count_first(self, *, now: datetime) -> None:
        """Count a first attempt: it earns a part of a retry."""
        second = self._forget_old(now=now)
        self._firsts[second] = self._firsts.get(second, 0) + 1

    def take_retry(self, *, now: datetime) -> bool:
        """Take one retry out of the budget, if there is one left."""
        second = self._forget_old(now=now)
        if self.retries(now=now) >= self.allowed(now=now):
            return False
        self._retries[second] = self._retries.get(second, 0) + 1
        return True

    def allowed(self, *, now: datetime) -> int:
        """Say how many retries the present window allows."""
        return max(self.policy.budget_floor, int(self.policy.budget_ratio * self.firsts(now=now)))

    def firsts(self, *, now: datetime) -> int:
        """Say how many first attempts the present window has seen."""
        return self._sum(self._firsts, now=now)

    def retries(self, *, now: datetime) -> int:
        """Say how many retries the present window has seen."""
        return self._sum(self._retries, now=now)

    def _sum(self, counts: dict[int, int], *, now: datetime) -> int:
        oldest = int((now - self.policy.budget_window).timestamp())
        return sum(count for second, count in counts.items() if second > oldest)

    def _forget_old(self, *, now: datetime) -> int:
        """Forget what the window does not see any more; answer the present second."""
        oldest = int((now - self.policy.budget_window).timestamp())
        for counts in (self._firsts, self._retries):
            for second in [each for each in counts if each <= oldest]:
                del counts[second]
        return int(now.timestamp())
