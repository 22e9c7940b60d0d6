"""The three kinds of targets as callers write them."""

from typing import Any

import pytest
from pydantic import JsonValue, TypeAdapter

from api.job_body import JobRequest, read_job
from api.problem import InvalidRequest
from workflows.job import JobDefinition
from workflows.target import (
    ActivityTarget,
    HttpMethod,
    HttpTarget,
    SecretReference,
    WorkflowArgument,
    WorkflowTarget,
    activity_call,
    natural_downstream,
    target_name,
)

URL = "https://bank.example/pay"
BANK: JsonValue = {"$secret": "bank"}


def read(target: JsonValue, **fields: JsonValue) -> JobRequest:
    """Read a job with this target."""
    return read_job({"name": "pay", "schedule": "@daily", "target": target, **fields}, default_id="j_1")


def http(**fields: JsonValue) -> JobRequest:
    """Read a job with an HTTP target."""
    payload = fields.pop("payload", None)
    return read({"kind": "http", "url": URL, **fields}, payload=payload)


def refused(target: JsonValue, **fields: JsonValue) -> dict[str | None, str]:
    """Say what is wrong with a target, by place."""
    with pytest.raises(InvalidRequest) as refusal:
        read(target, **fields)
    return {error.pointer: error.detail for error in refusal.value.errors}


def test_an_http_target_has_defaults() -> None:
    """It is a POST of the payload, on the default queue; what it calls is its host."""
    definition = read({"kind": "http", "url": "https://Bank.example:8443/pay?x=1"}).definition
    assert definition.target == HttpTarget(url="https://Bank.example:8443/pay?x=1")
    assert definition.downstream == "bank.example"
    assert target_name(definition.target) == "POST https://Bank.example:8443/pay"


def test_an_http_target_is_understood_in_full() -> None:
    """Kinds and methods in any case, secrets wherever they may stand."""
    definition = read(
        {
            "kind": "HTTP",
            "method": "put",
            "url": URL,
            "headers": {"Authorization": ["Bearer ", BANK], "X-Key": BANK, "X-Team": "a"},
            "body": {"amount": 1},
            "task_queue": "webhooks",
            "signature": {"$secret": "signing"},
            "success_statuses": [409, 200, 409],
        },
        downstream="bank",
    ).definition
    assert definition.target == HttpTarget(
        method=HttpMethod.PUT,
        url=URL,
        headers={
            "Authorization": ("Bearer ", SecretReference(name="bank")),
            "X-Key": SecretReference(name="bank"),
            "X-Team": "a",
        },
        body={"amount": 1},
        task_queue="webhooks",
        signature=SecretReference(name="signing"),
        success_statuses=(200, 409),
    )
    assert definition.downstream == "bank"


def test_a_url_may_be_a_secret() -> None:
    """As that of a chat's webhook is. Nobody knows its host, so it has no downstream of its own."""
    definition = read({"kind": "http", "url": BANK}).definition
    assert isinstance(definition.target, HttpTarget)
    assert definition.target.url == SecretReference(name="bank")
    assert definition.downstream == ""
    assert target_name(definition.target) == "POST the URL in secret bank"


def test_a_workflow_target_is_understood() -> None:
    """By its type and queue, both needed; it is given its run."""
    target: dict[str, JsonValue] = {"kind": "workflow", "workflow": "Closing", "task_queue": "finance"}
    assert read(target).definition.target == WorkflowTarget(workflow="Closing", task_queue="finance")
    both = read({**target, "args": ["payload", "RUN"]}).definition.target
    assert isinstance(both, WorkflowTarget)
    assert both.args == (WorkflowArgument.PAYLOAD, WorkflowArgument.RUN)
    assert target_name(both) == "Closing"


@pytest.mark.parametrize(
    ("target", "pointer"),
    [
        ({"kind": "ftp", "url": URL}, "/target/kind"),
        ({"kind": 5}, "/target/kind"),
        ("send_report", "/target"),
        ([], "/target"),
        ({"kind": "http"}, "/target/url"),
        ({"kind": "http", "url": 5}, "/target/url"),
        ({"kind": "http", "url": {"$secret": "../x"}}, "/target/url/$secret"),
        ({"kind": "http", "url": "https://u:S3CR3T@bank.example/"}, "/target/url"),
        ({"kind": "http", "url": "ftp://bank.example/"}, "/target/url"),
        ({"kind": "http", "url": "https://bank.example/" + "x" * 2_048}, "/target/url"),
        ({"kind": "http", "url": URL, "method": "TRACE"}, "/target/method"),
        ({"kind": "http", "url": URL, "activity": "x"}, "/target/activity"),
        ({"kind": "http", "url": URL, "headers": []}, "/target/headers"),
        ({"kind": "http", "url": URL, "headers": {"X": 5}}, "/target/headers/X"),
        ({"kind": "http", "url": URL, "headers": {"X": "a\r\nY: b"}}, "/target/headers/X"),
        ({"kind": "http", "url": URL, "headers": {"X": "snow \u2603"}}, "/target/headers/X"),
        ({"kind": "http", "url": URL, "headers": {"X": "a" * 4_097}}, "/target/headers/X"),
        ({"kind": "http", "url": URL, "headers": {"a b": "c"}}, "/target/headers/a b"),
        ({"kind": "http", "url": URL, "headers": {"": "c"}}, "/target/headers/"),
        ({"kind": "http", "url": URL, "headers": {"x-a": "c", "X-A": "d"}}, "/target/headers/X-A"),
        ({"kind": "http", "url": URL, "headers": {"Host": "evil.example"}}, "/target/headers/Host"),
        ({"kind": "http", "url": URL, "headers": {"Transfer-Encoding": "x"}}, "/target/headers/Transfer-Encoding"),
        ({"kind": "http", "url": URL, "headers": {"idempotency-key": "x"}}, "/target/headers/idempotency-key"),
        ({"kind": "http", "url": URL, "headers": {"Horarium-Fence": "9"}}, "/target/headers/Horarium-Fence"),
        ({"kind": "http", "url": URL, "headers": {"Authorization": "Bearer S3CR3T"}}, "/target/headers/Authorization"),
        ({"kind": "http", "url": URL, "headers": {"x-api-key": ["S3", "CR3T"]}}, "/target/headers/x-api-key"),
        ({"kind": "http", "url": URL, "headers": {"Cookie": "S3CR3T"}}, "/target/headers/Cookie"),
        ({"kind": "http", "url": URL, "headers": {f"X-{n}": "" for n in range(51)}}, "/target/headers"),
        ({"kind": "http", "url": URL, "method": "GET", "body": {}}, "/target/body"),
        ({"kind": "http", "url": URL, "body": "x" * 262_144}, "/target/body"),
        ({"kind": "http", "url": URL, "signature": "S3CR3T"}, "/target/signature"),
        ({"kind": "http", "url": URL, "success_statuses": [99]}, "/target/success_statuses/0"),
        ({"kind": "http", "url": URL, "success_statuses": ["2xx"]}, "/target/success_statuses/0"),
        ({"kind": "http", "url": URL, "task_queue": "horarium-scheduler"}, "/target/task_queue"),
        ({"kind": "activity", "activity": "send_alert", "task_queue": "horarium-scheduler"}, "/target/task_queue"),
        ({"kind": "activity", "activity": "http_request"}, "/target/activity"),
        ({"kind": "activity", "activity": "http_request", "task_queue": "finance"}, "/target/activity"),
        ({"activity": "record_events"}, "/target/activity"),
        ({"kind": "workflow", "workflow": "Closing"}, "/target/task_queue"),
        ({"kind": "workflow", "task_queue": "finance"}, "/target/workflow"),
        ({"kind": "workflow", "workflow": "HorariumJob", "task_queue": "horarium"}, "/target/workflow"),
        ({"kind": "workflow", "workflow": "A", "task_queue": "b", "args": ["order"]}, "/target/args/0"),
        ({"kind": "workflow", "workflow": "A", "task_queue": "b", "args": ["run", "run"]}, "/target/args"),
    ],
)
def test_what_is_wrong_is_refused_at_its_place(target: JsonValue, pointer: str) -> None:
    """And never repeated: it may be a secret."""
    errors = refused(target)
    assert list(errors) == [pointer]
    assert "S3CR3T" not in str(errors)


def test_a_job_named_as_one_of_our_activities_calls_another() -> None:
    """Without an activity it would call the one of its name, past all rules for HTTP targets."""
    with pytest.raises(InvalidRequest) as refusal:
        read_job({"name": "http_request", "schedule": "@daily"}, default_id="j_1")
    assert [error.pointer for error in refusal.value.errors] == ["/target/activity"]
    given: JsonValue = {"name": "http_request", "schedule": "@daily", "target": {"activity": "send_report"}}
    assert read_job(given, default_id="j_1").definition.target == ActivityTarget(activity="send_report")
    url: JsonValue = {"name": "http_request", "schedule": "@daily", "target": {"kind": "http", "url": URL}}
    assert isinstance(read_job(url, default_id="j_1").definition.target, HttpTarget)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"payload": 1, "body": 2}, "target.body is"),
        ({"payload": 1, "method": "GET"}, "GET has no body"),
        ({"url": "http://localhost:9000/"}, "HORARIUM_HTTP_ALLOW"),
        ({"url": "http://169.254.169.254/"}, "HORARIUM_HTTP_ALLOW"),
        ({"url": "http://bank.example/", "signature": BANK}, "http://"),
        ({"url": "http://bank.example/", "headers": {"X-Key": BANK}}, "http://"),
        ({"url": "https://bank.example/?api_key=S3CR3T"}, "credential"),
    ],
)
def test_what_may_not_be_meant_is_warned_of(fields: dict[str, JsonValue], words: str) -> None:
    """It is accepted all the same."""
    [warning] = http(**fields).warnings
    assert words in warning
    assert "S3CR3T" not in warning


def test_a_workflow_needs_no_heartbeats_to_be_cancelled() -> None:
    """Temporal tells it."""
    target: JsonValue = {"kind": "workflow", "workflow": "Closing", "task_queue": "finance"}
    request = read(target, overlap="cancel_other", heartbeat_timeout_seconds=None)
    assert request.warnings == ("heartbeat_timeout_seconds has no effect with a workflow target",)


@pytest.mark.parametrize(
    "target",
    [
        ActivityTarget(activity="pay"),
        HttpTarget(
            url=URL, headers={"A": SecretReference(name="bank"), "B": ("x ", SecretReference(name="b")), "C": "d"}
        ),
        HttpTarget(url=SecretReference(name="hook"), signature=SecretReference(name="key"), body={"a": [1]}),
        WorkflowTarget(workflow="Closing", task_queue="finance", args=(WorkflowArgument.PAYLOAD,)),
    ],
)
def test_a_definition_is_read_back_as_it_was_written(target: Any) -> None:
    """As JSON of any of the writers: a history, a row, an answer."""
    definition = JobDefinition(target=target)
    assert JobDefinition.model_validate_json(definition.model_dump_json()) == definition
    assert JobDefinition.model_validate(definition.model_dump(mode="json")) == definition
    assert TypeAdapter(JobDefinition).validate_json(TypeAdapter(JobDefinition).dump_json(definition)) == definition


def test_a_definition_of_before_there_were_kinds_is_an_activity() -> None:
    """Every field of a stored value may be missing."""
    assert JobDefinition.model_validate({"target": {"activity": "pay"}}).target == ActivityTarget(activity="pay")


def test_the_activity_of_an_http_target_is_given_the_request() -> None:
    """References and all; the payload is the body where there is no other. Which queue it is on is not its business."""
    call = activity_call(HttpTarget(url=URL, task_queue="q", signature=SecretReference(name="k")), payload={"a": 1})
    assert call is not None
    assert (call.activity, call.task_queue) == ("http_request", "q")
    assert call.payload == {
        "method": "POST",
        "url": URL,
        "headers": {},
        "body": {"a": 1},
        "signature": {"$secret": "k"},
        "success_statuses": [],
    }
    own = activity_call(HttpTarget(url=URL, body=0), payload={"a": 1})
    assert own is not None
    assert isinstance(own.payload, dict)
    assert own.payload["body"] == 0
    assert activity_call(WorkflowTarget(workflow="Closing"), payload=1) is None


@pytest.mark.parametrize("url", ["", "x", "http://[::1", "https://u:S3CR3T@bank.example:1/x?S3CR3T"])
def test_a_name_never_fails_and_tells_no_secret(url: str) -> None:
    """It is made in workflow code, of whatever is stored."""
    assert "S3CR3T" not in target_name(HttpTarget(url=url))
    natural_downstream(HttpTarget(url=url))
