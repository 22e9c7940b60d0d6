"""The routes of backfills: from HTTP to their service and back, and nothing else."""

from http import HTTPStatus
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends, Request, Response

from activities.idempotency_store import StoredResponse
from api.access import PREFIX, Tenant
from api.backfill_body import BackfillAnswer, BackfillPreview
from api.backfill_service import BackfillService
from api.idempotency import answer_request
from api.openapi import BACKFILL_BODY, CANCEL_BACKFILL_BODY, STEER_BACKFILL_BODY, problems
from api.parameter import Cursor, Limit, refuse_unknown_parameters
from api.request import read_idempotency_key, read_json, read_json_if_any
from api.response import json_response, page_response, stale_header
from api.routes import Service, Store
from api.strict_json import require_fit


def _backfills_of(request: Request) -> BackfillService:
    service: BackfillService = request.app.state.backfills
    return service


Backfills: TypeAlias = Annotated[BackfillService, Depends(_backfills_of)]

backfill_router = APIRouter(prefix=PREFIX, tags=["backfills"], dependencies=[Depends(refuse_unknown_parameters)])


@backfill_router.post(
    "/jobs/{job_id}/backfills",
    status_code=HTTPStatus.ACCEPTED,
    response_model=BackfillAnswer,
    openapi_extra=BACKFILL_BODY,
    responses=problems(404, 409, 413, 415, 422, 503)
    | {
        200: {
            "model": BackfillPreview | BackfillAnswer,
            "description": "What it would do, for a dry run; or what was begun before, by a request with the same key",
        }
    },
)
async def begin_backfill(request: Request, job_id: str, backfills: Backfills, store: Store, tenant: Tenant) -> Response:
    """Run the fires of a range of the past, paused and completed jobs' too; with `dry_run`, only count them."""
    key = read_idempotency_key(request)
    body = require_fit(await read_json(request))

    async def work() -> StoredResponse:
        answer = await backfills.begin(job_id, body, tenant=tenant, key=key)
        told = answer.model_dump_json().encode()
        if isinstance(answer, BackfillPreview):
            return StoredResponse(status=HTTPStatus.OK, headers={}, body=told)
        headers = {"Location": f"{PREFIX}/backfills/{answer.backfill_id}"}
        return StoredResponse(status=HTTPStatus.ACCEPTED, headers=headers, body=told)

    return await answer_request(store, tenant, f"POST /jobs/{job_id}/backfills", key, body, work)


@backfill_router.get(
    "/jobs/{job_id}/backfills", response_model=list[BackfillAnswer], responses=problems(400, 404, 422, 503)
)
async def list_backfills(
    request: Request,
    job_id: str,
    backfills: Backfills,
    jobs: Service,
    tenant: Tenant,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Response:
    """List the backfills of a job, those asked for last first."""
    page = await backfills.list_backfills(job_id, tenant=tenant, cursor=cursor, limit=limit)
    return page_response(request, page, is_stale=await jobs.is_stale())


@backfill_router.get("/backfills/{backfill_id}", response_model=BackfillAnswer, responses=problems(404, 422, 503))
async def get_backfill(backfill_id: str, backfills: Backfills, jobs: Service, tenant: Tenant) -> Response:
    """Say how far a backfill is."""
    answer = await backfills.get(backfill_id, tenant=tenant)
    return json_response(answer.model_dump_json(), headers=stale_header(is_stale=await jobs.is_stale()))


@backfill_router.post(
    "/backfills/{backfill_id}/pause",
    response_model=BackfillAnswer,
    openapi_extra=STEER_BACKFILL_BODY,
    responses=problems(404, 409, 413, 415, 422, 503),
)
async def pause_backfill(
    request: Request, backfill_id: str, backfills: Backfills, store: Store, tenant: Tenant
) -> Response:
    """Let a backfill begin no more runs until it is resumed. Those that it has begun go on."""
    key = read_idempotency_key(request)
    body = require_fit(await read_json_if_any(request))

    async def work() -> StoredResponse:
        return _stored(await backfills.pause(backfill_id, body, tenant=tenant))

    return await answer_request(store, tenant, f"POST /backfills/{backfill_id}/pause", key, body, work)


@backfill_router.post(
    "/backfills/{backfill_id}/resume",
    response_model=BackfillAnswer,
    openapi_extra=STEER_BACKFILL_BODY,
    responses=problems(404, 409, 413, 415, 422, 503),
)
async def resume_backfill(
    request: Request, backfill_id: str, backfills: Backfills, store: Store, tenant: Tenant
) -> Response:
    """Let a paused backfill go on. One that is not paused stays as it is."""
    key = read_idempotency_key(request)
    body = require_fit(await read_json_if_any(request))

    async def work() -> StoredResponse:
        return _stored(await backfills.resume(backfill_id, body, tenant=tenant))

    return await answer_request(store, tenant, f"POST /backfills/{backfill_id}/resume", key, body, work)


@backfill_router.post(
    "/backfills/{backfill_id}/cancel",
    response_model=BackfillAnswer,
    openapi_extra=CANCEL_BACKFILL_BODY,
    responses=problems(404, 409, 413, 415, 422, 503),
)
async def cancel_backfill(
    request: Request, backfill_id: str, backfills: Backfills, store: Store, tenant: Tenant
) -> Response:
    """Let a backfill begin no more runs. Those that it has begun go on, unless they are to be cancelled too."""
    key = read_idempotency_key(request)
    body = require_fit(await read_json_if_any(request))

    async def work() -> StoredResponse:
        return _stored(await backfills.cancel(backfill_id, body, tenant=tenant))

    return await answer_request(store, tenant, f"POST /backfills/{backfill_id}/cancel", key, body, work)


def _stored(answer: BackfillAnswer) -> StoredResponse:
    return StoredResponse(status=HTTPStatus.OK, headers={}, body=answer.model_dump_json().encode())
