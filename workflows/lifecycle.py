"""How a job begins, ends, and begins again.

Pure. Before a job changes, everything that is nominal up to that moment is decided under what held until then.
"""

from datetime import datetime, timedelta

from workflows.hold import is_firing
from workflows.job import JobState, LedgerEntry, Lifecycle
from workflows.job_state import with_entries
from workflows.outbox import with_ledger, with_run
from workflows.resilience import end_before_start
from workflows.run import Outcome
from workflows.schedule import OneOffRule
from workflows.settlement import REGISTERED_AGAIN, cancel_runs, is_between_attempts
from workflows.turn import Turn, settle_passed

CLOCK_TOLERANCE = timedelta(seconds=5)
"""Between the request for a registration and its workflow's first task, by two clocks."""

PASSED_BEFORE = "its time had passed when the job was registered"


def begin(state: JobState, *, now: datetime) -> JobState:
    """Fix the moment from which a new job's fires count.

    It is the time of the request, but never later than the engine's own clock says and hardly earlier: the clock of a
    front door may be minutes off, and what it promised for the next second must still be kept. Where that is the job's one
    fire, and it has passed for longer, the ledger says so: the job completes at once.
    """
    begun = min(max(state.registered_at, now - CLOCK_TOLERANCE), now)
    high_water = max(begun, min(state.high_water, now))
    # Those of a time in the past that is to run now.
    carried = tuple(
        each.model_copy(update={"fire": each.fire.model_copy(update={"target": min(each.fire.target, now)})})
        for each in state.carried
    )
    passed = _one_fire(state, after=state.high_water, until=high_water)
    state = state.model_copy(
        update={"registered_at": begun, "updated_at": begun, "high_water": high_water, "carried": carried}
    )
    return with_entries(state, passed, now=now)


def _one_fire(state: JobState, *, after: datetime, until: datetime) -> tuple[LedgerEntry, ...]:
    """Tell the fire of a job that has but one, as its front door has found it, if it lies in this span."""
    if state.plan is None or not isinstance(state.definition.schedule.rule, OneOffRule):
        return ()
    fires = [fire.nominal for fire in state.plan.upcoming if after < fire.nominal <= until]
    return tuple(
        LedgerEntry(first=nominal, last=nominal, outcome=Outcome.MISSED, reason=PASSED_BEFORE) for nominal in fires
    )


def delete_job(state: JobState, *, now: datetime, cancel_active: bool) -> Turn:
    """Let a job fire no more. What is nominal up to ``now`` and has not been decided is cancelled."""
    if state.lifecycle is Lifecycle.DELETED:
        return Turn(state=state)
    # Of a job that stands still, the plan is of a later time, and what fell due has been settled.
    if is_firing(state):
        state = settle_passed(state, now=now)
    planned = state.plan.upcoming if state.plan and is_firing(state) else ()
    due = [(fire, state.revision) for fire in planned if fire.nominal <= now]
    for fire, revision in [*((each.fire, each.revision) for each in state.carried), *due]:
        nominal = fire.nominal
        entry = LedgerEntry(first=nominal, last=nominal, outcome=Outcome.CANCELLED, reason="the job was deleted")
        state = with_entries(state, (entry,), now=now, revision=revision)
    for run in (*state.waiting, *state.catch_up):
        state = with_run(state, end_before_start(run, Outcome.CANCELLED, now=now, reason="the job was deleted"))
    state = state.model_copy(
        update={
            "lifecycle": Lifecycle.DELETED,
            "plan": None,
            "pause": None,
            "holds": (),
            "carried": (),
            "waiting": (),
            "catch_up": (),
            "updated_at": now,
            "high_water": max(state.before_skip or state.high_water, now),
            "before_skip": None,
        }
    )
    if not cancel_active:
        return Turn(state=state)
    running = tuple(run.run_id for run in state.active)
    state, cancel = cancel_runs(state, running, now=now, reason="the job was deleted")
    return Turn(state=state, cancel=cancel)


def register_again(state: JobState, registration: JobState, *, now: datetime) -> JobState:
    """Begin a new registration in the workflow of a deleted job. Runs of the old one end by themselves, in nobody's way."""
    high_water = max(state.high_water, registration.high_water)
    registration = begin(registration.model_copy(update={"high_water": high_water}), now=now)
    between = tuple(run.run_id for run in state.active if is_between_attempts(run))
    state, _ = cancel_runs(state, between, now=now, reason=REGISTERED_AGAIN)
    begun = registration.model_copy(
        update={
            "logic": state.logic,
            "version": max(state.version + 1, registration.version),
            "fence": max(state.fence, registration.fence),
            "high_water": max(state.high_water, registration.high_water),
            "active": tuple(run.model_copy(update={"superseded": True}) for run in state.active),
            # Redrives that were asked for since it was deleted.
            "catch_up": state.catch_up,
            "redriven": state.redriven,
            "cancelling": state.cancelling,
            "outbox": state.outbox,
            "answers": state.answers,
        }
    )
    # What the registration tells of its past is as new as all else that is unsent.
    return with_ledger(begun, tuple(record.entry for record in registration.outbox.ledger))
