"""The routes of downstreams: from HTTP to their service and back, and nothing else.

A name may hold whatever a job may name, slashes and colons included, encoded or not: it is all that stands before ``/reset``.
"""

from typing import Annotated, Final, TypeAlias

from fastapi import APIRouter, Depends, Request, Response
from pydantic import JsonValue

from api.access import PREFIX, Tenant
from api.downstream_answer import EXAMPLE, DownstreamAnswer
from api.downstream_service import DownstreamService
from api.openapi import example_answer, problems
from api.parameter import Cursor, Limit, refuse_unknown_parameters
from api.request import read_idempotency_key
from api.response import json_response, page_response, stale_header


def _downstreams_of(request: Request) -> DownstreamService:
    service: DownstreamService = request.app.state.downstreams
    return service


Downstreams: TypeAlias = Annotated[DownstreamService, Depends(_downstreams_of)]

_ONE: Final = example_answer("an open breaker", EXAMPLE)
_CLOSED: Final[JsonValue] = EXAMPLE | {"state": "closed", "opened_at": None, "open_until": None, "openings": 0}

downstream_router = APIRouter(
    prefix=f"{PREFIX}/downstreams", tags=["downstreams"], dependencies=[Depends(refuse_unknown_parameters)]
)


@downstream_router.get(
    "",
    response_model=list[DownstreamAnswer],
    responses=problems(400, 422, 503) | example_answer("an open breaker", [EXAMPLE]),
)
async def list_downstreams(
    request: Request, downstreams: Downstreams, tenant: Tenant, cursor: Cursor = None, limit: Limit = 50
) -> Response:
    """List what jobs call, by name: circuit breakers, retry budgets and the runs that wait."""
    page = await downstreams.list_downstreams(tenant=tenant, cursor=cursor, limit=limit)
    return page_response(request, page, is_stale=any(answer.stale for answer in page.items))


@downstream_router.get("/{name:path}", response_model=DownstreamAnswer, responses=problems(404, 422, 503) | _ONE)
async def get_downstream(name: str, downstreams: Downstreams, tenant: Tenant) -> Response:
    """Say how one downstream stands."""
    answer = await downstreams.get_downstream(name, tenant=tenant)
    return json_response(answer.model_dump_json(), headers=stale_header(is_stale=answer.stale))


@downstream_router.post(
    "/{name:path}/reset",
    response_model=DownstreamAnswer,
    responses=problems(404, 422, 503) | example_answer("closed again", _CLOSED),
)
async def reset_downstream(request: Request, name: str, downstreams: Downstreams, tenant: Tenant) -> Response:
    """Close its circuit breaker now. Attempts go there again within five seconds; parked runs return spread out, at the rate."""
    # Whatever the key: a breaker that is closed stays closed.
    read_idempotency_key(request)
    answer = await downstreams.reset(name, tenant=tenant)
    return json_response(answer.model_dump_json())
