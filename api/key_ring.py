"""What is known of the API keys at this moment, and who a caller is by them.

All keys are read at once and believed for a few seconds, so that a request costs no read of its own, replicas need not talk to
each other, and the time after which a revoked key is refused everywhere is known. What cannot be read is not guessed: then
nobody is let in.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from activities.api_key import ApiKey, PresentedKey, read_key
from activities.key_store import KeyStore
from api.caller import NOBODY, Caller
from api.problem import Unauthorized

REMEMBERED: Final = timedelta(seconds=5)
"""A key that was revoked is refused by every process after so long at the latest."""

UNKNOWN_REMEMBERED: Final = timedelta(milliseconds=200)
"""An id that is not among them lets the keys be read again, no more often than this: one made just now is known at once."""


@dataclass(frozen=True)
class _Snapshot:
    """The keys by id, as they were."""

    keys: Mapping[str, ApiKey]
    taken_at: float
    """By the monotonic clock, before they were read."""

    def is_older_than(self, span: timedelta) -> bool:
        return time.monotonic() - self.taken_at > span.total_seconds()


class KeyRing:
    """Says who callers are, for one process."""

    def __init__(self, store: KeyStore, *, is_open: bool) -> None:
        """``is_open``: only this machine can connect, so that everybody is let in as long as there are no keys."""
        self._store = store
        self._is_open = is_open
        self._seen: _Snapshot | None = None
        self._reading: asyncio.Task[_Snapshot] | None = None
        self._used: dict[str, datetime] = {}

    async def identify(self, authorization: Sequence[str], *, now: datetime) -> Caller:
        """Say who gives these ``Authorization`` headers.

        Raises:
            Unauthorized: nobody that is let in.
            Unavailable: the database does not say what keys there are.
        """
        asked_at = time.monotonic()
        seen = await self._look(REMEMBERED)
        if not seen.keys:
            return self._without_keys()
        presented = _read_header(authorization)
        if presented.key_id not in seen.keys:
            seen = await self._look_since(asked_at)
        key = seen.keys.get(presented.key_id)
        if key is None or not presented.is_secret_of(key):
            raise Unauthorized("there is no such API key", is_given=True)
        _require_valid(key, now=now)
        self._used[key.key_id] = now
        return Caller(tenant=key.tenant, key=key)

    async def note_use(self) -> None:
        """Write down when keys were used last. Raises ``Unavailable``."""
        used, self._used = self._used, {}
        await self._store.note_use(used)

    def _without_keys(self) -> Caller:
        if self._is_open:
            return NOBODY
        reason = (
            "there are no API keys yet, and others than this machine can connect; make one with `horarium keys create`"
        )
        raise Unauthorized(reason)

    async def _look_since(self, moment: float) -> _Snapshot:
        """See the keys as they were at a moment or later."""
        seen = await self._look(UNKNOWN_REMEMBERED)
        while seen.taken_at < moment:
            await asyncio.sleep(max(0.0, seen.taken_at + UNKNOWN_REMEMBERED.total_seconds() - time.monotonic()))
            seen = await self._look(UNKNOWN_REMEMBERED)
        return seen

    async def _look(self, remembered: timedelta) -> _Snapshot:
        if self._seen is not None and not self._seen.is_older_than(remembered):
            return self._seen
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
            self._reading.add_done_callback(_notice)
        # Shared by all requests that come meanwhile; one that is given up does not end it for the others.
        return await asyncio.shield(self._reading)

    async def _read(self) -> _Snapshot:
        taken_at = time.monotonic()
        keys = {key.key_id: key for key in await self._store.read_keys()}
        self._seen = _Snapshot(keys, taken_at)
        return self._seen


def _read_header(authorization: Sequence[str]) -> PresentedKey:
    """Read the key, whose text is repeated in no message: it may be another service's."""
    if not authorization:
        raise Unauthorized("send an API key: `Authorization: Bearer KEY`")
    if len(authorization) > 1:
        raise Unauthorized("the Authorization header is given more than once", is_given=True)
    kind, _, text = authorization[0].strip().partition(" ")
    presented = read_key(text.strip()) if kind.lower() == "bearer" else None
    if presented is None:
        raise Unauthorized("this is no API key of Horarium; send `Authorization: Bearer KEY`", is_given=True)
    return presented


def _require_valid(key: ApiKey, *, now: datetime) -> None:
    if key.revoked_at is not None:
        raise Unauthorized("the API key was revoked", is_given=True)
    if key.expires_at is not None and key.expires_at <= now:
        raise Unauthorized("the API key has expired", is_given=True)


def _notice(task: asyncio.Task[_Snapshot]) -> None:
    if not task.cancelled():
        task.exception()  # looked at, or asyncio would complain when all who waited have gone
