"""Who is let in, and to what: every route of the API, with every kind of key (SB-148)."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.routing import Mount, Route

from activities.api_key import Scope, draw_key
from activities.database import open_database
from activities.key_store import KeyStore
from api.access import admit, needed_scope
from api.app import create_app
from api.key_ring import REMEMBERED
from api.server_address import is_loopback
from tests.api_keys import add_key, entry_of, new_key, with_key
from tests.api_server import ApiProcess, serving
from tests.databases import TEMPLATE, PostgresServer
from tests.eventually import eventually
from workers.settings import Settings

SOON = REMEMBERED + timedelta(seconds=15)


@pytest.fixture
async def keys(sqlite_url: str) -> dict[Scope, str]:
    """A key of each scope."""
    return {scope: await add_key(sqlite_url, scope=scope) for scope in Scope}


@pytest.fixture
async def api(sqlite_url: str, keys: dict[Scope, str]) -> AsyncIterator[httpx.AsyncClient]:
    """The API, with these keys in its database."""
    async with serving(database_url=sqlite_url) as client:
        yield client


async def operations(api: httpx.AsyncClient) -> list[tuple[str, str, Scope | None]]:
    """List everything in the OpenAPI document: method, path with some id in it, and the scope that it should need."""
    document = (await api.get(f"{api.base_url.copy_with(path='/openapi.json')}")).json()
    found = []
    for path, methods in document["paths"].items():
        filled = "/".join("x" if part.startswith("{") else part for part in path.split("/"))
        found += [(method.upper(), filled, needed_scope(method.upper(), path)) for method in methods]
    return found


async def call(
    api: httpx.AsyncClient, method: str, path: str, *credentials: str, name: str = "Authorization"
) -> httpx.Response:
    url = api.base_url.copy_with(path=path)
    return await api.request(method, url, headers=[(name, each) for each in credentials], json={})


def challenge_in(answer: httpx.Response, status: int) -> str:
    """Check a refusal, and read what it says of the key that would be needed."""
    assert answer.status_code == status, f"{answer.request.method} {answer.request.url}: {answer.text}"
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    challenge = answer.headers["www-authenticate"]
    assert challenge.startswith('Bearer realm="horarium"')
    return challenge


class TestEveryRoute:
    """All that the OpenAPI document has."""

    async def test_without_a_good_key_nobody_is_let_in(self, api: httpx.AsyncClient, keys: dict[Scope, str]) -> None:
        """None, none of ours, a made-up one, a right id with a wrong secret, two at once, one in another scheme."""
        good = keys[Scope.ADMIN]
        bad = [(), ("Bearer x",), (f"Bearer {draw_key()[2]}",), (f"Bearer {good[:-5]}aaaaa",), (f"Basic {good}",)]
        bad += [(good,), ("Bearer",), ("",), (f"Bearer {good}", f"Bearer {good}"), (f"Bearer {good} x",)]
        for method, path, needed in await operations(api):
            for credentials in bad if needed else ():
                challenge_in(await call(api, method, path, *credentials), 401)
            if needed:
                challenge_in(await call(api, method, path, f"Bearer {good}", name="X-Api-Key"), 401)

    async def test_a_key_does_what_its_scope_allows_and_nothing_else(
        self, api: httpx.AsyncClient, keys: dict[Scope, str]
    ) -> None:
        """What is allowed gets past the gate, whatever becomes of it there."""
        for method, path, needed in await operations(api):
            for scope, key in keys.items():
                answer = await call(api, method, path, f"Bearer {key}")
                if needed is None or scope.allows(needed):
                    assert answer.status_code not in (401, 403), f"{scope} {method} {path}: {answer.text}"
                else:
                    assert f'error="insufficient_scope", scope="{needed.value}"' in challenge_in(answer, 403)

    async def test_the_metrics_of_all_tenants_are_for_their_scraper_alone(
        self, api: httpx.AsyncClient, keys: dict[Scope, str]
    ) -> None:
        """The page is in no OpenAPI document, and yet behind the gate."""
        challenge_in(await call(api, "GET", "/metrics"), 401)
        admin, scraper = keys[Scope.ADMIN], keys[Scope.METRICS]
        challenge_in(await call(api, "GET", "/metrics", f"Bearer {admin}"), 403)
        assert (await call(api, "GET", "/metrics", f"Bearer {scraper}")).status_code == 200

    async def test_health_and_documentation_are_open(self, api: httpx.AsyncClient) -> None:
        """Probes have no keys, and the documentation tells nothing of anybody."""
        for path, status in {"/healthz": 200, "/readyz": 503, "/docs": 200, "/openapi.json": 200}.items():
            assert (await call(api, "GET", path)).status_code == status

    async def test_no_route_is_without_the_gate(self) -> None:
        """The application has it, and so every router that is added later; what it does not cover tells nothing."""
        app = create_app(Settings())
        assert admit in [each.dependency for each in app.router.dependencies]
        beside = [route for route in app.routes if isinstance(route, Mount | Route) and not isinstance(route, APIRoute)]
        assert {route.path for route in beside} == {"/openapi.json", "/static-offline-docs"}

    async def test_each_says_in_the_document_what_key_it_needs(self, api: httpx.AsyncClient) -> None:
        """And that it may be refused for want of it."""
        document = (await api.get(f"{api.base_url.copy_with(path='/openapi.json')}")).json()
        assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                needed = needed_scope(method.upper(), path)
                assert operation.get("security") == ([{"key": []}] if needed else None)
                assert needed is None or {"401", "403"} <= operation["responses"].keys()


class TestKeys:
    """How keys come and go."""

    async def test_without_any_key_this_machine_does_as_it_likes(self, sqlite_url: str) -> None:
        """Which is how everybody begins. The first key ends it, within seconds."""
        async with serving(database_url=sqlite_url) as api:
            assert (await api.get("/jobs")).status_code == 200
            assert (await api.get("/audit")).status_code == 200
            key = await add_key(sqlite_url)

            async def is_shut() -> bool:
                return (await api.get("/jobs")).status_code == 401

            await eventually(is_shut, limit=SOON)
            async with with_key(api, key) as keyed:
                assert (await keyed.get("/jobs")).status_code == 200

    async def test_a_new_key_works_at_once_and_a_revoked_one_for_seconds_at_most(
        self, api: httpx.AsyncClient, sqlite_url: str
    ) -> None:
        """On every replica: each reads the keys anew after so long."""
        key, text = new_key()
        engine = open_database(sqlite_url)
        store = KeyStore(engine)
        await store.add(key, entry=entry_of(key))
        async with serving(database_url=sqlite_url) as replica:
            clients = [with_key(api, text), with_key(replica, text)]

            async def all_answer(status: int) -> bool:
                return all([(await client.get("/jobs")).status_code == status for client in clients])

            await eventually(lambda: all_answer(200), limit=timedelta(seconds=5))
            assert await store.revoke(key.key_id, now=datetime.now(UTC), entry=entry_of(key, action="key.revoke"))
            revoked_at = time.monotonic()
            await eventually(lambda: all_answer(401), limit=SOON)
            assert time.monotonic() - revoked_at < SOON.total_seconds()
            assert not await store.revoke(key.key_id, now=datetime.now(UTC), entry=entry_of(key))
            for client in clients:
                assert "revoked" in (await client.get("/jobs")).json()["detail"]
                await client.aclose()
        await engine.dispose()

    async def test_a_key_is_refused_from_its_expiry_on(self, api: httpx.AsyncClient, sqlite_url: str) -> None:
        """Its holder is told why."""
        key, text = new_key(expires_in=timedelta(seconds=3))
        engine = open_database(sqlite_url)
        await KeyStore(engine).add(key, entry=entry_of(key))
        await engine.dispose()
        async with with_key(api, text) as keyed:

            async def is_told() -> bool:
                answer = await keyed.get("/jobs")
                return answer.status_code == 401 and "expired" in answer.json()["detail"]

            await eventually(is_told)

    async def test_the_use_of_a_key_is_noted(self, database_url: str) -> None:
        """To within minutes: a busy key is no write a request."""
        key, _ = new_key()
        engine = open_database(database_url)
        store = KeyStore(engine)
        await store.add(key, entry=entry_of(key))
        noon = datetime(2030, 6, 8, 12, tzinfo=UTC)
        for minutes, noted in ((0, 0), (5, 0), (11, 11), (3, 11)):
            await store.note_use({key.key_id: noon + timedelta(minutes=minutes)})
            [found] = await store.read_keys()
            assert found.last_used_at == noon + timedelta(minutes=noted)
        await engine.dispose()

    async def test_keys_are_read_back_as_they_were_made_by_tenant(self, database_url: str) -> None:
        """Revoked ones too, which the audit log still names."""
        engine = open_database(database_url)
        store = KeyStore(engine)
        keys = [new_key(tenant=tenant, expires_in=timedelta(days=1))[0] for tenant in ("a", "b", "a")]
        for key in keys:
            await store.add(key, entry=entry_of(key))
        assert await store.read_keys() == sorted(keys, key=lambda key: (key.created_at, key.key_id))
        assert {key.key_id for key in await store.read_keys("a")} == {keys[0].key_id, keys[2].key_id}
        assert await store.read_keys("c") == []
        await engine.dispose()


class TestOutage:
    """What is not known is not guessed."""

    async def test_with_the_database_down_nobody_is_let_in(self, postgres_of_its_own: PostgresServer) -> None:
        """503 with a key and without one, also where there were no keys as far as anybody knew; and never 500."""
        async with serving(database_url=postgres_of_its_own.url(TEMPLATE)) as api:
            assert (await api.post("/preview", json={"schedule": "@daily"})).status_code == 200
            postgres_of_its_own.kill()

            async def is_shut() -> bool:
                answer = await api.post("/preview", json={"schedule": "@daily"})
                return answer.status_code == 503 and "retry-after" in answer.headers

            await eventually(is_shut, limit=SOON)
            async with with_key(api, draw_key()[2]) as keyed:
                answers = await asyncio.gather(*(keyed.get("/jobs") for _ in range(20)))
            assert {answer.status_code for answer in answers} == {503}


class TestAddress:
    """Where the service listens."""

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", "", "localhost.example.com"])
    def test_an_address_that_others_may_reach_is_not_of_this_machine(self, host: str) -> None:
        """Of both versions, and whatever a name may stand for."""
        assert not is_loopback(host)
        for each in ("127.0.0.1", "127.0.0.2", "::1", "localhost"):
            assert is_loopback(each)

    async def test_it_refuses_to_listen_where_strangers_could_reach_it(self, tmp_path: Path, sqlite_url: str) -> None:
        """Without keys whoever connects may do everything; the reason is one line."""
        with ApiProcess(tmp_path, address="127.0.0.1:1", database_url=sqlite_url, api_host="0.0.0.0") as process:
            assert await process.ended() == 2
        (line,) = process.log.read_text().splitlines()
        assert line.startswith("HORARIUM_API_HOST")
        assert "horarium keys create" in line

    async def test_with_keys_it_listens_everywhere(self, tmp_path: Path, sqlite_url: str) -> None:
        """And lets in who has one."""
        key = await add_key(sqlite_url)
        with ApiProcess(tmp_path, address="127.0.0.1:1", database_url=sqlite_url, api_host="0.0.0.0") as process:
            await process.until_alive()
            async with httpx.AsyncClient(base_url=f"{process.url}/api/v1") as api, with_key(api, key) as keyed:
                assert (await api.get("/jobs")).status_code == 401
                assert (await keyed.get("/jobs")).status_code == 200
            log = process.log.read_text()
            assert key not in log
            assert key.rpartition("_")[2] not in log

    async def test_without_a_database_it_starts_everywhere_and_stays_shut(self, tmp_path: Path) -> None:
        """Whether there are keys is not known: nobody is let in until it is, and then only with one."""
        path = tmp_path / "horarium.sqlite"
        path.mkdir()
        async with serving(database_url=f"sqlite:///{path}", api_host="0.0.0.0") as api:
            assert (await api.get("/jobs")).status_code == 503
            path.rmdir()

            async def is_shut() -> bool:
                answer = await api.get("/jobs")
                assert answer.status_code in (401, 503)
                return answer.status_code == 401

            await eventually(is_shut, limit=SOON)
            key = await add_key(f"sqlite:///{path}")
            async with with_key(api, key) as keyed:

                async def is_let_in() -> bool:
                    return (await keyed.get("/jobs")).status_code == 200

                await eventually(is_let_in, limit=SOON)
