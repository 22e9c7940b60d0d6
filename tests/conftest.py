"""Fixtures for all tests, by where they come from."""

import gc
import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.databases import (
    database_url,
    empty_database_url,
    module_sqlite_url,
    postgres_data,
    postgres_of_its_own,
    postgres_server,
    postgresql_url,
    sqlite_template,
    sqlite_url,
)
from tests.made_once import run_folder
from tests.scheduling import UnitScheduling, end_stacks, rank_of, unit_of
from tests.temporal_servers import temporal_client, temporal_server, time_skipping

__all__ = [
    "database_url",
    "empty_database_url",
    "module_sqlite_url",
    "postgres_data",
    "postgres_of_its_own",
    "postgres_server",
    "postgresql_url",
    "run_folder",
    "sqlite_template",
    "sqlite_url",
    "temporal_client",
    "temporal_server",
    "time_skipping",
]

# No test is a stopwatch: a busy machine is no failure. What must be fast is measured by the bench.
settings.register_profile("horarium", deadline=None)
settings.load_profile("horarium")


@pytest.fixture(autouse=True)
def _level_of_a_fresh_process() -> None:
    """Log what Python logs: commands that ran in this process, at once or in threads, take its logging for their own."""
    logging.getLogger().setLevel(logging.WARNING)


def pytest_configure(config: pytest.Config) -> None:
    """Look for no garbage while thousands of tests are collected: there is hardly any."""
    if not config.getoption("numprocesses", default=None):
        gc.disable()


def pytest_collection_finish() -> None:
    """Look for it from now on, but not among the tests."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """End a stack when its unit is over; those of a session would run on to its end.

    Only where several processes run the tests, each a whole unit at a time: else another order might come back to it.
    """
    yield
    is_over = nextitem is not None and unit_of(nextitem.nodeid) != unit_of(item.nodeid)
    if is_over and "PYTEST_XDIST_WORKER" in os.environ:
        end_stacks()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, so that all processes end at about the same time."""
    items.sort(key=lambda item: rank_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> UnitScheduling | None:
    """Give each process a unit at a time, where files were to be distributed."""
    return UnitScheduling(config, log) if config.getvalue("dist") == "loadfile" else None
