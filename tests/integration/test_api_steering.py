"""Jobs paused, resumed and triggered over HTTP, and runs cancelled, wherever they stand."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import httpx
import pytest

from tests.api_stack import ApiStack
from tests.eventually import eventually
from tests.integration.test_api_changes import until_asleep
from tests.temporal_servers import unique
from workflows.contracts import SA_NEXT_FIRE, SA_STATE, job_workflow_id

WEEKLY: dict[str, Any] = {"name": "echo", "schedule": "0 9 * * 1", "payload": "usual"}
EVERY_SECOND: dict[str, Any] = {"name": "noop", "schedule": "@every 1s", "time_critical": True}
NOBODY = {"task_queue": "nobody-polls-this"}


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


async def create(api: httpx.AsyncClient, body: dict[str, Any]) -> str:
    """Register a job; answers its path."""
    answer = await api.post("/jobs", json=body)
    assert answer.status_code == 201, answer.text
    return f"/jobs/{answer.json()['job_id']}"


async def post(api: httpx.AsyncClient, path: str, body: Any = None, *, status: int = 200, **headers: str) -> Any:
    """Ask for something that is to be done."""
    answer = await api.post(path, json=body, headers=headers) if body is not None else await api.post(path)
    assert answer.status_code == status, answer.text
    return answer.json()


async def until_run(api: httpx.AsyncClient, run_id: str, status: str) -> dict[str, Any]:
    """Wait until a run stands so."""

    async def is_there() -> dict[str, Any]:
        run: dict[str, Any] = await read(api, f"/runs/{run_id}")
        assert run["status"] == status, run
        return run

    return await eventually(is_there)


class TestPause:
    """And resume."""

    async def test_a_paused_job_does_not_fire_and_says_why(self, api: httpx.AsyncClient, api_stack: ApiStack) -> None:
        """SB-045: what falls into the pause is told as paused, while it lasts and afterwards, and never runs."""
        path = await create(api, EVERY_SECOND)

        async def has_run() -> bool:
            return bool(await read(api, f"{path}/runs?status=success"))

        await eventually(has_run)
        job = await post(api, f"{path}/pause", {"reason": "incident 7", "by": "ops"})
        assert (job["state"], job["next_run_at"], job["enabled"]) == ("paused", None, False)
        pause = job["pause"]
        assert (pause["reason"], pause["by"], pause["until"], pause["catch_up"]) == ("incident 7", "ops", None, "none")
        assert await read(api, f"{path}/upcoming") == []
        found = await read(api, f"/jobs?state=paused&q={job['job_id']}")
        assert [each["job_id"] for each in found] == [job["job_id"]]

        async def is_told() -> bool:
            paused = [entry for entry in await read(api, f"{path}/ledger") if entry["outcome"] == "paused"]
            assert {entry["reason"] for entry in paused} == {"the job was paused: incident 7"}
            return bool(sum(entry["count"] for entry in paused) >= 3)

        await eventually(is_told)
        client = await api_stack.temporal()

        async def is_shown() -> bool:
            described = await client.get_workflow_handle(
                job_workflow_id(tenant="default", job_id=job["job_id"])
            ).describe()
            shown = described.typed_search_attributes
            return shown.get(SA_STATE) == "paused" and shown.get(SA_NEXT_FIRE) is None

        await eventually(is_shown)
        resumed = await post(api, f"{path}/resume")
        assert (resumed["state"], resumed["pause"]) == ("active", None)
        assert datetime.fromisoformat(resumed["next_run_at"]) > datetime.fromisoformat(pause["at"])

        async def has_run_again() -> bool:
            runs = await read(api, f"{path}/runs?status=success&limit=1")
            return bool(runs[0]["created_at"] > resumed["updated_at"])

        await eventually(has_run_again)
        await api.delete(path)
        ledger = await read(api, f"{path}/ledger?limit=500")
        told = [(datetime.fromisoformat(entry["first"]), entry["count"], entry["outcome"]) for entry in ledger]
        # No nominal time is missing and none is told twice: each entry begins where the one before ended.
        for (first, count, _), (following, _, _) in pairwise(told):
            assert following == first + timedelta(seconds=count)
        assert {outcome for _, _, outcome in told} <= {"ran", "paused", "cancelled", "skipped"}
        reasons = {entry["reason"] for entry in ledger if entry["outcome"] == "paused"}
        assert reasons == {"the job was paused: incident 7"}
        assert (await read(api, path))["counts"]["missed"] == 0

    async def test_a_pause_with_an_end_ends_by_itself(self, api: httpx.AsyncClient) -> None:
        """And with its catch-up choice: here what fell into it is made up for by one run."""
        path = await create(api, EVERY_SECOND)
        until = datetime.now(UTC) + timedelta(seconds=4)
        job = await post(api, f"{path}/pause", {"until": until.isoformat(), "catch_up": "apply"})
        assert datetime.fromisoformat(job["pause"]["until"]) == until

        async def has_caught_up() -> bool:
            runs = await read(api, f"{path}/runs?limit=500")
            return any(run["kind"] == "catch_up" and run["status"] == "success" for run in runs)

        await eventually(has_caught_up)
        assert (await read(api, path))["state"] == "active"
        await api.delete(path)
        ledger = await read(api, f"{path}/ledger?limit=500")
        assert "coalesced" in {entry["outcome"] for entry in ledger}

    async def test_a_sleeping_job_is_paused_and_resumed_at_once(
        self, api: httpx.AsyncClient, api_stack: ApiStack
    ) -> None:
        """In the middle of its long sleep; afterwards it fires when it would have."""
        path = await create(api, WEEKLY)
        before = await read(api, path)
        await until_asleep(api_stack, before["job_id"])
        await post(api, f"{path}/pause", {})
        after = await post(api, f"{path}/resume", {"catch_up": "none"})
        assert (after["next_run_at"], after["revision"]) == (before["next_run_at"], 1)

    async def test_pausing_twice_and_resuming_twice_are_harmless(self, api: httpx.AsyncClient) -> None:
        """The second pause gives its own reason; the second resume finds nothing to do. A completed job refuses both."""
        path = await create(api, WEEKLY)
        first = await post(api, f"{path}/pause", {"reason": "a"})
        second = await post(api, f"{path}/pause", {"reason": "b"})
        assert (second["pause"]["reason"], second["pause"]["at"]) == ("b", first["pause"]["at"])
        for _ in range(2):
            assert (await post(api, f"{path}/resume"))["state"] == "active"
        await api.delete(path)
        await post(api, f"{path}/pause", {}, status=409)
        await post(api, f"{path}/resume", {}, status=409)
        await post(api, "/jobs/never-was/pause", {}, status=404)

    async def test_fifty_pauses_and_resumes_at_once_end_in_one_state(self, api: httpx.AsyncClient) -> None:
        """SB-147: no 500, and what the last answer says is what is there."""
        path = await create(api, EVERY_SECOND)
        calls = [api.post(f"{path}/{'pause' if number % 2 else 'resume'}") for number in range(50)]
        answers = await asyncio.gather(*calls)
        assert {answer.status_code for answer in answers} <= {200, 503}
        assert [answer.status_code for answer in answers].count(200) >= 10
        await post(api, f"{path}/pause", {})
        answered = datetime.now(UTC)
        assert (await read(api, path))["state"] == "paused"
        # A pause that was answered before a fire means no fire.
        await eventually(lambda: datetime.now(UTC) > answered + timedelta(seconds=2))
        runs = await read(api, f"{path}/runs?limit=500")
        assert [run for run in runs if datetime.fromisoformat(run["scheduled_at"]) > answered] == []
        await api.delete(path)

    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            ({"until": "2020-01-01T00:00:00Z"}, "/until"),
            ({"until": "tomorrow"}, "/until"),
            ({"catch_up": "apply"}, "/catch_up"),
            ({"catch_up": "yes"}, "/catch_up"),
            ({"reason": "a\nb"}, "/reason"),
            ({"reasons": "a"}, "/reasons"),
            ([], ""),
        ],
    )
    async def test_what_is_wrong_is_refused(self, api: httpx.AsyncClient, body: Any, pointer: str) -> None:
        """With its place, before anybody is asked."""
        answer = await api.post("/jobs/any/pause", json=body)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)


class TestTrigger:
    """Run now."""

    async def test_a_sleeping_job_runs_at_once(self, api: httpx.AsyncClient, api_stack: ApiStack) -> None:
        """SB-144: as a manual run, with its own payload; the next fire stays."""
        path = await create(api, WEEKLY)
        before = await read(api, path)
        await until_asleep(api_stack, before["job_id"])
        answer = await api.post(f"{path}/trigger", json={"payload": {"a": None}})
        assert answer.status_code == 202
        told = answer.json()
        assert (told["outcome"], told["consumed"]) == ("started", None)
        assert answer.headers["location"] == f"/api/v1/runs/{told['run_id']}"
        run = await until_run(api, told["run_id"], "success")
        assert (run["kind"], run["result"], run["payload"]) == ("manual", {"a": None}, {"a": None})
        usual = await post(api, f"{path}/trigger", status=202)
        assert (await until_run(api, usual["run_id"], "success"))["result"] == "usual"
        after = await read(api, path)
        assert after["next_run_at"] == before["next_run_at"]
        assert after["counts"]["started"] == 0
        assert await read(api, f"{path}/ledger") == []

    async def test_it_works_while_the_job_is_paused_and_when_it_is_completed(self, api: httpx.AsyncClient) -> None:
        """And changes neither; a deleted job refuses."""
        path = await create(api, {**WEEKLY, "enabled": False})
        told = await post(api, f"{path}/trigger", {}, status=202)
        await until_run(api, told["run_id"], "success")
        assert (await read(api, path))["state"] == "paused"
        await api.delete(path)
        await post(api, f"{path}/trigger", {}, status=409)

        at = (datetime.now(UTC) + timedelta(seconds=2)).replace(microsecond=0).isoformat()
        once = await create(api, {"name": "noop", "schedule": at})

        async def is_completed() -> bool:
            return bool((await read(api, once))["state"] == "completed")

        await eventually(is_completed)
        told = await post(api, f"{once}/trigger", {}, status=202)
        await until_run(api, told["run_id"], "success")
        assert (await read(api, once))["state"] == "completed"
        await post(api, f"{once}/trigger", {"skip_next": True}, status=409)

    async def test_it_obeys_the_overlap_policy_unless_told_otherwise(self, api: httpx.AsyncClient) -> None:
        """SB-065, SB-143: started, skipped with the run that is in the way, buffered, or beside it."""
        path = await create(api, {**WEEKLY, "target": NOBODY})
        first = await post(api, f"{path}/trigger", {}, status=202)
        assert first["outcome"] == "started"
        skipped = await post(api, f"{path}/trigger", {}, status=202)
        assert (skipped["outcome"], skipped["run"]["status"]) == ("skipped", "cancelled")
        assert first["run_id"] in skipped["run"]["reason"]
        buffered = await post(api, f"{path}/trigger", {"overlap": "buffer_all"}, status=202)
        assert (buffered["outcome"], buffered["run"]["status"]) == ("buffered", "pending")
        beside = await post(api, f"{path}/trigger", {"overlap": "Allow"}, status=202)
        assert beside["outcome"] == "started"
        job = await read(api, path)
        assert (job["active_runs"], job["waiting_runs"]) == (2, 1)
        await api.delete(f"{path}?cancel_active=true")

    async def test_it_can_take_the_place_of_the_next_fire(self, api: httpx.AsyncClient) -> None:
        """SB-085: the answer names the fire, the ledger calls it consumed, and the one after it is next."""
        path = await create(api, WEEKLY)
        first, second = (fire["nominal"] for fire in await read(api, f"{path}/upcoming?count=2"))
        told = await post(api, f"{path}/trigger", {"skip_next": True}, status=202)
        assert (told["outcome"], told["consumed"]) == ("started", first)
        assert (await read(api, path))["next_run_at"] == second
        assert [fire["nominal"] for fire in await read(api, f"{path}/upcoming?count=1")] == [second]

        async def is_in_ledger() -> bool:
            ledger = await read(api, f"{path}/ledger?from={first}&to={first}")
            return [(each["outcome"], each["run_id"]) for each in ledger] == [("consumed", told["run_id"])]

        await eventually(is_in_ledger)

    async def test_a_hundred_at_once_are_all_answered(self, api: httpx.AsyncClient) -> None:
        """SB-138: half of them without a key, the others with keys of their own: a hundred runs, each of its own name; none is
        refused."""
        path = await create(api, {**WEEKLY, "overlap": "allow", "max_concurrent": 500})

        async def trigger(number: int) -> httpx.Response:
            return await api.post(f"{path}/trigger", headers={"Idempotency-Key": unique("key")} if number % 2 else {})

        answers = await asyncio.gather(*map(trigger, range(100)))
        assert [answer.text for answer in answers if answer.status_code != 202] == []
        told = [answer.json() for answer in answers]
        assert {each["outcome"] for each in told} == {"started"}
        assert len({each["run_id"] for each in told}) == 100

        async def have_some_run() -> bool:
            return bool((await read(api, path))["counts"]["succeeded"] >= 10)

        await eventually(have_some_run, limit=timedelta(seconds=60))
        await api.delete(f"{path}?cancel_active=true")

    async def test_with_one_key_it_is_one_run(self, api: httpx.AsyncClient) -> None:
        """SB-068, SB-112: for a day, and with the longest key there is; another body with the key is refused, and another job is
        another request."""
        path, other = await create(api, WEEKLY), await create(api, WEEKLY)
        headers = {"Idempotency-Key": unique("key").ljust(255, "~")}
        answers = await asyncio.gather(*(api.post(f"{path}/trigger", json={}, headers=headers) for _ in range(50)))
        assert {answer.status_code for answer in answers} <= {200, 202, 409}
        assert [answer.status_code for answer in answers].count(202) == 1
        assert len({answer.json()["run_id"] for answer in answers if answer.is_success}) == 1
        assert len(await read(api, f"{path}/runs")) == 1
        again = await api.post(f"{path}/trigger", json={}, headers=headers)
        assert (again.status_code, again.headers["idempotent-replayed"]) == (200, "true")
        assert (await api.post(f"{path}/trigger", json={"payload": 1}, headers=headers)).status_code == 422
        assert (await api.post(f"{other}/trigger", json={}, headers=headers)).status_code == 202

    async def test_the_key_of_a_run_that_died_answers_with_that_run(self, api: httpx.AsyncClient) -> None:
        """SB-068: it is told, and not silently run again; a key of its own is another run."""
        path = await create(api, {**WEEKLY, "target": NOBODY, "queue_timeout_seconds": 1, "max_retries": 0})
        headers = {"Idempotency-Key": unique("key")}
        first = await api.post(f"{path}/trigger", headers=headers)
        dead = await until_run(api, first.json()["run_id"], "dead")
        again = await api.post(f"{path}/trigger", headers=headers)
        assert (again.status_code, again.headers["idempotent-replayed"]) == (200, "true")
        assert again.json()["run_id"] == dead["run_id"]
        assert len(await read(api, f"{path}/runs")) == 1
        other = await post(api, f"{path}/trigger", status=202)
        assert other["run_id"] != dead["run_id"]

    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            ({"payload": "x" * 300_000}, "/payload"),
            ({"overlap": "sometimes"}, "/overlap"),
            ({"skip_next": 1}, "/skip_next"),
            ({"run_at": "now"}, "/run_at"),
        ],
    )
    async def test_what_is_wrong_is_refused(self, api: httpx.AsyncClient, body: Any, pointer: str) -> None:
        """With its place."""
        path = await create(api, WEEKLY)
        answer = await api.post(f"{path}/trigger", json=body)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)


class TestCancel:
    """A run, wherever it stands."""

    async def test_every_kind_of_run_is_cancelled_and_stays_so(self, api: httpx.AsyncClient) -> None:
        """SB-091: waiting for a worker, held back by another run, detached, parked; again, it answers the same."""
        path = await create(api, {**WEEKLY, "target": NOBODY, "overlap": "buffer_all"})
        active, held = [await post(api, f"{path}/trigger", {}, status=202) for _ in range(2)]
        apart = await create(api, {**WEEKLY, "target": NOBODY, "isolation": "workflow"})
        detached = await post(api, f"{apart}/trigger", {}, status=202)
        unknown = await create(api, {**WEEKLY, "name": "never_written"})
        parked = await post(api, f"{unknown}/trigger", {}, status=202)
        await until_run(api, parked["run_id"], "parked")
        for told in (held, active, detached, parked):
            answer = await api.post(f"/runs/{told['run_id']}/cancel", json={"reason": "by mistake"})
            assert answer.status_code in (200, 202), answer.text
            run = await until_run(api, told["run_id"], "cancelled")
            assert run["reason"] == "by mistake"
            again = await api.post(f"/runs/{told['run_id']}/cancel")
            assert (again.status_code, again.json()) == (200, run)
        assert (await read(api, path))["active_runs"] == 0

    async def test_a_run_that_is_over_stays_as_it_is(self, api: httpx.AsyncClient) -> None:
        """One terminal state; and what is not there is not found."""
        path = await create(api, WEEKLY)
        told = await post(api, f"{path}/trigger", {}, status=202)
        run = await until_run(api, told["run_id"], "success")
        answer = await post(api, f"/runs/{told['run_id']}/cancel", {})
        assert answer == run
        await post(api, "/runs/no:such/cancel", {}, status=404)
        refused = await api.post(f"/runs/{told['run_id']}/cancel", json={"why": "x"})
        assert refused.status_code == 422

    async def test_a_cancel_that_meets_the_end_of_its_run_leaves_one_end(self, api: httpx.AsyncClient) -> None:
        """SB-147: ten runs cancelled as they end: each is a success or cancelled. A busy machine may answer too late."""
        path = await create(api, {**WEEKLY, "overlap": "allow", "max_concurrent": 500})

        async def trigger_and_cancel() -> str:
            told = await post(api, f"{path}/trigger", {}, status=202)
            answer = await api.post(f"/runs/{told['run_id']}/cancel")
            assert answer.status_code in (200, 202, 503), answer.text
            return str(told["run_id"])

        names = await asyncio.gather(*(trigger_and_cancel() for _ in range(10)))

        async def are_over() -> bool:
            runs = await read(api, f"{path}/runs?limit=100")
            return {run["run_id"] for run in runs if run["status"] in ("success", "cancelled")} == set(names)

        await eventually(are_over, limit=timedelta(seconds=60))
