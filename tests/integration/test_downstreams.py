"""Breakers, budgets and dead letters as people see them: listed, shown and reset, over HTTP and by the command line."""

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from activities.database import open_database
from activities.downstream_store import REPORT_LASTS, DownstreamStore, is_of_interest
from activities.mirror_writer import MirrorWriter
from tests.api_server import serving
from tests.api_stack import ApiStack, running_stack
from tests.command import run
from tests.eventually import eventually
from tests.integration.test_api_outage import refused_for_now
from tests.integration.test_dead_letters import CODE, create, mend, runs_with, until_dead
from tests.records import NOON, job_record, run_record
from tests.temporal_servers import unique
from workflows.downstream import GateReport
from workflows.job import JobDefinition, Lifecycle, MirrorBatch
from workflows.run import RunStatus


@pytest.fixture(scope="module")
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiStack]:
    """A stack whose breakers open after three failures, for an hour."""
    folder = tmp_path_factory.mktemp("downstreams")
    settings = {"breaker_failures": "3", "breaker_open": "3600", "breaker_longest_open": "3600"}
    with running_stack(request, folder, database="sqlite", job_code=CODE.read_text(), **settings) as stack:
        yield stack


@pytest.fixture
async def api(stack: ApiStack) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the stack's API."""
    async with stack.client() as client:
        yield client


async def downstream_when(api: httpx.AsyncClient, name: str, **wanted: object) -> dict[str, Any]:
    """A downstream, once it is as wanted."""
    answer = await api.get(f"/downstreams/{quote(name, safe='')}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert {key: found[key] for key in wanted} == wanted, found
    return found


async def test_an_open_breaker_is_shown_and_reset(stack: ApiStack, api: httpx.AsyncClient, tmp_path: Path) -> None:
    """Everybody sees why a run waits. After the reset new runs go there at once, whatever ``open_until`` said; resetting it
    again changes nothing."""
    log, name = tmp_path / "calls.jsonl", f"bank:{unique('x')}:8443"
    for job in [await create(api, log, how="connect", downstream=name) for _ in range(3)]:
        await until_dead(api, job)
    shown = await eventually(lambda: downstream_when(api, name, state="open", jobs=3, stale=False))
    opened_at, open_until = (datetime.fromisoformat(shown[key]) for key in ("opened_at", "open_until"))
    assert open_until - opened_at == timedelta(hours=1)
    parked = await create(api, log, how="connect", downstream=name)
    [waiting] = await eventually(lambda: runs_with(api, parked, "parked"))
    assert waiting["reason"] == f"the circuit breaker of {name} is open"
    shown = await eventually(lambda: downstream_when(api, name, parked_runs=1, jobs=4))
    [scheduler] = await eventually(lambda: schedulers_of(api, name))
    assert (scheduler["consecutive_failures"], scheduler["first_attempts"], scheduler["retries"]) == (3, 3, 0)
    listed = (await api.get("/downstreams", params={"limit": "500"})).json()
    assert [each["state"] for each in listed if each["downstream"] == name] == ["open"]
    assert name in run("downstreams", "list", url=stack.api.url).stdout
    assert "FIRST ATTEMPTS" in run("downstreams", "show", name, url=stack.api.url).stdout

    mend(log)
    said = run("downstreams", "reset", name, url=stack.api.url).stdout
    assert said == f"the circuit breaker of {name} is closed; 1 runs wait\n"
    again = await api.post(f"/downstreams/{quote(name, safe='')}/reset")
    assert (again.status_code, again.json()["state"], again.json()["open_until"]) == (200, "closed", None)
    # Within five seconds the scheduler has noticed; until then it parks.
    await eventually(lambda: goes_through(api, log, name), limit=timedelta(seconds=40))


async def schedulers_of(api: httpx.AsyncClient, name: str) -> list[dict[str, Any]]:
    """What schedulers say, once they have heard of three failures."""
    found = await downstream_when(api, name)
    return [each for each in found["schedulers"] if each["consecutive_failures"] == 3]


async def goes_through(api: httpx.AsyncClient, log: Path, name: str) -> bool:
    """Whether a new run is let through."""
    job = await create(api, log, how="connect", downstream=name)

    async def is_decided() -> list[dict[str, Any]]:
        return [each for status in ("success", "parked") for each in await runs_with(api, job, status)]

    [decided] = await eventually(is_decided)
    await api.delete(f"/jobs/{job}", params={"cancel_active": "true"})
    return bool(decided["status"] == "success")


async def test_letters_are_listed_and_redriven_by_the_command_line(
    stack: ApiStack, api: httpx.AsyncClient, tmp_path: Path
) -> None:
    """By their ids, or all that a filter names; how far that is, and an end to it."""
    url, label, log = stack.api.url, unique("team"), tmp_path / "calls.jsonl"
    jobs = [await create(api, log, labels={"team": label}) for _ in range(2)]
    first, second = [await until_dead(api, job) for job in jobs]
    mend(log)
    shown = run("dead-letters", "list", "--label", f"team={label}", url=url).stdout
    assert all(letter["run_id"] in shown for letter in (first, second))
    assert "is run again as" in run("dead-letters", "redrive", first["run_id"], url=url).stdout
    done = run("dead-letters", "redrive", "--all", "--label", f"team={label}", url=url)
    assert done.stdout.endswith(" is done: 1 run again, 0 cannot be\n")
    name = done.stdout.split()[1]
    assert f"`horarium dead-letters cancel {name}` stops it" in done.stderr
    assert run("dead-letters", "progress", name, url=url).stdout == done.stdout
    assert run("dead-letters", "cancel", name, url=url).stdout == done.stdout
    assert json.loads(run("dead-letters", "list", "--label", f"team={label}", "--json", url=url).stdout) == []
    assert "no such bulk redrive" in run("dead-letters", "progress", "never-was", url=url, expect=1).stderr


@pytest.mark.parametrize("name", ["nobody", "a/b", "a%2Fb", "bank:8443/reset", "..", "%00", "\u00e9", "x" * 3_000])
async def test_what_nothing_calls_is_not_found(api: httpx.AsyncClient, name: str) -> None:
    """Whatever stands in the path, encoded or not."""
    for path in (name, quote(name, safe="")):
        assert (await api.get(f"/downstreams/{path}")).status_code == 404
        answer = await api.post(f"/downstreams/{path}/reset")
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


async def test_what_is_asked_wrongly_is_refused(api: httpx.AsyncClient) -> None:
    """Parameters and keys, as everywhere."""
    assert (await api.get("/downstreams?limit=0")).status_code == 422
    assert (await api.get("/downstreams?state=open")).status_code == 422
    assert (await api.get("/downstreams?cursor=x")).status_code == 400
    assert (await api.post("/downstreams/x/reset", headers={"Idempotency-Key": ""})).status_code == 422
    assert (await api.get("/downstreams/x/reset")).status_code == 404


class TestStore:
    """What SQL knows, on both databases."""

    async def test_downstreams_are_listed_by_name_with_jobs_and_parked_runs(self, database_url: str) -> None:
        """Page by page. Deleted jobs call nothing; a run whose activity nobody knows does not wait for its downstream."""
        await fill(database_url)
        engine = open_database(database_url)
        store = DownstreamStore(engine)
        first = await store.list("default", limit=2, now=NOON)
        assert [(each.downstream, each.jobs, each.parked_runs) for each in first.items] == [
            ("a", 1, 0),
            ("b:1/x", 2, 2),
        ]
        second = await store.list("default", cursor=first.next, limit=2, now=NOON)
        assert [each.downstream for each in second.items] == ["c"]
        assert second.next is None
        back = await store.list("default", cursor=second.previous, limit=2, now=NOON)
        assert back.items == first.items
        assert (await store.list("other", now=NOON)).items == ()
        assert (await store.get("default", "b:1/x", now=NOON)).parked_runs == 2
        assert (await store.get("default", "gone", now=NOON)).jobs == 0
        await engine.dispose()

    async def test_each_process_tells_its_own_and_the_old_is_not_told(self, database_url: str) -> None:
        """What one said last counts; half a minute later nothing does."""
        await fill(database_url)
        engine = open_database(database_url)
        store = DownstreamStore(engine)
        for failures in (1, 2):
            await store.write([report("a", "one", consecutive_failures=failures), report("c", "one")])
        await store.write([report("a", "two", open_until=NOON + timedelta(minutes=1))])
        [a, b, c] = (await store.list("default", now=NOON + timedelta(seconds=29))).items
        assert [(each.worker, each.consecutive_failures) for each in a.reports] == [("one", 2), ("two", 0)]
        assert (len(b.reports), len(c.reports)) == (0, 1)
        assert (await store.get("default", "a", now=NOON + REPORT_LASTS)).reports == ()
        await store.forget_old(now=NOON + timedelta(hours=2))
        assert (await store.get("default", "a", now=NOON)).reports == ()
        await engine.dispose()


async def fill(url: str) -> None:
    """Write four jobs that call something, one of them deleted, one that calls nothing, and runs that are parked."""
    calls = {"one": "a", "two": "b:1/x", "three": "b:1/x", "four": "c", "five": ""}
    batches = [
        MirrorBatch(job=job_record(name).model_copy(update={"definition": JobDefinition(downstream=downstream)}))
        for name, downstream in calls.items()
    ]
    deleted = job_record("six").model_copy(
        update={"definition": JobDefinition(downstream="gone"), "lifecycle": Lifecycle.DELETED}
    )
    parked = [
        run_record("two", at=NOON, status=RunStatus.PARKED, reason="the circuit breaker of b is open"),
        run_record("three", at=NOON, status=RunStatus.PARKED, reason="waits its turn: many runs for b"),
        run_record("four", at=NOON, status=RunStatus.PARKED, reason="unknown_activity: nobody knows it"),
        run_record("one", at=NOON, status=RunStatus.RUNNING),
    ]
    writer = MirrorWriter(url)
    for batch in [*batches, MirrorBatch(job=deleted), *(MirrorBatch(runs=(each,)) for each in parked)]:
        await writer.write(batch)
    await writer.close()


def report(downstream: str, worker: str, **fields: Any) -> GateReport:
    """What a process says at noon."""
    return GateReport(tenant="default", downstream=downstream, worker=worker, seen_at=NOON, **fields)


async def test_without_temporal_the_list_is_stale_and_a_reset_is_refused(sqlite_url: str) -> None:
    """What schedulers said last is told, and told to be that; nothing is promised."""
    await fill(sqlite_url)
    engine = open_database(sqlite_url)
    now = datetime.now(UTC)
    said = report("a", "one", open_until=now + timedelta(minutes=5), consecutive_failures=20)
    await DownstreamStore(engine).write([said.model_copy(update={"seen_at": now})])
    await engine.dispose()
    async with serving(database_url=sqlite_url) as api:
        answer = await api.get("/downstreams")
        assert (answer.status_code, answer.headers["horarium-stale"]) == (200, "true")
        a, b, _ = answer.json()
        assert (a["state"], a["stale"], a["schedulers"][0]["consecutive_failures"]) == ("open", True, 20)
        assert datetime.fromisoformat(a["open_until"]) == said.open_until
        # Nobody has said anything of it.
        assert (b["state"], b["parked_runs"]) == (None, 2)
        await refused_for_now(api.post("/downstreams/a/reset"))


async def test_without_the_database_both_say_when_to_come_back(tmp_path: Path) -> None:
    """A file that is no database."""
    (tmp_path / "broken.sqlite").write_bytes(b"x" * 8192)
    async with serving(database_url=f"sqlite:///{tmp_path}/broken.sqlite") as api:
        await refused_for_now(api.get("/downstreams"))


def test_a_process_reports_only_what_it_has_to_do_with() -> None:
    """A downstream that nobody has called for a minute is no news."""
    assert not is_of_interest(report("a", "one", openings=3))
    assert is_of_interest(report("a", "one", first_attempts=1))
    assert is_of_interest(report("a", "one", open_until=NOON))
