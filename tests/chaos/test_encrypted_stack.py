"""Everything with encrypted payloads, as an operator runs it, and what Temporal's Web UI then shows."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from temporalio.client import Client

from tests.api_server import ApiProcess, client_of
from tests.api_stack import JOB_CODE
from tests.encryption import keys_file
from tests.eventually import eventually
from tests.temporal_servers import unique
from tests.worker_process import WorkerProcess
from workers.devserver import DevServer, DevServerOptions, free_port
from workflows.contracts import job_workflow_id

SECRET = "walnut-4711"

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Stack:
    """What runs."""

    def __init__(self, server: DevServer, api: ApiProcess, worker: WorkerProcess) -> None:
        self.server = server
        self.api = api
        self.worker = worker


@pytest.fixture
def stack(tmp_path: Path, sqlite_url: str) -> Iterator[Stack]:
    """Temporal with a Web UI that asks the API to decode, a worker, and the API."""
    (tmp_path / "team_jobs.py").write_text(JOB_CODE)
    keys = str(keys_file(tmp_path / "keys", "2026"))
    port, ui_port = free_port(), free_port()
    ui_url = f"http://localhost:{ui_port}"
    common = {
        "address": f"127.0.0.1:{port}",
        "database_url": sqlite_url,
        "encryption_keys_file": keys,
        "ui_url": ui_url,
    }
    with ApiProcess(tmp_path, **common) as api:
        options = DevServerOptions(
            data_dir=tmp_path / "temporal",
            port=port,
            ui_port=ui_port,
            codec_endpoint=f"http://localhost:{api.port}/codec",
        )
        server = DevServer(options)
        try:
            server.wait_until_ready(limit=timedelta(seconds=60))
            with WorkerProcess(tmp_path, activities="team_jobs", **common) as worker:
                yield Stack(server, api, worker)
        finally:
            server.stop()


async def test_the_web_ui_shows_what_the_server_cannot_read(stack: Stack, tmp_path: Path) -> None:
    """Registered, run and read through the API; in Temporal's history only keys' ids; in the Web UI, decoded."""
    await stack.api.until_alive()
    await stack.worker.until_ready()
    job_id = unique("encrypted")
    async with client_of(stack.api.port) as api:
        # The Web UI draws what stands in sight: of a long document its beginning.
        body = {
            "job_id": job_id,
            "name": "echo",
            "description": f"About {SECRET}",
            "schedule": "@every 1h",
            "payload": {"told": SECRET},
        }
        created = await api.post("/jobs", json=body)
        assert created.status_code == 201, created.text
        assert (await api.post(f"/jobs/{job_id}/trigger")).status_code == 202

        async def result() -> Any:
            runs = (await api.get(f"/jobs/{job_id}/runs?status=success")).json()
            return runs and runs[0]["result"]

        assert await eventually(result) == {"told": SECRET}
    workflow_id = job_workflow_id(tenant="default", job_id=job_id)
    client = await Client.connect(stack.server.options.address)
    first = [each async for each in client.list_workflows(f"WorkflowId = '{workflow_id}'")][-1]
    history = await client.get_workflow_handle(workflow_id, run_id=first.run_id).fetch_history()
    assert len(history.events) > 5
    raw = b"".join(event.SerializeToString() for event in history.events)
    assert SECRET.encode() not in raw
    assert b"2026" in raw
    assert SECRET.encode() not in b"".join(
        path.read_bytes() for path in (tmp_path / "temporal").glob("temporal.sqlite*")
    )
    await _decode_as_the_web_ui_does(stack, history)
    if CHROMIUM is None:
        pytest.skip("no browser here; the rest was seen")
    ui = f"http://localhost:{stack.server.options.ui_port}/namespaces/default/workflows"
    page = f"{ui}/{quote(workflow_id, safe='')}/{first.run_id}/history"
    assert SECRET in _shown_by_browser(page, tmp_path)


async def _decode_as_the_web_ui_does(stack: Stack, history: Any) -> None:
    """Send what it sends."""
    started = json.loads(history.to_json())["events"][0]["workflowExecutionStartedEventAttributes"]
    async with httpx.AsyncClient() as client:
        answer = await client.post(
            f"{stack.api.url}/codec/decode", json=started["input"], headers={"X-Namespace": "default"}
        )
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["payloads"]) == len(started["input"]["payloads"])


def _shown_by_browser(page: str, folder: Path) -> str:
    """Open a page, take a picture of it, and answer the document as it stands then."""
    assert CHROMIUM is not None
    options = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / 'browser'}",
        "--window-size=1600,1400",
        "--virtual-time-budget=20000",
    ]
    picture = [CHROMIUM, *options, f"--screenshot={folder / 'web-ui.png'}", page]
    subprocess.run(picture, check=True, capture_output=True, timeout=120)
    document = [CHROMIUM, *options, "--dump-dom", page]
    return subprocess.run(document, check=True, capture_output=True, timeout=120, text=True).stdout
