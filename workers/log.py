"""Logs: one line an event, its text constant, its facts beside it. For people as ``name=value``, for machines as JSON.

A fact has one name in logs, spans and metrics: ``tenant``, ``job_id``, ``run_id``, ``attempt``. Whatever is logged while an
attempt is worked on carries them, by job code and by libraries too, and ``trace_id`` and ``span_id`` where there is a span.
"""

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from opentelemetry import trace
from temporalio import activity, workflow

from activities.api_key import hide_keys
from horarium.log import run_fields
from horarium.secret_log import HidingFormatter
from workers.settings import LogFormat
from workers.temporal_name import names_in_activity_id, names_in_workflow_id

_OWN_ATTRIBUTES: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Of any log record. What else a record has was given as ``extra``."""

_NO_FIELDS: Final = frozenset({"temporal_log", "__temporal_error_identifier", "color_message"})
"""What loggers of Temporal and uvicorn attach beside facts, or write into their text as well."""

Fields: TypeAlias = dict[str, Any]


class FieldFormatter(logging.Formatter):
    """Writes the facts of a record behind its text."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
        head, newline, traceback = super().format(record).partition("\n")
        facts = " ".join(f"{name}={value}" for name, value in fields_of(record).items())
        return f"{head} {facts}{newline}{traceback}" if facts else f"{head}{newline}{traceback}"

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Write the time in UTC, as RFC 3339."""
        return _time_of(record)


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON: ``time``, ``level``, ``logger``, ``message``, its facts, and any ``error``."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record, whatever it holds."""
        line = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        facts = {name: value for name, value in fields_of(record).items() if name not in line}
        error = self._error_of(record)
        return _to_json(line | facts | ({} if error is None else {"error": error}))

    def _error_of(self, record: logging.LogRecord) -> Fields | None:
        if not record.exc_info or record.exc_info[1] is None:
            return None
        raised = record.exc_info[1]
        return {
            "type": type(raised).__name__,
            "message": str(raised),
            "traceback": self.formatException(record.exc_info),
        }


class KeylessFormatter(logging.Formatter):
    """Writes records as another formatter does, less the secrets of API keys, whoever put them into a text."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
        return hide_keys(self._formatter.format(record))


def configure_logging(level: str, *, form: LogFormat = "text") -> None:
    """Send the logs of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    text = FieldFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(KeylessFormatter(HidingFormatter(JsonFormatter() if form == "json" else text)))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # These loggers write what they know into the text as well, which then is a different one each time.
    activity.logger.activity_info_on_message = False
    workflow.logger.workflow_info_on_message = False
    # One line a migration and more; ours says what matters.
    logging.getLogger("alembic").setLevel(logging.WARNING)


def fields_of(record: logging.LogRecord) -> Fields:
    """List the facts of a record, those that say of which run it speaks first."""
    given = {name: value for name, value in vars(record).items() if name not in _OWN_ATTRIBUTES | _NO_FIELDS}
    of_activity, of_workflow = given.pop("temporal_activity", None), given.pop("temporal_workflow", None)
    of_temporal = _temporal_fields(of_activity or of_workflow or {})
    of_core = getattr(getattr(record, "temporal_log", None), "fields", {})
    return of_temporal | run_fields() | dict(_span_fields()) | dict(of_core) | given


def _temporal_fields(details: Mapping[str, Any]) -> Fields:
    """Read what a logger of Temporal attaches. Its own ``run_id`` and ``attempt`` are of the engine and mean other things."""
    told = {
        name: details[name]
        for name in ("activity_type", "workflow_type", "workflow_id", "task_queue")
        if details.get(name) is not None
    }
    of_workflow = names_in_workflow_id(details.get("workflow_id") or "")
    of_activity = names_in_activity_id(details.get("activity_id") or "")
    return of_workflow | of_activity | told


def _span_fields() -> Iterator[tuple[str, str]]:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        yield "trace_id", trace.format_trace_id(context.trace_id)
        yield "span_id", trace.format_span_id(context.span_id)


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _to_json(line: Fields) -> str:
    """Write JSON in ASCII, so that any text fits any reader; what JSON does not know is spelled out."""
    try:
        return json.dumps(line, default=str, allow_nan=False)
    except Exception:  # whatever a stranger's value does
        return json.dumps({name: _spelled_out(value) for name, value in line.items()})


def _spelled_out(value: object) -> str:
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"
