"""The routes of a tenant about itself: its audit log and its quota."""

from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends, Query, Request, Response

from activities.audit_store import AuditFilter
from api.access import PREFIX, Tenant
from api.audit import Audit, AuditAnswer
from api.openapi import problems
from api.parameter import Cursor, Limit, Moment, refuse_unknown_parameters
from api.quota import QuotaAnswer, Quotas
from api.response import json_response, page_response

team_router = APIRouter(prefix=PREFIX, tags=["teams"], dependencies=[Depends(refuse_unknown_parameters)])


def _audit_of(request: Request) -> Audit:
    audit: Audit = request.app.state.audit
    return audit


def _quotas_of(request: Request) -> Quotas:
    quotas: Quotas = request.app.state.quotas
    return quotas


AuditLog: TypeAlias = Annotated[Audit, Depends(_audit_of)]
OfTenants: TypeAlias = Annotated[Quotas, Depends(_quotas_of)]


@team_router.get("/audit", response_model=list[AuditAnswer], responses=problems(400, 422, 503))
async def list_changes(
    request: Request,
    audit: AuditLog,
    tenant: Tenant,
    job: Annotated[str | None, Query(description="Only of this job.")] = None,
    actor: Annotated[str | None, Query(description="Only by the key with this id.")] = None,
    action: Annotated[str | None, Query(description="Only of this kind, such as `job.create`.")] = None,
    start: Annotated[Moment | None, Query(alias="from", description="Inclusive.")] = None,
    end: Annotated[Moment | None, Query(alias="to", description="Inclusive.")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Response:
    """List who changed what, the newest change first."""
    chosen = AuditFilter(job_id=job, actor=actor, action=action, start=start, end=end)
    page = await audit.list_entries(chosen, tenant=tenant, cursor=cursor, limit=limit)
    return page_response(request, page, is_stale=False)


@team_router.get("/quota", response_model=QuotaAnswer, responses=problems(422, 503))
async def get_quota(quotas: OfTenants, tenant: Tenant) -> Response:
    """Say what the tenant may have, and what it has."""
    return json_response((await quotas.describe(tenant=tenant)).model_dump_json())
