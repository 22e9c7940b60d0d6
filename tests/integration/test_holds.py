"""Jobs held by their labels over HTTP and by the command line, those that come later included."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.api_stack import ApiStack
from tests.command import run
from tests.eventually import eventually
from tests.temporal_servers import unique
from workflows.command import HoldCommand
from workflows.contracts import UPDATE_HOLD, job_workflow_id
from workflows.job import DEFAULT_TENANT, Hold

EVERY_SECOND: dict[str, Any] = {"name": "noop", "schedule": "@every 1s", "time_critical": True}
WEEKLY: dict[str, Any] = {"name": "noop", "schedule": "0 9 * * 1"}
SECOND = timedelta(seconds=1)


@pytest.fixture
async def api(api_stack: ApiStack) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the stack's API."""
    async with api_stack.client() as client:
        yield client


@pytest.fixture
def team() -> str:
    """A label of this test alone: others share the stack."""
    return unique("team")


async def read(api: httpx.AsyncClient, path: str) -> Any:
    answer = await api.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def post(api: httpx.AsyncClient, path: str, body: Any = None, *, status: int = 200, **headers: str) -> Any:
    answer = await api.post(path, json=body, headers=headers) if body is not None else await api.post(path)
    assert answer.status_code == status, answer.text
    return answer.json()


async def create(api: httpx.AsyncClient, team: str, body: dict[str, Any] = WEEKLY, **labels: str) -> str:
    """Register a job of a team; answers its path."""
    job = await post(api, "/jobs", {**body, "labels": {"team": team, **labels}}, status=201)
    return f"/jobs/{job['job_id']}"


async def hold(api: httpx.AsyncClient, team: str, **fields: Any) -> dict[str, Any]:
    """Hold a team."""
    found: dict[str, Any] = await post(api, "/holds", {"selector": f"team={team}", **fields}, status=201)
    return found


async def is_free(api: httpx.AsyncClient, path: str) -> bool:
    """Whether a job is told as held by nothing."""
    return not (await read(api, path))["holds"]


class TestHold:
    """``/holds``."""

    async def test_jobs_of_a_label_are_held_until_a_time_and_say_why(self, api: httpx.AsyncClient, team: str) -> None:
        """Asleep or awake, others are not; then they fire again, by themselves, on their grid; the ledger has it all."""
        awake, asleep = await create(api, team, EVERY_SECOND), await create(api, team)
        other = await create(api, f"not-{team}")
        until = datetime.now(UTC) + 4 * SECOND
        made = await hold(api, team, until=until.isoformat(), reason="the bank migrates", by="ops")
        assert (made["state"], made["jobs"], made["held"]) == ("in_force", 2, 2)
        assert sorted(made["job_ids"]) == sorted(path.removeprefix("/jobs/") for path in (awake, asleep))
        held = await read(api, awake)
        assert [(each["hold_id"], each["reason"], each["by"]) for each in held["holds"]] == [
            (made["hold_id"], "the bank migrates", "ops")
        ]
        assert held["state"] == "active"
        assert until < datetime.fromisoformat(held["next_run_at"]) <= until + SECOND
        assert (await read(api, f"{awake}/upcoming"))[0]["nominal"] == held["next_run_at"]
        assert (await read(api, other))["holds"] == []

        async def is_told() -> list[dict[str, Any]]:
            told = await read(api, f"{awake}/ledger?from={held['created_at']}")
            outcomes = [entry["outcome"] for entry in told]
            assert "held" in outcomes, told
            assert outcomes[-1] in ("ran", "pending"), told
            return list(told)

        told = await eventually(is_told)
        [entry] = [entry for entry in told if entry["outcome"] == "held"]
        assert made["hold_id"] in entry["reason"]
        assert "the bank migrates" in entry["reason"]
        assert datetime.fromisoformat(entry["last"]) <= until
        assert (await read(api, f"/holds/{made['hold_id']}"))["state"] == "expired"
        await eventually(lambda: is_free(api, asleep))
        await api.delete(awake)

    async def test_a_dry_run_says_which_and_does_nothing(self, api: httpx.AsyncClient, team: str) -> None:
        """``all`` counts every job; nothing is held by it."""
        path = await create(api, team, env="prod")
        asked = {"selector": {"team": team, "env": "prod"}, "dry_run": True}
        told = await post(api, "/holds", asked)
        assert (told["hold_id"], told["state"], told["jobs"], told["held"]) == (None, "dry_run", 1, 0)
        assert told["selector"] == f"team={team},env=prod"
        every = await post(api, "/holds", {"selector": "all", "dry_run": True})
        assert (every["selector"], every["labels"]) == ("all", {})
        assert every["jobs"] >= 1
        assert (await read(api, path))["holds"] == []

    async def test_jobs_that_come_while_it_lasts_are_held(self, api: httpx.AsyncClient, team: str) -> None:
        """Registered by POST or PUT, or given the label by a change; and let go by losing it. Each at once, in the answer."""
        made = await hold(api, team)
        created = await post(api, "/jobs", {**WEEKLY, "labels": {"team": team}}, status=201)
        assert [each["hold_id"] for each in created["holds"]] == [made["hold_id"]]
        assert created["next_run_at"] is None
        job_id = unique("job")
        written = (await api.put(f"/jobs/{job_id}", json=WEEKLY)).json()
        assert written["holds"] == []
        for labels, held in (({"team": team}, True), ({"team": None}, False), ({"team": team, "x": "y"}, True)):
            headers = {"Content-Type": "application/merge-patch+json"}
            changed = (await api.patch(f"/jobs/{job_id}", json={"labels": labels}, headers=headers)).json()
            assert bool(changed["holds"]) is held, changed
            assert (changed["next_run_at"] is None) is held
        assert (await read(api, f"/holds/{made['hold_id']}"))["held"] == 2
        released = await post(api, f"/holds/{made['hold_id']}/release")
        assert (released["state"], released["jobs"], released["held"]) == ("released", 2, 0)
        assert (await read(api, f"/jobs/{job_id}"))["next_run_at"] is not None

    async def test_a_job_is_held_until_the_last_hold_is_gone_and_a_paused_one_stays_paused(
        self, api: httpx.AsyncClient, team: str
    ) -> None:
        """Holds and pauses know nothing of each other."""
        path = await create(api, team, tier="2")
        first = await hold(api, team)
        second = await post(api, "/holds", {"selector": f"team={team},tier=2"}, status=201)
        assert len((await read(api, path))["holds"]) == 2
        assert (await api.delete(f"/holds/{first['hold_id']}")).json()["state"] == "released"
        job = await read(api, path)
        assert [each["hold_id"] for each in job["holds"]] == [second["hold_id"]]
        assert job["next_run_at"] is None
        await post(api, f"{path}/pause")
        await post(api, f"/holds/{second['hold_id']}/release")
        job = await read(api, path)
        assert (job["state"], job["holds"], job["next_run_at"]) == ("paused", [], None)
        assert (await post(api, f"{path}/resume"))["next_run_at"] is not None

    async def test_a_held_job_runs_when_it_is_triggered_and_the_answer_warns(
        self, api: httpx.AsyncClient, team: str
    ) -> None:
        """As a paused one does; it cannot use up a fire that is held."""
        path = await create(api, team)
        made = await hold(api, team, reason="incident 7")
        told = await post(api, f"{path}/trigger", status=202)
        assert told["outcome"] == "started"
        [warning] = told["warnings"]
        assert made["hold_id"] in warning
        assert "incident 7" in warning
        refused = await post(api, f"{path}/trigger", {"skip_next": True}, status=409)
        assert "held" in refused["detail"]
        await post(api, f"/holds/{made['hold_id']}/release")
        assert (await post(api, f"{path}/trigger", status=202))["warnings"] == []

    async def test_a_release_may_catch_up(self, api: httpx.AsyncClient, team: str) -> None:
        """What fell into the hold counts as missed then."""
        path = await create(api, team, {**EVERY_SECOND, "missed_window": "RUN_ONCE"})
        made = await hold(api, team)
        held_at = datetime.now(UTC)
        await eventually(lambda: datetime.now(UTC) > held_at + 3 * SECOND)
        await post(api, f"/holds/{made['hold_id']}/release", {"catch_up": "apply"})

        async def is_caught_up() -> bool:
            runs = await read(api, f"{path}/runs?limit=500")
            return any(each["kind"] == "catch_up" and each["stands_for"] >= 2 for each in runs)

        await eventually(is_caught_up)
        await api.delete(path)

    async def test_the_same_request_is_the_same_hold(self, api: httpx.AsyncClient, team: str) -> None:
        """Repeated with its key; another body under it is refused. Released twice, it is released once."""
        key = unique("key")
        body = {"selector": f"team={team}"}
        first = await post(api, "/holds", body, status=201, **{"Idempotency-Key": key})
        again = await post(api, "/holds", body, status=200, **{"Idempotency-Key": key})
        assert again["hold_id"] == first["hold_id"]
        await post(api, "/holds", {"selector": "all", "dry_run": True}, status=422, **{"Idempotency-Key": key})
        released = await post(api, f"/holds/{first['hold_id']}/release")
        twice = await post(api, f"/holds/{first['hold_id']}/release")
        assert twice["released_at"] == released["released_at"]
        changes = await read(api, "/audit?action=hold.release")
        assert [each["subject"] for each in changes].count(first["hold_id"]) == 1

    async def test_a_job_that_carries_what_was_released_before_is_let_go_by_another_release(
        self, api: httpx.AsyncClient, api_stack: ApiStack, team: str
    ) -> None:
        """One that was away then, and was restored as it had been."""
        path = await create(api, team)
        made = await hold(api, team)
        await post(api, f"/holds/{made['hold_id']}/release")
        job_id = path.removeprefix("/jobs/")
        handle = (await api_stack.temporal()).get_workflow_handle(job_workflow_id(tenant=DEFAULT_TENANT, job_id=job_id))

        async def carries_it() -> bool:
            command = HoldCommand(key=unique("key"), hold=Hold(hold_id=made["hold_id"], at=datetime.now(UTC)))
            await handle.execute_update(UPDATE_HOLD, command)
            return not await is_free(api, path)

        await eventually(carries_it)
        released = await post(api, f"/holds/{made['hold_id']}/release")
        assert (released["state"], released["held"]) == ("released", 0)
        assert await is_free(api, path)

    async def test_holds_are_listed_and_noted(self, api: httpx.AsyncClient, team: str) -> None:
        """In force by default; the audit log has who did what."""
        made = await hold(api, team, reason="r", by="ops")
        assert made["hold_id"] in [each["hold_id"] for each in await read(api, "/holds")]
        await post(api, f"/holds/{made['hold_id']}/release")
        assert made["hold_id"] not in [each["hold_id"] for each in await read(api, "/holds?limit=100")]
        assert made["hold_id"] in [each["hold_id"] for each in await read(api, "/holds?state=over&limit=100")]
        noted = {each["action"]: each for each in await read(api, "/audit") if each["subject"] == made["hold_id"]}
        assert noted["hold.create"]["after"]["selector"] == {"team": team}
        assert noted["hold.release"]["outcome"] == "applied"

    @pytest.mark.parametrize(
        ("body", "pointer", "detail"),
        [
            ({}, "/selector", "required"),
            ({"selector": ""}, "/selector", "give all, or labels"),
            ({"selector": "team"}, "/selector", "give all, or labels"),
            ({"selector": "=finance"}, "/selector", "give all, or labels"),
            ({"selector": "team=a,team=b"}, "/selector", "named twice"),
            ({"selector": "a b=c"}, "/selector", "a label is named by"),
            ({"selector": {}}, "/selector", "for every job"),
            ({"selector": {"a b": "c"}}, "/selector/a b", "a label is named by"),
            ({"selector": 7}, "/selector", "give a string or an object"),
            ({"selector": "all", "until": "2020-01-01T00:00:00Z"}, "/until", "in the future"),
            ({"selector": "all", "until": "tomorrow"}, "/until", ""),
            ({"selector": "all", "catch_up": "perhaps"}, "/catch_up", "none, apply"),
            ({"selector": "all", "colour": "red"}, "/colour", "there is no such field"),
        ],
    )
    async def test_what_is_wrong_is_refused_with_its_place(
        self, api: httpx.AsyncClient, body: dict[str, Any], pointer: str, detail: str
    ) -> None:
        """Field and reason."""
        refused = await post(api, "/holds", body, status=422)
        [error] = refused["errors"]
        assert error["pointer"] == pointer
        assert detail in error["detail"]

    async def test_what_is_not_there_is_404(self, api: httpx.AsyncClient) -> None:
        """Read, released or deleted."""
        for method, path in (("GET", ""), ("POST", "/release"), ("DELETE", "")):
            assert (await api.request(method, f"/holds/h_never{path}")).status_code == 404


async def test_the_command_line_holds_lists_shows_and_releases(api_stack: ApiStack, team: str) -> None:
    """What a person reads, and JSON."""
    url = f"http://127.0.0.1:{api_stack.api.port}"
    async with api_stack.client() as api:
        job_id = (await create(api, team)).removeprefix("/jobs/")
    selector = f"team={team}"
    assert run("hold", "create", selector, "--dry-run", url=url).stdout == f"dry run: {selector} is 1 job: {job_id}\n"
    said = run("hold", "create", selector, "--reason", "r", "--until", "2030-01-01T00:00:00Z", url=url).stdout
    hold_id = said.split()[1]
    assert said == f"hold {hold_id} on {selector} until 2030-01-01T00:00:00Z: 1 of 1 job held\n"
    assert hold_id in run("hold", "list", url=url).stdout
    [row] = [line for line in run("jobs", "list", "--label", selector, url=url).stdout.splitlines() if job_id in line]
    assert row.split()[2] == "held"
    assert f"held by {hold_id} (r)" in run("jobs", "trigger", job_id, url=url).stderr
    shown = run("hold", "show", hold_id, url=url).stdout
    assert "state: in_force" in shown
    assert job_id in shown
    assert json.loads(run("hold", "show", hold_id, "--json", url=url).stdout)["held"] == 1
    released = run("hold", "release", hold_id, url=url).stdout
    assert released == f"hold {hold_id} on {selector} is released\n"
    assert "selector: a label is named twice" in run("hold", "create", "a=1,a=2", url=url, expect=2).stderr
