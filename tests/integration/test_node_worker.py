"""Jobs in another language: the Node worker of the examples, installed by npm and run as its author would."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api_stack import ApiStack
from tests.eventually import eventually
from tests.temporal_servers import unique

EXAMPLE = Path(__file__).parents[2] / "temporal-dev/examples/node-worker"

INSTALL_WITHIN = 240

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not shutil.which("node") or not shutil.which("npm"), reason="Node and npm are not installed"),
]


class NodeWorker:
    """The example, in a folder of its own."""

    def __init__(self, folder: Path, *, address: str, task_queue: str) -> None:
        self.task_queue = task_queue
        self.log = folder / "worker.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["node", "worker.js"],
                cwd=folder,
                env=os.environ | {"TEMPORAL_ADDRESS": address, "TASK_QUEUE": task_queue},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def stop(self) -> int:
        """Stop it as an operator would; its exit code."""
        self.process.terminate()
        return self.process.wait(timeout=30)


@pytest.fixture(scope="module")
def node_worker(author_stack: ApiStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeWorker]:
    """The example, installed and running."""
    folder = shutil.copytree(
        EXAMPLE, tmp_path_factory.mktemp("node") / "worker", ignore=shutil.ignore_patterns("node_modules")
    )
    options = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--prefer-offline"]
    installed = subprocess.run(
        ["npm", "install", *options], cwd=folder, capture_output=True, text=True, timeout=INSTALL_WITHIN, check=False
    )
    assert installed.returncode == 0, installed.stderr
    worker = NodeWorker(folder, address=author_stack.server.options.address, task_queue=unique("node"))
    yield worker
    with suppress(ProcessLookupError):
        worker.process.kill()
    worker.process.wait()


@pytest.fixture
async def api(author_stack: ApiStack) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the API."""
    async with author_stack.client() as client:
        yield client


def job(worker: NodeWorker, activity: str, payload: Any, **fields: Any) -> dict[str, Any]:
    """Make the body of a job that runs once, at once."""
    target = {"activity": activity, "task_queue": worker.task_queue}
    return {"name": activity, "schedule": "@every 1s", "max_runs": 1, "target": target, "payload": payload, **fields}


async def run_of(api: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    """Register a job, and wait for the end of its run."""
    registered = await api.post("/jobs", json=body)
    assert registered.status_code == 201, registered.text

    async def ended() -> dict[str, Any]:
        path = f"/jobs/{registered.json()['job_id']}/runs?include=attempts"
        runs: list[dict[str, Any]] = (await api.get(path)).json()
        return runs[0] if runs and runs[0]["finished_at"] else {}

    return await eventually(ended, limit=timedelta(seconds=60))


async def test_jobs_run_in_node(node_worker: NodeWorker, api: httpx.AsyncClient) -> None:
    """A bare result; a report, with a checkpoint that outlives a failed attempt; a failure for good."""
    short = job(node_worker, "count_words", {"text": "to be or not to be"}, heartbeat_timeout_seconds=None)
    long = job(node_worker, "export_pages", {"pages": 5, "hang_up_at": 3}, heartbeat_timeout_seconds=10)
    empty = job(node_worker, "count_words", {"text": " "})
    counted, exported, failed = await asyncio.gather(*(run_of(api, body) for body in (short, long, empty)))

    assert (counted["status"], counted["worker"]) == ("success", None), node_worker.log.read_text()
    assert counted["result"] == {"words": 6, "idempotency_key": counted["idempotency_key"]}

    assert (exported["status"], exported["attempt"], exported["result"]) == ("success", 2, {"first": 4, "last": 5})
    assert exported["worker"].startswith("node:")
    first, second = exported["attempts"]
    assert (first["status"], first["error"]) == ("failed", "ConnectionError: the store hung up")
    assert first["started_at"] < first["finished_at"] <= second["started_at"]

    assert (failed["status"], failed["attempt"]) == ("dead", 1)
    assert failed["error"] == "PermanentError: there is nothing to count"


async def test_payloads_are_checked_against_what_node_announced(
    node_worker: NodeWorker, api: httpx.AsyncClient
) -> None:
    """The check knows no language."""

    async def refused() -> httpx.Response:
        answer = await api.post("/jobs", json=job(node_worker, "export_pages", {"pages": 0}))
        assert answer.status_code == 422, answer.text
        return answer

    [error] = (await eventually(refused)).json()["errors"]
    assert (error["pointer"], error["detail"]) == ("/payload/pages", "at least 1")


async def test_a_worker_that_never_heartbeats_is_told_what_to_do(
    node_worker: NodeWorker, api: httpx.AsyncClient
) -> None:
    """It counts as lost after the heartbeat timeout, and the error names the setting."""
    body = job(node_worker, "sleep_in_silence", {"seconds": 3}, heartbeat_timeout_seconds=1, max_retries=0)
    lost = await run_of(api, body)
    assert (lost["status"], lost["error_type"]) == ("dead", "lost")
    assert "set heartbeat_timeout_seconds to null" in lost["error"]
    patient = await run_of(api, body | {"heartbeat_timeout_seconds": None})
    assert (patient["status"], patient["result"]) == ("success", "slept")


async def test_it_stops_when_it_is_told_to(node_worker: NodeWorker) -> None:
    """With a clean exit."""
    assert await asyncio.to_thread(node_worker.stop) == 0, node_worker.log.read_text()
