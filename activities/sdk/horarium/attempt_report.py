"""What a worker tells about one attempt: the envelope of a result, of a failure's details and of a heartbeat.

This is wire format, as ``JobRun`` is: plain JSON, new members have defaults, none is ever renamed or reused. Pure, and
free of Temporal, because the scheduler's workflows read it too. Workers in other languages may answer without an
envelope; such an answer is the bare result.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pydantic import ConfigDict, JsonValue

REPORT_MARK: Final = "horarium"
"""The member that tells a report from any other JSON object."""

REPORT_FORMAT: Final = "attempt/1"

_FORMAT_FAMILY: Final = "attempt/"
"""Later formats only add members, so a reader takes them all."""


HTTP_STATUSES: Final = range(100, 600)


@dataclass(frozen=True, kw_only=True)
class AttemptReport:
    """What one attempt has come to, so far or in the end."""

    __pydantic_config__ = ConfigDict(use_attribute_docstrings=True)

    started_at: datetime
    """When the worker began it, by the worker's clock, in UTC."""

    worker: str
    """Identity of the Temporal worker that had it."""

    result: JsonValue = None
    """What the job's code returned; ``None`` in failures and heartbeats."""

    error_types: tuple[str, ...] = ()
    """Qualified names of a failure's class and its base classes, nearest first; empty in results and heartbeats."""

    http_status: int | None = None
    """Of the HTTP answer that the attempt failed with, if it was one."""

    checkpoint: JsonValue = None
    """What the run has saved by now: the checkpoint given to the attempt until the attempt replaces it."""

    def to_json(self) -> dict[str, JsonValue]:
        """Write the report as a JSON object."""
        failed: dict[str, JsonValue] = {}
        if self.error_types:
            failed["error_types"] = [*self.error_types]
        if self.http_status is not None:
            failed["http_status"] = self.http_status
        return {
            REPORT_MARK: REPORT_FORMAT,
            "started_at": self.started_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
            "worker": self.worker,
            "result": self.result,
            "checkpoint": self.checkpoint,
            **failed,
        }


def parse_attempt_report(value: JsonValue) -> AttemptReport | None:
    """Read a report, or answer ``None`` for a value that is none: a bare result or a foreign heartbeat."""
    if not isinstance(value, dict):
        return None
    form, started_at, worker = value.get(REPORT_MARK), value.get("started_at"), value.get("worker")
    if not isinstance(form, str) or not form.startswith(_FORMAT_FAMILY):
        return None
    if not isinstance(started_at, str) or not isinstance(worker, str):
        return None
    started = _parse_instant(started_at)
    if started is None:
        return None
    return AttemptReport(
        started_at=started,
        worker=worker,
        result=value.get("result"),
        checkpoint=value.get("checkpoint"),
        error_types=_parse_names(value.get("error_types")),
        http_status=_parse_status(value.get("http_status")),
    )


def _parse_names(value: JsonValue) -> tuple[str, ...]:
    return tuple(name for name in value if isinstance(name, str)) if isinstance(value, list) else ()


def _parse_status(value: JsonValue) -> int | None:
    return value if isinstance(value, int) and value in HTTP_STATUSES else None


def _parse_instant(text: str) -> datetime | None:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return instant.astimezone(UTC) if instant.tzinfo else None
