"""The route of the forecast."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from api.access import PREFIX, Tenant
from api.forecast import ForecastAnswer
from api.forecast_service import DEFAULT_STEP, ForecastService, read_horizon
from api.openapi import problems
from api.parameter import Moment, refuse_unknown_parameters
from api.response import json_response, stale_header
from api.routes import Service

forecast_router = APIRouter(prefix=PREFIX, tags=["jobs"], dependencies=[Depends(refuse_unknown_parameters)])


def _forecasts_of(request: Request) -> ForecastService:
    service: ForecastService = request.app.state.forecasts
    return service


@forecast_router.get("/forecast", response_model=ForecastAnswer, responses=problems(422, 503))
async def forecast(
    forecasts: Annotated[ForecastService, Depends(_forecasts_of)],
    jobs: Service,
    tenant: Tenant,
    start: Annotated[
        Moment | None, Query(alias="from", description="Where the first step begins. Default: the present step.")
    ] = None,
    end: Annotated[
        Moment | None, Query(alias="to", description="Steps that begin before are told. Default: a day after from.")
    ] = None,
    step: Annotated[
        str, Query(max_length=100, description="Seconds, `15m` or `PT6H`; at least a minute, and at most 1,000 steps.")
    ] = DEFAULT_STEP,
) -> Response:
    """Count the fires ahead of all jobs, step by step, and name the busiest steps with the jobs that make them.

    From definitions: retries, catch-up and triggers are not foreseen. Runs are counted where they are to start, jitter included;
    paused and held jobs from the known end on. A forecast takes five seconds at most, and says what it had no time for.
    """
    horizon = read_horizon(start=start, end=end, step=step, now=datetime.now(UTC))
    answer = await forecasts.forecast(horizon, tenant=tenant)
    headers = stale_header(is_stale=await jobs.is_stale())
    return json_response(answer.model_dump_json(by_alias=True), headers=headers)
