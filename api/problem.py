"""Errors as callers see them: RFC 9457 ``application/problem+json``, from one table.

Owns the answer's shape and the mapping from errors to HTTP. An error that is not in the table is a bug and is answered
without its text.
"""

from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from activities.api_key import Scope
from workflows.error import (
    Conflict,
    HorariumError,
    InvalidCursor,
    InvalidSchedule,
    NotFound,
    RevisionMismatch,
    Unavailable,
)
from workflows.idempotency_key import InvalidTemplate

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"

TYPE_PREFIX: Final = "urn:horarium:problem:"


class FieldError(BaseModel):
    """One thing that is wrong with a request, and where."""

    model_config = ConfigDict(frozen=True)

    pointer: str | None = Field(
        default=None, description="JSON pointer (RFC 6901) into the body; empty: the whole of it."
    )
    parameter: str | None = Field(default=None, description="Name of the query parameter or header.")
    detail: str
    position: int | None = Field(default=None, description="Zero-based index of the first offending character.")


class QuotaProblem(BaseModel):
    """A quota that does not suffice."""

    name: Literal["jobs", "fires_per_minute"]
    limit: float
    current: float = Field(description="What the tenant's other jobs take.")
    requested: float = Field(description="What the job of this request takes.")


class Problem(BaseModel):
    """An error answer (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:horarium:problem:invalid-request",
                    "title": "The request is not valid.",
                    "status": 422,
                    "detail": "timezone: 'Mars/Base' is not a known time zone",
                    "errors": [{"pointer": "/timezone", "detail": "'Mars/Base' is not a known time zone"}],
                }
            ]
        }
    )

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldError] = []
    fires: list[str] | None = Field(
        default=None, description="Only of a previewed schedule that can be read and never fires: an empty list."
    )
    quota: QuotaProblem | None = Field(default=None, description="Only where one is exceeded.")


class InvalidRequest(HorariumError):
    """What was asked can never be right. Carries every error that was found, each with its place."""

    def __init__(self, *errors: FieldError) -> None:
        super().__init__("; ".join(describe_field_error(error) for error in errors))
        self.errors = errors


class NeverFires(InvalidSchedule):
    """A previewed schedule that can be read and has no fire, ever. A job with it would be refused."""


class KeyReused(InvalidRequest):
    """An idempotency key that was used with another request before."""


class InProgress(Conflict):
    """The same idempotency key is being worked on right now."""


class Unauthorized(HorariumError):
    """The request has no API key that is good."""

    def __init__(self, reason: str, *, is_given: bool = False) -> None:
        super().__init__(reason)
        self.is_given = is_given


class Forbidden(HorariumError):
    """The API key is good, but not for this."""

    def __init__(self, needed: Scope) -> None:
        super().__init__(f"this needs an API key with the scope {needed.value}")
        self.needed = needed


class CrossSiteRequest(HorariumError):
    """A page of another site has its reader's browser ask, where no key tells the two apart."""


class ForeignPayload(HorariumError):
    """A payload that is not the caller's to see."""


class QuotaExceeded(HorariumError):
    """The tenant has as much as it may have."""

    def __init__(self, quota: "QuotaProblem") -> None:
        asked = f"{quota.name}: {quota.limit:g} are allowed to the tenant, {quota.current:g} are taken"
        super().__init__(f"{asked}, and this asks for {quota.requested:g}")
        self.quota = quota


class PreconditionRequired(HorariumError):
    """A change that must say which revision it was made for, and does not."""


class TooLarge(HorariumError):
    """The body is larger than the service reads."""


class TooSlow(HorariumError):
    """The body does not come to its end."""


class UnsupportedMedia(HorariumError):
    """The body is not sent as JSON."""


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """One row of the table."""

    status: HTTPStatus
    name: str
    title: str
    retry_after: int | None = None
    """Seconds."""


_INVALID = _Kind(status=HTTPStatus.UNPROCESSABLE_ENTITY, name="invalid-request", title="The request is not valid.")

_UNKNOWN = _Kind(
    status=HTTPStatus.INTERNAL_SERVER_ERROR, name="internal-server-error", title="Horarium made a mistake."
)
"""An error of ours that nobody has thought of here."""

_TABLE: Final[tuple[tuple[type[HorariumError], _Kind], ...]] = (
    (InvalidCursor, _Kind(status=HTTPStatus.BAD_REQUEST, name="invalid-cursor", title="The cursor is not valid.")),
    (
        KeyReused,
        _Kind(
            status=HTTPStatus.UNPROCESSABLE_ENTITY,
            name="idempotency-key-reused",
            title="The idempotency key belongs to another request.",
        ),
    ),
    (NeverFires, replace(_INVALID, name="never-fires", title="The schedule never fires.")),
    (InvalidRequest, _INVALID),
    (InvalidSchedule, _INVALID),
    (InvalidTemplate, _INVALID),
    (
        Unauthorized,
        _Kind(status=HTTPStatus.UNAUTHORIZED, name="unauthorized", title="An API key is needed."),
    ),
    (
        Forbidden,
        _Kind(status=HTTPStatus.FORBIDDEN, name="forbidden", title="The API key is not good for this."),
    ),
    (
        CrossSiteRequest,
        _Kind(status=HTTPStatus.FORBIDDEN, name="cross-site-request", title="The request is of another site's page."),
    ),
    (
        ForeignPayload,
        _Kind(status=HTTPStatus.FORBIDDEN, name="foreign-payload", title="The payload is not the caller's."),
    ),
    (
        QuotaExceeded,
        _Kind(status=HTTPStatus.TOO_MANY_REQUESTS, name="quota-exceeded", title="A quota of the tenant is exceeded."),
    ),
    (NotFound, _Kind(status=HTTPStatus.NOT_FOUND, name="not-found", title="There is no such thing.")),
    (
        InProgress,
        _Kind(
            status=HTTPStatus.CONFLICT,
            name="in-progress",
            title="A request with the same idempotency key is in progress.",
            retry_after=1,
        ),
    ),
    (Conflict, _Kind(status=HTTPStatus.CONFLICT, name="conflict", title="The request contradicts what exists.")),
    (
        RevisionMismatch,
        _Kind(
            status=HTTPStatus.PRECONDITION_FAILED,
            name="revision-mismatch",
            title="The job is not as the request expects it.",
        ),
    ),
    (
        PreconditionRequired,
        _Kind(
            status=HTTPStatus.PRECONDITION_REQUIRED, name="precondition-required", title="If-Match is required here."
        ),
    ),
    (TooLarge, _Kind(status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE, name="too-large", title="The body is too large.")),
    (TooSlow, _Kind(status=HTTPStatus.REQUEST_TIMEOUT, name="too-slow", title="The body did not arrive in time.")),
    (
        UnsupportedMedia,
        _Kind(status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE, name="unsupported-media-type", title="The body is not JSON."),
    ),
    (
        Unavailable,
        _Kind(
            status=HTTPStatus.SERVICE_UNAVAILABLE,
            name="unavailable",
            title="A part of the service cannot answer now.",
            retry_after=5,
        ),
    ),
)
"""The first row whose class fits decides: a subclass stands before its parent."""


def problem_of(error: HorariumError) -> Problem:
    """Say an error as a problem."""
    kind, errors = _kind_of(error), field_errors_of(error)
    return Problem(
        type=TYPE_PREFIX + kind.name,
        title=kind.title,
        status=kind.status,
        detail="; ".join(map(describe_field_error, errors)) or str(error),
        errors=errors,
        fires=[] if isinstance(error, NeverFires) else None,
        quota=error.quota if isinstance(error, QuotaExceeded) else None,
    )


def headers_of(error: HorariumError) -> dict[str, str]:
    """List what an error says in headers: when asking again makes sense, and what a key would have to be."""
    match error:
        case Unauthorized(is_given=True):
            return {"WWW-Authenticate": 'Bearer realm="horarium", error="invalid_token"'}
        case Unauthorized():
            return {"WWW-Authenticate": 'Bearer realm="horarium"'}
        case Forbidden(needed=scope):
            challenge = f'Bearer realm="horarium", error="insufficient_scope", scope="{scope.value}"'
            return {"WWW-Authenticate": challenge}
        case _:
            wait = _kind_of(error).retry_after
            return {} if wait is None else {"Retry-After": str(wait)}


def problem_of_status(status: int, *, detail: str | None = None) -> Problem:
    """Say a bare HTTP status as a problem, for errors that the framework raises."""
    phrase = HTTPStatus(status).phrase
    name = phrase.lower().replace(" ", "-")
    return Problem(
        type=TYPE_PREFIX + name, title=phrase, status=status, detail=detail or HTTPStatus(status).description
    )


def field_errors_of(error: HorariumError) -> list[FieldError]:
    """List what is wrong, and where, in an error that knows it."""
    match error:
        case InvalidRequest():
            return list(error.errors)
        case InvalidSchedule():
            return [FieldError(pointer=error.pointer, detail=error.reason, position=error.position)]
        case InvalidCursor():
            return [FieldError(parameter="cursor", detail=str(error))]
        case InvalidTemplate():
            pointer = "/idempotency_key_template"
            return [FieldError(pointer=pointer, detail=error.reason, position=error.position)]
        case _:
            return []


def describe_field_error(error: FieldError) -> str:
    """Say one error in a line that names its field."""
    in_body = (error.pointer or "").lstrip("/").replace("/", ".").replace("~1", "/").replace("~0", "~")
    place = error.parameter or in_body
    return f"{place}: {error.detail}" if place else error.detail


def _kind_of(error: HorariumError) -> _Kind:
    return next((kind for parent, kind in _TABLE if isinstance(error, parent)), _UNKNOWN)
