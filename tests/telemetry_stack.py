"""A whole Horarium in which every process tells all it can: Temporal, a scheduler, a worker of a team and the API."""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import httpx

from tests.api_server import ApiProcess, client_of
from tests.temporal_servers import running_server, server_options
from tests.worker_process import WorkerProcess
from workers.devserver import free_port

TEAM_QUEUE: Final = "team"

OF_TEAM: Final = {"role": "job", "task_queues": TEAM_QUEUE, "activities": "team_jobs", "examples": "false"}

TOUCHY: Final = {"breaker_failures": "2", "breaker_open": "1"}
"""The second failure in a row opens the breaker of a downstream, and soon there is a probe."""

JOB_CODE = '''
"""Jobs of a team, which traces what it does."""

import logging

from opentelemetry import trace
from temporalio import activity

tracer = trace.get_tracer("team")


@activity.defn
async def charge(amount: int) -> str:
    with tracer.start_as_current_span("call the bank", attributes={"amount": amount}):
        return "paid"


@activity.defn
def refuse() -> None:
    with tracer.start_as_current_span("ask the bank"):
        logging.getLogger("bank").warning("refused", extra={"reason": "weekend"})
        raise ConnectionError("S3CR3T")
'''


@dataclass(frozen=True, kw_only=True)
class TelemetryStack:
    """What runs."""

    address: str
    """Of Temporal."""

    scheduler: WorkerProcess
    team: WorkerProcess
    api: ApiProcess
    metrics: Mapping[str, str]
    """Where each process is read: ``scheduler``, ``team``, ``api``."""

    another_scheduler: Callable[[], WorkerProcess]
    """Starts one, to be used with ``with``. Its metrics are nowhere."""

    def client(self) -> httpx.AsyncClient:
        """Make a client of the API."""
        return client_of(self.api.port)

    async def register(
        self, job_id: str, activity: str, *, headers: Mapping[str, str] | None = None, **fields: Any
    ) -> None:
        """Register a job of the team; without a schedule it fires once, at once."""
        target = {"kind": "activity", "activity": activity, "task_queue": TEAM_QUEUE}
        soon = (datetime.now(UTC) + timedelta(seconds=2)).isoformat(timespec="seconds")
        body = {"job_id": job_id, "name": job_id, "target": target, "time_critical": True, "schedule": soon} | fields
        async with self.client() as client:
            answer = await client.post("/jobs", json=body, headers=headers)
        assert answer.status_code == 201, answer.text


@contextmanager
def telling(folder: Path, *, database_url: str, **variables: str) -> Iterator[TelemetryStack]:
    """Run everything for the length of the block. ``variables`` are of OpenTelemetry, and named in full."""
    with ExitStack() as cleanup:
        server = cleanup.enter_context(running_server(server_options(folder / "temporal")))
        ports = {"scheduler": str(free_port()), "team": str(free_port())}
        known = {"address": server.options.address, "database_url": database_url, "log_format": "json"}
        with patch.dict(os.environ, variables):
            scheduler = WorkerProcess(
                _folder(folder, "scheduler"), role="scheduler", metrics_port=ports["scheduler"], **TOUCHY, **known
            )
            cleanup.enter_context(scheduler)
            team = WorkerProcess(_folder(folder, "team"), metrics_port=ports["team"], **OF_TEAM, **known)
            cleanup.enter_context(team)
            api = cleanup.enter_context(ApiProcess(folder, **known))
        asyncio.run(_until_ready(scheduler, team, api))
        metrics = {name: f"http://127.0.0.1:{port}/metrics" for name, port in ports.items()}
        another = partial(WorkerProcess, _folder(folder, "another"), role="scheduler", **known)
        yield TelemetryStack(
            address=server.options.address,
            scheduler=scheduler,
            team=team,
            api=api,
            metrics=metrics | {"api": f"{api.url}/metrics"},
            another_scheduler=another,
        )


async def _until_ready(scheduler: WorkerProcess, team: WorkerProcess, api: ApiProcess) -> None:
    await scheduler.until_ready()
    await team.until_ready()
    await api.until_alive()


def _folder(parent: Path, name: str) -> Path:
    """Make the folder of a worker, with the team's code in it."""
    folder = parent / name
    folder.mkdir()
    (folder / "team_jobs.py").write_text(JOB_CODE)
    return folder
