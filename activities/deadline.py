"""A limit for work on a database that may hang.

Cancelling such work is not enough: closing a connection to a machine that no longer answers takes seconds by itself. So what runs
out of time is cancelled and left to end alone, and its caller goes on at once.
"""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, Final, TypeVar

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from workflows.error import Unavailable

Result = TypeVar("Result")


ENDED_WITHIN: Final = timedelta(seconds=5)
"""A task that is cancelled. Longer than a connection takes to close, unless the database hangs."""


async def end_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and wait until it has closed what it had open.

    Cancelled once more meanwhile, as the end of an event loop does to all tasks, closing a connection to SQLite never ends.
    """
    task.cancel()
    await asyncio.wait({task}, timeout=ENDED_WITHIN.total_seconds())


class Deadline:
    """Runs work for a limited time each."""

    def __init__(self, limit: timedelta) -> None:
        self._limit = limit.total_seconds()
        self._left_alone: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return what the work returns. Raises ``TimeoutError`` when the limit is over."""
        task = asyncio.create_task(work)
        try:
            await asyncio.wait({task}, timeout=self._limit)
        finally:
            if not task.done():
                self._leave_alone(task)
        if not task.done():
            raise TimeoutError
        return task.result()

    async def ask(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return what the work returns. Raises ``Unavailable`` when the database does not answer, for whatever reason."""
        try:
            return await self.run(work)
        except (DBAPIError, PoolTimeoutError, OSError, TimeoutError) as error:
            raise Unavailable("the database does not answer") from error

    async def close(self) -> None:
        """Wait for what was left alone."""
        await asyncio.gather(*self._left_alone, return_exceptions=True)

    def _leave_alone(self, task: asyncio.Task[Any]) -> None:
        self._left_alone.add(task)
        task.add_done_callback(self._forget)
        task.cancel()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._left_alone.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, or asyncio would complain
