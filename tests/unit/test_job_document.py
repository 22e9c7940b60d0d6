"""A job written as the body that it could have been made of, and what a patch makes of it."""

from typing import Any

import pytest
from pydantic import JsonValue

from api.job_body import read_job
from api.job_document import job_document, patched_document
from api.openapi import CREATE_JOB_BODY
from api.problem import InvalidRequest
from workflows.change import is_same_definition
from workflows.job import JobDefinition
from workflows.target import HttpTarget

WEEKLY: dict[str, JsonValue] = {"name": "report", "schedule": "0 9 * * 1"}

BODIES: list[dict[str, Any]] = [
    {},
    {"schedule": {"every": "PT6H", "anchor": "2026-01-01T01:00:00Z"}, "timezone": "Asia/Kathmandu"},
    {"schedule": "@every 15s", "jitter_window_seconds": 0, "max_runs": 3, "time_critical": True},
    {"schedule": {"at": "2030-01-01T09:00:00"}, "timezone": "Europe/Berlin"},
    {"schedule": "2030-01-01T09:00:00+02:00"},
    {"schedule": {"rrule": "FREQ=MONTHLY;BYDAY=-1FR", "dtstart": "2026-01-01T09:00:00"}, "timezone": "EST5EDT"},
    {"dst": {"gap": "skip", "fold": "both"}, "exclude": {"dates": ["2026-12-25"], "cron": ["* 0-5 * * *"]}},
    {"start_at": "2026-06-01T00:00:00Z", "end_at": "2029-06-01T00:00:00Z"},
    {"payload": {"none": None, "deep": [1, {"a": None}], "flag": True, "zero": 0}, "labels": {"team": "a"}},
    {"missed_window": "DEADLINE", "max_delay_seconds": 90.5, "misfire_grace_seconds": 7},
    {"overlap": "Replace", "max_concurrent": 3, "max_buffered": 7, "lookback_seconds": 60},
    {"timeout_seconds": 10},
    {"timeout_seconds": 10, "heartbeat_timeout_seconds": None},
    {"heartbeat_timeout_seconds": 12.5, "deadline_seconds": 3600, "isolation": "workflow"},
    {"max_retries": 0, "retry_backoff": {"kind": "fixed", "base_seconds": 0.5, "cap_seconds": 60}},
    {"retry_on": ["timeout", "5xx"], "no_retry_on": ["ValueError"], "downstream": "bank-api"},
    {"target": {"kind": "workflow", "workflow": "Closing", "task_queue": "finance", "args": ["payload", "run"]}},
    {
        "target": {
            "kind": "http",
            "method": "PUT",
            "url": "https://bank.example.com/x?y=1",
            "headers": {"Authorization": ["Bearer ", {"$secret": "t"}], "X-A": "b"},
            "body": {"a": None},
            "signature": {"$secret": "k"},
            "success_statuses": [201, 204],
        }
    },
    {"target": {"kind": "http", "url": {"$secret": "hook"}}, "downstream": "hook"},
    {"alerts": {"url": "https://hooks.example.com/a", "on": ["late"], "late_after_seconds": 5, "missed_more_than": 2}},
    {"alerts": {"on": []}},
    *(
        {**example["value"]}
        for example in CREATE_JOB_BODY["requestBody"]["content"]["application/json"]["examples"].values()
    ),
]


def define(**fields: Any) -> JobDefinition:
    """What a body stands for."""
    return read_job({**WEEKLY, **fields}, default_id="j").definition


def patched(definition: JobDefinition, patch: dict[str, JsonValue]) -> JobDefinition:
    """What a patch of a job stands for."""
    document = patched_document(job_document(definition, job_id="j", enabled=True), patch)
    return read_job(document, default_id="j").definition


@pytest.mark.parametrize("body", BODIES)
def test_a_job_written_down_and_read_again_is_the_same(body: dict[str, Any]) -> None:
    """Whatever it was given: nothing is lost, and nothing comes to it."""
    definition = define(**body)
    again = read_job(job_document(definition, job_id="j", enabled=False), default_id="x")
    assert is_same_definition(again.definition, definition)
    assert (again.job_id, again.enabled) == ("j", False)


@pytest.mark.parametrize("body", BODIES)
def test_an_empty_patch_changes_nothing(body: dict[str, Any]) -> None:
    """The least that can be asked."""
    definition = define(**body)
    assert is_same_definition(patched(definition, {}), definition)


def test_a_patch_changes_what_it_names_and_nothing_else() -> None:
    """One field, one member of the payload, one label."""
    definition = define(payload={"a": 1, "b": 2}, labels={"x": "1", "y": "2"}, max_retries=5)
    changed = patched(definition, {"payload": {"b": None, "c": 3}, "labels": {"x": "9"}, "description": "new"})
    assert changed.payload == {"a": 1, "c": 3}
    assert changed.labels == {"x": "9", "y": "2"}
    assert is_same_definition(
        changed.model_copy(update={"payload": None, "labels": {}, "description": ""}),
        definition.model_copy(update={"payload": None, "labels": {}}),
    )


def test_either_name_of_the_number_of_attempts_replaces_the_other() -> None:
    """``max_retries`` of a job that was given ``max_attempts``, and null for the default."""
    definition = define(max_attempts=7)
    assert patched(definition, {"max_retries": 1}).retry.max_attempts == 2
    assert patched(definition, {"max_attempts": 3}).retry.max_attempts == 3
    assert patched(definition, {"max_retries": None}).retry.max_attempts == 4
    with pytest.raises(InvalidRequest):
        patched(definition, {"max_retries": 1, "max_attempts": 2})


def test_what_follows_another_field_goes_on_following_it() -> None:
    """The heartbeat the timeout, the downstream the host; a heartbeat of null is kept as it was meant."""
    assert patched(define(), {"timeout_seconds": 5}).heartbeat_timeout == define(timeout_seconds=5).heartbeat_timeout
    assert patched(define(), {"heartbeat_timeout_seconds": None}).heartbeat_timeout is None
    http = define(target={"kind": "http", "url": "https://a.example.com/"})
    assert patched(http, {"target": {"url": "https://b.example.com/"}}).downstream == "b.example.com"
    assert patched(define(), {"name": "other"}).target == define().target


def test_a_target_of_another_kind_replaces_the_whole_target() -> None:
    """Nobody has to name what the old one had; one of the same kind is merged."""
    http = patched(define(), {"target": {"kind": "http", "url": "https://a.example.com/"}})
    assert isinstance(http.target, HttpTarget)
    merged = patched(http, {"target": {"method": "PUT"}})
    assert isinstance(merged.target, HttpTarget)
    assert (merged.target.method, merged.target.url) == ("PUT", "https://a.example.com/")


def test_a_patch_never_leads_to_two_schedules() -> None:
    """SB-079: another kind of schedule replaces the first, or is refused; a grid keeps its anchor."""
    hourly = define(schedule={"every": "PT1H", "anchor": "2026-01-01T00:30:00Z"})
    assert patched(hourly, {"schedule": "0 0 * * *"}).schedule == define(schedule="0 0 * * *").schedule
    with pytest.raises(Exception, match="exactly one of cron") as refusal:
        patched(hourly, {"schedule": {"cron": "0 0 * * *"}})
    assert 'give "every": null as well' in str(refusal.value)
    other = patched(hourly, {"schedule": {"at": "2030-01-01T09:00:00Z", "every": None, "anchor": None}})
    assert other.schedule == define(schedule="2030-01-01T09:00:00Z").schedule
    assert patched(hourly, {"schedule": {"every": "PT2H"}}).schedule.rule.anchor == hourly.schedule.rule.anchor  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": 1, "b": 2}, {"b": 2.0, "a": 1.0}, True),
        ({"a": True}, {"a": 1}, False),
        ([0], [False], False),
        ({"a": None}, {}, False),
        ("1", 1, False),
    ],
)
def test_definitions_are_compared_as_json_is(one: JsonValue, other: JsonValue, same: bool) -> None:
    """SB-062: neither the order of members nor 60 for 60.0 makes a difference; true is not 1."""
    assert is_same_definition(define(payload=one), define(payload=other)) is same


def test_a_patch_is_not_warned_about_what_it_does_not_name() -> None:
    """The body that is patched spells out all the defaults; what the job was given once is still warned of."""
    unlike = define(max_buffered=7)
    for definition, count in ((define(), 0), (unlike, 1)):
        document = job_document(definition, job_id="j", enabled=True)
        request = read_job(patched_document(document, {"schedule": "@hourly"}), default_id="j")
        assert len(request.warnings) == count
