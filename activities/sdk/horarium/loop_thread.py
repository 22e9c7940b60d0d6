"""An event loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class LoopThread:
    """Starts when it is given something to do. Usable from any thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, coroutine: Coroutine[Any, Any, Answer]) -> "Future[Answer]":
        """Run a coroutine there."""
        with self._lock:
            if self._loop is None:
                self._loop = self._start()
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self, *, last: Callable[[], Awaitable[None]], within: timedelta) -> None:
        """Wait for what is under way, no longer than ``within``; cancel the rest, do ``last``, and end the thread.

        Nothing when it never started. What is submitted afterwards starts another thread.
        """
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(_end(last, within), loop).result(2 * within.total_seconds())
        finally:
            loop.call_soon_threadsafe(loop.stop)

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        threading.Thread(target=_run, args=(loop,), name=self._name, daemon=True).start()
        return loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _end(last: Callable[[], Awaitable[None]], within: timedelta) -> None:
    running = asyncio.all_tasks() - {asyncio.current_task()}
    if running:
        _, late = await asyncio.wait(running, timeout=within.total_seconds())
        for task in late:
            task.cancel()
    await last()
