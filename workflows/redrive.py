"""Dead runs, run again: their names, and their way into the job's catch-up lane.

Pure. A redrive is a run of its own with the dead run's nominal time, idempotency key and checkpoint, under the definition as it
is now. Its id is made from the dead run's id alone, so that asking twice is asking once, whoever asks.
"""

import re
from datetime import datetime, timedelta
from typing import Final

from workflows.command import RedriveAnswer, RedriveCommand
from workflows.contracts import requested_run_id
from workflows.job import JobState, MirrorBatch, Redriven
from workflows.job_state import microseconds
from workflows.outbox import job_record, with_run
from workflows.run import Run, RunKind

WAITING_LIMIT: Final = 10
"""Redrives that wait in a job at once. Each carries a checkpoint, and all of them cross every continue-as-new."""

REMEMBERED: Final = 500
"""Redrives that a job remembers. The mirror, where every caller looks first, knows them all but for the last moments."""

REMEMBERED_FOR: Final = timedelta(days=1)

_REDRIVE: Final = re.compile(r"redrive-(?:(\d+)-)?(.+)", re.DOTALL)


def redrive_run_id(run_id: str, *, job_id: str) -> str:
    """Name the redrive of a run, which may be a redrive itself: ``job:redrive-...``, then ``job:redrive-2-...``."""
    tail = run_id.removeprefix(f"{job_id}:")
    found = _REDRIVE.fullmatch(tail)
    if found is None:
        return requested_run_id(job_id=job_id, kind=RunKind.REDRIVE, request_id=tail)
    number = int(found[1] or 1) + 1
    return requested_run_id(job_id=job_id, kind=RunKind.REDRIVE, request_id=f"{number}-{found[2]}")


def knows_redrive(state: JobState, run_id: str) -> bool:
    """Say whether a redrive of this name has been taken on already."""
    held = (*state.active, *state.catch_up)
    return any(run.run_id == run_id for run in held) or any(each.run_id == run_id for each in state.redriven)


def may_take_redrive(state: JobState, command: RedriveCommand, *, queued: int = 0) -> bool:
    """Say whether there is room for a redrive, ``queued`` others being about to be taken."""
    return knows_redrive(state, command.run_id) or len(waiting_redrives(state)) + queued < WAITING_LIMIT


def take_redrive(state: JobState, command: RedriveCommand, *, now: datetime) -> JobState:
    """Put the redrive of a dead run into the catch-up lane, before missed fires, and mark the dead run."""
    if knows_redrive(state, command.run_id):
        return state
    run = _redriven_run(state, command, now=now)
    redrives = waiting_redrives(state)
    others = tuple(each for each in state.catch_up if each.kind is not RunKind.REDRIVE)
    remembered = Redriven(run_id=run.run_id, at=now)
    state = state.model_copy(
        update={
            "catch_up": (*redrives, run, *others),
            "redriven": (*state.redriven, remembered)[-REMEMBERED:],
            # Above every version that a dead run's own workflow can have given.
            "version": max(state.version, microseconds(now)),
        }
    )
    return with_run(with_run(state, command.dead.model_copy(update={"redriven_by": run.run_id})), run)


def waiting_redrives(state: JobState) -> tuple[Run, ...]:
    """List the redrives that have not been dispatched, oldest first."""
    return tuple(run for run in state.catch_up if run.kind is RunKind.REDRIVE)


def answer_redrive(state: JobState, command: RedriveCommand) -> RedriveAnswer:
    """Show a redrive that was taken on, with the rows that the mirror may not have yet."""
    wanted = (command.run_id, command.dead.run_id)
    rows = tuple(record for record in state.outbox.runs if record.run.run_id in wanted)
    return RedriveAnswer(run_id=command.run_id, rows=MirrorBatch(job=job_record(state), runs=rows))


def without_old_redrives(state: JobState, *, now: datetime) -> JobState:
    """Forget redrives that nobody can be asking for any more without knowing of them."""
    kept = tuple(each for each in state.redriven if each.at > now - REMEMBERED_FOR)
    return state if kept == state.redriven else state.model_copy(update={"redriven": kept})


def _redriven_run(state: JobState, command: RedriveCommand, *, now: datetime) -> Run:
    dead = command.dead
    return Run(
        run_id=command.run_id,
        kind=RunKind.REDRIVE,
        scheduled_at=dead.scheduled_at,
        # Its deadlines and its lateness count from now: the first target is long past.
        target_at=now,
        created_at=now,
        reason="waits in the catch-up lane",
        stands_for=dead.stands_for,
        revision=state.revision,
        max_attempts=state.definition.retry.max_attempts,
        idempotency_key=dead.idempotency_key,
        checkpoint=dead.checkpoint,
        override=dead.override,
        redrive_of=dead.run_id,
    )
