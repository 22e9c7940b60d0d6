"""What can go wrong with a call, as exceptions. All have one parent."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from horarium.client.answer import ExceededQuota, FieldError, Problem

_URN: Final = "urn:horarium:problem:"


class HorariumError(Exception):
    """Parent of everything that a client raises."""


class Unsendable(HorariumError, ValueError):
    """What was given can be no request: a URL that is none, a key that no header can hold, a value without a JSON form."""


class Unreachable(HorariumError):
    """There was no answer. Where ``was_sent``, the request may have been carried out all the same."""

    def __init__(self, reason: str, *, url: str, was_sent: bool) -> None:
        super().__init__(f"cannot reach the API at {url} ({reason})")
        self.reason = reason
        self.url = url
        self.was_sent = was_sent


class UnexpectedAnswer(HorariumError):
    """The answer cannot be understood: it is not that of this API, or of a release that is too far from this client's."""


class ApiError(HorariumError):
    """The API answered with an error. Subclasses say which; an error that none is for is one of this class."""

    def __init__(
        self, problem: Problem, *, retry_after: timedelta | None = None, request_id: str | None = None
    ) -> None:
        super().__init__(problem.detail or problem.title)
        self.problem = problem
        self.retry_after = retry_after
        """When asking again makes sense, where the API says so."""

        self.request_id = request_id
        """Finds the request in the audit log, in traces and logs."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.problem.status

    @property
    def type(self) -> str:
        """The kind of the problem, such as ``urn:horarium:problem:never-fires``."""
        return self.problem.type

    @property
    def errors(self) -> list[FieldError]:
        """What is wrong with the request, each with its place, where the API says so."""
        return self.problem.errors


class Invalid(ApiError):
    """What was asked can never be right; ``errors`` names each field with its JSON pointer."""


class NeverFires(Invalid):
    """A previewed schedule that can be read and has no fire, ever."""


class KeyReused(Invalid):
    """The idempotency key was used with another request before."""


class Unauthorized(ApiError):
    """An API key is needed, or the one that was given is not good."""


class Forbidden(ApiError):
    """The API key is good, but not for this."""


class NotFound(ApiError):
    """There is no such thing in the tenant of the key."""


class Conflict(ApiError):
    """The request contradicts what exists."""


class InProgress(Conflict):
    """A request with the same idempotency key is being carried out."""


class PreconditionFailed(ApiError):
    """What ``if_match`` names is no longer the present revision, or ``if_none_match`` has found something: read it again, and
    decide anew."""


class PreconditionRequired(ApiError):
    """This installation changes nothing without ``if_match``."""


class QuotaExceeded(ApiError):
    """A quota of the tenant does not suffice, or a proxy wants fewer requests; then ``retry_after`` says how long to wait."""

    @property
    def quota(self) -> ExceededQuota | None:
        """The quota that is exceeded."""
        return self.problem.quota


class ServerError(ApiError):
    """The API made a mistake."""


class Unavailable(ServerError):
    """Temporal, the database or the API itself cannot answer now. A change may still be applied: repeat it with the same key."""


_BY_TYPE: Final[Mapping[str, type[ApiError]]] = {
    f"{_URN}never-fires": NeverFires,
    f"{_URN}idempotency-key-reused": KeyReused,
    f"{_URN}in-progress": InProgress,
}

_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: PreconditionFailed,
    413: Invalid,
    414: Invalid,
    415: Invalid,
    422: Invalid,
    428: PreconditionRequired,
    429: QuotaExceeded,
    431: Invalid,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def api_error(problem: Problem, *, retry_after: timedelta | None, request_id: str | None) -> ApiError:
    """Make the error that a problem is."""
    fallback = ServerError if problem.status >= 500 else ApiError
    kind = _BY_TYPE.get(problem.type) or _BY_STATUS.get(problem.status, fallback)
    return kind(problem, retry_after=retry_after, request_id=request_id)
