"""Hides the secrets of a run in what is logged while it is worked on: ``handler.addFilter(HideSecrets())``."""

import logging

from horarium.attempt import find_attempt
from horarium.secret import Secrets


class HideSecrets(logging.Filter):
    """For handlers that run in the code's own context, which those behind a queue do not."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, less the values of the run's secrets: in its text, its fields and its traceback."""
        if (attempt := find_attempt()) is not None:
            _hide(attempt.secrets, record)
        return True


def _hide(secrets: Secrets, record: logging.LogRecord) -> None:
    text = record.getMessage()
    if (hidden := secrets.hide_in(text)) != text:
        record.msg, record.args = hidden, ()
    for name, value in vars(record).items():
        if isinstance(value, str) and name not in ("msg", "name"):
            setattr(record, name, secrets.hide_in(value))
    if record.exc_info:
        # Formatters take what is there.
        trace = record.exc_text or logging.Formatter().formatException(record.exc_info)
        record.exc_text = secrets.hide_in(trace)
