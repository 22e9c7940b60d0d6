"""Pages of a listing, and the cursors between them.

Pure. A cursor names a position in one listing with one filter, for one tenant; used with another it is refused. It is no
secret and grants nothing: the filter and the tenant of the request are applied whatever it says.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Generic, TypeVar

from activities.mirror_row import storable
from workflows.error import InvalidCursor

Item = TypeVar("Item")

MAX_PAGE: Final = 1_000
"""Items on a page, whatever was asked."""

CURSOR_LIMIT: Final = 2_000
"""Characters. The longest position is a run id and a time."""


@dataclass(frozen=True)
class Page(Generic[Item]):
    """A part of a listing."""

    items: tuple[Item, ...]
    next: str | None = None
    """Cursor of the page after this one; ``None`` on the last."""

    previous: str | None = None
    """Cursor of the page before this one; ``None`` on the first."""


@dataclass(frozen=True)
class Position:
    """A place between two items: behind the item with this key, or before it."""

    key: tuple[str, ...]
    backwards: bool = False


def page_size(limit: int) -> int:
    """Bound what was asked for."""
    return max(1, min(limit, MAX_PAGE))


def fingerprint(*parts: object) -> str:
    """Tell one listing from another, by everything that selects its items."""
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def encode_cursor(position: Position, *, listing: str) -> str:
    """Write a position of the listing with this fingerprint."""
    text = json.dumps([listing, position.backwards, *position.key], separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(cursor: str, *, listing: str, key_length: int) -> Position:
    """Read a position. Raises ``InvalidCursor`` for anything that ``encode_cursor`` did not write for this listing."""
    try:
        if len(cursor) > CURSOR_LIMIT:
            raise ValueError("too long")
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        found, backwards, *key = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        if not isinstance(backwards, bool) or len(key) != key_length or not all(isinstance(part, str) for part in key):
            raise ValueError("not a position")
    except (ValueError, TypeError, RecursionError, binascii.Error) as error:
        raise InvalidCursor("the cursor was not given by this service") from error
    if found != listing:
        raise InvalidCursor("the cursor belongs to another list or another filter")
    return Position(key=tuple(map(storable, key)), backwards=backwards)


def moment_in(key: str) -> datetime:
    """Read the time in a position, in UTC. Raises ``InvalidCursor``."""
    try:
        moment = datetime.fromisoformat(key)
        if moment.tzinfo is None:
            raise ValueError("a time without zone")
        return moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidCursor("the cursor was not given by this service") from error


def make_page(
    found: Sequence[Item],
    *,
    size: int,
    at: Position | None,
    listing: str,
    key_of: Callable[[Item], tuple[str, ...]],
) -> Page[Item]:
    """Cut a page out of what was found from a position on: up to ``size + 1`` items, in the direction of the search."""
    more = len(found) > size
    backwards = at is not None and at.backwards
    items = tuple(reversed(found[:size])) if backwards else tuple(found[:size])
    has_next, has_previous = (True, more) if backwards else (more, at is not None)

    def cursor(*, backwards: bool) -> str:
        edge = items[0 if backwards else -1] if items else None
        key = key_of(edge) if edge is not None else at.key if at is not None else ()
        return encode_cursor(Position(key, backwards), listing=listing)

    return Page(
        items,
        next=cursor(backwards=False) if has_next else None,
        previous=cursor(backwards=True) if has_previous else None,
    )
