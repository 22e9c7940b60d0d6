"""The client of the SDK, against the real API; and against servers that answer as badly as the API never would.

What is tried is the same for both clients: a call of ``Client`` runs in a thread, one of ``AsyncClient`` in the event loop.
"""

import asyncio
import inspect
import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

import horarium
from activities.api_key import Scope
from horarium.client import (
    ApiError,
    AsyncClient,
    CalendarSummary,
    Client,
    Conflict,
    Forbidden,
    HorariumError,
    Invalid,
    KeyReused,
    NeverFires,
    NotFound,
    PreconditionFailed,
    PreconditionRequired,
    Preview,
    Problem,
    QuotaExceeded,
    Retry,
    Run,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
    Unsendable,
)
from tests.api_keys import add_key
from tests.api_server import serving
from tests.api_stack import ApiStack
from tests.eventually import eventually
from tests.http_receiver import Answer, answer, garbage, hang, hang_up, receiving
from tests.markdown_page import snippets_of
from tests.temporal_servers import unique
from workers.devserver import free_port

PAGE: Final = Path(__file__).parents[2] / "docs/client.md"

FAST: Final = Retry(base=timedelta(milliseconds=10))

Work: TypeAlias = Callable[[Any], Any]
Perform: TypeAlias = Callable[..., Any]

REDRIVE: Final = json.dumps({"redrive_id": "r", "status": "running"}).encode()


@pytest.fixture(params=["sync", "async"])
def perform(request: pytest.FixtureRequest) -> Perform:
    """Make a call with a client of its own: ``await perform(url, lambda client: client.jobs.get("a"))``."""

    async def in_thread(url: str, work: Work, **options: Any) -> Any:
        def call() -> Any:
            with Client(url, **options) as client:
                found = work(client)
                return [*found] if inspect.isgenerator(found) else found

        return await asyncio.to_thread(call)

    async def in_loop(url: str, work: Work, **options: Any) -> Any:
        async with AsyncClient(url, **options) as client:
            found = work(client)
            return [each async for each in found] if inspect.isasyncgen(found) else await found

    return in_thread if request.param == "sync" else in_loop


def problem(status: int, name: str = "unavailable", **headers: str) -> Answer:
    body = {"type": f"urn:horarium:problem:{name}", "title": "No.", "status": status, "detail": "not now"}
    return answer(status, json.dumps(body).encode(), Content_Type="application/problem+json", **headers)


class TestRetries:
    """What is repeated, how often, and with which key."""

    async def test_a_change_is_repeated_with_the_key_that_it_had(self, perform: Perform) -> None:
        """Whatever went wrong; another call has another key."""
        bad = (problem(503, Retry_After="0"), hang_up, garbage, problem(409, "in-progress", Retry_After="0"))
        async with receiving(*bad, answer(202, REDRIVE)) as api:
            told = await perform(api.url, lambda client: client.dead_letters.redrive_many(job="a"), retry=FAST)
            assert told.redrive_id == "r"
            assert [each.target for each in api.received] == ["/api/v1/dead-letters/redrive"] * 5
            assert [each.body for each in api.received] == [b'{"job": "a"}'] * 5
            [key] = {each.headers["idempotency-key"] for each in api.received}
            await perform(api.url, lambda client: client.dead_letters.redrive_many(job="a"), retry=FAST)
            assert key != api.received[-1].headers["idempotency-key"]

    async def test_the_callers_own_key_is_kept(self, perform: Perform) -> None:
        """So that another process can repeat the call."""
        async with receiving(answer(202, REDRIVE)) as api:
            await perform(api.url, lambda client: client.dead_letters.redrive_many(every=True, idempotency_key="mine"))
            assert api.received[0].headers["idempotency-key"] == "mine"

    async def test_an_api_that_starts_late_is_waited_for(self, perform: Perform) -> None:
        """A refused connection is tried again."""
        port = free_port()
        patient = Retry(attempts=1_000, base=timedelta(milliseconds=20), cap=timedelta(milliseconds=50))
        url = f"http://127.0.0.1:{port}"
        call = asyncio.create_task(perform(url, lambda client: client.liveness(), retry=patient))
        await asyncio.sleep(0)
        async with receiving(answer(200, b'{"status": "ok"}'), port=port):
            assert (await call).status == "ok"

    async def test_nobody_there_is_said_so(self, perform: Perform) -> None:
        """With where, and that nothing was sent."""
        url = f"http://127.0.0.1:{free_port()}"
        with pytest.raises(Unreachable, match=f"cannot reach the API at {url}") as caught:
            await perform(url, lambda client: client.jobs.get("a"), retry=FAST)
        assert not caught.value.was_sent

    async def test_an_answer_that_does_not_come_is_not_waited_for_ever(self, perform: Perform) -> None:
        """And the next attempt may bring it."""
        async with receiving(hang, answer(200, b'{"status": "ok"}')) as api:
            await perform(api.url, lambda client: client.liveness(), retry=FAST, timeout=timedelta(seconds=0.2))
            assert len(api.received) == 2

    @pytest.mark.parametrize(
        ("bad", "error", "requests"),
        [
            (problem(429, "quota-exceeded"), QuotaExceeded, 1),
            (problem(429, "slow-down", Retry_After="0"), QuotaExceeded, 5),
            (problem(503, Retry_After="3600"), Unavailable, 1),
            (problem(503), Unavailable, 5),
            (problem(503, Retry_After="Thu, 01 Jan 2026 00:00:00 GMT"), Unavailable, 5),
            (answer(502, b"<html>", Content_Type="text/html"), Unavailable, 5),
            (problem(500, "internal-server-error"), ApiError, 1),
            (problem(412, "revision-mismatch"), PreconditionFailed, 1),
            (problem(428, "precondition-required"), PreconditionRequired, 1),
            (hang_up, Unreachable, 5),
        ],
    )
    async def test_what_does_not_help_is_not_tried_and_the_rest_has_an_end(
        self, perform: Perform, bad: Answer, error: type[HorariumError], requests: int
    ) -> None:
        """A quota does not grow by waiting; a time that is too far away is the caller's to wait for."""
        async with receiving(bad) as api:
            with pytest.raises(error):
                await perform(api.url, lambda client: client.jobs.pause("a"), retry=FAST)
            assert len(api.received) == requests

    async def test_what_is_asked_for_is_told_to_the_caller(self, perform: Perform) -> None:
        """Who has more patience than the client."""
        async with receiving(problem(503, Retry_After="3600", X_Request_Id="req_1")) as api:
            with pytest.raises(Unavailable, match="not now") as caught:
                await perform(api.url, lambda client: client.jobs.get("a"))
        assert caught.value.retry_after == timedelta(hours=1)
        assert caught.value.request_id == "req_1"

    async def test_the_deadline_is_kept(self, perform: Perform) -> None:
        """However many attempts there may be."""
        short = Retry(attempts=100_000, base=timedelta(seconds=0.02), deadline=timedelta(seconds=0.3))
        async with receiving(problem(503)) as api:
            started = time.monotonic()
            with pytest.raises(Unavailable):
                await perform(api.url, lambda client: client.jobs.get("a"), retry=short)
            assert time.monotonic() - started < 20
            assert len(api.received) > 1

    async def test_what_has_no_key_and_changes_something_is_not_repeated(self, perform: Perform) -> None:
        """It may have been done."""
        async with receiving(hang_up) as api:
            with pytest.raises(Unreachable) as caught:
                await perform(api.url, lambda client: client.calendars.delete("a"), retry=FAST)
            assert caught.value.was_sent
            assert len(api.received) == 1


class TestStrangers:
    """Answers of other releases, and of what is no Horarium at all."""

    async def test_what_is_new_is_kept_and_what_is_missing_has_a_default(self, perform: Perform) -> None:
        """An answer of a later release, and of an earlier one."""
        run = {"run_id": "r", "job_id": "j", "status": "levitating", "scheduled_at": "2026-06-08T13:00:00Z", "new": [1]}
        async with receiving(answer(200, json.dumps(run).encode())) as api:
            found = await perform(api.url, lambda client: client.runs.get("r"))
        assert (found.status, found.attempts, found.is_over) == ("levitating", None, False)
        assert found.document == run

    @pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"run_id": 1}', b"[" * 100_000])
    async def test_what_is_no_answer_is_said_so(self, perform: Perform, body: bytes) -> None:
        """And raises nothing that a caller does not expect."""
        async with receiving(answer(200, body)) as api:
            with pytest.raises(UnexpectedAnswer, match="is it of another version"):
                await perform(api.url, lambda client: client.runs.get("r"))

    @pytest.mark.parametrize("body", [b"<html>", b"[1]", b'{"errors": 5}', b"null"])
    async def test_a_strange_error_names_who_answered(self, perform: Perform, body: bytes) -> None:
        """A proxy, say."""
        async with receiving(answer(404, body)) as api:
            with pytest.raises(
                NotFound, match=f"{api.url}/api/v1/runs/r answered 404 Not Found; is that a Horarium API"
            ):
                await perform(api.url, lambda client: client.runs.get("r"))

    async def test_a_key_goes_to_the_api_alone(self, perform: Perform) -> None:
        """Neither a redirect nor a link leads it elsewhere."""
        async with receiving() as thief:
            link = f'<{thief.url}/api/v1/jobs?cursor=2>; rel="next"'
            async with receiving(answer(200, b"[]", Link=link), answer(200, b"[]")) as api:
                assert await perform(api.url, lambda client: client.jobs.list(), api_key="k") == []
                assert [each.target for each in api.received] == ["/api/v1/jobs?limit=200", "/api/v1/jobs?cursor=2"]
                assert {each.headers["authorization"] for each in api.received} == {"Bearer k"}
            async with receiving(answer(307, Location=thief.url)) as api:
                with pytest.raises(ApiError, match="answered 307"):
                    await perform(api.url, lambda client: client.jobs.get("a"), api_key="k")
            assert thief.received == []

    async def test_any_text_stays_one_segment_of_the_path(self, perform: Perform) -> None:
        """What a caller was given as an id leads to no other route."""
        async with receiving(problem(404, "not-found")) as api:
            for name in ("a/b", "..", ".", "a?b#c", "ü"):
                with pytest.raises(NotFound):
                    await perform(api.url, lambda client, name=name: client.downstreams.reset(name))
        segments = [each.target.split("/") for each in api.received]
        assert [each[-2:] for each in segments] == [
            ["a%2Fb", "reset"],
            ["%2E%2E", "reset"],
            ["%2E", "reset"],
            ["a%3Fb%23c", "reset"],
            ["%C3%BC", "reset"],
        ]

    @pytest.mark.parametrize("kind", [Client, AsyncClient])
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"base_url": "nonsense"}, "base_url: give a URL such as http"),
            ({"base_url": "ftp://a"}, "base_url: give a URL such as http"),
            ({"base_url": "http://"}, "base_url: give a URL such as http"),
            ({"api_key": "S3CR3T\nX: y"}, "api_key: visible ASCII"),
            ({"api_key": "S3CR3T-ü"}, "api_key: visible ASCII"),
        ],
    )
    def test_what_can_be_no_request_is_refused_at_once(
        self, kind: type[Client] | type[AsyncClient], options: dict[str, Any], words: str
    ) -> None:
        """In words that name what was given, and never the key."""
        with pytest.raises(Unsendable, match=words) as caught:
            kind(**options)
        assert "S3CR3T" not in str(caught.value)

    async def test_a_value_without_a_json_form_is_refused(self, perform: Perform) -> None:
        """Before anything is sent."""
        for odd in (float("nan"), object(), {1, 2}):
            with pytest.raises(Unsendable, match="the body has no JSON form"):
                await perform("http://127.0.0.1:1", lambda client, odd=odd: client.jobs.trigger("a", payload=odd))
        for odd in ("ü", "a\nX: y"):
            with pytest.raises(Unsendable, match="idempotency_key: visible ASCII"):
                await perform(
                    "http://127.0.0.1:1", lambda client, odd=odd: client.jobs.resume("a", idempotency_key=odd)
                )


class TestEnvironment:
    """What a client takes from where it runs."""

    async def test_the_api_and_the_key_are_found_as_the_command_line_finds_them(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is given goes first."""
        async with receiving(answer(200, b'{"tenant": "t"}')) as api:
            monkeypatch.setenv("HORARIUM_API_URL", f"{api.url}/")
            monkeypatch.setenv("HORARIUM_API_KEY", "of-the-environment\n")
            async with AsyncClient() as client:
                await client.quota()
            async with AsyncClient(api_key="given") as client:
                await client.quota()
        assert [each.target for each in api.received] == ["/api/v1/quota"] * 2
        assert [each.headers["authorization"] for each in api.received] == ["Bearer of-the-environment", "Bearer given"]

    def test_neither_drags_in_what_the_other_needs(self) -> None:
        """A program that calls the API loads no Temporal, and a worker no HTTP client before it asks for one."""
        script = (
            "import sys, horarium\n"
            "names = ('temporalio', 'httpx', 'sqlalchemy', 'fastapi')\n"
            "print([name for name in names if name in sys.modules])\n"
            "horarium.Client\n"
            "print([name for name in names if name in sys.modules])\n"
            "from horarium import *\n"
            "print(once.__name__, HorariumPlugin.__name__, wrap_activity.__name__)\n"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == ["[]", "['httpx']", "once HorariumPlugin wrap_activity"]

    def test_what_is_not_there_is_an_attribute_error(self) -> None:
        """As for any module; and all that is there is listed."""
        with pytest.raises(AttributeError, match="nothing_like_it"):
            horarium.nothing_like_it  # type: ignore[attr-defined]  # noqa: B018
        assert {"Client", "AsyncClient", "once", "JobRun"} <= {*dir(horarium)}

    def test_a_method_says_what_it_takes(self) -> None:
        """To whoever asks a prompt for help."""
        with Client() as client:
            assert str(inspect.signature(client.jobs.get)) == "(job_id: str) -> horarium.client.answer.Job"
            assert client.jobs.get.__doc__ == "Read a job, a deleted one too."


class TestJobs:
    """The real API, with workers."""

    async def test_a_job_is_registered_changed_steered_and_deleted(
        self, perform: Perform, author_stack: ApiStack
    ) -> None:
        """All that one does with a job, by either client."""
        url, job_id = author_stack.api.url, unique("client")
        body = {"job_id": job_id, "name": "echo", "schedule": "0 9 * * 1", "payload": 1, "labels": {"of": job_id}}
        created = await perform(url, lambda client: client.jobs.create(body))
        assert (created.job_id, created.revision, created.etag, created.payload) == (job_id, 1, '"1"', 1)
        assert created.next_run_at.tzinfo is not None
        with pytest.raises(Conflict, match="there is a job"):
            await perform(url, lambda client: client.jobs.create(body))

        changed = await perform(
            url, lambda client: client.jobs.update(job_id, {"schedule": "@daily"}, if_match=created.etag)
        )
        assert (changed.revision, changed.schedule) == (2, "@daily")
        with pytest.raises(PreconditionFailed, match="revision 2"):
            await perform(url, lambda client: client.jobs.update(job_id, {"max_retries": 0}, if_match=created.etag))
        with pytest.raises(PreconditionFailed, match="there is a job of this id already"):
            await perform(url, lambda client: client.jobs.put(job_id, body, if_none_match="*"))
        put = await perform(url, lambda client: client.jobs.put(job_id, {**body, "overlap": "allow"}, if_match=2))
        assert put.overlap == "allow"

        paused = await perform(url, lambda client: client.jobs.pause(job_id, reason="lunch", by="me"))
        assert (paused.state, paused.pause.reason) == ("paused", "lunch")
        assert (await perform(url, lambda client: client.jobs.resume(job_id))).state == "active"
        told = await perform(url, lambda client: client.jobs.trigger(job_id, payload=None))
        assert told.outcome == "started"

        async def is_over() -> Run:
            found: Run = await perform(url, lambda client: client.runs.get(told.run_id))
            assert found.is_over
            return found

        run = await eventually(is_over)
        assert (run.status, run.result, run.kind) == ("success", None, "manual")
        assert run.attempts is not None
        assert [each.status for each in run.attempts] == ["success"]
        listed = await perform(url, lambda client: client.runs.list(job_id, status=["success", "dead"], attempts=True))
        assert [(each.run_id, len(each.attempts)) for each in listed] == [(told.run_id, 1)]
        cancelled = await perform(url, lambda client: client.runs.cancel(told.run_id, reason="too late"))
        assert cancelled.status == "success"

        fires = await perform(url, lambda client: client.jobs.upcoming(job_id, count=3))
        assert [fire.nominal.weekday() for fire in fires] == [0, 0, 0]
        assert await perform(url, lambda client: client.jobs.ledger(job_id)) == []
        exported = await perform(url, lambda client: client.jobs.export(labels={"of": job_id}))
        assert [(each.job_id, each.body["overlap"]) for each in exported] == [(job_id, "allow")]
        assert (await perform(url, lambda client: client.jobs.delete(job_id))).state == "deleted"
        assert (await perform(url, lambda client: client.jobs.get(job_id))).state == "deleted"

    async def test_lists_go_on_to_their_end(self, perform: Perform, author_stack: ApiStack) -> None:
        """Page by page; and only as far as somebody goes."""
        url, label = author_stack.api.url, unique("paged")
        with Client(url) as client:
            for number in range(5):
                body: horarium.client.JobBody = {"name": "noop", "schedule": "@daily", "labels": {"of": label}}
                client.jobs.put(f"{label}-{number}", body)
            first = next(client.jobs.list(labels={"of": label}, page_size=2))
        assert first.job_id == f"{label}-0"
        found = await perform(url, lambda client: client.jobs.list(labels=[f"of:{label}"], page_size=2))
        assert [job.job_id for job in found] == [f"{label}-{number}" for number in range(5)]
        found = await perform(url, lambda client: client.audit(job=f"{label}-3", page_size=1))
        assert [change.action for change in found] == ["job.create"]

    async def test_a_key_that_is_given_does_a_thing_once(self, author_stack: ApiStack) -> None:
        """And means nothing else afterwards."""
        job_id = unique("client")
        async with AsyncClient(author_stack.api.url) as client:
            await client.jobs.create({"job_id": job_id, "name": "echo", "schedule": "@daily"})
            told = [await client.jobs.trigger(job_id, idempotency_key=job_id) for _ in range(2)]
            assert told[0].run_id == told[1].run_id
            with pytest.raises(KeyReused, match="new key"):
                await client.jobs.trigger(job_id, payload=5, idempotency_key=job_id)
            await client.jobs.delete(job_id)

    def test_threads_share_a_client(self, author_stack: ApiStack) -> None:
        """Each of their calls is a call of its own."""
        job_id = unique("client")
        with Client(author_stack.api.url) as client, ThreadPoolExecutor(8) as pool:
            client.jobs.create({"job_id": job_id, "name": "echo", "schedule": "@daily", "overlap": "allow"})
            told = [*pool.map(lambda _: client.jobs.trigger(job_id), range(16))]
            client.jobs.delete(job_id)
        assert len({each.run_id for each in told}) == 16

    async def test_a_dead_run_is_run_again(self, perform: Perform, author_stack: ApiStack) -> None:
        """One by its id, many by a filter."""
        url, job_id = author_stack.api.url, unique("client")
        body = {"job_id": job_id, "name": "flaky", "schedule": "@daily", "max_retries": 0, "overlap": "allow"}
        await perform(url, lambda client: client.jobs.create(body))
        await perform(url, lambda client: client.jobs.trigger(job_id))

        async def letters() -> Any:
            return await perform(url, lambda client: client.dead_letters.list(job=job_id))

        [letter] = await eventually(letters)
        assert letter.error is not None
        again = await perform(url, lambda client: client.dead_letters.redrive(letter.run_id))
        assert again.redrive_of == letter.run_id

        begun = await perform(url, lambda client: client.dead_letters.redrive_many(job=job_id, limit=5))

        async def is_done() -> bool:
            found = await perform(url, lambda client: client.dead_letters.get_redrive(begun.redrive_id))
            return bool(found.status == "done")

        await eventually(is_done)
        stopped = await perform(url, lambda client: client.dead_letters.cancel_redrive(begun.redrive_id))
        assert stopped.redrive_id == begun.redrive_id
        await perform(url, lambda client: client.jobs.delete(job_id))

    async def test_errors_say_what_is_wrong_and_where(self, perform: Perform, author_stack: ApiStack) -> None:
        """Each with the class of its kind."""
        url = author_stack.api.url
        wrong = {"name": "noop", "schedule": "@daily", "timeout_seconds": 0, "max_retries": -1}
        with pytest.raises(Invalid) as caught:
            await perform(url, lambda client: client.jobs.create(wrong))
        assert {each.pointer for each in caught.value.errors} == {"/timeout_seconds", "/max_retries"}
        assert caught.value.status == 422
        assert caught.value.request_id
        with pytest.raises(NotFound):
            await perform(url, lambda client: client.jobs.get("never-was"))
        with pytest.raises(NotFound):
            await perform(url, lambda client: client.downstreams.get("https://never.was/x"))
        with pytest.raises(NeverFires):
            await perform(url, lambda client: client.preview({"schedule": "0 0 30 2 *"}))
        with pytest.raises(Invalid) as caught:
            await perform(url, lambda client: client.jobs.list(state="asleep"))
        assert [each.parameter for each in caught.value.errors] == ["state"]
        # Half of a surrogate pair, which has no UTF-8.
        with pytest.raises(Invalid) as caught:
            await perform(url, lambda client: client.jobs.create({**wrong, "name": "\ud800"}))

    async def test_the_rest_answers_too(self, perform: Perform, author_stack: ApiStack) -> None:
        """Previews, calendars, downstreams, the quota, and whether all is well."""
        url, name = author_stack.api.url, unique("calendar")
        schedule = {
            "schedule": "0 9 * * 1",
            "timezone": "America/New_York",
            "count": 2,
            "after": "2026-06-01T00:00:00Z",
        }
        shown = await perform(url, lambda client: client.preview(schedule))
        assert [fire.local for fire in shown.fires] == ["2026-06-01T09:00:00-04:00", "2026-06-08T09:00:00-04:00"]
        several = [schedule, {"schedule": "61 * * * *"}, {"schedule": "0 0 30 2 *"}]
        each = await perform(url, lambda client: client.preview_each(several))
        assert [type(one) for one in each] == [Preview, Problem, Problem]

        days = {"dates": ["2026-12-24"], "periods": [{"from": "2026-12-30", "to": "2027-01-02"}]}
        written = await perform(url, lambda client: client.calendars.put(name, days))
        assert (written.count, [day.from_.day for day in written.days]) == (5, [24, 30])
        listed: list[CalendarSummary] = await perform(url, lambda client: client.calendars.list())
        assert name in [calendar.name for calendar in listed]
        assert (await perform(url, lambda client: client.calendars.get(name))).version == written.version
        assert (await perform(url, lambda client: client.calendars.delete(name))).name == name

        await perform(url, lambda client: client.downstreams.list())
        assert (await perform(url, lambda client: client.quota())).tenant == "default"
        assert (await perform(url, lambda client: client.readiness())).is_ready
        assert (await perform(url, lambda client: client.liveness())).status == "ok"

    async def test_a_route_without_a_method_can_be_called(self, perform: Perform, author_stack: ApiStack) -> None:
        """Typed as its caller says."""
        found = await perform(
            author_stack.api.url,
            lambda client: client.request("GET", "/api/v1/jobs", list[dict[str, Any]], parameters={"limit": 1}),
        )
        assert len(found) <= 1


async def test_keys_open_what_they_are_for(sqlite_url: str) -> None:
    """Without a key 401, with one that does not suffice 403; and where the API is not ready, it says what is missing."""
    key = await add_key(sqlite_url, scope=Scope.READ)
    async with serving(database_url=sqlite_url) as api:
        url = str(api.base_url).removesuffix("/api/v1/")
        async with AsyncClient(url, key) as client:
            assert [job async for job in client.jobs.list()] == []
            with pytest.raises(Forbidden, match="write"):
                await client.jobs.create({"name": "noop", "schedule": "@daily"})
            readiness = await client.readiness()
            assert (readiness.is_ready, readiness.database, readiness.temporal) == (False, "ok", "unavailable")
        async with AsyncClient(url) as client:
            with pytest.raises(Unauthorized):
                await client.quota()


def test_every_snippet_of_the_page_works(author_stack: ApiStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """``docs/client.md``, one after the other, each as a program of its own."""
    monkeypatch.setenv("HORARIUM_API_URL", author_stack.api.url)
    snippets = [each for each in snippets_of(PAGE) if each.language == "python"]
    assert len(snippets) >= 3
    for snippet in snippets:
        exec(compile(snippet.text, f"{PAGE}:{snippet.line}", "exec"), {"__name__": "__main__"})
