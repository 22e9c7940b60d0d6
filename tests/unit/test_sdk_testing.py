"""The kit with which job authors test their jobs."""

import asyncio
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from temporalio import activity
from temporalio.exceptions import CancelledError

import horarium
from horarium import JobRun, PermanentError, RetryLater, RunKind, checkpoint, current_run, once, once_sync
from horarium.effect_memory import MemoryEffectStore
from horarium.testing import (
    MONDAY,
    FakeClock,
    JobFailure,
    JobStatus,
    JobTester,
    run_job,
    run_job_async,
    run_to_end,
    run_to_end_async,
)


class Report(BaseModel):
    """A payload."""

    kind: str
    copies: int = 1


@activity.defn
async def send(report: Report) -> dict[str, Any]:
    """Take a payload."""
    return {"kind": report.kind, "copies": report.copies, "key": current_run().idempotency_key}


@activity.defn
def send_in_thread(report: Report) -> dict[str, Any]:
    """The same, not ``async``."""
    assert threading.current_thread() is not threading.main_thread()
    return {"kind": report.kind, "copies": report.copies, "key": current_run().idempotency_key}


@activity.defn
async def copy_rows(run: JobRun) -> int:
    """Go on where the last attempt was, and fail twice."""
    first: int = (run.checkpoint or {"row": 0})["row"]
    for row in range(first + 1, first + 4):
        checkpoint({"row": row})
    if run.attempt == 1:
        raise ConnectionError("the line went dead")
    if run.attempt == 2:
        raise RetryLater(timedelta(minutes=5), "the store is busy")
    return first + 3


@activity.defn
def copy_rows_in_thread(run: JobRun) -> int:
    """The same, not ``async``."""
    first: int = (run.checkpoint or {"row": 0})["row"]
    for row in range(first + 1, first + 4):
        checkpoint({"row": row})
    if run.attempt == 1:
        raise ConnectionError("the line went dead")
    if run.attempt == 2:
        raise RetryLater(timedelta(minutes=5), "the store is busy")
    return first + 3


CLEANED_UP: list[str] = []


@activity.defn
async def wait() -> None:
    """Wait, and clean up."""
    try:
        checkpoint("waiting")
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        CLEANED_UP.append("async")
        raise


@activity.defn
def wait_in_thread() -> None:
    """The same, not ``async``."""
    try:
        checkpoint("waiting")
        for _ in range(6000):
            time.sleep(0.01)
    except CancelledError:
        CLEANED_UP.append("thread")
        raise


@activity.defn
async def fail(how: str) -> None:
    """Raise."""
    raise {"permanent": PermanentError("no such customer"), "exit": SystemExit(3), "value": ValueError("row 7")}[how]


@activity.defn
async def odd_result() -> object:
    """Return what has no JSON form."""
    return object()


@activity.defn
async def late() -> float:
    """Ask the clock."""
    return (horarium.now() - current_run().scheduled_at).total_seconds()


both = pytest.mark.parametrize("function", [send, send_in_thread])


class TestOneAttempt:
    """A run in one line."""

    @both
    def test_a_function_gets_its_payload_and_its_result_is_plain_json(self, function: Any) -> None:
        """As on a worker; the payload may be a model, too."""
        expected = {"kind": "weekly", "copies": 2, "key": "k"}
        for payload in ({"kind": "weekly", "copies": 2}, Report(kind="weekly", copies=2)):
            result = run_job(function, payload=payload, idempotency_key="k")
            assert (result.status, result.result, result.failure) == (JobStatus.SUCCESS, expected, None)
            assert result.require_success() == expected

    @both
    async def test_it_works_in_an_async_test_too(self, function: Any) -> None:
        """In the test's own event loop."""
        result = await run_job_async(function, payload={"kind": "weekly"}, idempotency_key="k")
        assert result.result == {"kind": "weekly", "copies": 1, "key": "k"}

    async def test_in_an_async_test_the_plain_call_says_what_to_use(self) -> None:
        """Blocking the loop would hang the test."""
        with pytest.raises(RuntimeError, match="await run_job_async"):
            run_job(send)
        with pytest.raises(RuntimeError, match="await run_to_end_async"):
            run_to_end(send)

    @both
    def test_a_payload_that_does_not_fit_fails_for_good(self, function: Any) -> None:
        """With the member that is wrong."""
        failure = run_job(function, payload={"copies": 1}).failure
        assert failure == JobFailure(
            type="PermanentError", message="payload.kind: Field required", retryable=False, retry_after=None
        )

    @pytest.mark.parametrize(
        ("how", "kind", "message", "retryable"),
        [
            ("permanent", "PermanentError", "no such customer", False),
            ("exit", "SystemExit", "3", True),
            ("value", "ValueError", "row 7", True),
        ],
    )
    def test_a_failure_is_told_as_the_scheduler_would_hear_it(
        self, how: str, kind: str, message: str, retryable: bool
    ) -> None:
        """Whatever is raised."""
        result = run_job(fail, payload=how)
        assert (result.status, result.result) == (JobStatus.FAILED, None)
        assert result.failure == JobFailure(type=kind, message=message, retryable=retryable, retry_after=None)

    def test_requiring_success_shows_where_it_went_wrong(self) -> None:
        """The traceback leads into the job's code."""
        with pytest.raises(AssertionError, match="row 7") as caught:
            run_job(fail, payload="value").require_success()
        error = caught.value.__cause__
        assert error is not None
        names = []
        trace = error.__traceback__
        while trace:
            names.append(trace.tb_frame.f_code.co_name)
            trace = trace.tb_next
        assert "fail" in names

    def test_a_result_without_a_json_form_fails_here_too(self) -> None:
        """And not for the first time in production."""
        failure = run_job(odd_result).failure
        assert failure is not None
        assert "cannot be written as JSON" in failure.message

    def test_everything_about_the_run_can_be_said(self) -> None:
        """What a test does not say is as in a first scheduled run."""
        plain = run_job(send, payload={"kind": "weekly"}).run
        assert (plain.attempt, plain.max_attempts, plain.kind, plain.stands_for) == (1, 4, RunKind.SCHEDULED, 1)
        assert plain.target_at == plain.scheduled_at
        at = datetime(2026, 1, 1, tzinfo=UTC)
        told = run_job(
            send,
            attempt=7,
            kind=RunKind.CATCH_UP,
            scheduled_at=at,
            stands_for=3,
            job_id="reports",
            checkpoint={"row": 1},
        ).run
        assert (told.attempt, told.max_attempts, told.kind, told.stands_for) == (7, 7, RunKind.CATCH_UP, 3)
        assert (told.scheduled_at, told.target_at, told.checkpoint) == (at, at, {"row": 1})
        assert told.idempotency_key == "reports:1767225600"

    @pytest.mark.parametrize("function", [copy_rows, copy_rows_in_thread])
    def test_checkpoints_are_kept_in_order(self, function: Any) -> None:
        """Each one, and the last one for the next attempt; without one, the one that was given."""
        result = run_job(function, attempt=3, checkpoint={"row": 6})
        assert result.checkpoints == ({"row": 7}, {"row": 8}, {"row": 9})
        assert (result.result, result.checkpoint) == (9, {"row": 9})
        assert run_job(fail, payload="value", checkpoint="kept").checkpoint == "kept"

    def test_an_undecorated_function_is_refused(self) -> None:
        """It could not be registered with a worker either."""
        with pytest.raises(TypeError, match=r"@activity\.defn"):
            run_job(lambda: None)


@pytest.mark.parametrize(("function", "trace"), [(wait, "async"), (wait_in_thread, "thread")])
class TestCancellation:
    """A cancelled attempt cleans up."""

    def test_at_a_checkpoint(self, function: Any, trace: str) -> None:
        """At exactly that place of the code, in any run of the test."""
        CLEANED_UP.clear()
        result = run_job(function, cancel_at_checkpoint=1)
        assert (result.status, result.failure, result.checkpoint) == (JobStatus.CANCELLED, None, "waiting")
        assert [trace] == CLEANED_UP

    def test_after_a_while(self, function: Any, trace: str) -> None:
        """Wherever the code then is."""
        CLEANED_UP.clear()
        assert run_job(function, cancel_after=timedelta(milliseconds=50)).status is JobStatus.CANCELLED
        assert [trace] == CLEANED_UP

    async def test_a_cancelled_test_is_no_cancelled_job(self, function: Any, trace: str) -> None:
        """A time limit of the test's own ends the test."""
        if function is wait_in_thread:
            pytest.skip("a thread cannot be left")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await run_job_async(function)


class TestToTheEnd:
    """All attempts of a run."""

    @pytest.mark.parametrize("function", [copy_rows, copy_rows_in_thread])
    def test_each_attempt_goes_on_where_the_last_one_was(self, function: Any) -> None:
        """Same key, rising fence; the clock moves on by what was asked for, at least a second, and nobody waits."""
        clock = FakeClock()
        results = run_to_end(function, clock=clock)
        assert [result.run.attempt for result in results] == [1, 2, 3]
        assert [result.run.checkpoint for result in results] == [None, {"row": 3}, {"row": 6}]
        assert len({result.run.idempotency_key for result in results}) == 1
        assert [result.run.fence for result in results] == [1, 2, 3]
        assert {result.run.scheduled_at for result in results} == {MONDAY}
        assert results[-1].result == 9
        assert clock.now() == MONDAY + timedelta(minutes=5, seconds=1)

    async def test_attempts_end_where_the_scheduler_would_end_them(self) -> None:
        """After the last one, after an error that is permanent, and after a cancellation."""
        assert len(await run_to_end_async(fail, payload="value", max_attempts=2)) == 2
        assert len(await run_to_end_async(fail, payload="permanent")) == 1
        assert len(await run_to_end_async(wait, cancel_at_checkpoint=1)) == 1


@activity.defn
async def pay(run: JobRun) -> dict[str, Any]:
    """Carry two effects out, and fail in between at first."""
    first = await once("pay:ann", lambda key: book(key))
    if run.attempt == 1:
        raise ConnectionError("the bank hung up")
    return {"first": first, "second": await once("pay:bob", lambda: book("no key"))}


@activity.defn
def pay_in_thread(run: JobRun) -> dict[str, Any]:
    """The same, not ``async``."""
    first = once_sync("pay:ann", book_in_thread)
    if run.attempt == 1:
        raise ConnectionError("the bank hung up")
    return {"first": first, "second": once_sync("pay:bob", lambda: book_in_thread("no key"))}


async def book(key: str) -> dict[str, str]:
    """Stand for the bank."""
    return {"key": key}


def book_in_thread(key: str) -> dict[str, str]:
    """Stand for the bank."""
    return {"key": key}


@pytest.mark.parametrize("function", [pay, pay_in_thread])
class TestEffects:
    """What ``once`` carries out."""

    def test_each_attempt_tells_what_it_has_done(self, function: Any) -> None:
        """And the next one finds it done, with the result that it had."""
        failed, succeeded = run_to_end(function)
        [ann] = failed.effects
        assert (ann.name, ann.result) == ("pay:ann", {"key": ann.key})
        assert [effect.name for effect in succeeded.effects] == ["pay:bob"]
        assert succeeded.result == {"first": {"key": ann.key}, "second": {"key": "no key"}}

    def test_tests_begin_with_nothing_done(self, function: Any) -> None:
        """Unless they say what was."""
        assert [effect.name for effect in run_job(function, attempt=2).effects] == ["pay:ann", "pay:bob"]
        done = MemoryEffectStore()
        assert len(run_job(function, effects=done, scheduled_at=MONDAY).effects) == 1
        again = run_job(function, attempt=2, effects=done, scheduled_at=MONDAY)
        assert [effect.name for effect in again.effects] == ["pay:bob"]

    def test_under_the_fixture_a_run_that_is_made_again_does_nothing_twice(
        self, function: Any, job_tester: JobTester
    ) -> None:
        """The proof that a job may be run again."""
        assert len(job_tester.run(function, attempt=2).effects) == 2
        assert job_tester.run(function, attempt=3).effects == ()


class TestClock:
    """Time as a test wants it."""

    def test_job_code_reads_the_clock_of_the_test(self) -> None:
        """At any time of any day."""
        clock = FakeClock(datetime(2026, 11, 1, 1, 30, tzinfo=UTC))
        scheduled_at = clock.now()
        clock.advance(timedelta(seconds=90))
        assert run_job(late, clock=clock, scheduled_at=scheduled_at).result == 90

    def test_without_one_it_is_the_real_clock(self) -> None:
        """And so it is on a worker."""
        assert abs(horarium.now() - datetime.now(UTC)) < timedelta(seconds=5)
        result = run_job(late).result
        assert isinstance(result, float)
        assert 0 <= result < 60

    def test_a_clock_knows_its_zone_and_only_goes_forward(self) -> None:
        """Mistakes of tests show at once."""
        with pytest.raises(ValueError, match="aware"):
            FakeClock(datetime(2026, 1, 1))  # noqa: DTZ001
        with pytest.raises(ValueError, match="does not go back"):
            FakeClock().advance(timedelta(seconds=-1))


class TestFixture:
    """The fixture that comes with the package."""

    def test_the_fixture_runs_jobs_under_a_clock(self, job_tester: JobTester) -> None:
        """A clock of the test's own."""
        assert job_tester.run(send, payload={"kind": "weekly"}).run.scheduled_at == MONDAY
        assert len(job_tester.run_to_end(copy_rows)) == 3
        assert job_tester.clock.now() == MONDAY + timedelta(minutes=5, seconds=1)

    async def test_the_fixture_runs_jobs_in_async_tests(self, job_tester: JobTester) -> None:
        """As above."""
        assert (await job_tester.run_async(send, payload={"kind": "weekly"})).status is JobStatus.SUCCESS
        assert len(await job_tester.run_to_end_async(copy_rows)) == 3

    def test_it_costs_nothing_where_no_test_asks_for_it(self) -> None:
        """pytest imports the plugin in every project of an environment that has the SDK."""
        code = "import sys, horarium_pytest; sys.exit('temporalio' in sys.modules or 'pydantic' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
