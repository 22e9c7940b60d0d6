"""The routes under ``/api/v1``: from HTTP to the service and back, and nothing else."""

from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Final, Literal, TypeAlias

from anyio import to_thread
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import JsonValue

from activities.idempotency_store import IdempotencyStore, RequestKey, StoredResponse
from activities.queries import JobFilter, RunFilter
from api.access import PREFIX, Tenant
from api.answer import FireAnswer, JobAnswer, JobSummary, LedgerAnswer, RunAnswer
from api.calendar_body import named_calendars
from api.idempotency import answer_once, body_hash
from api.job_document import ExportedJob
from api.openapi import CREATE_JOB_BODY, DELETE_JOB_HEADERS, PREVIEW_BODY, problems
from api.parameter import (
    Cursor,
    From,
    Labels,
    Limit,
    Moment,
    State,
    To,
    read_labels,
    read_statuses,
    refuse_unknown_parameters,
)
from api.preview import PreviewAnswer, check_batch, dump_answers, preview, preview_each
from api.problem import Problem
from api.request import read_idempotency_key, read_json, read_precondition
from api.response import json_response, page_response, stale_header, stored_response
from api.service import JobService, LedgerRange
from api.strict_json import require_fit

LEDGER_DEFAULT: Final = timedelta(days=7)
"""How far back the ledger is told when nobody says."""


def _service_of(request: Request) -> JobService:
    service: JobService = request.app.state.service
    return service


def _store_of(request: Request) -> IdempotencyStore:
    store: IdempotencyStore = request.app.state.idempotency
    return store


Service: TypeAlias = Annotated[JobService, Depends(_service_of)]
Store: TypeAlias = Annotated[IdempotencyStore, Depends(_store_of)]

router = APIRouter(prefix=PREFIX, dependencies=[Depends(refuse_unknown_parameters)])


@router.post(
    "/jobs",
    status_code=HTTPStatus.CREATED,
    response_model=JobAnswer,
    openapi_extra=CREATE_JOB_BODY,
    responses=problems(409, 413, 415, 422, 429, 503, replayed=JobAnswer),
    tags=["jobs"],
)
async def create_job(request: Request, service: Service, store: Store, tenant: Tenant) -> Response:
    """Register a job. It is readable when the answer is there."""
    key = read_idempotency_key(request)
    body = require_fit(await read_json(request))

    async def work() -> StoredResponse:
        answer = await service.create_job(body, tenant=tenant, key=key)
        headers = {"Location": f"{PREFIX}/jobs/{answer.job_id}", "ETag": etag_of(answer)}
        return StoredResponse(status=HTTPStatus.CREATED, headers=headers, body=answer.model_dump_json().encode())

    if key is None:
        return stored_response(await work())
    claim = RequestKey(tenant=tenant, scope="POST /jobs", key=key, body_hash=body_hash(body))
    return stored_response(await answer_once(store, claim, work))


@router.get("/jobs", response_model=list[JobSummary], responses=problems(400, 422, 503), tags=["jobs"])
async def list_jobs(
    request: Request,
    service: Service,
    tenant: Tenant,
    state: State = None,
    label: Labels = [],  # noqa: B006
    name: Annotated[str | None, Query(description="Exactly this name.")] = None,
    q: Annotated[
        str | None, Query(max_length=200, description="Part of id, name, description, owner or target.")
    ] = None,
    target: Annotated[str | None, Query(description="Exactly this activity, workflow, or method and URL.")] = None,
    next_after: Annotated[Moment | None, Query(description="With a next fire at this time or later.")] = None,
    next_before: Annotated[Moment | None, Query(description="With a next fire at this time or earlier.")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Response:
    """List jobs by id."""
    chosen = JobFilter(
        state=state,
        labels=read_labels(label),
        name=name,
        q=q,
        target=target,
        next_after=next_after,
        next_before=next_before,
    )
    page = await service.list_jobs(chosen, tenant=tenant, cursor=cursor, limit=limit)
    return page_response(request, page, is_stale=await service.is_stale())


@router.get("/export", response_model=list[ExportedJob], responses=problems(400, 422, 503), tags=["jobs"])
async def export_jobs(
    request: Request,
    service: Service,
    tenant: Tenant,
    label: Labels = [],  # noqa: B006
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Response:
    """List jobs by id as bodies that make them what they are: `PUT` with one of them changes nothing."""
    chosen = JobFilter(labels=read_labels(label))
    page = await service.export_jobs(chosen, tenant=tenant, cursor=cursor, limit=limit)
    return page_response(request, page, is_stale=await service.is_stale())


@router.get("/jobs/{job_id}", response_model=JobAnswer, responses=problems(404, 422, 503), tags=["jobs"])
async def get_job(job_id: str, service: Service, tenant: Tenant) -> Response:
    """Read a job, a deleted one too."""
    answer = await service.get_job(job_id, tenant=tenant)
    headers = {"ETag": etag_of(answer)} | stale_header(is_stale=answer.stale)
    return json_response(answer.model_dump_json(), headers=headers)


@router.delete(
    "/jobs/{job_id}",
    response_model=JobAnswer,
    openapi_extra=DELETE_JOB_HEADERS,
    responses=problems(404, 412, 422, 428, 503),
    tags=["jobs"],
)
async def delete_job(
    request: Request,
    job_id: str,
    service: Service,
    tenant: Tenant,
    cancel_active: Annotated[bool, Query(description="Cancel runs that are active, rather than let them end.")] = False,
) -> Response:
    """Delete a job; its history stays. Deleting it again changes nothing."""
    answer = await service.delete_job(
        job_id,
        tenant=tenant,
        key=read_idempotency_key(request),
        cancel_active=cancel_active,
        precondition=read_precondition(request),
    )
    return json_response(answer.model_dump_json(), headers={"ETag": etag_of(answer)})


@router.get(
    "/jobs/{job_id}/runs", response_model=list[RunAnswer], responses=problems(400, 404, 422, 503), tags=["runs"]
)
async def list_runs(
    request: Request,
    job_id: str,
    service: Service,
    tenant: Tenant,
    status: Annotated[list[str], Query(description="`failed` means retrying or dead.")] = [],  # noqa: B006
    start: From = None,
    end: To = None,
    include: Annotated[Literal["attempts"] | None, Query(description="Tell the attempts of each run too.")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Response:
    """List the runs of a job, newest first."""
    chosen = RunFilter(statuses=read_statuses(status), start=start, end=end)
    page = await service.list_runs(
        job_id, chosen, tenant=tenant, cursor=cursor, limit=limit, include_attempts=include == "attempts"
    )
    return page_response(request, page, is_stale=await service.is_stale())


@router.get("/runs/{run_id}", response_model=RunAnswer, responses=problems(404, 422, 503), tags=["runs"])
async def get_run(run_id: str, service: Service, tenant: Tenant) -> Response:
    """Read a run with its attempts."""
    answer = await service.get_run(run_id, tenant=tenant)
    return json_response(answer.model_dump_json(), headers=stale_header(is_stale=await service.is_stale()))


@router.get(
    "/jobs/{job_id}/ledger", response_model=list[LedgerAnswer], responses=problems(400, 404, 422, 503), tags=["fires"]
)
async def list_ledger(
    request: Request,
    job_id: str,
    service: Service,
    tenant: Tenant,
    start: From = None,
    end: To = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Response:
    """Say what became of every nominal time in a range, by default of the last week, oldest first."""
    until = end or datetime.now(UTC)
    wanted = LedgerRange(start=start or _before(until, LEDGER_DEFAULT), end=until)
    page = await service.list_ledger(job_id, wanted, tenant=tenant, cursor=cursor, limit=limit)
    # The range of the first page holds for the others: its cursor knows no other one.
    bounds = {"from": wanted.start.isoformat(), "to": wanted.end.isoformat()}
    return page_response(request, page, is_stale=await service.is_stale(), parameters=bounds)


@router.get(
    "/jobs/{job_id}/upcoming", response_model=list[FireAnswer], responses=problems(404, 422, 503), tags=["fires"]
)
async def list_upcoming(
    job_id: str,
    service: Service,
    tenant: Tenant,
    count: Annotated[int, Query(ge=0, le=1_000, description="At most so many.")] = 10,
) -> Response:
    """List the next fires of a job."""
    fires = await service.list_upcoming(job_id, tenant=tenant, count=count)
    return json_response(dump_answers(fires), headers=stale_header(is_stale=await service.is_stale()))


@router.post(
    "/preview",
    response_model=PreviewAnswer | list[PreviewAnswer | Problem],
    openapi_extra=PREVIEW_BODY,
    responses=problems(413, 415, 422, 503),
    tags=["fires"],
)
async def preview_schedule(request: Request, service: Service, tenant: Tenant) -> Response:
    """Show what a schedule would do. A list of bodies is answered by a list, with an error in place of each bad one."""
    read_idempotency_key(request)
    body = await read_json(request)
    now = datetime.now(UTC)
    bodies: list[JsonValue] = body if isinstance(body, list) else [body]
    check_batch(bodies)
    named = frozenset(name for each in bodies for name in named_calendars(each))
    calendars = await service.find_calendars(named, tenant=tenant)
    if not isinstance(body, list):
        answer = await to_thread.run_sync(lambda: preview(body, now=now, calendars=calendars))
        return json_response(answer.model_dump_json())
    answers = await to_thread.run_sync(lambda: dump_answers(preview_each(body, now=now, calendars=calendars)))
    return json_response(answers)


def etag_of(answer: JobAnswer) -> str:
    """The revision of a job as an entity tag."""
    return f'"{answer.revision}"'


def _before(moment: datetime, span: timedelta) -> datetime:
    earliest = datetime.min.replace(tzinfo=UTC)
    return moment - span if moment - earliest > span else earliest
