"""What looks after the mirror, wired: for scheduler workers, and for an operator's ``horarium mirror``."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio.client import Client

from activities.audit_store import AuditStore
from activities.backfill_definition import BackfillDefinitions
from activities.database import InvalidDatabaseUrl, Limits, open_database
from activities.job_control import JobControl
from activities.job_listing import JobListing
from activities.mirror_glance import MirrorGlances
from activities.mirror_writer import PATIENT, MirrorWriter
from activities.purge import STATEMENT_LIMIT, Purger
from activities.queries import Queries
from activities.reconcile import ReconcileOptions, Reconciler
from activities.restore import RestoreOptions, Restorer
from activities.schema import migrate
from workers.connection import enter_namespace, register_search_attributes
from workers.projection import Projector
from workers.rebuild import Rebuilder, RebuildReport
from workers.settings import InvalidSettings, Settings, variable_of
from workflows.reconciliation import PurgeReport, ReconcileReport

PATIENCE: Final = timedelta(seconds=15)
"""For one read: nobody waits for it."""

CONNECTIONS: Final = 2
"""One to read, and one more while a connection that hung is being closed."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What looks after the mirror."""

    engine: AsyncEngine
    reconciler: Reconciler
    purger: Purger


@asynccontextmanager
async def open_parts(database_url: str, client: Client, *, writer: MirrorWriter) -> AsyncIterator[Parts]:
    """Make them, with connections of their own, so that they hold up nobody."""
    engine = open_database(
        database_url, limits=Limits(connect=PATIENCE, statement=STATEMENT_LIMIT, connections=CONNECTIONS)
    )
    queries, glances = Queries(engine, limit=PATIENCE), MirrorGlances(engine, limit=PATIENCE)
    audit, purger = AuditStore(engine, limit=PATIENCE), Purger(engine)
    control = JobControl(client, find_search_attributes=partial(register_search_attributes, client))
    restorer = Restorer(client, queries=queries, writer=writer, control=control, options=RestoreOptions())
    reconciler = Reconciler(
        listing=JobListing(client),
        glances=glances,
        queries=queries,
        writer=writer,
        control=control,
        restorer=restorer,
        audit=audit,
        project=Projector(client).project_run,
    )
    try:
        yield Parts(engine=engine, reconciler=reconciler, purger=purger)
    finally:
        for each in (purger, audit, glances, queries):
            await each.close()
        await engine.dispose()


async def reconcile(settings: Settings, options: ReconcileOptions) -> ReconcileReport:
    """Make one pass, for an operator; waits for Temporal and its namespace as long as it takes.

    Raises ``InvalidSettings``, ``ServerTooOld`` and ``Unavailable``.
    """
    async with _opened(settings) as (_, _, parts):
        return await parts.reconciler.reconcile(options)


async def rebuild(settings: Settings, *, tell: Callable[[RebuildReport], None]) -> RebuildReport:
    """Fill the mirror, for an operator. Waits and raises as ``reconcile`` does."""
    async with _opened(settings) as (client, writer, parts):
        definitions = BackfillDefinitions(parts.engine, limit=PATIENCE)
        try:
            rebuilder = Rebuilder(client, engine=parts.engine, writer=writer, definitions=definitions, tell=tell)
            return await rebuilder.rebuild()
        finally:
            await definitions.close()


async def purge(settings: Settings, *, dry_run: bool) -> PurgeReport:
    """Forget what is older than the retention, for an operator. Needs no Temporal.

    Raises ``InvalidSettings`` and ``Unavailable``.
    """
    engine = _open_engine(settings)
    purger = Purger(engine)
    try:
        await migrate(settings.database_url)
        return await purger.purge(before=datetime.now(UTC) - settings.run_retention, dry_run=dry_run)
    finally:
        await purger.close()
        await engine.dispose()


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[tuple[Client, MirrorWriter, Parts]]:
    await _open_engine(settings).dispose()  # says what is wrong with the URL
    await migrate(settings.database_url)
    client = (await enter_namespace(settings, name="horarium-mirror")).client
    writer = MirrorWriter(settings.database_url, patient=replace(PATIENT, pause=timedelta(0)))
    try:
        async with open_parts(settings.database_url, client, writer=writer) as parts:
            yield client, writer, parts
    finally:
        await writer.close()


def _open_engine(settings: Settings) -> AsyncEngine:
    limits = Limits(connect=PATIENCE, statement=STATEMENT_LIMIT, connections=CONNECTIONS)
    try:
        return open_database(settings.database_url, limits=limits)
    except InvalidDatabaseUrl as error:
        raise InvalidSettings(f"{variable_of('database_url')}: {error}") from error
