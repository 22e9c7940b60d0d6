"""The frame of a process of ours: from its settings to its exit code. The same for workers and the API.

Exit codes: 0 after SIGTERM or SIGINT, 2 for a wrong setting, with one line that names it, and 1 for everything else.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from typing import NoReturn, TypeAlias

import uvloop
from temporalio.service import RPCError

from workers.connection import ServerTooOld
from workers.log import configure_logging
from workers.settings import EXIT_CODE, InvalidSettings, Settings, list_likely_typos, read_settings

logger = logging.getLogger(__name__)

Serve: TypeAlias = Callable[[Settings], Coroutine[None, None, None]]
"""Works until the process is told to stop."""


def settings_of_environment() -> Settings:
    """Read the settings, or leave with the reason."""
    try:
        return read_settings()
    except InvalidSettings as error:
        leave(EXIT_CODE, str(error))


def run_process(settings: Settings, serve: Serve) -> NoReturn:
    """Serve with these settings, and leave with the exit code that says how it ended."""
    configure_logging(settings.log_level, form=settings.log_format)
    for typo in list_likely_typos(os.environ):
        logger.warning("a variable of the environment is no setting", extra={"problem": typo})
    try:
        _run_quickly(serve(settings))
    except InvalidSettings as error:
        leave(EXIT_CODE, str(error))
    except ServerTooOld as error:
        leave(1, str(error))
    except RPCError as error:
        leave(1, f"Temporal refuses this process: {error.status.name}: {error.message}")
    except Exception:
        logger.exception("the process failed")
        leave(1)
    leave(0)


def _run_quickly(work: Coroutine[None, None, None]) -> None:
    """Run the work on uvloop, which halves what handing results from Temporal's library to Python costs."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


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
