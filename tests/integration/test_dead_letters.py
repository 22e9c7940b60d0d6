"""Dead letters and redrives on a whole stack: every final failure once, and each run again at most once."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api_stack import ApiStack, running_stack
from tests.eventually import eventually
from tests.temporal_servers import unique
from tests.worker_process import WorkerProcess

CODE = Path(__file__).with_name("failing_jobs.py")

SETTINGS = {
    "long_sleep_threshold": "3",
    "breaker_failures": "3",
    "retry_budget_floor": "0",
    "retry_budget_ratio": "0",
}
"""Jobs sleep the long way between their fires; no retry has a budget; three failures open a breaker."""


@pytest.fixture(scope="module", params=[pytest.param("sqlite", marks=pytest.mark.slow), "postgresql"])
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiStack]:
    """A stack whose worker has job code that fails, and on which a job has begun to die often."""
    folder = tmp_path_factory.mktemp("letters")
    with running_stack(request, folder, database=request.param, job_code=CODE.read_text(), **SETTINGS) as stack:
        httpx.post(f"{stack.api.url}/api/v1/jobs", json=dying_often(stack)).raise_for_status()
        yield stack


LETTERS = 40
PER_MINUTE = 240

HEARD_WITHIN = timedelta(milliseconds=400)
"""What is sent at a rate is taken by jobs that are busy or not, some sooner than others."""
"""Of a bulk redrive that takes ten seconds."""

OFTEN = 14
"""More than the redrives that a job takes at a time."""


def log_of_dying_often(stack: ApiStack) -> Path:
    """Where the job that dies often counts its calls."""
    return stack.folder / "dying-often" / "calls.jsonl"


def dying_often(stack: ApiStack) -> dict[str, Any]:
    """A job that is over when the tests that take their time are."""
    log_of_dying_often(stack).parent.mkdir()
    return {
        "job_id": "dying-often",
        "name": "break_down",
        "schedule": "@every 1s",
        "time_critical": True,
        "max_runs": OFTEN,
        "payload": {"log": str(log_of_dying_often(stack)), "how": "exception"},
        "max_retries": 0,
        "catch_up_rate": 600,
    }


@pytest.fixture
async def api(stack: ApiStack) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the stack's API."""
    async with stack.client() as client:
        yield client


def soon() -> str:
    """The whole second after the next, as bodies say it."""
    return (datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)).isoformat()


async def create(api: httpx.AsyncClient, log: Path, *, how: str = "exception", **fields: Any) -> str:
    """Register a job whose runs fail; once, at once, with one attempt, unless told otherwise."""
    body = {
        "job_id": unique("job"),
        "name": "break_down",
        "schedule": {"at": soon()},
        "payload": {"log": str(log), "how": how},
        "max_retries": 0,
    }
    answer = await api.post("/jobs", json=body | fields)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job_id"])


async def letters_of(api: httpx.AsyncClient, job: str, **parameters: str) -> list[dict[str, Any]]:
    """The dead letters of a job."""
    answer = await api.get("/dead-letters", params={"job": job} | parameters)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()
    return found


async def until_dead(api: httpx.AsyncClient, job: str) -> dict[str, Any]:
    """Wait for the one dead letter of a job."""
    found: list[dict[str, Any]] = await eventually(lambda: letters_of(api, job))
    [letter] = found
    return letter


async def run_of(api: httpx.AsyncClient, run_id: str) -> dict[str, Any]:
    """A run, as it stands."""
    answer = await api.get(f"/runs/{run_id}")
    assert answer.status_code == 200, answer.text
    run: dict[str, Any] = answer.json()
    return run


async def until_status(api: httpx.AsyncClient, run_id: str, status: str) -> dict[str, Any]:
    """Wait for the end of a run."""

    async def look() -> dict[str, Any]:
        run = await run_of(api, run_id)
        assert run["status"] == status, run
        return run

    return await eventually(look)


async def redrive(api: httpx.AsyncClient, run_id: str) -> httpx.Response:
    """Ask for a redrive that is to be taken."""
    answer = await api.post(f"/dead-letters/{run_id}/redrive")
    assert answer.status_code in (200, 202), answer.text
    return answer


def calls_in(log: Path) -> list[dict[str, Any]]:
    """What the job code has noted."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def mend(log: Path) -> None:
    """Let the jobs with this log work from now on."""
    log.with_name("mended").touch()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where job code counts its calls."""
    return tmp_path / "calls.jsonl"


FINAL_FAILURES: dict[str, tuple[dict[str, Any], str, str]] = {
    "exception": ({"max_retries": 0}, "max_attempts is reached", "ValueError"),
    "retried once": (
        {"how": "exception", "max_retries": 1, "retry_backoff": {"kind": "fixed", "base_seconds": 0.1}},
        "max_attempts is reached",
        "ValueError",
    ),
    "permanent": ({"max_retries": 3}, "the error says never to retry", "PermanentError"),
    "not to be retried": (
        {"how": "exception", "max_retries": 3, "no_retry_on": ["ValueError"]},
        "this kind of error is not retried",
        "ValueError",
    ),
    "too late for another": (
        {
            "how": "exception",
            "max_retries": 3,
            "retry_backoff": {"kind": "fixed", "base_seconds": 60},
            "deadline_seconds": 45,
        },
        "deadline_seconds is over",
        "ValueError",
    ),
    "connect": ({"max_retries": 3, "downstream": "nowhere"}, "retry_budget_exhausted", "ConnectionRefusedError"),
    "timeout": ({"timeout_seconds": 1, "max_retries": 0}, "max_attempts is reached", "timeout"),
    "too_large": ({"max_retries": 3}, "the error says never to retry", "PermanentError"),
}


@pytest.mark.parametrize("name", FINAL_FAILURES)
async def test_every_final_failure_is_a_dead_letter_once(api: httpx.AsyncClient, log: Path, name: str) -> None:
    """SB-107, SB-120: with its reason, all its attempts, the last error and the checkpoint; of too large a result as well."""
    fields, reason, error_type = FINAL_FAILURES[name]
    job = await create(api, log, **({"how": name} | fields))
    letter = await until_dead(api, job)
    assert letter["reason"] == reason
    assert letter["error_type"] == error_type
    assert [attempt["number"] for attempt in letter["attempts"]] == list(range(1, len(calls_in(log)) + 1))
    assert letter["checkpoint"] == {"item": len(calls_in(log))}
    assert letter["redriven_by"] is None
    # The row of the job may be written after those of its runs.
    await eventually(lambda: has_counted_dead(api, job, 1))


async def has_counted_dead(api: httpx.AsyncClient, job: str, count: int) -> bool:
    """Whether a job has counted so many dead runs, and no more."""
    counted: int = (await api.get(f"/jobs/{job}")).json()["counts"]["dead"]
    return counted == count


async def test_a_run_whose_worker_dies_is_a_dead_letter(stack: ApiStack, api: httpx.AsyncClient, log: Path) -> None:
    """SB-107, SB-098: noticed by the missing heartbeats; the checkpoint survived its worker."""
    queue = unique("doomed")
    (log.parent / "team_jobs.py").write_text(CODE.read_text())
    address = stack.server.options.address
    with WorkerProcess(log.parent, address=address, role="job", activities="team_jobs", task_queues=queue) as doomed:
        await doomed.until_ready()
        target = {"kind": "activity", "activity": "break_down", "task_queue": queue}
        job = await create(api, log, how="exit", target=target, heartbeat_timeout_seconds=2, timeout_seconds=30)
        letter = await until_dead(api, job)
    assert (letter["reason"], letter["error_type"]) == ("max_attempts is reached", "lost")
    assert [attempt["status"] for attempt in letter["attempts"]] == ["lost"]


async def test_what_is_cancelled_or_parked_is_no_dead_letter(api: httpx.AsyncClient, log: Path) -> None:
    """SB-107: somebody wanted the one, and the other will go on when the downstream is back."""
    cancelled = await create(api, log, how="timeout", timeout_seconds=60)
    await eventually(lambda: calls_in(log))
    assert (await api.delete(f"/jobs/{cancelled}", params={"cancel_active": "true"})).status_code == 200
    await eventually(lambda: runs_with(api, cancelled, "cancelled"))

    downstream = unique("down")
    for job in [await create(api, log, how="connect", downstream=downstream) for _ in range(3)]:
        # The last of them opens the breaker, and is dead all the same: it has no attempt left.
        assert (await until_dead(api, job))["reason"] == "max_attempts is reached"
    parked = await create(api, log, how="connect", downstream=downstream)
    [run] = await eventually(lambda: runs_with(api, parked, "parked"))
    assert (run["attempt"], run["reason"]) == (0, f"the circuit breaker of {downstream} is open")
    await api.delete(f"/jobs/{parked}", params={"cancel_active": "true"})
    await eventually(lambda: runs_with(api, parked, "cancelled"))
    assert await letters_of(api, cancelled) == await letters_of(api, parked) == []


async def runs_with(api: httpx.AsyncClient, job: str, status: str) -> list[dict[str, Any]]:
    """The runs of a job with a status."""
    answer = await api.get(f"/jobs/{job}/runs", params={"status": status})
    found: list[dict[str, Any]] = answer.json()
    return found


async def test_a_one_off_that_is_over_is_run_again_with_its_key_and_checkpoint(
    api: httpx.AsyncClient, log: Path
) -> None:
    """Its workflow is gone; the job stays completed, and is not fired."""
    job = await create(api, log)
    letter = await until_dead(api, job)
    await eventually(lambda: is_state(api, job, "completed"))
    mend(log)

    answer = await redrive(api, letter["run_id"])
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/api/v1/runs/{answer.json()['run_id']}"
    run = await until_status(api, answer.json()["run_id"], "success")
    assert (run["kind"], run["redrive_of"], run["result"]) == ("redrive", letter["run_id"], "mended")
    assert (run["scheduled_at"], run["idempotency_key"]) == (letter["scheduled_at"], letter["idempotency_key"])
    assert run["fence"] > letter["fence"]
    first, second = calls_in(log)
    assert (second["checkpoint"], second["attempt"], second["key"]) == ({"item": 1}, 1, first["key"])
    assert second["scheduled_at"] == first["scheduled_at"]

    assert (await run_of(api, letter["run_id"]))["redriven_by"] == run["run_id"]
    assert await letters_of(api, job) == []
    assert [each["run_id"] for each in await letters_of(api, job, redriven="true")] == [letter["run_id"]]
    shown = (await api.get(f"/jobs/{job}")).json()
    assert (shown["state"], shown["next_run_at"], shown["counts"]["started"]) == ("completed", None, 1)
    assert shown["last_status"] == "success"


async def is_state(api: httpx.AsyncClient, job: str, state: str) -> bool:
    """Whether a job has a state."""
    return bool((await api.get(f"/jobs/{job}")).json()["state"] == state)


async def test_twice_at_once_is_once(api: httpx.AsyncClient, log: Path) -> None:
    """However many ask for one redrive, and however long after."""
    job = await create(api, log)
    letter = await until_dead(api, job)
    mend(log)
    answers = await asyncio.gather(*(redrive(api, letter["run_id"]) for _ in range(20)))
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    await until_status(api, answers[0].json()["run_id"], "success")
    again = await redrive(api, letter["run_id"])
    assert (again.status_code, again.json()["run_id"]) == (200, answers[0].json()["run_id"])
    assert len(calls_in(log)) == 2


async def test_a_deleted_job_is_not_revived_by_a_redrive(api: httpx.AsyncClient, log: Path) -> None:
    """Its dead run is run again, and nothing else; its id may be registered anew meanwhile and afterwards."""
    job = await create(api, log, schedule="@every 2s", time_critical=True)
    letter = (await eventually(lambda: letters_of(api, job)))[-1]
    assert (await api.delete(f"/jobs/{job}")).status_code == 200
    await eventually(lambda: is_idle(api, job))
    mend(log)
    before = len(calls_in(log))
    run = await until_status(api, (await redrive(api, letter["run_id"])).json()["run_id"], "success")
    assert run["redrive_of"] == letter["run_id"]
    assert len(calls_in(log)) == before + 1
    shown = (await api.get(f"/jobs/{job}")).json()
    assert (shown["state"], shown["next_run_at"]) == ("deleted", None)
    again = await api.post("/jobs", json={"job_id": job, "name": "noop", "schedule": "@daily"})
    assert again.status_code == 201, again.text


async def is_idle(api: httpx.AsyncClient, job: str) -> bool:
    """Whether nothing of a job is under way."""
    return bool((await api.get(f"/jobs/{job}")).json()["active_runs"] == 0)


async def test_a_job_that_sleeps_the_long_way_is_woken_and_keeps_its_fires(api: httpx.AsyncClient, log: Path) -> None:
    """The redrive runs at once; the next fire comes at its time, once, and is not delayed."""
    job = await create(api, log, schedule="@every 8s", time_critical=True)
    letter = await until_dead(api, job)
    mend(log)
    run = await until_status(api, (await redrive(api, letter["run_id"])).json()["run_id"], "success")
    begun, due = datetime.fromisoformat(run["started_at"]), datetime.fromisoformat(letter["scheduled_at"])
    assert begun < due + timedelta(seconds=8)
    [fired] = await eventually(lambda: scheduled_runs(api, job, after=letter["scheduled_at"]))
    assert datetime.fromisoformat(fired["scheduled_at"]) == due + timedelta(seconds=8)
    assert datetime.fromisoformat(fired["started_at"]) < due + timedelta(seconds=10)
    await api.delete(f"/jobs/{job}")


async def scheduled_runs(api: httpx.AsyncClient, job: str, *, after: str) -> list[dict[str, Any]]:
    """The successful fires of a job after a time."""
    runs = await runs_with(api, job, "success")
    return [run for run in runs if run["kind"] == "scheduled" and run["scheduled_at"] > after]


async def test_a_redrive_that_dies_is_a_dead_letter_of_its_own(api: httpx.AsyncClient, log: Path) -> None:
    """It can be redriven in turn; all share one idempotency key, and each has one redrive."""
    job = await create(api, log)
    first = await until_dead(api, job)
    second = await until_status(api, (await redrive(api, first["run_id"])).json()["run_id"], "dead")
    assert [each["run_id"] for each in await letters_of(api, job)] == [second["run_id"]]
    mend(log)
    third = await until_status(api, (await redrive(api, second["run_id"])).json()["run_id"], "success")
    assert len({first["run_id"], second["run_id"], third["run_id"]}) == 3
    assert len({call["key"] for call in calls_in(log)}) == 1
    assert [call["checkpoint"] for call in calls_in(log)] == [None, {"item": 1}, {"item": 1}]
    assert await letters_of(api, job) == []


async def test_only_dead_runs_are_redriven(api: httpx.AsyncClient, log: Path) -> None:
    """404 for what is not there, 409 for what is not dead."""
    mend(log)
    job = await create(api, log)
    [run] = await eventually(lambda: runs_with(api, job, "success"))
    assert (await api.post(f"/dead-letters/{run['run_id']}/redrive")).status_code == 409
    assert (await api.post("/dead-letters/nothing/redrive")).status_code == 404


async def test_many_are_redriven_once_each_by_a_filter(api: httpx.AsyncClient, log: Path) -> None:
    """SB-141: those that the filter names, and no others; what dies again is not redriven again. Repeated, it is the same one."""
    label = unique("team")
    jobs = [await create(api, log, labels={"team": label}) for _ in range(6)]
    other = await create(api, log)
    for job in (*jobs, other):
        await until_dead(api, job)
    body = {"labels": {"team": label}, "rate_per_minute": 300, "limit": 5}
    key = {"Idempotency-Key": unique("key")}
    answer = await api.post("/dead-letters/redrive", json=body, headers=key)
    assert answer.status_code == 202, answer.text
    path = answer.headers["location"].removeprefix("/api/v1")
    done = await eventually(lambda: progress_when(api, path, "done"), limit=timedelta(seconds=60))
    assert (done["redriven"], done["failed"]) == (5, 0)
    repeated = await api.post("/dead-letters/redrive", json=body, headers=key)
    assert (repeated.status_code, repeated.json()["redrive_id"]) == (200, done["redrive_id"])

    redrives = await eventually(lambda: all_dead(api, jobs, kind="redrive", count=5))
    assert len({run["redrive_of"] for run in redrives}) == 5
    assert span_of(redrives) >= 4 * timedelta(minutes=1) / 300 - HEARD_WITHIN
    assert len(calls_in(log)) == 7 + 5
    assert [each["redriven_by"] for each in await letters_of(api, other)] == [None]


def span_of(runs: list[dict[str, Any]]) -> timedelta:
    """The time from the first run to the last, by the clock of their jobs' workflows."""
    begun = [datetime.fromisoformat(run["created_at"]) for run in runs]
    return max(begun) - min(begun)


@pytest.mark.slow
async def test_a_bulk_redrive_keeps_to_its_rate(api: httpx.AsyncClient, log: Path) -> None:
    """One at a time, no more than the rate says, over several looks at the mirror; and it does not dawdle."""
    label = unique("team")
    jobs = [await create(api, log, labels={"team": label}) for _ in range(LETTERS)]
    for job in jobs:
        await until_dead(api, job)
    mend(log)
    answer = await api.post("/dead-letters/redrive", json={"labels": {"team": label}, "rate_per_minute": PER_MINUTE})
    path = answer.headers["location"].removeprefix("/api/v1")
    done = await eventually(lambda: progress_when(api, path, "done"), limit=timedelta(seconds=120))
    assert (done["redriven"], done["failed"]) == (LETTERS, 0)
    redrives = await eventually(lambda: redriven_of(api, jobs))
    span = span_of(redrives)
    per_minute = (LETTERS - 1) * timedelta(minutes=1) / span
    print(f"\n{LETTERS} letters redriven at {per_minute:.0f} a minute, of {PER_MINUTE} that are allowed")
    assert span >= (LETTERS - 1) * timedelta(minutes=1) / PER_MINUTE - HEARD_WITHIN
    assert per_minute > PER_MINUTE / 2


async def redriven_of(api: httpx.AsyncClient, jobs: list[str]) -> list[dict[str, Any]]:
    """The redrives of jobs, once each has one that has succeeded."""
    found = [run for job in jobs for run in await runs_with(api, job, "success") if run["kind"] == "redrive"]
    assert len(found) == len(jobs), len(found)
    return found


async def all_dead(api: httpx.AsyncClient, jobs: list[str], *, kind: str, count: int) -> list[dict[str, Any]]:
    """The dead runs of a kind, once there are so many."""
    found = [run for job in jobs for run in await runs_with(api, job, "dead") if run["kind"] == kind]
    assert len(found) == count, found
    return found


async def progress_when(api: httpx.AsyncClient, path: str, status: str) -> dict[str, Any]:
    """How far a bulk redrive is, once it has a status."""
    progress: dict[str, Any] = (await api.get(path)).json()
    assert progress["status"] == status, progress
    return progress


async def test_two_bulk_redrives_at_once_redrive_each_letter_once(api: httpx.AsyncClient, log: Path) -> None:
    """Both say that they are done; what the one has begun is nothing new to the other."""
    label = unique("team")
    jobs = [await create(api, log, labels={"team": label}) for _ in range(3)]
    for job in jobs:
        await until_dead(api, job)
    mend(log)
    body = {"labels": {"team": label}, "rate_per_minute": 6_000}
    answers = await asyncio.gather(*(api.post("/dead-letters/redrive", json=body) for _ in range(2)))
    paths = [answer.headers["location"].removeprefix("/api/v1") for answer in answers]
    for path in paths:
        assert (await eventually(partial(progress_when, api, path, "done")))["failed"] == 0
    for job in jobs:
        [found] = await eventually(partial(runs_with, api, job, "success"))
        assert found["kind"] == "redrive"
    assert len(calls_in(log)) == 3 + 3


async def test_a_bulk_redrive_is_cancelled_and_says_how_far_it_came(api: httpx.AsyncClient, log: Path) -> None:
    """It begins no more; what it has begun goes on, and what is left can be redriven later."""
    label = unique("team")
    jobs = [await create(api, log, labels={"team": label}) for _ in range(3)]
    for job in jobs:
        await until_dead(api, job)
    answer = await api.post("/dead-letters/redrive", json={"labels": {"team": label}, "rate_per_minute": 6})
    path = answer.headers["location"].removeprefix("/api/v1")

    async def has_begun() -> bool:
        left = (await api.get("/dead-letters", params={"label": f"team:{label}"})).json()
        return len([each for each in left if each["redrive_of"] is None]) < 3

    await eventually(has_begun)
    cancelled = await api.post(f"{path}/cancel")
    assert cancelled.status_code == 202, cancelled.text
    done = await eventually(lambda: progress_when(api, path, "cancelled"))
    assert 1 <= done["redriven"] < 3
    again = await api.post(f"{path}/cancel")
    assert (again.status_code, again.json()) == (202, done)
    left = await eventually(lambda: letters_left(api, label, count=3 - done["redriven"]))
    assert {letter["redriven_by"] for letter in left} == {None}
    assert (await api.post("/dead-letters/redrives/never-was/cancel")).status_code == 404


async def letters_left(api: httpx.AsyncClient, label: str, *, count: int) -> list[dict[str, Any]]:
    """The first deaths of labelled jobs that were not redriven, once there are so many."""
    answer = await api.get("/dead-letters", params={"label": f"team:{label}"})
    found = [letter for letter in answer.json() if letter["redrive_of"] is None]
    assert len(found) == count, found
    return found


async def test_a_bulk_redrive_waits_for_busy_jobs(stack: ApiStack, api: httpx.AsyncClient) -> None:
    """A job takes a few redrives at a time, one after the other; those beyond wait for the next round, and none is lost."""
    job = "dying-often"
    await eventually(lambda: at_least(api, job, OFTEN), limit=timedelta(seconds=40))
    mend(log_of_dying_often(stack))
    answer = await api.post("/dead-letters/redrive", json={"job": job, "rate_per_minute": 6000})
    path = answer.headers["location"].removeprefix("/api/v1")
    done = await eventually(lambda: progress_when(api, path, "done"), limit=timedelta(seconds=60))
    assert done["redriven"] == OFTEN
    await eventually(lambda: at_least(api, job, OFTEN, status="success"), limit=timedelta(seconds=30))
    assert await letters_of(api, job) == []


async def at_least(api: httpx.AsyncClient, job: str, count: int, *, status: str = "dead") -> bool:
    """Whether a job has so many runs with a status."""
    answer = await api.get(f"/jobs/{job}/runs", params={"status": status, "limit": "500"})
    return len(answer.json()) >= count


async def test_letters_are_listed_over_all_jobs_page_by_page(api: httpx.AsyncClient, log: Path) -> None:
    """SB-141: the newest first, none twice and none missing, in both directions, whatever the filter."""
    label = unique("pages")
    jobs = [await create(api, log, labels={"team": label}) for _ in range(5)]
    for job in jobs:
        await until_dead(api, job)
    seen: list[dict[str, Any]] = []
    answer = await api.get("/dead-letters", params={"label": f"team:{label}", "limit": "2"})
    while True:
        seen += answer.json()
        if "next" not in answer.links:
            break
        answer = await api.get(str(answer.links["next"]["url"]).removeprefix("/api/v1"))
    assert sorted(letter["job_id"] for letter in seen) == sorted(jobs)
    assert [letter["finished_at"] for letter in seen] == sorted((each["finished_at"] for each in seen), reverse=True)
    newest = seen[0]["finished_at"]
    found = await api.get("/dead-letters", params={"label": f"team:{label}", "from": newest, "to": newest})
    assert seen[0]["run_id"] in [letter["run_id"] for letter in found.json()]
    assert (await api.get("/dead-letters", params={"label": f"team:{label}", "reason": "not_started"})).json() == []
    assert (await api.get("/dead-letters", params={"cursor": "x"})).status_code == 400
