"""HTTP and workflow targets over a whole stack: registered at the API, carried out by a worker process, read back."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from temporalio.worker import Worker

from tests.api_stack import ApiStack, running_stack
from tests.eventually import eventually
from tests.http_receiver import Receiver, answer, receiving
from tests.temporal_servers import unique
from tests.workflow.harness import chain_of
from workflows.contracts import job_workflow_id

ENOUGH = timedelta(seconds=40)
SECRET = "S3CR3T-xyz"


@pytest.fixture(scope="module")
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiStack]:
    """A worker that may reach this machine under its address, and knows two secrets."""
    folder = tmp_path_factory.mktemp("stack")
    settings = {"http_allow": "127.0.0.1", "secret_bank": SECRET, "secret_signing": "key of both"}
    with running_stack(request, folder, database="sqlite", **settings) as stack:
        yield stack


async def create(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    """Register a job that fires once, soon."""
    response = await client.post("/jobs", json={"schedule": "@every 1s", "max_runs": 1, **body})
    assert response.status_code == 201, response.text
    job: dict[str, Any] = response.json()
    return job


async def first_run(client: httpx.AsyncClient, job: dict[str, Any]) -> dict[str, Any]:
    """Wait for the end of a job's run."""

    async def look() -> dict[str, Any]:
        response = await client.get(f"/jobs/{job['job_id']}/runs?include=attempts")
        assert response.json(), response.text
        run: dict[str, Any] = response.json()[0]
        assert run["finished_at"], run
        return run

    return await eventually(look, limit=ENOUGH)


def to(receiver: Receiver, **fields: Any) -> dict[str, Any]:
    """A target that is the receiver."""
    return {"kind": "http", "url": f"{receiver.url}/pay", **fields}


async def test_a_request_is_sent_and_its_answer_is_the_result(stack: ApiStack) -> None:
    """The name of the job is free; the secret is with the receiver and nowhere else (SB-154)."""
    target = {"headers": {"Authorization": ["Bearer ", {"$secret": "bank"}]}, "signature": {"$secret": "signing"}}
    async with receiving(answer(201, b"paid")) as receiver, stack.client() as client:
        job = await create(client, name="nightly settlement €", payload={"amount": 10}, target=to(receiver, **target))
        run = await first_run(client, job)
        shown = (await client.get(f"/jobs/{job['job_id']}")).text
    [request] = receiver.received
    assert request.headers["authorization"] == f"Bearer {SECRET}"
    assert (request.headers["idempotency-key"], request.headers["horarium-fence"]) == (
        run["idempotency_key"],
        str(run["fence"]),
    )
    assert "v1=" in request.headers["horarium-signature"]
    assert request.body == b'{"amount":10}'
    assert (run["status"], run["result"]["status"], run["result"]["body"]) == ("success", 201, "paid")
    assert job["target"]["headers"] == {"Authorization": ["Bearer ", {"$secret": "bank"}]}
    assert job["downstream"] == "127.0.0.1"
    name = job_workflow_id(tenant="default", job_id=job["job_id"])
    histories = [history.to_json() for history in await chain_of(await stack.temporal(), name)]
    assert any("http_request" in history for history in histories)
    assert SECRET not in f"{shown}{run}{histories}{stack.worker.log.read_text()}"


async def test_a_refusal_is_final_and_trouble_is_not(stack: ApiStack) -> None:
    """404 is asked once; 503 again, and then it works. The status stands in the attempt."""
    async with (
        receiving(answer(404, b"no such account")) as refusing,
        receiving(answer(503), answer()) as troubled,
        stack.client() as client,
    ):
        refused = await create(client, name="refused", target=to(refusing))
        retried = await create(client, name="retried", target=to(troubled))
        dead, done = await first_run(client, refused), await first_run(client, retried)
    assert (dead["status"], dead["attempt"], dead["error_type"], dead["http_status"]) == (
        "dead",
        1,
        "HttpStatus404",
        404,
    )
    assert "no such account" in dead["error"]
    assert len(refusing.received) == 1
    assert (done["status"], done["attempt"]) == ("success", 2)
    assert [attempt["http_status"] for attempt in done["attempts"]] == [503, None]


async def test_an_address_that_is_not_allowed_is_never_reached(stack: ApiStack) -> None:
    """The worker may reach 127.0.0.1 and nothing else on this machine. Registration warns, the run says why."""
    async with receiving(host="127.0.0.2") as inside, stack.client() as client:
        job = await create(client, name="inside", target=to(inside))
        run = await first_run(client, job)
    assert any("HORARIUM_HTTP_ALLOW" in warning for warning in job["warnings"])
    assert (run["status"], run["error_type"], run["attempt"]) == ("dead", "AddressRefused", 1)
    assert inside.connections == 0


async def test_a_url_with_a_password_is_refused_and_not_repeated(stack: ApiStack) -> None:
    """SB-154."""
    body = {"name": "x", "schedule": "@daily", "target": {"kind": "http", "url": f"https://u:{SECRET}@bank.example/"}}
    async with stack.client() as client:
        response = await client.post("/jobs", json=body)
    assert response.status_code == 422
    assert [error["pointer"] for error in response.json()["errors"]] == ["/target/url"]
    assert SECRET not in response.text


async def test_the_documented_workflow_runs(stack: ApiStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands in the documentation, in a worker of the team's own and in Temporal's sandbox."""
    page = (Path(__file__).parents[2] / "docs/targets.md").read_text()
    [code] = [each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "MonthlyClosing" in each]
    (tmp_path / "closing.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    from closing import MonthlyClosing  # type: ignore[import-not-found]

    queue = unique("finance")
    target = {"kind": "workflow", "workflow": "MonthlyClosing", "task_queue": queue}
    worker = Worker(await stack.temporal(), task_queue=queue, workflows=[MonthlyClosing])
    async with worker, stack.client() as client:
        job = await create(client, name="monthly closing", payload={"ledger": "main"}, target=target)
        run = await first_run(client, job)
    assert run["status"] == "success"
    assert re.fullmatch(rf"main closed for \w+ \d{{4}}, fence {run['fence']}", run["result"])
