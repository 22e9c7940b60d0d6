"""Whether a call that failed is tried again, and after how long. Pure, but for ``Attempts``, which reads the clock and draws."""

import random
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from horarium.client.error import HorariumError, InProgress, QuotaExceeded, Unavailable, Unreachable

NO_WAIT: Final = timedelta(0)


@dataclass(frozen=True, kw_only=True)
class Retry:
    """How a client tries again.

    A call is repeated when that is safe and may help: there was no connection; the answer was lost or says that the API is
    unavailable, and the call can be repeated; the API says when to come back. The wait is drawn between nothing and a bound that
    doubles each time (full jitter), on top of what ``Retry-After`` asks for.
    """

    attempts: int = 5
    """In all. 1: nothing is tried again."""

    base: timedelta = timedelta(seconds=0.2)
    """Bound of the first wait."""

    cap: timedelta = timedelta(seconds=10)
    """Bound of all waits."""

    deadline: timedelta = timedelta(seconds=120)
    """Of the whole call: no attempt begins later, and none gets more time than is left."""


NO_RETRY: Final = Retry(attempts=1)


def decide_wait(
    retry: Retry, error: HorariumError, *, made: int, is_repeatable: bool, left: timedelta, draw: float
) -> timedelta | None:
    """Say how long to wait before the next attempt; ``None`` where there is none.

    ``made`` attempts were made, the last of which failed with ``error``; ``left`` is what remains until the deadline, and
    ``draw`` lies in [0, 1).
    """
    if made >= retry.attempts or not _may_help(error, is_repeatable=is_repeatable):
        return None
    asked = getattr(error, "retry_after", None) or NO_WAIT
    # Later the cap has long taken over, and no span would be long enough.
    bound = min(retry.cap, retry.base * 2 ** min(made - 1, 20))
    wait: timedelta = asked + bound * draw
    return wait if wait < left else None


def _may_help(error: HorariumError, *, is_repeatable: bool) -> bool:
    match error:
        case Unreachable(was_sent=was_sent):
            return is_repeatable or not was_sent
        case Unavailable():
            return is_repeatable
        case QuotaExceeded(retry_after=asked):
            # A quota of the tenant says no time: waiting makes it no larger.
            return asked is not None
        case InProgress():
            return True
        case _:
            return False


class Attempts:
    """The attempts of one call."""

    def __init__(self, retry: Retry, *, is_repeatable: bool) -> None:
        self._retry = retry
        self._is_repeatable = is_repeatable
        self._made = 0
        self._end = time.monotonic() + retry.deadline.total_seconds()

    def left(self) -> timedelta:
        """Say how much time there is."""
        return max(timedelta(seconds=self._end - time.monotonic()), NO_WAIT)

    def wait_after(self, error: HorariumError) -> timedelta | None:
        """Count an attempt that failed, and say how long to wait before the next; ``None``: the error is the call's."""
        self._made += 1
        return decide_wait(
            self._retry,
            error,
            made=self._made,
            is_repeatable=self._is_repeatable,
            left=self.left(),
            draw=random.random(),
        )
