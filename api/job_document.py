"""The body that a job could have been written with: what a patch is applied to, and what is exported. Pure.

Read again, it gives the very definition that it was made of. What is the default is left out where it follows another field: the
heartbeat timeout the timeout, the downstream the host of a URL. So whoever changes the one changes the other.
"""

from datetime import timedelta
from typing import Final

from pydantic import BaseModel, Field, JsonValue, TypeAdapter

from api.alert_body import describe_alerts
from api.answer import spell_rule
from api.job_body import DEFAULT_HEARTBEAT, JobBody
from api.merge_patch import merge_patch
from api.problem import FieldError, InvalidRequest
from workflows.job import JobDefinition, JobRecord, Lifecycle
from workflows.schedule import Schedule
from workflows.target import Target, natural_downstream

_JSON: Final[TypeAdapter[JsonValue]] = TypeAdapter(JsonValue)

_SAME: Final = {"max_retries": "max_attempts", "max_attempts": "max_retries"}
"""Two names for one thing: who gives one means it in the place of the other."""

_RULES: Final = ("cron", "every", "at", "rrule")
"""The members of a schedule of which it has exactly one."""

JsonObject = dict[str, JsonValue]


class ExportedJob(BaseModel):
    """A job as a body that makes it what it is."""

    job_id: str
    revision: int = Field(description="For If-Match.")
    state: Lifecycle
    body: JsonValue = Field(description="As PUT takes it. What is the default may be left out.")


def export_job(record: JobRecord) -> ExportedJob:
    """Write a job as a body, with what a change of it must know."""
    enabled = record.lifecycle is not Lifecycle.PAUSED
    body = job_document(record.definition, job_id=record.job_id, enabled=enabled)
    return ExportedJob(job_id=record.job_id, revision=record.revision, state=record.lifecycle, body=body)


def job_document(definition: JobDefinition, *, job_id: str, enabled: bool) -> JsonObject:
    """Write a job as a body."""
    retry = definition.retry
    fields: JsonObject = {
        "job_id": job_id,
        "name": definition.name,
        "description": definition.description,
        "owner": definition.owner,
        "labels": dict(definition.labels),
        "enabled": enabled,
        **_schedule_fields(definition.schedule),
        "target": _target_document(definition.target),
        "idempotency_key_template": definition.idempotency_key_template,
        "missed_window": definition.missed_window.value,
        "max_missed": definition.max_missed,
        "catch_up_rate": definition.catch_up_rate,
        "max_delay_seconds": _seconds(definition.max_delay),
        "misfire_grace_seconds": _seconds(definition.misfire_grace),
        "lookback_seconds": _seconds(definition.lookback),
        "overlap": definition.overlap.value,
        "max_concurrent": definition.max_concurrent,
        "max_buffered": definition.max_buffered,
        "timeout_seconds": _seconds(definition.timeout),
        "queue_timeout_seconds": _seconds(definition.queue_timeout),
        "max_attempts": retry.max_attempts,
        "retry_backoff": {
            "kind": retry.backoff.value,
            "base_seconds": _seconds(retry.base),
            "cap_seconds": _seconds(retry.cap),
        },
        "retry_on": list(retry.retry_on),
        "no_retry_on": list(retry.no_retry_on),
        "deadline_seconds": _seconds(definition.deadline),
        "downstream": _downstream(definition),
        "isolation": definition.isolation.value,
        "alerts": _alerts_document(definition),
    }
    given = {name: value for name, value in fields.items() if value not in (None, "", [], {})}
    return {**given, **_heartbeat(definition), "payload": definition.payload}


def patched_document(document: JsonObject, patch: JsonObject) -> JsonObject:
    """Apply a merge patch to a body.

    A target of another kind replaces the whole target. Where ``null`` has a meaning of its own in a body, it keeps it.
    Raises ``InvalidRequest`` for a schedule that would have two rules.
    """
    base = {name: value for name, value in document.items() if _SAME.get(name) not in patch or name in patch}
    if _changes_kind(base.get("target"), patch.get("target")):
        del base["target"]
    merged = merge_patch(base, patch)
    assert isinstance(merged, dict)
    _refuse_two_rules(base.get("schedule"), merged.get("schedule"))
    kept: JsonObject = {name: None for name in JobBody.keeps_null if name in patch and patch[name] is None}
    return {**merged, **kept}


def _changes_kind(target: JsonValue, patch: JsonValue) -> bool:
    if not isinstance(target, dict) or not isinstance(patch, dict) or "kind" not in patch:
        return False
    return str(patch["kind"]).lower() != target.get("kind")


def _refuse_two_rules(old: JsonValue, merged: JsonValue) -> None:
    """Say where the second rule comes from, which the caller did not write."""
    if not isinstance(old, dict) or not isinstance(merged, dict) or sum(name in merged for name in _RULES) < 2:
        return
    had = next(name for name in _RULES if name in old)
    reason = (
        f"a schedule is exactly one of {', '.join(_RULES[:-1])} and {_RULES[-1]}; the patch is merged with the job's"
    )
    raise InvalidRequest(
        FieldError(pointer="/schedule", detail=f'{reason}, which has {had}: give "{had}": null as well')
    )


def _schedule_fields(schedule: Schedule) -> JsonObject:
    exclude, rule = schedule.exclude, schedule.business_days
    excluded: JsonObject = {
        "dates": [day.isoformat() for day in exclude.dates],
        "calendars": list(exclude.calendars),
        "cron": list(exclude.cron),
    }
    return {
        "schedule": spell_rule(schedule.rule),
        "timezone": schedule.timezone,
        "dst": _as_json(schedule.dst.model_dump(mode="json", exclude_none=True)),
        "exclude": {name: listed for name, listed in excluded.items() if listed},
        "only": {"calendars": list(schedule.only.calendars)} if schedule.only.calendars else None,
        "business_days": None if rule is None else _as_json(rule.model_dump(mode="json", exclude_none=True)),
        "start_at": schedule.start_at.isoformat() if schedule.start_at else None,
        "end_at": schedule.end_at.isoformat() if schedule.end_at else None,
        "max_runs": schedule.max_runs,
        "jitter_window_seconds": schedule.jitter_window_seconds,
        "time_critical": schedule.time_critical,
    }


def _target_document(target: Target) -> JsonValue:
    return _as_json(target.model_dump(mode="json", exclude_none=True))


def _alerts_document(definition: JobDefinition) -> JsonValue:
    alerts = describe_alerts(definition.alerts)
    return None if alerts is None else _as_json(alerts.model_dump(mode="json", exclude_none=True))


def _heartbeat(definition: JobDefinition) -> JsonObject:
    usual = min(timedelta(seconds=DEFAULT_HEARTBEAT), definition.timeout)
    if definition.heartbeat_timeout == usual:
        return {}
    return {"heartbeat_timeout_seconds": _seconds(definition.heartbeat_timeout)}


def _downstream(definition: JobDefinition) -> str:
    return "" if definition.downstream == natural_downstream(definition.target) else definition.downstream


def _seconds(span: timedelta | None) -> JsonValue:
    if span is None:
        return None
    seconds = span.total_seconds()
    return int(seconds) if seconds.is_integer() else seconds


def _as_json(value: object) -> JsonValue:
    return _JSON.validate_python(value)
