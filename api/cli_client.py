"""The command line's way to the API: the client of the SDK, its errors as lines for a terminal, and what it read as JSON."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from typing import Final

from pydantic import JsonValue

from api.cli_input import API_KEY, KEY_VARIABLE, CommandFailed
from horarium.client import (
    NO_RETRY,
    Answer,
    ApiError,
    Client,
    HorariumError,
    PreconditionRequired,
    Unauthorized,
    Unreachable,
    Unsendable,
)

TIMEOUT: Final = timedelta(seconds=60)
"""A person sees that it takes long, and can give up; the API may be busy."""

PAGE: Final = 200

_ABOUT_INPUT: Final = frozenset({400, 413, 415, 422})
"""Answers that say that what was asked is wrong, and not only that it cannot be done now."""


@contextmanager
def open_client(url: str | None = None) -> Iterator[Client]:
    """Open a client for the length of the block. Raises ``CommandFailed`` for whatever goes wrong with a call.

    It tries nothing again: whoever sits at a terminal wants to know at once, and a script has its own patience.
    """
    try:
        with Client(url, API_KEY.get(), timeout=TIMEOUT, retry=NO_RETRY) as client:
            yield client
    except HorariumError as error:
        raise command_failure(error) from error


def command_failure(error: HorariumError) -> CommandFailed:
    """Say an error of the client in a line, with the exit code that it means."""
    match error:
        case Unreachable():
            return CommandFailed(f"{error}; is `horarium dev` or `horarium api` running?")
        case Unauthorized():
            return CommandFailed(f"{error} (set {KEY_VARIABLE}, or give --api-key before the command)")
        case PreconditionRequired():
            return CommandFailed(f"{error} (give --revision, which `horarium jobs show` tells)", code=2)
        case Unsendable():
            return CommandFailed(str(error), code=2)
        case ApiError(status=status) if status in _ABOUT_INPUT:
            return CommandFailed(str(error), code=2)
        case _:
            return CommandFailed(str(error))


def page_size(limit: int) -> int:
    """Say how much to ask for at once where no more than ``limit`` is wanted."""
    return min(limit, PAGE)


def documents(found: Iterable[Answer], *, limit: int | None = None) -> list[dict[str, JsonValue]]:
    """List what was found as the API answered it, up to ``limit``."""
    return [each.document for each in islice(found, limit)]


def print_json(found: Answer | list[dict[str, JsonValue]]) -> None:
    """Print what was found as the API answered it."""
    print(json.dumps(found.document if isinstance(found, Answer) else found, ensure_ascii=False))
