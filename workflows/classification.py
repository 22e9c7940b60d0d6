"""What kind of failure an attempt ended with, and what follows from the kind alone.

The one place where errors are classified. Pure. Names are matched exactly and by case: the class name (``ValueError``), the
qualified name (``my_team.errors.BankError``), or that of a base class, where the worker's SDK tells them.
"""

import re
from enum import StrEnum
from typing import Final, assert_never

from workflows.job import RetryPolicy
from workflows.run import Failure


class FailureKind(StrEnum):
    """Kinds of failures, whose values may stand in ``retry_on`` and ``no_retry_on``."""

    TIMEOUT = "timeout"
    """No answer in time, from the job's code or from what it called."""

    SERVER = "5xx"
    CONNECT = "connect_failure"
    LOST = "lost"
    """The worker died, hung, stopped or was cut off."""

    THROTTLED = "429"
    """The downstream asks for patience. It is well."""

    CLIENT = "4xx"
    """The downstream refuses the request. Another attempt would be refused too."""

    OTHER = "other"
    """An error of the job's own code."""


TIMEOUT_TYPES: Final = frozenset({"timeout", "Timeout", "TimeoutError", "ReadTimeout", "WriteTimeout", "PoolTimeout"})
CONNECT_TYPES: Final = frozenset(
    {
        "ConnectFailure",
        "ConnectionLost",
        "ConnectionError",
        "ConnectionRefusedError",
        "ConnectionResetError",
        "ConnectionAbortedError",
        "BrokenPipeError",
        "ConnectError",
        "ConnectTimeout",
        "gaierror",
        "ReadError",
        "RemoteProtocolError",
    }
)
"""Ours, those of Python itself, and of httpx, requests and urllib3."""

LOST_TYPES: Final = frozenset({"lost", "WorkerShutdown", "ResolverBusy"})
"""What failed was the worker, before its job's code or the downstream could: it died, had to stop, or could look up no names."""

_HTTP_STATUS: Final = re.compile(r"HttpStatus(\d{3})$")


def classify_failure(failure: Failure) -> FailureKind:
    """Say what kind of failure it is."""
    status = http_status_of(failure)
    if status is not None:
        return _kind_of_status(status)
    names = {failure.type, *(name.rsplit(".", 1)[-1] for name in failure.types)}
    if names & LOST_TYPES:
        return FailureKind.LOST
    if names & TIMEOUT_TYPES:
        return FailureKind.TIMEOUT
    return FailureKind.CONNECT if names & CONNECT_TYPES else FailureKind.OTHER


def is_retryable(failure: Failure, policy: RetryPolicy) -> bool:
    """Say whether another attempt makes sense.

    ``no_retry_on`` goes before everything but what the job's own code said; ``retry_on``, where given, names all that is
    retried, a lost worker excepted.
    """
    if not failure.retryable or matches(failure, policy.no_retry_on):
        return False
    kind = classify_failure(failure)
    if matches(failure, policy.retry_on) or kind is FailureKind.LOST:
        return True
    if policy.retry_on:
        return False
    match kind:
        case FailureKind.CLIENT:
            return False
        case FailureKind.TIMEOUT | FailureKind.SERVER | FailureKind.CONNECT | FailureKind.THROTTLED | FailureKind.OTHER:
            return True
        case _:
            assert_never(kind)


def is_downstreams_fault(failure: Failure) -> bool:
    """Say whether a failure counts against the downstream: timeouts, connections and 5xx, not bugs and not refusals."""
    return classify_failure(failure) in (FailureKind.TIMEOUT, FailureKind.SERVER, FailureKind.CONNECT)


def matches(failure: Failure, names: tuple[str, ...]) -> bool:
    """Say whether one of the names means this failure."""
    if not names:
        return False
    own = {failure.type, *failure.types, *(name.rsplit(".", 1)[-1] for name in failure.types)}
    return bool(own & set(names)) or classify_failure(failure).value in names


def names_an_error(name: str) -> bool:
    """Say whether a name may be one that ``matches`` compares: a kind, or the name of a class as classes are written."""
    return name in set(FailureKind) or "." in name or name[:1].isupper() or name in CONNECT_TYPES


def http_status_of(failure: Failure) -> int | None:
    """Read the HTTP status that an attempt failed with, if it was one."""
    if failure.http_status is not None:
        return failure.http_status
    found = _HTTP_STATUS.search(failure.type)
    return int(found[1]) if found else None


def _kind_of_status(status: int) -> FailureKind:
    if status == 429:
        return FailureKind.THROTTLED
    if status == 408:
        return FailureKind.TIMEOUT
    return FailureKind.SERVER if status >= 500 else FailureKind.CLIENT
