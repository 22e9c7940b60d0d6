"""Brings a database to the schema of this release.

Any number of processes may do so at once, at every start. Migrations only add, so that processes of the release before go on
working while this one takes over; what is no longer used is removed a release later. For the same reason a database that is
newer than this release is left alone.
"""

import asyncio
import logging
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.sql.schema import SchemaItem

from activities.database import POSTGRESQL, Limits, cause_of, open_database, reading, writing
from activities.partition import is_partition_name
from workflows.error import Unavailable

logger = logging.getLogger(__name__)

MIGRATION_LIMITS: Final = Limits(statement=timedelta(minutes=5), connections=1)
"""The others wait for the one that migrates, and adding an index to a large table takes time."""

TRY_EVERY: Final = timedelta(seconds=5)
"""Between two tries while the database is away."""

LOCK_KEY: Final = 0x484F5241_52495530
"""Advisory lock of whoever migrates. SQLite needs none: a transaction that writes is alone."""


async def migrate(url: str) -> None:
    """Apply what is missing, in one transaction. Costs one query when nothing is. Raises ``Unavailable``."""
    engine = open_database(url, limits=MIGRATION_LIMITS)
    try:
        if not await is_current(engine):
            async with writing(engine) as connection:
                await connection.run_sync(_upgrade)
    except (DBAPIError, OSError, TimeoutError) as error:
        raise Unavailable(f"the database cannot be prepared: {cause_of(error)}") from error
    finally:
        await engine.dispose()


async def migrate_when_possible(url: str) -> None:
    """Apply what is missing, now or when the database is back. What can be done without it does not wait for this."""
    while True:
        try:
            return await migrate(url)
        except Exception as error:  # whatever the driver and the network have
            logger.warning("the database cannot be migrated yet", extra={"error": cause_of(error)})
        await asyncio.sleep(TRY_EVERY.total_seconds())


async def is_current(engine: AsyncEngine) -> bool:
    """Tell whether the database has the schema of this release, or of a later one."""
    async with reading(engine) as connection:
        return await connection.run_sync(_is_current)


def comparison_options(connection: Connection) -> dict[str, Any]:
    """Tell Alembic what to compare between the tables in code and those of a database: not the partitions, which are made
    as they are needed, nor what is declared for the other database only."""
    dialect = connection.dialect.name

    def include_object(item: SchemaItem, name: str | None, kind: str, reflected: bool, _: SchemaItem | None) -> bool:
        if kind == "table" and reflected:
            return name is None or not is_partition_name(name)
        return bool(item.info.get("dialect", dialect) == dialect)

    return {"include_object": include_object, "compare_type": True, "compare_server_default": True}


def _upgrade(connection: Connection) -> None:
    if connection.dialect.name == POSTGRESQL:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
    if _is_current(connection):
        return
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _is_current(connection: Connection) -> bool:
    found = MigrationContext.configure(connection).get_current_revision()
    if found is None:
        return False
    known = _known_revisions()
    if found not in known:
        logger.warning("the database is newer than this release", extra={"schema_revision": found})
    return found == known[0] or found not in known


@cache
def _known_revisions() -> tuple[str, ...]:
    """List the revisions of this release, newest first."""
    return tuple(script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config
