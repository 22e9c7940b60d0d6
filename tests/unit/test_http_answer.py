"""What is kept of an HTTP answer, and what it asks for."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from activities.http_answer import BODY_LIMIT, EVIDENCE_LIMIT, Headers, HttpAnswer, keep_answer, retry_after_of

NOW = datetime(2026, 6, 8, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def keep(body: bytes = b"", headers: Headers = (), *, complete: bool = True) -> HttpAnswer:
    """Keep an answer."""
    return keep_answer(200, headers, body, complete=complete, took=timedelta(seconds=0.0126))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", None),
        ("120", timedelta(seconds=120)),
        ("  7 ", timedelta(seconds=7)),
        ("86400", DAY),
        ("31536000", DAY),
        ("9" * 400, DAY),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("١٢", None),
        ("Mon, 08 Jun 2026 12:02:00 GMT", timedelta(minutes=2)),
        ("Monday, 08-Jun-26 12:02:00 GMT", timedelta(minutes=2)),
        ("Mon Jun  8 12:02:00 2026", timedelta(minutes=2)),
        ("Mon, 08 Jun 2026 11:00:00 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", DAY),
        ("Mon, 99 Jun 2026 12:02:00 GMT", None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(text: str, expected: timedelta | None) -> None:
    """Seconds, and the three forms of dates (RFC 9110, 5.6.7); bounded, and nothing where it is no sense or the past."""
    assert retry_after_of([(b"Retry-After", text.encode())], now=NOW) == expected


def test_a_date_is_held_against_the_servers_own_clock() -> None:
    """Which may be hours off."""
    headers = [(b"date", b"Mon, 08 Jun 2026 09:00:00 GMT"), (b"retry-after", b"Mon, 08 Jun 2026 09:00:30 GMT")]
    assert retry_after_of(headers, now=NOW) == timedelta(seconds=30)


def test_the_beginning_of_a_body_is_kept() -> None:
    """And it is said that it goes on."""
    assert keep(b"ok") == HttpAnswer(status=200, body="ok", duration_ms=13)
    long = keep(b"x" * (BODY_LIMIT + 1))
    assert long.truncated
    assert long.body.startswith("xxx")
    assert keep(b"half", complete=False).truncated


@pytest.mark.parametrize("body", [b"x" * 100_000, b"\x00" * 100_000, '"\\é😀'.encode() * 20_000, b"\xff" * 100_000])
def test_what_is_kept_finds_room_in_a_row_whatever_it_is(body: bytes) -> None:
    """As JSON with all characters escaped, too."""
    headers = [(f"x-ratelimit-{number}".encode(), b"\xff" * 5_000) for number in range(10)]
    kept = keep(body, headers)
    assert len(kept.model_dump_json().encode()) <= EVIDENCE_LIMIT
    assert kept.truncated
    json.loads(kept.model_dump_json())


@pytest.mark.parametrize("value", [b"a" * 200, b'"' * 200, b"\x01" * 200, b"\xff" * 200, b""])
@pytest.mark.parametrize("body", [b"", b"because", b"x" * 100_000])
def test_headers_alone_cannot_be_too_much(value: bytes, body: bytes) -> None:
    """However many a server sends, and whatever is in them: the first are kept, and of the body what finds room."""
    headers = [(f"x-ratelimit-{number}".encode(), value) for number in range(1_000)]
    kept = keep(body, headers)
    assert len(kept.model_dump_json().encode()) <= EVIDENCE_LIMIT
    assert len(kept.headers) >= 4
    assert kept.headers["x-ratelimit-0"] == value.decode("latin-1").strip()
    assert kept.body.startswith(body[:5_000].decode())


def test_an_ordinary_answer_is_kept_whole() -> None:
    """With all that proxies and rate limits add to it."""
    names = ["content-type", "date", "server", "via", "cf-ray", "location", "x-request-id", "retry-after"]
    names += [f"{prefix}ratelimit-{kind}" for prefix in ("", "x-") for kind in ("limit", "remaining", "reset", "used")]
    kept = keep(b"x" * 5_000, [(name.encode(), b"v" * 200) for name in names])
    assert kept.headers == dict.fromkeys(names, "v" * 200)
    assert (kept.body, kept.truncated) == ("x" * 5_000, False)


def test_headers_that_explain_are_kept_and_no_others() -> None:
    """No cookie, and of a location no query."""
    headers = [
        (b"Content-Type", b"application/json"),
        (b"Set-Cookie", b"session=S3CR3T"),
        (b"Authorization", b"S3CR3T"),
        (b"X-Request-Id", b"abc"),
        (b"x-amzn-RequestId", b"def"),
        (b"Location", b"https://bank.example/login?token=S3CR3T"),
        (b"RateLimit-Remaining", b"0"),
        (b"X-Something", b"else"),
    ]
    assert keep(headers=headers).headers == {
        "content-type": "application/json",
        "x-request-id": "abc",
        "x-amzn-requestid": "def",
        "location": "https://bank.example/login",
        "ratelimit-remaining": "0",
    }


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ("é".encode(), "", "é"),
        ("é".encode("latin-1"), "text/html; charset=ISO-8859-1", "é"),
        (b"\xe9", "text/html", "\ufffd"),
        (b"x", "text/html; charset=no-such-thing", "x"),
        (b"x", "text/html; charset=" + "a" * 5_000, "x"),
        (b"x", "\xff;;;=", "x"),
        (b"x", "text/plain; charset=idna", "x"),
        (b"x", "text/plain; charset=base64", "x"),
    ],
)
def test_a_body_is_read_in_its_own_character_set(body: bytes, kind: str, text: str) -> None:
    """And never fails, whatever that is."""
    assert keep(body, [(b"content-type", kind.encode("latin-1"))]).body == text
