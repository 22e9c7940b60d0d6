"""``once`` in job code: what a run's attempts, and its zombies, get to see."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel
from temporalio import activity

from horarium import PermanentError, current_run, effect_turn, once, once_sync, wrap_activity
from horarium.effect import Claim, ClaimAnswer, Claimed, EffectKey, Outcome, StoreUnavailable
from horarium.effect_desk import EffectDesk, open_effect_desk
from horarium.effect_memory import MemoryEffectStore
from horarium.testing import JobResult, JobStatus, run_job, run_job_async, run_to_end


class Receipt(BaseModel):
    """What the bank answers."""

    number: int


@dataclass
class Bank:
    """Counts what it is asked."""

    calls: list[str] = field(default_factory=list)
    error: Exception | None = None

    async def pay(self, key: str) -> Receipt:
        """Answer, or fail as often as it is told to."""
        self.calls.append(key)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return Receipt(number=len(self.calls))

    def pay_sync(self, key: str) -> Receipt:
        """The same, for code that is not ``async``."""
        return asyncio.run(self.pay(key))


class AwayStore(MemoryEffectStore):
    """Does not answer for some steps."""

    def __init__(self, *, claims: int = 0, completions: int = 0) -> None:
        super().__init__()
        self.claims_missed, self.completions_missed = claims, completions

    async def claim(self, claim: Claim, *, lease: timedelta) -> ClaimAnswer:
        """Miss some."""
        if self.claims_missed > 0:
            self.claims_missed -= 1
            raise StoreUnavailable("connection refused")
        return await super().claim(claim, lease=lease)

    async def complete(self, claim: Claim, outcome: Outcome) -> bool:
        """Miss some, made or not: the answer is lost."""
        if self.completions_missed > 0:
            self.completions_missed -= 1
            raise StoreUnavailable("connection reset")
        return await super().complete(claim, outcome)


@pytest.fixture
def bank() -> Bank:
    """A bank of the test's own."""
    return Bank()


@pytest.fixture(params=["async", "thread"])
def job(request: pytest.FixtureRequest, bank: Bank) -> Callable[..., Any]:
    """A job that pays once and then fails in all attempts but the last, in both styles."""

    @activity.defn
    async def pay() -> int:
        receipt = await once("pay", bank.pay, returns=Receipt)
        return _end(receipt)

    @activity.defn
    def pay_in_thread() -> int:
        receipt = once_sync("pay", bank.pay_sync, returns=Receipt)
        return _end(receipt)

    return pay if request.param == "async" else pay_in_thread


def _end(receipt: Receipt) -> int:
    run = current_run()
    if run.attempt < run.max_attempts:
        raise ConnectionError("afterwards")
    return receipt.number


class TestReplay:
    """An effect that is done is not repeated."""

    def test_later_attempts_get_the_stored_result(self, job: Callable[..., Any], bank: Bank) -> None:
        """As the type that the first one got."""
        *failed, last = run_to_end(job)
        assert [attempt.status for attempt in failed] == [JobStatus.FAILED] * 3
        assert last.require_success() == 1
        assert len(bank.calls) == 1

    def test_a_redrive_gets_it_too(self, job: Callable[..., Any], bank: Bank) -> None:
        """Same idempotency key, greater fence."""
        store = MemoryEffectStore()
        for fence in (1, 7):
            assert run_job(job, max_attempts=1, fence=fence, effects=store, idempotency_key="k").require_success() == 1
        assert len(bank.calls) == 1

    def test_another_run_pays_anew(self, job: Callable[..., Any], bank: Bank) -> None:
        """As do another job and another tenant, each with a key of its own."""
        store = MemoryEffectStore()
        for other in ({}, {"idempotency_key": "2"}, {"job_id": "2"}, {"tenant": "2"}):
            run_job(job, **{"max_attempts": 1, "effects": store, "idempotency_key": "1", **other}).require_success()  # type: ignore[arg-type]
        assert len(set(bank.calls)) == len(bank.calls) == 4

    def test_an_effect_that_failed_is_called_again_with_the_same_key(self, job: Callable[..., Any], bank: Bank) -> None:
        """Whether a failed call has had its effect, only its receiver can know."""
        bank.error = TimeoutError("no answer")
        first, second = run_to_end(job, max_attempts=2)
        assert first.failure is not None
        assert (first.failure.type, first.failure.message) == ("TimeoutError", "no answer")
        assert second.require_success() == 2
        assert bank.calls[0] == bank.calls[1]

    def test_job_code_may_try_again_by_itself(self, bank: Bank) -> None:
        """Within one attempt, under the same name."""
        bank.error = TimeoutError("no answer")

        @activity.defn
        async def pay() -> int:
            try:
                return (await once("pay", bank.pay, returns=Receipt)).number
            except TimeoutError:
                return (await once("pay", bank.pay, returns=Receipt)).number

        assert run_job(pay).require_success() == 2

    async def test_of_50_at_once_one_calls_and_all_get_the_result(self, bank: Bank) -> None:
        """Runs that share a key, at the same moment."""

        @activity.defn
        async def pay() -> int:
            async def slowly(key: str) -> Receipt:
                await asyncio.sleep(0.2)
                return await bank.pay(key)

            return (await once("pay", slowly, returns=Receipt)).number

        store = MemoryEffectStore()
        jobs = [run_job_async(pay, effects=store, idempotency_key="k", run_id=str(number)) for number in range(50)]
        results = await asyncio.gather(*jobs)
        assert [result.require_success() for result in results] == [1] * 50
        assert len(bank.calls) == 1


class TestResult:
    """What comes back the first time is what comes back ever after."""

    @pytest.mark.parametrize("value", [None, 0, "", [], {"a": [1, None, 2.5, True]}, "ü\x00"])
    def test_plain_json_comes_back_as_it_is(self, value: Any) -> None:
        """Also what is false."""

        @activity.defn
        async def job() -> list[Any]:
            async def give() -> Any:
                return value

            result = await once("x", give)
            if current_run().attempt == 1:
                raise ValueError(repr(result))
            return [result]

        first, second = run_to_end(job)
        assert first.failure is not None
        assert first.failure.message == repr(value)
        assert second.require_success() == [value]

    def test_models_without_a_type_to_read_are_plain_json_the_first_time_too(self, bank: Bank) -> None:
        """So that a wrong use shows at once, and not at the first retry."""

        @activity.defn
        async def job() -> str:
            result: Any = await once("x", bank.pay)
            return type(result).__name__

        assert run_job(job).require_success() == "dict"

    def test_lists_and_the_like_are_read_as_what_they_are(self) -> None:
        """``returns`` takes any type that pydantic reads."""

        @activity.defn
        async def job() -> list[str]:
            async def pay_all() -> list[Receipt]:
                return [Receipt(number=1), Receipt(number=2)]

            receipts = await once("x", pay_all, returns=list[Receipt])
            return [type(receipt).__name__ for receipt in receipts]

        assert run_job(job).require_success() == ["Receipt", "Receipt"]

    @pytest.mark.parametrize("too_much", ["x" * 65_535, float("nan"), object()])
    def test_a_result_that_cannot_be_kept_is_a_clear_error_and_no_second_effect(self, too_much: object) -> None:
        """The money has gone out: a redrive is told the same, and calls nothing."""
        calls = []

        @activity.defn
        async def job() -> None:
            async def send() -> Any:
                calls.append(1)
                return too_much

            await once("send", send)

        store = MemoryEffectStore()
        for fence in (1, 2):
            failure = run_job(job, effects=store, idempotency_key="k", fence=fence).failure
            assert failure is not None
            assert not failure.retryable
            assert failure.message.startswith(
                "effect 'send' is done, and will not be repeated, but its result was not kept"
            )
        assert calls == [1]

    def test_a_stored_result_of_another_type_is_a_clear_error(self) -> None:
        """The code has changed since. The value is not repeated: it may be anybody's."""

        @activity.defn
        async def job() -> None:
            async def send() -> dict[str, str]:
                return {"number": "private"}

            await once("send", send, returns=Receipt)

        failure = run_job(job).failure
        assert failure is not None
        assert not failure.retryable
        assert failure.message.startswith("effect 'send' is done, but its result is not of type Receipt: number: ")
        assert "private" not in failure.message


class TestKey:
    """What goes out with the effect."""

    def test_it_is_the_same_in_every_attempt_and_other_for_every_effect(self) -> None:
        """And fits any receiver: 36 characters."""
        keys: list[tuple[str, str]] = []

        @activity.defn
        async def job() -> None:
            for name in ("a", "b"):

                async def send(key: str, name: str = name) -> None:
                    keys.append((name, key))
                    raise_once(key)

                await once(name, send)

        failed: set[str] = set()

        def raise_once(key: str) -> None:
            if key not in failed:
                failed.add(key)
                raise ConnectionError

        run_to_end(job)[-1].require_success()
        assert [name for name, _ in keys] == ["a", "a", "b", "b"]
        assert len({key for _, key in keys}) == 2
        assert {len(key) for _, key in keys} == {36}

    def test_it_never_changes(self) -> None:
        """A run may be redriven after an upgrade. The value was worked out with ``sha1sum``, as RFC 9562 says for version 5."""
        key = EffectKey(tenant="default", job_id="payroll", idempotency_key="payroll-2026-06", name="pay:é")
        assert key.for_receiver() == "3c52f043-10d3-50fd-bec5-b644e52dd83b"

    def test_parts_cannot_run_into_each_other(self) -> None:
        """``a`` and ``b:c`` is not ``a:b`` and ``c``."""
        first = EffectKey(tenant="t", job_id="j", idempotency_key="a", name="b:c")
        second = EffectKey(tenant="t", job_id="j", idempotency_key="a:b", name="c")
        assert first.for_receiver() != second.for_receiver()

    @pytest.mark.parametrize(
        ("effect", "wants_key"),
        [
            (lambda: None, False),
            (lambda key: key, True),
            (lambda amount=5: amount, False),
            (lambda *arguments: arguments[0] if arguments else None, False),
            (partial(lambda amount, key: key, 5), True),
            (partial(lambda amount: None, 5), False),
        ],
    )
    def test_functions_that_cannot_do_without_it_get_it(self, effect: Callable[..., Any], wants_key: bool) -> None:
        """A default is left alone."""

        @activity.defn
        def job() -> bool:
            result = once_sync("x", effect)
            return isinstance(result, str) and len(result) == 36

        assert run_job(job).require_success() is wants_key


class TestMisuse:
    """What can never be right says so before anything happens."""

    @staticmethod
    def failure_of(job: Callable[..., Any]) -> str:
        """Run a job that must fail for good."""
        failure = run_job(job).failure
        assert failure is not None
        assert failure.type == "PermanentError"
        return failure.message

    def test_one_name_for_two_effects_is_refused(self, bank: Bank) -> None:
        """Otherwise only the first employee would ever be paid, and the second attempt would not notice."""

        @activity.defn
        async def job() -> None:
            for _ in range(2):
                await once("pay", bank.pay, returns=Receipt)

        assert "each needs a name of its own" in self.failure_of(job)
        assert len(bank.calls) == 1

    def test_also_at_the_same_time(self, bank: Bank) -> None:
        """Tasks of one attempt."""

        @activity.defn
        async def job() -> None:
            await asyncio.gather(*(once("pay", bank.pay, returns=Receipt) for _ in range(2)))

        assert "each needs a name of its own" in self.failure_of(job)

    @pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "a\x00", "\ud800"])
    def test_names_are_bounded_and_printable(self, name: str, bank: Bank) -> None:
        """They stand in a database, in messages and in logs."""

        @activity.defn
        async def job() -> None:
            await once(name, bank.pay, returns=Receipt)

        assert "1 to 200 printable characters" in self.failure_of(job)
        assert bank.calls == []

    def test_plain_functions_are_told_of_once_sync(self, bank: Bank) -> None:
        """A coroutine that nobody awaits would be an effect that never happens."""

        @activity.defn
        def job() -> None:
            once("pay", bank.pay, returns=Receipt)  # type: ignore[unused-coroutine]

        assert "calls once_sync()" in self.failure_of(job)

    def test_async_functions_are_told_of_once(self, bank: Bank) -> None:
        """Waiting would stop all else on the worker."""

        @activity.defn
        async def job() -> None:
            once_sync("pay", bank.pay_sync, returns=Receipt)

        assert "await once(...)" in self.failure_of(job)

    def test_once_sync_refuses_what_it_cannot_await(self, bank: Bank) -> None:
        """Before the claim."""

        @activity.defn
        def job() -> None:
            once_sync("pay", bank.pay, returns=Receipt)

        assert "cannot await it" in self.failure_of(job)

    def test_functions_with_more_parameters_are_refused(self) -> None:
        """Before the claim."""

        @activity.defn
        async def job() -> None:
            wrong: Any = lambda amount, key: asyncio.sleep(0)  # noqa: E731
            await once("pay", wrong)

        assert "takes nothing, or the idempotency key" in self.failure_of(job)

    async def test_a_worker_without_a_store_says_what_to_set(self, bank: Bank) -> None:
        """And does nothing."""

        @activity.defn
        async def job() -> None:
            await once("pay", bank.pay, returns=Receipt)

        # The function is wrapped already, and keeps what it was given then: nothing.
        failure = (await run_job_async(wrap_activity(job, worker="w"))).failure
        assert failure is not None
        assert not failure.retryable
        assert "HORARIUM_EFFECTS_URL" in failure.message
        assert "HorariumPlugin(effects=" in failure.message
        assert bank.calls == []

    def test_outside_a_run_there_is_nothing_to_claim(self, bank: Bank) -> None:
        """No run, no key."""
        with pytest.raises(RuntimeError, match="outside a Horarium run"):
            once_sync("pay", bank.pay_sync, returns=Receipt)


class TestOthers:
    """Somebody else is at it, or was."""

    @staticmethod
    def claim(fence: int) -> Claim:
        """What another attempt of the run claims."""
        key = EffectKey(tenant="default", job_id="job", idempotency_key="k", name="pay")
        return Claim(key=key, fence=fence, token=str(fence), run_id="r", worker="other")

    def test_a_dead_holder_is_waited_for_and_replaced(self, job: Callable[..., Any], bank: Bank) -> None:
        """The attempt does not fail for it."""
        store = MemoryEffectStore()
        asyncio.run(store.claim(self.claim(1), lease=timedelta(seconds=0.5)))
        result = run_job(job, max_attempts=2, attempt=2, effects=store, idempotency_key="k")
        assert result.require_success() == 1

    def test_a_live_holder_is_waited_for_and_its_result_taken(self, job: Callable[..., Any], bank: Bank) -> None:
        """Nothing is called."""
        store, claim = MemoryEffectStore(), self.claim(1)
        asyncio.run(store.claim(claim, lease=timedelta(seconds=20)))
        timer = threading.Timer(0.3, lambda: asyncio.run(store.complete(claim, Outcome(result='{"number":42}'))))
        timer.start()
        result = run_job(job, max_attempts=2, attempt=2, effects=store, idempotency_key="k")
        assert result.require_success() == 42
        assert bank.calls == []

    def test_a_holder_that_takes_long_makes_the_attempt_come_back_later(
        self, job: Callable[..., Any], bank: Bank, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """When its lease may be over."""
        monkeypatch.setattr("horarium.effect_desk.WAIT_FOR_HOLDER", 0.2)
        store = MemoryEffectStore()
        asyncio.run(store.claim(self.claim(1), lease=timedelta(seconds=20)))
        failure = run_job(job, attempt=2, effects=store, idempotency_key="k").failure
        assert failure is not None
        assert failure.type == "RetryLater"
        assert failure.retry_after is not None
        assert timedelta(seconds=18) < failure.retry_after <= timedelta(seconds=20)
        assert bank.calls == []

    def test_a_zombie_is_refused_at_the_start(self, job: Callable[..., Any], bank: Bank) -> None:
        """Its fence is lower than one that was seen, whatever became of the claim."""
        store, later = MemoryEffectStore(), self.claim(2)
        asyncio.run(store.claim(later, lease=timedelta()))
        for change in (None, store.release(later), None):
            if change is not None:
                asyncio.run(change)
            failure = run_job(job, fence=1, effects=store, idempotency_key="k").failure
            assert failure is not None
            assert (failure.type, failure.retryable) == ("EffectRefused", True)
        assert bank.calls == []

    def test_a_zombie_is_refused_when_it_completes(self, bank: Bank) -> None:
        """It was overtaken meanwhile; the later attempt's result is the one that counts."""
        store, later = MemoryEffectStore(now := SetTime()), self.claim(2)

        @activity.defn
        async def job() -> None:
            async def pay(key: str) -> int:
                now.now += timedelta(hours=1)  # it stood still
                assert await store.claim(later, lease=timedelta(minutes=1)) == Claimed()
                assert await store.complete(later, Outcome(result="2"))
                return 1

            await once("pay", pay)

        failure = run_job(job, fence=1, effects=store, idempotency_key="k").failure
        assert failure is not None
        assert failure.type == "EffectRefused"
        assert run_job(job, fence=3, effects=store, idempotency_key="k").status is JobStatus.SUCCESS


class SetTime:
    """A clock that the test sets."""

    now = timedelta()

    def __call__(self) -> timedelta:
        """Read it."""
        return self.now


class TestLease:
    """A claim is held while its effect runs, and no longer."""

    @pytest.fixture(autouse=True)
    def short_lease(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A lease that ends several times in a test."""
        monkeypatch.setattr(effect_turn, "SHORTEST_LEASE", timedelta(seconds=0.3))
        monkeypatch.setattr(effect_turn, "LONGEST_LEASE", timedelta(seconds=0.3))

    async def test_it_is_renewed_though_the_effect_blocks_the_event_loop(self) -> None:
        """Whoever asks meanwhile waits, and gets the result."""

        @activity.defn
        async def job() -> int:
            async def block() -> int:
                time.sleep(1)  # noqa: ASYNC251
                return 1

            return await once("x", block)

        assert await self.results_of_two(job) == [1, 1]

    async def test_it_is_renewed_for_effects_in_threads(self) -> None:
        """Likewise."""
        calls = []

        @activity.defn
        def job() -> int:
            def wait() -> int:
                calls.append(1)
                time.sleep(1)
                return 1

            return once_sync("x", wait)

        assert await self.results_of_two(job) == [1, 1]
        assert len(calls) == 1

    async def results_of_two(self, job: Callable[..., Any]) -> list[Any]:
        """Let two runs with one key begin at once, each in a thread and a loop of its own."""
        store = MemoryEffectStore()
        run = partial(run_job, job, effects=store, idempotency_key="k")
        with ThreadPoolExecutor(2) as pool:
            loop = asyncio.get_running_loop()
            results = await asyncio.gather(*(loop.run_in_executor(pool, run) for _ in range(2)))
        return [result.require_success() for result in results]

    def test_it_is_released_when_the_effect_is_cancelled(self) -> None:
        """The next attempt does not wait for it, and calls again: nobody knows how far the first call came."""

        @activity.defn
        async def job() -> int:
            attempt = current_run().attempt

            async def wait() -> int:
                await asyncio.sleep(60 if attempt == 1 else 0)
                return attempt

            return await once("x", wait)

        store = MemoryEffectStore()
        first = run_job(job, effects=store, idempotency_key="k", cancel_after=timedelta(seconds=0.2))
        assert first.status is JobStatus.CANCELLED
        assert run_job(job, attempt=2, effects=store, idempotency_key="k").require_success() == 2

    def test_it_is_released_when_a_thread_is_cancelled(self) -> None:
        """Likewise."""

        @activity.defn
        def job() -> int:
            attempt = current_run().attempt

            def wait() -> int:
                for _ in range(200 if attempt == 1 else 0):
                    time.sleep(0.05)
                return attempt

            return once_sync("x", wait)

        store = MemoryEffectStore()
        first = run_job(job, effects=store, idempotency_key="k", cancel_after=timedelta(seconds=0.2))
        assert first.status is JobStatus.CANCELLED
        assert run_job(job, attempt=2, effects=store, idempotency_key="k").require_success() == 2


class TestStoreAway:
    """Effects wait for their store, rather than being repeated or lost."""

    def test_an_effect_waits_for_the_store_before_and_after(self, job: Callable[..., Any], bank: Bank) -> None:
        """Within the attempt, which knows nothing of it."""
        store = AwayStore(claims=3, completions=3)
        assert run_job(job, max_attempts=1, effects=store).require_success() == 1
        assert len(bank.calls) == 1

    def test_an_effect_that_could_not_begin_says_so(
        self, job: Callable[..., Any], bank: Bank, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In time, before the attempt is ended from outside; and calls nothing."""
        monkeypatch.setattr("horarium.testing.TIMEOUT", timedelta(seconds=1.5))
        failure = run_job(job, effects=AwayStore(claims=1000)).failure
        assert failure is not None
        assert (failure.type, failure.retryable) == ("RetryLater", True)
        assert "was not begun, for the effect store does not answer: connection refused" in failure.message
        assert bank.calls == []

    def test_an_effect_that_could_not_be_recorded_says_so(
        self, job: Callable[..., Any], bank: Bank, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It may be called again, with the same key."""
        monkeypatch.setattr("horarium.testing.TIMEOUT", timedelta(seconds=1.5))
        monkeypatch.setattr(effect_turn, "RECORDED_WITHIN", 0)
        failure = run_job(job, effects=AwayStore(completions=1000)).failure
        assert failure is not None
        assert (failure.type, failure.retryable) == ("RetryLater", True)
        assert "is done, but the effect store did not take that down" in failure.message
        assert len(bank.calls) == 1

    async def test_what_is_done_is_recorded_also_when_the_attempt_is_over(self, bank: Bank) -> None:
        """Cancelled while the store was away: the next attempt replays all the same."""

        @activity.defn
        async def job() -> int:
            return (await once("pay", bank.pay, returns=Receipt)).number

        store = AwayStore(completions=3)
        first = await run_job_async(job, effects=store, idempotency_key="k", cancel_after=timedelta(seconds=0.1))
        assert first.status is JobStatus.CANCELLED
        second = await run_job_async(job, attempt=2, effects=store, idempotency_key="k")
        assert second.require_success() == 1
        assert len(bank.calls) == 1


class Typed(TypedDict):
    """A dictionary with known members."""

    number: int


async def typed(pay: Callable[[], Awaitable[Receipt]], name: Callable[[str], Awaitable[dict[str, str]]]) -> None:
    """Say what the types are: nothing calls this, mypy reads it."""
    receipt: Receipt = await once("a", pay, returns=Receipt)
    names: dict[str, str] = await once("b", name)
    await once("c", lambda: asyncio.sleep(0))
    number: int = once_sync("d", lambda key: len(key))
    typed: Typed = once_sync("e", lambda: {"number": 1}, returns=Typed)
    _ = receipt, names, number, typed


class TestDesk:
    """Which store a worker has."""

    def test_the_environment_says_where_the_store_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Unless the plugin does."""
        assert open_effect_desk() is None
        monkeypatch.setenv("HORARIUM_EFFECTS_URL", "postgresql://h/d")
        assert open_effect_desk() is not None

    def test_a_url_that_is_none_is_refused_at_once_and_not_repeated(self) -> None:
        """It may hold a password."""
        with pytest.raises(ValueError, match="expected sqlite:///FILE or postgresql") as refusal:
            open_effect_desk("mysql://u:secret@h/d")
        assert "secret" not in str(refusal.value)

    def test_a_closed_desk_opens_again(self) -> None:
        """Workers may be stopped and started in one process; closing what never began is nothing."""
        desk, before = EffectDesk(MemoryEffectStore()), set(threading.enumerate())
        desk.close()
        for fence in (1, 2):
            claim = TestOthers.claim(fence)
            answer = desk.acquire(claim, lease=timedelta(), until=time.monotonic() + 1).result(5)
            assert answer == Claimed()
            desk.close()
        assert set(threading.enumerate()) <= before


def test_a_permanent_error_of_the_effect_is_one_of_the_job() -> None:
    """Errors pass as they are."""

    @activity.defn
    async def job() -> None:
        async def pay() -> None:
            raise PermanentError("no such account")

        await once("pay", pay)

    result: JobResult = run_job(job)
    assert result.failure is not None
    assert (result.failure.message, result.failure.retryable) == ("no such account", False)
