"""What the API answers while a part of it is away: quickly, honestly, and never with 500."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from tests.api_server import ApiProcess, client_of, first_second_after, serving
from tests.databases import TEMPLATE, PostgresServer
from tests.eventually import eventually
from tests.temporal_servers import connect_to, running_server, server_options, unique
from tests.worker_process import WorkerProcess
from workers.devserver import DevServer

WEEKLY = {"name": "noop", "schedule": "0 9 * * 1"}
EVERY_SECOND = {"name": "noop", "schedule": "@every 1s", "time_critical": True}

QUICKLY = timedelta(seconds=7)
"""The service waits five seconds for Temporal and three for the database."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[DevServer]:
    """A Temporal server that the test may stop, with no worker."""
    with running_server(server_options(tmp_path / "temporal")) as server:
        yield server


@asynccontextmanager
async def quickly() -> AsyncIterator[None]:
    """Fail when the block takes as long as something that hangs."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < QUICKLY.total_seconds()


async def refused_for_now(sending: Awaitable[httpx.Response]) -> httpx.Response:
    """Check that an answer says to come back, soon enough."""
    async with quickly():
        answer = await sending
    assert answer.status_code == 503, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert int(answer.headers["retry-after"]) > 0
    return answer


class TestWithoutTemporal:
    """The database is there."""

    async def test_reads_are_marked_stale_and_writes_are_refused(self, server: DevServer, sqlite_url: str) -> None:
        """What was known last can be read; nothing is promised."""
        async with serving(database_url=sqlite_url, temporal_address=server.options.address) as api:
            job = (await api.post("/jobs", json=WEEKLY)).json()
            assert job["stale"] is False
            server.stop()
            path = f"/jobs/{job['job_id']}"

            async def is_stale() -> bool:
                return bool((await api.get(path)).json()["stale"])

            await eventually(is_stale)
            for each in (path, "/jobs", f"{path}/runs", f"{path}/ledger", f"{path}/upcoming"):
                async with quickly():
                    answer = await api.get(each)
                assert answer.status_code == 200
                assert answer.headers["horarium-stale"] == "true"
            await refused_for_now(api.post("/jobs", json=WEEKLY))
            await refused_for_now(api.delete(path))
            assert (await api.get(path)).json()["state"] == "active"

    async def test_the_service_starts_without_temporal_and_says_that_it_is_not_ready(self, sqlite_url: str) -> None:
        """Alive, but not ready; what needs nobody works."""
        async with serving(database_url=sqlite_url) as api:
            root = api.base_url.copy_with(path="/")
            assert (await api.get(root.join("/healthz"))).status_code == 200
            ready = await api.get(root.join("/readyz"))
            assert (ready.status_code, ready.json()["database"], ready.json()["temporal"]) == (503, "ok", "unavailable")
            assert (await api.post("/preview", json={"schedule": "@daily"})).status_code == 200
            await refused_for_now(api.post("/jobs", json=WEEKLY))

    async def test_a_refused_request_may_be_repeated_with_its_key(self, server: DevServer, sqlite_url: str) -> None:
        """The key is not used up by a failure, and is still that of the request."""
        headers = {"Idempotency-Key": unique("key")}
        async with serving(database_url=sqlite_url) as api:
            await refused_for_now(api.post("/jobs", json=WEEKLY, headers=headers))
        async with serving(database_url=sqlite_url, temporal_address=server.options.address) as api:
            other = await api.post("/jobs", json={**WEEKLY, "name": "other"}, headers=headers)
            assert (other.status_code, "used for a request with another body" in other.text) == (422, True)
            assert (await api.post("/jobs", json=WEEKLY, headers=headers)).status_code == 201
            assert (await api.post("/jobs", json=WEEKLY, headers=headers)).status_code == 200


class TestWithoutWorkers:
    """Temporal keeps what it is told; nobody carries it out."""

    async def test_jobs_are_registered_and_told_to_be_overdue(
        self, server: DevServer, sqlite_url: str, tmp_path: Path
    ) -> None:
        """SB-095: nobody is there, and what is due is pending in the ledger. With a worker, every fire is accounted for."""
        async with serving(database_url=sqlite_url, temporal_address=server.options.address) as api:
            job = (await api.post("/jobs", json=EVERY_SECOND)).json()
            path = f"/jobs/{job['job_id']}"
            assert job["health"]["reasons"] == ["no worker polls task queue 'horarium'"]

            async def has_undecided_fires() -> bool:
                entries = (await api.get(f"{path}/ledger")).json()
                return [entry["outcome"] for entry in entries] == ["pending"] and entries[0]["count"] >= 7

            await eventually(has_undecided_fires)
            assert (await api.get(path)).json()["lag_seconds"] >= 5
            with WorkerProcess(tmp_path, address=server.options.address, database_url=sqlite_url) as worker:
                await worker.until_ready()

                async def has_run() -> bool:
                    return bool((await api.get(f"{path}/runs?status=success")).json())

                await eventually(has_run)
                entries = (await api.get(f"{path}/ledger?limit=500")).json()
                assert entries[0]["first"] == first_second_after(job["created_at"])

    async def test_a_delete_that_was_not_answered_is_repeated_with_its_key(
        self, server: DevServer, sqlite_url: str, tmp_path: Path
    ) -> None:
        """It may still be applied; repeated, it finds that it was."""
        headers = {"Idempotency-Key": unique("key")}
        async with serving(database_url=sqlite_url, temporal_address=server.options.address) as api:
            job = (await api.post("/jobs", json=WEEKLY)).json()
            path = f"/jobs/{job['job_id']}"
            refusal = await refused_for_now(api.delete(path, headers=headers))
            assert "repeat it, with the same Idempotency-Key if it had one" in refusal.json()["detail"]
            with WorkerProcess(tmp_path, address=server.options.address, database_url=sqlite_url) as worker:
                await worker.until_ready()
                answer = await api.delete(path, headers=headers)
                assert (answer.status_code, answer.json()["state"]) == (200, "deleted")

    async def test_a_job_holds_its_quota_until_it_is_known_to_take_less(
        self, server: DevServer, sqlite_url: str, tmp_path: Path
    ) -> None:
        """Though a change to less ended with 503: it may be made or not. Repeated it is made, and the rest is free."""
        async with serving(database_url=sqlite_url, temporal_address=server.options.address) as api:

            async def fires_taken() -> float:
                return float((await api.get("/quota")).json()["fires_per_minute"])

            path = f"/jobs/{(await api.post('/jobs', json=EVERY_SECOND)).json()['job_id']}"
            less, keyed = {"schedule": "@daily"}, {"Idempotency-Key": unique("key")}
            await refused_for_now(api.patch(path, json=less, headers=keyed))
            assert await fires_taken() == 60
            with WorkerProcess(tmp_path, address=server.options.address, database_url=sqlite_url) as worker:
                await worker.until_ready()

                async def is_changed() -> bool:
                    return bool((await api.get(path)).json()["schedule"] == "@daily")

                # The server has kept the change that was not answered.
                await eventually(is_changed)
                assert await fires_taken() == 60
                assert (await api.patch(path, json=less, headers=keyed)).status_code == 200
                assert await fires_taken() < 0.001
                assert (await api.patch(path, json={"schedule": "@every 10s"})).status_code == 200
                assert (await api.patch(path, json={"schedule": "@hourly"})).status_code == 200
                assert await fires_taken() == pytest.approx(1 / 60, abs=1e-5)
                assert (await api.get(path)).json()["revision"] == 4

    async def test_a_start_that_was_not_answered_is_found_again(self, server: DevServer, sqlite_url: str) -> None:
        """The workflow was started and the API died before it told anybody."""
        headers = {"Idempotency-Key": unique("key")}
        async with serving(database_url=sqlite_url, temporal_address=server.options.address) as api:
            job = (await api.post("/jobs", json=WEEKLY, headers=headers)).json()
        client = await connect_to(server)
        assert [each.id async for each in client.list_workflows()] == [f"job/default/{job['job_id']}"]


class TestWithoutDatabase:
    """Temporal is there."""

    @pytest.fixture
    async def api(self, postgres_of_its_own: PostgresServer, server: DevServer) -> AsyncIterator[httpx.AsyncClient]:
        """The API on a database that the test may break."""
        url = postgres_of_its_own.url(TEMPLATE)
        async with serving(database_url=url, temporal_address=server.options.address) as client:
            yield client

    @pytest.mark.parametrize("fault", ["freeze", "kill"])
    async def test_everything_that_needs_it_is_refused_quickly_until_it_is_back(
        self, api: httpx.AsyncClient, postgres_of_its_own: PostgresServer, fault: str
    ) -> None:
        """SB-117: a hung database as a dead one."""
        job = (await api.post("/jobs", json=WEEKLY)).json()
        getattr(postgres_of_its_own, fault)()
        path = f"/jobs/{job['job_id']}"
        reads = [api.get(each) for each in (path, "/jobs", f"{path}/runs", f"{path}/ledger", "/runs/x")]
        keyed = api.post("/jobs", json=WEEKLY, headers={"Idempotency-Key": unique("key")})
        writes = [api.post("/jobs", json=WEEKLY), keyed, api.delete(path)]
        answers = await asyncio.gather(*map(refused_for_now, (*reads, *writes)))
        assert not any("postgres" in answer.text.lower() for answer in answers)
        root = api.base_url.copy_with(path="/")
        assert (await api.get(root.join("/healthz"))).status_code == 200
        assert (await api.get(root.join("/readyz"))).json()["database"] == "unavailable"

        if fault == "freeze":
            postgres_of_its_own.thaw()
        else:
            postgres_of_its_own.start()

        async def is_back() -> bool:
            return (await api.get(path)).status_code == 200

        await eventually(is_back)
        assert (await api.post("/jobs", json=WEEKLY)).status_code == 201

    async def test_a_password_is_told_to_nobody(self, tmp_path: Path) -> None:
        """SB-154: neither an answer nor the log repeats the database's URL."""
        url = "postgresql://horarium:S3CR3T-xyz@127.0.0.1:1/horarium"
        with ApiProcess(tmp_path, address="127.0.0.1:1", database_url=url) as process:
            await process.until_alive()
            async with client_of(process.port) as api:
                answers = [await api.get("/jobs"), await api.post("/jobs", json=WEEKLY), await api.get("/jobs/x")]
            process.process.terminate()
            assert await process.ended() == 0
        assert {answer.status_code for answer in answers} == {503}
        told = [answer.text for answer in answers] + [process.log.read_text()]
        assert not any("S3CR3T" in text for text in told)


class TestProcess:
    """``python -m api``."""

    async def test_a_taken_port_is_one_clear_line(self, tmp_path: Path, sqlite_url: str) -> None:
        """And no trace of a program."""
        with ApiProcess(tmp_path, address="127.0.0.1:1", database_url=sqlite_url) as first:
            await first.until_alive()
            settings = {"database_url": sqlite_url, "api_port": str(first.port)}
            (tmp_path / "second").mkdir()
            with ApiProcess(tmp_path / "second", address="127.0.0.1:1", **settings) as second:
                assert await second.ended() == 2
                (line,) = second.log.read_text().splitlines()
                assert str(first.port) in line

    @pytest.mark.parametrize("url", ["mysql://user:S3CR3T@host/db", "nonsense", "sqlite://"])
    async def test_a_database_that_cannot_be_one_is_one_clear_line(self, tmp_path: Path, url: str) -> None:
        """Without the URL, which may hold a password."""
        with ApiProcess(tmp_path, address="127.0.0.1:1", database_url=url) as process:
            assert await process.ended() == 2
        (line,) = process.log.read_text().splitlines()
        assert line.startswith("HORARIUM_DATABASE_URL")
        assert "S3CR3T" not in line

    async def test_an_empty_database_is_prepared_before_the_first_request(
        self, tmp_path: Path, empty_database_url: str
    ) -> None:
        """Nothing has to be run before."""
        with ApiProcess(tmp_path, address="127.0.0.1:1", database_url=empty_database_url) as process:
            await process.until_alive()
            async with client_of(process.port) as api:
                assert (await api.get("/jobs")).json() == []
            process.process.terminate()
            assert await process.ended() == 0
