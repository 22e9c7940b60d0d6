"""How a job runs fires of its backfills.

Pure. The job gives these runs their fences and knows them while they last, as it does with its other runs; when there is one, and
how many at once, is the backfill's business. They are always carried out by workflows of their own, and in nobody's way.
"""

from datetime import datetime
from typing import Final

from workflows.backfill import StartedFire, answers_for
from workflows.backfill_record import ExistingRuns
from workflows.dispatch import backfilled_run, next_attempt
from workflows.hold import is_held, release_time
from workflows.job import EarlierDefinition, FirePlan, JobDefinition, JobState, Lifecycle
from workflows.job_state import find_run
from workflows.logic import has_fifth_rules
from workflows.run import RunKind
from workflows.turn import Turn
from workflows.value import Value

ACTIVE_LIMIT: Final = 100
"""Backfilled runs of one job at once, of all its backfills together: all of them cross every continue-as-new."""


class BackfillCommand(Value):
    """Argument of ``UPDATE_BACKFILL``, answered by a ``BackfillAnswer``: run these fires."""

    key: str = ""
    backfill_id: str = ""
    registered_at: datetime | None = None
    """The registration that is meant; ``None``: the present one."""

    revision: int = 1
    definition: JobDefinition = JobDefinition()
    """That of the revision, which the job itself may have forgotten."""

    existing: ExistingRuns = ExistingRuns.SKIP
    fires: tuple[StartedFire, ...] = ()
    """With the names of the runs that they are to have."""


class BackfillAnswer(Value):
    """What a job answers to a ``BackfillCommand``. Fires that are not named are to be asked for later."""

    started: tuple[StartedFire, ...] = ()
    """Now, or before by the same name."""

    skipped: tuple[datetime, ...] = ()
    """Fires that have another run, or will have one of their own."""

    registered_at: datetime | None = None
    gone: str = ""
    """Why the job runs none of them, now and later."""


def admit_fires(state: JobState, command: BackfillCommand, *, now: datetime) -> tuple[Turn, BackfillAnswer]:
    """Dispatch runs of a backfill, whether the job is paused, held or completed."""
    if gone := _refuse(state, command):
        return Turn(state=state), BackfillAnswer(gone=gone)
    before = state.active
    state = _with_definition(state, command)
    started: list[StartedFire] = []
    skipped: list[datetime] = []
    for fire in command.fires:
        if find_run(state, fire.run_id) is not None:
            started.append(fire)
        elif command.existing is ExistingRuns.SKIP and _has_run(state, fire.nominal):
            skipped.append(fire.nominal)
        elif not _is_undecided(state, fire.nominal) and _has_room(state):
            state = _dispatch(state, command, fire, now=now)
            started.append(fire)
    answer = BackfillAnswer(started=tuple(started), skipped=tuple(skipped), registered_at=state.registered_at)
    return Turn(state=state, start=state.active[len(before) :]), answer


def _refuse(state: JobState, command: BackfillCommand) -> str:
    if state.lifecycle is Lifecycle.DELETED:
        return "the job was deleted"
    is_another = command.registered_at is not None and command.registered_at != state.registered_at
    return "the job was deleted and registered again" if is_another else ""


def _with_definition(state: JobState, command: BackfillCommand) -> JobState:
    known = {state.revision, *(each.revision for each in state.earlier)}
    if command.revision in known:
        return state
    added = EarlierDefinition(revision=command.revision, definition=command.definition)
    earlier = tuple(sorted((*state.earlier, added), key=lambda each: each.revision))
    return state.model_copy(update={"earlier": earlier})


def _has_run(state: JobState, nominal: datetime) -> bool:
    """Say whether a fire has a run of which the mirror may not know yet, or is the schedule's own to decide."""
    held = (*state.active, *state.waiting, *state.catch_up, *(record.run for record in state.outbox.runs))
    to_come = [carried.fire.nominal for carried in state.carried]
    if state.lifecycle is Lifecycle.ACTIVE and state.plan is not None:
        to_come += [fire.nominal for fire in state.plan.upcoming]
    return nominal in to_come or any(answers_for(run, nominal) for run in held)


def _is_undecided(state: JobState, nominal: datetime) -> bool:
    """Say whether the job itself cannot tell yet what becomes of a fire: its planner does not answer."""
    plan = state.plan
    has_plan = plan is not None and plan.complete and (not has_fifth_rules(state) or _reaches(plan, nominal))
    is_own = state.lifecycle is Lifecycle.ACTIVE and nominal > state.high_water
    return is_own and not has_plan and not _falls_into_hold(state, nominal)


def _reaches(plan: FirePlan, nominal: datetime) -> bool:
    return plan.exhausted or (bool(plan.upcoming) and nominal <= plan.upcoming[-1].nominal)


def _falls_into_hold(state: JobState, nominal: datetime) -> bool:
    """Say whether holds keep a fire from running. Nothing is planned of them, and without an end nothing at all."""
    released_at = release_time(state.holds)
    return is_held(state) and (released_at is None or nominal <= released_at)


def _has_room(state: JobState) -> bool:
    return sum(run.kind is RunKind.BACKFILL for run in state.active) < ACTIVE_LIMIT


def _dispatch(state: JobState, command: BackfillCommand, fire: StartedFire, *, now: datetime) -> JobState:
    run = backfilled_run(
        state,
        command.definition,
        run_id=fire.run_id,
        backfill_id=command.backfill_id,
        nominal=fire.nominal,
        revision=command.revision,
        again=command.existing is ExistingRuns.RUN_AGAIN,
        now=now,
    )
    run = next_attempt(run, now=now, last_fence=state.fence)
    return state.model_copy(update={"active": (*state.active, run), "fence": run.fence})
