"""How a downstream stands: as one scheduler process sees it, and as the open breaker, which is one for all, says of itself."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from workflows.breaker import OpenBreaker
from workflows.value import Value


class BreakerState(StrEnum):
    """What becomes of an attempt."""

    CLOSED = "closed"
    """It is made."""

    OPEN = "open"
    """Its run is parked."""

    HALF_OPEN = "half_open"
    """A probe is due or out: one of the runs tries the downstream, the others are parked."""


class GateReport(Value):
    """What one scheduler process knows of a downstream. Its own: other processes have counted others."""

    tenant: str = ""
    downstream: str = ""
    worker: str = ""
    """Identity of the process, as Temporal shows it."""

    seen_at: datetime
    open_until: datetime | None = None
    """``None`` while the breaker is closed, as far as the process knows."""

    consecutive_failures: int = 0
    window: timedelta = timedelta(seconds=60)
    """Of the retry budget: the next three count what was in it."""

    first_attempts: int = 0
    retries: int = 0
    retries_allowed: int = 0
    parked_runs: int = 0
    """That this process has parked, and that have not come back to it."""

    in_flight: int = 0
    """Attempts sent in the last seconds that have not answered."""


class BreakerLook(Value):
    """What an open breaker shows in its memo."""

    opened_at: datetime
    open_until: datetime
    """No probe before."""

    openings: int = 1
    """How often it opened without having been closed."""

    probes_out: int = 0


def breaker_memo(breaker: OpenBreaker) -> dict[str, str]:
    """Write what operators and the API read of an open breaker."""
    return {
        "tenant": breaker.tenant,
        "downstream": breaker.downstream,
        "opened_at": breaker.opened_at.isoformat(),
        "open_until": breaker.open_until.isoformat(),
        "openings": str(breaker.openings),
        "probes_out": str(len(breaker.probes)),
    }


def read_breaker_memo(memo: Mapping[str, str], *, started_at: datetime) -> BreakerLook:
    """Read that; of a breaker that has not shown itself yet, when it began is known."""
    return BreakerLook.model_validate({"opened_at": started_at, "open_until": started_at, **memo})


def state_of(look: BreakerLook | None, *, now: datetime) -> BreakerState:
    """Say what becomes of an attempt; ``look`` is ``None`` where no breaker is open."""
    if look is None:
        return BreakerState.CLOSED
    return BreakerState.OPEN if now < look.open_until and not look.probes_out else BreakerState.HALF_OPEN
