"""What ``http_request`` sends, what it makes of answers, and where it refuses to go: over real sockets."""

import asyncio
import hashlib
import hmac
import json
import re
import socket
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from activities.http_address import Allowance, parse_allowance
from activities.http_connection import Resolver, resolve
from activities.http_target import HttpSender
from horarium.testing import JobFailure, JobResult, JobStatus, run_job_async
from tests.http_receiver import Answer, Receiver, answer, flood, garbage, hang, hang_up, receiving, trickle

LOCAL = parse_allowance(["127.0.0.1"])
TLS = Path(__file__).parents[1] / "data/tls"
NOON = datetime(2026, 6, 8, 12, tzinfo=UTC)

SPELLINGS = [
    *("127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0x7F.1", "017700000001"),
    *("0", "0.0.0.0", "localhost", "LOCALHOST"),
    *("[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]"),
    *("[::127.0.0.1]", "[64:ff9b::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[2002:7f00:0001::1]"),
    *("[fe80::1]", "[fc00::1]", "[fd00:ec2::254]", "[ff02::1]", "[fec0::1]"),
    *("10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "2852039166", "0xA9FEA9FE", "100.64.0.1"),
    *("100.100.100.200", "168.63.129.16", "224.0.0.1", "255.255.255.255", "198.18.0.1", "192.0.2.1", "①②⑦.⓪.⓪.①"),
]
"""This machine and its neighbourhood, as people have written it past filters."""


async def send(
    url: str,
    *,
    allowance: Allowance = LOCAL,
    resolver: Resolver = resolve,
    trusting: bool = False,
    run: dict[str, Any] | None = None,
    **request: Any,
) -> JobResult:
    """Make one attempt, as a worker does."""
    tls = _trusting_context if trusting else None
    sender = HttpSender(allowance=allowance, resolver=resolver, tls=tls)
    return await run_job_async(sender.http_request, payload={"url": url, **request}, **(run or {}))


def _trusting_context() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(TLS / "authority.pem"))


def serving_tls() -> ssl.SSLContext:
    """What a server at hooks.test has."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "server.pem")
    return context


def resolving(*answers: Sequence[str]) -> Resolver:
    """Give one answer after the other; the last one again and again."""
    left = [list(each) for each in answers]

    async def resolve_as_told(host: str, port: int) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve_as_told


def failure_of(result: JobResult) -> JobFailure:
    """Get the failure of an attempt that must have failed."""
    assert result.status is JobStatus.FAILED, result
    assert result.failure is not None
    return result.failure


def evidence_of(result: JobResult) -> Any:
    """Get what stands in Temporal's history beside a failure."""
    details: Sequence[Any] = getattr(result.error, "details", ())
    return details[1]


def kept_of(result: JobResult) -> dict[str, Any]:
    """Get the answer that a successful attempt has kept."""
    kept = result.require_success()
    assert isinstance(kept, dict)
    return kept


def port_of(receiver: Receiver, host: str) -> str:
    """Name the receiver otherwise."""
    return f"http://{host}:{receiver.port}/"


class TestRequest:
    """What a receiver sees."""

    async def test_it_says_whose_attempt_it_is(self) -> None:
        """The key and the fence are what a receiver needs to act once."""
        run = {
            "job_id": "settle",
            "idempotency_key": "settle-2026-W24",
            "fence": 41,
            "attempt": 2,
            "scheduled_at": NOON,
        }
        async with receiving(answer(201, b'{"id": 7}', Content_Type="application/json")) as receiver:
            result = await send(f"{receiver.url}/pay?x=1", body={"amount": "10 €"}, headers={"X-Team": "a"}, run=run)
        [request] = receiver.received
        assert (request.method, request.target) == ("POST", "/pay?x=1")
        assert json.loads(request.body) == {"amount": "10 €"}
        shown = {name: value for name, value in request.headers.items() if name.startswith(("horarium", "idempotency"))}
        assert shown == {
            "idempotency-key": "settle-2026-W24",
            "horarium-fence": "41",
            "horarium-tenant": "default",
            "horarium-job": "settle",
            "horarium-run": "settle:test",
            "horarium-attempt": "2",
            "horarium-scheduled-at": "2026-06-08T12:00:00Z",
        }
        assert request.headers["content-type"] == "application/json"
        assert request.headers["x-team"] == "a"
        assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
        assert request.headers["user-agent"].startswith("Horarium/")
        kept = kept_of(result)
        assert (kept["status"], kept["body"], kept["truncated"]) == (201, '{"id": 7}', False)
        assert kept["headers"]["content-type"] == "application/json"

    @pytest.mark.parametrize(
        ("request_", "expected"),
        [
            ({"body": "a=b", "headers": {"content-type": "application/x-www-form-urlencoded"}}, ("POST", b"a=b")),
            ({"body": [1, None]}, ("POST", b"[1,null]")),
            ({"body": None}, ("POST", b"")),
            ({"method": "PUT", "body": {}}, ("PUT", b"{}")),
            ({"method": "GET", "body": {"ignored": 1}}, ("GET", b"")),
            ({"method": "DELETE"}, ("DELETE", b"")),
        ],
    )
    async def test_bodies_are_sent_as_they_are_meant(
        self, request_: dict[str, Any], expected: tuple[str, bytes]
    ) -> None:
        """Text as it stands, all else as JSON, and with GET nothing."""
        async with receiving() as receiver:
            (await send(receiver.url, **request_)).require_success()
        [request] = receiver.received
        assert (request.method, request.body) == expected
        if request_.get("headers"):
            assert request.headers["content-type"] == "application/x-www-form-urlencoded"

    async def test_a_job_cannot_write_our_headers(self) -> None:
        """In no case of their letters."""
        forged = {"idempotency-KEY": "x", "horarium-fence": "999", "Accept-Encoding": "gzip"}
        async with receiving() as receiver:
            await send(receiver.url, headers=forged, run={"fence": 5})
        headers = receiver.received[0].headers
        assert (headers["horarium-fence"], headers["accept-encoding"]) == ("5", "identity")
        assert headers["idempotency-key"] != "x"

    async def test_secrets_are_put_in_by_the_worker_and_hidden_from_what_it_tells(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Even where the receiver repeats them (SB-154)."""
        monkeypatch.setenv("HORARIUM_SECRET_BANK", "S3CR3T-xyz")

        async def echo(request: Any, writer: Any) -> None:
            await answer(403, f"bad token {request.headers['authorization']}".encode())(request, writer)

        headers = {"Authorization": ["Bearer ", {"$secret": "bank"}]}
        async with receiving(echo) as receiver:
            result = await send(receiver.url, headers=headers, body={"token": {"$secret": "bank"}})
        assert receiver.received[0].headers["authorization"] == "Bearer S3CR3T-xyz"
        assert json.loads(receiver.received[0].body) == {"token": "S3CR3T-xyz"}
        assert "bad token Bearer ***" in failure_of(result).message
        assert "S3CR3T" not in f"{failure_of(result)} {evidence_of(result)}"

    async def test_headers_are_sent_in_the_letters_that_they_are_checked_for(self) -> None:
        """Latin-1, as HTTP has it."""
        async with receiving() as receiver:
            (await send(receiver.url, headers={"X-City": "Köln"})).require_success()
        assert receiver.received[0].headers["x-city"] == "Köln"

    @pytest.mark.parametrize("secret", ["S3CR3T\r\nX-Evil: 1", "S3CR3T \u20ac"])
    async def test_a_secret_that_no_header_can_hold_is_not_repeated(
        self, secret: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A line break in it would be another header."""
        monkeypatch.setenv("HORARIUM_SECRET_BANK", secret)
        async with receiving() as receiver:
            result = await send(receiver.url, headers={"X-Key": {"$secret": "bank"}})
        failure = failure_of(result)
        assert (failure.type, failure.retryable) == ("InvalidRequest", False)
        assert "S3CR3T" not in str(failure)
        assert receiver.received == []

    async def test_the_signature_is_what_the_documentation_says(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Verified by the very code that receivers are told to use."""
        monkeypatch.setenv("HORARIUM_SECRET_SIGNING", "key of both")
        run = {"idempotency_key": "settle-2026-W24", "fence": 41}
        async with receiving() as receiver:
            await send(receiver.url, body={"amount": 10}, signature={"$secret": "signing"}, run=run)
        [request] = receiver.received
        verify = _documented_verifier()
        assert verify(request.headers, request.body, "key of both")
        assert not verify(request.headers, request.body + b" ", "key of both")
        assert not verify(request.headers, request.body, "another key")
        assert not verify({**request.headers, "horarium-fence": "42"}, request.body, "key of both")
        old = {**request.headers, "horarium-signature": request.headers["horarium-signature"].replace("t=1", "t=0")}
        assert not verify(old, request.body, "key of both")

    async def test_the_signature_is_an_ordinary_hmac(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Computed here by hand."""
        monkeypatch.setenv("HORARIUM_SECRET_SIGNING", "k")
        async with receiving() as receiver:
            await send(
                receiver.url, body="hello", signature={"$secret": "signing"}, run={"fence": 3, "idempotency_key": "a"}
            )
        found = re.fullmatch(r"t=(\d+),v1=([0-9a-f]{64})", receiver.received[0].headers["horarium-signature"])
        assert found
        assert abs(int(found[1]) - datetime.now(UTC).timestamp()) < 60
        assert found[2] == hmac.new(b"k", f"{found[1]}\na\n3\nhello".encode(), hashlib.sha256).hexdigest()


def _documented_verifier() -> Any:
    page = (Path(__file__).parents[2] / "docs/targets.md").read_text()
    [snippet] = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def verify" in code]
    names: dict[str, Any] = {}
    exec(snippet, names)
    return names["verify"]


class TestAnswer:
    """What follows from it."""

    @pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
    async def test_every_2xx_is_a_success(self, status: int) -> None:
        """With no body as well."""
        async with receiving(_bare(status)) as receiver:
            result = await send(receiver.url)
        assert result.status is JobStatus.SUCCESS

    @pytest.mark.parametrize(
        "status", [301, 302, 303, 307, 308, 400, 401, 403, 404, 409, 410, 422, 429, 500, 502, 503, 504]
    )
    async def test_any_other_status_is_a_failure_that_names_it(self, status: int) -> None:
        """The status is told apart from the text, so that whether to try again is decided in one place."""
        async with receiving(answer(status, b"because", Location="https://elsewhere.example/?t=1")) as receiver:
            result = await send(receiver.url)
        failure = failure_of(result)
        assert failure.type == f"HttpStatus{status}"
        assert failure.message.startswith(f"{status} ")
        assert failure.message.endswith(": because")
        report = getattr(result.error, "details", [{}])[0]
        assert report["http_status"] == status
        assert evidence_of(result)["body"] == "because"
        assert len(receiver.received) == 1

    async def test_a_redirect_is_not_followed(self) -> None:
        """Wherever it leads."""
        async with receiving() as other, receiving(answer(307, Location=other.url)) as receiver:
            failure = failure_of(await send(receiver.url))
        assert failure.type == "HttpStatus307"
        assert f"leads to {other.url} and is not followed" in failure.message
        assert other.connections == 0

    async def test_a_job_may_say_what_success_is(self) -> None:
        """Then nothing else is: 409 may well mean that it is done."""
        async with receiving(answer(409), answer(200)) as receiver:
            first = await send(receiver.url, success_statuses=[201, 409])
            second = await send(receiver.url, success_statuses=[201, 409])
        assert first.status is JobStatus.SUCCESS
        assert failure_of(second).type == "HttpStatus200"

    @pytest.mark.parametrize(
        ("status", "value", "expected"),
        [
            (503, "7", timedelta(seconds=7)),
            (429, "7", timedelta(seconds=7)),
            (503, "999999999999", timedelta(days=1)),
            (500, "7", timedelta(seconds=7)),
            (404, "7", None),
            (302, "7", None),
        ],
    )
    async def test_retry_after_is_heeded_where_another_attempt_follows(
        self, status: int, value: str, expected: timedelta | None
    ) -> None:
        """And bounded."""
        async with receiving(answer(status, Retry_After=value)) as receiver:
            failure = failure_of(await send(receiver.url))
        assert failure.retry_after == expected

    async def test_retry_after_may_be_a_date(self) -> None:
        """As HTTP allows."""
        until = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
        async with receiving(answer(503, Retry_After=until)) as receiver:
            failure = failure_of(await send(receiver.url))
        assert failure.retry_after is not None
        assert timedelta(seconds=50) < failure.retry_after <= timedelta(seconds=60)

    async def test_a_huge_body_is_left_with_the_server(self) -> None:
        """One without end costs neither memory nor time, and is a success all the same."""
        async with receiving(flood) as receiver:
            kept = kept_of(await send(receiver.url))
        assert kept["truncated"] is True
        assert 5_000 < len(str(kept["body"])) < 16_384

    async def test_a_flood_of_headers_stops_nobody(self) -> None:
        """All of them are of a kind that is kept, and more than finds room."""
        headers = {f"X_RateLimit_{number}": '"' * 200 for number in range(60)}
        async with receiving(answer(200, b"ok", **headers)) as receiver:
            kept = kept_of(await send(receiver.url))
        assert kept["body"] == "ok"
        assert 0 < len(kept["headers"]) < 60

    async def test_packed_bodies_are_not_unpacked(self) -> None:
        """A few bytes can be gigabytes."""
        async with receiving(answer(200, b"\x1f\x8b\x08\x00", Content_Encoding="gzip")) as receiver:
            kept = kept_of(await send(receiver.url))
        assert kept["headers"]["content-encoding"] == "gzip"

    @pytest.mark.parametrize("reply", [hang, trickle])
    async def test_whoever_takes_too_long_is_left_before_the_attempts_own_timeout(
        self, reply: Answer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """So that it is us who say so. A byte now and then does not help."""
        monkeypatch.setattr("horarium.testing.TIMEOUT", timedelta(seconds=1))
        async with receiving(reply) as receiver:
            began = datetime.now(UTC)
            failure = failure_of(await send(receiver.url))
        assert (failure.type, failure.retryable) == ("Timeout", True)
        assert datetime.now(UTC) - began < timedelta(seconds=1)

    @pytest.mark.parametrize("reply", [hang_up, garbage])
    async def test_a_lost_connection_may_have_done_something(self, reply: Answer) -> None:
        """It is told apart from one that never was."""
        async with receiving(reply) as receiver:
            failure = failure_of(await send(receiver.url))
        assert (failure.type, failure.retryable) == ("ConnectionLost", True)


class TestConnection:
    """Where it goes, and where it does not."""

    async def test_nobody_there_is_a_connect_failure(self) -> None:
        """With what the system says."""
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            unused_port = unused.getsockname()[1]
            failure = failure_of(await send(f"http://127.0.0.1:{unused_port}/"))
        assert (failure.type, failure.retryable) == ("ConnectFailure", True)
        assert f"cannot connect to 127.0.0.1:{unused_port}: " in failure.message

    async def test_a_name_that_does_not_exist_is_a_connect_failure(self) -> None:
        """Name servers have bad days."""
        failure = failure_of(await send("http://no-such-host.invalid/"))
        assert (failure.type, failure.retryable) == ("ConnectFailure", True)
        assert "no-such-host.invalid: the name cannot be resolved" in failure.message

    @pytest.mark.parametrize("host", SPELLINGS)
    async def test_no_spelling_leads_inside(self, host: str) -> None:
        """Nothing is connected to, and no other attempt is made."""
        async with receiving(host="0.0.0.0") as receiver:
            failure = failure_of(await send(port_of(receiver, host), allowance=Allowance()))
        assert failure.type in ("AddressRefused", "InvalidUrl")
        assert not failure.retryable
        assert receiver.connections == 0

    async def test_a_name_that_leads_inside_is_refused(self) -> None:
        """Whatever else it leads to."""
        async with receiving() as receiver:
            for addresses in (["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["::ffff:127.0.0.1"]):
                result = await send(
                    port_of(receiver, "bank.example"), allowance=Allowance(), resolver=resolving(addresses)
                )
                assert failure_of(result).type == "AddressRefused"
        assert receiver.connections == 0

    async def test_a_name_server_that_changes_its_mind_gains_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """DNS rebinding: what was checked is what is connected to, and the next request is checked again."""
        asked = list[object]()
        system = socket.getaddrinfo

        def listen(host: Any, *rest: Any, **more: Any) -> Any:
            asked.append(host)
            return system(host, *rest, **more)

        monkeypatch.setattr(socket, "getaddrinfo", listen)
        resolver = resolving(["127.0.0.1"], ["127.0.0.2"])
        async with receiving() as outside, receiving(host="127.0.0.2", port=outside.port) as inside:
            url = port_of(outside, "bank.example")
            first = await send(url, resolver=resolver)
            second = await send(url, resolver=resolver)
        assert first.status is JobStatus.SUCCESS
        assert outside.received[0].headers["host"] == f"bank.example:{outside.port}"
        assert failure_of(second).type == "AddressRefused"
        assert (outside.connections, inside.connections) == (1, 0)
        assert "bank.example" not in asked

    async def test_the_next_address_is_tried_when_one_does_not_answer(self) -> None:
        """All of them were checked."""
        allowance = parse_allowance(["127.0.0.0/8"])
        async with receiving() as receiver:
            url = port_of(receiver, "bank.example")
            result = await send(url, allowance=allowance, resolver=resolving(["127.0.0.3", "127.0.0.1"]))
        assert result.status is JobStatus.SUCCESS

    async def test_an_allowed_host_is_reached_under_its_name_alone(self) -> None:
        """``HORARIUM_HTTP_ALLOW=hooks.internal`` opens no other name for the same address."""
        allowance, resolver = parse_allowance(["hooks.internal"]), resolving(["127.0.0.1"])
        async with receiving() as receiver:
            allowed = await send(port_of(receiver, "hooks.internal"), allowance=allowance, resolver=resolver)
            other = await send(port_of(receiver, "evil.example"), allowance=allowance, resolver=resolver)
        assert allowed.status is JobStatus.SUCCESS
        assert failure_of(other).type == "AddressRefused"

    async def test_proxies_of_the_environment_are_not_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A proxy would resolve the name where nobody checks it."""
        async with receiving() as receiver, receiving() as proxy:
            for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
                monkeypatch.setenv(name, proxy.url)
                monkeypatch.setenv(name.lower(), proxy.url)
            (await send(receiver.url)).require_success()
        assert proxy.connections == 0

    async def test_a_certificate_is_verified_for_the_name_in_the_url(self) -> None:
        """Although the connection goes to an address."""
        async with receiving(tls=serving_tls()) as receiver:
            resolver = resolving(["127.0.0.1"])
            url = f"https://hooks.test:{receiver.port}/"
            (await send(url, resolver=resolver, trusting=True)).require_success()
            wrong = f"https://other.test:{receiver.port}/"
            failure = failure_of(await send(wrong, resolver=resolver, trusting=True))
        assert failure.type == "ConnectFailure"
        assert "not valid for 'other.test'" in failure.message
        assert len(receiver.received) == 1

    async def test_a_certificate_of_nobody_known_is_refused(self) -> None:
        """Nothing is sent."""
        async with receiving(tls=serving_tls()) as receiver:
            url = f"https://hooks.test:{receiver.port}/"
            failure = failure_of(await send(url, resolver=resolving(["127.0.0.1"])))
        assert failure.type == "ConnectFailure"
        assert "its certificate is not trusted" in failure.message
        assert receiver.received == []

    async def test_plain_http_where_tls_is_expected_is_a_connect_failure(self) -> None:
        """And not a hanging attempt."""

        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            failure = failure_of(await send(f"https://127.0.0.1:{port}/"))
        assert failure.type == "ConnectFailure"

    async def test_a_cancelled_attempt_closes_its_connection(self) -> None:
        """At once, though it has not been answered."""
        async with receiving(hang) as receiver:
            result = await send(receiver.url, run={"cancel_after": timedelta(seconds=0.3)})
            assert (receiver.connections, open_to(receiver)) == (1, [])
        assert result.status is JobStatus.CANCELLED

    async def test_nothing_is_left_open(self) -> None:
        """Each request has a connection of its own, and closes it."""
        async with receiving() as receiver:
            for _ in range(5):
                (await send(receiver.url)).require_success()
            assert (receiver.connections, open_to(receiver)) == (5, [])


def open_to(receiver: Receiver) -> list[object]:
    """Connections of this process to a receiver."""
    connections = psutil.Process().net_connections("tcp")
    return [each for each in connections if each.raddr and each.raddr.port == receiver.port]


def _bare(status: int) -> Answer:
    async def write(_: Any, writer: Any) -> None:
        writer.write(f"HTTP/1.1 {status} Fine\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()

    return write
