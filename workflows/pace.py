"""How many may go at once: places in time, handed out by one process.

Pure, with explicit time. A ``Pace`` spreads starts evenly. A ``Parking`` spreads the return of runs that wait for a downstream,
so that fifty thousand of them are no second outage: each comes at a place of its own, and is let through at the rate.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)

PROBE_TAKES: Final = timedelta(seconds=5)
"""The first of those that wait tries the downstream; so much later the others come, and mostly find that it is well."""

TOLERANCE: Final = timedelta(milliseconds=500)
"""Timers are not exact: runs may come so much before their turn without being sent away."""

FORGOTTEN_AFTER: Final = timedelta(minutes=1)
"""A run that has not come so long after its place was cancelled, or comes to another process."""

LOOK_EVERY: Final = timedelta(seconds=10)
"""Between two looks for places that nobody has taken."""


@dataclass(kw_only=True)
class Pace:
    """Places for starts: as they come within a burst, else evenly (the generic cell rate algorithm)."""

    rate: float
    """Starts a second."""

    burst: float = 0
    """Starts that need not wait, after a quiet time."""

    next_at: datetime = LONG_AGO
    """When the next would start if all were spread evenly."""

    def take_place(self, *, now: datetime) -> datetime:
        """Take the next place; ``now`` says that it is free at once."""
        due = max(self.next_at, now)
        self.next_at = due + timedelta(seconds=1 / self.rate)
        return now if self._is_free(due, now=now) else due

    def take_free_place(self, *, now: datetime) -> bool:
        """Take the next place if it is free at once; says whether it was."""
        is_free = self._is_free(self.next_at, now=now)
        if is_free:
            self.take_place(now=now)
        return is_free

    def _is_free(self, due: datetime, *, now: datetime) -> bool:
        return due - now <= timedelta(seconds=self.burst / self.rate)


@dataclass(kw_only=True)
class Places:
    """Places that runs hold, until they come or nobody waits for them any more."""

    of_runs: dict[str, datetime] = field(default_factory=dict)
    looked_at: datetime = LONG_AGO

    def __len__(self) -> int:
        return len(self.of_runs)

    def give(self, run_id: str, at: datetime, *, now: datetime) -> datetime:
        """Give a run a place, instead of the one that it may have had."""
        if now - self.looked_at >= LOOK_EVERY:
            self.looked_at = now
            self.forget(until=now - FORGOTTEN_AFTER)
        self.of_runs[run_id] = at
        return at

    def take(self, run_id: str) -> bool:
        """Take the place of a run; says whether it had one."""
        return self.of_runs.pop(run_id, None) is not None

    def are_awaited(self, *, now: datetime) -> bool:
        """Say whether a run may still come for its place."""
        return any(now - due < FORGOTTEN_AFTER for due in self.of_runs.values())

    def forget(self, *, until: datetime) -> None:
        """Give up the places up to a moment, itself included."""
        self.of_runs = {held: due for held, due in self.of_runs.items() if due > until}


@dataclass(kw_only=True)
class Parking:
    """Runs that wait for a downstream which is left alone."""

    rate: float
    """Runs that return a second, at most."""

    places: Places = field(default_factory=Places)
    _pace: Pace = field(init=False)
    _queue: Pace = field(init=False)
    _first_at: datetime = LONG_AGO

    def __post_init__(self) -> None:
        self._pace = Pace(rate=self.rate, burst=self.rate * TOLERANCE.total_seconds())
        self._queue = Pace(rate=self.rate)

    def __len__(self) -> int:
        return len(self.places)

    def park_until_probed(self, run_id: str, *, open_until: datetime, now: datetime) -> datetime:
        """Say when a run comes back that found the breaker open: the first of them when a probe is due, the others behind."""
        self._forget_old_queue(now=now)
        if open_until > self._first_at:
            self._first_at = open_until
            return self.places.give(run_id, open_until, now=now)
        return self._queue_up(run_id, since=self._first_at + PROBE_TAKES, now=now)

    def park_after_probe(self, run_id: str, *, open_until: datetime, now: datetime) -> datetime:
        """Say when the run comes back that has tried in vain: behind one other, for it may be the run that is at fault."""
        self._forget_old_queue(now=now)
        return self.places.give(run_id, max(open_until, now) + PROBE_TAKES, now=now)

    def park_again(self, run_id: str, *, now: datetime) -> datetime:
        """Say when a run comes back that came too soon after others."""
        self._forget_old_queue(now=now)
        return self._queue_up(run_id, since=now, now=now)

    def may_return(self, run_id: str, *, now: datetime) -> bool:
        """Let a run through, unless others have used up the rate of this moment."""
        is_free = self._pace.take_free_place(now=now)
        if is_free:
            self.places.take(run_id)
        return is_free

    def _queue_up(self, run_id: str, *, since: datetime, now: datetime) -> datetime:
        return self.places.give(run_id, self._queue.take_place(now=max(since, now)), now=now)

    def _forget_old_queue(self, *, now: datetime) -> None:
        if not self.places:
            self._queue.next_at = LONG_AGO
