"""How a job takes in what became of its runs: attempts that ended, reports, looks, and requests to end.

Pure. What follows an attempt is decided in ``resilience``; here it meets the job's state.
"""

from datetime import datetime, timedelta

from workflows.job import JobState
from workflows.job_state import COUNTED, count, definition_of, find_run, microseconds, replace_or_end, with_active
from workflows.outbox import with_attempt, with_run
from workflows.policies import LANE
from workflows.resilience import AttemptEnd, as_cancelled, decide_after_attempt, end_before_start, end_between_attempts
from workflows.run import FINAL_STATUSES, AttemptStatus, Outcome, Run, RunKind

REGISTERED_AGAIN = "the job was deleted and registered again"


def settle_attempt(state: JobState, end: AttemptEnd, *, now: datetime, draw: float) -> JobState:
    """Take in how an attempt ended. One of a run that was given up changes nothing."""
    run = find_run(state, end.run_id)
    if run is None:
        return state
    if run.run_id in state.cancelling and end.status is not AttemptStatus.SUCCESS:
        end = as_cancelled(end)
    settlement = decide_after_attempt(run, end, definition=definition_of(state, run), now=now, draw=draw)
    settled = settlement.run
    if settled.superseded and settled.next_attempt_at is not None:
        # Its definition is gone, and with it what another attempt would have to do.
        settled = end_between_attempts(settled, now=now, reason=REGISTERED_AGAIN)
    if settlement.attempt is not None:
        state = with_attempt(state, settlement.attempt)
    return with_run(replace_or_end(_with_catch_up_pace(state, settled), settled), settled)


def settle_detached(state: JobState, ended: Run) -> JobState:
    """Take in the end of a run that a workflow of its own carried out. That workflow has written its rows."""
    run = find_run(state, ended.run_id)
    if run is None:
        return state
    state = state.model_copy(update={"fence": max(state.fence, ended.fence)})
    # Only here is it known that the job was registered again meanwhile.
    return replace_or_end(_with_catch_up_pace(state, ended), ended.model_copy(update={"superseded": run.superseded}))


def _with_catch_up_pace(state: JobState, run: Run) -> JobState:
    """Count the pause until the next catch-up run from the dispatch of one that had to wait, and not from its decision."""
    if run.kind not in LANE or run.kind is RunKind.BACKFILL:
        return state
    if not run.parkings or run.status not in FINAL_STATUSES or run.dispatched_at is None:
        return state
    earliest = run.dispatched_at + timedelta(minutes=1) / state.definition.catch_up_rate
    return state.model_copy(update={"next_catch_up_at": max(state.next_catch_up_at or earliest, earliest)})


def settle_not_started(state: JobState, run_id: str, *, now: datetime, reason: str) -> JobState:
    """End a run that Temporal refused to start."""
    run = find_run(state, run_id)
    if run is None:
        return state
    ended = end_before_start(run, Outcome.FAILED_TO_START, now=now, reason=reason)
    return with_run(replace_or_end(state, ended), ended)


def forget_twin(state: JobState, run_id: str) -> JobState:
    """Take out a backfilled run whose workflow is there already: it was admitted before, and tells its own rows."""
    return state.model_copy(update={"active": tuple(run for run in state.active if run.run_id != run_id)})


def show_run(state: JobState, run: Run, *, now: datetime) -> JobState:
    """Take in what was seen of an active run, and show it."""
    known = find_run(state, run.run_id)
    if known is None:
        return state
    if run.run_id in state.cancelling and run.status not in FINAL_STATUSES:
        # Why it is to end is of more use than how it stands.
        run = run.model_copy(update={"reason": known.reason})
    # Above every version that a detached run's own workflow can have given.
    state = state.model_copy(update={"version": max(state.version, microseconds(now))})
    return with_run(replace_or_end(state, run), run)


def is_between_attempts(run: Run) -> bool:
    """Say whether no attempt of a run is out. Of a detached one only its own workflow knows."""
    return run.next_attempt_at is not None and not run.detached


def cancel_run(state: JobState, run_id: str, *, now: datetime, reason: str) -> tuple[JobState, tuple[str, ...]]:
    """Let one run end, wherever it stands: as ``cancel_runs`` does, and at once where it waits. A final one stays as it is."""
    held = next((run for run in (*state.waiting, *state.catch_up) if run.run_id == run_id), None)
    if held is not None:
        state = without_held(state, held)
        ended = end_before_start(held, Outcome.CANCELLED, now=now, reason=reason)
        return with_run(state, ended), ()
    state, cancel = cancel_runs(state, (run_id,), now=now, reason=reason)
    run = find_run(state, run_id)
    # The rows of a detached run are its own workflow's.
    return (state if run is None or run.detached else with_run(state, run)), cancel


def without_held(state: JobState, run: Run) -> JobState:
    """Take out a run that waits, of which no attempt was dispatched."""
    waiting = tuple(each for each in state.waiting if each.run_id != run.run_id)
    catch_up = tuple(each for each in state.catch_up if each.run_id != run.run_id)
    state = state.model_copy(update={"waiting": waiting, "catch_up": catch_up})
    return count(state, started=-1) if run.kind in COUNTED else state


def cancel_runs(
    state: JobState, run_ids: tuple[str, ...], *, now: datetime, reason: str
) -> tuple[JobState, tuple[str, ...]]:
    """Let runs end, ``reason`` being told in their rows; answer those that must be asked to. The others have ended at once."""
    cancel: list[str] = []
    for run_id in run_ids:
        run = find_run(state, run_id)
        if run is None or run_id in state.cancelling:
            continue
        run = run.model_copy(update={"reason": reason})
        state = with_active(state, run)
        if is_between_attempts(run):
            ended = end_between_attempts(run, now=now, reason=reason)
            state = with_run(replace_or_end(state, ended), ended)
            continue
        state = state.model_copy(update={"cancelling": (*state.cancelling, run_id)})
        cancel.append(run_id)
    return state, tuple(cancel)
