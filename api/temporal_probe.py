"""Cheap questions to Temporal: does it answer, and does anybody poll a queue.

Answers are kept for a few seconds, so that a page of reads costs one question, and none takes longer than
``PATIENCE``. Never raises: not knowing is an answer.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, Generic, TypeVar

from temporalio.client import Client
from temporalio.service import RPCError

from activities.observation import is_polled

PATIENCE: Final = timedelta(milliseconds=700)
REMEMBERED: Final = timedelta(seconds=3)

QUEUES_REMEMBERED: Final = 1_000

Fact = TypeVar("Fact")


class _Remembered(Generic[Fact]):
    """One fact and when it was learned. Callers that come while it is being asked share the answer."""

    def __init__(self, ask: Callable[[], Awaitable[Fact]]) -> None:
        self._ask = ask
        self._known_until = 0.0
        self._asking: asyncio.Task[Fact] | None = None

    async def get(self) -> Fact:
        if self._asking is None or (self._asking.done() and time.monotonic() > self._known_until):
            self._asking = asyncio.ensure_future(self._ask_and_remember())
        return await asyncio.shield(self._asking)

    async def _ask_and_remember(self) -> Fact:
        fact = await self._ask()
        self._known_until = time.monotonic() + REMEMBERED.total_seconds()
        return fact


class TemporalProbe:
    """What is known of one namespace."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._reachable = _Remembered(self._ask_whether_reachable)
        self._polled: dict[str, _Remembered[bool | None]] = {}

    async def is_reachable(self) -> bool:
        """Say whether Temporal answers."""
        return await self._reachable.get()

    async def is_polled(self, task_queue: str) -> bool | None:
        """Say whether any worker polls a queue for activities; ``None`` when Temporal does not say."""
        if len(self._polled) >= QUEUES_REMEMBERED:
            self._polled.clear()
        queue = self._polled.setdefault(task_queue, _Remembered(lambda: self._ask_whether_polled(task_queue)))
        return await queue.get()

    async def _ask_whether_reachable(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                return await self._client.service_client.check_health(timeout=PATIENCE)
        except (RPCError, RuntimeError, TimeoutError):
            return False

    async def _ask_whether_polled(self, task_queue: str) -> bool | None:
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                return await is_polled(self._client, task_queue)
        except (RPCError, RuntimeError, TimeoutError):
            return None
