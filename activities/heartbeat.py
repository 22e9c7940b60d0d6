"""Heartbeats of our own activities that wait for others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from temporalio import activity

BEAT_EVERY: Final = timedelta(seconds=3)
"""What an activity does is done again soon after its worker has died."""


@asynccontextmanager
async def heartbeating() -> AsyncIterator[None]:
    """Heartbeat while the body waits. What is quick sends none."""

    async def beat() -> None:
        while True:
            await asyncio.sleep(BEAT_EVERY.total_seconds())
            activity.heartbeat()

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
