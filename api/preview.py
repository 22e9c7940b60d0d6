"""What a schedule would do, without a job: the same function behind ``POST /preview`` and ``horarium preview``.

Pure but for the time that it takes: a caller on an event loop runs a batch in a thread.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from pydantic import BaseModel, Field, JsonValue

from api.answer import FireAnswer
from api.body import Body, Integer, read_body
from api.calendar_body import CalendarBody, read_inline_calendars
from api.field import IdentifierOrNothing
from api.problem import FieldError, InvalidRequest, NeverFires, Problem, problem_of
from api.strict_json import require_fit
from workflows.error import HorariumError, InvalidSchedule
from workflows.fire_exclusion import excludes_anything
from workflows.fire_times import fires_between, next_fires
from workflows.schedule import Exclusions, Fire, OnlyOn, Roll, Schedule
from workflows.schedule_description import describe_schedule
from workflows.schedule_input import ScheduleInput
from workflows.schedule_parser import (
    NO_CALENDARS,
    Calendars,
    ParsedSchedule,
    check_fires,
    parse_moment,
    parse_schedule,
)

COUNT_LIMIT: Final = 1_000
BATCH_LIMIT: Final = 1_000
"""Bodies in one request; ``horarium preview --batch`` takes any number."""

BATCH_COUNT_LIMIT: Final = 50_000
"""Fires that one request may ask for in all: a few seconds of computing."""

_BEGINNING: Final = datetime(1, 1, 1, tzinfo=UTC)


class PreviewBody(Body, ScheduleInput):
    """A schedule, and which of its fires to show."""

    job_id: IdentifierOrNothing = Field(
        default="",
        description="Decides the jitter, and what H means. Without it there is none.",
    )
    calendars: dict[str, CalendarBody] = Field(
        default={}, max_length=20, description="Calendars that are tried out: they go before those that are kept."
    )
    after: str | None = Field(default=None, description="Show fires strictly after this time; by default now.")
    count: Integer = Field(default=10, ge=0, le=COUNT_LIMIT)


class RemovedFire(BaseModel):
    """A time that the rule names and at which nothing fires."""

    nominal: datetime
    local: str = Field(description="The same on the clock of the schedule's zone.")
    reason: str


class PreviewAnswer(BaseModel):
    """The next fires of a schedule; fewer than asked for when it ends before."""

    fires: list[FireAnswer]
    removed: list[RemovedFire] = Field(
        description="Times among these fires that are excluded, or have moved to a business day; the first thousand."
    )
    description: str
    warnings: list[str]


def preview(value: JsonValue, *, now: datetime, calendars: Calendars = NO_CALENDARS) -> PreviewAnswer:
    """Answer one body. ``calendars`` are those that are kept and that it names.

    Raises:
        InvalidRequest: the body is wrong.
        InvalidSchedule: the schedule is; ``NeverFires`` where it can be read.
    """
    body = read_body(PreviewBody, require_fit(value))
    given = value.get("calendars") if isinstance(value, dict) else None
    known = {**calendars, **read_inline_calendars(given, now=now)}
    parsed = parse_schedule(body, job_id=body.job_id, calendars=known)
    schedule = parsed.schedule
    after = now if body.after is None else parse_moment(body.after, timezone=schedule.timezone, pointer="/after")
    count = body.count if schedule.max_runs is None else min(body.count, schedule.max_runs)
    fires = list_fires(schedule, job_id=body.job_id, after=after, count=count)
    if not fires:
        _require_any(parsed, job_id=body.job_id)
    return PreviewAnswer(
        fires=fires,
        removed=list_removed(schedule, job_id=body.job_id, after=after, fires=fires),
        description=describe_schedule(schedule, job_id=body.job_id),
        warnings=list(parsed.warnings),
    )


def _require_any(parsed: ParsedSchedule, *, job_id: str) -> None:
    """No fire after some moment is an answer; none ever is a mistake."""
    try:
        check_fires(parsed, job_id=job_id, after=_BEGINNING)
    except InvalidSchedule as error:
        raise NeverFires(error.reason, pointer=error.pointer, position=error.position) from error


def preview_each(
    values: Iterable[JsonValue], *, now: datetime, calendars: Calendars = NO_CALENDARS
) -> Iterator[PreviewAnswer | Problem]:
    """Answer many bodies, with a problem in the place of each that is wrong."""
    for value in values:
        try:
            yield preview(value, now=now, calendars=calendars)
        except HorariumError as error:
            yield problem_of(error)


def dump_answers(answers: Iterable[BaseModel]) -> str:
    """Write answers as a JSON list."""
    return f"[{','.join(answer.model_dump_json(exclude_none=isinstance(answer, Problem)) for answer in answers)}]"


def check_batch(values: list[JsonValue]) -> None:
    """Refuse a batch that asks for more than one request should.

    Raises:
        InvalidRequest: it does.
    """
    if len(values) > BATCH_LIMIT:
        raise InvalidRequest(
            FieldError(pointer="", detail=f"a list may have {BATCH_LIMIT} bodies; this has {len(values)}")
        )
    if sum(map(_asked_count, values)) > BATCH_COUNT_LIMIT:
        raise InvalidRequest(FieldError(pointer="", detail=f"a list may ask for {BATCH_COUNT_LIMIT} fires in all"))


def _asked_count(value: JsonValue) -> int:
    count = value.get("count") if isinstance(value, dict) else None
    return int(count) if isinstance(count, int | float) and 0 <= count <= COUNT_LIMIT else 10


def list_fires(schedule: Schedule, *, job_id: str, after: datetime, count: int) -> list[FireAnswer]:
    """List the next fires as callers see them, also on the clock of their zone."""
    fires = next_fires(schedule, job_id=job_id, after=after, count=count)
    return [FireAnswer.of(fire, timezone=schedule.timezone) for fire in fires]


def list_removed(schedule: Schedule, *, job_id: str, after: datetime, fires: Sequence[FireAnswer]) -> list[RemovedFire]:
    """List what exclusions and business days take from a schedule, as far as its listed fires reach."""
    rolls = schedule.business_days is not None and schedule.business_days.roll is not Roll.SKIP
    if not (fires and (rolls or excludes_anything(schedule))):
        return []
    until = fires[-1].nominal
    told = fires_between(schedule, after, until, job_id=job_id, limit=COUNT_LIMIT + len(fires))
    removed = {fire.nominal: fire.excluded_by for fire in told if fire.excluded_by is not None}
    if rolls:
        unmoved = schedule.model_copy(update={"business_days": None, "exclude": Exclusions(), "only": OnlyOn()})
        stay = {fire.nominal for fire in told}
        named = fires_between(unmoved, after, until, job_id=job_id, limit=COUNT_LIMIT + len(fires))
        removed |= {fire.nominal: _moved(schedule) for fire in named if fire.nominal not in stay}
    return [_describe_removed(nominal, removed[nominal], schedule) for nominal in sorted(removed)[:COUNT_LIMIT]]


def _moved(schedule: Schedule) -> str:
    assert schedule.business_days is not None
    return f"no business day: moves to the {schedule.business_days.roll} one"


def _describe_removed(nominal: datetime, reason: str, schedule: Schedule) -> RemovedFire:
    local = FireAnswer.of(Fire(nominal=nominal, target=nominal), timezone=schedule.timezone).local
    return RemovedFire(nominal=nominal, local=local, reason=reason)
