"""How a log line looks, for people and for machines."""

import json
import logging
import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from horarium import JobRun, RunKind
from horarium.attempt import Attempt, entered
from tests.api_keys import new_key
from tests.unit.test_run_trace import NOON
from workers.log import FieldFormatter, JsonFormatter, KeylessFormatter


def record(message: str = "worker is ready", *, error: bool = False, **fields: Any) -> logging.LogRecord:
    """A record of one o'clock."""
    made = logging.LogRecord("workers", logging.INFO, "f.py", 1, message, None, sys.exc_info() if error else None)
    made.created = 1_780_923_600.25
    vars(made).update(fields)
    return made


def read(made: logging.LogRecord) -> dict[str, Any]:
    """Write a record as JSON, and read it."""
    line = JsonFormatter().format(made)
    assert "\n" not in line
    parsed: dict[str, Any] = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    return parsed


def attempt_of(**fields: Any) -> Attempt:
    """An attempt that is being worked on."""
    values: dict[str, Any] = {
        "tenant": "acme",
        "job_id": "report",
        "run_id": "report:1",
        "kind": RunKind.SCHEDULED,
        "scheduled_at": NOON,
        "target_at": NOON,
        "attempt": 2,
        "max_attempts": 4,
        "idempotency_key": "k",
        "fence": 1,
        "payload": None,
    }
    return Attempt(run=JobRun(**(values | fields)), worker="w", started_at=NOON)


def test_facts_follow_the_constant_text() -> None:
    """So that a line can be searched for by its text, and read by machines."""
    line = FieldFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s").format(record(task_queues="horarium"))
    assert line == "2026-06-08T13:00:00.250Z INFO workers: worker is ready task_queues=horarium"


def test_a_traceback_follows_the_facts() -> None:
    """The first line stays whole."""
    try:
        raise ValueError("odd")
    except ValueError:
        made = record("failed", error=True, job_id="j")
    first, *rest = FieldFormatter("%(message)s").format(made).splitlines()
    assert first == "failed job_id=j"
    assert rest[-1] == "ValueError: odd"


def test_a_record_is_one_object_on_one_line() -> None:
    """Facts keep their types; an error has a member of its own."""
    try:
        raise ValueError("odd\nand long")
    except ValueError:
        made = record("failed", error=True, rows=3)
    line = read(made)
    traceback = line["error"].pop("traceback")
    assert line == {
        "time": "2026-06-08T13:00:00.250Z",
        "level": "info",
        "logger": "workers",
        "message": "failed",
        "rows": 3,
        "error": {"type": "ValueError", "message": "odd\nand long"},
    }
    assert traceback.startswith("Traceback")


@pytest.mark.parametrize("form", [FieldFormatter(), JsonFormatter()])
def test_whatever_is_logged_in_an_attempt_says_of_which_run(form: logging.Formatter) -> None:
    """By job code and by the libraries that it calls; what a call says itself goes first."""
    with entered(attempt_of()):
        line = form.format(record())
        assert all(fact in line.replace('": ', "=").replace('"', "") for fact in ("job_id=report", "run_id=report:1"))
        assert "attempt" in line
        assert read(record(job_id="mine"))["job_id"] == "mine"
    assert "job_id" not in form.format(record())


def test_what_the_library_logs_of_an_activity_says_of_which_run() -> None:
    """Temporal's own words for workflow, run and attempt mean other things, and are not taken for ours."""
    details = {
        "activity_id": "report:20260608T130000Z#3.0",
        "activity_type": "send_report",
        "attempt": 1,
        "workflow_id": "job/acme/report",
        "workflow_run_id": "0198",
        "workflow_type": "HorariumJob",
        "task_queue": "reports",
        "namespace": "default",
    }
    line = read(record("Completing activity as failed", temporal_activity=details))
    assert (line["tenant"], line["job_id"], line["run_id"], line["attempt"]) == (
        "acme",
        "report",
        "report:20260608T130000Z",
        3,
    )
    detached = details | {"workflow_id": "run/acme/report:manual-a:b"}
    assert read(record(temporal_workflow=detached | {"activity_id": None}))["run_id"] == "report:manual-a:b"


def test_a_line_in_a_span_says_in_which() -> None:
    """So that a log leads to its trace."""
    span = NonRecordingSpan(SpanContext(0xAB, 0xCD, is_remote=False, trace_flags=TraceFlags(1)))
    with trace.use_span(span):
        line = read(record())
    assert (line["trace_id"], line["span_id"]) == (f"{0xAB:032x}", f"{0xCD:016x}")


class Odd:
    """A value that cannot even be written."""

    def __str__(self) -> str:
        """Fail."""
        raise RuntimeError


@pytest.mark.parametrize(
    "value", [float("nan"), {("a", 1): 2}, b"\xff", "\ud800", NOON, {1, 2}, Odd(), [float("inf")], "line\nbreak"]
)
def test_any_value_can_be_logged(value: Any) -> None:
    """A log line never fails whoever writes it, and is JSON in every case."""
    assert read(record(value=value))["message"] == "worker is ready"


def test_a_fact_cannot_take_the_place_of_the_text() -> None:
    """Names that every line has keep their meaning."""
    line = read(record(level="mine", time="never", logger="other"))
    assert (line["level"], line["logger"], line["time"]) == ("info", "workers", "2026-06-08T13:00:00.250Z")


def test_the_secret_of_an_api_key_is_in_no_line() -> None:
    """Wherever it stands, the text of errors included; its id stays, so that the key can be revoked."""
    key, text = new_key()
    for formatter in (JsonFormatter(), FieldFormatter("%(message)s")):
        line = KeylessFormatter(formatter).format(record(f"sent {text}", header=f"Bearer {text}"))
        assert line.count(f"hrm_{key.key_id}_***") == 2
        assert text not in line
