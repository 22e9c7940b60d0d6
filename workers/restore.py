"""``horarium restore``: wires the restorer to the settings' database and Temporal, and says how far it is."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from activities.backfill_control import BackfillControl
from activities.backfill_definition import BackfillDefinitions
from activities.backfill_restore import BackfillRestorer
from activities.database import InvalidDatabaseUrl, Limits, open_database
from activities.job_control import JobControl
from activities.mirror_writer import MirrorWriter, WriterOptions
from activities.queries import Queries
from activities.restore import RestoreOptions, Restorer, RestoreReport, TemporalGlance
from workers.connection import enter_namespace, register_search_attributes
from workers.settings import InvalidSettings, Settings, variable_of

PATIENCE: Final = timedelta(seconds=15)
"""For one read or write: nobody waits for it but the operator."""


async def restore(
    settings: Settings, options: RestoreOptions, *, tell: Callable[[RestoreReport], None]
) -> RestoreReport:
    """Restore every job of the mirror, and its backfills; waits for Temporal and its namespace as long as it takes.

    Raises ``InvalidSettings``, ``ServerTooOld``, and ``Unavailable`` when the mirror cannot be read.
    """
    limits = Limits(connect=PATIENCE, statement=PATIENCE)
    try:
        engine = open_database(settings.database_url, limits=limits)
        patient = WriterOptions(budget=PATIENCE, pause=timedelta(0))
        writer = MirrorWriter(settings.database_url, options=patient, patient=patient)
    except InvalidDatabaseUrl as error:
        raise InvalidSettings(f"{variable_of('database_url')}: {error}") from error
    queries = Queries(engine, limit=PATIENCE)
    definitions = BackfillDefinitions(engine, limit=PATIENCE)
    try:
        client = (await enter_namespace(settings, name="horarium-restore")).client
        control = JobControl(client, find_search_attributes=partial(register_search_attributes, client))
        restorer = Restorer(client, queries=queries, writer=writer, control=control, options=options, tell=tell)
        report = await restorer.restore(now=datetime.now(UTC))
        backfills = BackfillRestorer(
            glance=TemporalGlance(client),
            queries=queries,
            definitions=definitions,
            writer=writer,
            control=BackfillControl(client),
            options=options,
        )
        return await backfills.restore(report)
    finally:
        await writer.close()
        await definitions.close()
        await queries.close()
        await engine.dispose()
