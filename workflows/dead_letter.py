"""Dead letters: which are meant, and how far a bulk redrive of them is.

Pure. A bulk redrive goes through the letters in rounds, the oldest first. Letters of jobs that have as many redrives before
them as they take are left for the next round; a round that leaves none is the last.
"""

from datetime import UTC, datetime

from workflows.value import Value


class DeadLetterFilter(Value):
    """Which dead letters are meant. All conditions hold together."""

    job_id: str | None = None
    reason: str | None = None
    """The reason begins with this, such as ``retry_budget_exhausted``; upper and lower case differ."""

    start: datetime | None = None
    """When the run ended, inclusive."""

    end: datetime | None = None
    """When the run ended, inclusive."""

    labels: dict[str, str] = {}
    """That the job has now."""

    redriven: bool | None = False
    """Whether it has been redriven; ``None``: either."""


class LetterPlace(Value):
    """Where a dead letter stands among the others."""

    finished_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    run_id: str = ""


class BulkProgress(Value):
    """How far a bulk redrive is."""

    redriven: int = 0
    failed: int = 0
    """Letters that cannot be redriven, in this round; ``last_error`` says why of the last of them."""

    deferred: int = 0
    """Letters of busy jobs, left for the next round."""

    place: LetterPlace | None = None
    """The last letter looked at in this round."""

    rounds: int = 0
    """Rounds that have ended."""

    last_error: str | None = None
    next_at: datetime | None = None
    """No redrive begins sooner: the rate."""

    trouble: str | None = None
    """What keeps it from going on for the moment, such as a database that is down."""

    is_done: bool = False


class BulkRequest(Value):
    """What a bulk redrive is asked for."""

    tenant: str = ""
    chosen: DeadLetterFilter = DeadLetterFilter()
    """``end`` is at most the time of the request: what dies again is not redriven again."""

    rate_per_minute: float = 60
    """Redrives begun, at most."""

    limit: int = 1_000
    """Redrives, in all."""

    requested_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    progress: BulkProgress = BulkProgress()


def end_round(progress: BulkProgress) -> BulkProgress:
    """Close a round: begin another one where letters were deferred."""
    if not progress.deferred:
        return progress.model_copy(update={"is_done": True, "rounds": progress.rounds + 1})
    begun_again = {"rounds": progress.rounds + 1, "place": None, "deferred": 0, "failed": 0}
    return progress.model_copy(update=begun_again)


def note_redriven(progress: BulkProgress, *, limit: int) -> BulkProgress:
    """Count a letter that was redriven."""
    redriven = progress.redriven + 1
    return progress.model_copy(update={"redriven": redriven, "is_done": redriven >= limit})
