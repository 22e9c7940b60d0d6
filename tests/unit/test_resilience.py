"""What follows an attempt: retries with full jitter, parking, and the ends of a run."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.admission import Verdict, VerdictKind
from workflows.attempt import queue_timeout
from workflows.job import Backoff, CatchUpPolicy, JobDefinition, RetryPolicy
from workflows.resilience import (
    LONGEST_PARKING,
    LONGEST_RETRY_AFTER,
    AttemptEnd,
    as_cancelled,
    comes_too_late,
    decide_after_attempt,
    end_before_start,
    retry_delay,
)
from workflows.run import FINAL_STATUSES, AttemptStatus, Failure, Outcome, Run, RunKind, RunStatus

NOON = datetime(2026, 6, 8, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)

FAILURES = [AttemptStatus.FAILED, AttemptStatus.TIMED_OUT, AttemptStatus.LOST]


def dispatched(**fields: Any) -> Run:
    """A run whose attempt is out."""
    values: dict[str, Any] = {
        "run_id": "r",
        "scheduled_at": NOON,
        "target_at": NOON,
        "created_at": NOON,
        "status": RunStatus.RUNNING,
        "outcome": Outcome.RAN,
        "attempt": 1,
        "max_attempts": 4,
        "fence": 7,
        "dispatched_at": NOON,
    }
    return Run(**(values | fields))


def settle(run: Run, end: AttemptEnd, *, draw: float = 0.5, seconds: float = 3, **fields: Any) -> Run:
    """Where the run stands when the attempt ended so many seconds after noon."""
    now = NOON + timedelta(seconds=seconds)
    return decide_after_attempt(run, end, definition=JobDefinition(**fields), now=now, draw=draw).run


def ended(status: AttemptStatus, **fields: Any) -> AttemptEnd:
    """The end of an attempt."""
    return AttemptEnd(run_id="r", status=status, **fields)


@pytest.mark.parametrize(
    ("told", "taken"), [(-600.0, 0.0), (-0.001, 0.0), (0.0, 0.0), (1.5, 1.5), (3.0, 3.0), (3.001, 3.0), (600.0, 3.0)]
)
def test_a_start_that_the_worker_tells_lies_between_dispatch_and_end(told: float, taken: float) -> None:
    """SB-113: the worker's clock may be wrong by minutes; Temporal's says when it was dispatched and when it had ended."""
    end = ended(AttemptStatus.SUCCESS, started_at=NOON + timedelta(seconds=told))
    settlement = decide_after_attempt(dispatched(), end, definition=JobDefinition(), now=NOON + 3 * SECOND, draw=0.5)
    assert settlement.attempt is not None
    started = settlement.run.started_at, settlement.attempt.started_at
    assert started == (NOON + timedelta(seconds=taken),) * 2


SPANS = st.timedeltas(min_value=timedelta(milliseconds=1), max_value=timedelta(days=30))


@given(
    base=SPANS,
    cap=SPANS,
    retries=st.one_of(st.integers(0, 100), st.integers(0, 10**9)),
    draw=st.floats(0, 1, exclude_max=True),
)
def test_the_wait_is_drawn_between_the_floor_and_the_doubled_base(
    base: timedelta, cap: timedelta, retries: int, draw: float
) -> None:
    """SB-103: ``floor + uniform(0, min(cap, base * 2**n))`` for any n; Python's own integers are the oracle, no overflow ever."""
    delay = retry_delay(RetryPolicy(base=base, cap=cap), retries=retries, draw=draw)
    microsecond = timedelta(microseconds=1)
    widest = min(cap // microsecond, (base // microsecond) << min(retries, 200))
    assert abs((delay - SECOND) // microsecond - widest * draw) <= 1
    assert SECOND <= delay <= SECOND + cap


def test_first_retries_of_the_default_policy_are_those_of_the_table() -> None:
    """By hand: base 1 s, cap 900 s, at the upper end of the draw: 2, 3, 5, 9 s, and never more than 901 s."""
    delays = [
        retry_delay(RetryPolicy(), retries=n, draw=1.0).total_seconds() for n in (0, 1, 2, 3, 9, 10, 63, 64, 5000)
    ]
    assert delays == [2, 3, 5, 9, 513, 901, 901, 901, 901]


def test_waits_of_many_runs_are_spread_out() -> None:
    """Full jitter: what failed together comes back one by one."""
    delays = {retry_delay(RetryPolicy(), retries=5, draw=number / 100) for number in range(100)}
    assert len(delays) == 100


@pytest.mark.parametrize(("base", "wait"), [(timedelta(milliseconds=1), SECOND), (5 * SECOND, 5 * SECOND)])
def test_a_fixed_wait_is_the_base_but_never_below_the_engines_floor(base: timedelta, wait: timedelta) -> None:
    """And the same for every retry."""
    policy = RetryPolicy(backoff=Backoff.FIXED, base=base)
    assert {retry_delay(policy, retries=n, draw=0.9) for n in (0, 1, 10**6)} == {wait}


@pytest.mark.parametrize("status", FAILURES)
def test_a_failed_attempt_is_followed_by_another_until_they_are_used_up(status: AttemptStatus) -> None:
    """Whatever made it fail."""
    first = settle(dispatched(), ended(status, failure=Failure(message="x")))
    assert (first.status, first.next_attempt_at) == (RunStatus.RETRYING, NOON + timedelta(seconds=4.5))
    last = settle(dispatched(attempt=4), ended(status, failure=Failure(message="x")))
    assert (last.status, last.reason, last.finished_at) == (
        RunStatus.DEAD,
        "max_attempts is reached",
        NOON + 3 * SECOND,
    )


@pytest.mark.parametrize("kind", [VerdictKind.RETRY, VerdictKind.EXHAUSTED])
def test_a_run_without_attempts_left_is_dead_of_that_and_not_of_a_budget(kind: VerdictKind) -> None:
    """It needs no budget."""
    end = ended(AttemptStatus.FAILED, failure=Failure(type="ConnectionError"), verdict=_verdict(kind))
    after = settle(dispatched(attempt=4, max_attempts=4), end, downstream="bank")
    assert (after.status, after.reason, after.next_attempt_at) == (RunStatus.DEAD, "max_attempts is reached", None)
    assert settle(dispatched(attempt=5, excused=2, max_attempts=4), end, downstream="bank").reason != after.reason


def _verdict(kind: VerdictKind) -> Verdict:
    return Verdict(kind=kind, parked_until=NOON + timedelta(minutes=1))


def test_a_run_is_parked_by_the_name_of_its_downstream_and_its_attempt_is_excused() -> None:
    """Whoever looks at the run sees whose breaker is open."""
    end = ended(AttemptStatus.FAILED, failure=Failure(type="ConnectionError"), verdict=_verdict(VerdictKind.PARK))
    after = settle(dispatched(attempt=2), end, downstream="bank.example")
    assert (after.status, after.excused) == (RunStatus.PARKED, 1)
    assert after.reason == "the circuit breaker of bank.example is open"
    assert after.next_attempt_at == NOON + timedelta(minutes=1)


def test_a_parked_run_does_not_come_back_before_the_error_says() -> None:
    """``Retry-After`` counts for it as for a retry."""
    failure = Failure(type="HttpStatus503", retry_after=timedelta(minutes=2))
    end = ended(AttemptStatus.FAILED, failure=failure, verdict=_verdict(VerdictKind.PARK))
    assert settle(dispatched(attempt=2), end, downstream="bank").next_attempt_at == NOON + timedelta(seconds=123)


def test_a_run_whose_retry_has_no_budget_is_dead_at_once() -> None:
    """It can be redriven when its downstream is well."""
    end = ended(AttemptStatus.FAILED, failure=Failure(type="ConnectionError"), verdict=_verdict(VerdictKind.EXHAUSTED))
    after = settle(dispatched(attempt=1), end, downstream="bank")
    assert (after.status, after.reason) == (RunStatus.DEAD, "retry_budget_exhausted")


@pytest.mark.parametrize(("deadline", "dead"), [(4.499, True), (4.5, False), (60, False)])
def test_a_run_whose_next_attempt_would_begin_after_its_deadline_is_dead_at_once(deadline: float, dead: bool) -> None:
    """``deadline_seconds`` counts from the target, over all attempts. The one at its end is still made: here at 4.5 s."""
    end, span = ended(AttemptStatus.FAILED, failure=Failure(message="x")), timedelta(seconds=deadline)
    after = settle(dispatched(), end, deadline=span)
    if not dead:
        assert (after.status, after.next_attempt_at) == (RunStatus.RETRYING, NOON + timedelta(seconds=4.5))
        return
    assert (after.status, after.reason, after.attempt) == (RunStatus.DEAD, "deadline_seconds is over", 1)
    assert (after.next_attempt_at, after.failure) == (None, Failure(message="x"))
    later = settle(dispatched(target_at=NOON + SECOND), end, deadline=span)
    assert later.status is RunStatus.RETRYING


def test_waiting_for_a_downstream_does_not_outlast_the_deadline() -> None:
    """Neither parked before its first attempt, nor by the breaker that its own failure met, nor as long as an error asks for."""
    minute = timedelta(minutes=1)
    not_made = ended(AttemptStatus.FAILED, parked_until=NOON + minute, failure=Failure(message="waits"))
    parked = ended(AttemptStatus.FAILED, failure=Failure(type="ConnectionError"), verdict=_verdict(VerdictKind.PARK))
    patient = ended(AttemptStatus.FAILED, failure=Failure(retry_after=minute - 3 * SECOND))
    for end, waiting in (
        (not_made, RunStatus.PARKED),
        (parked, RunStatus.PARKED),
        (patient, RunStatus.RETRYING),
    ):
        assert settle(dispatched(), end, downstream="bank", deadline=minute).status is waiting
        over = settle(dispatched(), end, downstream="bank", deadline=minute - SECOND)
        assert (over.status, over.reason) == (RunStatus.DEAD, "deadline_seconds is over")


@pytest.mark.parametrize(
    ("deadline", "queue", "seconds", "waits"),
    [
        (None, timedelta(days=1), 0, timedelta(days=1)),
        (timedelta(hours=1), timedelta(days=1), 0, timedelta(hours=1)),
        (timedelta(hours=1), timedelta(days=1), 600, timedelta(minutes=50)),
        (timedelta(hours=1), timedelta(minutes=5), 600, timedelta(minutes=5)),
        (timedelta(hours=1), timedelta(days=1), 3_600, SECOND),
    ],
)
def test_no_attempt_waits_for_a_worker_beyond_the_deadline(
    deadline: timedelta | None, queue: timedelta, seconds: float, waits: timedelta
) -> None:
    """Of whatever number it is; the engine gives it back then, and the run is dead of its deadline."""
    definition = JobDefinition(deadline=deadline, queue_timeout=queue)
    for attempt in (1, 3):
        run, now = dispatched(attempt=attempt), NOON + timedelta(seconds=seconds)
        assert queue_timeout(definition, run, now=now) == waits
    too_long = ended(AttemptStatus.TIMED_OUT, not_started=True)
    given_back = settle(dispatched(), too_long, seconds=3_600, deadline=deadline)
    reason = "not_started: no worker took it in time" if deadline is None else "deadline_seconds is over"
    assert (given_back.status, given_back.reason) == (RunStatus.DEAD, reason)


@pytest.mark.parametrize("kind", list(RunKind))
def test_only_live_fires_must_start_within_the_delay_that_catch_up_allows(kind: RunKind) -> None:
    """Somebody asked for the others, whenever their turn comes."""
    definition = JobDefinition(
        missed_window=CatchUpPolicy.DEADLINE, max_delay=timedelta(seconds=60), queue_timeout=timedelta(hours=1)
    )
    run = dispatched(attempt=1).model_copy(update={"kind": kind})
    waits = queue_timeout(definition, run, now=NOON + timedelta(seconds=20))
    assert waits == (timedelta(seconds=40) if kind is RunKind.SCHEDULED else timedelta(hours=1))


def test_what_succeeds_or_is_cancelled_after_its_deadline_has_succeeded_or_is_cancelled() -> None:
    """An attempt that has begun in time is not cut short: that is what its timeout is for."""
    for status, then in ((AttemptStatus.SUCCESS, RunStatus.SUCCESS), (AttemptStatus.CANCELLED, RunStatus.CANCELLED)):
        assert settle(dispatched(), ended(status), deadline=SECOND).status is then


def test_an_error_that_says_never_ends_the_run_at_once() -> None:
    """Attempts that are left stay unused."""
    run = settle(dispatched(), ended(AttemptStatus.FAILED, failure=Failure(retryable=False)))
    assert (run.status, run.attempt, run.reason) == (RunStatus.DEAD, 1, "the error says never to retry")


@pytest.mark.parametrize(
    ("asked", "wait"),
    [
        (timedelta(0), timedelta(seconds=1.5)),
        (timedelta(seconds=1), timedelta(seconds=1.5)),
        (timedelta(hours=2), timedelta(hours=2)),
        (timedelta(days=3_000_000), LONGEST_RETRY_AFTER),
        (timedelta.max, LONGEST_RETRY_AFTER),
    ],
)
def test_an_error_may_ask_for_a_later_retry(asked: timedelta, wait: timedelta) -> None:
    """No sooner than it asks and no sooner than the policy; an absurd answer of job code must not stop the job."""
    run = settle(dispatched(), ended(AttemptStatus.FAILED, failure=Failure(retry_after=asked)))
    assert run.next_attempt_at == NOON + 3 * SECOND + wait


def test_success_keeps_the_result_and_forgets_the_checkpoint() -> None:
    """Nothing is left to go on from."""
    run = settle(dispatched(checkpoint={"row": 1}), ended(AttemptStatus.SUCCESS, result=[1], worker="w"))
    assert (run.status, run.result, run.checkpoint, run.worker) == (RunStatus.SUCCESS, [1], None, "w")


def test_the_last_checkpoint_goes_on_to_the_next_attempt() -> None:
    """An attempt that saved nothing does not erase what the one before saved."""
    saved = settle(dispatched(), ended(AttemptStatus.LOST, checkpoint={"row": 7}))
    assert saved.checkpoint == {"row": 7}
    assert settle(saved, ended(AttemptStatus.FAILED)).checkpoint == {"row": 7}


@pytest.mark.parametrize("parkings", [0, 1, 3, 4, 1000, 10**9])
def test_an_unknown_activity_parks_the_run_without_using_up_an_attempt(parkings: int) -> None:
    """For 5 s at first and up to a minute, half of it drawn; no row is made of an attempt that never was."""
    end = ended(AttemptStatus.FAILED, unknown_activity=True, failure=Failure(message="not registered"))
    run = dispatched(attempt=1, max_attempts=1, parkings=parkings)
    settlement = decide_after_attempt(run, end, definition=JobDefinition(), now=NOON, draw=0.0)
    assert settlement.attempt is None
    parked = settlement.run
    assert (parked.status, parked.attempt, parked.started_at) == (RunStatus.PARKED, 0, None)
    assert parked.reason == "unknown_activity: not registered"
    widest = min(LONGEST_PARKING, timedelta(seconds=5 * 2 ** min(parkings, 20)))
    assert parked.next_attempt_at == NOON + widest / 2
    at_most = decide_after_attempt(run, end, definition=JobDefinition(), now=NOON, draw=1.0).run.next_attempt_at
    assert at_most == NOON + widest


def test_a_run_that_was_parked_parks_briefly_again_later() -> None:
    """A failure of its own in between shows that workers know it."""
    run = settle(dispatched(parkings=4), ended(AttemptStatus.FAILED))
    assert run.parkings == 0


def test_a_run_that_no_worker_took_is_dead_and_says_so() -> None:
    """``queue_timeout_seconds``; it has not started."""
    end = ended(AttemptStatus.TIMED_OUT, not_started=True)
    run = settle(dispatched(), end)
    assert (run.status, run.outcome, run.started_at) == (RunStatus.DEAD, Outcome.FAILED_TO_START, None)
    assert run.reason == "not_started: no worker took it in time"


def test_past_its_deadline_a_run_that_no_worker_took_was_missed() -> None:
    """``DEADLINE`` asks for the actual start. A retry may start when it will."""
    policy: dict[str, Any] = {"missed_window": CatchUpPolicy.DEADLINE, "max_delay": 2 * SECOND}
    end = ended(AttemptStatus.TIMED_OUT, not_started=True)
    assert settle(dispatched(), end, **policy).outcome is Outcome.MISSED
    assert settle(dispatched(attempt=2), end, **policy).status is RunStatus.DEAD
    assert comes_too_late(JobDefinition(**policy), dispatched(attempt=0), now=NOON + 3 * SECOND)
    assert not comes_too_late(JobDefinition(**policy), dispatched(attempt=1), now=NOON + 3 * SECOND)
    assert not comes_too_late(JobDefinition(**policy), dispatched(attempt=0), now=NOON + 2 * SECOND)


@pytest.mark.parametrize(("seen", "began"), [(RunStatus.PENDING, False), (RunStatus.RUNNING, True)])
def test_a_run_cancelled_before_a_worker_took_it_never_ran(seen: RunStatus, began: bool) -> None:
    """The ledger does not say ``ran`` of a fire whose code nobody began."""
    run = settle(dispatched(status=seen), ended(AttemptStatus.CANCELLED, started_at=None))
    assert (run.outcome, run.started_at is not None) == (Outcome.RAN if began else Outcome.CANCELLED, began)


def test_a_run_that_is_parked_before_it_began_is_pending_until_it_runs() -> None:
    """And when it is given up, it has failed to start."""
    end = ended(AttemptStatus.FAILED, unknown_activity=True)
    parked = settle(dispatched(), end)
    assert parked.outcome is Outcome.PENDING
    assert settle(dispatched(outcome=parked.outcome), ended(AttemptStatus.SUCCESS)).outcome is Outcome.RAN
    given_up = settle(dispatched(), end, deadline=timedelta(0))
    assert (given_up.status, given_up.outcome) == (RunStatus.DEAD, Outcome.FAILED_TO_START)


def test_a_cancelled_run_keeps_the_reason_it_was_given() -> None:
    """Who cancelled it is in its row."""
    run = settle(dispatched(reason="the job was deleted"), ended(AttemptStatus.CANCELLED))
    assert (run.status, run.reason) == (RunStatus.CANCELLED, "the job was deleted")


def test_whatever_a_cancelled_attempt_answers_but_success_is_a_cancellation() -> None:
    """Its error, its worker and what it saved are kept."""
    failure = Failure(type="ValueError", message="interrupted")
    end = as_cancelled(ended(AttemptStatus.FAILED, failure=failure, worker="w", checkpoint=3, unknown_activity=True))
    assert end == ended(AttemptStatus.CANCELLED, failure=failure, worker="w", checkpoint=3)


def test_a_run_that_ends_before_it_starts_is_cancelled_with_its_outcome() -> None:
    """Of which no attempt was dispatched."""
    run = end_before_start(dispatched(attempt=0), Outcome.SKIPPED, now=NOON, reason="why")
    assert (run.status, run.outcome, run.reason) == (RunStatus.CANCELLED, Outcome.SKIPPED, "why")


@given(
    status=st.sampled_from([*FAILURES, AttemptStatus.SUCCESS, AttemptStatus.CANCELLED]),
    attempt=st.integers(1, 10),
    max_attempts=st.integers(1, 10),
    parkings=st.integers(0, 10),
    unknown=st.booleans(),
    draw=st.floats(0, 1, exclude_max=True),
)
def test_after_an_attempt_a_run_is_final_or_has_its_next_time(
    status: AttemptStatus, attempt: int, max_attempts: int, parkings: int, unknown: bool, draw: float
) -> None:
    """Never both, never neither; and the number of attempts never exceeds the bound."""
    run = dispatched(attempt=attempt, max_attempts=max_attempts, parkings=parkings)
    after = settle(run, ended(status, unknown_activity=unknown), draw=draw)
    is_final = after.status in FINAL_STATUSES
    assert is_final == (after.next_attempt_at is None)
    assert is_final == (after.finished_at is not None)
    if after.status is RunStatus.RETRYING:
        assert after.attempt < max_attempts


def test_an_attempt_that_runs_has_not_ended() -> None:
    """A mistake of the caller's."""
    with pytest.raises(ValueError, match="running"):
        settle(dispatched(), ended(AttemptStatus.RUNNING))
