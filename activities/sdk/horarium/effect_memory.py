"""Claims in the memory of a process: for tests of job code, and as the shortest statement of the rules."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from horarium.effect import Claim, ClaimAnswer, Claimed, ClaimState, EffectKey, Held, Outcome, Refused, Succeeded


def _now() -> timedelta:
    return timedelta(seconds=time.monotonic())


@dataclass(frozen=True, kw_only=True)
class _Entry:
    state: ClaimState
    token: str
    fence: int
    """The greatest that has asked."""

    lease_until: timedelta
    outcome: Outcome


class MemoryEffectStore:
    """An ``EffectStore`` whose claims end with the process. ``now`` is any clock that does not go back."""

    def __init__(self, now: Callable[[], timedelta] = _now) -> None:
        self._now = now
        self._entries: dict[EffectKey, _Entry] = {}

    async def claim(self, claim: Claim, *, lease: timedelta) -> ClaimAnswer:
        """See ``EffectStore``."""
        entry = self._entries.get(claim.key)
        if entry is not None and claim.fence < entry.fence:
            return Refused()
        if entry is None or self._is_free_for(claim, entry):
            self._entries[claim.key] = _Entry(
                state=ClaimState.RUNNING,
                token=claim.token,
                fence=claim.fence,
                lease_until=self._now() + lease,
                outcome=Outcome(),
            )
            return Claimed()
        self._entries[claim.key] = replace(entry, fence=claim.fence)
        if entry.state is ClaimState.SUCCEEDED:
            return Succeeded(entry.outcome)
        return Held(entry.lease_until - self._now())

    async def renew(self, claim: Claim, *, lease: timedelta) -> bool:
        """See ``EffectStore``."""
        return self._change(claim, lease_until=self._now() + lease)

    async def complete(self, claim: Claim, outcome: Outcome) -> bool:
        """See ``EffectStore``."""
        entry = self._entries.get(claim.key)
        if entry is not None and (entry.token, entry.state) == (claim.token, ClaimState.SUCCEEDED):
            return True
        return self._change(claim, state=ClaimState.SUCCEEDED, outcome=outcome)

    async def release(self, claim: Claim) -> bool:
        """See ``EffectStore``."""
        entry = self._entries.get(claim.key)
        if entry is not None and (entry.token, entry.state) == (claim.token, ClaimState.FAILED):
            return True
        return self._change(claim, state=ClaimState.FAILED)

    async def close(self) -> None:
        """See ``EffectStore``."""

    def _is_free_for(self, claim: Claim, entry: _Entry) -> bool:
        match entry.state:
            case ClaimState.SUCCEEDED:
                return False
            case ClaimState.FAILED:
                return True
            case ClaimState.RUNNING:
                return entry.token == claim.token or entry.lease_until <= self._now()

    def _change(self, claim: Claim, **changes: object) -> bool:
        entry = self._entries.get(claim.key)
        if entry is None or (entry.token, entry.state) != (claim.token, ClaimState.RUNNING):
            return False
        self._entries[claim.key] = replace(entry, **changes)  # type: ignore[arg-type]
        return True
