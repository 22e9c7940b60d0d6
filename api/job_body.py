"""The body of a job as callers write it, and the definition that it stands for.

Owns the flat names of the HTTP contract, their bounds and the rules between them. Every number has both bounds: what is
accepted here is kept in the state of a workflow. Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, JsonValue

from api.alert_body import AlertsBody, broken_alert_rules, define_alerts
from api.body import Body, Integer, read_body
from api.field import PAYLOAD_LIMIT, Form, Identifier, Name, Text, in_any_case
from api.problem import FieldError, InvalidRequest, field_errors_of
from api.strict_json import compact_size, escape_pointer
from api.target_body import (
    ActivityTargetBody,
    TargetBody,
    WorkflowTargetBody,
    broken_target_rules,
    define_target,
    doubtful_target_settings,
)
from workflows.classification import FailureKind, names_an_error
from workflows.error import InvalidSchedule
from workflows.idempotency_key import DEFAULT_TEMPLATE, InvalidTemplate, check_template, is_constant
from workflows.job import Backoff, CatchUpPolicy, Isolation, JobDefinition, OverlapPolicy, RetryPolicy
from workflows.schedule import IfPast, OneOffRule, Schedule
from workflows.schedule_input import ScheduleInput
from workflows.schedule_parser import NO_CALENDARS, Calendars, ParsedSchedule, parse_schedule
from workflows.target import natural_downstream

LABELS_LIMIT: Final = 32

_MONTH: Final = 30 * 86_400
_TEN_YEARS: Final = 3_650 * 86_400
DEFAULT_HEARTBEAT: Final = 30

LABEL_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}")

OVERLAP_ALIASES: Final = {
    "forbid": OverlapPolicy.SKIP,
    "replace": OverlapPolicy.CANCEL_OTHER,
}
"""What Kubernetes calls the same policies; its ``Allow`` is ours."""

_DOWNSTREAM: Final = Form(
    r"^$|^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$",
    "give 1 to 128 letters (A-Z, a-z), digits, '.', '_', ':' or '-', the first a letter or a digit",
)

Seconds = Annotated[float, Field(ge=1, le=_TEN_YEARS)]


class BackoffBody(Body):
    """How long the wait before a retry is. exponential: drawn from 1 s to 1 s + min(cap, base * 2**n). fixed: always base, or
    1 s where that is less."""

    kind: Annotated[Backoff, in_any_case(Backoff)] = Backoff.EXPONENTIAL
    base_seconds: float = Field(default=1, ge=0.001, le=86_400)
    cap_seconds: float = Field(default=900, ge=0.001, le=7 * 86_400)


def _read_backoff(value: object) -> object:
    if not isinstance(value, str):
        return value
    kind = next((member for member in Backoff if member.value == value.lower()), None)
    if kind is None:
        raise ValueError(f"use one of {', '.join(Backoff)}, or an object with kind, base_seconds and cap_seconds")
    return BackoffBody(kind=kind)


class JobBody(Body, ScheduleInput):
    """A job. Only ``name`` and ``schedule`` are needed."""

    keeps_null = frozenset({"heartbeat_timeout_seconds", "payload"})

    job_id: Identifier | None = Field(
        default=None,
        description="Your own id for the job; upper and lower case differ. Default: one is made.",
    )
    name: Name = Field(description="For people, and without a target the name of the activity.")
    description: str = Field(default="", max_length=2_000)
    owner: Text = Field(default="", description="A team or a person to ask.")
    labels: dict[str, Text] = Field(default={}, max_length=LABELS_LIMIT)
    enabled: bool = Field(
        default=True,
        description="false creates the job paused. Left out of a PUT, a job stays paused or active as it is.",
    )

    if_past: Annotated[IfPast, in_any_case(IfPast)] | None = Field(
        default=None, description="Of a new job that fires once, at a time that has passed. Default: it is refused."
    )

    target: TargetBody = ActivityTargetBody()
    payload: JsonValue = Field(default=None, description=f"Given to each run. At most {PAYLOAD_LIMIT} bytes of JSON.")
    idempotency_key_template: str = Field(
        default=DEFAULT_TEMPLATE, description="Runs with the same key are one intended effect. Times are the zone's."
    )

    missed_window: Annotated[CatchUpPolicy, in_any_case(CatchUpPolicy)] = Field(
        default=CatchUpPolicy.RUN_ONCE, description="What becomes of fires that were seen too late."
    )
    max_missed: Integer = Field(default=100, ge=1, le=1_000, description="RUN_ALL: how many of the newest run.")
    catch_up_rate: Integer = Field(
        default=60, ge=1, le=6_000, description="Catch-up runs and redrives started a minute."
    )
    max_delay_seconds: Seconds | None = Field(default=None, description="DEADLINE: how late a fire may still start.")
    misfire_grace_seconds: Seconds | None = Field(
        default=None,
        description="How late a fire is still live. Default: half the shortest gap, from 60 s to 10 min; 10 min of a one-off. "
        "DEADLINE: max_delay_seconds instead.",
    )
    lookback_seconds: float = Field(default=_MONTH, ge=60, le=_TEN_YEARS, description="Older fires are never run.")

    overlap: Annotated[OverlapPolicy, in_any_case(OverlapPolicy, OVERLAP_ALIASES)] = Field(
        default=OverlapPolicy.SKIP,
        description="What a fire does while a run is active. Kubernetes' Allow, Forbid and Replace are understood.",
    )
    max_concurrent: Integer = Field(default=10, ge=1, le=500, description="allow: active runs at once.")
    max_buffered: Integer = Field(default=100, ge=1, le=1_000, description="buffer_all: fires that wait.")

    timeout_seconds: float = Field(default=300, ge=1, le=_MONTH, description="For one attempt.")
    heartbeat_timeout_seconds: float | None = Field(
        default=DEFAULT_HEARTBEAT,
        ge=1,
        le=_MONTH,
        description="Silence after which a worker counts as lost; null for workers that do not heartbeat.",
    )
    queue_timeout_seconds: float = Field(
        default=86_400, ge=1, le=_MONTH, description="How long a run waits for a worker."
    )
    max_retries: Annotated[Integer, Field(ge=0, le=10_000)] | None = Field(
        default=None, description="Attempts after the first; 3 by default."
    )
    max_attempts: Annotated[Integer, Field(ge=1, le=10_001)] | None = Field(
        default=None, description="Instead of max_retries: the total."
    )
    retry_backoff: Annotated[
        BackoffBody, BeforeValidator(_read_backoff, json_schema_input_type=Backoff | BackoffBody)
    ] = BackoffBody()
    # Not strict, for a JSON array is read as a list.
    retry_on: tuple[Name, ...] = Field(
        default=(),
        strict=False,
        max_length=50,
        description="Only these are retried, and lost workers: timeout, 5xx, 429, 4xx, connect_failure, other, names of errors.",
    )
    no_retry_on: tuple[Name, ...] = Field(default=(), strict=False, max_length=50, description="These are not retried.")
    deadline_seconds: Seconds | None = Field(
        default=None, description="From a run's target: no attempt starts later. Default: attempts alone bound a run."
    )
    downstream: Annotated[str, _DOWNSTREAM] = Field(
        default="",
        description="What the job calls. Jobs that name the same share its circuit breaker and retry budget.",
    )
    isolation: Annotated[Isolation, in_any_case(Isolation)] = Field(
        default=Isolation.AUTO, description="workflow: each run gets a Temporal workflow of its own."
    )
    alerts: AlertsBody | None = Field(default=None, description="Who is told when something goes wrong.")


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """A body that was understood."""

    job_id: str
    definition: JobDefinition
    enabled: bool | None
    """``None``: the body does not say. A new job is enabled then, and one that is there stays as it is."""

    schedule: ParsedSchedule
    if_past: IfPast | None
    warnings: tuple[str, ...]


def read_job(value: JsonValue, *, default_id: str, calendars: Calendars = NO_CALENDARS) -> JobRequest:
    """Read the body of a job; ``default_id`` is its id where the body gives none, ``calendars`` are those that it names.

    Raises:
        InvalidRequest: with every field that is wrong; the rules between fields are looked at when each is right.
    """
    body = read_body(JobBody, value)
    job_id = body.job_id or default_id
    errors = [*_broken_rules(body)]
    try:
        parsed = parse_schedule(body, job_id=job_id, calendars=calendars)
    except InvalidSchedule as error:
        raise InvalidRequest(*errors, *field_errors_of(error)) from error
    if errors:
        raise InvalidRequest(*errors)
    return JobRequest(
        job_id=job_id,
        definition=_define(body, parsed.schedule),
        enabled=body.enabled if "enabled" in body.model_fields_set else None,
        schedule=parsed,
        if_past=body.if_past,
        warnings=(*parsed.warnings, *_needless_settings(body, parsed.schedule)),
    )


def _define(body: JobBody, schedule: Schedule) -> JobDefinition:
    target = define_target(body.target, job_name=body.name)
    return JobDefinition(
        name=body.name,
        description=body.description,
        owner=body.owner,
        labels=body.labels,
        schedule=schedule,
        target=target,
        payload=body.payload,
        idempotency_key_template=body.idempotency_key_template,
        missed_window=body.missed_window,
        max_missed=body.max_missed,
        catch_up_rate=body.catch_up_rate,
        max_delay=_span(body.max_delay_seconds),
        misfire_grace=_span(body.misfire_grace_seconds),
        lookback=timedelta(seconds=body.lookback_seconds),
        overlap=body.overlap,
        max_concurrent=body.max_concurrent,
        max_buffered=body.max_buffered,
        timeout=timedelta(seconds=body.timeout_seconds),
        heartbeat_timeout=_span(_heartbeat_of(body)),
        queue_timeout=timedelta(seconds=body.queue_timeout_seconds),
        retry=_retry_of(body),
        deadline=_span(body.deadline_seconds),
        downstream=body.downstream or natural_downstream(target),
        isolation=body.isolation,
        alerts=define_alerts(body.alerts),
    )


def _retry_of(body: JobBody) -> RetryPolicy:
    total = body.max_attempts or (RetryPolicy().max_attempts if body.max_retries is None else body.max_retries + 1)
    backoff = body.retry_backoff
    return RetryPolicy(
        max_attempts=total,
        backoff=backoff.kind,
        base=timedelta(seconds=backoff.base_seconds),
        cap=timedelta(seconds=backoff.cap_seconds),
        retry_on=body.retry_on,
        no_retry_on=body.no_retry_on,
    )


def _heartbeat_of(body: JobBody) -> float | None:
    """The default is meant for attempts that last longer than it."""
    if body.heartbeat_timeout_seconds is None or "heartbeat_timeout_seconds" in body.model_fields_set:
        return body.heartbeat_timeout_seconds
    return min(body.heartbeat_timeout_seconds, body.timeout_seconds)


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _broken_rules(body: JobBody) -> Iterator[FieldError]:
    """Name what is right alone and wrong together, or too large."""
    if body.max_retries is not None and body.max_attempts is not None:
        yield FieldError(pointer="/max_attempts", detail="give max_retries or max_attempts, not both")
    if body.missed_window is CatchUpPolicy.DEADLINE and body.max_delay_seconds is None:
        yield FieldError(pointer="/max_delay_seconds", detail="required with missed_window DEADLINE")
    heartbeat, is_workflow = _heartbeat_of(body), isinstance(body.target, WorkflowTargetBody)
    if heartbeat is not None and heartbeat > body.timeout_seconds:
        yield FieldError(pointer="/heartbeat_timeout_seconds", detail="longer than timeout_seconds")
    if heartbeat is None and body.overlap is OverlapPolicy.CANCEL_OTHER and not is_workflow:
        reason = "overlap cancel_other needs heartbeats: without them a cancellation never reaches the job's code"
        yield FieldError(pointer="/heartbeat_timeout_seconds", detail=reason)
    if body.retry_backoff.cap_seconds < body.retry_backoff.base_seconds:
        yield FieldError(pointer="/retry_backoff/cap_seconds", detail="less than base_seconds")
    if (size := compact_size(body.payload)) > PAYLOAD_LIMIT:
        yield FieldError(pointer="/payload", detail=f"{size} bytes as JSON; {PAYLOAD_LIMIT} are allowed")
    yield from broken_alert_rules(body.alerts)
    yield from broken_target_rules(body.target, job_name=body.name, pointer="/target")
    for key in body.labels:
        if not LABEL_KEY.fullmatch(key):
            pointer = f"/labels/{escape_pointer(key)}"
            yield FieldError(pointer=pointer, detail=f"a label is named by {LABEL_KEY.pattern}")
    try:
        check_template(body.idempotency_key_template)
    except InvalidTemplate as error:
        yield from field_errors_of(error)


def _needless_settings(body: JobBody, schedule: Schedule) -> Iterator[str]:
    """Warn of settings that are accepted and do nothing, or do more than their author may think."""
    # A patched or exported body spells defaults out, which its author has not thought of.
    fields = JobBody.model_fields
    given = {name for name in body.model_fields_set if getattr(body, name) != fields[name].default}
    if body.if_past is not None and not isinstance(schedule.rule, OneOffRule):
        yield "if_past has an effect only with a schedule that fires once"
    if "max_delay_seconds" in given and body.missed_window is not CatchUpPolicy.DEADLINE:
        yield "max_delay_seconds has an effect only with missed_window DEADLINE"
    if "max_missed" in given and body.missed_window is not CatchUpPolicy.RUN_ALL:
        yield "max_missed has an effect only with missed_window RUN_ALL"
    if "max_concurrent" in given and body.overlap is not OverlapPolicy.ALLOW:
        yield "max_concurrent has an effect only with overlap allow"
    if "max_buffered" in given and body.overlap is not OverlapPolicy.BUFFER_ALL:
        yield "max_buffered has an effect only with overlap buffer_all"
    if isinstance(body.target, WorkflowTargetBody) and "heartbeat_timeout_seconds" in given:
        yield "heartbeat_timeout_seconds has no effect with a workflow target"
    for field, names in (("retry_on", body.retry_on), ("no_retry_on", body.no_retry_on)):
        for name in names:
            if not names_an_error(name):
                kinds = ", ".join(FailureKind)
                yield f"{field}: {name!r} is no kind of failure ({kinds}), and the names of errors are compared by case"
    yield from doubtful_target_settings(body.target, has_payload=body.payload is not None)
    if is_constant(body.idempotency_key_template):
        yield "all runs share one idempotency key: effects guarded by it happen once and never again"
