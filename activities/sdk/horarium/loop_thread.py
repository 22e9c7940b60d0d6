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
        self._running: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None

    def submit(self, coroutine: Coroutine[Any, Any, Answer]) -> "Future[Answer]":
        """Run a coroutine there."""
        with self._lock:
            if self._running is None:
                self._running = self._start()
            return asyncio.run_coroutine_threadsafe(coroutine, self._running[0])

    def close(self, *, last: Callable[[], Awaitable[None]], within: timedelta) -> None:
        """Wait for what is under way, no longer than ``within``; cancel the rest, do ``last``, and end the thread.

        Nothing when it never started. What is submitted afterwards starts another thread.
        """
        with self._lock:
            running, self._running = self._running, None
        if running is None:
            return
        loop, thread = running
        try:
            asyncio.run_coroutine_threadsafe(_end(last, within), loop).result(2 * within.total_seconds())
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(within.total_seconds())

    def _start(self) -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_run, args=(loop,), name=self._name, daemon=True)
        thread.start()
        return loop, thread


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
