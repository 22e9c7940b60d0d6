"""Entry point of a worker process: ``python -m workers``, settings from the environment."""

import asyncio
import logging
import os
import signal
import sys
from datetime import timedelta
from types import FrameType
from typing import Final, NoReturn

from temporalio.service import RPCError

from workers.connection import ServerTooOld
from workers.log import configure_logging
from workers.settings import EXIT_CODE, InvalidSettings, Settings, list_likely_typos, read_settings
from workers.worker import serve

logger = logging.getLogger("workers")

LAST_GRACE: Final = timedelta(seconds=5)
"""After the grace is over, for attempts that were cancelled to clean up. One that blocks its thread longer is left
behind, and is noticed by its heartbeats."""


def main() -> NoReturn:
    """Run a worker, and leave with its exit code."""
    try:
        settings = read_settings()
    except InvalidSettings as error:
        leave(EXIT_CODE, str(error))
    run(settings)


def run(settings: Settings) -> NoReturn:
    """Run a worker with these settings, and leave with its exit code: 0 after SIGTERM or SIGINT."""
    configure_logging(settings.log_level, form=settings.log_format)
    for typo in list_likely_typos(os.environ):
        logger.warning("a variable of the environment is no setting", extra={"problem": typo})
    try:
        asyncio.run(_serve_until_signalled(settings))
    except InvalidSettings as error:
        leave(EXIT_CODE, str(error))
    except ServerTooOld as error:
        leave(1, str(error))
    except RPCError as error:
        leave(1, f"Temporal refuses this worker: {error.status.name}: {error.message}")
    except Exception:
        logger.exception("worker failed")
        leave(1)
    leave(0)


def leave(code: int, message: str | None = None) -> NoReturn:
    """End the process with an exit code, all output written.

    Past the interpreter's own exit, which sometimes aborts in the Temporal library when all work is done.
    """
    if message is not None:
        print(message, file=sys.stderr)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def _serve_until_signalled(settings: Settings) -> None:
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


if __name__ == "__main__":
    main()
