"""What workflows and the process that watches a downstream say to each other, as values."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum

from workflows.breaker import BreakerPolicy, OpenBreaker
from workflows.value import Value

NEVER = datetime(1970, 1, 1, tzinfo=UTC)


class AdmissionRequest(Value):
    """An attempt is about to be made."""

    tenant: str = ""
    downstream: str = ""
    """Empty for a job that names none."""

    run_id: str = ""
    is_first: bool = True
    """No attempt of the run was made before."""

    is_catch_up: bool = False
    """It starts a run of the catch-up lane."""

    was_parked: bool = False
    lasts: timedelta = timedelta(minutes=5)
    """How long the attempt can take at most, for a probe that is never heard of again."""

    waits: timedelta = timedelta(days=1)
    """How long it can wait for a worker at most."""

    now: datetime = NEVER
    """By the workflow that asks."""


class Admission(Value):
    """Whether it may be."""

    admitted: bool = True
    is_probe: bool = False
    """It is the one attempt that tries an open downstream; its end must be reported."""

    parked_until: datetime = NEVER
    reason: str = ""


class AttemptNotice(Value):
    """An admitted attempt has ended."""

    tenant: str = ""
    downstream: str = ""
    run_id: str = ""
    is_probe: bool = False
    ok: bool = True
    """The downstream did its part: a success, or an error that is none of its own."""

    is_void: bool = False
    """Nothing was learned of the downstream: the attempt was cancelled, lost with its worker, or never begun."""

    wants_retry: bool = False
    """The attempt failed by the downstream's fault, and may be made again."""

    is_last: bool = False
    """The run has no attempt left, unless this one does not count."""

    admitted_at: datetime = NEVER
    """``now`` of the request by which the attempt was let through."""

    now: datetime = NEVER
    """By the workflow that tells it."""


class VerdictKind(StrEnum):
    """What may follow a failed attempt."""

    RETRY = "retry"
    PARK = "park"
    """The breaker is open, or has been since the attempt began. The attempt is not counted."""

    EXHAUSTED = "exhausted"
    """The retry budget is used up while the breaker is closed: the run is dead at once, and may be redriven."""


class Verdict(Value):
    """What may follow."""

    kind: VerdictKind = VerdictKind.RETRY
    parked_until: datetime = NEVER


class DownstreamInput(Value):
    """Input of ``DownstreamWorkflow``."""

    tenant: str = ""
    downstream: str = ""
    policy: BreakerPolicy = BreakerPolicy()
    breaker: OpenBreaker | None = None
    """Set at continue-as-new."""


class ProbeRequest(Value):
    """Argument of ``UPDATE_ASK_PROBE``, answered by a ``ProbeAnswer``."""

    run_id: str = ""
    lasts: timedelta = timedelta(minutes=5)


class ProbeReport(Value):
    """Argument of ``UPDATE_END_PROBE``, answered by a ``ProbeAnswer``."""

    run_id: str = ""
    ok: bool = True
    is_void: bool = False
    """It has told nothing of the downstream; ``ok`` means nothing."""
