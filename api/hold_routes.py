"""The routes of holds: from HTTP to their service and back, and nothing else."""

from http import HTTPStatus
from typing import Annotated, Final, Literal, TypeAlias

from fastapi import APIRouter, Depends, Query, Request, Response

from activities.idempotency_store import RequestKey, StoredResponse
from api.access import PREFIX, Tenant
from api.hold_body import HoldAnswer
from api.hold_service import HOLDS_LIMIT, HoldService
from api.idempotency import answer_once, body_hash
from api.openapi import CREATE_HOLD_BODY, RELEASE_HOLD_BODY, problems
from api.parameter import Cursor, refuse_unknown_parameters
from api.request import read_idempotency_key, read_json, read_json_if_any
from api.response import json_response, page_response, stored_response
from api.routes import Service, Store
from api.strict_json import require_fit

_IN_FORCE: Final[dict[str, bool | None]] = {"in_force": True, "over": False, "any": None}


def _holds_of(request: Request) -> HoldService:
    service: HoldService = request.app.state.holds
    return service


Holds: TypeAlias = Annotated[HoldService, Depends(_holds_of)]

hold_router = APIRouter(prefix=f"{PREFIX}/holds", tags=["holds"], dependencies=[Depends(refuse_unknown_parameters)])


@hold_router.post(
    "",
    status_code=HTTPStatus.CREATED,
    response_model=HoldAnswer,
    openapi_extra=CREATE_HOLD_BODY,
    responses=problems(409, 413, 415, 422, 503, replayed=HoldAnswer),
)
async def create_hold(request: Request, holds: Holds, store: Store, tenant: Tenant) -> Response:
    """Hold all jobs with some labels, those that come later included. With `dry_run`, only say which (200)."""
    key = read_idempotency_key(request)
    body = require_fit(await read_json(request))

    async def work() -> StoredResponse:
        answer = await holds.create_hold(body, tenant=tenant, key=key)
        is_new = answer.hold_id is not None
        headers = {"Location": f"{PREFIX}/holds/{answer.hold_id}"} if is_new else {}
        status = HTTPStatus.CREATED if is_new else HTTPStatus.OK
        return StoredResponse(status=status, headers=headers, body=answer.model_dump_json().encode())

    if key is None:
        return stored_response(await work())
    claim = RequestKey(tenant=tenant, scope="POST /holds", key=key, body_hash=body_hash(body))
    return stored_response(await answer_once(store, claim, work))


@hold_router.get("", response_model=list[HoldAnswer], responses=problems(400, 422, 503))
async def list_holds(
    request: Request,
    holds: Holds,
    jobs: Service,
    tenant: Tenant,
    state: Annotated[Literal["in_force", "over", "any"], Query(description="Which are listed.")] = "in_force",
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=HOLDS_LIMIT, description="Items on a page.")] = 50,
) -> Response:
    """List holds, the newest first."""
    page = await holds.list_holds(in_force=_IN_FORCE[state], tenant=tenant, cursor=cursor, limit=limit)
    return page_response(request, page, is_stale=await jobs.is_stale())


@hold_router.get("/{hold_id}", response_model=HoldAnswer, responses=problems(404, 422, 503))
async def get_hold(hold_id: str, holds: Holds, tenant: Tenant) -> Response:
    """Read a hold, and which jobs it is over."""
    return json_response((await holds.get_hold(hold_id, tenant=tenant)).model_dump_json())


@hold_router.post(
    "/{hold_id}/release",
    response_model=HoldAnswer,
    openapi_extra=RELEASE_HOLD_BODY,
    responses=problems(404, 413, 415, 422, 503),
)
async def release_hold(request: Request, hold_id: str, holds: Holds, tenant: Tenant) -> Response:
    """End a hold now. One that is over stays as it is. Jobs that are paused, or held by another, do not fire by that."""
    # Whatever the key: a hold is released once.
    read_idempotency_key(request)
    body = require_fit(await read_json_if_any(request))
    return json_response((await holds.release_hold(hold_id, body, tenant=tenant)).model_dump_json())


@hold_router.delete("/{hold_id}", response_model=HoldAnswer, responses=problems(404, 422, 503))
async def delete_hold(request: Request, hold_id: str, holds: Holds, tenant: Tenant) -> Response:
    """End a hold now, as `release` does without a body."""
    read_idempotency_key(request)
    return json_response((await holds.release_hold(hold_id, {}, tenant=tenant)).model_dump_json())
