"""What a careful client never sends: bytes on a socket. Each is answered with a reason or cut off; nothing is a bug, or hangs."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from api.front import HEADER_LIMIT, LINE_LIMIT
from api.request import BODY_LIMIT
from tests.api_server import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANSWERED_WITHIN = 20.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(module_sqlite_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """The API on an empty database, which stays empty, and whatever was sent before."""
    async with serving(database_url=module_sqlite_url) as client:
        yield client


async def exchange(api: httpx.AsyncClient, *parts: bytes, half_close: bool = False) -> bytes:
    """Send bytes, one part after the other, and read all that comes until the connection ends or the answer is complete."""
    reader, writer = await asyncio.open_connection("127.0.0.1", api.base_url.port)
    async with asyncio.timeout(ANSWERED_WITHIN):
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
            if half_close:
                writer.write_eof()
        except ConnectionError:
            pass
        try:
            return await reader.read(65_536)
        except ConnectionError:
            return b""
        finally:
            writer.close()


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def post(path: str, *headers: bytes, length: int | None = None) -> bytes:
    lines = [f"POST /api/v1{path} HTTP/1.1".encode(), b"Host: x", b"Content-Type: application/json", *headers]
    if length is not None:
        lines.append(f"Content-Length: {length}".encode())
    return b"\r\n".join([*lines, b"", b""])


CHUNKED = b"Transfer-Encoding: chunked"


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200_000 + b"]" * 200_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"name": "\xff\xfe"}',
        b'{"name": "\xed\xa0\x80"}',
        b"\xef\xbb\xbf\xef\xbb\xbf{}",
        b"9" * 200_000,
        b"-" + b"9" * 200_000 + b".5e99999",
        b'{"payload": 1e99999999999}',
        b'{"schedule": {"every": 1' + b"0" * 5_000 + b"}}",
        b'"' + b"\\u0000" * 10_000 + b'"',
        b"{" + b",".join(b'"k%d": 1' % n for n in range(50_000)) + b"}",
        b"\x00" * 1_000,
    ],
)
async def test_a_body_of_any_bytes_is_refused_as_a_problem(api: httpx.AsyncClient, body: bytes) -> None:
    """SB-121: at once by length, and in chunks of odd sizes."""
    answer = await exchange(api, post("/jobs", length=len(body)), body)
    assert status_of(answer) == 422
    assert b"application/problem+json" in answer
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:7], body[7:5_000], body[5_000:]) if part)
    assert status_of(await exchange(api, post("/preview", CHUNKED), chunks, b"0\r\n\r\n")) == 422


async def test_a_chunked_body_without_end_is_cut_off_at_the_limit(api: httpx.AsyncClient) -> None:
    """SB-120: however small its chunks are."""
    size = 4_096
    chunk = b"%x\r\n%s\r\n" % (size, b" " * size)
    answer = await exchange(api, post("/jobs", CHUNKED), *[chunk] * (BODY_LIMIT // size + 2), b"0\r\n\r\n")
    assert status_of(answer) == 413


@pytest.mark.parametrize(
    "request_bytes",
    [
        post("/jobs", b"Content-Length: abc"),
        post("/jobs", b"Content-Length: -5"),
        post("/jobs", b"Content-Length: 99999999999999999999999999"),
        post("/jobs", b"Content-Length: 5", b"Content-Length: 6") + b"[1]",
        post("/jobs", CHUNKED) + b"zz\r\n{}\r\n0\r\n\r\n",
        post("/jobs", CHUNKED) + b"-1\r\n{}\r\n",
        post("/jobs", CHUNKED, b"Content-Length: 2") + b"{}",
        b"GET /api/v1/jobs HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET  /api/v1/jobs\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64 + b"\r\n\r\n",
        b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\nX-Bad\x00Header: y\r\n\r\n",
        b"GET /api/v1/jobs\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_refused(api: httpx.AsyncClient, request_bytes: bytes) -> None:
    """By the HTTP server, in words, or by closing the connection; the service goes on."""
    answer = await exchange(api, request_bytes, half_close=True)
    assert answer == b"" or 400 <= status_of(answer) < 500, answer
    assert (await api.get("/jobs")).status_code == 200


async def test_a_sender_that_goes_away_is_no_error(api: httpx.AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is left behind, and nobody is told of a bug."""
    _, writer = await asyncio.open_connection("127.0.0.1", api.base_url.port)
    writer.write(post("/jobs", length=100) + b'{"name": ')
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await api.get("/jobs")).json() == []
    assert "Traceback" not in caplog.text
    assert "Exception" not in caplog.text


async def test_a_body_that_does_not_come_is_not_waited_for_without_end(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection is not held for ever by who sends a byte an hour."""
    from datetime import timedelta

    monkeypatch.setattr("api.request.BODY_WITHIN", timedelta(seconds=1))
    answer = await exchange(api, post("/jobs", length=100), b'{"name": ')
    assert status_of(answer) == 408
    assert b"too-slow" in answer


async def test_lines_and_headers_have_limits_that_are_told(api: httpx.AsyncClient) -> None:
    """Before anything else is looked at."""
    long = await api.get("/jobs", params={"q": "x" * LINE_LIMIT})
    assert (long.status_code, long.json()["status"]) == (414, 414)
    many = await api.get("/jobs", headers={f"X-{n}": "y" * 1_000 for n in range(HEADER_LIMIT // 1_000 + 1)})
    assert (many.status_code, many.json()["status"]) == (431, 431)
    assert str(HEADER_LIMIT) in many.json()["detail"]


async def test_every_answer_bears_the_id_of_its_request(api: httpx.AsyncClient) -> None:
    """The caller's, if it can be one, for the audit log and for whoever asks; errors too."""
    for path in ("/jobs", "/nowhere", "/jobs?limit=x"):
        assert (await api.get(path)).headers["x-request-id"].startswith("req_")
    assert (await api.get("/jobs", headers={"X-Request-Id": "abc-1"})).headers["x-request-id"] == "abc-1"
    for odd in (b"a b", b"\xff", b"x" * 129, b""):
        assert (await api.get("/jobs", headers=[(b"X-Request-Id", odd)])).headers["x-request-id"].startswith("req_")


async def test_too_many_labels_and_list_entries_are_refused_with_their_place(api: httpx.AsyncClient) -> None:
    """Each list of a body has a bound, which the answer names."""
    job = {"name": "noop", "schedule": "@daily"}
    bodies = {
        "/labels": {**job, "labels": {f"l{n}": "x" for n in range(33)}},
        "/retry_on": {**job, "retry_on": [f"E{n}" for n in range(51)]},
        "/labels/a": {**job, "labels": {"a": "x" * 201}},
    }
    for pointer, body in bodies.items():
        answer = await api.post("/jobs", content=json.dumps(body), headers={"Content-Type": "application/json"})
        assert answer.status_code == 422
        assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
