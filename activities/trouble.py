"""What goes wrong in work that is done again and again, and must not end it.

A task that nobody waits for ends at its first error, and nobody hears of it. Where ``Trouble`` survives the error, the work goes
on, and the log has it: once when it is new, and then now and then for as long as it is the same.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from workflows.error import HorariumError

TOLD_AGAIN_AFTER: Final = timedelta(minutes=10)
"""For what goes wrong every few seconds."""

REMEMBERED: Final = 1_000
"""Troubles, each by its text, its kind of error, and what it is about."""


class Trouble:
    """Lets the work of one task go on. ``expected`` errors are told in a line, others with their traceback."""

    def __init__(self, logger: logging.Logger, *, expected: type[Exception] = HorariumError) -> None:
        self._logger = logger
        self._expected = expected
        self._quiet_until: dict[tuple[str, ...], float] = {}

    @contextmanager
    def survived(self, text: str, **about: str) -> Iterator[None]:
        """Let the block fail, whatever with, and log ``text`` then."""
        try:
            yield
        except Exception as error:  # a bug in one round is no reason to do without all others
            if self._is_due(text, type(error).__name__, *about.values()):
                facts = {**about, "error": str(error)}
                if isinstance(error, self._expected):
                    self._logger.warning(text, extra=facts)
                else:
                    self._logger.error(text, exc_info=error, extra=facts)

    def _is_due(self, *kind: str) -> bool:
        now = time.monotonic()
        if now < self._quiet_until.get(kind, now):
            return False
        if len(self._quiet_until) >= REMEMBERED:
            self._quiet_until.clear()
        self._quiet_until[kind] = now + TOLD_AGAIN_AFTER.total_seconds()
        return True
