"""Effects that happen once, in job code: ``receipt = await once("charge", lambda key: bank.charge(amount, key=key))``.

Who may carry an effect out is decided by the claims of ``effect``; what is and what is not promised is said in ``effect_turn``.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_futures
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, TypeAlias, TypeVar, overload

from temporalio import activity

from horarium.effect import Outcome
from horarium.effect_turn import EffectTurn
from horarium.error import PermanentError

Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | int | float | bool | None"
"""What comes out of the store as it went in."""

Answer = TypeVar("Answer")
Plain = TypeVar("Plain", bound=Json)
Result = TypeVar("Result")

RELEASED_WITHIN: Final = 1.0
"""Seconds that a failure waits for its claim to be released. What is not, ends with its lease."""

LOOK_EVERY: Final = 0.2
"""Seconds between two looks of a waiting thread, which hears of its cancellation then."""


@overload
def once(name: str, effect: Callable[[], Awaitable[Plain]]) -> Coroutine[Any, Any, Plain]: ...


@overload
def once(name: str, effect: Callable[[str], Awaitable[Plain]]) -> Coroutine[Any, Any, Plain]: ...


@overload
def once(
    name: str, effect: Callable[[], Awaitable[object]], *, returns: type[Result]
) -> Coroutine[Any, Any, Result]: ...


@overload
def once(
    name: str, effect: Callable[[str], Awaitable[object]], *, returns: type[Result]
) -> Coroutine[Any, Any, Result]: ...


def once(name: str, effect: Callable[..., Awaitable[Any]], *, returns: Any = None) -> Coroutine[Any, Any, Any]:
    """Carry an effect out unless it is done already, and get its result, which is the same in every attempt.

    ``name`` says which effect of the run it is: one for each, such as ``f"pay:{employee.id}"``; used again in the same attempt
    it is refused as the mistake that it is. ``effect`` takes nothing, or the idempotency key to hand to whatever it calls. Its
    result must have a JSON form of at most 64 KiB, and comes back as plain JSON, or as ``returns``, the first time too.

    What ``effect`` raises is raised here, and means that it may be called again. Raises ``EffectRefused`` in an attempt that was
    overtaken, and ``RetryLater`` when somebody else is at it for long, or the store is away for longer than the attempt may last.
    """
    turn = EffectTurn("once()", name, effect, returns=returns)
    if not _has_running_loop():
        raise PermanentError("once() must be awaited in async job code; a plain function calls once_sync()")
    return _carry_out(turn)


@overload
def once_sync(name: str, effect: Callable[[], Plain]) -> Plain: ...


@overload
def once_sync(name: str, effect: Callable[[str], Plain]) -> Plain: ...


@overload
def once_sync(name: str, effect: Callable[[], object], *, returns: type[Result]) -> Result: ...


@overload
def once_sync(name: str, effect: Callable[[str], object], *, returns: type[Result]) -> Result: ...


def once_sync(name: str, effect: Callable[..., Any], *, returns: Any = None) -> Any:
    """Do as ``once`` does, in job code that is not ``async``."""
    turn = EffectTurn("once_sync()", name, effect, returns=returns)
    if _has_running_loop():
        raise PermanentError("once_sync() would block the event loop: async job code says `await once(...)`")
    if inspect.iscoroutinefunction(effect):
        raise PermanentError(f"effect {name!r} is async: once_sync() cannot await it")
    return _carry_out_in_thread(turn)


async def _carry_out(turn: EffectTurn) -> Any:
    with turn.named():
        if (stored := await _look_up(turn)) is not None:
            return turn.read(stored)
        with turn.kept():
            try:
                returned = turn.call()
                if inspect.isawaitable(returned):
                    returned = await returned
            except BaseException:
                await asyncio.wait({_quiet(turn.release())}, timeout=RELEASED_WITHIN)
                raise
            # No `await` between the effect and this: a cancellation cannot come before the record is on its way.
            outcome, recording = turn.complete(returned)
            await asyncio.wait({_quiet(recording)}, timeout=turn.until - time.monotonic())
        turn.check_recorded(recording)
        return turn.read(outcome)


async def _look_up(turn: EffectTurn) -> Outcome | None:
    acquiring = turn.acquire()
    try:
        await asyncio.wait({_quiet(acquiring)}, timeout=turn.until - time.monotonic())
        return turn.look_up(acquiring)
    finally:
        acquiring.cancel()


def _carry_out_in_thread(turn: EffectTurn) -> Any:
    with turn.named():
        if (stored := _look_up_in_thread(turn)) is not None:
            return turn.read(stored)
        with turn.kept():
            try:
                returned = turn.call()
            except BaseException:
                _wait(turn.release(), until=time.monotonic() + RELEASED_WITHIN)
                raise
            with _shielded():
                outcome, recording = turn.complete(returned)
                _wait(recording, until=turn.until)
        turn.check_recorded(recording)
        return turn.read(outcome)


def _look_up_in_thread(turn: EffectTurn) -> Outcome | None:
    acquiring = turn.acquire()
    try:
        _wait(acquiring, until=turn.until)
        return turn.look_up(acquiring)
    finally:
        acquiring.cancel()


def _shielded() -> AbstractContextManager[None]:
    """Keep the cancellation out that Temporal raises into a thread at any instruction."""
    return activity.shield_thread_cancel_exception() if activity.in_activity() else nullcontext()


def _wait(future: "Future[Any]", *, until: float) -> None:
    while not future.done() and time.monotonic() < until:
        wait_for_futures({future}, timeout=LOOK_EVERY)


def _quiet(future: "Future[Answer]") -> "asyncio.Future[Answer]":
    """Make a future awaitable whose failure may stay unread. Cancelling what waits for it does not cancel it."""
    awaitable = asyncio.wrap_future(future)
    awaitable.add_done_callback(lambda done: done.cancelled() or done.exception())
    return awaitable


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
