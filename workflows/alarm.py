"""A durable timer that can be moved."""

import asyncio
from collections.abc import Callable, Collection
from datetime import datetime

from temporalio import workflow


class Alarm:
    """Rings at given times. Setting it again leaves the timers of times that stay in the history alone."""

    def __init__(self, ring: Callable[[], None], *, name: str) -> None:
        self._ring = ring
        self._name = name
        """What it is for, as the Web UI shows its timers."""

        self._waits: dict[datetime, asyncio.Task[None]] = {}

    def set(self, times: Collection[datetime]) -> None:
        """Ring at each of these, and at no other; a time that has come rings at once."""
        for at in [each for each in self._waits if each not in times]:
            self._waits.pop(at).cancel()
        for at in times:
            if at not in self._waits:
                self._waits[at] = asyncio.create_task(self._wait_until(at))

    async def _wait_until(self, at: datetime) -> None:
        await workflow.sleep(max(0.0, (at - workflow.now()).total_seconds()), summary=self._name)
        del self._waits[at]
        self._ring()
