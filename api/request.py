"""What is read of a request before anything is understood: its body within a limit, and its headers."""

import asyncio
import re
from dataclasses import dataclass
from datetime import timedelta
from email.message import Message
from typing import Final
from urllib.parse import urlsplit

from fastapi import Request
from pydantic import JsonValue
from starlette.requests import ClientDisconnect

from api.merge_patch import MEDIA_TYPE as MERGE_PATCH
from api.problem import FieldError, InvalidRequest, PreconditionRequired, TooLarge, TooSlow, UnsupportedMedia
from api.strict_json import parse_json
from workflows.error import RevisionMismatch
from workflows.job import JobRecord, Lifecycle

BODY_LIMIT: Final = 1_048_576
"""Bytes of a body. Room for 1,000 previews, and four times the largest payload."""

DISCARD_LIMIT: Final = 256 * BODY_LIMIT
"""Bytes of a too large body that are read and thrown away: who is cut off while sending never sees the answer."""

BODY_WITHIN: Final = timedelta(seconds=60)
"""How long a body may take to arrive. Who sends one byte an hour holds nothing up for ever."""

KEY_LIMIT: Final = 255

_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")

JOB_EXISTS: Final = "there is a job of this id already"

JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"


@dataclass(frozen=True, kw_only=True)
class Precondition:
    """What ``If-Match`` and ``If-None-Match`` say: which revision of a job the caller has seen, or that there is none."""

    given: bool = False
    revision: int | None = None
    """``None``: any, as long as there is a job."""

    required: bool = False
    """Whether this installation insists on it for whatever changes a job that is there."""

    absent: bool = False
    """``If-None-Match: *``: there must be no job."""

    def check(self, found: JobRecord | None) -> None:
        """Hold it against the job as it is.

        Raises:
            RevisionMismatch: the caller has seen another revision, or there is no job, or one that should not be there.
            PreconditionRequired: nothing was given, and something had to be.
        """
        is_there = found is not None and found.lifecycle is not Lifecycle.DELETED
        if not is_there and self.given:
            raise RevisionMismatch("there is no such job")
        if found is None or not is_there:
            return
        if self.absent:
            raise RevisionMismatch(JOB_EXISTS)
        if self.required and not self.given:
            raise PreconditionRequired(
                f'send If-Match with the revision that you have seen, such as "{found.revision}"'
            )
        if self.revision not in (None, found.revision):
            raise RevisionMismatch(f"the job has revision {found.revision}")

    def may_be_repeated(self, found: JobRecord, *, key: str | None) -> bool:
        """Say whether the job may have left the revision that the caller has seen by this very request, whose answer was lost.

        Only the job knows, which remembers keys and refuses another revision itself: it is to be asked rather than ``check``.
        """
        is_behind = self.revision is not None and self.revision < found.revision
        return key is not None and is_behind and found.lifecycle is not Lifecycle.DELETED


async def read_json(request: Request, *, limit: int = BODY_LIMIT) -> JsonValue:
    """Read the body as JSON, unfit values included: see ``require_fit``.

    Raises:
        UnsupportedMedia: it is not sent as JSON. A browser sends nothing else to another origin without asking first.
        TooLarge: it is longer than ``limit`` bytes.
        TooSlow: it is not there after ``BODY_WITHIN``.
        InvalidRequest: see ``parse_json``.
    """
    if not _is_json(request.headers.get("content-type")):
        raise UnsupportedMedia("send the body with Content-Type: application/json")
    body = await _read_in_time(request, limit=limit)
    if not body:
        raise InvalidRequest(FieldError(pointer="", detail="the body is empty"))
    return parse_json(body)


async def read_json_if_any(request: Request) -> JsonValue:
    """Read a body that may be left out, which is as good as an empty object. Raises as ``read_json`` does."""
    body = await _read_in_time(request, limit=BODY_LIMIT)
    if not body:
        return {}
    if not _is_json(request.headers.get("content-type")):
        raise UnsupportedMedia("send the body with Content-Type: application/json")
    return parse_json(body)


async def read_form(request: Request) -> str:
    """Read the body of a form, as it was sent. Raises as ``read_json`` does."""
    if _content_type(request.headers.get("content-type")) != FORM:
        raise UnsupportedMedia(f"send a form with Content-Type: {FORM}")
    return (await _read_in_time(request, limit=BODY_LIMIT)).decode("ascii", errors="replace")


async def read_merge_patch(request: Request) -> JsonValue:
    """Read a merge patch, which may also be sent as plain JSON. Raises as ``read_json`` does."""
    if _content_type(request.headers.get("content-type")) not in (JSON, MERGE_PATCH):
        raise UnsupportedMedia(f"send a merge patch (RFC 7396) with Content-Type: {MERGE_PATCH}")
    return await read_json(request)


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


def read_precondition(request: Request) -> Precondition:
    """Read what ``If-Match`` and ``If-None-Match`` say. Raises ``InvalidRequest``."""
    required = bool(request.app.state.requires_if_match)
    tag, none = request.headers.get("if-match"), request.headers.get("if-none-match")
    if none is not None and none.strip() != "*":
        raise InvalidRequest(FieldError(parameter="If-None-Match", detail="give *: only where there is no such job"))
    if none is not None and tag is not None:
        raise InvalidRequest(FieldError(parameter="If-None-Match", detail="contradicts If-Match; send one of them"))
    if tag is None:
        return Precondition(required=required, absent=none is not None)
    return Precondition(given=True, required=required, revision=_read_revision(tag))


def is_of_another_site(request: Request) -> bool:
    """Say whether a page of another site has a browser send this. Nothing else than browsers says where it comes from.

    A page can send a form, or nothing at all, without asking first; who sends JSON has been asked for leave.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    # Of a browser that is years old. One on the way may have changed the host.
    origin = request.headers.get("origin")
    return origin is not None and _netloc(origin) != request.headers.get("host")


def asked_host(request: Request) -> str:
    """Read the host that was asked, by name or address and without its port; empty where it is none."""
    try:
        return urlsplit(f"//{request.headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _read_revision(tag: str) -> int | None:
    if tag.strip() == "*":
        return None
    found = re.fullmatch(r'\s*(?:W/)?"(\d{1,18})"\s*', tag)
    if found is None:
        raise InvalidRequest(FieldError(parameter="If-Match", detail='give one revision as in ETag, such as "3"'))
    return int(found[1])


def _is_json(content_type: str | None) -> bool:
    kind = _content_type(content_type)
    return kind == JSON or (kind.startswith("application/") and kind.endswith("+json"))


def _content_type(header: str | None) -> str:
    message = Message()
    message["content-type"] = header or ""
    return message.get_content_type()


async def _read_in_time(request: Request, *, limit: int) -> bytes:
    try:
        async with asyncio.timeout(BODY_WITHIN.total_seconds()):
            return await _read_bounded(request, limit=limit)
    except TimeoutError as error:
        raise TooSlow(f"a body is waited for {BODY_WITHIN.seconds} seconds") from error
    except ClientDisconnect as error:
        raise TooSlow("the sender has gone") from error


async def _read_bounded(request: Request, *, limit: int) -> bytes:
    announced = _announced_size(request)
    if announced > DISCARD_LIMIT or (announced > limit and _waits_for_leave(request)):
        raise _too_large(limit)
    body, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limit:
            body += chunk
        elif size > DISCARD_LIMIT:
            break
    if size > limit:
        raise _too_large(limit)
    return bytes(body)


def _waits_for_leave(request: Request) -> bool:
    return request.headers.get("expect", "").lower() == "100-continue"


def _announced_size(request: Request) -> int:
    size = request.headers.get("content-length", "")
    return int(size) if size.isdecimal() and len(size) < 19 else 0


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"a body may have {limit} bytes")
