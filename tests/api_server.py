"""The API for tests: inside the test's own event loop, or as a process, and always over real HTTP."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from api.app import create_app
from tests.eventually import eventually
from tests.worker_process import READY_WITHIN, environment
from workers.devserver import free_port
from workers.settings import Settings

NOWHERE = "127.0.0.1:1"
"""Where no Temporal server ever is."""

GIVES_UP_FIRST = httpx.Limits(keepalive_expiry=2)
"""The client leaves an idle connection sooner than any server does, so that it sends nothing on one that just closes."""


@asynccontextmanager
async def serving(
    *, database_url: str, temporal_address: str = NOWHERE, **others: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """Serve the application in this event loop; yields a client whose paths begin after ``/api/v1``.

    ``others`` are further settings. It listens on this machine alone, whatever ``api_host`` says.
    """
    port = free_port()
    settings = Settings(database_url=database_url, temporal_address=temporal_address, api_port=port, **others)
    config = uvicorn.Config(create_app(settings), port=port, log_config=None, access_log=False, lifespan="on")
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    try:
        await eventually(lambda: server.started or running.done())
        async with client_of(port) as client:
            yield client
    finally:
        server.should_exit = True
        await running


def client_of(port: int) -> httpx.AsyncClient:
    """Make a client of the API on a port."""
    return http_client(base_url=f"http://127.0.0.1:{port}/api/v1")


def http_client(*, base_url: str = "", headers: Mapping[str, str] | None = None) -> httpx.AsyncClient:
    """Make a client of servers of this machine. None speaks TLS, for which every client would read all authorities there are."""
    return httpx.AsyncClient(base_url=base_url, headers=headers, timeout=60, limits=GIVES_UP_FIRST, verify=False)


class ApiProcess:
    """``python -P -m api``, started as an operator starts it."""

    def __init__(
        self, folder: Path, *, address: str, database_url: str, python: Path | str = sys.executable, **settings: str
    ) -> None:
        self.port = free_port()
        self.log = folder / "api.log"
        given = {"database_url": database_url, "api_port": str(self.port), **settings}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [python, "-P", "-m", "api"],
                cwd=folder,
                env=environment(given) | {"TEMPORAL_ADDRESS": address},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    async def until_alive(self) -> "ApiProcess":
        """Wait until it answers."""

        async def is_alive() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            async with http_client() as client:
                with suppress(httpx.TransportError):
                    return (await client.get(f"{self.url}/healthz")).is_success
            return False

        await eventually(is_alive, limit=READY_WITHIN)
        return self

    async def ended(self) -> int:
        """Wait for its end, and say its exit code."""
        await eventually(lambda: self.process.poll() is not None)
        return self.process.returncode

    def __enter__(self) -> "ApiProcess":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()


def first_second_after(moment: str) -> str:
    """Say, as the API does, when a job of every second fires first that was registered then."""
    whole = datetime.fromisoformat(moment).replace(microsecond=0) + timedelta(seconds=1)
    return f"{whole:%Y-%m-%dT%H:%M:%SZ}"
