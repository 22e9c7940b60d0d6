"""Jobs changed over HTTP: replaced and patched, once, and only where something differs."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import delete

from activities.database import open_database, writing
from activities.tables import IDEMPOTENCY_RECORDS
from tests.api_stack import ApiStack
from tests.eventually import eventually
from tests.temporal_servers import unique
from tests.workflow.harness import chain_of
from workflows.contracts import job_workflow_id

WEEKLY: dict[str, Any] = {"name": "noop", "schedule": "0 9 * * 1"}
EVERY_SECOND: dict[str, Any] = {"name": "noop", "schedule": "@every 1s", "time_critical": True}


@pytest.fixture
async def api(api_stack: ApiStack) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the stack's API."""
    async with api_stack.client() as client:
        yield client


async def read(api: httpx.AsyncClient, path: str) -> Any:
    """Read what must be there."""
    answer = await api.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def put(api: httpx.AsyncClient, job_id: str, body: dict[str, Any], *, status: int = 200) -> dict[str, Any]:
    """Write a job that is to be taken."""
    answer = await api.put(f"/jobs/{job_id}", json=body)
    assert answer.status_code == status, answer.text
    job: dict[str, Any] = answer.json()
    return job


async def patch(api: httpx.AsyncClient, job_id: str, change: dict[str, Any], *, status: int = 200) -> dict[str, Any]:
    """Change a job."""
    answer = await api.patch(f"/jobs/{job_id}", json=change, headers={"Content-Type": "application/merge-patch+json"})
    assert answer.status_code == status, answer.text
    job: dict[str, Any] = answer.json()
    return job


async def forget_answers(stack: ApiStack) -> None:
    """Let what was answered to keys be as lost as what ended with 503."""
    engine = open_database(stack.database_url)
    async with writing(engine) as connection:
        await connection.execute(delete(IDEMPOTENCY_RECORDS))
    await engine.dispose()


async def count_events(stack: ApiStack, job_id: str) -> int:
    """Count what Temporal has written down of a job."""
    chain = await chain_of(await stack.temporal(), job_workflow_id(tenant="default", job_id=job_id))
    return sum(len(history.events) for history in chain)


async def until_asleep(stack: ApiStack, job_id: str) -> None:
    """Wait until a job sleeps the long way: its present run has not begun."""

    async def is_asleep() -> bool:
        chain = await chain_of(await stack.temporal(), job_workflow_id(tenant="default", job_id=job_id))
        return len(chain) > 1 and len(chain[-1].events) == 1

    await eventually(is_asleep)


async def successes(api: httpx.AsyncClient, job_id: str) -> list[dict[str, Any]]:
    """The runs of a job that succeeded."""
    found: list[dict[str, Any]] = await read(api, f"/jobs/{job_id}/runs?status=success&limit=500")
    return found


class TestPut:
    """Created or replaced."""

    async def test_put_creates_and_then_replaces(self, api: httpx.AsyncClient) -> None:
        """201 with Location the first time, 200 afterwards; the revision is the ETag and counts the changes."""
        job_id = unique("job")
        answer = await api.put(f"/jobs/{job_id}", json=WEEKLY)
        assert (answer.status_code, answer.headers["etag"]) == (201, '"1"')
        assert answer.headers["location"] == f"/api/v1/jobs/{job_id}"
        answer = await api.put(f"/jobs/{job_id}", json={**WEEKLY, "description": "every Monday"})
        assert (answer.status_code, answer.headers["etag"]) == (200, '"2"')
        shown = await read(api, f"/jobs/{job_id}")
        assert shown == {**answer.json(), "warnings": []}
        assert shown["description"] == "every Monday"

    async def test_the_same_body_changes_nothing_and_costs_nothing(
        self, api: httpx.AsyncClient, api_stack: ApiStack
    ) -> None:
        """SB-062: from start-up code, fifty times, in any order of members and form of numbers; not one workflow task."""
        job_id = unique("job")
        body = {**WEEKLY, "timeout_seconds": 60, "payload": {"a": 1, "b": [2]}, "labels": {"x": "1", "y": "2"}}
        job = await put(api, job_id, body, status=201)
        await until_asleep(api_stack, job_id)
        before = await count_events(api_stack, job_id)
        other = {**dict(reversed(body.items())), "timeout_seconds": 60.0, "payload": {"b": [2.0], "a": 1.0}}
        for number in range(50):
            again = await put(api, job_id, other if number % 2 else body)
            assert (again["revision"], again["next_run_at"]) == (job["revision"], job["next_run_at"])
        assert await count_events(api_stack, job_id) == before
        found = [each for each in await read(api, f"/jobs?q={job_id}") if each["job_id"] == job_id]
        assert len(found) == 1

    async def test_a_job_that_fires_loses_nothing_by_being_written_again_and_again(
        self, api: httpx.AsyncClient
    ) -> None:
        """SB-062: changes of its payload while it fires every second, and then one body again and again: every nominal time has
        one outcome, none is missed, and what is the same is no revision."""
        job_id = unique("job")
        await put(api, job_id, {**EVERY_SECOND, "payload": 0}, status=201)
        for number in range(1, 25):
            await put(api, job_id, {**EVERY_SECOND, "payload": number})
        job = await read(api, f"/jobs/{job_id}")
        assert job["revision"] == 25

        async def has_run() -> bool:
            return len(await successes(api, job_id)) >= 3

        await eventually(has_run)
        for _ in range(25):
            again = await put(api, job_id, {"payload": 24.0, **EVERY_SECOND})
            assert again["revision"] == 25
        await api.delete(f"/jobs/{job_id}")
        ledger = await read(api, f"/jobs/{job_id}/ledger?limit=500")
        times = [datetime.fromisoformat(entry["first"]) for entry in ledger]
        assert times == [times[0] + timedelta(seconds=n) for n in range(len(times))]
        assert {entry["count"] for entry in ledger} == {1}

    async def test_a_paused_job_stays_paused_unless_the_body_says_otherwise(self, api: httpx.AsyncClient) -> None:
        """Start-up code that writes its jobs must not wake what an operator has paused."""
        job_id = unique("job")
        await put(api, job_id, WEEKLY, status=201)
        paused = await api.post(f"/jobs/{job_id}/pause", json={"reason": "incident"})
        assert paused.json()["state"] == "paused"
        for body in (WEEKLY, {**WEEKLY, "description": "new"}):
            again = await put(api, job_id, body)
            assert (again["state"], again["pause"]["reason"]) == ("paused", "incident")
        woken = await put(api, job_id, {**WEEKLY, "description": "new", "enabled": True})
        assert (woken["state"], woken["pause"], woken["enabled"]) == ("active", None, True)
        assert woken["next_run_at"] is not None
        asleep = await put(api, job_id, {**WEEKLY, "description": "new", "enabled": False})
        assert (asleep["state"], asleep["next_run_at"]) == ("paused", None)

    async def test_a_deleted_job_is_registered_again(self, api: httpx.AsyncClient) -> None:
        """With a revision that goes on counting."""
        job_id = unique("job")
        await put(api, job_id, WEEKLY, status=201)
        await api.delete(f"/jobs/{job_id}")
        assert (await put(api, job_id, WEEKLY, status=201))["revision"] == 2

    async def test_a_one_off_that_has_run_can_be_given_another_time(self, api: httpx.AsyncClient) -> None:
        """Its workflow has ended; the same body again is no change, and another time starts it anew."""
        job_id = unique("job")
        first = (datetime.now(UTC) + timedelta(seconds=2)).replace(microsecond=0).isoformat()
        await put(api, job_id, {"name": "noop", "schedule": first}, status=201)

        async def is_completed() -> bool:
            return bool((await read(api, f"/jobs/{job_id}"))["state"] == "completed")

        await eventually(is_completed)
        assert (await put(api, job_id, {"name": "noop", "schedule": first}))["state"] == "completed"
        second = (datetime.now(UTC) + timedelta(seconds=3)).replace(microsecond=0).isoformat()
        again = await put(api, job_id, {"name": "noop", "schedule": second})
        assert (again["state"], again["revision"]) == ("active", 2)
        assert datetime.fromisoformat(again["next_run_at"]) == datetime.fromisoformat(second)

        async def has_two_runs() -> bool:
            return len(await successes(api, job_id)) == 2

        await eventually(has_two_runs)
        await eventually(is_completed)
        past = await api.put(f"/jobs/{job_id}", json={"name": "noop", "schedule": "2020-01-01T00:00:00Z"})
        assert (past.status_code, past.json()["errors"][0]["pointer"]) == (422, "/schedule")

    async def test_twenty_who_write_the_same_new_job_make_one(self, api: httpx.AsyncClient) -> None:
        """Replicas of a service that start together."""
        job_id = unique("job")
        answers = await asyncio.gather(*(api.put(f"/jobs/{job_id}", json=WEEKLY) for _ in range(20)))
        assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
        assert {answer.json()["revision"] for answer in answers} == {1}

    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            ({**WEEKLY, "job_id": "another"}, "/job_id"),
            ({**WEEKLY, "schedule": "0 0 30 2 *"}, "/schedule"),
            ({**WEEKLY, "unknown": 1}, "/unknown"),
            ({**WEEKLY, "end_at": "2020-01-01T00:00:00Z"}, "/end_at"),
            ([], ""),
        ],
    )
    async def test_what_is_wrong_is_refused_as_at_a_registration(
        self, api: httpx.AsyncClient, body: Any, pointer: str
    ) -> None:
        """SB-026, SB-133: on a job that is there, too; which stays as it was."""
        job_id = unique("job")
        await put(api, job_id, WEEKLY, status=201)
        answer = await api.put(f"/jobs/{job_id}", json=body)
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["pointer"] == pointer
        assert (await read(api, f"/jobs/{job_id}"))["revision"] == 1


class TestPatch:
    """Changed in part."""

    async def test_another_time_while_it_sleeps_the_long_way(self, api: httpx.AsyncClient, api_stack: ApiStack) -> None:
        """SB-072: the answer shows the new next fire, as does every view; nothing runs."""
        job_id = unique("job")
        await put(api, job_id, {**WEEKLY, "missed_window": "RUN_ALL"}, status=201)
        await until_asleep(api_stack, job_id)
        job = await patch(api, job_id, {"schedule": "0 10 * * 1", "timezone": "Asia/Kathmandu"})
        preview = await api.post(
            "/preview",
            json={"schedule": "0 10 * * 1", "timezone": "Asia/Kathmandu", "job_id": job_id, "count": 2},
        )
        assert await read(api, f"/jobs/{job_id}/upcoming?count=2") == preview.json()["fires"]
        assert job["next_run_at"] == preview.json()["fires"][0]["nominal"]
        assert (job["revision"], job["missed_window"]) == (2, "RUN_ALL")
        assert await read(api, f"/jobs/{job_id}/runs") == []

    async def test_a_fire_that_is_put_off_does_not_come_at_its_old_time(self, api: httpx.AsyncClient) -> None:
        """SB-073: due in two seconds and moved to six; one run, at the new time, under the new revision."""
        job_id, now = unique("job"), datetime.now(UTC).replace(microsecond=0)
        soon, later = now + timedelta(seconds=3), now + timedelta(seconds=6)
        await put(api, job_id, {"name": "noop", "schedule": soon.isoformat()}, status=201)
        job = await patch(api, job_id, {"schedule": later.isoformat()})
        assert datetime.fromisoformat(job["next_run_at"]) == later

        async def the_run() -> list[dict[str, Any]]:
            return await successes(api, job_id)

        [run] = await eventually(the_run)
        assert (datetime.fromisoformat(run["scheduled_at"]), run["revision"]) == (later, 2)

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            ({"timezone": "Asia/Kathmandu"}, {"schedule": "0 9 * * 1", "timezone": "Asia/Kathmandu"}),
            ({"schedule": {"every": "PT6H"}}, {"schedule": {"every": "PT6H"}}),
            ({"schedule": "2030-01-01T09:00:00"}, {"schedule": "2030-01-01T09:00:00"}),
            ({"schedule": {"rrule": "FREQ=DAILY;BYHOUR=7;BYMINUTE=0;BYSECOND=0"}}, None),
            ({"start_at": "2030-01-01T00:00:00Z"}, {"schedule": "0 9 * * 1", "start_at": "2030-01-01T00:00:00Z"}),
        ],
    )
    async def test_the_zone_the_kind_or_the_bounds_may_change_alone(
        self, api: httpx.AsyncClient, change: dict[str, Any], expected: dict[str, Any] | None
    ) -> None:
        """SB-073: the next fire is that of what the job now is, as preview says, and nothing runs."""
        job_id = unique("job")
        await put(api, job_id, WEEKLY, status=201)
        job = await patch(api, job_id, change)
        asked = {**(expected or change), "job_id": job_id, "count": 1}
        told = (await api.post("/preview", json=asked)).json()
        assert (job["next_run_at"], job["next_target_at"]) == (
            told["fires"][0]["nominal"],
            told["fires"][0]["target"],
        )
        assert job["revision"] == 2
        assert await read(api, f"/jobs/{job_id}/runs") == []

    async def test_a_change_of_the_payload_reaches_the_next_run(self, api: httpx.AsyncClient) -> None:
        """And only the member that it names."""
        job_id = unique("job")
        await put(api, job_id, {**EVERY_SECOND, "name": "echo", "payload": {"a": 1, "b": 2}}, status=201)
        await patch(api, job_id, {"payload": {"b": None, "c": 3}})

        async def has_echo() -> bool:
            return {"a": 1, "c": 3} in [run["result"] for run in await successes(api, job_id)]

        await eventually(has_echo)
        await api.delete(f"/jobs/{job_id}")
        for run in await successes(api, job_id):
            assert run["result"] == ({"a": 1, "b": 2} if run["revision"] == 1 else {"a": 1, "c": 3})

    async def test_a_patch_is_read_as_strictly_as_a_body(self, api: httpx.AsyncClient) -> None:
        """SB-129, SB-133, SB-155: what a job could not be created with, it cannot be changed to."""
        job_id = unique("job")
        await put(api, job_id, WEEKLY, status=201)
        for change in (
            {"schedule": "2020-01-01T00:00:00Z"},
            {"schedule": {"every": -1}},
            {"timezone": "Mars/Base"},
            {"timeout_seconds": 0},
            {"name": None},
            {"job_id": "other"},
            {"nothing": 1},
            {"end_at": "2020-01-01T00:00:00Z"},
        ):
            await patch(api, job_id, change, status=422)
        assert (await api.patch(f"/jobs/{job_id}", json=[])).status_code == 422
        refused = await api.patch(
            f"/jobs/{job_id}", content="[]", headers={"Content-Type": "application/json-patch+json"}
        )
        assert refused.status_code == 415
        assert (await api.patch("/jobs/never-was", json={})).status_code == 404
        assert (await read(api, f"/jobs/{job_id}"))["revision"] == 1

    async def test_a_deleted_job_is_not_patched(self, api: httpx.AsyncClient) -> None:
        """409, and it stays deleted."""
        job_id = unique("job")
        await put(api, job_id, WEEKLY, status=201)
        await api.delete(f"/jobs/{job_id}")
        await patch(api, job_id, {"description": "x"}, status=409)

    async def test_a_repeated_request_is_answered_as_before(self, api: httpx.AsyncClient) -> None:
        """SB-112: for a day, under its key; another body with the key is refused."""
        job_id, headers = unique("job"), {"Idempotency-Key": unique("key")}
        await put(api, job_id, WEEKLY, status=201)
        first = await api.patch(f"/jobs/{job_id}", json={"description": "a"}, headers=headers)
        await patch(api, job_id, {"description": "b"})
        again = await api.patch(f"/jobs/{job_id}", json={"description": "a"}, headers=headers)
        assert again.json() == first.json()
        assert again.headers["idempotent-replayed"] == "true"
        assert (await read(api, f"/jobs/{job_id}"))["description"] == "b"
        other = await api.patch(f"/jobs/{job_id}", json={"description": "c"}, headers=headers)
        assert other.status_code == 422


class TestRevisions:
    """``ETag`` and ``If-Match``."""

    async def test_of_two_who_saw_the_same_revision_one_is_told(self, api: httpx.AsyncClient) -> None:
        """SB-146: patches without If-Match are both kept; the second stale PUT is refused, and nothing is lost."""
        job_id = unique("job")
        await put(api, job_id, {**WEEKLY, "payload": 1}, status=201)
        await asyncio.gather(patch(api, job_id, {"schedule": "0 8 * * 1"}), patch(api, job_id, {"payload": 2}))
        job = await read(api, f"/jobs/{job_id}")
        assert (job["schedule"], job["payload"], job["revision"]) == ("0 8 * * 1", 2, 3)
        answers = await asyncio.gather(
            *(
                api.put(f"/jobs/{job_id}", json={**WEEKLY, "description": text}, headers={"If-Match": '"3"'})
                for text in "ab"
            )
        )
        assert sorted(answer.status_code for answer in answers) == [200, 412]
        assert (await read(api, f"/jobs/{job_id}"))["revision"] == 4

    async def test_who_repeats_a_change_of_what_was_seen_is_told_that_it_was_made(
        self, api: httpx.AsyncClient, api_stack: ApiStack
    ) -> None:
        """As the 503 says whose answer is lost: with its key. Also when others have changed the job since."""
        job_id, seen = unique("job"), {"If-Match": '"1"', "Idempotency-Key": unique("key")}
        await put(api, job_id, WEEKLY, status=201)
        first = await api.patch(f"/jobs/{job_id}", json={"description": "a"}, headers=seen)
        await forget_answers(api_stack)
        again = await api.patch(f"/jobs/{job_id}", json={"description": "a"}, headers=seen)
        assert (again.status_code, again.json()["revision"]) == (200, first.json()["revision"])
        await patch(api, job_id, {"description": "b"})
        await forget_answers(api_stack)
        assert (await api.patch(f"/jobs/{job_id}", json={"description": "a"}, headers=seen)).status_code == 200
        job = await read(api, f"/jobs/{job_id}")
        assert (job["description"], job["revision"]) == ("b", 3)

    async def test_who_has_not_made_the_change_that_is_there_is_told_of_it(
        self, api: httpx.AsyncClient, api_stack: ApiStack
    ) -> None:
        """412 with a new key, and with one that was used for something else."""
        job_id, key = unique("job"), unique("key")
        await put(api, job_id, WEEKLY, status=201)
        seen = {"If-Match": '"1"', "Idempotency-Key": key}
        assert (await api.patch(f"/jobs/{job_id}", json={"description": "a"}, headers=seen)).status_code == 200
        await forget_answers(api_stack)
        new = seen | {"Idempotency-Key": unique("key")}
        for headers in (new, seen):
            other = {**WEEKLY, "description": "b"}
            assert (await api.put(f"/jobs/{job_id}", json=other, headers=headers)).status_code == 412
            assert (await api.patch(f"/jobs/{job_id}", json={"owner": "b"}, headers=headers)).status_code == 412
        for steer in ("pause", "resume"):
            assert (await api.post(f"/jobs/{job_id}/{steer}", headers=new)).status_code == 412
        job = await read(api, f"/jobs/{job_id}")
        assert (job["description"], job["owner"], job["state"], job["revision"]) == ("a", "", "active", 2)

    async def test_who_repeats_a_pause_of_a_job_that_was_changed_since_is_told_of_it(
        self, api: httpx.AsyncClient, api_stack: ApiStack
    ) -> None:
        """And of a resumption. Neither is done a second time."""
        job_id = unique("job")
        await put(api, job_id, WEEKLY, status=201)
        for revision, steer, state in ((1, "pause", "paused"), (2, "resume", "active")):
            seen = {"If-Match": f'"{revision}"', "Idempotency-Key": unique("key")}
            assert (await api.post(f"/jobs/{job_id}/{steer}", headers=seen)).json()["state"] == state
            await forget_answers(api_stack)
            await patch(api, job_id, {"description": steer})
            again = await api.post(f"/jobs/{job_id}/{steer}", headers=seen)
            assert (again.status_code, again.json()["state"]) == (200, state)

    async def test_of_two_who_want_to_create_a_job_one_is_told(self, api: httpx.AsyncClient) -> None:
        """RFC 9110, 13.1.2: ``If-None-Match: *`` replaces nothing, not even by the same; what was deleted is not there."""
        job_id, only_new = unique("job"), {"If-None-Match": "*"}
        for created in ("ab", "cd"):
            answers = await asyncio.gather(
                *(
                    api.put(f"/jobs/{job_id}", json={**WEEKLY, "description": text}, headers=only_new)
                    for text in created
                )
            )
            assert sorted(answer.status_code for answer in answers) == [201, 412]
            [winner] = [answer for answer in answers if answer.status_code == 201]
            [refused] = [answer.json() for answer in answers if answer.status_code == 412]
            assert refused["detail"] == "there is a job of this id already"
            assert (winner.headers["etag"], winner.headers["location"]) == (
                f'"{winner.json()["revision"]}"',
                f"/api/v1/jobs/{job_id}",
            )
            body = {**WEEKLY, "description": winner.json()["description"]}
            assert (await api.put(f"/jobs/{job_id}", json=body, headers=only_new)).status_code == 412
            job = await read(api, f"/jobs/{job_id}")
            assert (job["description"], job["revision"]) == (body["description"], winner.json()["revision"])
            await api.delete(f"/jobs/{job_id}")

    async def test_who_repeats_a_creation_with_its_key_is_told_of_the_job(self, api: httpx.AsyncClient) -> None:
        """And not that it is there. Another key is another request."""
        job_id, headers = unique("job"), {"If-None-Match": "*", "Idempotency-Key": unique("key")}
        first = await api.put(f"/jobs/{job_id}", json=WEEKLY, headers=headers)
        again = await api.put(f"/jobs/{job_id}", json=WEEKLY, headers=headers)
        assert (first.status_code, again.status_code, again.json()) == (201, 200, first.json())
        other = headers | {"Idempotency-Key": unique("key")}
        assert (await api.put(f"/jobs/{job_id}", json=WEEKLY, headers=other)).status_code == 412

    async def test_if_none_match_holds_for_every_change(self, api: httpx.AsyncClient) -> None:
        """Where it is sent: a request that wants no job to be there does nothing to one that is."""
        job_id, only_new = unique("job"), {"If-None-Match": "*"}
        await put(api, job_id, WEEKLY, status=201)
        assert (await api.patch(f"/jobs/{job_id}", json={}, headers=only_new)).status_code == 412
        assert (await api.post(f"/jobs/{job_id}/pause", headers=only_new)).status_code == 412
        assert (await api.delete(f"/jobs/{job_id}", headers=only_new)).status_code == 412
        assert (await read(api, f"/jobs/{job_id}"))["state"] == "active"

    async def test_if_match_holds_for_every_change(self, api: httpx.AsyncClient) -> None:
        """Also for one that would change nothing; of a job that is not there, none fits."""
        job_id = unique("job")
        stale = {"If-Match": '"7"'}
        assert (await api.put(f"/jobs/{job_id}", json=WEEKLY, headers={"If-Match": "*"})).status_code == 412
        await put(api, job_id, WEEKLY, status=201)
        assert (await api.put(f"/jobs/{job_id}", json=WEEKLY, headers=stale)).status_code == 412
        assert (await api.patch(f"/jobs/{job_id}", json={}, headers=stale)).status_code == 412
        assert (await api.post(f"/jobs/{job_id}/pause", headers=stale)).status_code == 412
        assert (await api.post(f"/jobs/{job_id}/resume", headers=stale)).status_code == 412
        assert (await api.patch(f"/jobs/{job_id}", json={}, headers={"If-Match": 'W/"1"'})).status_code == 200
        assert (await api.patch(f"/jobs/{job_id}", json={}, headers={"If-Match": "1"})).status_code == 422
