"""What a backfill is asked with, and how it is answered. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from api.body import Body, Integer, read_body
from api.field import in_any_case
from api.problem import FieldError, InvalidRequest
from api.steer_body import Reason
from api.strict_json import require_fit
from workflows.backfill_range import FireCount
from workflows.backfill_record import BackfillRecord, BackfillStatus, ExistingRuns
from workflows.schedule_parser import parse_moment

MOST_AT_ONCE: Final = 50
"""Runs of one backfill that are under way at once, at most. A job has twice as many of all its backfills together."""

FASTEST: Final = 6_000
"""Runs a minute."""

SLOWEST: Final = 0.01

STOPPED: Final = "stopped"

BackfillStanding: TypeAlias = BackfillStatus | Literal["stopped"]

_RANGE: Final = "A time without an offset is on the clock of the job's zone."


class BackfillBody(Body):
    """Which fires of the past are to run, and how."""

    from_: str = Field(alias="from", description=f"First nominal time, inclusive. {_RANGE}")
    to: str = Field(description=f"Last nominal time, inclusive; not in the future. {_RANGE}")
    existing: Annotated[ExistingRuns, in_any_case(ExistingRuns)] = Field(
        default=ExistingRuns.SKIP,
        description="skip: times that have a run, dead ones included, are passed over, and the others run under the idempotency "
        "key of their own fire. run_again: all run, under keys of this backfill.",
    )
    max_concurrent: Integer = Field(
        default=1, ge=1, le=MOST_AT_ONCE, description="Runs under way at once; live fires are not counted."
    )
    rate_per_minute: float | None = Field(
        default=None, ge=SLOWEST, le=FASTEST, description="Runs begun a minute, at most. Default: no bound of its own."
    )
    dry_run: bool = Field(default=False, description="Answer how many fires there are, and do nothing.")
    reason: Reason = Field(default="", description="For people.")


class SteerBackfillBody(Body):
    """Why a backfill is paused or resumed. May be left out."""

    reason: Reason = Field(default="", description="For people.")


class CancelBackfillBody(SteerBackfillBody):
    """Why a backfill is cancelled, and what becomes of what it has begun. May be left out."""

    cancel_active: bool = Field(
        default=False, description="Cancel the runs that it has begun, rather than let them end."
    )


class BackfillPreview(BaseModel):
    """What a backfill would do."""

    model_config = ConfigDict(serialize_by_alias=True)

    job_id: str
    revision: int = Field(description="Of the job's definition, which would be that of all the runs.")
    from_: datetime = Field(alias="from")
    to: datetime
    total: int = Field(description="Fires in the range that nothing excludes.")
    excluded: int = Field(description="Further ones that calendars or exclusions remove; these are never backfilled.")
    first: datetime | None = Field(description="Nominal time of the first fire; null where there is none.")
    last: datetime | None
    existing_runs: int = Field(
        description="Nominal times of the range that have a run now: what `existing: skip` passes over."
    )


class BackfillAnswer(BaseModel):
    """A backfill: what it was asked for, and how far it is."""

    model_config = ConfigDict(serialize_by_alias=True)

    backfill_id: str
    job_id: str
    status: BackfillStanding = Field(
        description="cancelling: begins no more, waits for what it has begun. stopped: somebody ended its workflow in Temporal."
    )
    revision: int = Field(
        description="Of the job's definition when it was asked for; all its runs are made under that."
    )
    from_: datetime = Field(alias="from")
    to: datetime
    existing: ExistingRuns
    max_concurrent: int
    rate_per_minute: float | None
    reason: str
    requested_by: str = Field(description="Name or id of the API key.")
    requested_at: datetime
    total: int = Field(description="Fires of the range, those that are passed over included.")
    done: int = Field(description="Of these: run to an end, or passed over.")
    succeeded: int
    dead: int = Field(description="They are among the dead letters, to be redriven.")
    cancelled: int
    skipped: int = Field(description="Passed over, because there is a run of that nominal time.")
    running: list[str] = Field(description="Runs that it has begun and that have not ended, by id.")
    through: datetime | None = Field(description="The last nominal time that it has taken on.")
    trouble: str | None = Field(description="What it waits for, such as a database that is down.")
    finished_at: datetime | None
    temporal_url: str | None = Field(description="Its workflow in Temporal's Web UI; null where that is not known.")


@dataclass(frozen=True, kw_only=True)
class AskedBackfill:
    """A body that was read."""

    start: datetime
    end: datetime
    body: BackfillBody


def read_backfill(value: JsonValue, *, timezone: str, now: datetime) -> AskedBackfill:
    """Read the body of a backfill.

    Raises:
        InvalidRequest: the body is wrong, or its range is.
        InvalidSchedule: one of its times is.
    """
    body = read_body(BackfillBody, require_fit(value))
    start = parse_moment(body.from_, timezone=timezone, pointer="/from")
    end = parse_moment(body.to, timezone=timezone, pointer="/to")
    if start > end:
        raise InvalidRequest(FieldError(pointer="/from", detail="lies after to"))
    if end > now:
        detail = (
            f"lies in the future, which is the schedule's own; give at most {now:%Y-%m-%dT%H:%M:%SZ}, the present time"
        )
        raise InvalidRequest(FieldError(pointer="/to", detail=detail))
    return AskedBackfill(start=start, end=end, body=body)


def require_remembered(asked: AskedBackfill, *, registered_at: datetime, kept: timedelta, now: datetime) -> None:
    """Refuse to pass over the runs of a time whose runs may have been forgotten: they would run again.

    A job has forgotten nothing until it has been registered for as long as runs are ``kept`` after their end.

    Raises ``InvalidRequest``.
    """
    is_known = now - asked.start <= kept or now - registered_at <= kept
    if is_known or asked.body.existing is not ExistingRuns.SKIP:
        return
    detail = (
        f"lies before {now - kept:%Y-%m-%dT%H:%M:%SZ}; runs that ended before that are forgotten (HORARIUM_RUN_RETENTION), and "
        "would not be skipped: give a later time, or existing: run_again, which runs all of them"
    )
    raise InvalidRequest(FieldError(pointer="/from", detail=detail))


def require_few(count: FireCount, *, most: int) -> None:
    """Refuse a backfill of more fires than one may have. Raises ``InvalidRequest``."""
    if count.total <= most and count.is_exact:
        return
    about = "" if count.is_exact else "more than "
    detail = f"{about}{count.total} fires; one backfill has at most {most} (HORARIUM_MAX_BACKFILL_FIRES): ask for shorter ranges"
    raise InvalidRequest(FieldError(pointer="/from", detail=detail))


def read_steering(value: JsonValue) -> str:
    """Read why a backfill is paused or resumed. Raises ``InvalidRequest``."""
    return read_body(SteerBackfillBody, require_fit(value)).reason


def read_cancelling(value: JsonValue) -> CancelBackfillBody:
    """Read how a backfill is cancelled. Raises ``InvalidRequest``."""
    return read_body(CancelBackfillBody, require_fit(value))


def describe_backfill(record: BackfillRecord, *, temporal_url: str | None, is_stopped: bool = False) -> BackfillAnswer:
    """Say how a backfill stands."""
    ended = (record.succeeded, record.dead, record.cancelled, record.skipped)
    return BackfillAnswer.model_validate(
        {
            **record.model_dump(exclude={"start", "end"}),
            "from": record.start,
            "to": record.end,
            "status": STOPPED if is_stopped else record.status,
            "done": sum(ended),
            "running": list(record.running),
            "temporal_url": temporal_url,
        }
    )
