"""The FastAPI application and what it lives on: the database, the client of Temporal, and what is built on both.

Starts without either: a front door that is up while Temporal or the database is down says so.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from importlib.metadata import version
from typing import Final

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from fastapi_offline import FastAPIOffline

from activities.audit_store import AuditStore
from activities.backfill_control import BackfillControl
from activities.backfill_definition import BackfillDefinitions
from activities.bulk_control import BulkControl
from activities.calendar_store import CalendarStore
from activities.database import Limits, open_database
from activities.deadline import end_task
from activities.downstream_control import DownstreamControl
from activities.downstream_store import DownstreamStore
from activities.hold_control import HoldControl
from activities.hold_store import HoldStore
from activities.idempotency_store import IdempotencyStore
from activities.job_control import JobControl
from activities.key_store import KeyStore
from activities.mirror_writer import MirrorWriter, WriterOptions
from activities.queries import Queries
from activities.quota_store import QuotaStore
from activities.redrive import Redriver
from activities.schema import migrate_when_possible
from activities.task_queue_store import TaskQueueStore
from activities.trouble import Trouble
from api.access import PREFIX, admit
from api.audit import Audit
from api.backfill_routes import backfill_router
from api.backfill_service import BackfillService
from api.calendar_routes import calendar_router
from api.calendar_service import CalendarService
from api.change_service import ChangeService
from api.codec_origins import CodecOrigins
from api.codec_routes import codec_router
from api.dead_letter_routes import dead_letter_router
from api.dead_letter_service import DeadLetterService
from api.downstream_routes import downstream_router
from api.downstream_service import DownstreamService
from api.error_response import install_error_responses
from api.forecast_routes import forecast_router
from api.forecast_service import ForecastService
from api.front import Front
from api.hold_routes import hold_router
from api.hold_service import HoldService
from api.key_ring import KeyRing
from api.openapi import install_openapi
from api.quota import Quotas
from api.routes import router
from api.server_address import is_loopback
from api.service import JobService
from api.steer_routes import steer_router
from api.steer_service import SteerService
from api.task_queue import TaskQueues
from api.team_routes import team_router
from api.telemetry import REQUEST_TELEMETRY, metrics_router
from api.temporal_link import TemporalLinks
from api.temporal_probe import TemporalProbe
from workers.connection import open_client, register_search_attributes
from workers.encryption import ciphers_of
from workers.settings import Settings
from workers.telemetry import Telemetry, unexported_telemetry
from workflows.error import Unavailable

logger = logging.getLogger(__name__)

DATABASE_PATIENCE: Final = timedelta(seconds=3)
"""For one read or write: a request that is to fail should fail while somebody still waits for it."""

FORGET_EVERY: Final = timedelta(hours=1)

NOTE_USE_EVERY: Final = timedelta(minutes=1)
"""What a killed process forgets of the use of keys."""

DESCRIPTION: Final = (
    "Durable cron on Temporal. Errors are RFC 9457 problems; times are RFC 3339 in UTC; "
    "lists are continued by the `Link` header. A body has at most 1 MiB, a payload 256 KiB; "
    "JSON is nested at most 64 levels deep, and integers have at most 64 bits."
)

health_router = APIRouter(tags=["health"])


@health_router.get("/healthz")
async def is_alive() -> dict[str, str]:
    """Say that the process lives. Looks at nothing else: a restart would not mend what it depends on."""
    return {"status": "ok"}


@health_router.get("/readyz")
async def is_ready(request: Request) -> Response:
    """Say whether jobs can be read and written."""
    checks: ReadyChecks = request.app.state.ready_checks
    parts = await checks.run()
    status = HTTPStatus.OK if all(parts.values()) else HTTPStatus.SERVICE_UNAVAILABLE
    words = {name: "ok" if works else "unavailable" for name, works in parts.items()}
    return JSONResponse({"status": "ok" if status is HTTPStatus.OK else "unavailable", **words}, status_code=status)


class ReadyChecks:
    """What must work for a request to be carried out."""

    def __init__(self, *, queries: Queries, probe: TemporalProbe) -> None:
        self._queries = queries
        self._probe = probe

    async def run(self) -> dict[str, bool]:
        """Check each part; answers within seconds."""
        database, temporal = await asyncio.gather(self._is_database_there(), self._probe.is_reachable())
        return {"database": database, "temporal": temporal}

    async def _is_database_there(self) -> bool:
        try:
            await self._queries.get_job("", "")
        except Unavailable:
            return False
        return True


def create_app(settings: Settings, *, telemetry: Telemetry | None = None) -> FastAPI:
    """Make the application. Nothing is opened before it starts.

    Without the ``telemetry`` of a process it has metrics of its own, and no traces.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await _open_parts(app, settings, stack)
            yield

    # With the documentation's page from this host: what administers jobs runs no scripts of others, and works without them.
    app = FastAPIOffline(
        title="Horarium",
        version=version("horarium-server"),
        description=DESCRIPTION,
        lifespan=lifespan,
        telemetry=REQUEST_TELEMETRY,
        redoc_url=None,
        dependencies=[Depends(admit)],
    )
    app.add_middleware(CodecOrigins, ui_url=settings.ui_url)
    app.add_middleware(Front)
    app.state.telemetry = telemetry or unexported_telemetry()
    app.state.requires_if_match = settings.require_if_match
    app.include_router(router)
    app.include_router(steer_router)
    app.include_router(backfill_router)
    app.include_router(dead_letter_router)
    app.include_router(downstream_router)
    app.include_router(team_router)
    app.include_router(calendar_router)
    app.include_router(codec_router)
    app.include_router(hold_router)
    app.include_router(forecast_router)
    app.include_router(metrics_router)
    app.include_router(health_router)
    app.include_router(health_router, prefix=PREFIX, include_in_schema=False)
    app.add_api_route(f"{PREFIX}/docs", lambda: RedirectResponse("/docs"), include_in_schema=False)
    install_error_responses(app)
    install_openapi(app)
    return app


async def _open_parts(app: FastAPI, settings: Settings, stack: AsyncExitStack) -> None:
    """Open everything that requests need, and close it in the opposite order."""
    limits = Limits(connect=DATABASE_PATIENCE, statement=DATABASE_PATIENCE, connections=10)
    preparing = asyncio.create_task(migrate_when_possible(settings.database_url))
    stack.push_async_callback(end_task, preparing)
    await asyncio.wait({preparing}, timeout=DATABASE_PATIENCE.total_seconds())
    engine = open_database(settings.database_url, limits=limits)
    stack.push_async_callback(engine.dispose)
    queries = Queries(engine, limit=DATABASE_PATIENCE)
    stack.push_async_callback(queries.close)
    store = IdempotencyStore(engine, limit=DATABASE_PATIENCE)
    stack.push_async_callback(store.close)
    keys = KeyStore(engine, limit=DATABASE_PATIENCE)
    stack.push_async_callback(keys.close)
    log = AuditStore(engine, limit=DATABASE_PATIENCE)
    stack.push_async_callback(log.close)
    shares = QuotaStore(engine, default=settings.quota(), limit=DATABASE_PATIENCE)
    stack.push_async_callback(shares.close)
    ring = app.state.key_ring = KeyRing(keys, is_open=is_loopback(settings.api_host))
    writer = MirrorWriter(settings.database_url, options=WriterOptions(budget=DATABASE_PATIENCE, pause=timedelta(0)))
    stack.push_async_callback(writer.close)
    client = await open_client(settings, name="horarium-api")
    app.state.namespace, app.state.ciphers = client.namespace, ciphers_of(settings)
    telemetry: Telemetry = app.state.telemetry
    await stack.enter_async_context(
        telemetry.watching(database_url=settings.database_url, writer=writer, client=client)
    )
    probe = TemporalProbe(client)
    links = TemporalLinks(ui_url=settings.ui_url, namespace=client.namespace)
    control = JobControl(client, find_search_attributes=partial(register_search_attributes, client))
    backfills = BackfillControl(client)
    definitions = BackfillDefinitions(engine, limit=DATABASE_PATIENCE)
    stack.push_async_callback(definitions.close)
    audit = app.state.audit = Audit(log)
    grants = TaskQueueStore(engine, limit=DATABASE_PATIENCE)
    stack.push_async_callback(grants.close)
    task_queues = TaskQueues(grants)
    quotas = app.state.quotas = Quotas(shares, task_queues=task_queues)
    calendars = CalendarStore(engine, limit=DATABASE_PATIENCE)
    stack.push_async_callback(calendars.close)
    holds = HoldStore(engine, limit=DATABASE_PATIENCE)
    stack.push_async_callback(holds.close)
    jobs = JobService(
        queries=queries,
        calendars=calendars,
        holds=holds,
        writer=writer,
        control=control,
        backfills=backfills,
        probe=probe,
        links=links,
        audit=audit,
        quotas=quotas,
        task_queues=task_queues,
    )
    app.state.service = jobs
    app.state.changes = ChangeService(
        jobs=jobs, queries=queries, control=control, audit=audit, quotas=quotas, task_queues=task_queues
    )
    app.state.steering = SteerService(jobs=jobs, queries=queries, control=control, audit=audit)
    app.state.backfills = BackfillService(
        jobs=jobs,
        queries=queries,
        definitions=definitions,
        control=backfills,
        runs=control,
        probe=probe,
        links=links,
        audit=audit,
        most_fires=settings.max_backfill_fires,
        runs_kept=settings.run_retention,
    )
    redriver = Redriver(queries=queries, control=control, writer=writer)
    app.state.dead_letters = DeadLetterService(
        jobs=jobs, queries=queries, redriver=redriver, bulk=BulkControl(client), links=links, audit=audit
    )
    downstreams = DownstreamStore(engine, limit=DATABASE_PATIENCE)
    stack.push_async_callback(downstreams.close)
    app.state.downstreams = DownstreamService(
        jobs=jobs, store=downstreams, control=DownstreamControl(client), audit=audit
    )
    app.state.calendars = CalendarService(store=calendars, changes=app.state.changes, audit=audit)
    app.state.holds = HoldService(jobs=jobs, store=holds, control=HoldControl(client), audit=audit)
    app.state.forecasts = ForecastService(queries=queries)
    app.state.idempotency = store
    app.state.ready_checks = ReadyChecks(queries=queries, probe=probe)
    for task in (
        _forget(store, shares, log, holds, audit_kept=settings.audit_retention),
        _note_use(ring),
        app.state.calendars.tell_jobs_for_ever(),
        app.state.holds.tell_jobs_for_ever(),
    ):
        stack.push_async_callback(end_task, asyncio.create_task(task))


async def _forget(
    store: IdempotencyStore, shares: QuotaStore, log: AuditStore, holds: HoldStore, *, audit_kept: timedelta
) -> None:
    """Keep the store small. An hour in which the database is down does not matter."""
    trouble = Trouble(logger)
    while True:
        now = datetime.now(UTC)
        with trouble.survived("old idempotency keys could not be forgotten"):
            await store.prune(now=now)
        with trouble.survived("old quota claims could not be forgotten"):
            await shares.prune(now=now)
        with trouble.survived("old audit entries could not be forgotten"):
            await log.prune(before=now - audit_kept)
        with trouble.survived("old holds could not be forgotten"):
            await holds.prune(before=now - audit_kept)
        await asyncio.sleep(FORGET_EVERY.total_seconds())


async def _note_use(ring: KeyRing) -> None:
    trouble = Trouble(logger)
    while True:
        await asyncio.sleep(NOTE_USE_EVERY.total_seconds())
        with trouble.survived("the use of keys could not be noted"):
            await ring.note_use()
