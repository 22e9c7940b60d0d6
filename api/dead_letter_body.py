"""The body of a bulk redrive, and the answers about dead letters. Pure."""

from datetime import datetime
from typing import Final

from pydantic import BaseModel, Field, JsonValue

from activities.bulk_control import BulkStatus
from activities.queries import RecordedRun
from api.answer import RunAnswer, describe_run
from api.body import Body, Integer, read_body
from api.problem import FieldError, InvalidRequest
from api.strict_json import require_fit
from workflows.dead_letter import BulkProgress, BulkRequest, DeadLetterFilter
from workflows.schedule_parser import parse_moment

LIMIT: Final = 100_000
"""Redrives that one request may ask for. Without a limit of its own, a request means a thousand."""

FASTEST: Final = 6_000
"""Redrives a minute. What a job does of them is bounded by its own ``catch_up_rate`` too."""


class BulkRedriveBody(Body):
    """Which dead letters are to be redriven, and how fast. Those that have been redriven are passed over."""

    every: bool = Field(default=False, alias="all", description="Instead of a filter: every dead letter that there is.")
    job: str | None = Field(default=None, min_length=1, description="Only of this job.")
    reason: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Only with a reason that begins so, such as retry_budget_exhausted.",
    )
    from_: str | None = Field(default=None, alias="from", description="When the run ended, inclusive.")
    to: str | None = Field(
        default=None, description="When the run ended, inclusive. Runs that end after the request are never meant."
    )
    labels: dict[str, str] = Field(default={}, max_length=32, description="Only of jobs that have all of these now.")
    rate_per_minute: float = Field(default=60, ge=1, le=FASTEST, description="Redrives begun a minute, at most.")
    limit: Integer = Field(default=1_000, ge=1, le=LIMIT, description="Redrives in all, the oldest letters first.")


class DeadLetterAnswer(RunAnswer):
    """A run that is dead, with all that is known of its end."""

    checkpoint: JsonValue = Field(description="What its last attempt saved; given to the first attempt of a redrive.")


class BulkRedriveAnswer(BaseModel):
    """How far a bulk redrive is."""

    redrive_id: str
    status: BulkStatus = Field(description="stopped: somebody ended its workflow in Temporal.")
    redriven: int
    failed: int = Field(description="Letters that cannot be redriven.")
    deferred: int = Field(description="Letters of busy jobs that were left for the next round.")
    last_error: str | None = Field(description="Why the last of those that failed cannot be redriven.")
    trouble: str | None = Field(description="What it waits for, such as a database that is down.")


def read_bulk_request(value: JsonValue, *, tenant: str, now: datetime) -> BulkRequest:
    """Read the body of a bulk redrive.

    Raises:
        InvalidRequest: the body is wrong.
        InvalidSchedule: one of its times is.
    """
    body = read_body(BulkRedriveBody, require_fit(value))
    _require_filter_or_all(body)
    end = now if body.to is None else min(now, parse_moment(body.to, timezone="UTC", pointer="/to"))
    chosen = DeadLetterFilter(
        job_id=body.job,
        reason=body.reason,
        start=None if body.from_ is None else parse_moment(body.from_, timezone="UTC", pointer="/from"),
        end=end,
        labels=body.labels,
    )
    return BulkRequest(
        tenant=tenant, chosen=chosen, rate_per_minute=body.rate_per_minute, limit=body.limit, requested_at=now
    )


def _require_filter_or_all(body: BulkRedriveBody) -> None:
    """Refuse what may be a filter that was forgotten: nobody redrives everything by mistake."""
    has_filter = body.labels or any(each is not None for each in (body.job, body.reason, body.from_, body.to))
    if body.every and has_filter:
        raise InvalidRequest(FieldError(pointer="/all", detail="give a filter or all, not both"))
    if not body.every and not has_filter:
        detail = "give a filter (job, reason, from, to or labels), or all: true for every dead letter"
        raise InvalidRequest(FieldError(pointer="", detail=detail))


def describe_dead_letter(found: RecordedRun, *, temporal_url: str | None) -> DeadLetterAnswer:
    """Say a dead letter."""
    record = found.record
    answer = describe_run(record.run, job_id=record.job_id, temporal_url=temporal_url, attempts=found.attempts)
    return DeadLetterAnswer(**dict(answer), checkpoint=record.run.checkpoint)


def describe_progress(progress: BulkProgress, *, redrive_id: str, status: BulkStatus) -> BulkRedriveAnswer:
    """Say how far a bulk redrive is."""
    return BulkRedriveAnswer(
        redrive_id=redrive_id,
        status=status,
        redriven=progress.redriven,
        failed=progress.failed,
        deferred=progress.deferred,
        last_error=progress.last_error,
        trouble=progress.trouble,
    )
