"""Logs: one line an event, its text constant, its facts as ``name=value`` behind it."""

import logging
import sys
from datetime import UTC, datetime
from typing import Final

_OWN_ATTRIBUTES: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Of any log record. What else a record has was given as ``extra``."""

_SAID_TWICE: Final = frozenset(
    {"temporal_activity", "temporal_workflow", "__temporal_error_identifier", "color_message"}
)
"""What loggers of Temporal and uvicorn attach; they write it into their text as well."""


class FieldFormatter(logging.Formatter):
    """Writes the extra fields of a record behind its text."""

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
        text = super().format(record)
        fields = " ".join(f"{name}={value}" for name, value in vars(record).items() if _is_field(name))
        head, newline, trace = text.partition("\n")
        return f"{head} {fields}{newline}{trace}" if fields else text

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Write the time in UTC, as RFC 3339."""
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _is_field(name: str) -> bool:
    return name not in _OWN_ATTRIBUTES and name not in _SAID_TWICE


def configure_logging(level: str) -> None:
    """Send the logs of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FieldFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # One line a migration and more; ours says what matters.
    logging.getLogger("alembic").setLevel(logging.WARNING)
