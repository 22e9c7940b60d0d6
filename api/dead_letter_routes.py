"""The routes of dead letters: from HTTP to their service and back, and nothing else."""

from http import HTTPStatus
from typing import Annotated, Final, Literal, TypeAlias

from fastapi import APIRouter, Depends, Query, Request, Response

from activities.idempotency_store import RequestKey, StoredResponse
from api.access import PREFIX, Tenant
from api.answer import RunAnswer
from api.dead_letter_body import BulkRedriveAnswer, DeadLetterAnswer
from api.dead_letter_service import DeadLetterService
from api.idempotency import answer_once, body_hash
from api.openapi import BULK_REDRIVE_BODY, problems
from api.parameter import Cursor, Labels, Limit, Moment, read_labels, refuse_unknown_parameters
from api.request import read_idempotency_key, read_json
from api.response import json_response, page_response, stored_response
from api.routes import Service, Store
from api.strict_json import require_fit
from workflows.dead_letter import DeadLetterFilter

_REDRIVEN: Final[dict[str, bool | None]] = {"false": False, "true": True, "any": None}


def _letters_of(request: Request) -> DeadLetterService:
    service: DeadLetterService = request.app.state.dead_letters
    return service


Letters: TypeAlias = Annotated[DeadLetterService, Depends(_letters_of)]

dead_letter_router = APIRouter(
    prefix=f"{PREFIX}/dead-letters", tags=["dead letters"], dependencies=[Depends(refuse_unknown_parameters)]
)


@dead_letter_router.get("", response_model=list[DeadLetterAnswer], responses=problems(400, 422, 503))
async def list_dead_letters(
    request: Request,
    letters: Letters,
    jobs: Service,
    tenant: Tenant,
    job: Annotated[str | None, Query(description="Only of this job.")] = None,
    reason: Annotated[
        str | None, Query(max_length=200, description="Only with a reason that begins so, such as `cluster_lost`.")
    ] = None,
    start: Annotated[Moment | None, Query(alias="from", description="When the run ended, inclusive.")] = None,
    end: Annotated[Moment | None, Query(alias="to", description="When the run ended, inclusive.")] = None,
    label: Labels = [],  # noqa: B006
    redriven: Annotated[
        Literal["false", "true", "any"], Query(description="Whether they have been redriven.")
    ] = "false",
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Response:
    """List the runs that are dead, over all jobs, with their attempts and checkpoints; those that ended last first."""
    chosen = DeadLetterFilter(
        job_id=job, reason=reason, start=start, end=end, labels=read_labels(label), redriven=_REDRIVEN[redriven]
    )
    page = await letters.list_dead_letters(chosen, tenant=tenant, cursor=cursor, limit=limit)
    return page_response(request, page, is_stale=await jobs.is_stale())


@dead_letter_router.post(
    "/{run_id}/redrive",
    status_code=HTTPStatus.ACCEPTED,
    response_model=RunAnswer,
    responses=problems(404, 409, 422, 503) | {200: {"model": RunAnswer, "description": "Redriven before"}},
)
async def redrive(request: Request, run_id: str, letters: Letters, tenant: Tenant) -> Response:
    """Run a dead run again, with its idempotency key and its checkpoint. Asked again, it is the same run."""
    # Whatever the key: a dead run is redriven once.
    read_idempotency_key(request)
    answer = await letters.redrive(run_id, tenant=tenant)
    headers = {"Location": f"{PREFIX}/runs/{answer.run.run_id}"}
    status = HTTPStatus.ACCEPTED if answer.is_new else HTTPStatus.OK
    return json_response(answer.run.model_dump_json(), headers=headers, status=status)


@dead_letter_router.post(
    "/redrive",
    status_code=HTTPStatus.ACCEPTED,
    response_model=BulkRedriveAnswer,
    openapi_extra=BULK_REDRIVE_BODY,
    responses=problems(409, 413, 415, 422, 503, replayed=BulkRedriveAnswer),
)
async def redrive_many(request: Request, letters: Letters, store: Store, tenant: Tenant) -> Response:
    """Redrive the dead letters that a filter names, or with `all` every one, in the background and at a rate."""
    key = read_idempotency_key(request)
    body = require_fit(await read_json(request))

    async def work() -> StoredResponse:
        answer = await letters.begin_bulk_redrive(body, tenant=tenant, key=key)
        headers = {"Location": f"{PREFIX}/dead-letters/redrives/{answer.redrive_id}"}
        return StoredResponse(status=HTTPStatus.ACCEPTED, headers=headers, body=answer.model_dump_json().encode())

    if key is None:
        return stored_response(await work())
    claim = RequestKey(tenant=tenant, scope="POST /dead-letters/redrive", key=key, body_hash=body_hash(body))
    return stored_response(await answer_once(store, claim, work))


@dead_letter_router.get("/redrives/{redrive_id}", response_model=BulkRedriveAnswer, responses=problems(404, 422, 503))
async def get_bulk_redrive(redrive_id: str, letters: Letters, tenant: Tenant) -> Response:
    """Say how far a bulk redrive is."""
    answer = await letters.get_bulk_redrive(redrive_id, tenant=tenant)
    return json_response(answer.model_dump_json())


@dead_letter_router.post(
    "/redrives/{redrive_id}/cancel",
    status_code=HTTPStatus.ACCEPTED,
    response_model=BulkRedriveAnswer,
    responses=problems(404, 422, 503),
)
async def cancel_bulk_redrive(request: Request, redrive_id: str, letters: Letters, tenant: Tenant) -> Response:
    """Let a bulk redrive begin no more redrives. Those that it has begun go on; cancelling it again changes nothing."""
    read_idempotency_key(request)
    answer = await letters.cancel_bulk_redrive(redrive_id, tenant=tenant)
    return json_response(answer.model_dump_json(), status=HTTPStatus.ACCEPTED)
