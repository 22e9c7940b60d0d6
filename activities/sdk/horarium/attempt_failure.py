"""The one place where what went wrong in job code becomes what the scheduler is told."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pydantic import JsonValue
from temporalio import activity
from temporalio.exceptions import ApplicationError, CancelledError

from horarium.attempt_report import AttemptReport
from horarium.error import PermanentError, RetryLater
from horarium.plain_json import to_plain_json

MESSAGE_LIMIT: Final = 2_000
"""Characters. The scheduler keeps no more, and a message of megabytes would be refused by the server."""

CHAIN_LIMIT: Final = 50_000
"""Characters of all messages of a chain of causes, and bytes of a detail; what is longer is left out."""

TYPES_LIMIT: Final = 10
"""Classes that are named of one error."""

WORKER_SHUTDOWN: Final = "WorkerShutdown"
"""Type of the failure of an attempt that its worker gave up when it had to stop. Temporal's own core says it so."""


def passes_through(error: BaseException) -> bool:
    """Whether an exception is Temporal's and must reach it as it is.

    That is a cancellation that was asked for, or the note that somebody else will complete the activity.
    """
    if isinstance(error, (GeneratorExit, activity._CompleteAsyncError)):
        return True
    return _is_cancellation(error) and not _is_worker_shutdown()


def to_application_error(error: BaseException, report: AttemptReport) -> ApplicationError:
    """Translate an exception of job code, ``SystemExit`` included. Raise it ``from`` what ``cause_of`` says.

    It has the traceback of the original, and so stands for it: the original is not repeated as the cause.
    """
    told = replace(report, error_types=_names_of(type(error)))
    return _translate(error, told.to_json()).with_traceback(error.__traceback__)


def cause_of(error: BaseException) -> BaseException | None:
    """Say what led to an exception, if that can be sent; an oversized or odd one would cost us the whole report."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    chain = list(_chain(cause))
    length = sum(len(str(link)) for link in chain if _is_sendable(link))
    return cause if length <= CHAIN_LIMIT and all(map(_is_sendable, chain)) else None


def _translate(error: BaseException, details: dict[str, JsonValue]) -> ApplicationError:
    if _is_cancellation(error):
        return ApplicationError("the worker had to stop before the attempt had ended", details, type=WORKER_SHUTDOWN)
    kind, message = type(error).__name__, _message_of(error)
    match error:
        case ApplicationError():
            return ApplicationError(
                message,
                details,
                *filter(_has_json, error.details),
                type=error.type or kind,
                non_retryable=error.non_retryable,
                next_retry_delay=error.next_retry_delay,
                category=error.category,
            )
        case RetryLater():
            return ApplicationError(message, details, type=kind, next_retry_delay=error.delay)
        case _:
            return ApplicationError(message, details, type=kind, non_retryable=isinstance(error, PermanentError))


def _names_of(kind: type[BaseException]) -> tuple[str, ...]:
    """Name an exception's class and those it derives from, so that ``retry_on`` can name a whole family."""
    families = [each for each in kind.__mro__ if each not in (Exception, BaseException, object)]
    return tuple(f"{each.__module__}.{each.__qualname__}" for each in families[:TYPES_LIMIT])


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """List an exception and what led to it. Chains may be loops."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _is_sendable(error: BaseException) -> bool:
    """Whether Temporal can write it into a failure."""
    try:
        str(error).encode()
    except Exception:
        return False
    return not isinstance(error, ApplicationError) or all(map(_has_json, error.details))


def _has_json(value: object) -> bool:
    try:
        to_plain_json(value, name="a detail", limit=CHAIN_LIMIT)
    except PermanentError:
        return False
    return True


def _is_cancellation(error: BaseException) -> bool:
    """Whether Temporal stops the attempt. Job code that is cancelled by its own doing has failed."""
    return isinstance(error, (asyncio.CancelledError, CancelledError)) and activity.is_cancelled()


def _is_worker_shutdown() -> bool:
    details = activity.cancellation_details()
    return details is not None and details.worker_shutdown


def _message_of(error: BaseException) -> str:
    text = _text_of(error) or type(error).__name__
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"


def _text_of(error: BaseException) -> str:
    """Read the message. Job code may have written a ``__str__`` that fails, or text that is not Unicode."""
    try:
        text = error.message if isinstance(error, ApplicationError) else str(error)
    except Exception:
        return ""
    return text.encode(errors="replace").decode()
