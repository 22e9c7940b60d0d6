"""Keeps the definition under which a backfill was asked for, in a column of its row.

Its workflow has that as well, and records do not carry it: it may be large, and they are written every second. It is written
here instead, once, by whoever has it: the API that begins the backfill, and the activity that asks for its runs, so that one
whose API died meanwhile has it too. Read where the workflow was lost.
"""

from datetime import timedelta

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.database import reading, writing
from activities.deadline import Deadline
from activities.mirror_row import storable
from activities.tables import BACKFILLS
from workflows.job import JobDefinition


class BackfillDefinitions:
    """Reads and writes through one engine. Raises ``Unavailable`` when the database does not answer."""

    def __init__(self, engine: AsyncEngine, *, limit: timedelta = timedelta(seconds=5)) -> None:
        self._engine = engine
        self._deadline = Deadline(limit)

    async def close(self) -> None:
        """Wait for work that ran out of time. The engine is the caller's."""
        await self._deadline.close()

    async def keep_definition(self, definition: JobDefinition, *, tenant: str, backfill_id: str) -> None:
        """Keep the definition of a backfill, unless one is kept already or its row is not there yet."""
        await self._deadline.ask(self._keep(definition, tenant=tenant, backfill_id=backfill_id))

    async def find_definition(self, *, tenant: str, backfill_id: str) -> JobDefinition | None:
        """Find the definition of a backfill; ``None`` where none was kept, as of those that an earlier release began."""
        query = select(BACKFILLS.c.definition).where(
            BACKFILLS.c.tenant == storable(tenant), BACKFILLS.c.backfill_id == storable(backfill_id)
        )

        async def read() -> JobDefinition | None:
            async with reading(self._engine) as connection:
                found = (await connection.execute(query)).scalar_one_or_none()
            return None if found is None else JobDefinition.model_validate(found)

        return await self._deadline.ask(read())

    async def _keep(self, definition: JobDefinition, *, tenant: str, backfill_id: str) -> None:
        missing = (
            BACKFILLS.c.tenant == storable(tenant),
            BACKFILLS.c.backfill_id == storable(backfill_id),
            BACKFILLS.c.definition.is_(None),
        )
        # Asked first: the definition may be large, and most calls find it there.
        async with reading(self._engine) as connection:
            if (await connection.execute(select(BACKFILLS.c.backfill_id).where(*missing))).first() is None:
                return
        async with writing(self._engine) as connection:
            kept = definition.model_dump(mode="json")
            await connection.execute(update(BACKFILLS).where(*missing).values(definition=kept))
