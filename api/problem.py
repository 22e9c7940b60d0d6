"""Errors as callers see them: RFC 9457 ``application/problem+json``, from one table.

Owns the answer's shape and the mapping from errors to HTTP. An error that is not in the table is a bug and is answered
without its text.
"""

from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

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


class TooLarge(HorariumError):
    """The body is larger than the service reads."""


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
            status=HTTPStatus.PRECONDITION_FAILED, name="revision-mismatch", title="The job has been changed meanwhile."
        ),
    ),
    (TooLarge, _Kind(status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE, name="too-large", title="The body is too large.")),
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
    )


def retry_after_of(error: HorariumError) -> int | None:
    """Say after how many seconds asking again makes sense; ``None`` where the same request will fail again."""
    return _kind_of(error).retry_after


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
    place = error.parameter or (error.pointer or "").lstrip("/").replace("/", ".")
    return f"{place}: {error.detail}" if place else error.detail


def _kind_of(error: HorariumError) -> _Kind:
    return next((kind for parent, kind in _TABLE if isinstance(error, parent)), _UNKNOWN)
