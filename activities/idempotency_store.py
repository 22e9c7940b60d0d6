"""What requests with an ``Idempotency-Key`` were answered, so that a repeated request is answered alike and done once.

Part of the store: the truth, kept a day. A request claims its key, is carried out, and completes the claim with its answer,
releases it when nothing was done, or leaves it to a repeat when nobody knows. Every step is one conditional write, so any
number of callers in any number of processes may claim the same key: one gets it. Who died with a claim in hand is replaced
after a while; whoever takes over repeats the request, so what a request does must itself bear repetition.
"""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from sqlalchemy import ColumnElement, Row, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from activities.database import POSTGRESQL, writing
from activities.deadline import Deadline
from activities.mirror_row import storable
from activities.pruning import forget_older
from activities.tables import IDEMPOTENCY_RECORDS as RECORDS

KEPT: Final = timedelta(hours=24)
"""How long an answer is remembered. A key used again later is a new request."""

HELD: Final = timedelta(seconds=60)
"""How long a claim without an answer is respected: longer than any request takes, short enough to be waited for."""

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""When a key was claimed that anybody may claim who repeats its request."""

_ATTEMPTS: Final = 5
"""A claim that finds nothing, and then something, and then nothing again, is a storm; the caller may come back."""


@dataclass(frozen=True, kw_only=True)
class RequestKey:
    """What makes two requests the same."""

    tenant: str
    scope: str
    """Method and route."""

    key: str
    body_hash: str


@dataclass(frozen=True, kw_only=True)
class StoredResponse:
    """An answer, to be given again as it was."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Claimed:
    """The caller has the key and carries the request out; then ``complete``, ``release`` or ``leave``."""

    request: RequestKey
    token: str


@dataclass(frozen=True)
class InProgress:
    """Somebody else carries out the same request at this moment."""


@dataclass(frozen=True)
class Answered:
    """The same request was answered before."""

    response: StoredResponse


@dataclass(frozen=True)
class OtherRequest:
    """The key was used for a request with another body."""


ClaimResult: TypeAlias = Claimed | InProgress | Answered | OtherRequest


class IdempotencyStore:
    """Claims through one engine, for any number of callers at once. Raises ``Unavailable`` when the database does not answer."""

    def __init__(self, engine: AsyncEngine, *, limit: timedelta = timedelta(seconds=5)) -> None:
        self._engine = engine
        self._deadline = Deadline(limit)

    async def close(self) -> None:
        """Wait for work that ran out of time. The engine is the caller's."""
        await self._deadline.close()

    async def claim(self, request: RequestKey, *, now: datetime) -> ClaimResult:
        """Claim a key, or say why it cannot be had."""
        claimed = Claimed(_storable(request), uuid.uuid4().hex)
        for _ in range(_ATTEMPTS):
            result = await self._deadline.ask(self._try_claim(claimed, now=now))
            if result is not None:
                return result
        return InProgress()

    async def complete(self, claim: Claimed, response: StoredResponse) -> bool:
        """Remember the answer. False when the claim was taken over meanwhile; then the other's answer counts."""
        answer = {
            "response_status": response.status,
            "response_headers": response.headers,
            "response_body": response.body,
        }
        return await self._deadline.ask(self._change(update(RECORDS).where(*_held_by(claim)).values(answer)))

    async def release(self, claim: Claimed) -> bool:
        """Give a key back because nothing was done. False when the claim was taken over meanwhile."""
        return await self._deadline.ask(self._change(delete(RECORDS).where(*_held_by(claim))))

    async def leave(self, claim: Claimed) -> bool:
        """Let the same request be repeated at once: nobody knows what became of it. The key stays that of its body."""
        left = update(RECORDS).where(*_held_by(claim)).values(claimed_at=_LONG_AGO)
        return await self._deadline.ask(self._change(left))

    async def prune(self, *, now: datetime) -> int:
        """Forget what is older than ``KEPT``; return how much."""
        return await forget_older(self._engine, self._deadline, RECORDS.c.created_at, before=now - KEPT)

    async def _try_claim(self, claimed: Claimed, *, now: datetime) -> ClaimResult | None:
        """Try once; ``None`` when the record changed between the steps."""
        if await self._change(_insert(claimed, now=now, dialect=self._engine.dialect.name)):
            return claimed
        async with writing(self._engine) as connection:
            row = await _find(connection, claimed.request)
            if row is None:
                return None
            result = _judge(row, claimed.request, now=now)
            if result is not None:
                return result
            return claimed if await _take_over(connection, claimed, row, now=now) else None

    async def _change(self, statement: Any) -> bool:
        async with writing(self._engine) as connection:
            return int((await connection.execute(statement)).rowcount) == 1


def _judge(row: Row[Any], request: RequestKey, *, now: datetime) -> ClaimResult | None:
    """Decide what a record means for a request; ``None``: it is void, and may be taken over."""
    if row.created_at < now - KEPT:
        return None
    if row.body_hash != request.body_hash:
        return OtherRequest()
    if row.response_status is not None:
        headers, body = dict(row.response_headers), bytes(row.response_body)
        return Answered(StoredResponse(status=row.response_status, headers=headers, body=body))
    return InProgress() if row.claimed_at > now - HELD else None


async def _find(connection: AsyncConnection, request: RequestKey) -> Row[Any] | None:
    return (await connection.execute(select(RECORDS).where(*_named(request)))).first()


async def _take_over(connection: AsyncConnection, claimed: Claimed, row: Row[Any], *, now: datetime) -> bool:
    """Put a new claim in the place of a void record, unless somebody else did."""
    unchanged = (*_named(claimed.request), RECORDS.c.token == row.token)
    void = {"response_status": None, "response_headers": None, "response_body": None}
    result = await connection.execute(update(RECORDS).where(*unchanged).values(_values(claimed, now=now) | void))
    return int(result.rowcount) == 1


def _insert(claimed: Claimed, *, now: datetime, dialect: str) -> postgresql.Insert | sqlite.Insert:
    insert: postgresql.Insert | sqlite.Insert
    insert = postgresql.insert(RECORDS) if dialect == POSTGRESQL else sqlite.insert(RECORDS)
    return insert.values(_values(claimed, now=now)).on_conflict_do_nothing()


def _values(claimed: Claimed, *, now: datetime) -> dict[str, Any]:
    request = claimed.request
    return {
        "tenant": request.tenant,
        "scope": request.scope,
        "key": request.key,
        "body_hash": request.body_hash,
        "token": claimed.token,
        "created_at": now,
        "claimed_at": now,
    }


def _named(request: RequestKey) -> tuple[ColumnElement[bool], ...]:
    return RECORDS.c.tenant == request.tenant, RECORDS.c.scope == request.scope, RECORDS.c.key == request.key


def _held_by(claim: Claimed) -> tuple[ColumnElement[bool], ...]:
    return (*_named(claim.request), RECORDS.c.token == claim.token)


def _storable(request: RequestKey) -> RequestKey:
    return RequestKey(
        tenant=storable(request.tenant),
        scope=storable(request.scope),
        key=storable(request.key),
        body_hash=request.body_hash,
    )
