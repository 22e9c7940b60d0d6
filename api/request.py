"""What is read of a request before anything is understood: its body within a limit, and its headers."""

import asyncio
import re
from datetime import timedelta
from email.message import Message
from typing import Final

from fastapi import Request
from pydantic import JsonValue
from starlette.requests import ClientDisconnect

from api.problem import FieldError, InvalidRequest, TooLarge, TooSlow, UnsupportedMedia
from api.strict_json import parse_json

BODY_LIMIT: Final = 1_048_576
"""Bytes of a body. Room for 1,000 previews, and four times the largest payload."""

DISCARD_LIMIT: Final = 256 * BODY_LIMIT
"""Bytes of a too large body that are read and thrown away: who is cut off while sending never sees the answer."""

BODY_WITHIN: Final = timedelta(seconds=60)
"""How long a body may take to arrive. Who sends one byte an hour holds nothing up for ever."""

KEY_LIMIT: Final = 255

_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")


async def read_json(request: Request) -> JsonValue:
    """Read the body as JSON, unfit values included: see ``require_fit``.

    Raises:
        UnsupportedMedia: it is not sent as JSON. A browser sends nothing else to another origin without asking first.
        TooLarge: it is longer than ``BODY_LIMIT``.
        TooSlow: it is not there after ``BODY_WITHIN``.
        InvalidRequest: see ``parse_json``.
    """
    if not _is_json(request.headers.get("content-type")):
        raise UnsupportedMedia("send the body with Content-Type: application/json")
    try:
        async with asyncio.timeout(BODY_WITHIN.total_seconds()):
            body = await _read_bounded(request)
    except TimeoutError as error:
        raise TooSlow(f"a body is waited for {BODY_WITHIN.seconds} seconds") from error
    except ClientDisconnect as error:
        raise TooSlow("the sender has gone") from error
    if not body:
        raise InvalidRequest(FieldError(pointer="", detail="the body is empty"))
    return parse_json(body)


def read_idempotency_key(request: Request) -> str | None:
    """Read the ``Idempotency-Key`` header; ``None`` where there is none."""
    keys = request.headers.getlist("idempotency-key")
    if not keys:
        return None
    if len(keys) > 1:
        raise InvalidRequest(FieldError(parameter="Idempotency-Key", detail="given more than once"))
    key = keys[0]
    if len(key) > KEY_LIMIT or not _VISIBLE.fullmatch(key):
        reason = f"a key has 1 to {KEY_LIMIT} visible ASCII characters; leave the header out to go without"
        raise InvalidRequest(FieldError(parameter="Idempotency-Key", detail=reason))
    return key


def read_if_match(request: Request) -> int | None:
    """Read the revision that ``If-Match`` names; ``None`` where any will do."""
    tag = request.headers.get("if-match")
    if tag is None or tag.strip() == "*":
        return None
    found = re.fullmatch(r'\s*(?:W/)?"(\d{1,18})"\s*', tag)
    if found is None:
        raise InvalidRequest(FieldError(parameter="If-Match", detail='give one revision as in ETag, such as "3"'))
    return int(found[1])


def _is_json(content_type: str | None) -> bool:
    header = Message()
    header["content-type"] = content_type or ""
    kind = header.get_content_type()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


async def _read_bounded(request: Request) -> bytes:
    announced = _announced_size(request)
    if announced > DISCARD_LIMIT or (announced > BODY_LIMIT and _waits_for_leave(request)):
        raise _too_large()
    body, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= BODY_LIMIT:
            body += chunk
        elif size > DISCARD_LIMIT:
            break
    if size > BODY_LIMIT:
        raise _too_large()
    return bytes(body)


def _waits_for_leave(request: Request) -> bool:
    return request.headers.get("expect", "").lower() == "100-continue"


def _announced_size(request: Request) -> int:
    size = request.headers.get("content-length", "")
    return int(size) if size.isdecimal() and len(size) < 19 else 0


def _too_large() -> TooLarge:
    return TooLarge(f"a body may have {BODY_LIMIT} bytes")
