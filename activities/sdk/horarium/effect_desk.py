"""Where the attempts of a worker get their claims: patient with a store that is away, and with others who are at it.

Runs in a thread of its own, so that job code that blocks, and job code in threads, keep their leases. Knows nothing of attempts
and their failures; see ``effect_turn``.
"""

import asyncio
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Final, TypeVar

from horarium.effect import Claim, ClaimAnswer, EffectStore, Held, Outcome, StoreUnavailable
from horarium.loop_thread import LoopThread

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

WAIT_FOR_HOLDER: Final = 60.0
"""Seconds that a caller waits for somebody else's effect before it gives its place away. Not less than any lease, so that who
waits for a dead holder gets the claim."""

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
"""Seconds between two tries while the store is away; doubled each time, and jittered, for thousands may be waiting."""

LONGEST_LOOK: Final = 1.0
"""Seconds between two looks at an effect that somebody else carries out."""

RENEWALS: Final = 3
"""In one lease, so that a lost one does not matter."""

CLOSE_WITHIN: Final = timedelta(seconds=5)

URL_VARIABLE: Final = "HORARIUM_EFFECTS_URL"


def open_effect_desk(effects: str | EffectStore | None = None) -> "EffectDesk | None":
    """Make a desk for a store or the URL of a database; by default for the URL in ``HORARIUM_EFFECTS_URL``, if there is one.

    Connects to nothing yet. Raises ``ValueError`` for a URL that is none, ``ImportError`` where ``horarium[effects]`` is missing.
    """
    store = effects or os.environ.get(URL_VARIABLE)
    if isinstance(store, str):
        try:
            from horarium.effect_sql import SqlEffectStore
        except ImportError as error:
            raise ImportError(
                f"an effect store in SQL needs more: pip install 'horarium[effects]' ({error})"
            ) from error
        store = SqlEffectStore(store)
    return EffectDesk(store) if store else None


class EffectDesk:
    """One for each store of a process. Usable from any thread; starts when it is first used, and again after ``close``.

    ``until`` is a time of ``time.monotonic()``.
    """

    def __init__(self, store: EffectStore) -> None:
        self._store = store
        self._thread = LoopThread("horarium-effects")

    def acquire(self, claim: Claim, *, lease: timedelta, until: float) -> "Future[ClaimAnswer]":
        """Get a claim, or say why it cannot be had. Waits for the store and, within bounds, for a holder.

        Fails with ``StoreUnavailable`` when the store is away until the end. Cancelling it leaves at most a lease to end.
        """
        return self._thread.submit(self._acquire(claim, lease=lease, until=until))

    def keep(self, claim: Claim, *, lease: timedelta, until: float) -> "Future[None]":
        """Renew a lease until cancelled, and no longer than ``until``."""
        return self._thread.submit(self._keep(claim, lease=lease, until=until))

    def complete(self, claim: Claim, outcome: Outcome, *, until: float) -> "Future[bool]":
        """Record what an effect came to; false when the claim was lost. Fails with ``StoreUnavailable``."""
        return self._thread.submit(self._patiently(lambda: self._store.complete(claim, outcome), until=until))

    def release(self, claim: Claim) -> "Future[bool]":
        """Give a claim back. Tried once: what is not released ends with its lease."""
        return self._thread.submit(self._store.release(claim))

    def close(self) -> None:
        """Let what is under way end, within a bound, and let go of the store. Blocks."""
        self._thread.close(last=self._store.close, within=CLOSE_WITHIN)

    async def _acquire(self, claim: Claim, *, lease: timedelta, until: float) -> ClaimAnswer:
        waits_until = min(until, time.monotonic() + WAIT_FOR_HOLDER)
        look = FIRST_PAUSE
        while True:
            answer = await self._patiently(lambda: self._store.claim(claim, lease=lease), until=until)
            if not isinstance(answer, Held) or time.monotonic() > waits_until:
                return answer
            # Not before the lease can have ended, and soon after it: the holder may be dead.
            await asyncio.sleep(min(look, max(answer.lease_left.total_seconds(), FIRST_PAUSE)))
            look = min(2 * look, LONGEST_LOOK)

    async def _keep(self, claim: Claim, *, lease: timedelta, until: float) -> None:
        while time.monotonic() < until:
            await asyncio.sleep(lease.total_seconds() / RENEWALS)
            try:
                if not await self._store.renew(claim, lease=lease):
                    logger.warning("an effect was taken over by another attempt", extra=_fields(claim))
                    return
            except StoreUnavailable as error:
                logger.warning("the lease of an effect could not be renewed", extra=_fields(claim, error))

    async def _patiently(self, step: Callable[[], Awaitable[Answer]], *, until: float) -> Answer:
        pause = FIRST_PAUSE
        while True:
            try:
                return await step()
            except StoreUnavailable:
                if time.monotonic() + pause > until:
                    raise
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, LONGEST_PAUSE)


def _fields(claim: Claim, error: Exception | None = None) -> dict[str, str]:
    key = claim.key
    fields = {"tenant": key.tenant, "job_id": key.job_id, "run_id": claim.run_id, "effect": key.name}
    return fields if error is None else fields | {"error": str(error)}
