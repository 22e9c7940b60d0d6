"""The clock that job code reads: the worker's, or in tests one that stands still until it is moved."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TypeAlias

Clock: TypeAlias = Callable[[], datetime]


def _read_worker_clock() -> datetime:
    return datetime.now(UTC)


_clock: ContextVar[Clock] = ContextVar("horarium_clock", default=_read_worker_clock)


def now() -> datetime:
    """Read the worker's clock, in UTC. Job code that asks here can be tested at any time of any day."""
    return _clock.get()()


@contextmanager
def reading(clock: Clock) -> Iterator[None]:
    """Let ``now()`` read another clock, in this context and in those copied from it."""
    token = _clock.set(clock)
    try:
        yield
    finally:
        _clock.reset(token)
