"""How a store forgets what is too old: a batch a transaction, so that none takes long, and what is forgotten stays so."""

from datetime import datetime
from typing import Final

from sqlalchemy import Column, delete, select, tuple_
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.database import writing
from activities.deadline import Deadline

BATCH: Final = 1_000
"""Rows."""


async def forget_older(engine: AsyncEngine, deadline: Deadline, column: Column[datetime], *, before: datetime) -> int:
    """Delete the rows of a table whose time is before a moment, the oldest first; return how many.

    The column has an index. Raises ``Unavailable``; what was deleted by then stays deleted.
    """
    key, is_old = column.table.primary_key.columns, column < before
    some = select(*key).where(is_old).order_by(column).limit(BATCH)
    # Asked again of each row: somebody may have written it anew meanwhile.
    statement = delete(column.table).where(is_old, tuple_(*key).in_(some))

    async def forget_some() -> int:
        async with writing(engine) as connection:
            return int((await connection.execute(statement)).rowcount)

    forgotten = last = await deadline.ask(forget_some())
    while last == BATCH:
        last = await deadline.ask(forget_some())
        forgotten += last
    return forgotten
