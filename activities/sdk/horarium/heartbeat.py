"""Heartbeats on behalf of job code, so that a dead worker is noticed and a cancellation arrives.

Each carries the attempt's report, which is how started time, worker and checkpoint outlive the worker.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import copy_context
from datetime import timedelta
from typing import Final

from temporalio import activity

from horarium.attempt import Attempt

LONGEST_PAUSE: Final = timedelta(seconds=5)
"""A cancellation arrives with a heartbeat, so this bounds how late it arrives. Each one costs the server a write."""

FIRST_PAUSE: Final = timedelta(milliseconds=500)
"""Attempts shorter than this send none: most jobs are short, and one heartbeat took a fire from 6.0 writes of workflow
state in the server to 7.4."""


def next_pause(heartbeat_timeout: timedelta | None) -> timedelta:
    """Say how often to heartbeat: thrice in a timeout, so that one lost message does not matter."""
    if heartbeat_timeout is None:
        return LONGEST_PAUSE
    return min(LONGEST_PAUSE, heartbeat_timeout / 3)


@asynccontextmanager
async def heartbeating(attempt: Attempt) -> AsyncIterator[None]:
    """Heartbeat from a task of the event loop while the body runs."""
    loop, wake = asyncio.get_running_loop(), asyncio.Event()
    pause = next_pause(activity.info().heartbeat_timeout)

    def wake_up() -> None:
        loop.call_soon_threadsafe(wake.set)

    async def beat() -> None:
        await _wait(wake, min(FIRST_PAUSE, pause))
        while True:
            activity.heartbeat(attempt.report().to_json())
            await _wait(wake, pause)

    attempt.on_checkpoint = wake_up
    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()


async def _wait(wake: asyncio.Event, pause: timedelta) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(wake.wait(), pause.total_seconds())
    wake.clear()


@contextmanager
def heartbeating_from_thread(attempt: Attempt) -> Iterator[None]:
    """Heartbeat from a thread of its own while the body, which blocks this one, runs."""
    wake, stop = threading.Event(), threading.Event()
    attempt.on_checkpoint = wake.set
    pause = next_pause(activity.info().heartbeat_timeout)

    def beat() -> None:
        wake.wait(min(FIRST_PAUSE, pause).total_seconds())
        while not stop.is_set():
            wake.clear()
            _send(attempt)
            wake.wait(pause.total_seconds())

    def end() -> None:
        stop.set()
        wake.set()

    threading.Thread(target=copy_context().run, args=(beat,), name="horarium-heartbeat", daemon=True).start()
    try:
        try:
            yield
        finally:
            end()
    finally:
        # Temporal raises its cancellation into this thread at any instruction, once: also inside the `end()` above.
        end()


def _send(attempt: Attempt) -> None:
    try:
        activity.heartbeat(attempt.report().to_json())
    except Exception:
        # The event loop was busy for ten seconds, or the worker is closing. The next one may pass; if none does, the
        # server notices by itself.
        activity.logger.warning("A heartbeat could not be sent", exc_info=True)
