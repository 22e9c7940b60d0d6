"""Backfills over HTTP and by command line: counted before they are begun, read while they go on, steered, and in the ledger."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from activities.backfill_control import BackfillControl
from activities.backfill_definition import BackfillDefinitions
from activities.database import open_database, writing
from activities.tables import JOBS
from api.steer_service import new_request_id
from tests.api_stack import ApiStack
from tests.command import run
from tests.eventually import eventually
from tests.integration.test_api_changes import patch
from tests.integration.test_api_steering import create, post, read
from tests.temporal_servers import unique
from workflows.backfill import BackfillState, first_record
from workflows.backfill_record import BackfillRecord
from workflows.contracts import backfill_workflow_id
from workflows.job import JobDefinition
from workflows.schedule import IntervalRule, Schedule
from workflows.target import ActivityTarget

HOURLY: dict[str, Any] = {"name": "echo", "schedule": "0 * * * *", "payload": "usual", "jitter_window_seconds": 0}

NOBODY: dict[str, Any] = {"task_queue": "nobody-polls-this"}

NIGHT = {"from": "2026-06-01T00:00:00Z", "to": "2026-06-01T04:00:00Z"}
"""Five hours."""


@pytest.fixture
async def api(api_stack: ApiStack) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the stack's API."""
    async with api_stack.client() as client:
        yield client


async def begin(api: httpx.AsyncClient, path: str, body: Any = NIGHT, **headers: str) -> dict[str, Any]:
    """Begin a backfill."""
    answer: dict[str, Any] = await post(api, f"{path}/backfills", body, status=202, **headers)
    return answer


async def until(api: httpx.AsyncClient, backfill: dict[str, Any], status: str) -> dict[str, Any]:
    """Wait until a backfill stands so."""

    async def is_so() -> dict[str, Any]:
        found: dict[str, Any] = await read(api, f"/backfills/{backfill['backfill_id']}")
        assert found["status"] == status, found
        return found

    return await eventually(is_so, limit=timedelta(seconds=40))


async def refused(api: httpx.AsyncClient, path: str, body: Any, *, status: int = 422) -> dict[str, Any]:
    """Ask for what is refused; answers the problem."""
    answer = await api.post(f"{path}/backfills", json=body)
    assert answer.status_code == status, answer.text
    problem: dict[str, Any] = answer.json()
    return problem


async def register_long_ago(stack: ApiStack, job_id: str) -> None:
    """Let the mirror say that a job was registered a year ago."""
    engine = open_database(stack.database_url)
    year_ago = datetime.now(UTC) - timedelta(days=365)
    async with writing(engine) as connection:
        await connection.execute(update(JOBS).where(JOBS.c.job_id == job_id).values(registered_at=year_ago))
    await engine.dispose()


class TestAsking:
    """What is counted, and what is refused."""

    @pytest.mark.parametrize(
        ("start", "end", "count"),
        [
            ("2026-06-01T01:00:00Z", "2026-06-01T01:05:00Z", 6),
            ("2026-06-01T01:00:00Z", "2026-06-01T01:00:00Z", 1),
            ("2026-06-01T01:00:30Z", "2026-06-01T01:00:30Z", 0),
            ("2026-06-01T01:00:00.000001Z", "2026-06-01T01:04:59.999999Z", 4),
        ],
    )
    async def test_a_dry_run_counts_and_does_nothing(
        self, api: httpx.AsyncClient, start: str, end: str, count: int
    ) -> None:
        """SB-159: both ends belong to the range, to the microsecond."""
        path = await create(api, {**HOURLY, "schedule": "* * * * *", "enabled": False})
        body = {"from": start, "to": end, "dry_run": True}
        counted = await post(api, f"{path}/backfills", body)
        assert (counted["total"], counted["excluded"], counted["existing_runs"]) == (count, 0, 0)
        assert await read(api, f"{path}/backfills") == []
        assert await read(api, f"{path}/runs") == []

    async def test_a_range_without_fires_is_done_at_once(self, api: httpx.AsyncClient) -> None:
        """Nobody has to wait for nothing."""
        path = await create(api, HOURLY)
        body = {"from": "2026-06-01T00:10:00Z", "to": "2026-06-01T00:50:00Z"}
        counted = await post(api, f"{path}/backfills", body | {"dry_run": True})
        assert (counted["total"], counted["first"], counted["last"]) == (0, None, None)
        backfill = await begin(api, path, body)
        assert (backfill["status"], backfill["total"], backfill["done"]) == ("done", 0, 0)

    @pytest.mark.parametrize(
        ("body", "pointer", "words"),
        [
            ({"to": NIGHT["to"]}, "/from", "required"),
            ({"from": "2026-06-02T00:00:00Z", "to": "2026-06-01T00:00:00Z"}, "/from", "lies after to"),
            ({"from": NIGHT["from"], "to": "2999-01-01T00:00:00Z"}, "/to", "lies in the future"),
            ({"from": "soon", "to": NIGHT["to"]}, "/from", "soon"),
            (NIGHT | {"max_concurrent": 0}, "/max_concurrent", "greater than or equal to 1"),
            (NIGHT | {"max_concurrent": 51}, "/max_concurrent", "less than or equal to 50"),
            (NIGHT | {"rate_per_minute": 0}, "/rate_per_minute", "greater than or equal to"),
            (NIGHT | {"existing": "perhaps"}, "/existing", "use one of skip, run_again"),
            (NIGHT | {"until": "x"}, "/until", "there is no such field"),
            ([], "", "give an object"),
        ],
    )
    async def test_what_is_wrong_is_named(self, api: httpx.AsyncClient, body: Any, pointer: str, words: str) -> None:
        """SB-159: with the field and the reason; of a dry run too."""
        path = await create(api, HOURLY)
        for asked in (body, body | {"dry_run": True} if isinstance(body, dict) else body):
            problem = await refused(api, path, asked)
            [error] = problem["errors"]
            assert error["pointer"] == pointer
            assert words in error["detail"]

    async def test_a_backfill_of_too_many_fires_is_refused_with_their_number(self, api: httpx.AsyncClient) -> None:
        """Before anything is begun."""
        path = await create(api, {**HOURLY, "schedule": "* * * * *", "enabled": False})
        [error] = (await refused(api, path, {"from": "2026-06-01T00:00Z", "to": "2026-06-08T00:00Z"}))["errors"]
        assert error["detail"].startswith("10081 fires; one backfill has at most 10000")
        assert "ask for shorter ranges" in error["detail"]
        centuries = {"from": "0001-01-01T00:00Z", "to": "2026-06-08T00:00Z"}
        [error] = (await refused(api, path, centuries))["errors"]
        assert "fires; one backfill has at most 10000" in error["detail"]

    async def test_no_runs_are_passed_over_that_are_forgotten(
        self, api: httpx.AsyncClient, api_stack: ApiStack
    ) -> None:
        """They would run again: so it is refused, of a dry run too, unless all are to. A young job has forgotten none."""
        path = await create(api, {**HOURLY, "enabled": False})
        now = datetime.now(UTC)
        old = {"from": (now - timedelta(days=91)).isoformat(), "to": (now - timedelta(days=90)).isoformat()}
        late = {"from": (now - timedelta(days=89)).isoformat(), "to": (now - timedelta(days=88)).isoformat()}
        dry = {"dry_run": True}
        assert (await post(api, f"{path}/backfills", old | dry))["total"] == 24
        await register_long_ago(api_stack, path.removeprefix("/jobs/"))
        for asked in (old, old | dry):
            [error] = (await refused(api, path, asked))["errors"]
            assert error["pointer"] == "/from"
            assert error["detail"].startswith(f"lies before {now - timedelta(days=90):%Y-%m-%dT}")
            assert "existing: run_again" in error["detail"]
        assert (await post(api, f"{path}/backfills", old | dry | {"existing": "run_again"}))["total"] == 24
        assert (await post(api, f"{path}/backfills", late | dry))["total"] == 24
        assert await read(api, f"{path}/backfills") == []

    async def test_local_times_are_those_of_the_jobs_zone(self, api: httpx.AsyncClient) -> None:
        """As the schedule is read."""
        path = await create(api, {**HOURLY, "timezone": "America/New_York"})
        counted = await post(
            api, f"{path}/backfills", {"from": "2026-06-01T09:00", "to": "2026-06-01T10:00", "dry_run": True}
        )
        assert (counted["from"], counted["total"]) == ("2026-06-01T13:00:00Z", 2)

    async def test_what_is_not_there_cannot_be_backfilled(self, api: httpx.AsyncClient) -> None:
        """404 for jobs and backfills that never were, 409 for a job that is deleted."""
        assert (await api.post("/jobs/nowhere/backfills", json=NIGHT)).status_code == 404
        assert (await api.get("/jobs/nowhere/backfills")).status_code == 404
        assert (await api.get("/backfills/nowhere")).status_code == 404
        for action in ("pause", "resume", "cancel"):
            assert (await api.post(f"/backfills/nowhere/{action}")).status_code == 404
        path = await create(api, HOURLY)
        await api.delete(path)
        assert (await refused(api, path, NIGHT, status=409))["detail"] == "the job is deleted"

    async def test_repeated_with_its_key_it_is_one_backfill(self, api: httpx.AsyncClient) -> None:
        """However many ask at once; with another body the key is refused."""
        path = await create(api, HOURLY)
        headers = {"Idempotency-Key": unique("key")}
        answers = await asyncio.gather(*(api.post(f"{path}/backfills", json=NIGHT, headers=headers) for _ in range(10)))
        assert {answer.status_code for answer in answers} <= {200, 202, 409}
        assert len([answer for answer in answers if answer.status_code == 202]) == 1
        [backfill] = await read(api, f"{path}/backfills")
        await until(api, backfill, "done")
        assert len(await read(api, f"{path}/runs")) == 5
        again = await api.post(f"{path}/backfills", json=NIGHT | {"max_concurrent": 2}, headers=headers)
        assert again.status_code == 422

    async def test_one_whose_answer_was_lost_stays_as_it_is_when_it_is_asked_for_again(
        self, api: httpx.AsyncClient, api_stack: ApiStack
    ) -> None:
        """It has come to its end in between; what it has told since is not overwritten, and it does not count as open."""
        path = await create(api, HOURLY)
        job_id, key = path.removeprefix("/jobs/"), unique("key")
        about = {"job_id": job_id, "backfill_id": new_request_id(tenant="default", job_id=job_id, key=key)}
        lost = first_record(BackfillRecord(tenant="default", requested_at=datetime.now(UTC), **about))
        client = await api_stack.temporal()
        assert await BackfillControl(client).begin(BackfillState(record=lost))
        await client.get_workflow_handle(backfill_workflow_id(tenant="default", **about)).result()
        backfill = await begin(api, path, **{"Idempotency-Key": key})
        assert (backfill["backfill_id"], backfill["status"], backfill["total"]) == (about["backfill_id"], "done", 0)
        assert not await BackfillControl(client).begin(BackfillState(record=lost))

    async def test_every_example_of_the_description_works_when_pasted(self, api: httpx.AsyncClient) -> None:
        """What /docs shows is what the service takes."""
        document = (await api.get(f"{api.base_url.copy_with(path='/openapi.json')}")).json()
        daily = {**HOURLY, "schedule": "0 6 * * *"}
        examples = _examples(document, "/api/v1/jobs/{job_id}/backfills")
        assert len(examples) >= 3
        for body in examples:
            path = await create(api, daily)
            answer = await api.post(f"{path}/backfills", json=body)
            assert answer.status_code == (200 if body.get("dry_run") else 202), answer.text
            assert answer.json()["total"] >= 7
        [backfill] = await read(api, f"{path}/backfills")
        for action in ("pause", "resume", "cancel"):
            for body in _examples(document, f"/api/v1/backfills/{{backfill_id}}/{action}"):
                found = await post(api, f"/backfills/{backfill['backfill_id']}/{action}", body)
                assert found["status"] in {"paused", "running", "cancelling", "cancelled"}


def _examples(document: Any, path: str) -> list[Any]:
    content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    return [example["value"] for example in content["examples"].values()]


class TestRunning:
    """A backfill from its beginning to its end."""

    async def test_each_fire_has_one_run_and_the_ledger_tells_of_it(self, api: httpx.AsyncClient) -> None:
        """SB-160, SB-169: runs of kind backfill with nominal times of their own; a fire that was paused stays so, and says that
        it was backfilled; the next fire of the job is what it was."""
        path = await create(api, {**HOURLY, "schedule": "@every 1s", "time_critical": True})
        job = await post(api, f"{path}/pause")

        async def are_paused() -> list[dict[str, Any]]:
            ledger: list[dict[str, Any]] = await read(api, f"{path}/ledger")
            paused = [entry for entry in ledger if entry["outcome"] == "paused"]
            assert sum(entry["count"] for entry in paused) >= 4
            return paused

        [entry, *_] = await eventually(are_paused)
        first = datetime.fromisoformat(entry["first"])
        span = {"from": first.isoformat(), "to": (first + timedelta(seconds=2)).isoformat()}
        backfill = await begin(api, path, {**span, "max_concurrent": 3, "reason": "incident 7"})
        assert (backfill["job_id"], backfill["total"], backfill["reason"]) == (job["job_id"], 3, "incident 7")
        assert (backfill["requested_by"], backfill["revision"], backfill["existing"]) == ("anonymous", 1, "skip")
        done = await until(api, backfill, "done")
        assert (done["succeeded"], done["done"], done["running"]) == (3, 3, [])
        assert datetime.fromisoformat(done["through"]) == first + timedelta(seconds=2)

        async def are_there() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = await read(api, f"{path}/runs?from={span['from'].replace('+', '%2B')}")
            backfilled = [each for each in found if each["kind"] == "backfill"]
            assert [each["status"] for each in backfilled] == ["success"] * 3
            return backfilled

        runs = await eventually(are_there)
        assert {each["backfill_id"] for each in runs} == {backfill["backfill_id"]}
        nominals = sorted(datetime.fromisoformat(each["scheduled_at"]) for each in runs)
        assert nominals == [first + timedelta(seconds=n) for n in range(3)]
        assert {each["result"] for each in runs} == {"usual"}
        told = (await read(api, f"{path}/ledger"))[0]
        assert sum(each["backfilled"] for each in await are_paused()) == 3, told
        assert (await read(api, path))["state"] == "paused"
        again = await until(api, await begin(api, path, span), "done")
        assert (again["skipped"], again["succeeded"]) == (3, 0)
        counted = await post(api, f"{path}/backfills", {**span, "dry_run": True})
        assert counted["existing_runs"] == 3
        once_more = await until(api, await begin(api, path, {**span, "existing": "run_again"}), "done")
        assert once_more["succeeded"] == 3
        listed = await read(api, f"{path}/backfills?limit=2")
        assert [each["backfill_id"] for each in listed] == [once_more["backfill_id"], again["backfill_id"]]
        await api.delete(path)

    async def test_it_is_paused_resumed_and_cancelled(self, api: httpx.AsyncClient, api_stack: ApiStack) -> None:
        """With what it has begun; whatever is asked twice changes nothing more."""
        path = await create(api, {**HOURLY, "target": {"kind": "activity", "activity": "echo", **NOBODY}})
        backfill = await begin(api, path)
        one = f"/backfills/{backfill['backfill_id']}"

        async def has_begun() -> str:
            running = (await read(api, one))["running"]
            assert len(running) == 1
            found = await api.get(f"/runs/{running[0]}")
            assert found.status_code == 200
            assert found.json()["status"] == "pending"
            return str(running[0])

        run_id = await eventually(has_begun)
        for _ in range(2):
            paused = await post(api, f"{one}/pause", {"reason": "the bank is busy"})
            assert (paused["status"], paused["reason"]) == ("paused", "the bank is busy")
        assert (await post(api, f"{one}/resume"))["status"] == "running"
        assert (await post(api, f"{one}/cancel", {"cancel_active": True}))["status"] in ("cancelling", "cancelled")
        cancelled = await until(api, backfill, "cancelled")
        assert (cancelled["cancelled"], cancelled["done"], cancelled["total"]) == (1, 1, 5)
        assert (await read(api, f"/runs/{run_id}"))["status"] == "cancelled"
        assert (await post(api, f"{one}/cancel"))["status"] == "cancelled"
        for action in ("pause", "resume"):
            answer = await api.post(f"{one}/{action}")
            assert answer.status_code == 409
            assert answer.json()["detail"] == "the backfill is cancelled"
        actions = [entry["action"] for entry in await read(api, f"/audit?job={backfill['job_id']}")]
        steered = ["backfill.create", "backfill.pause", "backfill.pause", "backfill.resume", "backfill.cancel"]
        assert list(reversed(actions)) == ["job.create", *steered]

    async def test_its_definition_is_kept_with_it(self, api: httpx.AsyncClient, api_stack: ApiStack) -> None:
        """For when its workflow is lost: as the job was when it was asked for. The API writes it; and whoever asks for its runs,
        for the API may die before it did."""
        path = await create(api, {**HOURLY, "target": {"kind": "activity", "activity": "echo", **NOBODY}})
        backfill = await begin(api, path)
        await post(api, f"/backfills/{backfill['backfill_id']}/pause")
        await patch(api, path.removeprefix("/jobs/"), {"payload": "another"})
        again = await begin(api, path)
        kept = [await kept_definition(api_stack, each["backfill_id"]) for each in (backfill, again)]
        assert [found and found.payload for found in kept] == ["usual", "another"]
        await api.delete(f"{path}?cancel_active=true")

        begun = await begin_without_api(api, api_stack)
        await until(api, {"backfill_id": begun.record.backfill_id}, "done")
        assert await kept_definition(api_stack, begun.record.backfill_id) == begun.definition

    async def test_deleting_a_job_cancels_its_backfills(self, api: httpx.AsyncClient) -> None:
        """One that is paused too."""
        path = await create(api, {**HOURLY, "target": {"kind": "activity", "activity": "echo", **NOBODY}})
        going, waiting = [await begin(api, path), await begin(api, path)]
        await post(api, f"/backfills/{waiting['backfill_id']}/pause")
        await eventually(lambda: has_begun_one(api, going))
        await api.delete(f"{path}?cancel_active=true")
        for backfill in (going, waiting):
            cancelled = await until(api, backfill, "cancelled")
            assert cancelled["reason"] == "the job was deleted"

    async def test_one_whose_workflow_was_ended_in_temporal_says_so(
        self, api: httpx.AsyncClient, api_stack: ApiStack
    ) -> None:
        """And is not shown as running for ever. Cancelled, it is over, and counts no more as one of those that are not."""
        path = await create(api, {**HOURLY, "target": {"kind": "activity", "activity": "echo", **NOBODY}})
        backfill = await begin(api, path)
        client = await api_stack.temporal()
        about = {"job_id": backfill["job_id"], "backfill_id": backfill["backfill_id"]}
        await client.get_workflow_handle(backfill_workflow_id(tenant="default", **about)).terminate()
        await until(api, backfill, "stopped")
        cancelled = await post(api, f"/backfills/{backfill['backfill_id']}/cancel", {"reason": "it was stopped"})
        assert (cancelled["status"], cancelled["reason"], cancelled["running"]) == ("cancelled", "it was stopped", [])
        assert cancelled["finished_at"] is not None
        await api.delete(f"{path}?cancel_active=true")


async def kept_definition(stack: ApiStack, backfill_id: str) -> JobDefinition | None:
    """What is kept with a backfill of the stack."""
    engine = open_database(stack.database_url)
    definitions = BackfillDefinitions(engine)
    found = await definitions.find_definition(tenant="default", backfill_id=backfill_id)
    await definitions.close()
    await engine.dispose()
    return found


async def begin_without_api(api: httpx.AsyncClient, stack: ApiStack) -> BackfillState:
    """Begin a backfill of five hours, as an API that dies when it has."""
    job_id = (await create(api, HOURLY)).removeprefix("/jobs/")
    hourly = Schedule(rule=IntervalRule(every=timedelta(hours=1)), jitter_window_seconds=0)
    definition = JobDefinition(name="echo", target=ActivityTarget(activity="echo"), schedule=hourly)
    record = first_record(
        BackfillRecord(
            tenant="default",
            job_id=job_id,
            backfill_id=unique("orphan"),
            start=datetime.fromisoformat(NIGHT["from"]),
            end=datetime.fromisoformat(NIGHT["to"]),
            requested_at=datetime.now(UTC),
            total=5,
        )
    )
    state = BackfillState(record=record, definition=definition)
    assert await BackfillControl(await stack.temporal()).begin(state)
    return state


async def has_begun_one(api: httpx.AsyncClient, backfill: dict[str, Any]) -> bool:
    """Whether a run of a backfill is under way."""
    return bool((await read(api, f"/backfills/{backfill['backfill_id']}"))["running"])


class TestCommandLine:
    """``horarium backfill``."""

    async def test_a_range_is_backfilled_by_one_command(self, api: httpx.AsyncClient, api_stack: ApiStack) -> None:
        """As an alert about dropped fires gives it; counted first, and watched to its end."""
        job = (await create(api, HOURLY)).removeprefix("/jobs/")
        arguments = ("backfill", job, "--from", NIGHT["from"], "--to", NIGHT["to"])

        def horarium(*more: str, expect: int = 0) -> Any:
            return run(*more, url=api_stack.api.url, expect=expect)

        def tell() -> None:
            counted = horarium(*arguments, "--dry-run").stdout
            assert counted == "5 fires from 2026-06-01T00:00:00Z to 2026-06-01T04:00:00Z\n"
            unknown = horarium(*arguments, "--dry-run", "--existing", "perhaps", expect=2).stderr
            assert "use one of skip, run_again" in unknown
            watched = horarium(*arguments, "--watch").stdout.splitlines()
            assert watched[-1].endswith("is done: 5 of 5 fires (5 succeeded)")
            name = watched[-1].split()[1]
            listed = horarium("backfill", "list", job).stdout
            assert name in listed
            assert "5/5" in listed
            assert "status: done" in horarium("backfill", "show", name).stdout
            late = horarium("backfill", "pause", name, expect=1)
            assert late.stderr == "horarium: the backfill is done\n"
            wrong = horarium("backfill", job, "--from", NIGHT["from"], "--to", "2999-01-01T00:00Z", expect=2)
            assert "to: lies in the future" in wrong.stderr

        await asyncio.to_thread(tell)
