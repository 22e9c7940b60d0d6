"""JSON Schemas of what crosses between the scheduler and workers, for authors in other languages.

``python -m horarium.wire_schema FOLDER`` writes them. They stand in ``schemas`` beside this package; a test holds them to the
code.
"""

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pydantic import JsonValue, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from horarium.attempt_report import REPORT_MARK, AttemptReport
from horarium.catalogue import Announcement
from horarium.job_run import JobRun, RunKind
from horarium.payload_fit import JsonSchema

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_AT: Final = datetime(2026, 6, 8, 13, tzinfo=UTC)

_RUN: Final = JobRun(
    tenant="default",
    job_id="weekly-report",
    run_id="weekly-report:20260608T130000Z",
    kind=RunKind.SCHEDULED,
    scheduled_at=_AT,
    target_at=_AT + timedelta(seconds=7),
    attempt=2,
    max_attempts=4,
    idempotency_key="weekly-report:1780923600",
    fence=1_780_923_607_250_001,
    payload={"report_type": "weekly"},
    checkpoint={"page": 3},
)
_REPORT: Final = AttemptReport(
    started_at=_AT + timedelta(seconds=8), worker="node@reports-1", result={"pages": 7}, checkpoint=None
)
_ANNOUNCEMENT: Final = Announcement(version="2026.6.1", schemas={"send_report": {"type": "object"}, "compact": None})


class _Untitled(GenerateJsonSchema):
    """Leaves out titles, which only repeat names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def wire_schemas() -> dict[str, JsonSchema]:
    """Make every schema, by file name."""
    return {
        "job-run.schema.json": _job_run(),
        "attempt.schema.json": _attempt(),
        "announcement.schema.json": _announcement(),
    }


def write_wire_schemas(folder: Path) -> None:
    """Write every schema to a file of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, schema in wire_schemas().items():
        (folder / name).write_text(spell_schema(schema), encoding="utf-8")


def spell_schema(schema: JsonSchema) -> str:
    """Write a schema as its file has it. Its descriptions were docstrings, and speak Python."""
    text = json.dumps(schema, indent=2, ensure_ascii=False)
    return text.replace("``None``", "null").replace("``", "`") + "\n"


def _job_run() -> JsonSchema:
    adapter = TypeAdapter(JobRun[Any])
    about = (
        "The one argument of an activity that a job calls. Members and kinds that are not known here may come with later "
        "releases: ignore them."
    )
    schema = adapter.json_schema(schema_generator=_Untitled)
    return _headed("job-run", "JobRun", about, schema, example=adapter.dump_python(_RUN, mode="json"))


def _attempt() -> JsonSchema:
    about = (
        "What a worker may tell of an attempt: as the activity's result, as the details of a heartbeat, and as the first detail "
        "of a failure. A result that is not such an object is the bare result; then start, worker and checkpoint are not known."
    )
    schema = TypeAdapter(AttemptReport).json_schema(schema_generator=_Untitled)
    mark: JsonSchema = {
        "type": "string",
        "pattern": "^attempt/",
        "description": "Tells a report from any other object.",
    }
    properties = schema["properties"]
    assert isinstance(properties, dict)
    required: list[JsonValue] = [REPORT_MARK, "started_at", "worker"]
    marked = schema | {"properties": {REPORT_MARK: mark, **properties}, "required": required}
    return _headed("attempt", "AttemptReport", about, marked, example=_REPORT.to_json())


def _announcement() -> JsonSchema:
    about = (
        "The argument of the signal `announce` to the workflow `catalogue/TASK_QUEUE` of type `HorariumCatalogue` on task queue "
        "`horarium`: what a worker can run. Send it by signal-with-start when the worker starts, and every ten minutes."
    )
    version: JsonSchema = {
        "type": "string",
        "description": "Any text that changes when `activities` does, the same for all workers of one version.",
    }
    payload_schema: JsonSchema = {
        "type": ["object", "boolean", "null"],
        "description": "JSON Schema (2020-12) of the payload; null: not said. At most 32 KiB, and 128 KiB for all together.",
    }
    activity: JsonSchema = {"type": "object", "properties": {"payload_schema": payload_schema}}
    activities: JsonSchema = {
        "type": "object",
        "additionalProperties": activity,
        "description": "By the names that jobs call them by.",
    }
    schema: JsonSchema = {
        "type": "object",
        "properties": {"version": version, "activities": activities},
        "required": ["version", "activities"],
    }
    return _headed("announcement", "Announcement", about, schema, example=_ANNOUNCEMENT.to_json())


def _headed(name: str, title: str, about: str, schema: JsonSchema, *, example: JsonValue) -> JsonSchema:
    head: JsonSchema = {"$schema": DIALECT, "$id": f"urn:horarium:schema:{name}", "title": title, "description": about}
    return head | {key: value for key, value in schema.items() if key not in head} | {"examples": [example]}


if __name__ == "__main__":
    write_wire_schemas(Path(sys.argv[1]))
