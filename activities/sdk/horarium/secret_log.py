"""Hides the secrets of a run in what is logged while it is worked on: ``handler.setFormatter(HidingFormatter(formatter))``."""

import logging

from horarium.attempt import find_attempt


class HidingFormatter(logging.Formatter):
    """Writes records as another formatter does, less the values of the run's secrets, wherever in a record they were.

    For handlers that run in the code's own context, which those behind a queue do not.
    """

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
        text = self._formatter.format(record)
        attempt = find_attempt()
        return text if attempt is None else attempt.secrets.hide_in(text)
