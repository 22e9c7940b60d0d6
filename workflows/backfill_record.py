"""How a backfill stands, as the mirror shows it."""

from datetime import UTC, datetime
from enum import StrEnum

from workflows.value import Value


class ExistingRuns(StrEnum):
    """What becomes of nominal times that have a run already (``existing``)."""

    SKIP = "skip"
    """They are passed over. The others run under the idempotency key of their own fire."""

    RUN_AGAIN = "run_again"
    """They run once more, under an idempotency key of this backfill."""


class BackfillStatus(StrEnum):
    """Where a backfill stands. Written by its workflow."""

    RUNNING = "running"
    """It begins runs, as many at once as it may."""

    PAUSED = "paused"
    """It begins none; those that it has begun go on. Left by a resume."""

    CANCELLING = "cancelling"
    """It begins none any more, and waits for those that it has begun."""

    DONE = "done"
    """Every fire of its range was run or passed over. Final."""

    CANCELLED = "cancelled"
    """Ended before it was done, by request or with its job. Final."""


OPEN_STATUSES = frozenset({BackfillStatus.RUNNING, BackfillStatus.PAUSED, BackfillStatus.CANCELLING})


class BackfillRecord(Value):
    """A backfill: what it was asked for, and how far it is. A record with a lower ``version`` than the row's changes nothing."""

    tenant: str = ""
    job_id: str = ""
    backfill_id: str = ""
    version: int = 0
    status: BackfillStatus = BackfillStatus.RUNNING
    revision: int = 1
    """Of the job's definition when it was asked for, under which all its runs are made."""

    start: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    """First nominal time of the range, inclusive."""

    end: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    """Last nominal time of the range, inclusive."""

    existing: ExistingRuns = ExistingRuns.SKIP
    max_concurrent: int = 1
    rate_per_minute: float | None = None
    """Runs begun, at most; ``None``: as ``max_concurrent`` allows."""

    reason: str = ""
    """Why it was asked for, paused or cancelled, for people; the last that was given."""

    requested_by: str = ""
    requested_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    total: int = 0
    """Fires of the range that nothing excludes."""

    succeeded: int = 0
    dead: int = 0
    cancelled: int = 0
    skipped: int = 0
    """Nominal times that have a run of their own already, or one that is to come."""

    running: tuple[str, ...] = ()
    """Runs that it has begun and that have not ended, by id."""

    through: datetime | None = None
    """The last nominal time that was begun or passed over."""

    trouble: str | None = None
    """What keeps it from going on for the moment."""

    finished_at: datetime | None = None
