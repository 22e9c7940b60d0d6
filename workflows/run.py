"""Runs and attempts, as values.

A run is one intended execution of a job; an attempt is one try of a run. Owns their states and identities inside a job;
ids as text are built in ``contracts``.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import JsonValue

from workflows.value import Value


class RunKind(StrEnum):
    """Why a run exists."""

    SCHEDULED = "scheduled"
    """A live fire."""

    CATCH_UP = "catch_up"
    """Stands for one or more fires that were seen too late."""

    MANUAL = "manual"
    """Somebody triggered it."""

    BACKFILL = "backfill"
    """Asked for, for a nominal time of the past."""

    REDRIVE = "redrive"
    """A dead run, run again under its own idempotency key."""


class RunStatus(StrEnum):
    """Where a run stands. Written by the workflow that owns the run."""

    PENDING = "pending"
    """Decided, and no attempt has been seen to start: buffered, in the catch-up lane, or waiting for a worker."""

    RUNNING = "running"
    """An attempt is out and has not answered."""

    RETRYING = "retrying"
    """The last attempt failed and another one will follow at ``next_attempt_at``."""

    PARKED = "parked"
    """Held without using up an attempt, ``reason`` says by what. Leaves to RUNNING when it is tried again."""

    SUCCESS = "success"
    """An attempt succeeded. Final."""

    DEAD = "dead"
    """Attempts, deadline or budget are exhausted, or the error says never to retry. Final until redriven."""

    CANCELLED = "cancelled"
    """Stopped on request, by an overlap policy, or together with its job. Final."""


FINAL_STATUSES = frozenset({RunStatus.SUCCESS, RunStatus.DEAD, RunStatus.CANCELLED})


class AttemptStatus(StrEnum):
    """How one try ended."""

    RUNNING = "running"
    SUCCESS = "success"

    FAILED = "failed"
    """The job's code, or the worker, answered with an error."""

    TIMED_OUT = "timed_out"
    """No answer within ``timeout_seconds``, or no worker took it within ``queue_timeout_seconds``."""

    LOST = "lost"
    """No heartbeat within ``heartbeat_timeout_seconds``: the worker died, hung or was cut off."""

    CANCELLED = "cancelled"


class Outcome(StrEnum):
    """What became of one nominal fire time. Every one ends with exactly one of these."""

    PENDING = "pending"
    """A run exists for it that no worker has begun, or the time has not come."""

    RAN = "ran"
    """Its run was begun; how that ended is the run's status."""

    SKIPPED = "skipped"
    """The overlap policy let it pass; ``run_id`` says for which run."""

    MISSED = "missed"
    """Seen too late, and the catch-up policy runs nothing for it."""

    COALESCED = "coalesced"
    """``run_id`` stands for it."""

    PAUSED = "paused"
    """The job was paused."""

    HELD = "held"
    """A label of the job was held."""

    EXCLUDED = "excluded"
    """An exclusion or calendar names it; ``reason`` says which."""

    DROPPED = "dropped"
    """A bound was reached: ``max_missed`` or the buffer's size."""

    CONSUMED = "consumed"
    """Used up by a trigger with ``skip_next``."""

    THROTTLED = "throttled"
    """Over the tenant's quota. Kept for later: nothing ends so at present."""

    FAILED_TO_START = "failed_to_start"
    """Temporal refused to start its run, or no worker took it before its time was over."""

    CANCELLED = "cancelled"
    """Its run, or the job, was cancelled before a worker began."""


class Failure(Value):
    """Why an attempt did not succeed."""

    type: str = ""
    """The error's class name in the job's language, or one of ``timeout``, ``lost``, ``not_started``, ``cancelled``."""

    message: str = ""
    """At most ``MESSAGE_LIMIT`` characters."""

    types: tuple[str, ...] = ()
    """Qualified names of the error's class and its base classes, where the worker tells them."""

    http_status: int | None = None
    """Of the answer that the attempt failed with, if it was one."""

    retryable: bool = True

    retry_after: timedelta | None = None
    """The error asks for the next attempt no sooner than this."""


class PayloadOverride(Value):
    """What one run is given instead of its job's payload."""

    payload: JsonValue = None


MESSAGE_LIMIT = 2_000
"""Longer error messages are cut: they live in the job's state, in a SQL row and in a web page."""


class Attempt(Value):
    """One try of a run."""

    run_id: str = ""
    scheduled_at: datetime
    """The run's, so that the row falls into the run's partition."""

    number: int = 1
    """Counted from 1."""

    status: AttemptStatus = AttemptStatus.RUNNING
    fence: int = 0
    dispatched_at: datetime
    """When the workflow handed it to the task queue."""

    started_at: datetime | None = None
    """When the job's code began, by the worker's clock, within dispatch and end; ``None`` when no worker said."""

    finished_at: datetime | None = None
    worker: str | None = None
    """Identity of the worker that had it."""

    failure: Failure | None = None


class Run(Value):
    """One intended execution. Held by its workflow while it is not final, and written to the mirror at each change."""

    run_id: str = ""
    kind: RunKind = RunKind.SCHEDULED
    scheduled_at: datetime
    """The nominal time; for manual runs the time of the request."""

    target_at: datetime
    created_at: datetime
    """When it was decided."""

    status: RunStatus = RunStatus.PENDING
    outcome: Outcome = Outcome.PENDING
    reason: str | None = None
    """Why it is pending, parked or cancelled, for people."""

    stands_for: int = 1
    """How many fires it answers for, itself included."""

    revision: int = 1
    """Of the definition under which it was decided."""

    attempt: int = 0
    """Number of the last attempt dispatched; 0 before the first."""

    max_attempts: int = 1
    excused: int = 0
    """Attempts that failed while the downstream's breaker was open; they do not count."""

    fence: int = 0
    """Of the last attempt dispatched."""

    idempotency_key: str = ""
    override: PayloadOverride | None = None
    """Only of a manual run that was given a payload of its own, and of its redrives."""

    superseded: bool = False
    """Belongs to an earlier registration of the job id; it ends by itself and is in nobody's way."""

    detached: bool = False
    """Carried out by a workflow of its own, which then writes its rows."""

    backfill_id: str | None = None
    """Of kind BACKFILL: the backfill that it belongs to. Its redrives are not part of that."""

    redrive_of: str | None = None
    """Of kind REDRIVE: the dead run that it repeats, by id."""

    redriven_by: str | None = None
    """Only of a dead run: the run that repeats it, by id. Set when that is taken on."""

    dispatched_at: datetime | None = None
    """When the current attempt was handed to the task queue."""

    started_at: datetime | None = None
    """When the first attempt began."""

    finished_at: datetime | None = None
    next_attempt_at: datetime | None = None
    """Set while retrying or parked."""

    parkings: int = 0
    """Consecutive times that it was parked; sets how long the next parking lasts."""

    checkpoint: JsonValue = None
    """What the last attempt saved, given to the next one."""

    worker: str | None = None
    failure: Failure | None = None
    """Of the last attempt, if that failed."""

    result: JsonValue = None
    """What the job returned; see ``RESULT_LIMIT``."""

    workflow_id: str = ""
    workflow_run_id: str = ""
    """The Temporal run in whose history it is found."""


RESULT_LIMIT = 16_384
"""Bytes of JSON of a result that are kept in SQL. Longer ones stay in the Temporal history only, and the row says so."""
