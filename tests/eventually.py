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


@overload
async def eventually(
    look: Callable[[], Awaitable[Seen]], *, limit: timedelta = LIMIT, every: timedelta = LOOK_EVERY
) -> Seen: ...


@overload
async def eventually(look: Callable[[], Seen], *, limit: timedelta = LIMIT, every: timedelta = LOOK_EVERY) -> Seen: ...


async def eventually(look: Callable[[], Any], *, limit: timedelta = LIMIT, every: timedelta = LOOK_EVERY) -> Any:
    """Look until what is seen is true, and return it. Raises ``AssertionError`` with what was seen last.

    A look that raises ``AssertionError`` has not seen it yet.
    """
    deadline = asyncio.get_running_loop().time() + limit.total_seconds()
    while True:
        try:
            seen = look()
            value = await seen if inspect.isawaitable(seen) else seen
            problem = None if value else AssertionError(f"still {value!r} after {limit}")
        except AssertionError as error:
            problem = error
        if problem is None:
            return value
        if asyncio.get_running_loop().time() > deadline:
            raise problem
        await asyncio.sleep(every.total_seconds())
