"""Claims of effects for tests, and what a store must answer: the rules of the design, written a second time from the facts."""

import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from horarium.effect import Claim, ClaimAnswer, Claimed, EffectKey, EffectStore, Held, Outcome, Refused, Succeeded

LEASE = timedelta(seconds=10)
MOMENT = timedelta(milliseconds=1)
"""SQLite's clock has no shorter one."""

ATTEMPTS = (1, 2, 3)
"""Attempts are named by their fence; the third begins after the others."""


def effect_key(name: str = "charge", *, idempotency_key: str = "payroll:1") -> EffectKey:
    """Make the key of an effect."""
    return EffectKey(tenant="default", job_id="payroll", idempotency_key=idempotency_key, name=name)


def claim_of(fence: int, *, key: EffectKey | None = None) -> Claim:
    """Make the claim of a worker that asks for the first time."""
    return Claim(key=key or effect_key(), fence=fence, token=uuid.uuid4().hex, run_id="payroll:r", worker="w")


@dataclass
class Facts:
    """What is true of an effect."""

    holder: Claim | None = None
    """Who got it last, and did not give it back."""

    gave_back: Claim | None = None
    """Who had it last, where nobody has it."""

    lease_until: timedelta = timedelta()
    greatest: int = 0
    """Fence that has asked."""

    result: str | None = None
    """Set when it is done, once and for all."""


class ClaimMachine(RuleBasedStateMachine):
    """Three attempts do anything in any order, at times that the test sets, and each answer is compared with the facts.

    Whoever once got the claim goes on believing that it has it. Subclasses say what a store is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = timedelta()
        self.facts = Facts()
        self.believers: dict[int, Claim] = {}
        # Every example has an effect of its own, so that all may share a store.
        self.key = effect_key(uuid.uuid4().hex)

    def ask(self, call: Callable[[EffectStore], Coroutine[Any, Any, Any]]) -> Any:
        """Ask the store, at this time."""
        raise NotImplementedError

    @rule(span=st.sampled_from([LEASE / 2, LEASE - MOMENT, LEASE, LEASE + MOMENT]))
    def time_passes(self, span: timedelta) -> None:
        """About a lease, or half of it."""
        self.now += span

    @rule(fence=st.sampled_from(ATTEMPTS))
    def claims(self, fence: int) -> None:
        """An attempt asks for the effect."""
        claim = claim_of(fence, key=self.key)
        answer = self.ask(lambda store: store.claim(claim, lease=LEASE))
        assert answer == self._right_answer(claim)
        self.facts.greatest = max(self.facts.greatest, fence)
        if answer == Claimed():
            self.believers[fence] = claim
            self.facts.holder, self.facts.gave_back = claim, None
            self.facts.lease_until = self.now + LEASE

    @precondition(lambda self: self.believers)
    @rule(data=st.data())
    def claims_again(self, data: st.DataObject) -> None:
        """The answer to a claim was lost on its way, and its worker repeats it."""
        claim = self._draw(data)
        assume(self._holds(claim) and claim.fence == self.facts.greatest)
        assert self.ask(lambda store: store.claim(claim, lease=LEASE)) == Claimed()
        self.facts.lease_until = self.now + LEASE

    @precondition(lambda self: self.believers)
    @rule(data=st.data())
    def renews(self, data: st.DataObject) -> None:
        """A lease that has ended is renewed as well, unless somebody took the claim over."""
        claim = self._draw(data)
        assert self.ask(lambda store: store.renew(claim, lease=LEASE)) == self._holds(claim)
        if self._holds(claim):
            self.facts.lease_until = self.now + LEASE

    @precondition(lambda self: self.believers)
    @rule(data=st.data(), result=st.sampled_from(['"a"', '"b"']))
    def completes(self, data: st.DataObject, result: str) -> None:
        """A second time it is told the same, and says the same."""
        claim = self._draw(data)
        was_done = claim == self.facts.holder and self.facts.result is not None
        result = self.facts.result or result
        assert self.ask(lambda store: store.complete(claim, Outcome(result=result))) == (self._holds(claim) or was_done)
        if self._holds(claim):
            self.facts.result = result

    @precondition(lambda self: self.believers)
    @rule(data=st.data())
    def releases(self, data: st.DataObject) -> None:
        """It failed, and anybody may have it."""
        claim = self._draw(data)
        was_released = claim == self.facts.gave_back
        assert self.ask(lambda store: store.release(claim)) == (self._holds(claim) or was_released)
        if self._holds(claim):
            self.facts.holder, self.facts.gave_back = None, claim

    def _right_answer(self, claim: Claim) -> ClaimAnswer:
        facts = self.facts
        if claim.fence < facts.greatest:
            return Refused()
        if facts.result is not None:
            return Succeeded(Outcome(result=facts.result))
        if facts.holder is not None and self.now < facts.lease_until:
            return Held(facts.lease_until - self.now)
        return Claimed()

    def _holds(self, claim: Claim) -> bool:
        return claim == self.facts.holder and self.facts.result is None

    def _draw(self, data: st.DataObject) -> Claim:
        return self.believers[data.draw(st.sampled_from(sorted(self.believers)), label="attempt")]
