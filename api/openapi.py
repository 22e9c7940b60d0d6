"""The OpenAPI document: bodies with examples that work when pasted, and what errors look like.

Bodies are read by ``body`` and not by FastAPI, so their schemas are put into the document here.
"""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, JsonValue
from pydantic.json_schema import models_json_schema

from api.access import needed_scope
from api.backfill_body import BackfillBody, CancelBackfillBody, SteerBackfillBody
from api.body import Body
from api.calendar_body import CalendarBody
from api.codec import CodecBody
from api.dead_letter_body import BulkRedriveBody
from api.hold_body import HoldBody, ReleaseBody
from api.job_body import JobBody
from api.merge_patch import MEDIA_TYPE as MERGE_PATCH
from api.preview import PreviewBody
from api.problem import PROBLEM_MEDIA_TYPE, Problem
from api.steer_body import CancelBody, PauseBody, ResumeBody, TriggerBody

# The shape of an OpenAPI document is OpenAPI's business; FastAPI types it like this too.
Document: TypeAlias = dict[str, Any]

_SCHEMAS: Final = "#/components/schemas/"

_WEEKLY_REPORT: Final = {
    "name": "weekly-sales-report",
    "schedule": "0 9 * * 1",
    "timezone": "America/New_York",
    "target": {"kind": "activity", "activity": "send_report"},
    "payload": {"report_type": "weekly", "recipients": ["sales@example.com"]},
    "idempotency_key_template": "report-{{week}}",
    "max_retries": 3,
    "retry_backoff": "exponential",
    "missed_window": "RUN_ONCE",
    "timeout_seconds": 120,
}

_WEBHOOK: Final = {
    "name": "nightly-settlement",
    "schedule": "0 2 * * *",
    "timezone": "Europe/Berlin",
    "target": {
        "kind": "http",
        "method": "POST",
        "url": "https://bank.example.com/settlements",
        "headers": {"Authorization": ["Bearer ", {"$secret": "bank-token"}]},
        "signature": {"$secret": "bank-signing-key"},
    },
    "payload": {"account": "DE-17"},
    "timeout_seconds": 30,
}

_TEAM_WORKFLOW: Final = {
    "name": "monthly-closing",
    "schedule": "0 6 1 * *",
    "target": {"kind": "workflow", "workflow": "MonthlyClosing", "task_queue": "finance"},
    "payload": {"ledger": "main"},
    "timeout_seconds": 14_400,
}

_NEEDS_WORKERS: Final = (
    "Registered at once. Until a worker of yours polls the queue `{queue}`, `health` says that nobody does, "
    "and runs wait for it."
)

_JOB_EXAMPLES: Final = {
    "weekly report": {
        "summary": "Every Monday at 9 in New York",
        "description": "Runs the example activity `send_report`, which every worker of ours has, on the default queue.",
        "value": _WEEKLY_REPORT,
    },
    "without a target": {
        "summary": "The activity is called as the job, on the default queue",
        "value": {
            "name": "send_report",
            **{key: value for key, value in _WEEKLY_REPORT.items() if key not in ("name", "target")},
        },
    },
    "every 15 seconds": {"value": {"name": "noop", "schedule": "@every 15s"}},
    "once": {"value": {"name": "noop", "schedule": "2030-01-01T09:00:00", "timezone": "Europe/Berlin"}},
    "on a team's own workers": {
        "summary": "The same report, on a task queue of your own",
        "description": _NEEDS_WORKERS.format(queue="reports"),
        "value": {
            **_WEEKLY_REPORT,
            "target": {"kind": "activity", "activity": "send_report", "task_queue": "reports"},
        },
    },
    "an HTTP request": {
        "summary": "Signed, and with a token that only the worker knows",
        "description": "Registered at once. Its runs need the two secrets on the worker that sends it, and a host that is there.",
        "value": _WEBHOOK,
    },
    "a workflow": {
        "summary": "Of any team, and as long as it takes: here up to four hours",
        "description": _NEEDS_WORKERS.format(queue="finance"),
        "value": _TEAM_WORKFLOW,
    },
}

_PREVIEW_EXAMPLES: Final = {
    "one": {"value": {"schedule": "0 9 * * 1", "timezone": "America/New_York", "count": 3}},
    "a clock change": {
        "summary": "02:30 does not exist in New York on 8 March 2026",
        "value": {
            "schedule": "30 2 * * *",
            "timezone": "America/New_York",
            "after": "2026-03-07T12:00:00Z",
            "count": 3,
        },
    },
    "a calendar that is tried out": {
        "summary": "Payday: the last of the month, or the business day before",
        "value": {
            "schedule": "0 9 L * *",
            "timezone": "Europe/Berlin",
            "business_days": {"calendar": "bavaria", "roll": "previous"},
            "calendars": {"bavaria": {"holidays": {"country": "DE", "subdivision": "BY"}, "dates": ["2026-12-24"]}},
        },
    },
    "several": {"value": [{"schedule": "@daily", "count": 2}, {"schedule": "0 0 30 2 *"}]},
}

_PATCH_EXAMPLES: Final = {
    "another time": {"value": {"schedule": "0 10 * * 1"}},
    "a default again": {"summary": "null removes what was given", "value": {"max_retries": None}},
    "one member of the payload": {"value": {"payload": {"report_type": "daily"}}},
}

_PAUSE_EXAMPLES: Final = {
    "until it is resumed": {"value": {"reason": "the bank migrates", "by": "ops"}},
    "for a while": {"value": {"until": "2030-01-01T06:00:00Z", "catch_up": "apply"}},
}

_RESUME_EXAMPLES: Final = {
    "without what fell into the pause": {"value": {}},
    "as after an outage": {"value": {"catch_up": "apply"}},
}

_TRIGGER_EXAMPLES: Final = {
    "as it is": {"value": {}},
    "with another payload": {"value": {"payload": {"report_type": "daily"}}},
    "instead of the next fire": {"value": {"skip_next": True, "overlap": "allow"}},
}

_CANCEL_EXAMPLES: Final = {"with a reason": {"value": {"reason": "sent twice by mistake"}}}

_BULK_REDRIVE_EXAMPLES: Final = {
    "of an outage": {
        "summary": "What the budget of a downstream ended, two a second",
        "value": {"reason": "retry_budget_exhausted", "rate_per_minute": 120},
    },
    "of one job": {"value": {"job": "weekly-report", "from": "2026-06-08T00:00:00Z", "limit": 10}},
    "everything": {"value": {"all": True, "rate_per_minute": 600, "limit": 100_000}},
}

_BACKFILL_EXAMPLES: Final = {
    "how many": {
        "summary": "Says what it would do, and does nothing",
        "value": {"from": "2026-06-01T00:00:00Z", "to": "2026-06-07T23:59:59Z", "dry_run": True},
    },
    "a week that was missed": {
        "summary": "What has run is passed over; one run at a time",
        "value": {"from": "2026-06-01T00:00:00Z", "to": "2026-06-07T23:59:59Z", "reason": "outage of 1 June"},
    },
    "all once more": {
        "summary": "Four at once, ten a minute; times on the clock of the job's zone",
        "value": {
            "from": "2026-06-01T00:00",
            "to": "2026-06-30T23:59",
            "existing": "run_again",
            "max_concurrent": 4,
            "rate_per_minute": 10,
        },
    },
}

_STEER_BACKFILL_EXAMPLES: Final = {"with a reason": {"value": {"reason": "the bank is busy"}}}

_CANCEL_BACKFILL_EXAMPLES: Final = {
    "let what has begun end": {"value": {"reason": "asked for by mistake"}},
    "all of it": {"value": {"cancel_active": True}},
}

_CALENDAR_EXAMPLES: Final = {
    "public holidays": {
        "summary": "Of Bavaria, with days of the company's own",
        "value": {
            "description": "No business in Munich",
            "holidays": {"country": "DE", "subdivision": "BY", "years": [2026, 2027, 2028]},
            "dates": ["2026-12-24", {"date": "2026-12-31", "name": "New Year's Eve"}],
        },
    },
    "a freeze": {
        "value": {"periods": [{"from": "2026-12-18", "to": "2027-01-04", "name": "Change freeze"}]},
    },
    "a stock exchange": {"value": {"holidays": {"market": "XNYS"}}},
}

_CODEC_EXAMPLES: Final = {
    "not encrypted": {
        "summary": "Comes back as it is",
        "value": {"payloads": [{"metadata": {"encoding": "anNvbi9wbGFpbg=="}, "data": "eyJhIjogMX0="}]},
    },
}

_HOLD_EXAMPLES: Final = {
    "a team until a time": {
        "value": {
            "selector": "team=finance",
            "reason": "the bank migrates",
            "by": "ops",
            "until": "2030-01-01T06:00:00Z",
        }
    },
    "what it would be over": {"value": {"selector": "env=prod,tier=2", "dry_run": True}},
    "everything, until it is released": {"value": {"selector": "all", "reason": "incident 7", "catch_up": "apply"}},
}

_RELEASE_EXAMPLES: Final = {
    "as the hold says": {"value": {}},
    "catching up": {"value": {"catch_up": "apply"}},
}

_BODIES: Final[tuple[type[BaseModel], ...]] = (
    JobBody,
    PreviewBody,
    BulkRedriveBody,
    CalendarBody,
    CodecBody,
    PauseBody,
    ResumeBody,
    TriggerBody,
    CancelBody,
    HoldBody,
    ReleaseBody,
    BackfillBody,
    SteerBackfillBody,
    CancelBackfillBody,
)

_IDEMPOTENCY_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Repeated with the same key, a request is done once and answered alike. 1 to 255 visible characters.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}


_IF_MATCH: Final = {
    "name": "If-Match",
    "in": "header",
    "required": False,
    "description": 'The revision that you have seen, as in ETag: "3". Where the job has another by now: 412.',
    "schema": {"type": "string", "maxLength": 100},
}


_IF_NONE_MATCH: Final = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "`*` only creates: where there is such a job already: 412. Not together with If-Match.",
    "schema": {"type": "string", "enum": ["*"]},
}


def _json_body(
    schema: Document,
    examples: Document,
    *,
    media_type: str = "application/json",
    required: bool = True,
    parameters: tuple[Document, ...] = (),
) -> Document:
    content = {media_type: {"schema": schema, "examples": examples}}
    return {
        "requestBody": {"required": required, "content": content},
        "parameters": [_IDEMPOTENCY_KEY, *parameters],
    }


CREATE_JOB_BODY: Final = _json_body({"$ref": f"{_SCHEMAS}JobBody"}, _JOB_EXAMPLES)

PREVIEW_BODY: Final = _json_body(
    {
        "anyOf": [
            {"$ref": f"{_SCHEMAS}PreviewBody"},
            {
                "type": "array",
                "items": {
                    "anyOf": [
                        {"$ref": f"{_SCHEMAS}PreviewBody"},
                        {"description": "Anything else: the answer has a problem in its place."},
                    ]
                },
                "maxItems": 1_000,
            },
        ]
    },
    _PREVIEW_EXAMPLES,
)


BULK_REDRIVE_BODY: Final = _json_body({"$ref": f"{_SCHEMAS}BulkRedriveBody"}, _BULK_REDRIVE_EXAMPLES)


WRITE_CALENDAR_BODY: Final = {
    key: value
    for key, value in _json_body({"$ref": f"{_SCHEMAS}CalendarBody"}, _CALENDAR_EXAMPLES).items()
    if key == "requestBody"
}

_NAMESPACE: Final = {
    "name": "X-Namespace",
    "in": "header",
    "required": False,
    "description": "As Temporal's Web UI sends it. Another one than that in which this service keeps its jobs is refused.",
    "schema": {"type": "string", "maxLength": 1_000},
}

CODEC_BODY: Final = {
    "requestBody": _json_body({"$ref": f"{_SCHEMAS}CodecBody"}, _CODEC_EXAMPLES)["requestBody"],
    "parameters": [_NAMESPACE],
}


_SECURITY: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key, made by `horarium keys create`. As long as there are none, nobody needs one.",
}

_OF_EVERY_ROUTE: Final = (401, 403, 414, 431, 503)
"""Errors that a request may meet before its route is asked."""

DELETE_JOB_HEADERS: Final = {"parameters": [_IDEMPOTENCY_KEY, _IF_MATCH]}

PUT_JOB_BODY: Final = _json_body({"$ref": f"{_SCHEMAS}JobBody"}, _JOB_EXAMPLES, parameters=(_IF_MATCH, _IF_NONE_MATCH))

PATCH_JOB_BODY: Final = _json_body(
    {"$ref": f"{_SCHEMAS}JobPatch"}, _PATCH_EXAMPLES, media_type=MERGE_PATCH, parameters=(_IF_MATCH,)
)

PAUSE_BODY: Final = _json_body(
    {"$ref": f"{_SCHEMAS}PauseBody"}, _PAUSE_EXAMPLES, required=False, parameters=(_IF_MATCH,)
)

RESUME_BODY: Final = _json_body(
    {"$ref": f"{_SCHEMAS}ResumeBody"}, _RESUME_EXAMPLES, required=False, parameters=(_IF_MATCH,)
)

TRIGGER_BODY: Final = _json_body({"$ref": f"{_SCHEMAS}TriggerBody"}, _TRIGGER_EXAMPLES, required=False)

CREATE_HOLD_BODY: Final = _json_body({"$ref": f"{_SCHEMAS}HoldBody"}, _HOLD_EXAMPLES)

RELEASE_HOLD_BODY: Final = _json_body({"$ref": f"{_SCHEMAS}ReleaseBody"}, _RELEASE_EXAMPLES, required=False)

CANCEL_BODY: Final = _json_body({"$ref": f"{_SCHEMAS}CancelBody"}, _CANCEL_EXAMPLES, required=False)


BACKFILL_BODY: Final = _json_body({"$ref": f"{_SCHEMAS}BackfillBody"}, _BACKFILL_EXAMPLES)

STEER_BACKFILL_BODY: Final = _json_body(
    {"$ref": f"{_SCHEMAS}SteerBackfillBody"}, _STEER_BACKFILL_EXAMPLES, required=False
)

CANCEL_BACKFILL_BODY: Final = _json_body(
    {"$ref": f"{_SCHEMAS}CancelBackfillBody"}, _CANCEL_BACKFILL_EXAMPLES, required=False
)


def problems(*statuses: int, replayed: type[BaseModel] | None = None) -> dict[int | str, Document]:
    """List the error answers of a route, and the answer to a repeated request where the route remembers it."""
    answers: dict[int | str, Document] = {status: _problem(status) for status in statuses}
    if replayed is not None:
        answers[200] = {"model": replayed, "description": "Done before, by a request with the same key"}
    return answers


def example_answer(name: str, value: JsonValue) -> dict[int | str, Document]:
    """Show what a route answers when all is well."""
    return {200: {"content": {"application/json": {"examples": {name: {"value": value}}}}}}


def _problem(status: int) -> Document:
    content = {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": f"{_SCHEMAS}Problem"}}}
    return {"description": HTTPStatus(status).phrase, "content": content}


def install_openapi(app: FastAPI) -> None:
    """Let the application describe itself, bodies and problems included."""

    def describe() -> Document:
        if app.openapi_schema is None:
            app.openapi_schema = _describe(app)
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]


def _describe(app: FastAPI) -> Document:
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    models = [(model, "validation") for model in _BODIES] + [(Problem, "serialization")]
    _, definitions = models_json_schema(models, ref_template=f"{_SCHEMAS}{{model}}")  # type: ignore[arg-type]
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(definitions["$defs"])
    schemas["JobPatch"] = _patch_of(schemas["JobBody"])
    for model in _list_bodies(Body):
        if model.__name__ in schemas:
            schemas[model.__name__] = _with_nulls(schemas[model.__name__], model)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    document["components"]["securitySchemes"] = {"key": _SECURITY}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _describe_access(operation, method=method.upper(), path=path)
    return document


def _describe_access(operation: Document, *, method: str, path: str) -> None:
    """Say which key an operation needs, and what is answered to others."""
    needed = needed_scope(method, path)
    if needed is None:
        return
    operation["security"] = [{"key": []}]
    operation["description"] = f"{operation.get('description', '')}\n\nNeeds the scope `{needed.value}`.".strip()
    with_body = (HTTPStatus.REQUEST_TIMEOUT,) if "requestBody" in operation else ()
    for status in (*_OF_EVERY_ROUTE, *with_body):
        operation["responses"].setdefault(str(int(status)), _problem(status))


def _list_bodies(parent: type[Body]) -> Iterator[type[Body]]:
    """List all that are read as bodies, or as parts of them."""
    for model in parent.__subclasses__():
        yield model
        yield from _list_bodies(model)


def _with_nulls(schema: Document, model: type[Body]) -> Document:
    """Describe that null is as good as leaving a field out, where it is."""
    fields = dict(schema["properties"])
    for name in model.model_fields.keys() & fields.keys() - {*schema.get("required", ()), *model.keeps_null}:
        is_nullable = {"type": "null"} in fields[name].get("anyOf", ())
        # A constant tells which of several models is meant.
        if not is_nullable and "const" not in fields[name]:
            kept = {key: fields[name][key] for key in ("default", "description", "title") if key in fields[name]}
            told = {key: value for key, value in fields[name].items() if key not in kept}
            fields[name] = {"anyOf": [told, {"type": "null"}], **kept}
    return {**schema, "properties": fields}


def _patch_of(schema: Document) -> Document:
    """Describe a merge patch: any of the fields, and null for the default."""
    fields = {name: {"anyOf": [field, {"type": "null"}]} for name, field in schema["properties"].items()}
    return {"title": "JobPatch", "type": "object", "properties": fields, "additionalProperties": False}
