"""Fixtures for all tests, by where they come from."""

from pathlib import Path
from typing import Final

import pytest
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

UNHURRIED: Final = ("integration", "workflow", "replay")
"""Folders whose files take longest, in this order. A file is the work of one process, whose tests share what it starts."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, so that all processes end at about the same time."""
    items.sort(key=_place_of)


def _place_of(item: pytest.Item) -> int:
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    return UNHURRIED.index(folder) if folder in UNHURRIED else len(UNHURRIED)
