"""Temporal, a worker and the API together, as an operator runs them."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from temporalio.client import Client

from tests.api_server import ApiProcess, client_of
from tests.databases import fresh_database
from tests.temporal_servers import connect_to, running_server, server_options
from tests.worker_process import WorkerProcess
from workers.devserver import DevServer

JOB_CODE = '''
"""Jobs of a team."""

from typing import Any

from temporalio import activity


@activity.defn
async def echo(payload: Any) -> Any:
    """Return what was given."""
    return payload
'''


@dataclass(frozen=True, kw_only=True)
class ApiStack:
    """What runs."""

    server: DevServer
    worker: WorkerProcess
    api: ApiProcess
    database_url: str
    folder: Path
    """Where the worker and its job code are."""

    def client(self) -> httpx.AsyncClient:
        """Make a client of the API."""
        return client_of(self.api.port)

    async def temporal(self) -> Client:
        """Make a client of Temporal."""
        return await connect_to(self.server)


@contextmanager
def running_stack(
    request: pytest.FixtureRequest, folder: Path, *, database: str, job_code: str = JOB_CODE, **settings: str
) -> Iterator[ApiStack]:
    """Run everything for the length of the block. ``settings`` are those of the worker."""
    (folder / "team_jobs.py").write_text(job_code)
    with ExitStack() as cleanup:
        url = _database(request, folder, cleanup, kind=database)
        server = cleanup.enter_context(running_server(server_options(folder / "temporal")))
        address = server.options.address
        # Whoever tests the mirror's upkeep asks for a pass; others are not to be disturbed by one.
        settings = {"reconcile_every": "3600"} | settings
        worker = WorkerProcess(folder, address=address, database_url=url, activities="team_jobs", **settings)
        api = ApiProcess(folder, address=address, database_url=url)
        cleanup.enter_context(worker)
        cleanup.enter_context(api)
        asyncio.run(_until_ready(worker, api))
        yield ApiStack(server=server, worker=worker, api=api, database_url=url, folder=folder)


async def _until_ready(worker: WorkerProcess, api: ApiProcess) -> None:
    await worker.until_ready()
    await api.until_alive()


def _database(request: pytest.FixtureRequest, folder: Path, cleanup: ExitStack, *, kind: str) -> str:
    if kind == "postgresql":
        return cleanup.enter_context(fresh_database(request.getfixturevalue("postgres_server")))
    template: Path = request.getfixturevalue("sqlite_template")
    return f"sqlite:///{shutil.copy(template, folder / 'horarium.sqlite')}"
