"""The body of a job: flat names, defaults, bounds, and the rules between fields."""

from datetime import timedelta

import pytest
from pydantic import JsonValue

from api.field import PAYLOAD_LIMIT
from api.job_body import JobRequest, read_job
from api.problem import InvalidRequest
from workflows.job import Backoff, CatchUpPolicy, JobDefinition, OverlapPolicy, RetryPolicy
from workflows.schedule import CronRule, IntervalRule, OneOffRule, RRuleRule
from workflows.target import ActivityTarget

MINIMAL: dict[str, JsonValue] = {"name": "report", "schedule": "0 9 * * 1"}


def read(**fields: JsonValue) -> JobRequest:
    return read_job({**MINIMAL, **fields}, default_id="j_1")


def errors_of(body: JsonValue) -> dict[str | None, str]:
    with pytest.raises(InvalidRequest) as refusal:
        read_job(body, default_id="j_1")
    return {error.pointer: error.detail for error in refusal.value.errors}


def refused(**fields: JsonValue) -> dict[str | None, str]:
    return errors_of({**MINIMAL, **fields})


def test_a_minimal_body_gets_every_default_of_the_kernel() -> None:
    """Defaults stand in one place; without a target the activity is called as the job."""
    expected = JobDefinition(
        name="report",
        schedule=JobDefinition().schedule.model_copy(update={"rule": CronRule(expression="0 9 * * 1")}),
        target=ActivityTarget(activity="report"),
    )
    request = read()
    assert request.definition == expected
    assert request.job_id == "j_1"
    assert request.enabled is None
    assert request.warnings == ()


def test_null_means_the_default_but_for_heartbeats() -> None:
    """Many clients send null for what they leave out; only a heartbeat timeout has a meaning of its own for it."""
    names = ("timezone", "target", "max_retries", "overlap", "misfire_grace_seconds", "labels", "start_at", "enabled")
    assert read(**dict.fromkeys(names)).definition == read().definition
    assert read().definition.heartbeat_timeout == timedelta(seconds=30)
    assert read(heartbeat_timeout_seconds=None).definition.heartbeat_timeout is None


def test_the_request_of_the_design_is_understood() -> None:
    """Every field of the documented example lands where it belongs."""
    definition = read_job(
        {
            "name": "send-weekly-report",
            "schedule": "0 9 * * 1",
            "timezone": "America/New_York",
            "target": {"kind": "activity", "activity": "send_report", "task_queue": "reports"},
            "payload": {"report_type": "weekly"},
            "idempotency_key_template": "report-{{week}}",
            "max_retries": 3,
            "retry_backoff": "exponential",
            "missed_window": "RUN_ONCE",
            "timeout_seconds": 120,
        },
        default_id="j_1",
    ).definition
    assert definition.schedule.timezone == "America/New_York"
    assert definition.target == ActivityTarget(activity="send_report", task_queue="reports")
    assert definition.payload == {"report_type": "weekly"}
    assert definition.idempotency_key_template == "report-{{week}}"
    assert definition.retry == RetryPolicy(max_attempts=4, backoff=Backoff.EXPONENTIAL)
    assert definition.missed_window is CatchUpPolicy.RUN_ONCE
    assert definition.timeout == timedelta(seconds=120)


@pytest.mark.parametrize(
    ("schedule", "kind"),
    [
        ("@daily", CronRule),
        ("@every 15m", IntervalRule),
        ("2030-01-01T09:00:00Z", OneOffRule),
        ({"cron": "0 9 * * 1"}, CronRule),
        ({"every": "PT6H", "anchor": "2026-01-01T00:00:00Z"}, IntervalRule),
        ({"at": "2030-01-01T09:00:00"}, OneOffRule),
        ({"rrule": "FREQ=MONTHLY;BYDAY=-1FR", "dtstart": "2026-01-01T09:00:00"}, RRuleRule),
    ],
)
def test_every_spelling_of_a_schedule_is_taken(schedule: JsonValue, kind: type) -> None:
    """A cron string, a time, an interval, or an object."""
    assert isinstance(read(schedule=schedule).definition.schedule.rule, kind)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("SKIP", OverlapPolicy.SKIP),
        ("Buffer_One", OverlapPolicy.BUFFER_ONE),
        ("Allow", OverlapPolicy.ALLOW),
        ("Forbid", OverlapPolicy.SKIP),
        ("Replace", OverlapPolicy.CANCEL_OTHER),
    ],
)
def test_policies_are_taken_in_any_case_and_by_their_kubernetes_names(given: str, expected: OverlapPolicy) -> None:
    """All enum values are accepted in any case."""
    assert read(overlap=given).definition.overlap is expected
    assert read(missed_window="run_all").definition.missed_window is CatchUpPolicy.RUN_ALL


def test_retries_are_counted_either_way() -> None:
    """``max_retries`` counts those after the first, ``max_attempts`` all; a whole number may be written as 3.0."""
    assert read(max_retries=0).definition.retry.max_attempts == 1
    assert read(max_attempts=7).definition.retry.max_attempts == 7
    assert read(max_retries=3.0).definition.retry.max_attempts == 4


def test_a_back_off_is_refined_by_an_object() -> None:
    """Kind, base and cap."""
    retry = read(retry_backoff={"kind": "FIXED", "base_seconds": 0.5, "cap_seconds": 60}).definition.retry
    assert (retry.backoff, retry.base, retry.cap) == (Backoff.FIXED, timedelta(seconds=0.5), timedelta(minutes=1))
    assert read(retry_backoff="Fixed").definition.retry.backoff is Backoff.FIXED


def test_the_default_heartbeat_fits_into_a_short_attempt() -> None:
    """Who only shortens the timeout has not said anything about heartbeats."""
    assert read(timeout_seconds=10).definition.heartbeat_timeout == timedelta(seconds=10)


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"name": ""}, "/name"),
        ({"name": " "}, "/name"),
        ({"name": "\u200b"}, "/name"),
        ({"name": "a\nb"}, "/name"),
        ({"name": "x" * 201}, "/name"),
        ({"name": 5}, "/name"),
        ({"schedule": 5}, "/schedule"),
        ({"schedule": ["* * * * *"]}, "/schedule"),
        ({"schedule": {"every": [1]}}, "/schedule/every"),
        ({"schedule": {"every": 60, "colour": "red"}}, "/schedule/colour"),
        ({"schedule": "61 * * * *"}, "/schedule"),
        ({"timezone": "Mars/Base"}, "/timezone"),
        ({"timezone": "A" * 5_000}, "/timezone"),
        ({"start_at": 5}, "/start_at"),
        ({"dst": {"gap": "maybe"}}, "/dst/gap"),
        ({"exclude": {"dates": ["2026-02-30"]}}, "/exclude/dates/0"),
        ({"exclude": {"days": []}}, "/exclude/days"),
        ({"cron": "* * * * *"}, "/cron"),
        ({"a/b": 1}, "/a~1b"),
        ({"job_id": "../x"}, "/job_id"),
        ({"job_id": "a" * 129}, "/job_id"),
        ({"target": {"kind": "ftp", "url": "x"}}, "/target/kind"),
        ({"target": {"kind": 5}}, "/target/kind"),
        ({"target": {"queue": "x"}}, "/target/queue"),
        ({"target": "send_report"}, "/target"),
        ({"overlap": "sometimes"}, "/overlap"),
        ({"missed_window": 5}, "/missed_window"),
        ({"max_retries": "3"}, "/max_retries"),
        ({"max_retries": True}, "/max_retries"),
        ({"max_retries": 1.5}, "/max_retries"),
        ({"max_retries": -1}, "/max_retries"),
        ({"max_retries": 2**63}, "/max_retries"),
        ({"max_attempts": 0}, "/max_attempts"),
        ({"max_retries": 1, "max_attempts": 2}, "/max_attempts"),
        ({"timeout_seconds": 0}, "/timeout_seconds"),
        ({"timeout_seconds": 1e12}, "/timeout_seconds"),
        ({"timeout_seconds": "60"}, "/timeout_seconds"),
        ({"timeout_seconds": True}, "/timeout_seconds"),
        ({"heartbeat_timeout_seconds": 301}, "/heartbeat_timeout_seconds"),
        ({"overlap": "replace", "heartbeat_timeout_seconds": None}, "/heartbeat_timeout_seconds"),
        ({"retry_backoff": "linear"}, "/retry_backoff"),
        ({"retry_backoff": {"base_seconds": 10, "cap_seconds": 1}}, "/retry_backoff/cap_seconds"),
        ({"missed_window": "DEADLINE"}, "/max_delay_seconds"),
        ({"max_delay_seconds": -1}, "/max_delay_seconds"),
        ({"max_missed": 0}, "/max_missed"),
        ({"max_runs": 0}, "/max_runs"),
        ({"jitter_window_seconds": -1}, "/jitter_window_seconds"),
        ({"labels": {"a b": "c"}}, "/labels/a b"),
        ({"labels": {"a": 1}}, "/labels/a"),
        ({"labels": {f"k{n}": "" for n in range(33)}}, "/labels"),
        ({"idempotency_key_template": "{{weak}}"}, "/idempotency_key_template"),
        ({"payload": "x" * PAYLOAD_LIMIT}, "/payload"),
        ({"enabled": "yes"}, "/enabled"),
    ],
)
def test_what_is_wrong_is_refused_at_its_place(fields: dict[str, JsonValue], pointer: str) -> None:
    """Unknown fields, wrong types, values out of bounds and contradictions; nothing is converted silently."""
    assert list(refused(**fields)) == [pointer]


def test_several_mistakes_are_told_together() -> None:
    """A caller mends a body once."""
    assert set(refused(max_retries=-1, overlap="x", colour="red")) == {"/max_retries", "/overlap", "/colour"}
    assert set(refused(max_retries=1, max_attempts=2, timezone="Mars")) == {"/max_attempts", "/timezone"}


@pytest.mark.parametrize("body", [None, [], "x", 5, True])
def test_a_body_that_is_no_object_is_refused(body: JsonValue) -> None:
    """Whatever is sent is answered."""
    assert errors_of(body) == {"": "give an object"}


def test_what_is_missing_is_named() -> None:
    """Only two fields are needed."""
    assert errors_of({}) == {"/name": "required", "/schedule": "required"}


def test_errors_never_repeat_the_value() -> None:
    """A value may be a secret that was put into the wrong field."""
    assert "S3CR3T" not in str(refused(max_retries="S3CR3T", overlap="S3CR3T", enabled="S3CR3T"))


@pytest.mark.parametrize(
    "name", ["日本語", "تقرير", "😀", "👨\u200d👩\u200d👧", "e\u0301", "é", "CON", "null", "--help", "<img src=x>"]
)
def test_any_printable_name_is_kept_exactly(name: str) -> None:
    """Names are for people: they are not normalised."""
    assert read(name=name).definition.name == name


def test_names_of_errors_are_a_list() -> None:
    """As JSON writes one; a single name is none."""
    retry = read(retry_on=["timeout", "my.Error"], no_retry_on=["ValueError"]).definition.retry
    assert (retry.retry_on, retry.no_retry_on) == (("timeout", "my.Error"), ("ValueError",))
    known: JsonValue = ["builtins.ValueError", "lost", "4xx", "gaierror", "HttpStatus404", "pkg.mod.MyErr"]
    assert read(retry_on=known, no_retry_on=known).warnings == ()
    with pytest.raises(InvalidRequest, match="no_retry_on: give a list"):
        read(no_retry_on="ValueError")


def test_a_rate_of_catch_up_is_no_needless_setting() -> None:
    """It bounds redrives of the job as well, whatever becomes of missed fires."""
    assert read(catch_up_rate=10).warnings == ()
    assert read(catch_up_rate=10, missed_window="SKIP").warnings == ()


def test_the_largest_payload_is_taken() -> None:
    """The bound itself is allowed; quotes count."""
    assert read(payload="x" * (PAYLOAD_LIMIT - 2)).definition.payload is not None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_delay_seconds": 60}, "DEADLINE"),
        ({"max_missed": 5}, "RUN_ALL"),
        ({"max_concurrent": 5}, "overlap allow"),
        ({"max_buffered": 5}, "buffer_all"),
        ({"idempotency_key_template": "report"}, "share one idempotency key"),
        ({"schedule": "*/90 * * * *"}, "90"),
        ({"no_retry_on": ["ValueError", "myerr"]}, "no_retry_on: 'myerr' is no kind of failure (timeout, 5xx, "),
        ({"retry_on": ["connect-failure", "timeout"]}, "retry_on: 'connect-failure' is no kind"),
        ({"retry_on": ["5XX"]}, "compared by case"),
    ],
)
def test_settings_without_effect_are_accepted_with_a_warning(fields: dict[str, JsonValue], words: str) -> None:
    """What is not wrong and yet not what its author may think is said in the answer; SB-110: a name that can be no error."""
    warnings = read(**fields).warnings
    assert len(warnings) == 1
    assert words in warnings[0]
