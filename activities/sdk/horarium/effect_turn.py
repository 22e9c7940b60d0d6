"""One effect in one attempt, from its claim to its result: what ``once`` does, less the waiting.

What the effect store cannot see is the moment between the effect itself and its record. A worker that dies just then leaves a
claim that the next attempt takes over, and the effect is called again, with the same key. A receiver that honours idempotency
keys makes that once; for one that does not, it is the one case that remains.
"""

import inspect
import json
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError
from temporalio import activity

from horarium.attempt import Attempt, require_attempt
from horarium.effect import (
    NAME_LIMIT,
    RESULT_LIMIT,
    Claim,
    ClaimAnswer,
    Claimed,
    EffectKey,
    Held,
    Outcome,
    Refused,
    StoreUnavailable,
    Succeeded,
)
from horarium.effect_desk import EffectDesk
from horarium.error import EffectRefused, PermanentError, RetryLater

Answer = TypeVar("Answer")

LEASE_SHARE: Final = 2 / 3
"""Of the heartbeat timeout. The scheduler gives a dead worker up after that timeout, counted from a heartbeat that is a third of
it old at most: by the time of the next attempt the claims of the dead one are free."""

SHORTEST_LEASE: Final = timedelta(seconds=1)
LONGEST_LEASE: Final = timedelta(seconds=60)
HEARTBEAT_TIMEOUT: Final = timedelta(seconds=30)
"""Where a job has none."""

TIMEOUT: Final = timedelta(seconds=300)
"""Where an attempt has none."""

SHORTEST_WAIT: Final = 1.0
"""Seconds that the store is given, however late in the attempt."""

RECORDED_WITHIN: Final = 60.0
"""Seconds after the end of an attempt in which its worker still tries to record what it has done."""

COME_BACK_AFTER: Final = timedelta(seconds=10)
"""When the store is away."""

NO_STORE: Final = (
    "{caller} needs an effect store, and this worker has none: set HORARIUM_EFFECTS_URL to the database of the scheduler or to "
    'one of your own, or say HorariumPlugin(effects="postgresql://...")'
)


class EffectTurn:
    """An effect that an attempt asks for. Raises ``PermanentError`` at once for what can never be right."""

    def __init__(self, caller: str, name: str, effect: Callable[..., Any], *, returns: Any) -> None:
        self._attempt = require_attempt(caller)
        self._desk = _require_desk(self._attempt, caller)
        self._name = _checked(name)
        self._effect = effect
        self._takes_key = _takes_key(effect, name)
        self._returns = returns
        self._claim = _claim(self._attempt, name)
        self._lease = _lease()
        self._ends_at = self._attempt.begun + _timeout().total_seconds()

    @property
    def until(self) -> float:
        """When to stop waiting (``time.monotonic()``): in time for the attempt to say why, instead of timing out."""
        spare = min(2.0, (self._ends_at - self._attempt.begun) / 10)
        return max(self._ends_at - spare, time.monotonic() + SHORTEST_WAIT)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Take the name for this attempt. It is free again after a failure: job code may try anew by itself."""
        if self._attempt.effects_named.setdefault(self._name, self) is not self:
            raise PermanentError(
                f"effect {self._name!r} is there twice in this attempt: each needs a name of its own, such as one with the id of "
                "what it is for; under one name only the first would ever happen"
            )
        try:
            yield
        except BaseException:
            self._attempt.effects_named.pop(self._name, None)
            raise

    def acquire(self) -> "Future[ClaimAnswer]":
        """Ask for the claim."""
        return self._desk.acquire(self._claim, lease=self._lease, until=self.until)

    def look_up(self, acquiring: "Future[ClaimAnswer]") -> Outcome | None:
        """Say what is stored already, or ``None`` where the effect is ours to carry out. Raises where it is not."""
        try:
            answer = _answer_of(acquiring)
        except StoreUnavailable as error:
            message = f"effect {self._name!r} was not begun, for the effect store does not answer: {error}"
            raise RetryLater(COME_BACK_AFTER, message) from error
        match answer:
            case Claimed():
                return None
            case Succeeded(outcome):
                return outcome
            case Held(lease_left):
                message = f"effect {self._name!r} is carried out by somebody else at this moment"
                raise RetryLater(max(lease_left, SHORTEST_LEASE), message)
            case Refused():
                raise self._refusal()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Renew the lease meanwhile, from another thread.

        Not beyond the attempt's end: a thread that hangs holds nothing for ever.
        """
        keeping = self._desk.keep(self._claim, lease=self._lease, until=self._ends_at)
        try:
            yield
        finally:
            keeping.cancel()

    def call(self) -> Any:
        """Begin the effect itself."""
        return self._effect(self._claim.key.for_receiver()) if self._takes_key else self._effect()

    def complete(self, returned: object) -> "tuple[Outcome, Future[bool]]":
        """Record what the effect returned. Goes on for a while when nobody waits any more."""
        outcome = self._outcome_of(returned)
        return outcome, self._desk.complete(self._claim, outcome, until=self.until + RECORDED_WITHIN)

    def release(self) -> "Future[bool]":
        """Give the claim back."""
        return self._desk.release(self._claim)

    def check_recorded(self, recording: "Future[bool]") -> None:
        """Raise unless the record was made, under a claim that was still ours."""
        try:
            is_ours = _answer_of(recording)
        except StoreUnavailable as error:
            message = (
                f"effect {self._name!r} is done, but the effect store did not take that down: {error}; unless it does before the "
                "next attempt, that one calls it again, with the same idempotency key"
            )
            raise RetryLater(COME_BACK_AFTER, message) from error
        if not is_ours:
            raise self._refusal()

    def read(self, outcome: Outcome) -> Any:
        """Read a stored result, which the first time is stored as well. Raises ``PermanentError`` where there is none to read."""
        if outcome.problem is not None or outcome.result is None:
            raise PermanentError(
                f"effect {self._name!r} is done, and will not be repeated, but its result was not kept: {outcome.problem}"
            )
        if self._returns is None:
            return json.loads(outcome.result)
        try:
            return TypeAdapter(self._returns).validate_json(outcome.result)
        except ValidationError as error:
            kind = getattr(self._returns, "__name__", str(self._returns))
            message = f"effect {self._name!r} is done, but its result is not of type {kind}: {_describe(error)}"
            raise PermanentError(message) from None

    def _outcome_of(self, returned: object) -> Outcome:
        try:
            plain = self._attempt.to_plain_json(returned, name="it", limit=RESULT_LIMIT)
        except PermanentError as error:
            # The effect is done: to call it again because of this would be worse than any error.
            return Outcome(problem=str(error))
        return Outcome(result=json.dumps(plain, separators=(",", ":")))

    def _refusal(self) -> EffectRefused:
        return EffectRefused(f"effect {self._name!r} belongs to a later attempt; this one was overtaken and must stop")


def _answer_of(future: "Future[Answer]") -> Answer:
    """Get what the desk answered. Raises ``StoreUnavailable`` where it has not."""
    if not future.done():
        raise StoreUnavailable("no answer in time")
    return future.result()


def _require_desk(attempt: Attempt, caller: str) -> EffectDesk:
    if attempt.effects is None:
        raise PermanentError(NO_STORE.format(caller=caller))
    return attempt.effects


def _claim(attempt: Attempt, name: str) -> Claim:
    run = attempt.run
    key = EffectKey(tenant=run.tenant, job_id=run.job_id, idempotency_key=run.idempotency_key, name=name)
    return Claim(key=key, fence=run.fence, token=uuid.uuid4().hex, run_id=run.run_id, worker=attempt.worker)


def _checked(name: str) -> str:
    if not name or len(name) > NAME_LIMIT or not name.isprintable():
        raise PermanentError(
            f"the name of an effect has 1 to {NAME_LIMIT} printable characters; {name[:50]!r} is not one"
        )
    return name


def _takes_key(effect: Callable[..., Any], name: str) -> bool:
    """Say whether a function wants the key: whether it has a parameter that it cannot do without."""
    try:
        signature = inspect.signature(effect)
    except ValueError:
        return False  # a builtin that does not tell
    for arguments in ((), ("key",)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return bool(arguments)
    raise PermanentError(f"effect {name!r} must be a function that takes nothing, or the idempotency key")


def _lease() -> timedelta:
    timeout = activity.info().heartbeat_timeout if activity.in_activity() else None
    return max(SHORTEST_LEASE, min((timeout or HEARTBEAT_TIMEOUT) * LEASE_SHARE, LONGEST_LEASE))


def _timeout() -> timedelta:
    timeout = activity.info().start_to_close_timeout if activity.in_activity() else None
    return timeout or TIMEOUT


def _describe(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(": ".join([*map(str, problem["loc"]), problem["msg"]]) for problem in problems)
