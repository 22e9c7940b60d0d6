"""The scheduler's databases: SQLite in a file by default, PostgreSQL by URL.

Owns how a transaction begins, and how JSON and errors are written. How a URL becomes an engine, with limits for all waiting,
is the SDK's, whose effect store opens databases alike. Knows no table.
"""

import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from pydantic import JsonValue
from sqlalchemy import Connection, event
from sqlalchemy.exc import StatementError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from horarium.database import POSTGRESQL, SQLITE, InvalidDatabaseUrl, Limits, open_engine

__all__ = [
    "POSTGRESQL",
    "SQLITE",
    "InvalidDatabaseUrl",
    "Limits",
    "cause_of",
    "open_database",
    "reading",
    "to_json",
    "writing",
]

_SQLITE_BEGIN: Final = "horarium_sqlite_begin"


def open_database(url: str, *, limits: Limits | None = None, reuse_plans: bool = False) -> AsyncEngine:
    """Make an engine for ``sqlite:///file`` or ``postgresql://...``; see ``horarium.database.open_engine``."""
    engine = open_engine(url, limits=limits or Limits(), reuse_plans=reuse_plans, json_serializer=to_json)
    if engine.dialect.name == SQLITE:
        event.listen(engine.sync_engine, "begin", _begin_sqlite)
    return engine


@asynccontextmanager
async def writing(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Open a transaction that will write. Commits at the end of the block, rolls back when it raises.

    On SQLite it takes the write lock at once: a transaction that read first and then wants to write is refused without waiting.
    """
    async with engine.execution_options(**{_SQLITE_BEGIN: "BEGIN IMMEDIATE"}).begin() as connection:
        yield connection


@asynccontextmanager
async def reading(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Open a transaction that only reads: one state of the database on SQLite, of each statement on PostgreSQL."""
    async with engine.connect() as connection:
        yield connection


def cause_of(error: BaseException) -> str:
    """Say what went wrong, for logs: what the driver said, without the statement and its values."""
    cause = error.orig if isinstance(error, StatementError) and error.orig is not None else error
    return f"{type(cause).__name__}: {cause}"[:500]


def to_json(value: JsonValue) -> str:
    """Write JSON in ASCII, so that any string fits any database. Numbers that JSON does not know become strings."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_spell_out(value), separators=(",", ":"), allow_nan=False)


def _spell_out(value: JsonValue) -> JsonValue:
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {key: _spell_out(item) for key, item in value.items()}
        case list():
            return [_spell_out(item) for item in value]
        case _:
            return value


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(str(connection.get_execution_options().get(_SQLITE_BEGIN, "BEGIN")))
