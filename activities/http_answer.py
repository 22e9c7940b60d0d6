"""What is kept of an HTTP answer: enough to see what went wrong, and little enough for a history and a SQL row. Pure."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import urlsplit

from pydantic_core import to_json

from workflows.value import Value

BODY_LIMIT: Final = 16_384
"""Bytes of a body that are read. What comes after is left with the server."""

EVIDENCE_LIMIT: Final = 12_000
"""Bytes of JSON of what is kept, so that it finds room in a row of SQL as a result (``RESULT_LIMIT``)."""

HEADERS_LIMIT: Final = EVIDENCE_LIMIT // 2
"""Bytes of JSON of the headers that are kept, the first ones: a server may send hundreds. The rest of the room is the body's."""

HEADER_LIMIT: Final = 200
"""Characters of one header's value that are kept."""

LONGEST_RETRY_AFTER: Final = timedelta(days=1)
"""Whatever a server asks for: a job that waits for longer should rather fail where somebody sees it."""

_KEPT: Final = re.compile(
    r"allow|content-(type|length|encoding)|date|location|retry-after|server|via|www-authenticate|trace(parent|-id)|cf-ray"
    r"|(x-)?ratelimit-.{1,40}|x-(amzn|amz|goog|ms|b3)?-?(request|correlation|trace)-?id|idempotency-.{1,40}",
    re.IGNORECASE,
)
"""Headers that tell why, when and where. No other is kept: cookies and the like are nobody's business."""

Headers = Sequence[tuple[bytes, bytes]]


class HttpAnswer(Value):
    """An answer, as evidence."""

    status: int = 0
    headers: dict[str, str] = {}
    """Lower-case names."""

    body: str = ""
    """Its beginning, as text."""

    truncated: bool = False
    """The body goes on."""

    duration_ms: int = 0
    """From the first look at the host's name to the last byte that was read."""


def keep_answer(status: int, headers: Headers, body: bytes, *, complete: bool, took: timedelta) -> HttpAnswer:
    """Keep what is worth keeping."""
    answer = HttpAnswer(
        status=status,
        headers=_keep_headers(headers),
        body=_read_text(body[:BODY_LIMIT], header_of(headers, "content-type")),
        truncated=not complete or len(body) > BODY_LIMIT,
        duration_ms=round(took / timedelta(milliseconds=1)),
    )
    # Ends, whatever the headers are: each turn takes at least a character of the body. Without one it is small enough.
    while answer.body and (size := len(to_json(answer))) > EVIDENCE_LIMIT:
        left = answer.body[: len(answer.body) * EVIDENCE_LIMIT // size - 1]
        answer = answer.model_copy(update={"body": left, "truncated": True})
    return answer


def header_of(headers: Headers, name: str) -> str:
    """Get the first header of a name, written in lower case; empty where there is none."""
    found = (value for key, value in headers if key.lower() == name.encode())
    return next(found, b"").decode("latin-1").strip()


def retry_after_of(headers: Headers, *, now: datetime) -> timedelta | None:
    """Read ``Retry-After``: seconds or a date (RFC 9110, 10.2.3), bounded. ``None`` where it says nothing, or the past.

    A date is held against the server's own ``Date``, where it gives one: its clock may be off.
    """
    text = header_of(headers, "retry-after")
    if text.isascii() and text.isdigit():
        # So many digits are far enough for any clock.
        wait = (
            timedelta(seconds=int(text[:10].lstrip("0") or "0")) if len(text.lstrip("0")) <= 10 else LONGEST_RETRY_AFTER
        )
    else:
        until, since = _read_date(text), _read_date(header_of(headers, "date")) or now
        wait = until - since if until else timedelta(0)
    return min(wait, LONGEST_RETRY_AFTER) if wait > timedelta(0) else None


def _read_date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _keep_headers(headers: Headers) -> dict[str, str]:
    kept = dict[str, str]()
    room = HEADERS_LIMIT
    for key, value in headers:
        name = key.decode("latin-1").lower()
        if name in kept or not _KEPT.fullmatch(name):
            continue
        text = value.decode("latin-1").strip()
        text = _without_query(text) if name == "location" else text[:HEADER_LIMIT]
        room -= len(to_json({name: text}))
        if room < 0:
            break
        kept[name] = text
    return kept


def _without_query(url: str) -> str:
    """Leave out what may hold a token."""
    try:
        return urlsplit(url)._replace(query="", fragment="").geturl()[:HEADER_LIMIT]
    except ValueError:
        return ""


def _read_text(body: bytes, content_type: str) -> str:
    message = Message()
    message["content-type"] = content_type or "text/plain"
    try:
        text = body.decode(message.get_content_charset("utf-8"), errors="replace")
    except (LookupError, ValueError):
        text = body.decode(errors="replace")
    return text.encode(errors="replace").decode()
