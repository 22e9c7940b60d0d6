"""How long a job stays awake before it sleeps the long way: when it is told one thing after another, and amid a crowd of fires.

Whoever is on the way to a run that continues as new is sent away, and comes again after a pause that grows: a hundred commands
for one job would take a run each. Who is told a single thing goes back to sleep at once.

To go to sleep costs as much as to fire. Where many jobs are due at one instant, what became of their fires comes first. Pure.
"""

from datetime import datetime, timedelta
from typing import Final

from workflows.job import JobState
from workflows.logic import has_fourth_rules
from workflows.spread import share_of
from workflows.wake import first_planned

LINGER: Final = timedelta(seconds=2)
"""After the last of several commands. Those sent away come again within a second, or so."""


CROWDED: Final = timedelta(seconds=0.5)
"""A fire that comes as late as this, or later, is taken for one of many."""

AFTER_CROWD: Final = timedelta(seconds=10)
"""How long after such a fire a job stays awake at least, by a hash of its id up to twice as long. The later the fire came, the
larger the crowd: four times as long as it was late is added before that, ``LARGEST_CROWD`` at most."""

LARGEST_CROWD: Final = timedelta(minutes=1)
"""Where fires come later than a quarter of that, workers were away."""


class Linger:
    """Knows for how long a run stays awake."""

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
            self._stay_until(now + LINGER)
        self._last_at = now

    def note_fire(self, state: JobState, fire: datetime, *, now: datetime) -> None:
        """Take notice that the fire which a job was woken ahead of is due, and carried out now if nothing is in its way."""
        first, late = first_planned(state), now - fire
        is_carried_out = first is not None and first.target == fire and not state.active
        if is_carried_out and late >= CROWDED:
            self._stay_until(now + (min(late * 4, LARGEST_CROWD) + AFTER_CROWD) * (1 + share_of(state.job_id)))

    def stay_awake(self, *, now: datetime) -> bool:
        """Say whether a job that could sleep now stays awake, because more may be on their way."""
        if self._until is None or self._until <= now:
            return False
        if self.look_at is None or self.look_at <= now:
            self.look_at = self._until
        return True

    def _stay_until(self, at: datetime) -> None:
        self._until = at if self._until is None else max(self._until, at)
