"""Ending work on a database leaves nothing behind that an event loop would have to wait for."""

import asyncio

from sqlalchemy import text

from activities.database import open_database, reading
from activities.deadline import end_task


async def test_what_is_ended_has_closed_its_connection(empty_database_url: str) -> None:
    """In the middle of its work: no task goes on that the end of the loop would cancel once more."""
    engine = open_database(empty_database_url)
    at_work = asyncio.Event()

    async def work() -> None:
        async with reading(engine) as connection:
            await connection.execute(text("SELECT 1"))
            at_work.set()
            while True:
                await connection.execute(text("SELECT 1"))

    before = asyncio.all_tasks()
    task = asyncio.create_task(work())
    await at_work.wait()
    await end_task(task)
    assert task.cancelled()
    assert asyncio.all_tasks() == before
    await engine.dispose()
