"""Requests whose API dies in the middle of them, and what is to be true of each afterwards."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx
from sqlalchemy import update

from activities.database import open_database, writing
from activities.queries import Queries
from activities.tables import IDEMPOTENCY_RECORDS
from tests.api_stack import ApiStack
from tests.dying_api import HEADER, DyingApis
from tests.eventually import eventually
from tests.mirror_upkeep import of_job, one_pass
from tests.temporal_servers import unique
from workflows.command import ShowCommand
from workflows.contracts import UPDATE_SHOW, job_workflow_id
from workflows.job import JobRecord, MirrorBatch

WEEKLY: Final[dict[str, Any]] = {"name": "noop", "schedule": "0 9 * * 1"}
DAILY: Final[dict[str, Any]] = {"name": "noop", "schedule": "0 9 * * *"}

Check = Callable[[dict[str, Any]], bool]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A request, what it needs to be there, and what it makes of the job."""

    method: str
    path: str = "/jobs/{job_id}"
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    first: bool = True
    """Whether there is a job before."""

    done: Check
    """Whether a job is as the request wants it."""

    statuses: frozenset[int] = field(default=frozenset({200}))
    """What the request may be answered when it is repeated with its key, whatever its first try came to."""

    async def send(self, client: httpx.AsyncClient, job_id: str, *, key: str, at: str | None = None) -> httpx.Response:
        """Send it; ``at`` says where its API is to die."""
        headers = {**self.headers, "Idempotency-Key": key} | ({} if at is None else {HEADER: at})
        body = None if self.body is None else {**self.body, **({"job_id": job_id} if self.path == "/jobs" else {})}
        return await client.request(self.method, self.path.format(job_id=job_id), json=body, headers=headers)


OPERATIONS: Final = {
    "create": Operation(
        method="POST",
        path="/jobs",
        body=WEEKLY,
        first=False,
        done=lambda job: job["state"] == "active" and job["revision"] == 1,
        statuses=frozenset({200, 201}),
    ),
    "put": Operation(
        method="PUT",
        body=WEEKLY,
        first=False,
        done=lambda job: job["state"] == "active" and job["revision"] == 1,
        statuses=frozenset({200, 201}),
    ),
    "put-new": Operation(
        method="PUT",
        body=WEEKLY,
        headers={"If-None-Match": "*"},
        first=False,
        done=lambda job: job["state"] == "active" and job["revision"] == 1,
        statuses=frozenset({200, 201}),
    ),
    "replace": Operation(
        method="PUT", body=DAILY, done=lambda job: (job["schedule"], job["revision"]) == ("0 9 * * *", 2)
    ),
    "patch": Operation(
        method="PATCH", body={"payload": {"n": 1}}, done=lambda job: (job["payload"], job["revision"]) == ({"n": 1}, 2)
    ),
    "replace-seen": Operation(
        method="PUT",
        body=DAILY,
        headers={"If-Match": '"1"'},
        done=lambda job: (job["schedule"], job["revision"]) == ("0 9 * * *", 2),
    ),
    "patch-seen": Operation(
        method="PATCH",
        body={"payload": {"n": 1}},
        headers={"If-Match": '"1"'},
        done=lambda job: (job["payload"], job["revision"]) == ({"n": 1}, 2),
    ),
    "pause": Operation(
        method="POST",
        path="/jobs/{job_id}/pause",
        body={"reason": "maintenance"},
        done=lambda job: job["state"] == "paused",
    ),
    "delete": Operation(method="DELETE", done=lambda job: job["state"] == "deleted"),
}


async def survive(stack: ApiStack, apis: DyingApis, operation: Operation, *, at: str) -> bool:
    """Let the API die in the middle of a request; see that SQL and Temporal agree after a pass, and that the request, repeated
    with its key at another API, is answered rightly. Answers whether it died: after its last step it does not."""
    job_id, key = unique("job"), unique("key")
    async with stack.client() as healthy:
        if operation.first:
            assert (await healthy.put(f"/jobs/{job_id}", json=WEEKLY)).status_code == 201
        died = await _send_to_death(apis, operation, job_id, key=key, at=at)
        await one_pass(stack)
        await check_agreement(stack, job_id)
        await _let_claims_lapse(stack.database_url)
        answer = await operation.send(healthy, job_id, key=key)
        assert answer.status_code in operation.statuses, (at, answer.text)
        job = (await healthy.get(f"/jobs/{job_id}")).json()
        assert operation.done(job), (at, job)
        await check_agreement(stack, job_id)
        await healthy.delete(f"/jobs/{job_id}")
    return died


async def _send_to_death(apis: DyingApis, operation: Operation, job_id: str, *, key: str, at: str) -> bool:
    url = apis.start()
    async with httpx.AsyncClient(base_url=f"{url}/api/v1", timeout=30) as client:
        await until_alive(client)
        try:
            answer = await operation.send(client, job_id, key=key, at=at)
        except httpx.TransportError:
            return True
    assert answer.is_success, answer.text
    return False


async def until_alive(client: httpx.AsyncClient) -> None:
    """Wait until an API answers."""

    async def answers() -> bool:
        try:
            return (await client.get("/healthz")).is_success
        except httpx.TransportError:
            return False

    await eventually(answers, every=timedelta(milliseconds=20))


async def check_agreement(stack: ApiStack, job_id: str) -> None:
    """See that SQL tells of a job what the job tells of itself, or that neither knows one."""
    assert of_job(await one_pass(stack, mend=False), job_id) == []
    row, told = await read_row(stack, job_id), await ask_job(stack, job_id)
    if told is None:
        assert row is None or row.lifecycle.value == "deleted"
        return
    assert row is not None
    assert row.model_copy(update={"version": 0}) == told.model_copy(update={"version": 0})


async def read_row(stack: ApiStack, job_id: str) -> JobRecord | None:
    """Read what SQL has of a job."""
    engine = open_database(stack.database_url)
    try:
        return await Queries(engine).get_job("default", job_id)
    finally:
        await engine.dispose()


async def ask_job(stack: ApiStack, job_id: str) -> JobRecord | None:
    """Ask a job how it stands; ``None`` where Temporal has no open workflow of it."""
    handle = (await stack.temporal()).get_workflow_handle(job_workflow_id(tenant="default", job_id=job_id))
    try:
        answer: MirrorBatch = await handle.execute_update(UPDATE_SHOW, ShowCommand(), result_type=MirrorBatch)
    except Exception as error:
        if "not found" in str(error).lower() or "completed" in str(error).lower():
            return None
        raise
    return answer.job


async def _let_claims_lapse(database_url: str) -> None:
    """Let a minute pass for whoever died with a key in hand."""
    engine = open_database(database_url)
    long_ago = datetime.now(UTC) - timedelta(minutes=2)
    async with writing(engine) as connection:
        await connection.execute(update(IDEMPOTENCY_RECORDS).values(claimed_at=long_ago))
    await engine.dispose()
