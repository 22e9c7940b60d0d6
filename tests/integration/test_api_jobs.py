"""Jobs over HTTP, from their registration to their end, with everything real behind the API."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import pytest
from sqlalchemy import text

from activities.database import open_database, writing
from api.field import PAYLOAD_LIMIT
from tests.api_server import first_second_after
from tests.api_stack import ApiStack
from tests.eventually import eventually
from tests.temporal_servers import unique
from workflows.contracts import SA_JOB, SA_NEXT_FIRE, SA_STATE, SA_TARGET, job_workflow_id

DESIGN_REQUEST = {
    "name": "send-weekly-report",
    "schedule": "0 9 * * 1",
    "timezone": "America/New_York",
    "target": {"kind": "activity", "activity": "send_report", "task_queue": "reports"},
    "payload": {"report_type": "weekly"},
    "idempotency_key_template": "report-{{week}}",
    "max_retries": 3,
    "retry_backoff": "exponential",
    "missed_window": "RUN_ONCE",
    "timeout_seconds": 120,
}
EVERY_SECOND = {"name": "noop", "schedule": "@every 1s", "time_critical": True}
WEEKLY = {"name": "noop", "schedule": "0 9 * * 1"}

RUN_FIELDS = {
    "run_id", "scheduled_at", "target_at", "started_at", "finished_at", "duration", "status", "attempt", "error", "result",
}  # fmt: skip


@pytest.fixture
async def api(api_stack: ApiStack) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the stack's API."""
    async with api_stack.client() as client:
        yield client


async def create(api: httpx.AsyncClient, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    """Register a job that is to be taken."""
    answer = await api.post("/jobs", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    job: dict[str, Any] = answer.json()
    return job


async def read(api: httpx.AsyncClient, path: str) -> Any:
    """Read what must be there."""
    answer = await api.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def next_monday_at_nine(zone: str) -> datetime:
    """Count days until a Monday whose nine o'clock lies ahead, by the zone's own clock."""
    local = datetime.now(ZoneInfo(zone))
    days = (local.date() + timedelta(n) for n in range(9))
    nines = (datetime.combine(day, time(9), ZoneInfo(zone)) for day in days if day.weekday() == 0)
    return next(nine.astimezone(UTC) for nine in nines if nine > local)


class TestRegistration:
    """From the request to a job that is there."""

    @pytest.mark.parametrize("with_target", [True, False])
    async def test_the_request_of_the_design_works_as_it_is_written(
        self, api: httpx.AsyncClient, api_stack: ApiStack, with_target: bool
    ) -> None:
        """201 with Location and ETag; a GET right after it finds the job; every view shows the same next fire."""
        body = DESIGN_REQUEST if with_target else {k: v for k, v in DESIGN_REQUEST.items() if k != "target"}
        answer = await api.post("/jobs", json=body)
        job = answer.json()
        assert answer.status_code == 201, answer.text
        assert answer.headers["location"] == f"/api/v1/jobs/{job['job_id']}"
        assert answer.headers["etag"] == '"1"'
        assert job["target"]["activity"] == ("send_report" if with_target else "send-weekly-report")

        expected = next_monday_at_nine("America/New_York").isoformat().replace("+00:00", "Z")
        found = await api.get(answer.headers["location"].removeprefix("/api/v1"))
        assert found.headers["etag"] == '"1"'
        assert job["next_run_at"] == found.json()["next_run_at"] == expected

        upcoming = await read(api, f"/jobs/{job['job_id']}/upcoming?count=3")
        preview = await api.post(
            "/preview",
            json={"schedule": "0 9 * * 1", "timezone": "America/New_York", "job_id": job["job_id"], "count": 3},
        )
        assert upcoming == preview.json()["fires"]
        assert upcoming[0]["nominal"] == expected
        assert upcoming[0]["target"] == job["next_target_at"]
        assert upcoming[0]["local"].partition("T")[2].startswith("09:00:00-")
        assert await read(api, f"/jobs/{job['job_id']}/runs") == await read(api, f"/jobs/{job['job_id']}/ledger") == []

        client = await api_stack.temporal()
        shown = await client.get_workflow_handle(job_workflow_id(tenant="default", job_id=job["job_id"])).describe()
        assert shown.typed_search_attributes[SA_JOB] == job["job_id"]
        assert shown.typed_search_attributes[SA_STATE] == "active"
        assert shown.typed_search_attributes[SA_TARGET] == job["target"]["activity"]
        assert shown.typed_search_attributes[SA_NEXT_FIRE] == datetime.fromisoformat(expected)
        assert (await shown.memo())["timezone"] == "America/New_York"

    async def test_every_example_of_the_description_works_when_pasted(self, api: httpx.AsyncClient) -> None:
        """What /docs shows is what the service takes."""
        document = (await api.get(f"{api.base_url.copy_with(path='/openapi.json')}")).json()
        content = document["paths"]["/api/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
        for example in content["examples"].values():
            job = await create(api, example["value"])
            assert (await api.delete(f"/jobs/{job['job_id']}")).status_code == 200

    @pytest.mark.parametrize(
        "fields",
        [
            {"schedule": "*/7 3-5 * * *", "timezone": "Asia/Kathmandu"},
            {"schedule": "30 2 * * *", "timezone": "Australia/Lord_Howe", "dst": {"gap": "skip", "fold": "both"}},
            {"schedule": "15 30 8 L * *", "timezone": "Europe/Kiev"},
            {"schedule": "H H * * *", "job_id": unique("h")},
            {"schedule": {"every": "PT6H", "anchor": "2026-01-01T01:00:00Z"}},
            {"schedule": {"rrule": "FREQ=MONTHLY;BYDAY=-1FR", "dtstart": "2026-01-01T09:00:00"}, "timezone": "EST5EDT"},
            {"schedule": "2030-01-01T09:00:00", "timezone": "Etc/GMT+3"},
            {"schedule": "@weekly", "exclude": {"dates": ["2027-01-03"]}, "jitter_window_seconds": 3600},
        ],
    )
    async def test_every_view_shows_the_same_next_fires(self, api: httpx.AsyncClient, fields: dict[str, Any]) -> None:
        """SB-162: the answer, a read, the list, what is upcoming, and a preview."""
        job = await create(api, {"name": "noop", **fields})
        path = f"/jobs/{job['job_id']}"
        shown = await read(api, path)
        (listed,) = [each for each in await read(api, "/jobs?limit=500") if each["job_id"] == job["job_id"]]
        upcoming = await read(api, f"{path}/upcoming?count=5")
        preview = (await api.post("/preview", json={**fields, "job_id": job["job_id"], "count": 5})).json()
        for each in (job, shown, listed):
            assert (each["next_run_at"], each["next_target_at"]) == (upcoming[0]["nominal"], upcoming[0]["target"])
        assert upcoming == preview["fires"]
        assert shown["timezone"] == fields.get("timezone", "UTC")
        await api.delete(path)

    async def test_a_job_is_told_with_all_its_defaults(self, api: httpx.AsyncClient) -> None:
        """SB-048, SB-050: what is in force, and not null; the same for what was given."""
        job = await create(api, {**WEEKLY, "misfire_grace_seconds": None, "max_retries": 0, "timeout_seconds": 60.0})
        shown = await read(api, f"/jobs/{job['job_id']}")
        expected = {
            "missed_window": "RUN_ONCE",
            "misfire_grace_seconds": 600,
            "jitter_window_seconds": 60,
            "lookback_seconds": 2_592_000,
            "overlap": "skip",
            "timeout_seconds": 60,
            "heartbeat_timeout_seconds": 30,
            "queue_timeout_seconds": 86_400,
            "max_retries": 0,
            "max_attempts": 1,
            "idempotency_key_template": "{{job_id}}:{{scheduled_at_unix}}",
        }
        assert {name: shown[name] for name in expected} == expected
        assert job == {**shown, "warnings": []}

    @pytest.mark.parametrize(
        "payload",
        [
            {"deep": [[[[[[[[[[1]]]]]]]]]], "": None, "a/b": {"~": "é\u200b😀"}},
            [2**53 + 1, 2**63, -(2**63), 2**64 - 1, 0.1, 1e308, 5e-324, 1.5],
            {f"k{n}": n for n in range(10_000)},
            "x" * (PAYLOAD_LIMIT - 2),
            "<img src=x onerror=alert(1)> {{7*7}} '; DROP TABLE jobs --",
            "",
            None,
            False,
        ],
    )
    async def test_a_payload_comes_back_as_it_was_given(self, api: httpx.AsyncClient, payload: object) -> None:
        """SB-120, SB-121: through the API, the workflow, the job's code and the mirror, up to the largest that is taken."""
        job = await create(api, {"name": "echo", "schedule": "@every 1s", "payload": payload, "max_runs": 1})
        assert (await read(api, f"/jobs/{job['job_id']}"))["payload"] == payload

        async def first_run() -> dict[str, Any] | None:
            found = await read(api, f"/jobs/{job['job_id']}/runs?status=success")
            return found[0] if found else None

        run = await eventually(first_run)
        if len(str(payload)) < 10_000:
            assert run["result"] == payload

    async def test_every_accepted_id_works_on_every_path(self, api: httpx.AsyncClient) -> None:
        """SB-137, SB-140: upper and lower case are two jobs, as is one that is named like a run of another; all of them run at
        once, each by itself."""
        ids = ("null", "a", "A", "a-2026", "0.-_z", "j" * 128)
        await asyncio.gather(*(use_everywhere(api, job_id) for job_id in ids))
        told = await asyncio.gather(*(api.post(f"/jobs/{job_id}/trigger") for job_id in ids))
        assert [answer.status_code for answer in told] == [202] * len(ids)

        async def results() -> list[str]:
            runs = [await read(api, f"/runs/{answer.json()['run_id']}") for answer in told]
            assert [run["status"] for run in runs] == ["success"] * len(ids)
            return [run["result"] for run in runs]

        assert await eventually(results) == list(ids)
        gone = await asyncio.gather(*(api.delete(f"/jobs/{job_id}") for job_id in ids))
        assert [answer.status_code for answer in gone] == [200] * len(ids)

    @pytest.mark.parametrize(
        "name",
        [
            "a/b",
            "a b",
            "a%2Fb",
            "..",
            "#x",
            "?y",
            "\u062a\u0642\u0631\u064a\u0631",
            "\U0001f570",
            "e\u0301",
            "\u00e9",
            "null",
        ],
    )
    async def test_a_name_is_any_printable_text(self, api: httpx.AsyncClient, name: str) -> None:
        """SB-137: it comes back to the letter, and the job is found by it; two spellings of one letter are two names."""
        target = {"kind": "activity", "activity": "noop"}
        job = await create(api, {**WEEKLY, "name": name, "target": target})
        assert (await read(api, f"/jobs/{job['job_id']}"))["name"] == name
        found = (await api.get("/jobs", params={"name": name})).json()
        assert job["job_id"] in [each["job_id"] for each in found]
        assert {each["name"] for each in found} == {name}


async def use_everywhere(api: httpx.AsyncClient, job_id: str) -> None:
    """Register a job, read all that there is of it, change it and pause it."""
    job = await create(api, {**WEEKLY, "name": "echo", "payload": job_id, "job_id": job_id})
    for path in ("/runs", "/ledger", "/upcoming", "/backfills"):
        await read(api, f"/jobs/{job_id}{path}")
    assert (await read(api, f"/jobs/{job_id}"))["job_id"] == job_id
    patched = await api.patch(f"/jobs/{job_id}", json={"owner": "x"})
    assert patched.json()["revision"] == job["revision"] + 1
    assert (await api.post(f"/jobs/{job_id}/pause")).json()["state"] == "paused"


class TestRuns:
    """What a job has done."""

    async def test_runs_and_ledger_tell_every_fire_alike(self, api: httpx.AsyncClient) -> None:
        """Each nominal time once, newest first in the runs, oldest first in the ledger; and one run with its attempts."""
        job = await create(api, EVERY_SECOND)
        path = f"/jobs/{job['job_id']}"

        async def has_three_runs() -> bool:
            return len(await read(api, f"{path}/runs?status=success")) >= 3

        await eventually(has_three_runs)
        await api.delete(path)
        runs, ledger = await read(api, f"{path}/runs"), await read(api, f"{path}/ledger")
        times = [run["scheduled_at"] for run in runs]
        assert times == sorted(set(times), reverse=True)
        assert times[-1] == first_second_after(job["created_at"])
        assert set(runs[0]) >= RUN_FIELDS
        ran = [entry for entry in ledger if entry["run_id"]]
        assert [entry["first"] for entry in ran] == times[::-1]
        assert {entry["outcome"] for entry in ran} == {"ran"}

        one = await read(api, f"/runs/{runs[-1]['run_id']}")
        assert one["attempts"][0]["status"] == "success"
        assert one["attempts"][0]["number"] == one["attempt"] == 1
        assert {**one, "attempts": None} == runs[-1]
        first_page = await api.get(f"{path}/runs?limit=1&include=attempts")
        assert first_page.json()[0]["attempts"]
        second_page = await read(api, first_page.links["next"]["url"].removeprefix("/api/v1"))
        assert [run["scheduled_at"] for run in (*first_page.json(), *second_page)] == times[:2]

    async def test_a_run_that_fails_says_why_and_is_found_by_status(self, api: httpx.AsyncClient) -> None:
        """``failed`` means retrying or dead."""
        job = await create(api, {**EVERY_SECOND, "name": "flaky", "max_retries": 0, "max_runs": 1})

        async def the_dead_run() -> dict[str, Any] | None:
            found = await read(api, f"/jobs/{job['job_id']}/runs?status=failed")
            return found[0] if found else None

        run = await eventually(the_dead_run)
        assert run["status"] == "dead"
        assert run["error"] == "ConnectionError: attempt 1: the downstream hung up"
        assert await read(api, f"/jobs/{job['job_id']}/runs?status=success,running") == []

    async def test_a_queue_without_a_worker_and_an_unknown_activity_are_told(self, api: httpx.AsyncClient) -> None:
        """In the health of the job, within seconds."""
        nobody = await create(api, {**WEEKLY, "target": {"task_queue": unique("nobody")}})
        assert nobody["health"]["ok"] is False
        assert "no worker polls" in nobody["health"]["reasons"][0]

        unknown = await create(api, {**EVERY_SECOND, "name": "never_written"})

        async def is_told() -> bool:
            health = (await read(api, f"/jobs/{unknown['job_id']}"))["health"]
            return any("never_written" in reason for reason in health["reasons"])

        await eventually(is_told)
        await api.delete(f"/jobs/{unknown['job_id']}?cancel_active=true")


class TestExamples:
    """Bodies in the OpenAPI document."""

    async def test_every_example_of_a_job_works_when_pasted(self, api: httpx.AsyncClient) -> None:
        """It is registered as it stands; one that somebody must run first says which queue or secret that is about."""
        document = (await api.get(f"{api.base_url.copy_with(path='/openapi.json')}")).json()
        content = document["paths"]["/api/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
        assert len(content["examples"]) >= 5
        for name, example in content["examples"].items():
            job = await create(api, example["value"])
            queue = job["target"]["task_queue"]
            polled = "Registered at once" not in example.get("description", "")
            reasons = [] if polled or queue == "horarium" else [f"no worker polls task queue {queue!r}"]
            assert job["health"]["reasons"] == reasons, name
            if reasons:
                assert f"`{queue}`" in example["description"]
            await api.delete(f"/jobs/{job['job_id']}")

    async def test_the_first_example_runs(self, api: httpx.AsyncClient) -> None:
        """On the workers that everybody has who has just started: here at once, and not on Monday."""
        document = (await api.get(f"{api.base_url.copy_with(path='/openapi.json')}")).json()
        content = document["paths"]["/api/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
        first = next(iter(content["examples"].values()))["value"]
        job = await create(api, {**first, "schedule": "@every 1s", "max_runs": 1, "jitter_window_seconds": 0})

        async def has_succeeded() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = await read(api, f"/jobs/{job['job_id']}/runs?status=success")
            return found

        [run] = await eventually(has_succeeded)
        assert run["result"]["report_type"] == "weekly"


class TestIdempotency:
    """Requests that are repeated."""

    async def test_of_many_requests_with_one_key_one_is_carried_out(self, api: httpx.AsyncClient) -> None:
        """SB-112: one 201, the others are its replay or told that it is in progress."""
        key = unique("key")
        answers = await asyncio.gather(
            *(api.post("/jobs", json=WEEKLY, headers={"Idempotency-Key": key}) for _ in range(50))
        )
        assert [answer.status_code for answer in answers].count(201) == 1
        assert {answer.status_code for answer in answers} <= {200, 201, 409}
        replayed = [answer for answer in answers if answer.status_code == 200]
        assert all(answer.headers["idempotent-replayed"] == "true" for answer in replayed)
        assert len({answer.json()["job_id"] for answer in answers if answer.is_success}) == 1

        repeated = await api.post("/jobs", json=dict(reversed(WEEKLY.items())), headers={"Idempotency-Key": key})
        assert repeated.status_code == 200
        other = await api.post("/jobs", json={**WEEKLY, "name": "tick"}, headers={"Idempotency-Key": key})
        assert other.status_code == 422

    async def test_of_many_requests_for_one_id_one_is_carried_out(self, api: httpx.AsyncClient) -> None:
        """Without a key the others contradict what exists."""
        job_id = unique("job")
        answers = await asyncio.gather(*(api.post("/jobs", json={**WEEKLY, "job_id": job_id}) for _ in range(20)))
        assert sorted(answer.status_code for answer in answers) == [201] + [409] * 19

    async def test_a_request_whose_answer_was_lost_finds_what_it_did(
        self, api: httpx.AsyncClient, api_stack: ApiStack
    ) -> None:
        """The API may die between any two steps; the job itself remembers the key."""
        key = unique("key")
        for body in (WEEKLY, {**WEEKLY, "job_id": unique("job")}):
            first = await create(api, body, **{"Idempotency-Key": key})
            await forget_answers(api_stack.database_url)
            again = await create(api, body, **{"Idempotency-Key": key})
            assert (again["job_id"], again["created_at"]) == (first["job_id"], first["created_at"])
            await forget_answers(api_stack.database_url)

    async def test_a_one_off_that_has_fired_is_replayed_and_not_refused(self, api: httpx.AsyncClient) -> None:
        """SB-130: its time has passed, and the request is the same."""
        at = (datetime.now(UTC) + timedelta(seconds=2)).replace(microsecond=0).isoformat()
        key = unique("key")
        job = await create(api, {"name": "noop", "schedule": at}, **{"Idempotency-Key": key})

        async def is_completed() -> bool:
            return bool((await read(api, f"/jobs/{job['job_id']}"))["state"] == "completed")

        await eventually(is_completed)
        again = await api.post("/jobs", json={"name": "noop", "schedule": at}, headers={"Idempotency-Key": key})
        assert again.status_code == 200
        assert again.json() == job
        shown = await read(api, f"/jobs/{job['job_id']}")
        assert shown["next_run_at"] is None
        assert shown["counts"]["succeeded"] == 1


class TestDeletion:
    """The end of a job."""

    async def test_deleting_twice_is_deleting_once_and_history_stays(self, api: httpx.AsyncClient) -> None:
        """A deleted job can still be read; the list leaves it out unless it is asked for."""
        job = await create(api, EVERY_SECOND)
        path = f"/jobs/{job['job_id']}"

        async def has_run() -> bool:
            return bool(await read(api, f"{path}/runs?status=success"))

        await eventually(has_run)
        for _ in range(2):
            answer = await api.delete(path)
            assert answer.status_code == 200
            assert answer.json()["state"] == "deleted"
            assert answer.json()["next_run_at"] is None
        assert await read(api, f"{path}/runs")
        assert await read(api, f"{path}/upcoming") == []
        assert job["job_id"] not in [each["job_id"] for each in await read(api, "/jobs?limit=500")]
        assert job["job_id"] in [each["job_id"] for each in await read(api, "/jobs?state=deleted&limit=500")]
        assert (await api.delete("/jobs/never-was")).status_code == 404

    async def test_only_the_revision_that_was_seen_is_deleted(self, api: httpx.AsyncClient) -> None:
        """``If-Match``; the revision goes on counting when the id is used again."""
        body = {**WEEKLY, "job_id": unique("job")}
        job = await create(api, body)
        path = f"/jobs/{job['job_id']}"
        assert (await api.delete(path, headers={"If-Match": '"2"'})).status_code == 412
        assert (await api.delete(path, headers={"If-Match": '"1"'})).status_code == 200
        assert (await create(api, body))["revision"] == 2
        assert (await api.delete(path, headers={"If-Match": '"1"'})).status_code == 412
        assert (await api.delete(path, headers={"If-Match": "*"})).status_code == 200

    async def test_an_id_may_be_used_again_at_once_and_fires(self, api: httpx.AsyncClient) -> None:
        """SB-075: also while the old one still drains."""
        body = {**EVERY_SECOND, "job_id": unique("job")}
        path = f"/jobs/{body['job_id']}"
        for _ in range(5):
            job = await create(api, body)
            assert (await api.delete(path)).status_code == 200
        job = await create(api, body)

        async def new_one_has_run() -> bool:
            runs = await read(api, f"{path}/runs?status=success")
            return any(run["revision"] == job["revision"] for run in runs)

        await eventually(new_one_has_run)
        await api.delete(path)

    async def test_what_an_earlier_job_of_the_id_did_is_told_apart(self, api: httpx.AsyncClient) -> None:
        """SB-076: its runs stay, under their own revision; the new job has done nothing and owes nothing."""
        body = {**EVERY_SECOND, "job_id": unique("job"), "missed_window": "RUN_ALL"}
        path = f"/jobs/{body['job_id']}"
        await create(api, body)

        async def has_run() -> bool:
            return bool(await read(api, f"{path}/runs?status=success"))

        await eventually(has_run)
        await api.delete(path)
        old = {run["run_id"] for run in await read(api, f"{path}/runs?limit=500")}
        job = await create(api, {**body, "schedule": "@every 1h"})
        assert (job["revision"], job["counts"]["started"], job["last_run_id"]) == (2, 0, None)
        runs = await read(api, f"{path}/runs?limit=500")
        assert {run["run_id"] for run in runs} == old
        assert {run["revision"] for run in runs} == {1}
        await api.delete(path)

    async def test_a_job_whose_workflow_is_gone_can_be_deleted(
        self, api: httpx.AsyncClient, api_stack: ApiStack
    ) -> None:
        """Somebody terminated it in Temporal; the id is free again afterwards."""
        body = {**WEEKLY, "job_id": unique("job")}
        await create(api, body)
        client = await api_stack.temporal()
        await client.get_workflow_handle(job_workflow_id(tenant="default", job_id=body["job_id"])).terminate()
        (reason,) = (await read(api, f"/jobs/{body['job_id']}"))["health"]["reasons"]
        assert reason.startswith("not scheduled")
        assert (await api.post("/jobs", json=body)).status_code == 409
        answer = await api.delete(f"/jobs/{body['job_id']}")
        assert (answer.status_code, answer.json()["state"]) == (200, "deleted")
        assert (await create(api, body))["state"] == "active"


class TestLists:
    """Pages and filters."""

    async def test_jobs_are_listed_page_by_page_in_both_directions(self, api: httpx.AsyncClient) -> None:
        """``Link`` leads through all of them, each once; filters hold on every page."""
        label = unique("group")
        ids = sorted([(await create(api, {**WEEKLY, "labels": {"group": label}}))["job_id"] for _ in range(5)])
        seen: list[str] = []
        page = await api.get(f"/jobs?limit=2&label=group:{label}")
        while True:
            seen += [job["job_id"] for job in page.json()]
            if "next" not in page.links:
                break
            page = await api.get(page.links["next"]["url"].removeprefix("/api/v1"))
        assert seen == ids
        page = await api.get(page.links["prev"]["url"].removeprefix("/api/v1"))
        assert [job["job_id"] for job in page.json()] == ids[2:4]
        foreign = page.links["next"]["url"].partition("cursor=")[2]
        assert (await api.get(f"/jobs?limit=2&cursor={foreign}")).status_code == 400

    async def test_jobs_are_found_by_what_people_know_of_them(self, api: httpx.AsyncClient) -> None:
        """Name, part of a text in any case, state."""
        word = unique("Word")
        job = await create(api, {**WEEKLY, "name": "noop", "description": f"a {word} here", "enabled": False})
        for query in (f"q={word.lower()}", f"q={word}&name=noop", f"q={word}&state=paused"):
            assert [each["job_id"] for each in await read(api, f"/jobs?{query}")] == [job["job_id"]]
        assert await read(api, f"/jobs?q={word}&state=active") == []
        assert job["next_run_at"] is None


async def forget_answers(database_url: str) -> None:
    """Lose what the store of idempotency keys holds, as a crash before its last write would."""
    engine = open_database(database_url)
    async with writing(engine) as connection:
        await connection.execute(text("DELETE FROM idempotency_records"))
    await engine.dispose()
