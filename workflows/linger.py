"""How long a job that is told one thing after another stays awake for more before it sleeps the long way.

Whoever is on the way to a run that continues as new is sent away, and comes again after a pause that grows: a hundred commands
for one job would take a run each. Who is told a single thing goes back to sleep at once. Pure.
"""

from datetime import datetime, timedelta
from typing import Final

from workflows.job import JobState
from workflows.logic import has_fourth_rules

LINGER: Final = timedelta(seconds=2)
"""After the last of several commands. Those sent away come again within a second, or so."""


class Linger:
    """Knows when the last commands of a run came."""

    def __init__(self) -> None:
        self.look_at: datetime | None = None
        """When a job that stays awake looks whether it may sleep; may have passed. Not moved by each command, which would cost a
        timer."""

        self._until: datetime | None = None
        self._last_at: datetime | None = None

    def note_command(self, state: JobState, *, now: datetime) -> None:
        """Take notice of a command that has just come."""
        if not has_fourth_rules(state):
            return
        if self._last_at is not None and now - self._last_at <= LINGER:
            self._until = now + LINGER
        self._last_at = now

    def stay_awake(self, *, now: datetime) -> bool:
        """Say whether a job that could sleep now stays awake, because more may be on their way."""
        if self._until is None or self._until <= now:
            return False
        if self.look_at is None or self.look_at <= now:
            self.look_at = self._until
        return True
