"""Alembic's entry.

``schema.migrate`` calls it with a connection; ``alembic -x url=... revision --autogenerate`` without one.
"""

import asyncio

from alembic import context
from sqlalchemy import Connection

from activities.database import open_database
from activities.schema import comparison_options
from activities.tables import METADATA


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        **comparison_options(connection),
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()


async def _connect_and_run(url: str) -> None:
    engine = open_database(url)
    async with engine.begin() as connection:
        await connection.run_sync(_run)
    await engine.dispose()


given = context.config.attributes.get("connection")
if given is not None:
    _run(given)
else:
    asyncio.run(_connect_and_run(context.get_x_argument(as_dictionary=True)["url"]))
