"""A durable timer that can be moved."""

import asyncio
from collections.abc import Callable
from datetime import datetime

from temporalio import workflow


class Alarm:
    """Rings at a time. Setting it to the same time again leaves the timer in the history alone."""

    def __init__(self, ring: Callable[[], None], *, name: str) -> None:
        self._ring = ring
        self._name = name
        """What it is for, as the Web UI shows its timers."""

        self._at: datetime | None = None
        self._task: asyncio.Task[None] | None = None

    def set(self, at: datetime | None) -> None:
        """Ring at ``at``, or never; a time that has come rings at once."""
        if at == self._at:
            return
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._at = at
        if at is not None:
            self._task = asyncio.create_task(self._wait_until(at))

    async def _wait_until(self, at: datetime) -> None:
        await workflow.sleep(max(0.0, (at - workflow.now()).total_seconds()), summary=self._name)
        self._at = None
        self._task = None
        self._ring()
