"""How a log line looks."""

import logging
import sys

from workers.log import FieldFormatter


def test_facts_follow_the_constant_text() -> None:
    """So that a line can be searched for by its text, and read by machines."""
    record = logging.LogRecord("workers", logging.INFO, "f.py", 1, "worker is ready", None, None)
    record.created = 1_780_923_600.25
    record.task_queues = "horarium"
    line = FieldFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s").format(record)
    assert line == "2026-06-08T13:00:00.250Z INFO workers: worker is ready task_queues=horarium"


def test_a_traceback_follows_the_facts() -> None:
    """The first line stays whole."""
    try:
        raise ValueError("odd")
    except ValueError:
        record = logging.LogRecord("workers", logging.ERROR, "f.py", 1, "failed", None, sys.exc_info())
    record.job_id = "j"
    first, *rest = FieldFormatter("%(message)s").format(record).splitlines()
    assert first == "failed job_id=j"
    assert rest[-1] == "ValueError: odd"
