"""What a job's code is told about its run.

This is the wire format between the scheduler and job code in any language: plain JSON, new fields have defaults, none
is ever renamed or reused.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic

from pydantic import ConfigDict
from typing_extensions import TypeVar

Payload = TypeVar("Payload", default=Any)
"""``JobRun`` alone leaves the payload as plain JSON."""


class RunKind(StrEnum):
    """Why a run exists."""

    SCHEDULED = "scheduled"
    """The job's schedule fired."""

    CATCH_UP = "catch_up"
    """A fire was missed, and the job's policy says that it runs all the same."""

    MANUAL = "manual"
    """Somebody asked for it."""

    BACKFILL = "backfill"
    """Somebody asked for all fires of a range of time."""

    REDRIVE = "redrive"
    """A dead run is run again."""


@dataclass(frozen=True, kw_only=True)
class JobRun(Generic[Payload]):
    """One attempt of one run, as the job's code sees it."""

    __pydantic_config__ = ConfigDict(use_attribute_docstrings=True)

    tenant: str
    job_id: str
    run_id: str
    """The same for every attempt."""

    kind: RunKind
    scheduled_at: datetime
    """The nominal time, in UTC; for manual runs the time of the request."""

    target_at: datetime
    """Nominal time plus jitter."""

    attempt: int
    """Counted from 1. An attempt that found no worker knowing its activity does not count."""

    max_attempts: int
    """When this is the last one, a failure is final."""

    idempotency_key: str
    """The same for every attempt and for a redrive. Give it to whatever you call."""

    fence: int
    """Greater than that of every earlier attempt of this job. A store that has seen a greater one refuses this one."""

    stands_for: int = 1
    """How many fires this run answers for: more than one when it catches up."""

    payload: Payload
    """What the job was registered with."""

    checkpoint: Any = None
    """What the last attempt saved with ``checkpoint(value)``; ``None`` in the first."""
