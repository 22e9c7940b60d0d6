"""Temporal servers for tests: the real one, shared by a test session, and one that skips time, for each test of its own.

Each pytest-xdist worker has its own. Tests do not share workflow ids or task queues; see ``unique``.
"""

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from workers.devserver import DevServer, DevServerOptions, find_test_server_binary, free_port
from workflows.data_converter import DATA_CONVERTER

READY_WITHIN: Final = timedelta(seconds=60)


def unique(prefix: str) -> str:
    """Make a name that no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def server_options(folder: Path, *, with_metrics: bool = False) -> DevServerOptions:
    """Choose free ports for a server that keeps its file in a folder."""
    metrics_port = free_port() if with_metrics else None
    return DevServerOptions(data_dir=folder, port=free_port(), ui_port=None, metrics_port=metrics_port)


@contextmanager
def running_server(options: DevServerOptions) -> Iterator[DevServer]:
    """Run a server for the length of the block. Nobody wants what it would still do at its end, so it is killed."""
    server = DevServer(options)
    try:
        server.wait_until_ready(limit=READY_WITHIN)
        yield server
    finally:
        server.process.kill()
        server.stop()


async def connect_to(server: DevServer) -> Client:
    """Connect as Horarium does."""
    return await Client.connect(server.options.address, data_converter=DATA_CONVERTER)


@pytest.fixture(scope="session")
def temporal_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    """A real server for the session. Tests that break servers start their own, with ``server_options``."""
    with running_server(server_options(tmp_path_factory.mktemp("temporal"))) as server:
        yield server


@pytest.fixture
async def temporal_client(temporal_server: DevServer) -> Client:
    """A client of the shared server."""
    return await connect_to(temporal_server)


@pytest.fixture
async def time_skipping() -> AsyncIterator[WorkflowEnvironment]:
    """A server of its own whose clock jumps over sleeps."""
    async with await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=str(find_test_server_binary()), data_converter=DATA_CONVERTER
    ) as environment:
        yield environment
