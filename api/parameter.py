"""Query parameters: what they may be, and that nothing else is accepted."""

from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import Query, Request
from fastapi.routing import APIRoute
from pydantic import AfterValidator, AwareDatetime, BeforeValidator

from api.problem import FieldError, InvalidRequest
from workflows.job import Lifecycle
from workflows.run import RunStatus

PAGE_LIMIT: Final = 500

FAILED: Final = "failed"
"""As a status: retrying or dead."""


def _to_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("outside the years 1 to 9999") from error


def _refuse_numbers(value: object) -> object:
    # Pydantic takes a number for seconds, or for milliseconds, since 1970.
    try:
        float(str(value))
    except ValueError:
        return value
    raise ValueError("give a time as in RFC 3339, such as 2026-06-08T13:00:00Z")


Moment = Annotated[AwareDatetime, BeforeValidator(_refuse_numbers), AfterValidator(_to_utc)]

Cursor = Annotated[str | None, Query(description="From the Link header of the page before.")]
Limit = Annotated[int, Query(ge=1, le=PAGE_LIMIT, description="Items on a page.")]
From = Annotated[Moment | None, Query(alias="from", description="Nominal time, inclusive.")]
To = Annotated[Moment | None, Query(alias="to", description="Nominal time, inclusive.")]
State = Annotated[Lifecycle | None, Query(description="Default: all but deleted.")]
Labels = Annotated[list[str], Query(alias="label", description="`key:value`; several must all hold.")]


async def refuse_unknown_parameters(request: Request) -> None:
    """Refuse a parameter that the route does not have: a filter that was misspelled must not be ignored."""
    route = request.scope.get("route")
    assert isinstance(route, APIRoute)
    known = {parameter.alias for parameter in route.dependant.query_params}
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        reason = f"there is no such parameter; known are {', '.join(sorted(known)) or 'none'}"
        raise InvalidRequest(*(FieldError(parameter=name[:100], detail=reason) for name in unknown))


def read_labels(labels: list[str]) -> dict[str, str]:
    """Read ``key:value`` pairs; ``key=value`` is understood as well."""
    return dict(_read_label(label) for label in labels)


def _read_label(label: str) -> tuple[str, str]:
    for separator in (":", "="):
        key, found, value = label.partition(separator)
        if found and key:
            return key, value
    raise InvalidRequest(FieldError(parameter="label", detail="give key:value"))


def read_statuses(statuses: list[str]) -> frozenset[RunStatus]:
    """Read statuses in any case, each once or several separated by commas; ``failed`` stands for two."""
    names = [name.strip().lower() for status in statuses for name in status.split(",")]
    return frozenset(status for name in names for status in _read_status(name))


def _read_status(name: str) -> frozenset[RunStatus]:
    if name == FAILED:
        return frozenset({RunStatus.RETRYING, RunStatus.DEAD})
    try:
        return frozenset({RunStatus(name)})
    except ValueError as error:
        known = ", ".join([*RunStatus, FAILED])
        raise InvalidRequest(FieldError(parameter="status", detail=f"use one of {known}")) from error
