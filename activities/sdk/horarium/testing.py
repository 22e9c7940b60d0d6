"""For the tests of job authors: run a job's function as a worker would, without a server.

What runs is the worker's own code: the payload is fitted to the function, heartbeats are made, failures are translated, results
must have a JSON form. A function that is not ``async`` runs in a thread of its own, as on a worker. ``job_tester`` in pytest is
a ``JobTester``; its plugin comes with the package.
"""

import asyncio
import dataclasses
import inspect
import json
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypedDict, TypeVar

from pydantic import JsonValue, TypeAdapter
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.testing import ActivityEnvironment
from typing_extensions import Unpack

from horarium.attempt import listening
from horarium.attempt_report import parse_attempt_report
from horarium.clock import now, reading
from horarium.effect import Claim, ClaimAnswer, EffectStore, Outcome
from horarium.effect_desk import EffectDesk
from horarium.effect_memory import MemoryEffectStore
from horarium.job_activity import JOB_WORKFLOW, name_of, wrap_activity
from horarium.job_run import JobRun, RunKind
from horarium.plain_json import CHECKPOINT_LIMIT, to_plain_json

MONDAY: Final = datetime(2026, 6, 8, 13, tzinfo=UTC)
"""Where a ``FakeClock`` stands at first: 9:00 on a Monday in New York."""

SHORTEST_WAIT: Final = timedelta(seconds=1)
"""Between two attempts of a run."""

TIMEOUT: Final = timedelta(seconds=300)
HEARTBEAT_TIMEOUT: Final = timedelta(seconds=30)
"""What jobs have that say nothing else."""

PAYLOAD_LIMIT: Final = 256 * 1024
"""Bytes of JSON, as the API has it."""

Function = Callable[..., Any]
Answer = TypeVar("Answer")

_JOB_RUN: TypeAdapter[JobRun[Any]] = TypeAdapter(JobRun[Any])


class FakeClock:
    """A clock that stands still until it is moved. ``horarium.now()`` reads it in job code that runs under it."""

    def __init__(self, at: datetime = MONDAY) -> None:
        if at.tzinfo is None:
            raise ValueError("FakeClock needs an aware time, such as datetime(2026, 6, 8, tzinfo=UTC)")
        self._at = at.astimezone(UTC)

    def now(self) -> datetime:
        """Read it, in UTC."""
        return self._at

    def advance(self, span: timedelta) -> None:
        """Move it forward."""
        if span < timedelta():
            raise ValueError("a clock does not go back")
        self._at += span


class JobStatus(StrEnum):
    """How an attempt ended."""

    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class JobFailure:
    """What the scheduler is told of a failure."""

    type: str
    message: str
    retryable: bool
    """``False`` after ``PermanentError``: the run is dead, whatever attempts are left."""

    retry_after: timedelta | None
    """As ``RetryLater`` asks."""


@dataclass(frozen=True, kw_only=True)
class JobEffect:
    """An effect that was carried out with ``once``."""

    name: str
    key: str
    """The idempotency key that it was given."""

    result: JsonValue


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """What one attempt came to."""

    run: JobRun[Any]
    """What the job's code was given."""

    status: JobStatus
    result: JsonValue
    """What was returned, in its JSON form; ``None`` unless it succeeded."""

    failure: JobFailure | None
    checkpoints: tuple[JsonValue, ...]
    """Everything that was saved, in order."""

    effects: tuple[JobEffect, ...]
    """What this attempt carried out with ``once``, in order; nothing that was done before."""

    error: BaseException | None
    """For tracebacks: what failed, or the cancellation."""

    @property
    def checkpoint(self) -> JsonValue:
        """What the next attempt is given."""
        return self.checkpoints[-1] if self.checkpoints else self.run.checkpoint

    def require_success(self) -> JsonValue:
        """Get the result. Raises what went wrong, with the traceback into the job's code."""
        if self.status is not JobStatus.SUCCESS:
            raise AssertionError(f"the attempt ended as {self.status}: {self.failure}") from self.error
        return self.result


class RunOptions(TypedDict, total=False):
    """Everything about a run that a test may say. What it leaves out is as in a job's first scheduled run."""

    payload: object
    """Anything with a JSON form, models included."""

    attempt: int
    max_attempts: int
    checkpoint: object
    kind: RunKind
    scheduled_at: datetime
    """Default: now."""

    target_at: datetime
    """Default: ``scheduled_at``."""

    stands_for: int
    tenant: str
    job_id: str
    run_id: str
    idempotency_key: str
    fence: int
    clock: FakeClock
    """Default: the real one."""

    effects: EffectStore
    """Where ``once`` keeps its claims. Default: an empty one in memory, for all attempts of ``run_to_end``."""

    cancel_after: timedelta
    """Cancel the attempt after so long, by the real clock."""

    cancel_at_checkpoint: int
    """Cancel the attempt when it saves its first (1), second (2) ... checkpoint."""


def run_job(function: Function, **options: Unpack[RunOptions]) -> JobResult:
    """Run one attempt of an ``@activity.defn`` function. Never raises what the function does."""
    return _run(run_job_async(function, **options), instead="run_job_async")


def run_to_end(function: Function, **options: Unpack[RunOptions]) -> Sequence[JobResult]:
    """Run attempt after attempt until one is the last, as the scheduler would, without waiting in between.

    Each gets the checkpoint of the one before. A ``FakeClock`` is moved on by what ``RetryLater`` asks, or a second.
    """
    return _run(run_to_end_async(function, **options), instead="run_to_end_async")


async def run_to_end_async(function: Function, **options: Unpack[RunOptions]) -> Sequence[JobResult]:
    """``run_to_end`` for tests that are ``async``."""
    options.setdefault("effects", MemoryEffectStore())
    results = [await run_job_async(function, **options)]
    while (last := results[-1]).failure and last.failure.retryable and last.run.attempt < last.run.max_attempts:
        if clock := options.get("clock"):
            clock.advance(max(last.failure.retry_after or SHORTEST_WAIT, SHORTEST_WAIT))
        options["scheduled_at"], options["target_at"] = last.run.scheduled_at, last.run.target_at
        options["attempt"], options["fence"] = last.run.attempt + 1, last.run.fence + 1
        options["checkpoint"] = last.checkpoint
        results.append(await run_job_async(function, **options))
    return results


async def run_job_async(function: Function, **options: Unpack[RunOptions]) -> JobResult:
    """``run_job`` for tests that are ``async``: an ``async`` function runs in the test's own event loop."""
    clock = options.get("clock")
    with reading(clock.now) if clock else nullcontext():
        return await _Attempt(function, options).run()


class JobTester:
    """Runs a test's jobs under one clock, and with one store of effects: what one run has done, a second one does not repeat."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.effects = MemoryEffectStore()

    def run(self, function: Function, **options: Unpack[RunOptions]) -> JobResult:
        """``run_job`` under the clock."""
        return run_job(function, **self._with_own(options))

    async def run_async(self, function: Function, **options: Unpack[RunOptions]) -> JobResult:
        """``run_job_async`` under the clock."""
        return await run_job_async(function, **self._with_own(options))

    def run_to_end(self, function: Function, **options: Unpack[RunOptions]) -> Sequence[JobResult]:
        """``run_to_end`` under the clock."""
        return run_to_end(function, **self._with_own(options))

    async def run_to_end_async(self, function: Function, **options: Unpack[RunOptions]) -> Sequence[JobResult]:
        """``run_to_end_async`` under the clock."""
        return await run_to_end_async(function, **self._with_own(options))

    def _with_own(self, options: RunOptions) -> RunOptions:
        return {"clock": self.clock, "effects": self.effects, **options}


class _Attempt:
    """One attempt in an activity environment."""

    def __init__(self, function: Function, options: RunOptions) -> None:
        self._run = _make_run(options)
        self._store = _NotingStore(options.get("effects") or MemoryEffectStore())
        self._desk = EffectDesk(self._store)
        self._function = wrap_activity(function, worker="test", effects=self._desk)
        self._is_async = inspect.iscoroutinefunction(self._function)
        self._environment = _make_environment(self._run, name_of(function))
        self._loop, self._thread = asyncio.get_running_loop(), threading.current_thread()
        self._checkpoints: list[JsonValue] = []
        self._cancel_after = options.get("cancel_after")
        self._cancel_at_checkpoint = options.get("cancel_at_checkpoint")

    async def run(self) -> JobResult:
        """Run it, and say how it ended."""
        with listening(self._note_checkpoint):
            try:
                report = parse_attempt_report(await self._answer())
            except (ApplicationError, CancelledError, asyncio.CancelledError) as error:
                if _is_test_cancelled():
                    raise asyncio.CancelledError from error
                if isinstance(error, ApplicationError):
                    return self._result(JobStatus.FAILED, failure=_describe(error), error=error)
                return self._result(JobStatus.CANCELLED, error=error)
        return self._result(JobStatus.SUCCESS, result=report.result if report else None)

    async def _answer(self) -> JsonValue:
        call = partial(self._environment.run, self._function, _JOB_RUN.dump_python(self._run, mode="json"))
        timer = self._loop.call_later(self._cancel_after.total_seconds(), self._cancel) if self._cancel_after else None
        try:
            if self._is_async:
                answer: JsonValue = await call()
            else:
                with ThreadPoolExecutor(1, "activity") as thread:
                    answer = await self._loop.run_in_executor(thread, copy_context().run, call)
        finally:
            if timer:
                timer.cancel()
            await asyncio.to_thread(self._desk.close)
        return answer

    def _note_checkpoint(self, value: JsonValue) -> None:
        self._checkpoints.append(value)
        if len(self._checkpoints) == self._cancel_at_checkpoint:
            self._cancel()

    def _cancel(self) -> None:
        """Cancel the attempt, at the next instruction of a thread or the next ``await`` of a coroutine."""
        if self._is_async and threading.current_thread() is not self._thread:
            self._loop.call_soon_threadsafe(self._environment.cancel)
        else:
            self._environment.cancel()

    def _result(
        self,
        status: JobStatus,
        *,
        result: JsonValue = None,
        failure: JobFailure | None = None,
        error: BaseException | None = None,
    ) -> JobResult:
        return JobResult(
            run=self._run,
            status=status,
            result=result,
            failure=failure,
            checkpoints=tuple(self._checkpoints),
            effects=tuple(self._store.done),
            error=error,
        )


class _NotingStore:
    """An ``EffectStore`` that notes what is done in it."""

    def __init__(self, store: EffectStore) -> None:
        self._store = store
        self.done: list[JobEffect] = []

    async def claim(self, claim: Claim, *, lease: timedelta) -> ClaimAnswer:
        return await self._store.claim(claim, lease=lease)

    async def renew(self, claim: Claim, *, lease: timedelta) -> bool:
        return await self._store.renew(claim, lease=lease)

    async def complete(self, claim: Claim, outcome: Outcome) -> bool:
        is_ours = await self._store.complete(claim, outcome)
        if is_ours:
            result = None if outcome.result is None else json.loads(outcome.result)
            self.done.append(JobEffect(name=claim.key.name, key=claim.key.for_receiver(), result=result))
        return is_ours

    async def release(self, claim: Claim) -> bool:
        return await self._store.release(claim)

    async def close(self) -> None:
        await self._store.close()


def _make_run(options: RunOptions) -> JobRun[Any]:
    job_id, attempt = options.get("job_id", "job"), options.get("attempt", 1)
    scheduled_at = options.get("scheduled_at") or now()
    return JobRun(
        tenant=options.get("tenant", "default"),
        job_id=job_id,
        run_id=options.get("run_id", f"{job_id}:test"),
        kind=options.get("kind", RunKind.SCHEDULED),
        scheduled_at=scheduled_at,
        target_at=options.get("target_at", scheduled_at),
        attempt=attempt,
        max_attempts=options.get("max_attempts", max(4, attempt)),
        idempotency_key=options.get("idempotency_key", f"{job_id}:{int(scheduled_at.timestamp())}"),
        fence=options.get("fence", attempt),
        stands_for=options.get("stands_for", 1),
        payload=to_plain_json(options.get("payload"), name="the payload", limit=PAYLOAD_LIMIT),
        checkpoint=to_plain_json(options.get("checkpoint"), name="the checkpoint", limit=CHECKPOINT_LIMIT),
    )


def _make_environment(run: JobRun[Any], activity_type: str | None) -> ActivityEnvironment:
    if activity_type is None:
        raise ValueError("a dynamic activity has no name that a job could ask for")
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(
        environment.info,
        activity_type=activity_type,
        workflow_type=JOB_WORKFLOW,
        workflow_id=f"test/{run.job_id}",
        started_time=now(),
        scheduled_time=now(),
        current_attempt_scheduled_time=now(),
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        start_to_close_timeout=TIMEOUT,
    )
    return environment


def _describe(error: ApplicationError) -> JobFailure:
    return JobFailure(
        type=error.type or "",
        message=error.message,
        retryable=not error.non_retryable,
        retry_after=error.next_retry_delay,
    )


def _is_test_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _run(coroutine: Coroutine[Any, Any, Answer], *, instead: str) -> Answer:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    coroutine.close()
    raise RuntimeError(f"this test is async: call `await {instead}(...)`")
