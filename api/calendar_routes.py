"""The routes of calendars: from HTTP to their service and back, and nothing else."""

from http import HTTPStatus
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends, Request, Response

from api.access import PREFIX, Tenant
from api.calendar_body import CalendarAnswer, CalendarSummary
from api.calendar_service import CalendarService
from api.openapi import WRITE_CALENDAR_BODY, problems
from api.parameter import refuse_unknown_parameters
from api.preview import dump_answers
from api.request import read_json
from api.response import json_response
from api.strict_json import require_fit


def _calendars_of(request: Request) -> CalendarService:
    service: CalendarService = request.app.state.calendars
    return service


Calendars: TypeAlias = Annotated[CalendarService, Depends(_calendars_of)]

calendar_router = APIRouter(
    prefix=f"{PREFIX}/calendars", tags=["calendars"], dependencies=[Depends(refuse_unknown_parameters)]
)


@calendar_router.get("", response_model=list[CalendarSummary], responses=problems(422, 503))
async def list_calendars(calendars: Calendars, tenant: Tenant) -> Response:
    """List all calendars by name."""
    return json_response(dump_answers(await calendars.list_calendars(tenant=tenant)))


@calendar_router.get("/{name}", response_model=CalendarAnswer, responses=problems(404, 422, 503))
async def get_calendar(name: str, calendars: Calendars, tenant: Tenant) -> Response:
    """Read a calendar, all its days, and which jobs use it."""
    return _answer(await calendars.get_calendar(name, tenant=tenant))


@calendar_router.put(
    "/{name}",
    response_model=CalendarAnswer,
    openapi_extra=WRITE_CALENDAR_BODY,
    responses=problems(409, 413, 415, 422, 503) | {201: {"model": CalendarAnswer, "description": "It is new"}},
)
async def write_calendar(request: Request, name: str, calendars: Calendars, tenant: Tenant) -> Response:
    """Create or replace a calendar. Jobs that use it take on its new days; the same again changes nothing."""
    body = require_fit(await read_json(request))
    answer, is_new = await calendars.write_calendar(name, body, tenant=tenant)
    return _answer(answer, status=HTTPStatus.CREATED if is_new else HTTPStatus.OK)


@calendar_router.delete("/{name}", response_model=CalendarAnswer, responses=problems(404, 409, 422, 503))
async def delete_calendar(name: str, calendars: Calendars, tenant: Tenant) -> Response:
    """Delete a calendar that no job uses."""
    return _answer(await calendars.delete_calendar(name, tenant=tenant))


def _answer(calendar: CalendarAnswer, *, status: int = HTTPStatus.OK) -> Response:
    body = calendar.model_dump_json(by_alias=True)
    return json_response(body, headers={"ETag": f'"{calendar.version}"'}, status=status)
