"""Secrets on a whole stack: the worker alone knows the value, whatever the job does with it."""

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect, text

from activities.database import open_database
from tests.api_stack import ApiStack, running_stack
from tests.eventually import eventually
from workflows.contracts import job_workflow_id

VALUE = "S3CR3T-xyz"

JOB_CODE = '''
"""A team's jobs, which tell all that they know."""

from typing import Any

from temporalio import activity

import horarium


@activity.defn
async def tell(payload: Any) -> Any:
    """Log the payload, save it, store it with an effect, and return it."""
    assert payload["password"].startswith("S3CR")
    horarium.logger.warning("login %s", payload, extra={"payload": payload})
    horarium.checkpoint(payload)

    async def send() -> Any:
        return payload

    return [payload, await horarium.once("send", send)]


@activity.defn
def tell_in_failure(payload: Any) -> None:
    """Fail, and quote the payload."""
    horarium.checkpoint(payload)
    try:
        raise ConnectionError(f"cannot log in with {payload}")
    except ConnectionError as error:
        raise ValueError(f"https://u:{payload['password']}@host/ does not answer") from error
'''


@pytest.fixture(params=["sqlite", "postgresql"])
def stack(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ApiStack]:
    """A stack whose worker knows a secret."""
    with running_stack(
        request, tmp_path, database=request.param, job_code=JOB_CODE, secret_db_password=VALUE, log_level="debug"
    ) as stack:
        yield stack


@pytest.mark.timeout(180)
async def test_a_secret_is_nowhere_but_on_its_worker(stack: ApiStack) -> None:
    """SB-154: neither in answers of the API, logs, SQL nor Temporal's histories, in results and in failures."""
    payload = {
        "password": {"$secret": "db-password"},
        "headers": {"Authorization": ["Bearer", {"$secret": "db-password"}]},
    }
    answers: list[str] = []
    async with stack.client() as client:
        for name, status in (("tell", "success"), ("tell_in_failure", "dead")):
            body = {
                "job_id": name,
                "name": name,
                "schedule": "@every 2s",
                "time_critical": True,
                "max_runs": 1,
                "max_retries": 1,
                "payload": payload,
                "retry_backoff": {"kind": "fixed", "base_seconds": 1},
            }
            created = await client.post("/jobs", json=body)
            assert created.status_code == 201, created.text

            async def ended(name: str = name, status: str = status) -> Any:
                runs = (await client.get(f"/jobs/{name}/runs?include=attempts")).json()
                return runs if runs and runs[0]["status"] == status else None

            [run] = await eventually(ended)
            answers += [created.text, json.dumps(run)]
            for path in (f"/jobs/{name}", "/jobs", f"/runs/{run['run_id']}", f"/jobs/{name}/ledger", "/dead-letters"):
                answers.append((await client.get(path)).text)

    told = "\n".join(answers)
    assert "***" in told, "the jobs did tell"
    assert VALUE not in told
    for log in (stack.worker.log, stack.api.log):
        assert VALUE not in await asyncio.to_thread(log.read_text)
    assert "login" in stack.worker.log.read_text()
    assert VALUE not in await dump(stack.database_url)
    for name in ("tell", "tell_in_failure"):
        assert not tells(await history(stack, name))


async def dump(url: str) -> str:
    """Everything that is in the database, as text."""
    engine = open_database(url)
    async with engine.connect() as connection:
        names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
        rows = [(await connection.execute(text(f'SELECT * FROM "{name}"'))).all() for name in names]
    await engine.dispose()
    assert "effect_claims" in names
    return repr(rows)


async def history(stack: ApiStack, job_id: str) -> str:
    """All that Temporal keeps of a job's workflow."""
    client = await stack.temporal()
    workflow_id = job_workflow_id(tenant="default", job_id=job_id)
    histories = [
        (await client.get_workflow_handle(workflow_id, run_id=execution.run_id).fetch_history()).to_json()
        async for execution in client.list_workflows(f"WorkflowId = '{workflow_id}'")
    ]
    assert histories
    return "\n".join(histories)


def tells(document: str) -> bool:
    """Whether a history has the value, in the open or in a payload, which is base64 at any of three offsets."""
    encoded = {base64.b64encode(b" " * shift + VALUE.encode())[4:-4].decode() for shift in range(3)}
    return VALUE in document or any(form in document for form in encoded)
