"""The routes that change and steer what is there: from HTTP to the services and back, and nothing else."""

from http import HTTPStatus
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends, Request, Response

from activities.idempotency_store import StoredResponse
from api.access import PREFIX, Tenant
from api.answer import JobAnswer, RunAnswer
from api.change_service import ChangeService
from api.idempotency import answer_request
from api.openapi import CANCEL_BODY, PATCH_JOB_BODY, PAUSE_BODY, PUT_JOB_BODY, RESUME_BODY, TRIGGER_BODY, problems
from api.parameter import refuse_unknown_parameters
from api.request import read_idempotency_key, read_json, read_json_if_any, read_merge_patch, read_precondition
from api.routes import Store, etag_of
from api.steer_body import TriggerAnswer
from api.steer_service import SteerService
from api.strict_json import require_fit
from workflows.run import FINAL_STATUSES


def _changes_of(request: Request) -> ChangeService:
    service: ChangeService = request.app.state.changes
    return service


def _steering_of(request: Request) -> SteerService:
    service: SteerService = request.app.state.steering
    return service


Changes: TypeAlias = Annotated[ChangeService, Depends(_changes_of)]
Steering: TypeAlias = Annotated[SteerService, Depends(_steering_of)]

steer_router = APIRouter(prefix=PREFIX, dependencies=[Depends(refuse_unknown_parameters)])


@steer_router.put(
    "/jobs/{job_id}",
    response_model=JobAnswer,
    openapi_extra=PUT_JOB_BODY,
    responses=problems(409, 412, 413, 415, 422, 428, 429, 503)
    | {201: {"model": JobAnswer, "description": "There was no such job"}},
    tags=["jobs"],
)
async def put_job(request: Request, job_id: str, changes: Changes, store: Store, tenant: Tenant) -> Response:
    """Create a job, or replace the one that is there. The same body twice changes nothing. `If-None-Match: *` only creates."""
    key, precondition = read_idempotency_key(request), read_precondition(request)
    body = require_fit(await read_json(request))

    async def work() -> StoredResponse:
        written = await changes.put_job(job_id, body, tenant=tenant, key=key, precondition=precondition)
        location = {"Location": f"{PREFIX}/jobs/{job_id}"} if written.is_new else {}
        return _job_response(written.job, status=HTTPStatus.CREATED if written.is_new else HTTPStatus.OK, **location)

    return await answer_request(store, tenant, f"PUT /jobs/{job_id}", key, body, work)


@steer_router.patch(
    "/jobs/{job_id}",
    response_model=JobAnswer,
    openapi_extra=PATCH_JOB_BODY,
    responses=problems(404, 409, 412, 413, 415, 422, 428, 429, 503),
    tags=["jobs"],
)
async def patch_job(request: Request, job_id: str, changes: Changes, store: Store, tenant: Tenant) -> Response:
    """Change the fields that a merge patch (RFC 7396) names; null brings a field's default back."""
    key, precondition = read_idempotency_key(request), read_precondition(request)
    patch = require_fit(await read_merge_patch(request))

    async def work() -> StoredResponse:
        job = await changes.patch_job(job_id, patch, tenant=tenant, key=key, precondition=precondition)
        return _job_response(job)

    return await answer_request(store, tenant, f"PATCH /jobs/{job_id}", key, patch, work)


@steer_router.post(
    "/jobs/{job_id}/pause",
    response_model=JobAnswer,
    openapi_extra=PAUSE_BODY,
    responses=problems(404, 409, 412, 413, 415, 422, 428, 503),
    tags=["jobs"],
)
async def pause_job(request: Request, job_id: str, steering: Steering, store: Store, tenant: Tenant) -> Response:
    """Let a job fire no more until it is resumed. Runs that have begun go on, retries included."""
    key, precondition = read_idempotency_key(request), read_precondition(request)
    body = require_fit(await read_json_if_any(request))

    async def work() -> StoredResponse:
        return _job_response(await steering.pause(job_id, body, tenant=tenant, key=key, precondition=precondition))

    return await answer_request(store, tenant, f"POST /jobs/{job_id}/pause", key, body, work)


@steer_router.post(
    "/jobs/{job_id}/resume",
    response_model=JobAnswer,
    openapi_extra=RESUME_BODY,
    responses=problems(404, 409, 412, 413, 415, 422, 428, 503),
    tags=["jobs"],
)
async def resume_job(request: Request, job_id: str, steering: Steering, store: Store, tenant: Tenant) -> Response:
    """Let a paused job fire again. What fell into the pause never runs, unless catch_up says so."""
    key, precondition = read_idempotency_key(request), read_precondition(request)
    body = require_fit(await read_json_if_any(request))

    async def work() -> StoredResponse:
        return _job_response(await steering.resume(job_id, body, tenant=tenant, key=key, precondition=precondition))

    return await answer_request(store, tenant, f"POST /jobs/{job_id}/resume", key, body, work)


@steer_router.post(
    "/jobs/{job_id}/trigger",
    status_code=HTTPStatus.ACCEPTED,
    response_model=TriggerAnswer,
    openapi_extra=TRIGGER_BODY,
    responses=problems(404, 409, 413, 415, 422, 503, replayed=TriggerAnswer),
    tags=["runs"],
)
async def trigger_job(request: Request, job_id: str, steering: Steering, store: Store, tenant: Tenant) -> Response:
    """Run a job now, whatever its schedule says; one that is paused or held, too, with a warning."""
    key = read_idempotency_key(request)
    body = require_fit(await read_json_if_any(request))

    async def work() -> StoredResponse:
        answer = await steering.trigger(job_id, body, tenant=tenant, key=key)
        headers = {"Location": f"{PREFIX}/runs/{answer.run_id}"}
        return StoredResponse(status=HTTPStatus.ACCEPTED, headers=headers, body=answer.model_dump_json().encode())

    async with steering.turn_of(job_id, tenant=tenant):
        return await answer_request(store, tenant, f"POST /jobs/{job_id}/trigger", key, body, work)


@steer_router.post(
    "/runs/{run_id}/cancel",
    response_model=RunAnswer,
    openapi_extra=CANCEL_BODY,
    responses=problems(404, 409, 413, 415, 422, 503)
    | {202: {"model": RunAnswer, "description": "It is asked to end, and has not ended yet"}},
    tags=["runs"],
)
async def cancel_run(request: Request, run_id: str, steering: Steering, store: Store, tenant: Tenant) -> Response:
    """Ask a run to end, wherever it stands. One that is over stays as it is."""
    key = read_idempotency_key(request)
    body = require_fit(await read_json_if_any(request))

    async def work() -> StoredResponse:
        run = await steering.cancel_run(run_id, body, tenant=tenant, key=key)
        status = HTTPStatus.OK if run.status in FINAL_STATUSES else HTTPStatus.ACCEPTED
        return StoredResponse(status=status, headers={}, body=run.model_dump_json().encode())

    return await answer_request(store, tenant, f"POST /runs/{run_id}/cancel", key, body, work)


def _job_response(job: JobAnswer, *, status: HTTPStatus = HTTPStatus.OK, **headers: str) -> StoredResponse:
    return StoredResponse(status=status, headers={"ETag": etag_of(job), **headers}, body=job.model_dump_json().encode())
