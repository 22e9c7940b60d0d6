"""The codec endpoint over HTTP: who is let in, from where, and with what."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from temporalio.api.common.v1 import Payload

from activities.api_key import Scope
from horarium.encryption import Ciphers
from horarium.encryption_keys import read_keys
from tests.api_keys import add_key, with_key
from tests.api_server import ApiProcess, serving
from tests.encryption import keys_file

UI = "http://localhost:8233"
PAYLOAD = Payload(metadata={"encoding": b"json/plain"}, data=b'{"iban": "DE17"}')


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """The file of keys."""
    return keys_file(tmp_path / "keys", "2026", "2025")


@pytest.fixture
async def api(sqlite_url: str, keys: Path) -> AsyncIterator[httpx.AsyncClient]:
    """The API with keys for payloads, at its root."""
    async with (
        serving(database_url=sqlite_url, encryption_keys_file=keys, ui_url="http://127.0.0.1:8233") as client,
        httpx.AsyncClient(base_url=client.base_url.copy_with(path="/"), timeout=30) as root,
    ):
        yield root


def sealed(keys: Path, tenant: str) -> dict[str, Any]:
    """A body with one payload of a tenant."""
    payload = Ciphers(read_keys(keys)).seal(PAYLOAD, tenant=tenant)
    metadata = {name: base64.b64encode(value).decode() for name, value in payload.metadata.items()}
    return {"payloads": [{"metadata": metadata, "data": base64.b64encode(payload.data).decode()}]}


def text_in(answer: httpx.Response) -> list[bytes]:
    """Read the payloads of an answer."""
    assert answer.status_code == 200, answer.text
    return [base64.b64decode(each["data"]) for each in answer.json()["payloads"]]


async def test_payloads_are_encrypted_and_decrypted(api: httpx.AsyncClient) -> None:
    """Without API keys for whoever is on this machine, as everything else."""
    plain = {"payloads": [{"metadata": {"encoding": "anNvbi9wbGFpbg=="}, "data": "InNlY3JldCI="}]}
    encoded = await api.post("/codec/encode", json=plain, headers={"X-Namespace": "default"})
    assert b"secret" not in text_in(encoded)[0]
    decoded = await api.post("/codec/decode", json=encoded.json(), headers={"X-Namespace": "default"})
    assert decoded.json() == plain


async def test_it_is_off_without_keys(sqlite_url: str) -> None:
    """And says why."""
    async with serving(database_url=sqlite_url) as client:
        answer = await client.post(client.base_url.copy_with(path="/codec/decode"), json={"payloads": []})
    assert answer.status_code == 404
    assert "HORARIUM_ENCRYPTION_KEYS_FILE is not set" in answer.json()["detail"]


async def test_what_is_wrong_is_said(api: httpx.AsyncClient, keys: Path) -> None:
    """Another namespace, no JSON, too much, and nothing that anybody here encrypted."""
    elsewhere = await api.post("/codec/decode", json={"payloads": []}, headers={"X-Namespace": "other"})
    assert elsewhere.status_code == 422
    assert elsewhere.json()["errors"][0]["parameter"] == "X-Namespace"
    assert (await api.post("/codec/decode", content=b"x")).status_code == 415
    large = b'{"payloads": [{"data": "' + b"A" * 9_000_000 + b'"}]}'
    answer = await api.post("/codec/decode", content=large, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    body = sealed(keys, "default")
    body["payloads"][0]["metadata"]["encryption-key-id"] = base64.b64encode(b"2024").decode()
    unknown = await api.post("/codec/decode", json=body)
    assert unknown.status_code == 422
    assert "key '2024', which this process does not have; it has '2026', '2025'" in unknown.json()["detail"]


async def test_a_key_shows_the_payloads_of_its_tenant_and_no_others(
    api: httpx.AsyncClient, keys: Path, sqlite_url: str
) -> None:
    """Reading needs `read`, writing `write`; another tenant's are refused whatever the scope."""
    blue = await add_key(sqlite_url, tenant="blue", scope=Scope.READ)
    red = await add_key(sqlite_url, tenant="red", scope=Scope.ADMIN)
    metrics = await add_key(sqlite_url, tenant="blue", scope=Scope.METRICS)
    async with with_key(api, blue) as of_blue, with_key(api, red) as of_red, with_key(api, metrics) as scraper:
        body = sealed(keys, "blue")
        assert text_in(await of_blue.post("/codec/decode", json=body)) == [PAYLOAD.data]
        refused = await of_red.post("/codec/decode", json=body)
        assert refused.status_code == 403
        assert refused.json()["detail"] == "payloads/0: of another tenant"
        assert b"DE17" not in refused.content
        assert (await scraper.post("/codec/decode", json=body)).status_code == 403
        assert (await of_blue.post("/codec/encode", json=body)).status_code == 403
        encoded = await of_red.post("/codec/encode", json={"payloads": [{"data": "eA=="}]})
        assert text_in(await of_red.post("/codec/decode", json=encoded.json())) == [b"x"]
        assert (await of_blue.post("/codec/decode", json=encoded.json())).status_code == 403


async def test_a_browser_asks_for_the_web_ui_and_for_no_other_site(api: httpx.AsyncClient, sqlite_url: str) -> None:
    """Before it sends anything, and in the answer, refusals included: or nobody would see the reason."""
    asked = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type,x-namespace,authorization",
    }
    preflight = await api.options("/codec/decode", headers={"Origin": UI, **asked})
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == UI
    assert preflight.headers["access-control-allow-credentials"] == "true"
    stranger = await api.options("/codec/decode", headers={"Origin": "https://example.com", **asked})
    assert stranger.status_code == 400
    assert "access-control-allow-origin" not in stranger.headers
    elsewhere = await api.options("/api/v1/jobs", headers={"Origin": UI, **asked})
    assert "access-control-allow-origin" not in elsewhere.headers
    await add_key(sqlite_url)
    refused = await api.post("/codec/decode", content=b"x", headers={"Origin": UI})
    assert refused.status_code in (401, 415)
    assert refused.headers["access-control-allow-origin"] == UI


def policy_of(page: httpx.Response) -> list[str]:
    """What a browser lets a page do."""
    return page.headers["content-security-policy"].split("; ")


async def test_a_browser_is_given_a_key_once(api: httpx.AsyncClient, keys: Path, sqlite_url: str) -> None:
    """It sends it to the codec alone, scripts do not see it, and it can be forgotten. SB-150: no script runs on its page."""
    key = await add_key(sqlite_url, tenant="blue", scope=Scope.READ)
    body = sealed(keys, "blue")
    first = await api.get("/codec")
    assert "no key" in first.text
    assert {"default-src 'none'", "form-action 'self'", "frame-ancestors 'none'"} <= set(policy_of(first))
    wrong = await api.post("/codec/key", data={"key": "x"})
    assert wrong.status_code == 422
    assert "no API key" in wrong.text
    assert policy_of(wrong) == policy_of(first)
    markup = await api.post("/codec/key", data={"key": "<img src=x onerror=alert(1)>"})
    assert "<img" not in markup.text
    foreign = await api.post("/codec/key", data={"key": key}, headers={"Origin": "https://example.com"})
    assert foreign.status_code == 422
    kept = await api.post("/codec/key", data={"key": f" {key}\n"}, headers={"Origin": str(api.base_url).rstrip("/")})
    assert (kept.status_code, kept.headers["location"]) == (303, "/codec")
    cookie = kept.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/codec"} <= {part.strip() for part in cookie.split(";")}
    page = await api.get("/codec")
    assert key.split("_")[1] in page.text
    assert key not in page.text
    assert text_in(await api.post("/codec/decode", json=body)) == [PAYLOAD.data]
    cookies = {"Cookie": f"horarium_key={key}"}
    assert (await api.get("/api/v1/jobs", headers=cookies)).status_code == 401
    forgotten = await api.post("/codec/key", data={"key": ""})
    assert forgotten.status_code == 303
    assert (await api.post("/codec/decode", json=body)).status_code == 401


@pytest.mark.parametrize(
    ("host", "secure"),
    [
        ("horarium.example.com", True),
        ("10.0.0.7:8000", True),
        ("localhost:8000", False),
        ("127.0.0.1:8000", False),
        ("[::1]:8000", False),
    ],
)
async def test_a_browser_sends_the_key_over_tls_alone_but_on_this_machine(
    api: httpx.AsyncClient, sqlite_url: str, host: str, secure: bool
) -> None:
    """Behind a proxy that ends TLS, too: what it passes on says ``http``."""
    key = await add_key(sqlite_url, scope=Scope.READ)
    kept = await api.post("/codec/key", data={"key": key}, headers={"Host": host})
    assert kept.status_code == 303
    assert ("Secure" in kept.headers["set-cookie"].split("; ")) is secure


async def test_the_api_does_not_start_with_keys_that_cannot_be_used(tmp_path: Path, sqlite_url: str) -> None:
    """One line says which file, and what is wrong with it."""
    file = tmp_path / "keys"
    file.write_text("a c2hvcnQ=")
    with ApiProcess(
        tmp_path, address="127.0.0.1:1", database_url=sqlite_url, encryption_keys_file=str(file)
    ) as process:
        assert await process.ended() == 2
    [line] = process.log.read_text().splitlines()
    assert line == f"HORARIUM_ENCRYPTION_KEYS_FILE: {file}:1: the key 'a' has 5 bytes; AES-256 needs 32"


async def test_it_is_in_the_document(api: httpx.AsyncClient) -> None:
    """With its body."""
    document = json.loads((await api.get("/openapi.json")).text)
    operation = document["paths"]["/codec/decode"]["post"]
    assert "CodecBody" in json.dumps(operation["requestBody"])
    assert "CodecBody" in document["components"]["schemas"]
