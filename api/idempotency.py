"""Requests with an ``Idempotency-Key``: carried out once, answered alike every time."""

import hashlib
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from fastapi import Response
from pydantic import JsonValue

from activities.idempotency_store import (
    Answered,
    Claimed,
    IdempotencyStore,
    OtherRequest,
    RequestKey,
    StoredResponse,
)
from activities.idempotency_store import InProgress as HeldByOther
from api.problem import FieldError, InProgress, KeyReused
from api.response import stored_response
from workflows.error import HorariumError, Unavailable

REPLAYED_HEADER: Final = "Idempotent-Replayed"


async def answer_once(
    store: IdempotencyStore, request: RequestKey, work: Callable[[], Awaitable[StoredResponse]]
) -> StoredResponse:
    """Answer a request, or give the answer that it had before, with 200 and a header that says so.

    A request that fails has no answer to be kept: repeated, it is tried again. One that may be carried out all the same keeps
    its key, which is of no other body.

    Raises:
        KeyReused: the key belongs to a request with another body.
        InProgress: the same request is being carried out.
        Unavailable: the database does not answer.
    """
    match await store.claim(request, now=datetime.now(UTC)):
        case Answered(response):
            return replace(response, status=HTTPStatus.OK, headers={**response.headers, REPLAYED_HEADER: "true"})
        case OtherRequest():
            reason = "used for a request with another body before; a new request needs a new key"
            raise KeyReused(FieldError(parameter="Idempotency-Key", detail=reason))
        case HeldByOther():
            raise InProgress("ask again in a moment")
        case Claimed() as claim:
            return await _work_and_remember(store, claim, work)


async def answer_request(
    store: IdempotencyStore,
    tenant: str,
    scope: str,
    key: str | None,
    body: JsonValue,
    work: Callable[[], Awaitable[StoredResponse]],
) -> Response:
    """Answer a request, once if it has a key. ``scope`` is its method and path. Raises as ``answer_once`` does."""
    if key is None:
        return stored_response(await work())
    claim = RequestKey(tenant=tenant, scope=scope, key=key, body_hash=body_hash(body))
    return stored_response(await answer_once(store, claim, work))


async def _work_and_remember(
    store: IdempotencyStore, claim: Claimed, work: Callable[[], Awaitable[StoredResponse]]
) -> StoredResponse:
    try:
        response = await work()
    except BaseException as error:
        is_refused = isinstance(error, HorariumError) and not isinstance(error, Unavailable)
        # Neither given back nor left, the claim lapses after a while.
        with suppress(Unavailable):
            await (store.release(claim) if is_refused else store.leave(claim))
        raise
    # Not remembered, a repeated request is carried out again, and finds what it did.
    with suppress(Unavailable):
        await store.complete(claim, response)
    return response


def body_hash(body: JsonValue) -> str:
    """Tell one body from another by what it says: neither the order of keys nor 60 for 60.0 makes a difference."""
    text = json.dumps(_plain(body), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: JsonValue) -> JsonValue:
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _plain(inner) for key, inner in value.items()}
        case list():
            return [_plain(inner) for inner in value]
        case _:
            return value
