"""Fixtures for all tests, by where they come from."""

from hypothesis import settings

from tests.databases import (
    database_url,
    empty_database_url,
    postgres_of_its_own,
    postgres_server,
    postgresql_url,
    sqlite_template,
    sqlite_url,
)
from tests.temporal_servers import temporal_client, temporal_server, time_skipping

__all__ = [
    "database_url",
    "empty_database_url",
    "postgres_of_its_own",
    "postgres_server",
    "postgresql_url",
    "sqlite_template",
    "sqlite_url",
    "temporal_client",
    "temporal_server",
    "time_skipping",
]

# No test is a stopwatch: a busy machine is no failure. What must be fast is measured by the bench.
settings.register_profile("horarium", deadline=None)
settings.load_profile("horarium")
