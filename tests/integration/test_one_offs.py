"""Jobs that fire once: in the past, cancelled while they wait, and kept when they are done."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api_server import ApiProcess, client_of
from tests.api_stack import ApiStack
from tests.eventually import eventually
from tests.temporal_servers import unique
from tests.wrong_clock import clock_of_children
from workflows.lifecycle import PASSED_BEFORE


def ago(**span: float) -> str:
    """A whole second in the past."""
    return (datetime.now(UTC) - timedelta(**span)).replace(microsecond=0).isoformat().replace("+00:00", "Z")


async def until_completed(api: httpx.AsyncClient, path: str) -> Any:
    async def completed() -> Any:
        job = (await api.get(path)).json()
        return job if job["state"] == "completed" and not job["active_runs"] else None

    return await eventually(completed)


async def test_a_time_that_has_passed_is_refused_with_what_may_be_said_of_it(api_stack: ApiStack) -> None:
    """SB-129: the field, the reason, and the way out."""
    async with api_stack.client() as api:
        for at in (ago(hours=1), ago(seconds=2), "1970-01-01T00:00:00Z"):
            refused = await api.post("/jobs", json={"name": "noop", "schedule": at})
            assert refused.status_code == 422
            [error] = refused.json()["errors"]
            assert error["pointer"] == "/schedule"
            assert "if_past: run_now or skip" in error["detail"]
        wrong = await api.post("/jobs", json={"name": "noop", "schedule": ago(hours=1), "if_past": "perhaps"})
        assert wrong.json()["errors"][0]["pointer"] == "/if_past"


async def test_run_now_runs_it_once_with_its_own_time(api_stack: ApiStack) -> None:
    """However old, whatever the catch-up policy; written again, nothing runs again."""
    job_id = unique("past")
    at = ago(days=90)
    body = {"name": "noop", "schedule": at, "if_past": "RUN_NOW", "missed_window": "SKIP"}
    async with api_stack.client() as api:
        created = await api.post("/jobs", json={**body, "job_id": job_id})
        assert created.status_code == 201
        job = await until_completed(api, f"/jobs/{job_id}")
        assert job["next_run_at"] is None
        again = await api.put(f"/jobs/{job_id}", json=body)
        assert (again.status_code, again.json()["revision"]) == (200, job["revision"])
        runs = (await api.get(f"/jobs/{job_id}/runs")).json()
        assert [(run["scheduled_at"], run["status"], run["kind"]) for run in runs] == [(at, "success", "scheduled")]
        entries = (await api.get(f"/jobs/{job_id}/ledger", params={"from": ago(days=91)})).json()
        assert [(entry["first"], entry["outcome"]) for entry in entries] == [(at, "ran")]
        await api.delete(f"/jobs/{job_id}")
        refused = await api.post("/jobs", json={**body, "job_id": job_id})
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["pointer"] == "/if_past"


@pytest.mark.slow
async def test_a_front_door_whose_clock_is_behind_lets_no_time_pass_without_a_word(
    api_stack: ApiStack, tmp_path: Path
) -> None:
    """SB-116: ten minutes. By Temporal's clock the time has passed: a new job is completed, and its ledger says that it was
    missed; a job that is there refuses it, and waits on."""
    at, later = ago(minutes=5), "2030-01-01T00:00:00Z"
    with clock_of_children(ahead=-timedelta(minutes=10)):
        behind = ApiProcess(tmp_path, address=api_stack.server.options.address, database_url=api_stack.database_url)
    with behind:
        await behind.until_alive()
        async with client_of(behind.port) as api:
            made = await api.post("/jobs", json={"name": "noop", "schedule": at})
            assert made.status_code == 201, made.text
            waits = await api.post("/jobs", json={"name": "noop", "schedule": later})
            waiting = f"/jobs/{waits.json()['job_id']}"
            refused = await api.patch(
                waiting, content=f'{{"schedule": "{at}"}}', headers={"Content-Type": "application/merge-patch+json"}
            )
    assert refused.status_code == 422, refused.text
    [error] = refused.json()["errors"]
    assert error["pointer"] == "/schedule"
    assert "its time has passed" in error["detail"]
    async with api_stack.client() as api:
        path = f"/jobs/{made.json()['job_id']}"
        await until_completed(api, path)
        [entry] = (await api.get(f"{path}/ledger", params={"from": ago(hours=1)})).json()
        assert (entry["first"], entry["outcome"], entry["reason"]) == (at, "missed", PASSED_BEFORE)
        assert (await api.get(f"{path}/runs")).json() == []
        assert (await api.get(waiting)).json()["next_run_at"] == later
        await api.delete(waiting)


async def test_skip_completes_the_job_and_the_ledger_says_why(api_stack: ApiStack) -> None:
    """No run; missed, with the reason."""
    job_id, at = unique("past"), ago(hours=1)
    async with api_stack.client() as api:
        body = {"job_id": job_id, "name": "noop", "schedule": at, "if_past": "skip"}
        assert (await api.post("/jobs", json=body)).status_code == 201
        await until_completed(api, f"/jobs/{job_id}")
        assert (await api.get(f"/jobs/{job_id}/runs")).json() == []
        [entry] = (await api.get(f"/jobs/{job_id}/ledger")).json()
        assert (entry["first"], entry["outcome"]) == (at, "missed")
        assert "if_past: skip" in entry["reason"]


async def test_if_past_says_nothing_of_a_time_to_come_or_of_a_recurring_job(api_stack: ApiStack) -> None:
    """The one waits as without it; the other is told that it does nothing."""
    async with api_stack.client() as api:
        later = await api.post("/jobs", json={"name": "noop", "schedule": "2999-01-01T00:00:00Z", "if_past": "run_now"})
        assert (later.status_code, later.json()["next_run_at"]) == (201, "2999-01-01T00:00:00Z")
        assert later.json()["warnings"] == []
        await api.delete(f"/jobs/{later.json()['job_id']}")
        daily = await api.post("/jobs", json={"name": "noop", "schedule": "@daily", "if_past": "skip"})
        assert daily.json()["warnings"] == ["if_past has an effect only with a schedule that fires once"]
        await api.delete(f"/jobs/{daily.json()['job_id']}")


async def test_one_that_waits_is_rescheduled_or_cancelled(api_stack: ApiStack) -> None:
    """To another time to come, not to one in the past; deleted, it never runs and can still be read."""
    async with api_stack.client() as api:
        made = await api.post("/jobs", json={"name": "noop", "schedule": "2030-01-01T00:00:00Z"})
        path = f"/jobs/{made.json()['job_id']}"
        merge = {"Content-Type": "application/merge-patch+json"}
        refused = await api.patch(path, content=f'{{"schedule": "{ago(hours=1)}"}}', headers=merge)
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/schedule")
        moved = await api.patch(path, content='{"schedule": "2031-01-01T00:00:00Z"}', headers=merge)
        assert moved.json()["next_run_at"] == "2031-01-01T00:00:00Z"
        assert (await api.delete(path)).json()["state"] == "deleted"
        assert (await api.get(path)).json()["state"] == "deleted"
        assert (await api.get(f"{path}/runs")).json() == []
