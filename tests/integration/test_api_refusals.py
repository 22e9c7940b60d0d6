"""Whatever is sent to the API is answered with its reason, as a problem, and never with 500.

No Temporal server is there: what is refused here is refused before anybody is asked.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import httpx
import pytest
import pytest_asyncio

from activities.database import open_database
from activities.idempotency_store import IdempotencyStore, RequestKey
from activities.page import Position, encode_cursor, fingerprint
from api.dead_letter_body import read_bulk_request
from api.idempotency import body_hash
from api.request import BODY_LIMIT
from tests.api_server import serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

JSON = {"Content-Type": "application/json"}
MINIMAL = {"name": "noop", "schedule": "0 9 * * 1"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(module_sqlite_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """The API on an empty database, which stays empty, and whatever was sent before."""
    async with serving(database_url=module_sqlite_url) as client:
        yield client


def problem_in(answer: httpx.Response, status: int) -> dict[str, object]:
    """Check that an answer is a problem of this status, and read it."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, object] = answer.json()
    assert problem["status"] == status
    assert str(problem["type"]).startswith("urn:horarium:problem:")
    assert problem["title"]
    assert problem["detail"]
    assert isinstance(problem["errors"], list)
    return problem


def places_in(problem: dict[str, object]) -> list[object]:
    errors = problem["errors"]
    assert isinstance(errors, list)
    return [error.get("pointer", error.get("parameter")) for error in errors]


class TestBodies:
    """What is no body of a job."""

    @pytest.mark.parametrize(
        "body",
        [
            b"{",
            b'{"name": NaN}',
            b'{"name": "x", "name": "y"}',
            b'{"payload": 1e400}',
            b'{"payload": "\\ud800"}',
            b'{"payload": "\\u0000"}',
            b'{"payload": 18446744073709551616}',
            b'{"payload": ' + b"9" * 100_000 + b"}",
            b'{"payload": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
            b"[" * 100_000,
            b"\xff\xfe",
            b"null",
            b"[]",
            b'"x"',
            b"5",
            b"",
        ],
    )
    async def test_odd_json_is_refused_and_never_a_bug(self, api: httpx.AsyncClient, body: bytes) -> None:
        """SB-121."""
        problem_in(await api.post("/jobs", content=body, headers=JSON), 422)
        if body != b"[]":
            problem_in(await api.post("/preview", content=body, headers=JSON), 422)

    async def test_a_body_of_any_size_above_the_limit_is_told_so(self, api: httpx.AsyncClient) -> None:
        """SB-120: the sender sees the answer, also when the rest of its body is still on the way."""
        for size in (BODY_LIMIT + 1, 5_000_000, 100_000_000):
            problem_in(await api.post("/jobs", content=b'"' + b"x" * (size - 2) + b'"', headers=JSON), 413)

    async def test_a_body_that_is_sent_in_pieces_is_bounded_as_well(self, api: httpx.AsyncClient) -> None:
        """Without a Content-Length the limit holds too."""

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(40):
                yield b" " * 65_536

        problem_in(await api.post("/jobs", content=pieces(), headers=JSON), 413)

    async def test_a_payload_above_its_limit_is_refused_with_its_place(self, api: httpx.AsyncClient) -> None:
        """SB-120."""
        problem = problem_in(await api.post("/jobs", json={**MINIMAL, "payload": "x" * 262_143}), 422)
        assert places_in(problem) == ["/payload"]

    @pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
    async def test_a_body_that_is_not_sent_as_json_is_refused(self, api: httpx.AsyncClient, kind: str | None) -> None:
        """A page of another origin can send only these without asking first (SB-151)."""
        headers = {} if kind is None else {"Content-Type": kind}
        problem_in(await api.post("/jobs", content=json.dumps(MINIMAL).encode(), headers=headers), 415)

    @pytest.mark.parametrize(
        "zone",
        [
            "",
            " UTC",
            "utc",
            "america/new_york",
            "Mars/Base",
            "../../etc/passwd",
            "/etc/localtime",
            "A" * 5_000,
            "Europe/Berlin\x00",
            "Factory",
            "posixrules",
            "localtime",
            "GMT+3",
            "UTC+3",
            "US/Pacific-New",
            "\u00e9",
            ".",
        ],
    )
    async def test_an_unknown_zone_is_refused_whatever_it_looks_like(self, api: httpx.AsyncClient, zone: str) -> None:
        """SB-155."""
        problem = problem_in(await api.post("/jobs", json={**MINIMAL, "timezone": zone}), 422)
        assert places_in(problem) == ["/timezone"]
        problem_in(await api.post("/preview", json={"schedule": "0 9 * * 1", "timezone": zone}), 422)

    @pytest.mark.parametrize(
        "job_id",
        [
            "a/b",
            "a b",
            "a%2Fb",
            "..",
            ".",
            "#x",
            "?y",
            "a\nb",
            "a\n",
            "",
            " ",
            "a" * 256,
            "a" * 10_000,
            "\u0645\u0647\u0645\u0629",
            "\U0001f600",
            "\u00e9",
            "a\u200bb",
            "--help",
            "a:b",
        ],
    )
    async def test_an_id_that_would_not_fit_into_a_path_is_refused(self, api: httpx.AsyncClient, job_id: str) -> None:
        """SB-137: refused at its creation, in words, and never found."""
        problem = problem_in(await api.post("/jobs", json={**MINIMAL, "job_id": job_id}), 422)
        assert places_in(problem) == ["/job_id"]
        assert str(problem["detail"]).startswith("job_id: give 1 to 128 letters (A-Z, a-z), digits, ")

    @pytest.mark.parametrize(
        "every", [0, -1, 0.0001, 0.5, 1e20, 2**63, "60", True, [], {}, "PT0S", "P1M", "-PT5M", "1 hour", ""]
    )
    async def test_an_interval_that_is_none_is_refused(self, api: httpx.AsyncClient, every: object) -> None:
        """SB-133."""
        problem_in(await api.post("/jobs", json={"name": "noop", "schedule": {"every": every}}), 422)

    @pytest.mark.parametrize(
        "schedule",
        [
            "0 0 30 2 *",
            "0 0 31 4 *",
            "0 0 31 2,4,6 *",
            "R R * * *",
            "@reboot",
            "",
            "60 * * * *",
            "*/0 * * * *",
            "0 0 * * *\n* * * * *",
            "\uff10 0 * * *",
            "0 " * 15_000,
            "1970-01-01T00:00:00Z",
            "0 0 * * FRI-MON",
        ],
    )
    async def test_a_schedule_that_never_fires_or_means_nothing_is_refused(
        self, api: httpx.AsyncClient, schedule: str
    ) -> None:
        """SB-026, SB-033, SB-129: at once, with the field."""
        problem = problem_in(await api.post("/jobs", json={"name": "noop", "schedule": schedule}), 422)
        assert places_in(problem) == ["/schedule"]

    @pytest.mark.parametrize("key", ["", "a b", "x" * 256, "x" * 10_000, "\u00e9".encode(), b"\xff"])
    async def test_a_key_that_is_none_is_refused_on_every_post(self, api: httpx.AsyncClient, key: str | bytes) -> None:
        """SB-112: 1 to 255 visible characters."""
        headers = [(b"Idempotency-Key", key.encode() if isinstance(key, str) else key)]
        for path in ("/jobs", "/preview"):
            problem = problem_in(await api.post(path, json=MINIMAL, headers=headers), 422)
            assert places_in(problem) == ["Idempotency-Key"]


class TestKeys:
    """Requests that are repeated too soon."""

    async def test_a_request_that_is_in_progress_says_when_to_ask_again(
        self, api: httpx.AsyncClient, module_sqlite_url: str
    ) -> None:
        """Whoever repeats it while the first is being carried out waits, and is not told of a contradiction for good."""
        engine = open_database(module_sqlite_url)
        claim = RequestKey(tenant="default", scope="POST /jobs", key="held", body_hash=body_hash({**MINIMAL}))
        await IdempotencyStore(engine).claim(claim, now=datetime.now(UTC))
        await engine.dispose()
        answer = await api.post("/jobs", json=MINIMAL, headers={"Idempotency-Key": "held"})
        assert problem_in(answer, 409)["type"] == "urn:horarium:problem:in-progress"
        assert int(answer.headers["retry-after"]) >= 1


class TestDeadLetters:
    """Bodies and parameters of redrives."""

    @pytest.mark.parametrize(
        ("body", "place"),
        [
            ({}, ""),
            ({"limit": 5, "rate_per_minute": 60}, ""),
            ({"labels": {}}, ""),
            ({"all": False}, ""),
            ({"all": True, "job": "x"}, "/all"),
            ({"all": "yes"}, "/all"),
            ({"job": ""}, "/job"),
            ({"job": 5}, "/job"),
            ({"reason": ""}, "/reason"),
            ({"reason": "x" * 201}, "/reason"),
            ({"from": "yesterday"}, "/from"),
            ({"to": "2026-13-01T00:00:00Z"}, "/to"),
            ({"labels": {"team": 5}}, "/labels/team"),
            ({"all": True, "limit": 0}, "/limit"),
            ({"all": True, "limit": 100_001}, "/limit"),
            ({"all": True, "rate_per_minute": 0.5}, "/rate_per_minute"),
            ({"all": True, "rate_per_minute": 1e9}, "/rate_per_minute"),
            ({"all": True, "every": True}, "/every"),
            ([], ""),
            ("all", ""),
        ],
    )
    async def test_a_redrive_of_nothing_in_particular_is_refused(
        self, api: httpx.AsyncClient, body: object, place: str
    ) -> None:
        """A filter that was forgotten does not redrive everything; what is wrong is named."""
        problem = problem_in(await api.post("/dead-letters/redrive", json=body), 422)
        assert places_in(problem) == [place]

    @pytest.mark.parametrize(
        "query",
        [
            "limit=0",
            "redriven=maybe",
            "label=x",
            "from=yesterday",
            "from=-7.7e-228",
            "reason=" + "x" * 201,
            "status=dead",
        ],
    )
    async def test_a_parameter_of_the_list_that_means_nothing_is_refused(
        self, api: httpx.AsyncClient, query: str
    ) -> None:
        """Named, and not ignored."""
        problem = problem_in(await api.get(f"/dead-letters?{query}"), 422)
        assert places_in(problem) == [query.partition("=")[0]]

    async def test_any_text_may_be_looked_for(self, api: httpx.AsyncClient) -> None:
        """It is data, never SQL."""
        for query in ("job=%00", "job='--", "reason=%25", "reason=%00", "label=a:%25"):
            answer = await api.get(f"/dead-letters?{query}")
            assert (answer.status_code, answer.json()) == (200, [])


class TestReads:
    """Paths and parameters that name nothing."""

    @pytest.mark.parametrize(
        "path",
        [
            "/nope",
            "/jobs/a/b",
            "/jobs/nope",
            "/jobs/nope/runs",
            "/jobs/nope/ledger",
            "/jobs/nope/upcoming",
            "/runs/nope",
            "/jobs/a%2Fb",
            "/jobs/%00",
            "/jobs/%ED%A0%80",
            "/jobs/%F0%9F%98%80",
            "/runs/%00",
            f"/jobs/{'a' * 5_000}",
            "/jobs/%2e%2e",
            "/jobs/' OR 1=1 --",
            "/runs/j:20260608T130000Z",
        ],
    )
    async def test_what_is_not_there_is_not_found(self, api: httpx.AsyncClient, path: str) -> None:
        """Any text may stand in a path."""
        problem_in(await api.get(path), 404)

    async def test_a_method_that_a_path_does_not_have_is_told(self, api: httpx.AsyncClient) -> None:
        """With the methods that it has."""
        answer = await api.put("/jobs", json=MINIMAL)
        problem_in(answer, 405)
        assert answer.headers["allow"] == "GET, POST"

    async def test_what_a_path_has_is_named_where_a_method_is_not_there(self, api: httpx.AsyncClient) -> None:
        """All of it, whatever order the routes are in."""
        answer = await api.request("OPTIONS", "/jobs/any")
        problem_in(answer, 405)
        assert answer.headers["allow"] == "DELETE, GET, PATCH, PUT"

    @pytest.mark.parametrize(
        ("given", "place"),
        [
            ({"exclude": {"dates": [0]}}, "/exclude/dates/0"),
            ({"schedule": {"at": 0}}, "/schedule/at"),
            ({"schedule": {"every": 60, "anchor": 0.5}}, "/schedule/anchor"),
            ({"schedule": {"rrule": "FREQ=DAILY", "dtstart": 0}}, "/schedule/dtstart"),
            ({"start_at": 0}, "/start_at"),
            ({"end_at": 1_900_000_000}, "/end_at"),
        ],
    )
    async def test_a_number_is_no_time(self, api: httpx.AsyncClient, given: dict[str, object], place: str) -> None:
        """Neither seconds nor days since 1970."""
        problem = problem_in(await api.post("/jobs", json={**MINIMAL, **given}), 422)
        assert places_in(problem) == [place]

    @pytest.mark.parametrize(
        "query",
        [
            "limit=0",
            "limit=-1",
            "limit=1000000000",
            "limit=abc",
            "limit=",
            "limit=1.5",
            "state=maybe",
            "sort=id",
            "sort=id;DROP TABLE jobs",
            "order=desc,(select 1)",
            "label=x",
            "label=:x",
            "offset=5",
            "q=" + "x" * 201,
        ],
    )
    async def test_a_parameter_that_means_nothing_is_refused(self, api: httpx.AsyncClient, query: str) -> None:
        """SB-142, SB-153: named, and not ignored."""
        problem = problem_in(await api.get(f"/jobs?{query}"), 422)
        assert places_in(problem) == [query.partition("=")[0]]

    async def test_a_page_of_holds_is_smaller_than_others(self, api: httpx.AsyncClient) -> None:
        """The jobs of each are counted."""
        assert (await api.get("/holds?limit=100")).status_code == 200
        assert places_in(problem_in(await api.get("/holds?limit=101"), 422)) == ["limit"]

    @pytest.mark.parametrize(
        "cursor", ["", "garbage", "../..", "W10", "bnVsbA", "WyJhIixmYWxzZSwiYiJd", "\u00e9", "A" * 5_000, "%00"]
    )
    async def test_a_cursor_that_was_not_given_out_is_refused(self, api: httpx.AsyncClient, cursor: str) -> None:
        """SB-142."""
        problem = problem_in(await api.get("/jobs", params={"cursor": cursor}), 400)
        assert places_in(problem) == ["cursor"]

    @pytest.mark.parametrize(
        "moment", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-06-08T12:00:00"]
    )
    async def test_a_cursor_with_a_time_that_no_database_holds_is_refused(
        self, api: httpx.AsyncClient, moment: str
    ) -> None:
        """SB-142: anybody can write one."""
        cursor = encode_cursor(Position((moment, "h_x")), listing=fingerprint("holds", "default", True))
        problem = problem_in(await api.get("/holds", params={"cursor": cursor}), 400)
        assert places_in(problem) == ["cursor"]

    @pytest.mark.parametrize(
        "query", ["q=%25", "q=_", "q='", "q=%00", "q=\\", "name='--", "label=a:%25", "label=a=b:c"]
    )
    async def test_any_text_may_be_searched_for(self, api: httpx.AsyncClient, query: str) -> None:
        """SB-153: it is data, never SQL, and matched as it stands."""
        answer = await api.get(f"/jobs?{query}")
        assert answer.status_code == 200
        assert answer.json() == []

    async def test_a_time_without_a_zone_or_outside_of_time_is_refused(self, api: httpx.AsyncClient) -> None:
        """In the parameters of a range."""
        numbers = ("0", "1780923600", "-1.5")
        outside = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00")
        for moment in ("2026-06-08T09:00:00", "yesterday", *numbers, *outside):
            answer = await api.get("/jobs/x/runs", params={"from": moment})
            assert places_in(problem_in(answer, 422)) == ["from"]

    async def test_an_if_match_that_is_no_revision_is_refused(self, api: httpx.AsyncClient) -> None:
        """Before anything is deleted."""
        for tag in ("3", '"x"', '"1", "2"', ""):
            answer = await api.delete("/jobs/x", headers={"If-Match": tag})
            assert places_in(problem_in(answer, 422)) == ["If-Match"]

    async def test_an_if_none_match_that_says_more_than_that_there_is_none_is_refused(
        self, api: httpx.AsyncClient
    ) -> None:
        """A revision says nothing of a creation, and no job is there and not there."""
        for headers in ({"If-None-Match": '"3"'}, {"If-None-Match": ""}, {"If-None-Match": "*", "If-Match": "*"}):
            answer = await api.put("/jobs/x", json={"name": "noop", "schedule": "@daily"}, headers=headers)
            assert places_in(problem_in(answer, 422)) == ["If-None-Match"]


ELSEWHERE: dict[str, dict[str, str]] = {
    "another site": {"Origin": "https://example.com", "Sec-Fetch-Site": "cross-site"},
    "another port": {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"},
    "behind a proxy": {"Sec-Fetch-Site": "cross-site"},
    "an old browser": {"Origin": "https://example.com"},
    "a file": {"Origin": "null"},
    "no address": {"Origin": "http://[::"},
}
"""What browsers say of a page that is not ours."""


class TestOtherSites:
    """Pages that somebody on this machine looks at. Without keys, nothing else tells them from their reader."""

    @pytest.mark.parametrize("page", ELSEWHERE)
    async def test_a_page_of_another_site_changes_nothing(self, api: httpx.AsyncClient, page: str) -> None:
        """SB-151: whatever the route, with a form or with nothing, which a browser sends without asking first."""
        document = (await api.get(f"{api.base_url.copy_with(path='/openapi.json')}")).json()
        asked = 0
        for template, methods in document["paths"].items():
            path = re.sub(r"{\w+}", "x", template)
            for method in methods.keys() - {"get"} if path.startswith("/api/") else ():
                for form in ({}, {"Content-Type": "application/x-www-form-urlencoded"}):
                    url = api.base_url.copy_with(path=path)
                    answer = await api.request(method, url, headers=ELSEWHERE[page] | form)
                    assert problem_in(answer, 403)["type"] == "urn:horarium:problem:cross-site-request", (
                        f"{method} {path}"
                    )
                    assert "access-control-allow-origin" not in answer.headers
                    asked += 1
        assert asked >= 40

    @pytest.mark.parametrize("page", ELSEWHERE)
    async def test_a_page_of_another_site_reads_nothing(self, api: httpx.AsyncClient, page: str) -> None:
        """SB-151: it may ask, and its browser does not show it the answer; nor is it given leave to send what needs leave."""
        for path in ("/jobs", "/jobs/x", "/audit"):
            answer = await api.get(path, headers=ELSEWHERE[page])
            assert answer.status_code in (200, 404)
            assert not [name for name in answer.headers if name.startswith("access-control-")]
        leave = {"Access-Control-Request-Method": "DELETE", "Access-Control-Request-Headers": "content-type"}
        preflight = await api.options("/jobs/x", headers=ELSEWHERE[page] | leave)
        assert preflight.status_code == 405
        assert not [name for name in preflight.headers if name.startswith("access-control-")]

    @pytest.mark.parametrize("host", ["example.com:8000", "127.0.0.1.example.com", "Example.COM.", "localhost.example"])
    @pytest.mark.parametrize("more", [{}, {"Authorization": "x"}, {"Sec-Fetch-Site": "same-origin"}], ids=str)
    async def test_a_name_that_leads_here_for_now_makes_no_page_ours(
        self, api: httpx.AsyncClient, host: str, more: dict[str, str]
    ) -> None:
        """SB-151: the page of a name that another site has lent this machine (DNS rebinding) reads and changes nothing. Its
        browser takes both for one site, sends no word of where it comes from, and any header that the page likes."""
        for method, path in (("GET", "/jobs"), ("POST", "/jobs/x/trigger")):
            headers = {"Host": host, "Origin": f"http://{host}"} | more
            problem = problem_in(await api.request(method, path, headers=headers), 403)
            assert problem["type"] == "urn:horarium:problem:cross-site-request", f"{method} {path}"
            assert str(problem["detail"]).startswith("Host: ")

    @pytest.mark.parametrize(
        "host",
        ["localhost:8000", "api.localhost", "127.0.0.2", "[::1]:8000", "192.0.2.1", "horarium", "localhost.", "[::"],
    )
    async def test_a_name_that_no_other_site_has_is_ours(self, api: httpx.AsyncClient, host: str) -> None:
        """As in a browser on this machine, and behind a tunnel to it."""
        assert (await api.get("/jobs", headers={"Host": host})).status_code == 200

    @pytest.mark.parametrize(
        "headers", [{"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {"Origin": "self"}, {}]
    )
    async def test_our_own_page_and_what_is_no_browser_are_let_in(
        self, api: httpx.AsyncClient, headers: dict[str, str]
    ) -> None:
        """The page of the documentation has a button for each route."""
        own = {
            name: str(api.base_url.copy_with(path="")) if value == "self" else value for name, value in headers.items()
        }
        answer = await api.post("/jobs", json={}, headers=own)
        assert set(places_in(problem_in(answer, 422))) == {"/name", "/schedule"}


class TestPreview:
    """One body, or many."""

    async def test_each_bad_body_of_a_list_is_answered_in_its_place(self, api: httpx.AsyncClient) -> None:
        """The others are answered all the same; what can be read and never fires says both."""
        bodies = [{"schedule": "@daily", "count": 1}, {"schedule": "61 * * * *"}, {"schedule": "0 0 30 2 *"}, 5, {}]
        answers = (await api.post("/preview", json=bodies)).json()
        assert [answer.get("status") for answer in answers] == [None, 422, 422, 422, 422]
        assert [len(answer.get("fires", "x")) for answer in answers] == [1, 1, 0, 1, 1]
        assert answers[1]["errors"] == [{"pointer": "/schedule", "detail": "minute 61 is outside 0-59", "position": 0}]

    async def test_a_list_holds_a_thousand_bodies(self, api: httpx.AsyncClient) -> None:
        """And not one more, nor more fires than a request should compute."""
        body = {"schedule": "@daily", "count": 1}
        assert len((await api.post("/preview", json=[body] * 1_000)).json()) == 1_000
        problem_in(await api.post("/preview", json=[body] * 1_001), 422)
        problem_in(await api.post("/preview", json=[{**body, "count": 1_000}] * 51), 422)

    async def test_a_long_preview_holds_up_nobody_else(self, api: httpx.AsyncClient) -> None:
        """The event loop goes on while fires are computed."""
        bodies = [{"schedule": f"{n % 60} 4 29 2 1", "timezone": "America/New_York", "count": 40} for n in range(200)]
        computing = asyncio.create_task(api.post("/preview", json=bodies))
        started = asyncio.get_running_loop().time()
        assert (await api.get("/jobs")).status_code == 200
        assert asyncio.get_running_loop().time() - started < 2
        assert len((await computing).json()) == 200

    @pytest.mark.parametrize("count", [-1, 1_001, "5", 1.5, True, 1e300])
    async def test_a_count_that_is_none_is_refused(self, api: httpx.AsyncClient, count: object) -> None:
        """0 to 1,000."""
        problem = problem_in(await api.post("/preview", json={"schedule": "@daily", "count": count}), 422)
        assert places_in(problem) == ["/count"]

    async def test_the_end_of_time_has_no_fires(self, api: httpx.AsyncClient) -> None:
        """SB-134: exhausted, and no error."""
        body = {"schedule": "@daily", "after": "9999-12-31T23:59:00Z"}
        assert (await api.post("/preview", json=body)).json()["fires"] == []
        for timezone in ("Pacific/Auckland", "Pacific/Honolulu"):
            odd = {**body, "timezone": timezone, "start_at": "0001-01-01T00:00:00Z", "end_at": "9999-12-31T23:59:59Z"}
            assert (await api.post("/preview", json=odd)).status_code == 200


class TestDescription:
    """The OpenAPI document."""

    async def test_every_route_tells_its_errors_as_problems(self, api: httpx.AsyncClient) -> None:
        """The framework's own error shape is nowhere."""
        document = (await api.get(f"{api.base_url.copy_with(path='/openapi.json')}")).json()
        assert "HTTPValidationError" not in json.dumps(document)
        for path, methods in document["paths"].items():
            for operation in methods.values():
                if path.startswith("/api/"):
                    errors = {code: each for code, each in operation["responses"].items() if int(code) >= 400}
                    assert errors
                    assert all("application/problem+json" in each["content"] for each in errors.values())

    async def test_every_reference_leads_somewhere(self, api: httpx.AsyncClient) -> None:
        """A document that tools can read."""
        document = (await api.get(f"{api.base_url.copy_with(path='/openapi.json')}")).json()
        schemas = document["components"]["schemas"]
        found = {part.split('"')[0] for part in json.dumps(document).split("#/components/schemas/")[1:]}
        assert found <= set(schemas)

    async def test_every_example_of_a_preview_works_when_pasted(self, api: httpx.AsyncClient) -> None:
        """Those of a job are tried where there is a Temporal server."""
        document = (await api.get(f"{api.base_url.copy_with(path='/openapi.json')}")).json()
        content = document["paths"]["/api/v1/preview"]["post"]["requestBody"]["content"]["application/json"]
        for example in content["examples"].values():
            assert (await api.post("/preview", json=example["value"])).status_code == 200

    async def test_every_example_of_a_redrive_is_one(self, api: httpx.AsyncClient) -> None:
        """They are read as they stand; what they redrive depends on what is dead."""
        document = (await api.get(f"{api.base_url.copy_with(path='/openapi.json')}")).json()
        content = document["paths"]["/api/v1/dead-letters/redrive"]["post"]["requestBody"]["content"]
        for example in content["application/json"]["examples"].values():
            assert read_bulk_request(example["value"], tenant="default", now=datetime.now(UTC)).limit > 0

    async def test_the_page_of_the_documentation_needs_nothing_from_elsewhere(self, api: httpx.AsyncClient) -> None:
        """No script of others runs beside what administers jobs, and it works where nothing else is reached."""
        page = await api.get(f"{api.base_url.copy_with(path='/docs')}")
        assert page.status_code == 200
        sources = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert sources
        for source in sources:
            assert source.startswith("/")
            assert (await api.get(f"{api.base_url.copy_with(path=source)}")).status_code == 200
        assert (await api.get("/docs")).headers["location"] == "/docs"
