"""Entry point of an API process: ``python -m api``, settings from the environment."""

import asyncio
import logging
import os
from typing import NoReturn

from api.server import serve
from workers.__main__ import leave
from workers.log import configure_logging
from workers.settings import EXIT_CODE, InvalidSettings, Settings, list_likely_typos, read_settings

logger = logging.getLogger("api")


def main() -> NoReturn:
    """Serve the API, and leave with its exit code."""
    try:
        settings = read_settings()
    except InvalidSettings as error:
        leave(EXIT_CODE, str(error))
    run(settings)


def run(settings: Settings) -> NoReturn:
    """Serve the API with these settings, and leave with its exit code: 0 after SIGTERM or SIGINT."""
    configure_logging(settings.log_level, form=settings.log_format)
    for typo in list_likely_typos(os.environ):
        logger.warning("a variable of the environment is no setting", extra={"problem": typo})
    try:
        asyncio.run(serve(settings))
    except InvalidSettings as error:
        leave(EXIT_CODE, str(error))
    except Exception:
        logger.exception("the API failed")
        leave(1)
    leave(0)


if __name__ == "__main__":
    main()
