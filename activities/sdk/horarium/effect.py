"""Effects that happen once, and what the store of their claims promises.

An effect is a step of a run that must not be repeated when the run is: a payment, a mail. Whoever wants to carry one out
*claims* it first. Claims decide by three cases and one rule:

- *Succeeded*: the effect is done, by whatever attempt. Its stored result is the answer, and nothing is called.
- *Running with a live lease*: somebody is at it. The caller waits, or comes back later.
- *Running with a dead lease*, failed, or new: the caller gets the claim, and with it the right to carry the effect out.
- The rule above all: a claim remembers the greatest fence that has asked for it, and a lower one never gets it. Who has lost
  a claim to another can neither renew nor complete it.

Leases are measured by the store's own clock, never by a worker's.
"""

import json
import uuid
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

NAME_LIMIT: Final = 200
"""Characters of an effect's name."""

RESULT_LIMIT: Final = 64 * 1024
"""Bytes of JSON that are kept of an effect's result: a receipt, not the data."""

KEPT: Final = timedelta(days=90)
"""How long a claim is remembered after it was last asked for. A run that is started again later than that, by a redrive or under
the same idempotency key, repeats its effects."""

_KEYS: Final = uuid.UUID("3d2d2c1f-7d5c-5f0e-9c39-4b0f4a0a6f11")
"""Namespace of ``EffectKey.for_receiver``. Never changes: a run may be redriven after an upgrade."""


class ClaimState(StrEnum):
    """What has become of a claim."""

    RUNNING = "running"
    """Somebody holds it, as long as its lease is renewed. Entered by a claim."""

    SUCCEEDED = "succeeded"
    """The effect is done, for good. Entered when the holder completes it."""

    FAILED = "failed"
    """The effect raised, so whether it is done is not known. Entered when the holder releases it; anybody may claim it next."""


@dataclass(frozen=True, kw_only=True)
class EffectKey:
    """Which effect: the same in every attempt of a run, in a redrive, and in all runs that share an idempotency key."""

    tenant: str
    job_id: str
    idempotency_key: str
    """Of the run."""

    name: str
    """Given by the job's code; one for each effect of a run."""

    def for_receiver(self) -> str:
        """Make the idempotency key that goes out with the effect: a UUID, which any receiver has room for.

        Wire format: UUID 5 of the JSON array ``[tenant, job_id, idempotency_key, name]``, in ASCII and without spaces.
        """
        parts = [self.tenant, self.job_id, self.idempotency_key, self.name]
        return str(uuid.uuid5(_KEYS, json.dumps(parts, separators=(",", ":"))))


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim that somebody makes, and presents again at each later step."""

    key: EffectKey
    fence: int
    token: str
    """Drawn for each claim anew; who knows it is the holder."""

    run_id: str
    """For people who look at the claims, like the next."""

    worker: str


@dataclass(frozen=True)
class Claimed:
    """The caller holds the claim, and carries the effect out."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an effect has come to."""

    result: str | None = None
    """JSON, at most ``RESULT_LIMIT`` bytes; ``None`` where there is a problem."""

    problem: str | None = None
    """Why the result could not be kept. The effect is done all the same, and is not repeated."""


@dataclass(frozen=True)
class Succeeded:
    """The effect is done already."""

    outcome: Outcome


@dataclass(frozen=True)
class Held:
    """Somebody else carries the effect out at this moment."""

    lease_left: timedelta
    """After that it may be claimed, unless its lease is renewed."""


@dataclass(frozen=True)
class Refused:
    """A greater fence than the caller's has asked for the claim: the caller was overtaken."""


ClaimAnswer: TypeAlias = Claimed | Succeeded | Held | Refused


class EffectStore(Protocol):
    """Where claims are kept.

    Each method is one atomic step, for any number of callers in any number of processes. All may be repeated: the second call
    with the same claim answers as the first one did. They raise ``StoreUnavailable`` when the outcome is not known. All calls
    come from one event loop, which is not that of the job's code.
    """

    async def claim(self, claim: Claim, *, lease: timedelta) -> ClaimAnswer:
        """Try to get a claim, with a lease that ends so long from now."""

    async def renew(self, claim: Claim, *, lease: timedelta) -> bool:
        """Let the lease end so long from now. False when the caller no longer holds the claim."""

    async def complete(self, claim: Claim, outcome: Outcome) -> bool:
        """Record that the effect is done. False, and no change, when the caller no longer holds the claim.

        A lease that has ended does not matter as long as nobody has taken the claim over.
        """

    async def release(self, claim: Claim) -> bool:
        """Give a claim back after a failure. False, and no change, when the caller no longer holds it."""

    async def close(self) -> None:
        """Let go of connections."""


class StoreUnavailable(Exception):
    """The effect store does not answer, and so it is not known whether the step was made."""
