"""A payload that no worker takes is refused when its job is registered."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from pydantic import BaseModel, Field
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from horarium import HorariumPlugin, JobRun
from horarium.catalogue import catalogue_workflow_id
from tests.api_stack import ApiStack
from tests.eventually import eventually
from tests.temporal_servers import unique
from workflows.run import RunStatus


class Report(BaseModel):
    """A payload."""

    report_type: str = Field(min_length=3)
    recipients: list[str] = []


@activity.defn(name="send")
async def send(run: JobRun[Report]) -> str:
    """The first version."""
    return run.payload.report_type


@activity.defn(name="send")
async def send_by_number(number: int) -> int:
    """The next version."""
    return number


@pytest.fixture
async def api(author_stack: ApiStack) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the API."""
    async with author_stack.client() as client:
        yield client


@asynccontextmanager
async def team_worker(stack: ApiStack, queue: str, functions: Sequence[Callable[..., Any]]) -> AsyncIterator[None]:
    """Run a worker as a team does: with a client of its own and the plugin."""
    client = await Client.connect(stack.server.options.address)
    async with Worker(client, task_queue=queue, activities=functions, plugins=[HorariumPlugin()]):
        yield


def job(queue: str, payload: Any = None, **fields: Any) -> dict[str, Any]:
    """Make the body of a job."""
    target = {"activity": "send", "task_queue": queue}
    return {"name": "report", "schedule": "@yearly", "target": target, "payload": payload, **fields}


async def refused(api: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, str]:
    """Register until it is refused, which it is as soon as the schema is known; the reasons by place."""

    async def answer() -> httpx.Response:
        found = await api.post("/jobs", json=body)
        assert found.status_code == 422, found.text
        return found

    problem = (await eventually(answer)).json()
    return {error["pointer"]: error["detail"] for error in problem["errors"]}


async def accepted(api: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    """Register; the answer."""
    answer = await api.post("/jobs", json=body)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_payload_is_checked_when_the_job_is_registered(author_stack: ApiStack, api: httpx.AsyncClient) -> None:
    """With a pointer to each bad member; nothing is registered. What fits is accepted without a word, and runs."""
    queue = unique("reports")
    async with team_worker(author_stack, queue, [send]):
        bad = job(queue, {"report_type": "x", "recipients": ["a", 1]})
        assert await refused(api, bad) == {
            "/payload/report_type": "at least 3 characters",
            "/payload/recipients/1": "give a string",
        }
        job_id = unique("bad")
        assert (await api.post("/jobs", json=bad | {"job_id": job_id})).status_code == 422
        assert (await api.get(f"/jobs/{job_id}")).status_code == 404
        good = await accepted(api, job(queue, {"report_type": "weekly"}, schedule="@every 1s", max_runs=1))
        assert good["warnings"] == []
        told = await history_length(author_stack, queue)
        run = await eventually(lambda: first_run(api, good["job_id"]))
        assert (run["status"], run["result"]) == (RunStatus.SUCCESS, "weekly")
        assert await history_length(author_stack, queue) == told, "a fire costs the catalogue nothing"


async def test_it_is_checked_while_no_worker_is_there(author_stack: ApiStack, api: httpx.AsyncClient) -> None:
    """What the last one took is still known."""
    queue = unique("reports")
    async with team_worker(author_stack, queue, [send]):
        await refused(api, job(queue, {}))
    assert await refused(api, job(queue, {})) == {"/payload/report_type": "required"}
    assert await refused(api, job(queue)) == {"/payload": "give an object"}


async def test_while_two_versions_follow_each_other_either_is_enough(
    author_stack: ApiStack, api: httpx.AsyncClient
) -> None:
    """With a warning; what fits neither is refused."""
    queue = unique("reports")
    async with team_worker(author_stack, queue, [send]):
        await refused(api, job(queue, {}))
        async with team_worker(author_stack, queue, [send_by_number]):

            async def warned() -> list[str]:
                answer = await api.post("/jobs", json=job(queue, 7))
                return list(answer.json()["warnings"]) if answer.status_code == 201 else []

            [warning] = await eventually(warned)
            assert "does not take this payload: payload: give an object" in warning
            assert await refused(api, job(queue, "text")) == {"/payload": "give a whole number"}


async def test_what_is_not_known_is_a_warning(author_stack: ApiStack, api: httpx.AsyncClient) -> None:
    """A slip in the name of an activity; a worker that says nothing; a queue without any."""
    queue, silent, empty = unique("reports"), unique("silent"), unique("empty")
    async with team_worker(author_stack, queue, [send]):
        await refused(api, job(queue, {}))
        slip = job(queue) | {"target": {"activity": "sned", "task_queue": queue}}
        [warning] = (await accepted(api, slip))["warnings"]
        assert warning == (
            f"no worker of task queue '{queue}' says that it has an activity 'sned'; did you mean 'send'?"
        )
    client = await Client.connect(author_stack.server.options.address)
    async with Worker(client, task_queue=silent, activities=[send], plugins=[HorariumPlugin(announce=False)]):

        async def warned() -> list[str]:
            return list((await accepted(api, job(silent, {"any": 1})))["warnings"])

        [warning] = await eventually(warned)
        assert warning.startswith("the payload was not checked")
    found = await accepted(api, job(empty, {"any": 1}))
    assert found["warnings"] == []
    assert found["health"]["reasons"] == [f"no worker polls task queue '{empty}'"]


async def test_a_repeated_registration_is_answered_as_before(author_stack: ApiStack, api: httpx.AsyncClient) -> None:
    """Whatever the job's workers say by now."""
    queue, key = unique("reports"), unique("key")
    body = job(queue, "text")
    first = await api.post("/jobs", json=body, headers={"Idempotency-Key": key})
    assert first.status_code == 201
    async with team_worker(author_stack, queue, [send]):
        await refused(api, body)
        again = await api.post("/jobs", json=body, headers={"Idempotency-Key": key})
    assert again.is_success
    assert again.json()["job_id"] == first.json()["job_id"]


async def test_our_own_worker_says_what_it_runs(api: httpx.AsyncClient) -> None:
    """The example jobs are checked like any other."""
    body = {"name": "send_report", "schedule": "@yearly", "payload": {"recipients": []}}
    assert await refused(api, body) == {"/payload/report_type": "required"}
    assert (await accepted(api, {**body, "payload": {"report_type": "weekly"}}))["warnings"] == []


async def first_run(api: httpx.AsyncClient, job_id: str) -> dict[str, Any] | None:
    """Get the first run of a job once it has ended."""
    runs = (await api.get(f"/jobs/{job_id}/runs")).json()
    return runs[0] if runs and runs[0]["finished_at"] else None


async def history_length(stack: ApiStack, queue: str) -> int:
    """Count the events of a catalogue."""
    client = await stack.temporal()
    return (await client.get_workflow_handle(catalogue_workflow_id(queue)).describe()).history_length
