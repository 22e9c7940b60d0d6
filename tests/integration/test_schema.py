"""Migrations, on both databases."""

import asyncio
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, inspect, text

from activities.database import open_database
from activities.partition import create_partitions, is_partition_name, months_of
from activities.schema import comparison_options, is_current, migrate
from activities.tables import METADATA
from tests.records import NOON

TABLES = {
    "alembic_version",
    "jobs",
    "runs",
    "attempts",
    "ledger",
    "idempotency_records",
    "effect_claims",
    "gate_reports",
    "calendars",
    "holds",
    "backfills",
}
TABLES |= {"api_keys", "tenants", "quota_claims", "audit_entries", "task_queue_grants"}


async def _tables(url: str) -> set[str]:
    engine = open_database(url)
    async with engine.connect() as connection:
        names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
    await engine.dispose()
    return {name for name in names if not is_partition_name(name)}


async def test_an_empty_database_gets_the_present_schema(empty_database_url: str) -> None:
    """The first start of a new installation; and the second, which changes nothing."""
    await migrate(empty_database_url)
    assert await _tables(empty_database_url) == TABLES
    await migrate(empty_database_url)
    assert await _tables(empty_database_url) == TABLES


async def test_processes_that_start_together_may_all_migrate(empty_database_url: str) -> None:
    """Workers and the API of a new release come up at the same moment."""
    await asyncio.gather(*(migrate(empty_database_url) for _ in range(8)))
    assert await _tables(empty_database_url) == TABLES


async def test_the_tables_in_code_are_those_that_the_migrations_make(database_url: str) -> None:
    """Compared by Alembic, with indexes and types; partitions are made elsewhere."""

    def compare(connection: Connection) -> list[object]:
        context = MigrationContext.configure(connection, opts=comparison_options(connection))
        return list(compare_metadata(context, METADATA))

    engine = open_database(database_url)
    async with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            await connection.run_sync(create_partitions, months_of([NOON]))
        differences = await connection.run_sync(compare)
    await engine.dispose()
    assert differences == []


async def test_a_database_of_a_later_release_is_left_alone(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """A process of the release before restarts during an upgrade: migrations only add, so it goes on, and says so."""
    engine = open_database(database_url)
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    await migrate(database_url)
    assert await is_current(engine)
    assert "newer than this release" in caplog.text
    await engine.dispose()


async def test_the_large_tables_are_partitioned_by_month_from_the_first_migration(postgresql_url: str) -> None:
    """It cannot be done to a full table later. The unique nominal time holds over all of them."""
    engine = open_database(postgresql_url)
    query = text("SELECT relname FROM pg_class WHERE relkind = 'p' ORDER BY relname")
    async with engine.begin() as connection:
        await connection.run_sync(create_partitions, months_of([NOON]))
        assert list((await connection.execute(query)).scalars()) == ["attempts", "ledger", "runs"]
        parts = text("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'runs'::regclass ORDER BY 1")
        assert list((await connection.execute(parts)).scalars()) == ["runs_2026_06", "runs_default"]
    await engine.dispose()


async def test_a_new_sqlite_file_has_a_write_ahead_log(tmp_path: Path) -> None:
    """Readers and the one writer do not wait for each other."""
    url = f"sqlite:///{tmp_path}/new/horarium.sqlite"
    await migrate(url)
    engine = open_database(url)
    async with engine.connect() as connection:
        settings = [
            (await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ]
    await engine.dispose()
    assert settings == ["wal", 1, 1, 5000]
