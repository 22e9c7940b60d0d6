"""SQL is made equal to Temporal, whatever somebody did to either; and what is done to neither costs nothing."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import delete, select, update

import activities.reconcile
from activities.database import open_database, reading, writing
from activities.tables import JOBS
from tests.api_stack import ApiStack
from tests.eventually import eventually
from tests.killed_requests import DAILY, WEEKLY, ask_job, check_agreement, read_row
from tests.mirror_upkeep import of_job, one_pass
from tests.temporal_servers import unique
from tests.workflow.harness import chain_of
from workflows.contracts import UPKEEP_WORKFLOW_ID, job_workflow_id
from workflows.reconciliation import DifferenceKind
from workflows.run import RunStatus


@pytest.fixture
async def api(author_stack: ApiStack) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the stack's API."""
    async with author_stack.client() as client:
        yield client


async def created(api: httpx.AsyncClient, body: dict[str, Any] = WEEKLY) -> str:
    """Register a job; answers its id."""
    answer = await api.post("/jobs", json={**body, "job_id": unique("job")})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job_id"])


async def change_row(stack: ApiStack, job_id: str, **values: Any) -> None:
    """Put something else into the row of a job."""
    engine = open_database(stack.database_url)
    async with writing(engine) as connection:
        await connection.execute(update(JOBS).where(JOBS.c.job_id == job_id).values(**values))
    await engine.dispose()


async def remove_row(stack: ApiStack, job_id: str) -> None:
    """Lose the row of a job."""
    engine = open_database(stack.database_url)
    async with writing(engine) as connection:
        await connection.execute(delete(JOBS).where(JOBS.c.job_id == job_id))
    await engine.dispose()


async def count_events(stack: ApiStack, job_id: str) -> int:
    """Count what Temporal has written down of a job."""
    chain = await chain_of(await stack.temporal(), job_workflow_id(tenant="default", job_id=job_id))
    return sum(len(history.events) for history in chain)


async def until_asleep(stack: ApiStack, job_id: str) -> None:
    """Wait until a job sleeps, and the list of workflows shows it so."""

    async def is_asleep() -> bool:
        chain = await chain_of(await stack.temporal(), job_workflow_id(tenant="default", job_id=job_id))
        return len(chain) > 1 and len(chain[-1].events) == 1

    await eventually(is_asleep)


async def until_quiet(stack: ApiStack, job_id: str) -> None:
    """Wait until nothing more happens about a job: it has told the mirror all."""
    lengths = [-1]

    async def is_quiet() -> bool:
        lengths.append(await count_events(stack, job_id))
        return lengths[-1] == lengths[-2]

    await eventually(is_quiet, every=timedelta(milliseconds=300))


async def terminate(stack: ApiStack, job_id: str) -> None:
    """End a job's workflow, as an operator can in the Web UI."""
    handle = (await stack.temporal()).get_workflow_handle(job_workflow_id(tenant="default", job_id=job_id))
    await handle.terminate("by hand")


async def test_jobs_that_sleep_are_compared_without_a_task(author_stack: ApiStack, api: httpx.AsyncClient) -> None:
    """The list of workflows and the rows say all; changed and compared again, it is the same."""
    job_id = await created(api)
    await until_asleep(author_stack, job_id)
    await api.patch(f"/jobs/{job_id}", json={"payload": 1}, headers={"Content-Type": "application/merge-patch+json"})
    await until_asleep(author_stack, job_id)
    before = await count_events(author_stack, job_id)
    for mend in (False, True):
        assert of_job(await one_pass(author_stack, mend=mend), job_id) == []
    assert await count_events(author_stack, job_id) == before


async def test_the_list_of_workflows_shows_a_change_of_a_job_on_a_timer(
    author_stack: ApiStack, api: httpx.AsyncClient
) -> None:
    """Its run goes on, and its memo is brought up to date: an older row does not go unnoticed, and nobody has to be asked."""
    job_id = await created(api, {**WEEKLY, "schedule": "@every 5m", "enabled": False})
    older = await read_row(author_stack, job_id)
    assert older is not None
    await api.patch(f"/jobs/{job_id}", json={"payload": 1}, headers={"Content-Type": "application/merge-patch+json"})
    handle = (await author_stack.temporal()).get_workflow_handle(job_workflow_id(tenant="default", job_id=job_id))

    async def shows_it() -> bool:
        memo = await (await handle.describe()).memo()
        return (memo["revision"], memo["state"]) == ("2", "paused")

    await eventually(shows_it)
    await until_quiet(author_stack, job_id)
    await change_row(author_stack, job_id, revision=older.revision, updated_at=older.updated_at)
    [found] = of_job(await one_pass(author_stack), job_id)
    assert (found.kind, found.mended) == (DifferenceKind.OUTDATED, True)
    await check_agreement(author_stack, job_id)


async def test_a_row_that_is_lost_is_written_again(author_stack: ApiStack, api: httpx.AsyncClient) -> None:
    """SB-084: an empty mirror beside jobs that run. Checking says so and changes nothing; nothing is deleted in Temporal."""
    job_id = await created(api)
    await until_asleep(author_stack, job_id)
    await remove_row(author_stack, job_id)
    [found] = of_job(await one_pass(author_stack, mend=False), job_id)
    assert (found.kind, found.mended) == (DifferenceKind.MISSING, False)
    assert await read_row(author_stack, job_id) is None
    [mended] = of_job(await one_pass(author_stack), job_id)
    assert (mended.kind, mended.mended) == (DifferenceKind.MISSING, True)
    await check_agreement(author_stack, job_id)


async def test_an_older_row_is_brought_up_to_date(author_stack: ApiStack, api: httpx.AsyncClient) -> None:
    """SB-084: a backup was put back, from before a change and a pause."""
    job_id = await created(api)
    older = await read_row(author_stack, job_id)
    assert older is not None
    await api.put(f"/jobs/{job_id}", json={**DAILY, "enabled": False})
    await until_quiet(author_stack, job_id)
    await change_row(
        author_stack,
        job_id,
        version=older.version,
        revision=older.revision,
        state="active",
        pause=None,
        definition=older.definition.model_dump(mode="json"),
        updated_at=older.updated_at,
        next_run_at=older.next_run_at,
    )
    [found] = of_job(await one_pass(author_stack), job_id)
    assert (found.kind, found.mended) == (DifferenceKind.OUTDATED, True)
    assert (await api.get(f"/jobs/{job_id}")).json()["state"] == "paused"
    await check_agreement(author_stack, job_id)


async def test_a_row_from_the_future_does_not_stay(author_stack: ApiStack, api: httpx.AsyncClient) -> None:
    """Its version is of a clock that was days ahead: the job goes beyond it, and later changes are shown too."""
    job_id = await created(api)
    await until_asleep(author_stack, job_id)
    tomorrow = int((datetime.now(UTC) + timedelta(days=1)).timestamp() * 1_000_000)
    long_ago = datetime.now(UTC) - timedelta(days=3)
    await change_row(author_stack, job_id, version=tomorrow, state="deleted", updated_at=long_ago)
    [found] = of_job(await one_pass(author_stack), job_id)
    assert (found.kind, found.mended) == (DifferenceKind.OUTDATED, True)
    await check_agreement(author_stack, job_id)
    answer = await api.put(f"/jobs/{job_id}", json=DAILY)
    assert (answer.status_code, answer.json()["revision"]) == (200, 2)
    await check_agreement(author_stack, job_id)


async def test_a_deletion_that_sql_has_not_heard_of_is_recorded(author_stack: ApiStack, api: httpx.AsyncClient) -> None:
    """SB-082: the workflow has ended by itself, and what it recorded is in its history. Then the id is free."""
    job_id = await created(api)
    before = await read_row(author_stack, job_id)
    assert before is not None
    assert (await api.delete(f"/jobs/{job_id}")).status_code == 200
    await eventually(lambda: is_gone(author_stack, job_id))
    await change_row(author_stack, job_id, state="active", version=before.version, updated_at=before.updated_at)
    [found] = of_job(await one_pass(author_stack), job_id)
    assert (found.kind, found.mended) == (DifferenceKind.UNRECORDED_END, True)
    row = await read_row(author_stack, job_id)
    assert row is not None
    assert row.lifecycle.value == "deleted"
    assert (await api.delete(f"/jobs/{job_id}")).status_code == 200
    assert (await api.post("/jobs", json={**WEEKLY, "job_id": job_id})).status_code == 201
    await check_agreement(author_stack, job_id)


async def is_gone(stack: ApiStack, job_id: str) -> bool:
    """Whether no workflow of a job is open."""
    return await ask_job(stack, job_id) is None


async def test_a_job_that_was_terminated_goes_on(author_stack: ApiStack, api: httpx.AsyncClient) -> None:
    """With its revision and its high-water mark; the run that was under way is a dead letter that says why."""
    body = {"name": "nobody-knows-it", "schedule": "@every 1s", "time_critical": True, "queue_timeout_seconds": 600}
    job_id = await created(api, body)

    async def first_runs() -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = (await api.get(f"/jobs/{job_id}/runs")).json()
        return runs

    await eventually(first_runs)
    await api.post(f"/jobs/{job_id}/pause", json={"reason": "to look at it in peace"})
    before = await read_row(author_stack, job_id)
    assert before is not None
    await terminate(author_stack, job_id)
    [found] = of_job(await one_pass(author_stack, mend=False), job_id)
    assert (found.kind, found.mended) == (DifferenceKind.ENDED_IN_TEMPORAL, False)
    told = (await api.get(f"/jobs/{job_id}")).json()["health"]["reasons"]
    assert any("horarium mirror reconcile" in reason for reason in told), told
    [mended] = of_job(await one_pass(author_stack), job_id)
    assert mended.mended, mended
    row = await read_row(author_stack, job_id)
    assert row is not None
    assert (row.revision, row.lifecycle) == (before.revision, before.lifecycle)
    assert row.high_water >= before.high_water
    assert row.fence > before.fence
    dead = [run for run in await first_runs() if run["status"] == RunStatus.DEAD]
    assert dead
    assert all(run["reason"].startswith("workflow_ended") for run in dead)
    await check_agreement(author_stack, job_id)
    [entry] = (await api.get("/audit", params={"job": job_id, "action": "job.restore"})).json()
    assert (entry["actor"], entry["outcome"]) == ("horarium", "applied")


async def test_many_terminated_jobs_are_reported_and_not_started(
    author_stack: ApiStack, api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SB-084: past the threshold somebody has to look; told to, it starts them."""
    job_id = await created(api)
    await terminate(author_stack, job_id)
    monkeypatch.setattr(activities.reconcile, "most_restored", lambda rows: 0)
    report = await one_pass(author_stack)
    assert "--restore-all" in report.stopped
    [found] = of_job(report, job_id)
    assert (found.kind, found.mended) == (DifferenceKind.ENDED_IN_TEMPORAL, False)
    assert await is_gone(author_stack, job_id)


async def test_a_job_that_temporal_does_not_know_is_only_reported(
    author_stack: ApiStack, api: httpx.AsyncClient
) -> None:
    """SB-084: nobody can tell a lost cluster from an old row. It is neither started nor deleted, and deleting it lets it end."""
    job_id, other = await created(api), unique("job")
    engine = open_database(author_stack.database_url)
    async with reading(engine) as connection:
        row = dict((await connection.execute(select(JOBS).where(JOBS.c.job_id == job_id))).mappings().one())
    async with writing(engine) as connection:
        await connection.execute(JOBS.insert().values({**row, "job_id": other}))
    await engine.dispose()
    [found] = of_job(await one_pass(author_stack), other)
    assert (found.kind, found.mended) == (DifferenceKind.UNKNOWN_TO_TEMPORAL, False)
    assert await is_gone(author_stack, other)
    reasons = (await api.get(f"/jobs/{other}")).json()["health"]["reasons"]
    assert any("horarium restore" in reason for reason in reasons), reasons
    assert (await api.delete(f"/jobs/{other}")).json()["state"] == "deleted"
    assert of_job(await one_pass(author_stack, mend=False), other) == []


async def test_a_worker_looks_after_the_mirror_by_itself(author_stack: ApiStack) -> None:
    """One workflow of the namespace, begun by whichever worker starts first."""
    client = await author_stack.temporal()
    handle = client.get_workflow_handle(UPKEEP_WORKFLOW_ID)

    async def has_purged() -> bool:
        history = await handle.fetch_history()
        kinds = [
            event.activity_task_scheduled_event_attributes.activity_type.name
            for event in history.events
            if event.HasField("activity_task_scheduled_event_attributes")
        ]
        ended = sum(event.HasField("activity_task_completed_event_attributes") for event in history.events)
        return kinds[:2] == ["reconcile_mirror", "purge_mirror"] and ended >= 2

    await eventually(has_purged)
