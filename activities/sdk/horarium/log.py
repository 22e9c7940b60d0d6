"""Loggers that say of which run they speak.

The fields are named as in the scheduler's own logs: ``tenant``, ``job_id``, ``run_id``, ``attempt``. Outside a run there are
none.
"""

import logging
from collections.abc import MutableMapping
from typing import Any

from horarium.attempt import find_attempt


def run_fields() -> dict[str, str | int]:
    """Say which run the current code works on; nothing outside a run."""
    attempt = find_attempt()
    if attempt is None:
        return {}
    run = attempt.run
    return {"tenant": run.tenant, "job_id": run.job_id, "run_id": run.run_id, "attempt": run.attempt}


class JobLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records carry the fields of the run, beside those given as ``extra``."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger, {})

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the fields. They win over an ``extra`` of the same name: one name means one thing in all logs."""
        return msg, {**kwargs, "extra": {**(kwargs.get("extra") or {}), **run_fields()}}


class RunFields(logging.Filter):
    """Adds the fields to whatever is logged while a run is worked on, by libraries too: ``handler.addFilter(RunFields())``.

    For handlers that run in the code's own context, which those behind a queue do not.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, with the fields that it does not have yet."""
        for name, value in run_fields().items():
            vars(record).setdefault(name, value)
        return True


def get_logger(name: str) -> JobLogger:
    """Get the logger of a module: ``logger = horarium.get_logger(__name__)``."""
    return JobLogger(logging.getLogger(name))


logger = get_logger("horarium.job")
"""For job code that needs no logger of its own."""
