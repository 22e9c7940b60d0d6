"""A worker that works until it is told to stop by a signal, and then lets its attempts end."""

import asyncio
import logging
import signal
from datetime import timedelta
from types import FrameType
from typing import Final, NoReturn

from workers.process import leave
from workers.settings import Settings
from workers.worker import serve

logger = logging.getLogger(__name__)

LAST_GRACE: Final = timedelta(seconds=5)
"""After the grace is over, for attempts that were cancelled to clean up. One that blocks its thread longer is left
behind, and is noticed by its heartbeats."""


async def serve_until_signalled(settings: Settings) -> None:
    """Be a worker until SIGTERM or SIGINT. The second signal ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ask_to_stop() -> None:
        stop.set()
        limit = settings.graceful_shutdown + LAST_GRACE
        loop.call_later(limit.total_seconds(), _give_up)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, _leave_at_once)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask_to_stop)
    await serve(settings, stop=stop)


def _leave_at_once(number: int, _: FrameType | None) -> NoReturn:
    """Obey the second signal."""
    leave(128 + number, "stopped at once; attempts that were running are noticed by their heartbeats")


def _give_up() -> NoReturn:
    logger.warning("some attempts did not end; they are noticed by their heartbeats")
    leave(0)
