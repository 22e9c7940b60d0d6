"""How long a job that is told one thing after another stays awake for more.

Whoever is on the way to a run that continues as new is sent away, and comes again after a pause that grows: a hundred commands
for one job that sleeps the long way would take a run each. Who is told a single thing goes back to sleep at once. Pure.
"""

from datetime import datetime, timedelta
from typing import Final

LINGER: Final = timedelta(seconds=2)
"""After the last of several commands. Those sent away come again within a second, or so."""


class Linger:
    """Knows when the last commands of a run came."""

    def __init__(self) -> None:
        self.until: datetime | None = None
        """Until when the job stays awake; may have passed."""

        self._last_at: datetime | None = None

    def note_commands(self, count: int, *, now: datetime) -> None:
        """Take notice of commands that are carried out now."""
        if not count:
            return
        if count > 1 or (self._last_at is not None and now - self._last_at <= LINGER):
            self.until = now + LINGER
        self._last_at = now

    def lasts(self, *, now: datetime) -> bool:
        """Say whether more may be on their way."""
        return self.until is not None and now < self.until
