"""Two tenants on one installation, with the same ids: nothing of one is seen, changed or triggered by the other (SB-149)."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from activities.api_key import Scope
from activities.database import open_database
from activities.quota import Quota
from activities.quota_store import QuotaStore
from activities.task_queue_store import TaskQueueStore
from tests.api_keys import add_key, entry_of, new_key, with_key
from tests.api_stack import ApiStack, running_stack
from tests.eventually import eventually
from tests.temporal_servers import unique

JOB_CODE = '''
"""Jobs of two teams."""

from temporalio import activity

from horarium import JobRun, PermanentError


@activity.defn
async def tell(run: JobRun) -> str:
    """Say whose run it is."""
    return f"{run.tenant}/{run.job_id}/{run.payload}"


@activity.defn
async def fail(run: JobRun) -> None:
    """Die at once."""
    raise PermanentError(f"of {run.tenant}")
'''

CREATE_WITH_AN_ID = {("put", "/api/v1/jobs/{job_id}"), ("put", "/api/v1/calendars/{name}")}
"""Another tenant's id is free in the own tenant."""

EVERY_SECOND = {"schedule": "@every 1s", "time_critical": True}


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiStack]:
    """Everything, on each kind of database in turn."""
    folder = tmp_path_factory.mktemp("teams")
    with running_stack(request, folder, database=request.param, job_code=JOB_CODE) as stack:
        yield stack


class Team:
    """A tenant with an admin's key."""

    def __init__(self, tenant: str, api: httpx.AsyncClient) -> None:
        self.tenant = tenant
        self.api = api

    async def create(self, job_id: str, **body: Any) -> dict[str, Any]:
        """Register a job."""
        answer = await self.api.post("/jobs", json={"job_id": job_id, "name": "tell", "schedule": "0 9 * * 1", **body})
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def runs(self, job_id: str) -> list[dict[str, Any]]:
        """List the runs of a job that ended."""
        found: list[dict[str, Any]] = (await self.api.get(f"/jobs/{job_id}/runs?status=success,dead")).json()
        return found

    async def changes(self, **chosen: str) -> list[dict[str, Any]]:
        """List the tenant's audit log."""
        answer = await self.api.get("/audit", params={"limit": 500, **chosen})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()
        return found


@pytest.fixture
async def teams(stack: ApiStack) -> AsyncIterator[tuple[Team, Team]]:
    """Two tenants of the test's own."""
    async with stack.client() as api:
        names = [unique(name) for name in ("red", "blue")]
        clients = [with_key(api, await add_key(stack.database_url, tenant=name, scope=Scope.ADMIN)) for name in names]
        red, blue = (Team(name, client) for name, client in zip(names, clients, strict=True))

        async def are_let_in() -> bool:
            return all([(await team.api.get("/quota")).json().get("tenant") == team.tenant for team in (red, blue)])

        # The first key of an installation takes some seconds to be known.
        await eventually(are_let_in)
        yield red, blue
        for client in clients:
            await client.aclose()


async def test_the_same_job_id_in_two_tenants_is_two_jobs(stack: ApiStack, teams: tuple[Team, Team]) -> None:
    """SB-140, SB-149: in the API, in SQL and in the names that Temporal's Web UI shows."""
    red, blue = teams
    job_id = unique("same")
    for team in teams:
        await team.create(job_id, payload=team.tenant, labels={"of": team.tenant}, **EVERY_SECOND)
    for team in teams:

        async def has_run(team: Team = team) -> bool:
            return len(await team.runs(job_id)) >= 2

        await eventually(has_run)
        assert {run["result"] for run in await team.runs(job_id)} == {f"{team.tenant}/{job_id}/{team.tenant}"}
        assert {run["workflow_id"] for run in await team.runs(job_id)} == {f"job/{team.tenant}/{job_id}"}
        [listed] = (await team.api.get("/jobs")).json()
        assert listed["labels"] == {"of": team.tenant}
    assert (await red.api.delete(f"/jobs/{job_id}")).json()["state"] == "deleted"
    assert (await blue.api.get(f"/jobs/{job_id}")).json()["state"] == "active"
    count = len(await blue.runs(job_id))

    async def goes_on() -> bool:
        return len(await blue.runs(job_id)) > count

    await eventually(goes_on)
    engine = open_database(stack.database_url)
    async with engine.connect() as connection:
        for table in ("jobs", "runs", "attempts"):
            query = text(f"SELECT DISTINCT tenant FROM {table} WHERE job_id = :job_id")
            assert set((await connection.execute(query, {"job_id": job_id})).scalars()) == {red.tenant, blue.tenant}
    await engine.dispose()
    client = await stack.temporal()
    named = [
        each.id
        async for each in client.list_workflows(f"HorariumJob = '{job_id}' AND HorariumTenant = '{blue.tenant}'")
    ]
    assert set(named) == {f"job/{blue.tenant}/{job_id}"}
    await blue.api.delete(f"/jobs/{job_id}")


async def test_what_another_tenant_has_is_not_there(teams: tuple[Team, Team]) -> None:
    """SB-149: 404 for each of its ids, as for ids that nobody has; its cursors are none, its lists are empty."""
    red, blue = teams
    job_id = unique("secret")
    await red.create(job_id, name="fail", **EVERY_SECOND)
    await red.create(unique("second"))

    async def has_died() -> bool:
        return bool((await red.api.get("/dead-letters")).json())

    await eventually(has_died)
    [letter, *_] = (await red.api.get("/dead-letters")).json()
    run_id = letter["run_id"]
    reads = (
        f"/jobs/{job_id}",
        f"/jobs/{job_id}/runs",
        f"/jobs/{job_id}/ledger",
        f"/jobs/{job_id}/upcoming",
        f"/runs/{run_id}",
    )
    for path in reads:
        assert (await red.api.get(path)).status_code == 200
        assert (await blue.api.get(path)).status_code == 404
    assert (await blue.api.delete(f"/jobs/{job_id}")).status_code == 404
    for action in ("pause", "resume", "trigger"):
        assert (await blue.api.post(f"/jobs/{job_id}/{action}")).status_code == 404
    assert (await blue.api.patch(f"/jobs/{job_id}", json={"owner": "blue"})).status_code == 404
    assert (await blue.api.post(f"/runs/{run_id}/cancel")).status_code == 404
    assert (await blue.api.post(f"/dead-letters/{run_id}/redrive")).status_code == 404
    for path in ("/jobs", "/dead-letters", f"/dead-letters?job={job_id}", f"/jobs?q={job_id}", f"/audit?job={job_id}"):
        assert (await blue.api.get(path)).json() == []
    page = await red.api.get("/jobs", params={"limit": 1})
    cursor = httpx.URL(page.links["next"]["url"]).params["cursor"]
    assert (await blue.api.get("/jobs", params={"limit": 1, "cursor": cursor})).status_code == 400
    assert {entry["action"] for entry in await blue.changes()} == {"key.create"}
    assert (await red.api.get(f"/jobs/{job_id}")).json()["state"] == "active"
    night = {"from": "2026-06-01T00:00:00Z", "to": "2026-06-01T00:00:01Z"}
    backfill = (await red.api.post(f"/jobs/{job_id}/backfills", json=night)).json()
    assert (await blue.api.get(f"/jobs/{job_id}/backfills")).status_code == 404
    assert (await blue.api.post(f"/jobs/{job_id}/backfills", json=night)).status_code == 404
    assert (await red.api.get(f"/backfills/{backfill['backfill_id']}")).status_code == 200
    assert (await blue.api.get(f"/backfills/{backfill['backfill_id']}")).status_code == 404
    for action in ("pause", "resume", "cancel"):
        assert (await blue.api.post(f"/backfills/{backfill['backfill_id']}/{action}")).status_code == 404
    bulk = (await red.api.post("/dead-letters/redrive", json={"job": job_id, "limit": 1})).json()
    assert (await red.api.get(f"/dead-letters/redrives/{bulk['redrive_id']}")).status_code == 200
    assert (await blue.api.get(f"/dead-letters/redrives/{bulk['redrive_id']}")).status_code == 404
    await red.api.delete(f"/jobs/{job_id}", params={"cancel_active": "true"})


async def test_every_route_hides_what_another_tenant_has(teams: tuple[Team, Team]) -> None:
    """SB-148, SB-149: all that the OpenAPI document has, with ids of the other: 404, or a body refused before anybody looked."""
    red, blue = teams
    job_id = unique("hidden")
    await red.create(job_id)
    run_id = (await red.api.post(f"/jobs/{job_id}/trigger")).json()["run_id"]
    seen = {"job_id": job_id, "run_id": run_id}
    document = (await red.api.get(red.api.base_url.copy_with(path="/openapi.json"))).json()
    asked = 0
    for template, methods in document["paths"].items():
        names = re.findall(r"{(\w+)}", template)
        for method in methods if names else ():
            url = blue.api.base_url.copy_with(path=template.format(**{name: seen.get(name, "other") for name in names}))
            if (method, template) in CREATE_WITH_AN_ID:
                continue
            answer = await blue.api.request(method, url, json=None if method == "get" else {})
            refused = {404} if method in ("get", "delete") else {404, 422}
            assert answer.status_code in refused, f"{method} {template}: {answer.text}"
            asked += 1
    assert asked >= 12
    assert (await red.api.get(f"/jobs/{job_id}")).json()["revision"] == 1
    assert (await red.api.delete(f"/jobs/{job_id}")).status_code == 200


async def test_an_idempotency_key_is_its_tenants_own(teams: tuple[Team, Team]) -> None:
    """SB-149: the same key of another tenant is another request, with an id of its own."""
    headers = {"Idempotency-Key": "monday"}
    answers = [
        await team.api.post(
            "/jobs", json={"name": "tell", "schedule": "0 9 * * 1", "payload": team.tenant}, headers=headers
        )
        for team in teams
    ]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json()["job_id"] != answers[1].json()["job_id"]
    again = await teams[0].api.post(
        "/jobs", json={"name": "tell", "schedule": "0 9 * * 1", "payload": teams[0].tenant}, headers=headers
    )
    assert (again.status_code, again.json()["job_id"]) == (200, answers[0].json()["job_id"])


async def test_the_audit_log_tells_who_changed_what_from_what_to_what(
    stack: ApiStack, teams: tuple[Team, Team]
) -> None:
    """Each change once, with its request; what was refused before anything was asked for is none."""
    red, _ = teams
    job_id = unique("audited")
    async with stack.client() as api:
        key, secret = new_key(tenant=red.tenant, scope=Scope.WRITE, name="deploy")
        await add_to(stack, key)
        async with with_key(api, secret) as deploy:
            body = {"job_id": job_id, "name": "tell", "schedule": "0 9 * * 1", "payload": "x" * 20_000}
            created = await deploy.post("/jobs", json=body, headers={"X-Request-Id": "deploy-7"})
            assert created.status_code == 201, created.text
            assert (await deploy.post("/jobs", json=body)).status_code == 409
            assert (await deploy.post("/jobs", json={**body, "schedule": "nonsense"})).status_code == 422
            assert (await deploy.delete(f"/jobs/{job_id}", headers={"If-Match": '"9"'})).status_code == 412
            assert (await deploy.delete(f"/jobs/{job_id}")).status_code == 200
            assert (await deploy.delete(f"/jobs/{job_id}")).status_code == 200
            assert (await deploy.get("/audit")).status_code == 403
    deleted, create = await red.changes(job=job_id)
    assert (create["action"], create["actor"], create["actor_name"]) == ("job.create", key.key_id, "deploy")
    assert (create["request_id"], create["outcome"], create["before"]) == ("deploy-7", "applied", None)
    assert create["after"]["definition"]["schedule"]["rule"]["expression"] == "0 9 * * 1"
    assert create["after"]["definition"]["payload"]["bytes"] == 20_002
    assert (deleted["action"], deleted["outcome"]) == ("job.delete", "applied")
    assert deleted["before"]["state"] == "active"
    assert deleted["after"]["state"] == "deleted"
    assert secret not in json.dumps([deleted, create])


async def test_every_way_to_change_a_job_is_in_the_audit_log(teams: tuple[Team, Team]) -> None:
    """With what it changed; what changes nothing is no change."""
    red, _ = teams
    job_id = unique("steered")
    path = f"/jobs/{job_id}"
    body = {"name": "tell", "schedule": "0 9 * * 1"}
    for _ in range(2):
        assert (await red.api.put(path, json=body)).is_success
    assert (await red.api.patch(path, json={"owner": "red"})).status_code == 200
    assert (await red.api.post(f"{path}/pause", json={"reason": "holiday"})).status_code == 200
    assert (await red.api.post(f"{path}/resume")).status_code == 200
    assert (await red.api.post(f"{path}/trigger")).status_code == 202
    assert (await red.api.delete(path)).status_code == 200
    changes = list(reversed(await red.changes(job=job_id)))
    actions = ["job.create", "job.change", "job.pause", "job.resume", "job.trigger", "job.delete"]
    assert [change["action"] for change in changes] == actions
    assert {change["outcome"] for change in changes} == {"applied"}
    _, change, pause, *_ = changes
    assert [change[side]["definition"]["owner"] for side in ("before", "after")] == ["", "red"]
    assert [pause[side]["state"] for side in ("before", "after")] == ["active", "paused"]


async def test_a_quota_is_refused_by_its_name_its_limit_and_what_is_taken(
    stack: ApiStack, teams: tuple[Team, Team]
) -> None:
    """Many at the same moment get exactly as many as fit; what is deleted makes room at once; the other tenant has its own."""
    red, blue = teams
    await set_quota(stack, red, Quota(jobs=3, fires_per_minute=2))
    bodies = [{"job_id": f"q-{n}", "name": "tell", "schedule": "0 9 * * 1"} for n in range(8)]
    answers = [await red.api.post("/jobs", json=body) for body in bodies]
    assert [answer.status_code for answer in answers] == [201] * 3 + [429] * 5
    problem = answers[-1].json()
    assert problem["type"] == "urn:horarium:problem:quota-exceeded"
    assert problem["quota"] == {"name": "jobs", "limit": 3, "current": 3, "requested": 1}
    assert all(word in problem["detail"] for word in ("jobs", "3"))
    await red.api.delete("/jobs/q-0")
    often = await red.api.post("/jobs", json={"job_id": "often", "name": "tell", "schedule": "@every 15s"})
    assert often.status_code == 429
    assert (often.json()["quota"]["name"], often.json()["quota"]["requested"]) == ("fires_per_minute", 4)
    await red.create("q-9")
    for sending in (
        red.api.put("/jobs/q-10", json=bodies[0] | {"job_id": "q-10"}),
        red.api.patch("/jobs/q-9", json={"schedule": "@every 15s"}),
        red.api.put("/jobs/q-9", json={"name": "tell", "schedule": "@every 15s"}),
    ):
        assert (await sending).status_code == 429
    assert (await red.api.get("/jobs/q-9")).json()["schedule"] == "0 9 * * 1"
    assert (await red.api.patch("/jobs/q-9", json={"schedule": "@every 60s"})).status_code == 200
    quota = (await red.api.get("/quota")).json()
    assert 1 < quota["fires_per_minute"] < 1.01
    assert (quota["jobs"], quota["max_jobs"], quota["max_fires_per_minute"]) == (3, 3, 2)
    await blue.create("q-0", schedule="@every 15s")


async def test_a_task_queue_that_is_granted_to_one_tenant_is_named_by_no_other(
    stack: ApiStack, teams: tuple[Team, Team]
) -> None:
    """By no way to write a job; the default queue is everybody's, and what a job names already stays."""
    red, blue = teams
    own, others = f"{red.tenant}-*", f"{blue.tenant}-q"
    before = await red.create("before", target={"activity": "tell", "task_queue": "elsewhere"})
    await grant(stack, red, own, "shared")
    assert (await red.api.get("/quota")).json()["task_queues"] == sorted([own, "shared"])
    assert (await blue.api.get("/quota")).json()["task_queues"] == []
    await red.create("own", target={"activity": "tell", "task_queue": f"{red.tenant}-reports"})
    await red.create("default")
    await blue.create("free", target={"activity": "tell", "task_queue": others})
    body = {"name": "tell", "schedule": "0 9 * * 1"}
    kinds: list[dict[str, Any]] = [
        {"activity": "tell"},
        {"kind": "http", "url": "https://example.com"},
        {"kind": "workflow", "workflow": "Closing"},
    ]
    for team, queue, reason in ((red, others, own), (blue, f"{red.tenant}-reports", "another tenant's")):
        for target in ({**kind, "task_queue": queue} for kind in kinds):
            for asked in (
                team.api.post("/jobs", json={**body, "target": target}),
                team.api.put("/jobs/new", json={**body, "target": target}),
                team.api.put("/jobs/default", json={**body, "target": target}),
                team.api.patch("/jobs/default" if team is red else "/jobs/free", json={"target": target}),
            ):
                answer = await asked
                assert answer.status_code == 422, answer.text
                [error] = answer.json()["errors"]
                assert error["pointer"] == "/target/task_queue"
                assert reason in error["detail"]
    assert blue.tenant not in json.dumps((await red.api.get("/quota")).json())
    kept = await red.api.patch("/jobs/before", json={"owner": "red"})
    assert (kept.status_code, kept.json()["revision"]) == (200, before["revision"] + 1)
    await grant(stack, red)
    await blue.create("later", target={"activity": "tell", "task_queue": f"{red.tenant}-reports"})


async def grant(stack: ApiStack, team: Team, *patterns: str) -> None:
    """Grant a tenant task queues, as an operator does."""
    engine = open_database(stack.database_url)
    entry = entry_of(new_key(tenant=team.tenant)[0], action="tenant.set_task_queues")
    await TaskQueueStore(engine).grant(team.tenant, patterns, now=entry.at, entry=entry)
    await engine.dispose()


async def add_to(stack: ApiStack, key: Any) -> None:
    """Put a key into the stack's database."""
    from activities.key_store import KeyStore

    engine = open_database(stack.database_url)
    await KeyStore(engine).add(key, entry=entry_of(key))
    await engine.dispose()


async def set_quota(stack: ApiStack, team: Team, quota: Quota) -> None:
    """Settle a tenant's quota, as an operator does."""
    engine = open_database(stack.database_url)
    entry = entry_of(new_key(tenant=team.tenant)[0], action="tenant.set_quota")
    store = QuotaStore(engine, default=Quota())
    await store.set_quota(team.tenant, quota, now=entry.at, entry=entry)
    await engine.dispose()
