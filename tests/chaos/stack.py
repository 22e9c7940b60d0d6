"""A whole Horarium of real processes, each of which a test may kill and start again."""

import asyncio
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from tests.temporal_servers import server_options
from tests.worker_process import WorkerProcess
from workers.devserver import DevServer, DevServerOptions
from workflows.contracts import JOB_WORKFLOW, WORKFLOW_TASK_TIMEOUT, job_workflow_id
from workflows.job import JobDefinition, JobInput, JobState
from workflows.target import DEFAULT_TASK_QUEUE

TEMPORAL: Final = "temporal"

STOP_AT_ONCE: Final = timedelta(0)


class Stack:
    """Temporal with its data in a folder, and named worker processes."""

    def __init__(self, folder: Path, *, database_url: str, **settings: str) -> None:
        self._folder = folder
        self._settings = {"database_url": database_url} | settings
        self._workers: dict[str, WorkerProcess] = {}
        self._roles: dict[str, str] = {}
        self._own_settings: dict[str, dict[str, str]] = {}
        self.server = _start_server(server_options(folder / TEMPORAL))

    @property
    def database_url(self) -> str:
        """Where the mirror is."""
        return self._settings["database_url"]

    @property
    def address(self) -> str:
        """Where Temporal is."""
        return self.server.options.address

    async def start_worker(self, name: str, *, role: str, **settings: str) -> None:
        """Start a worker and wait until it polls. ``settings`` are its own, which it keeps when it is started again."""
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        self._roles[name] = role
        own = self._own_settings.setdefault(name, settings)
        self._workers[name] = WorkerProcess(folder, address=self.address, role=role, **self._settings | own)
        await self._workers[name].until_ready()

    @property
    def names(self) -> list[str]:
        """Of the workers that were started."""
        return list(self._workers)

    def worker(self, name: str) -> WorkerProcess:
        """Get a worker, to send it a signal or to read its log."""
        return self._workers[name]

    async def kill_worker(self, name: str) -> None:
        """``kill -9`` a worker. It may be started again under its name."""
        worker = self._workers[name]
        worker.signal(signal.SIGKILL)
        await worker.ended()
        worker.ready_file.unlink(missing_ok=True)

    async def kill_and_restart(self, name: str) -> None:
        """``kill -9`` a worker or the Temporal server, and start it again at once."""
        if name == TEMPORAL:
            options = self.server.options
            self.server.process.kill()
            await asyncio.to_thread(self.server.process.stop, grace=STOP_AT_ONCE)
            self.server = await asyncio.to_thread(_start_server, options)
            return
        await self.kill_worker(name)
        await self.start_worker(name, role=self._roles[name])

    async def connect(self) -> Client:
        """Connect as Horarium does."""
        return await Client.connect(self.address, data_converter=pydantic_data_converter)

    def stop(self) -> None:
        """End everything, at once."""
        for worker in self._workers.values():
            worker.__exit__()
        self.server.process.kill()
        self.server.stop()

    def logs(self) -> str:
        """Read what the workers said, for a test that failed."""
        return "\n".join(f"--- {name}\n{worker.log.read_text()[-3000:]}" for name, worker in self._workers.items())


def _start_server(options: DevServerOptions) -> DevServer:
    server = DevServer(options)
    server.wait_until_ready()
    return server


async def register(client: Client, job_id: str, definition: JobDefinition) -> None:
    """Register a job, as the API does."""
    now = datetime.now(UTC)
    state = JobState(
        job_id=job_id,
        definition=definition,
        registered_at=now,
        high_water=now,
        version=int(now.timestamp() * 1_000_000),
    )
    await client.start_workflow(
        JOB_WORKFLOW,
        JobInput(state=state),
        id=job_workflow_id(tenant=state.tenant, job_id=job_id),
        task_queue=DEFAULT_TASK_QUEUE,
        task_timeout=WORKFLOW_TASK_TIMEOUT,
    )
