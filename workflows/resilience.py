"""What follows an attempt that did not succeed: another one, parking, or the end of the run.

Pure decisions. What kind a failure is says ``classification``; what a downstream allows says a ``Verdict``.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import assert_never

from pydantic import JsonValue

from workflows.admission import Verdict, VerdictKind
from workflows.classification import is_retryable
from workflows.job import Backoff, JobDefinition, RetryPolicy
from workflows.policies import is_past_deadline
from workflows.run import Attempt, AttemptStatus, Failure, Outcome, Run, RunStatus

ENGINE_FLOOR = timedelta(seconds=1)
"""No server timer is shorter. Without adding it, all waits below a second would end together."""

QUIET = ENGINE_FLOOR + timedelta(milliseconds=300)
"""What a new run needs before the next fire: its first workflow task, and then the shortest timer. And what must lie between
a timer and that of a fire: the engine looks ahead to one timer of a workflow, and to the next no sooner than its floor."""

LONGEST_RETRY_AFTER = timedelta(days=365)
"""Whatever an error asks for: further away, times come to an end."""

UNKNOWN_ACTIVITY = "unknown_activity"
"""How the reason of a run begins that is parked because no worker knows its activity, and not for its downstream."""

DEADLINE_IS_OVER = "deadline_seconds is over"
"""Why a run is dead whose attempt would begin, or has waited for a worker, past its deadline."""

FIRST_PARKING = timedelta(seconds=5)
LONGEST_PARKING = timedelta(minutes=1)
"""A rolling deploy of the workers ends within minutes; its runs should not wait much longer than it did."""


NO_OBJECTION = Verdict()


@dataclass(frozen=True, kw_only=True)
class AttemptEnd:
    """How the attempt of a run ended, as its workflow saw it."""

    run_id: str
    status: AttemptStatus
    started_at: datetime | None = None
    worker: str | None = None
    failure: Failure | None = None
    result: JsonValue = None
    checkpoint: JsonValue = None
    unknown_activity: bool = False
    """A worker took it and does not know the activity. No attempt of the job's code was made."""

    cannot_decrypt: bool = False
    """A worker took it and lacks an encryption key. No attempt of the job's code was made. ``failure`` says so."""

    not_started: bool = False
    """No worker took it in time."""

    parked_until: datetime | None = None
    """It was not made at all: the downstream's breaker is open. ``failure`` says so."""

    verdict: Verdict = NO_OBJECTION
    """What the downstream's breaker and budget say of another attempt."""


@dataclass(frozen=True, kw_only=True)
class Settlement:
    """A run after its attempt ended, and the attempt's own row (``None`` where no attempt was made)."""

    run: Run
    attempt: Attempt | None


def decide_after_attempt(
    run: Run, end: AttemptEnd, *, definition: JobDefinition, now: datetime, draw: float
) -> Settlement:
    """Say where a run stands after its attempt.

    ``draw`` is uniform in [0, 1), from the workflow's own generator.
    """
    end = replace(end, started_at=_start_within_attempt(end.started_at, run, now=now))
    asked_because = run.reason
    began = run.started_at is not None or _has_begun(run, end)
    run = run.model_copy(
        update={
            "outcome": Outcome.RAN if began else Outcome.PENDING,
            "worker": end.worker or run.worker,
            "started_at": run.started_at or end.started_at or (run.dispatched_at if began else None),
            "checkpoint": end.checkpoint if end.checkpoint is not None else run.checkpoint,
            "failure": end.failure,
            "reason": None,
        }
    )
    if _was_not_made(end):
        parked = _unless_overdue(_park(run, end, now=now, draw=draw), definition, now=now)
        return Settlement(run=parked, attempt=None)
    attempt = _attempt_row(run, end, now=now)
    match end.status:
        case AttemptStatus.SUCCESS:
            ended = _end(run, RunStatus.SUCCESS, now=now, result=end.result)
        case AttemptStatus.CANCELLED:
            ended = _end(run, RunStatus.CANCELLED, now=now, reason=asked_because)
        case AttemptStatus.FAILED | AttemptStatus.TIMED_OUT | AttemptStatus.LOST:
            if not end.not_started:
                ended = _retry_or_end(run, end, definition=definition, now=now, draw=draw)
            elif run.attempt == 1 and is_past_deadline(definition, run, now=now):
                ended = end_too_late(run, now=now)
            elif definition.deadline is not None and now >= run.target_at + definition.deadline:
                ended = _end(run, RunStatus.DEAD, now=now, reason=DEADLINE_IS_OVER)
            else:
                ended = _end(run, RunStatus.DEAD, now=now, reason="not_started: no worker took it in time")
        case AttemptStatus.RUNNING:
            raise ValueError("An attempt that is running has not ended.")
        case _:
            assert_never(end.status)
    return Settlement(run=ended, attempt=attempt)


def _was_not_made(end: AttemptEnd) -> bool:
    """Say whether no attempt was made, and one should be later."""
    return end.unknown_activity or end.cannot_decrypt or end.parked_until is not None


def _has_begun(run: Run, end: AttemptEnd) -> bool:
    """Say whether a worker began the attempt: one that no worker was seen to take, and that was then called off, it did not."""
    if end.not_started or _was_not_made(end):
        return False
    return (
        end.status is not AttemptStatus.CANCELLED or end.started_at is not None or run.status is not RunStatus.PENDING
    )


def _start_within_attempt(started_at: datetime | None, run: Run, *, now: datetime) -> datetime | None:
    """Correct a start that a worker's clock tells: it lies between dispatch and end, of which Temporal's clock tells."""
    if started_at is None:
        return None
    return min(max(started_at, run.dispatched_at or started_at), now)


def as_cancelled(end: AttemptEnd) -> AttemptEnd:
    """Read the end of an attempt that was asked to stop: whatever it answered but success, it was cancelled."""
    return AttemptEnd(
        run_id=end.run_id,
        status=AttemptStatus.CANCELLED,
        started_at=end.started_at,
        worker=end.worker,
        failure=end.failure,
        checkpoint=end.checkpoint,
    )


def has_attempts_left(run: Run) -> bool:
    """Say whether another attempt may follow the one just made. One that opens a breaker was made like any other."""
    return run.attempt - run.excused < run.max_attempts


def breaker_is_open(downstream: str) -> str:
    """Say why a run is parked whose downstream is left alone."""
    return f"the circuit breaker of {downstream} is open"


def retry_delay(retry: RetryPolicy, *, retries: int, draw: float) -> timedelta:
    """Say how long to wait before another attempt, with full jitter.

    ``retries`` counts the waits before this one, from 0. The answer is ``floor + draw * min(cap, base * 2**retries)``, for
    any ``retries`` without overflow (AWS Architecture Blog, "Exponential Backoff And Jitter").
    """
    match retry.backoff:
        case Backoff.FIXED:
            return max(ENGINE_FLOOR, retry.base)
        case Backoff.EXPONENTIAL:
            return ENGINE_FLOOR + draw * _doubled(retry.base, retries, cap=retry.cap)
        case _:
            assert_never(retry.backoff)


def _doubled(base: timedelta, times: int, *, cap: timedelta) -> timedelta:
    if not base:
        return base
    # As many doublings as the quotient has bits lead above the cap; a power that large is never computed.
    return cap if times >= (cap // base).bit_length() else base * 2**times


def _park(run: Run, end: AttemptEnd, *, now: datetime, draw: float) -> Run:
    """Put a run aside of which no attempt was made; the one that was dispatched does not count."""
    message = end.failure.message if end.failure else ""
    widest = min(LONGEST_PARKING, FIRST_PARKING * 2 ** min(run.parkings, 10))
    is_first = run.attempt <= 1
    return run.model_copy(
        update={
            "outcome": Outcome.PENDING if is_first else run.outcome,
            "started_at": None if is_first else run.started_at,
            "status": RunStatus.PARKED,
            "reason": f"{UNKNOWN_ACTIVITY}: {message}" if end.unknown_activity else message,
            "attempt": run.attempt - 1,
            "parkings": run.parkings + 1,
            "next_attempt_at": end.parked_until or now + widest / 2 + draw * widest / 2,
        }
    )


def _retry_or_end(run: Run, end: AttemptEnd, *, definition: JobDefinition, now: datetime, draw: float) -> Run:
    failure, retry = end.failure or Failure(), definition.retry
    if not is_retryable(failure, retry):
        said = "the error says never to retry" if not failure.retryable else "this kind of error is not retried"
        return _end(run, RunStatus.DEAD, now=now, reason=said)
    match end.verdict.kind:
        case VerdictKind.PARK:
            reason = breaker_is_open(definition.downstream)
            at = max(end.verdict.parked_until, now + _asked_wait(failure))
            parked = {"status": RunStatus.PARKED, "reason": reason, "next_attempt_at": at}
            excused = {"excused": run.excused + 1, "parkings": run.parkings + 1}
            return _unless_overdue(run.model_copy(update=parked | excused), definition, now=now)
        case VerdictKind.EXHAUSTED | VerdictKind.RETRY if not has_attempts_left(run):
            return _end(run, RunStatus.DEAD, now=now, reason="max_attempts is reached")
        case VerdictKind.EXHAUSTED:
            return _end(run, RunStatus.DEAD, now=now, reason="retry_budget_exhausted")
        case VerdictKind.RETRY:
            pass
        case _:
            assert_never(end.verdict.kind)
    delay = retry_delay(retry, retries=max(0, run.attempt - run.excused - 1), draw=draw)
    at = now + max(delay, _asked_wait(failure))
    retrying = run.model_copy(update={"status": RunStatus.RETRYING, "next_attempt_at": at, "parkings": 0})
    return _unless_overdue(retrying, definition, now=now)


def _asked_wait(failure: Failure) -> timedelta:
    """Say how long the error asks to be spared."""
    return min(failure.retry_after or timedelta(0), LONGEST_RETRY_AFTER)


def _unless_overdue(run: Run, definition: JobDefinition, *, now: datetime) -> Run:
    """End a run whose next attempt would begin after the deadline."""
    if definition.deadline is None or run.next_attempt_at is None:
        return run
    if run.next_attempt_at <= run.target_at + definition.deadline:
        return run
    return _end(run, RunStatus.DEAD, now=now, reason=DEADLINE_IS_OVER)


def _end(run: Run, status: RunStatus, *, now: datetime, reason: str | None = None, result: JsonValue = None) -> Run:
    never_began = Outcome.CANCELLED if status is RunStatus.CANCELLED else Outcome.FAILED_TO_START
    return run.model_copy(
        update={
            "status": status,
            "outcome": never_began if run.outcome is Outcome.PENDING else run.outcome,
            "reason": reason,
            "finished_at": now,
            "next_attempt_at": None,
            "result": result,
            "checkpoint": None if status is RunStatus.SUCCESS else run.checkpoint,
        }
    )


def end_before_start(run: Run, outcome: Outcome, *, now: datetime, reason: str) -> Run:
    """End a run of which no attempt was dispatched."""
    return end_between_attempts(run, now=now, reason=reason).model_copy(update={"outcome": outcome})


def end_too_late(run: Run, *, now: datetime) -> Run:
    """End a run that could not start within its deadline."""
    return end_before_start(run, Outcome.MISSED, now=now, reason="could not start within max_delay_seconds")


def end_between_attempts(run: Run, *, now: datetime, reason: str) -> Run:
    """End a run of which no attempt is out."""
    return _end(run, RunStatus.CANCELLED, now=now, reason=reason)


def comes_too_late(definition: JobDefinition, run: Run, *, now: datetime) -> bool:
    """Say whether a run that has been parked before its first attempt has passed its deadline."""
    return run.attempt == 0 and is_past_deadline(definition, run, now=now)


def _attempt_row(run: Run, end: AttemptEnd, *, now: datetime) -> Attempt:
    return Attempt(
        run_id=run.run_id,
        scheduled_at=run.scheduled_at,
        number=run.attempt,
        status=end.status,
        fence=run.fence,
        dispatched_at=run.dispatched_at or now,
        started_at=end.started_at,
        finished_at=now,
        worker=end.worker,
        failure=end.failure,
    )
