"""The one place where what went wrong in job code becomes what the scheduler is told."""

import asyncio
from typing import Final

from temporalio import activity
from temporalio.exceptions import ApplicationError, CancelledError

from horarium.attempt_report import AttemptReport
from horarium.error import PermanentError, RetryLater

MESSAGE_LIMIT: Final = 2_000
"""Characters. The scheduler keeps no more, and a message of megabytes would be refused by the server."""

CHAIN_LIMIT: Final = 50_000
"""Characters of all messages of a chain of causes; above it the chain is left out."""

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
    """Translate an exception of job code, ``SystemExit`` included, to be raised ``from`` what ``cause_of`` says."""
    details = report.to_json()
    if _is_cancellation(error) and _is_worker_shutdown():
        message = "the worker had to stop before the attempt had ended"
        return ApplicationError(message, details, type=WORKER_SHUTDOWN)
    match error:
        case ApplicationError():
            return ApplicationError(
                _message_of(error),
                details,
                *error.details,
                type=error.type or type(error).__name__,
                non_retryable=error.non_retryable,
                next_retry_delay=error.next_retry_delay,
                category=error.category,
            )
        case RetryLater():
            return ApplicationError(
                _message_of(error), details, type=type(error).__name__, next_retry_delay=error.delay
            )
        case _:
            return ApplicationError(
                _message_of(error),
                details,
                type=type(error).__name__,
                non_retryable=isinstance(error, PermanentError),
            )


def cause_of(error: BaseException) -> BaseException | None:
    """Say what the failure shows as its cause: the exception itself, for its stack trace, if its messages are short."""
    length, link, seen = 0, error, set[int]()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        length += len(_text_of(link))
        link = link.__cause__ or link.__context__  # type: ignore[assignment]
    return error if length <= CHAIN_LIMIT else None


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
