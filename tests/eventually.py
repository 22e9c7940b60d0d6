"""Waiting in tests: for something to become true, within a limit, and never for a fixed time."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar, overload

Seen = TypeVar("Seen")

LIMIT = timedelta(seconds=40)
"""Far more than anything takes on an idle machine: it is reached by what fails, and a busy machine is no failure."""

LOOK_EVERY = timedelta(milliseconds=50)

LOOK_LATER_EVERY = timedelta(milliseconds=250)
"""The longest pause by itself. Most looks are requests that keep several processes busy, beside what they wait for."""


@overload
async def eventually(
    look: Callable[[], Awaitable[Seen]], *, limit: timedelta = LIMIT, every: timedelta = LOOK_EVERY
) -> Seen: ...


@overload
async def eventually(look: Callable[[], Seen], *, limit: timedelta = LIMIT, every: timedelta = LOOK_EVERY) -> Seen: ...


async def eventually(look: Callable[[], Any], *, limit: timedelta = LIMIT, every: timedelta = LOOK_EVERY) -> Any:
    """Look until what is seen is true, and return it. Raises ``AssertionError`` with what was seen last.

    A look that raises ``AssertionError`` has not seen it yet. The longer it takes, the rarer are the looks.
    """
    started = asyncio.get_running_loop().time()
    deadline = started + limit.total_seconds()
    while True:
        try:
            seen = look()
            value = await seen if inspect.isawaitable(seen) else seen
            problem = None if value else AssertionError(f"still {value!r} after {limit}")
        except AssertionError as error:
            problem = error
        if problem is None:
            return value
        now = asyncio.get_running_loop().time()
        if now > deadline:
            raise problem
        await asyncio.sleep(_pause(now - started, shortest=every).total_seconds())


def _pause(waited: float, *, shortest: timedelta) -> timedelta:
    """A tenth of what was waited, so that nobody waits much longer than there was to wait."""
    return max(shortest, min(LOOK_LATER_EVERY, timedelta(seconds=waited) / 10))
