"""How a URL becomes an engine: SQLite in a file, or PostgreSQL.

The scheduler and the effect store of a team's worker open databases alike. Promises that nothing hangs: connecting, waiting
for a lock, a statement and an idle transaction all have a limit. Knows no table. Needs ``horarium[effects]``.
"""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from sqlite3 import OperationalError
from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

SQLITE: Final = "sqlite"
POSTGRESQL: Final = "postgresql"

_POSTGRESQL_SCHEMES: Final = frozenset({"postgresql", "postgres", "postgresql+asyncpg"})
_SQLITE_SCHEMES: Final = frozenset({"sqlite", "sqlite+aiosqlite"})


class InvalidDatabaseUrl(ValueError):
    """A database URL that names nothing we can open. Its text never repeats the URL, which may hold a password."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long a user of the database waits, and how many connections it holds."""

    connect: timedelta = timedelta(seconds=5)
    """For a connection, from the pool or new."""

    statement: timedelta = timedelta(seconds=5)
    """For one statement, locks included. On SQLite only the wait for a lock can be limited."""

    connections: int = 5


def open_engine(url: str, *, limits: Limits, reuse_plans: bool = False, **options: Any) -> AsyncEngine:
    """Make an engine for ``sqlite:///file`` or ``postgresql://...``; the folder of a SQLite file is made.

    Connects to nothing yet. The caller disposes of the engine. ``reuse_plans`` suits who only writes by key: it saves
    PostgreSQL half the time of a write, but a search needs a plan for its own values, a job with a million runs another
    than one with ten. ``options`` are those of ``create_async_engine``.
    """
    parsed = _parse(url)
    if parsed.drivername in _SQLITE_SCHEMES:
        return _open_sqlite(parsed, limits=limits, **options)
    return _open_postgresql(parsed, limits=limits, plans="auto" if reuse_plans else "force_custom_plan", **options)


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise InvalidDatabaseUrl("not a database URL; expected sqlite:///FILE or postgresql://...") from None
    if parsed.drivername not in _SQLITE_SCHEMES | _POSTGRESQL_SCHEMES:
        raise InvalidDatabaseUrl(f"no driver for {parsed.drivername}; expected sqlite:///FILE or postgresql://...")
    return parsed


def _open_sqlite(url: URL, *, limits: Limits, **options: Any) -> AsyncEngine:
    if not url.database or url.database == ":memory:":
        raise InvalidDatabaseUrl("SQLite needs a file that several connections can share: sqlite:///FILE")
    Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_async_engine(
        url.set(drivername="sqlite+aiosqlite"),
        pool_size=limits.connections,
        max_overflow=0,
        pool_timeout=limits.connect.total_seconds(),
        connect_args={"timeout": limits.statement.total_seconds()},
        hide_parameters=True,
        **options,
    )
    event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    # The driver would begin transactions by itself, only before some statements, and always as readers.
    connection.isolation_level = None
    cursor = connection.cursor()
    try:
        _use_write_ahead_log(connection)
        cursor.execute("PRAGMA synchronous = NORMAL")
        cursor.execute("PRAGMA foreign_keys = ON")
    finally:
        cursor.close()


def _use_write_ahead_log(connection: DBAPIConnection) -> None:
    cursor = connection.cursor()
    try:
        cursor.execute("PRAGMA journal_mode = WAL")
    except OperationalError:
        # Another process is switching this very file, and the mode is the file's, not the connection's.
        return
    finally:
        cursor.close()


def _open_postgresql(url: URL, *, limits: Limits, plans: str, **options: Any) -> AsyncEngine:
    statement_ms = str(int(limits.statement.total_seconds() * 1000))
    return create_async_engine(
        _for_asyncpg(url),
        pool_size=limits.connections,
        max_overflow=0,
        pool_timeout=limits.connect.total_seconds(),
        pool_pre_ping=True,
        pool_recycle=1800,
        connect_args={
            "timeout": limits.connect.total_seconds(),
            # The server ends a slow statement first; this one is for a server that no longer answers.
            "command_timeout": limits.statement.total_seconds() + 1,
            "server_settings": {
                "application_name": "horarium",
                "timezone": "UTC",
                "plan_cache_mode": plans,
                "statement_timeout": statement_ms,
                "lock_timeout": statement_ms,
                # Who froze in a transaction holds locks that other processes wait for.
                "idle_in_transaction_session_timeout": "5000",
            },
        },
        hide_parameters=True,
        **options,
    )


def _for_asyncpg(url: URL) -> URL:
    """Spell a libpq URL for asyncpg, which calls ``sslmode`` ``ssl``."""
    query = {("ssl" if name == "sslmode" else name): value for name, value in url.query.items()}
    return url.set(drivername="postgresql+asyncpg", query=query)
