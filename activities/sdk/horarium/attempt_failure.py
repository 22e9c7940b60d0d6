"""The one place where what went wrong in job code becomes what the scheduler is told."""

import asyncio
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final

from pydantic import JsonValue
from temporalio import activity
from temporalio.exceptions import ApplicationError, CancelledError

from horarium.attempt_report import HTTP_STATUSES, AttemptReport
from horarium.error import PermanentError, RetryLater
from horarium.plain_json import to_plain_json
from horarium.secret import Secrets

MESSAGE_LIMIT: Final = 2_000
"""Characters. The scheduler keeps no more, and a message of megabytes would be refused by the server."""

CHAIN_LIMIT: Final = 50_000
"""Characters of all messages of a chain of causes, and bytes of a detail; what is longer is left out."""

TYPES_LIMIT: Final = 10
"""Classes that are named of one error."""

_STATUS_PLACES: Final = ("http_status", "response.status_code", "status", "code")
"""Where an exception has the status of an answer: ours, those of httpx and requests, aiohttp's, and urllib's."""

WORKER_SHUTDOWN: Final = "WorkerShutdown"
"""Type of the failure of an attempt that its worker gave up when it had to stop. Temporal's own core says it so."""


def passes_through(error: BaseException) -> bool:
    """Whether an exception is Temporal's and must reach it as it is.

    That is a cancellation that was asked for, or the note that somebody else will complete the activity.
    """
    if isinstance(error, (GeneratorExit, activity._CompleteAsyncError)):
        return True
    return _is_cancellation(error) and not _is_worker_shutdown()


def to_application_error(error: BaseException, report: AttemptReport, *, secrets: Secrets) -> ApplicationError:
    """Translate an exception of job code, ``SystemExit`` included. Raise it ``from`` what ``cause_of`` says.

    It has the traceback of the original, and so stands for it: the original is not repeated as the cause.
    """
    told = replace(report, error_types=_names_of(type(error)), http_status=http_status_of(error))
    return _translate(error, told.to_json(), secrets).with_traceback(error.__traceback__)


def cause_of(error: BaseException, *, secrets: Secrets) -> BaseException | None:
    """Say what led to an exception, if that can be sent; an oversized or odd one would cost us the whole report.

    Where it tells a secret, it is told anew without.
    """
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    chain = list(_chain(cause))
    length = sum(len(str(link)) for link in chain if _is_sendable(link))
    if length > CHAIN_LIMIT or not all(map(_is_sendable, chain)):
        return None
    return _retold(chain, secrets) if any(_tells(link, secrets) for link in chain) else cause


def _tells(error: BaseException, secrets: Secrets) -> bool:
    """Whether a secret can be seen: in the message, in details, or in what else a log shows of an exception."""
    details = error.details if isinstance(error, ApplicationError) else ()
    return bool(secrets) and secrets.are_in("".join([*traceback.format_exception(error), repr(details)]))


def _retold(chain: Sequence[BaseException], secrets: Secrets) -> BaseException | None:
    told: ApplicationError | None = None
    for link in reversed(chain):
        cause, told = told, ApplicationError(secrets.hide_in(_text_of(link)), type=type(link).__name__)
        told.__cause__ = cause
    return told


def http_status_of(error: BaseException) -> int | None:
    """Read the status of the HTTP answer that an exception was made of, where its client puts it in a known place."""
    for path in _STATUS_PLACES:
        try:
            value: object = attrgetter(path)(error)
        except Exception:
            # It is not there, or job code has written a property that fails.
            continue
        if isinstance(value, int) and value in HTTP_STATUSES:
            return int(value)
    return None


def _translate(error: BaseException, details: dict[str, JsonValue], secrets: Secrets) -> ApplicationError:
    if _is_cancellation(error):
        return ApplicationError("the worker had to stop before the attempt had ended", details, type=WORKER_SHUTDOWN)
    kind, message = type(error).__name__, _message_of(error, secrets)
    match error:
        case ApplicationError():
            return ApplicationError(
                message,
                details,
                *(secrets.hide_in_json(_to_json(detail)) for detail in error.details if _has_json(detail)),
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


def _to_json(value: object) -> JsonValue:
    return to_plain_json(value, name="a detail", limit=CHAIN_LIMIT)


def _has_json(value: object) -> bool:
    try:
        _to_json(value)
    except PermanentError:
        return False
    return True


def _is_cancellation(error: BaseException) -> bool:
    """Whether Temporal stops the attempt. Job code that is cancelled by its own doing has failed."""
    return isinstance(error, (asyncio.CancelledError, CancelledError)) and activity.is_cancelled()


def _is_worker_shutdown() -> bool:
    details = activity.cancellation_details()
    return details is not None and details.worker_shutdown


def _message_of(error: BaseException, secrets: Secrets) -> str:
    # Hidden before it is cut: half a secret is one too.
    text = secrets.hide_in(_text_of(error)) or type(error).__name__
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"


def _text_of(error: BaseException) -> str:
    """Read the message. Job code may have written a ``__str__`` that fails, or text that is not Unicode."""
    try:
        text = error.message if isinstance(error, ApplicationError) else str(error)
    except Exception:
        return ""
    return text.encode(errors="replace").decode()
