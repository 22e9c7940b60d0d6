"""Breakers and budgets, with explicit time."""

from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from workflows.breaker import (
    BreakerPolicy,
    OpenBreaker,
    RetryBudget,
    ask_for_probe,
    end_probe,
    expire_probes,
    open_breaker,
)

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
POLICY = BreakerPolicy()
LASTS = timedelta(minutes=5)


def opened(policy: BreakerPolicy = POLICY) -> OpenBreaker:
    """A breaker that has opened at noon."""
    return open_breaker(tenant="default", downstream="bank", policy=policy, now=NOON)


def test_nobody_is_let_through_while_it_is_open() -> None:
    """Before ``open_until`` the answer is when to ask again."""
    _, answer = ask_for_probe(opened(), "a", now=NOON + timedelta(seconds=29), lasts=LASTS)
    assert not answer.granted
    assert answer.ask_again_at == NOON + timedelta(seconds=30)


def test_exactly_one_probe_is_out() -> None:
    """The second to ask waits; the first one, asking again after a lost answer, has its probe still."""
    due = NOON + timedelta(seconds=30)
    breaker, first = ask_for_probe(opened(), "a", now=due, lasts=LASTS)
    breaker, second = ask_for_probe(breaker, "b", now=due, lasts=LASTS)
    breaker, again = ask_for_probe(breaker, "a", now=due, lasts=LASTS)
    assert (first.granted, second.granted, again.granted) == (True, False, True)
    assert [probe.run_id for probe in breaker.probes] == ["a"]


def test_as_many_probes_are_out_as_are_configured() -> None:
    """Three of five that ask are let through, whatever their order; one that fails opens the breaker for all anew."""
    due = NOON + timedelta(seconds=30)
    breaker = opened(BreakerPolicy(probes=3))
    granted: list[bool] = []
    for run in "abcde":
        breaker, answer = ask_for_probe(breaker, run, now=due, lasts=LASTS)
        granted.append(answer.granted)
    assert granted == [True, True, True, False, False]
    reopened = end_probe(breaker, "b", ok=False, now=due)
    assert reopened is not None
    assert [probe.run_id for probe in reopened.probes] == ["a", "c"]
    _, again = ask_for_probe(reopened, "d", now=due, lasts=LASTS)
    assert (again.granted, again.ask_again_at) == (False, due + timedelta(seconds=60))


def test_a_probe_that_succeeds_closes_it_and_one_that_fails_doubles_the_wait() -> None:
    """30 s, 60 s, 120 s, and never over ten minutes."""
    due = NOON + timedelta(seconds=30)
    breaker, _ = ask_for_probe(opened(), "a", now=due, lasts=LASTS)
    assert end_probe(breaker, "a", ok=True, now=due) is None

    waits = []
    reopened: OpenBreaker | None = opened()
    for _ in range(8):
        assert reopened is not None
        due = reopened.open_until
        probed, answer = ask_for_probe(reopened, "a", now=due, lasts=LASTS)
        assert answer.granted
        reopened = end_probe(probed, "a", ok=False, now=due)
        assert reopened is not None
        waits.append((reopened.open_until - due).total_seconds())
    assert waits == [60, 120, 240, 480, 600, 600, 600, 600]


def test_a_lost_probe_counts_as_failed() -> None:
    """Its worker died: after its time the breaker opens anew, and a late answer changes nothing (SB-106)."""
    due = NOON + timedelta(seconds=30)
    breaker, _ = ask_for_probe(opened(), "a", now=due, lasts=timedelta(seconds=10))
    later = due + timedelta(seconds=10)
    lost = expire_probes(breaker, now=later)
    assert lost.probes == ()
    assert lost.open_until == later + timedelta(seconds=60)
    assert end_probe(lost, "a", ok=True, now=later) == lost


def test_the_budget_allows_a_tenth_of_first_attempts_and_never_less_than_five() -> None:
    """Within a sliding window of a minute."""
    budget = RetryBudget(policy=POLICY)
    assert [budget.take_retry(now=NOON) for _ in range(6)] == [True] * 5 + [False]
    for _ in range(200):
        budget.count_first(now=NOON)
    assert [budget.take_retry(now=NOON) for _ in range(16)] == [True] * 15 + [False]
    assert budget.retries(now=NOON + timedelta(seconds=61)) == 0
    assert budget.take_retry(now=NOON + timedelta(seconds=61))


class BreakerMachine(RuleBasedStateMachine):
    """Runs ask and answer in any order, at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOON
        self.breaker: OpenBreaker | None = None
        self.granted: dict[str, datetime] = {}

    @initialize(probes=st.integers(1, 3))
    def trip(self, probes: int) -> None:
        """Begin open."""
        self.policy = BreakerPolicy(probes=probes)
        self.breaker = opened(self.policy)

    @rule(seconds=st.integers(0, 700))
    def pass_time(self, seconds: int) -> None:
        """Wait."""
        self.now += timedelta(seconds=seconds)

    @rule(run=st.sampled_from("abcdef"))
    def ask(self, run: str) -> None:
        """Ask for a probe."""
        if self.breaker is None:
            return
        before = self.breaker
        self.breaker, answer = ask_for_probe(before, run, now=self.now, lasts=LASTS)
        if answer.granted:
            assert self.now >= before.open_until or any(probe.run_id == run for probe in before.probes)
            self.granted[run] = self.now
        else:
            assert answer.ask_again_at > self.now

    @rule(run=st.sampled_from("abcdef"), ok=st.booleans())
    def answer(self, run: str, ok: bool) -> None:
        """End a probe, or what somebody takes for one."""
        if self.breaker is None:
            return
        holds = any(probe.run_id == run and probe.expires_at > self.now for probe in self.breaker.probes)
        after = end_probe(self.breaker, run, ok=ok, now=self.now)
        assert (after is None) == (holds and ok)
        self.breaker = after or opened(self.policy).model_copy(update={"open_until": self.now + timedelta(seconds=30)})

    @invariant()
    def never_more_probes_than_configured(self) -> None:
        """At most ``probes`` attempts reach an open downstream at once."""
        if self.breaker is not None:
            assert len(self.breaker.probes) <= self.policy.probes

    @invariant()
    def the_wait_is_bounded(self) -> None:
        """An open breaker is asked again within the longest wait."""
        if self.breaker is not None:
            assert self.breaker.open_until - self.now <= self.policy.longest_open


TestBreakerMachine = BreakerMachine.TestCase
TestBreakerMachine.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


class BudgetMachine(RuleBasedStateMachine):
    """First attempts and retries come in any order, at any time; an oracle keeps them all and counts anew."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOON
        self.firsts: list[datetime] = []
        self.retries: list[datetime] = []

    @initialize(ratio=st.sampled_from([0.0, 0.1, 0.5]), floor=st.integers(0, 5), window=st.sampled_from([1, 10, 60]))
    def begin(self, ratio: float, floor: int, window: int) -> None:
        """Choose the bounds."""
        self.policy = BreakerPolicy(budget_ratio=ratio, budget_floor=floor, budget_window=timedelta(seconds=window))
        self.budget = RetryBudget(policy=self.policy)

    @rule(seconds=st.integers(0, 70))
    def pass_time(self, seconds: int) -> None:
        """Wait."""
        self.now += timedelta(seconds=seconds)

    @rule(count=st.integers(1, 30))
    def attempt(self, count: int) -> None:
        """Make first attempts."""
        for _ in range(count):
            self.budget.count_first(now=self.now)
            self.firsts.append(self.now)

    @rule(count=st.integers(1, 10))
    def retry(self, count: int) -> None:
        """Take as many retries as there are."""
        for _ in range(count):
            allowed = max(self.policy.budget_floor, int(self.policy.budget_ratio * self._recent(self.firsts)))
            expected = self._recent(self.retries) < allowed
            assert self.budget.take_retry(now=self.now) is expected
            self.retries += [self.now] if expected else []

    @invariant()
    def what_is_told_is_what_was_counted(self) -> None:
        """Looking changes nothing, even with a clock that is ahead."""
        if self.firsts or self.retries:
            self.budget.retries(now=self.now + timedelta(hours=1))
            assert self.budget.firsts(now=self.now) == self._recent(self.firsts)
            assert self.budget.retries(now=self.now) == self._recent(self.retries)

    def _recent(self, times: list[datetime]) -> int:
        return sum(at > self.now - self.policy.budget_window for at in times)


TestBudgetMachine = BudgetMachine.TestCase
TestBudgetMachine.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
