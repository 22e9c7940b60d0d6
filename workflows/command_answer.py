"""How a job remembers what it answered to commands, and which of them it refuses. Pure.

A repeated command is one with the same key and of the same kind, whoever sends it and whatever run of the workflow gets it.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias, assert_never

from workflows.change import FIRING, refuse_trigger
from workflows.command import (
    CancelCommand,
    ChangeCommand,
    DeleteCommand,
    HoldCommand,
    PauseCommand,
    RegisterCommand,
    ReleaseCommand,
    ResumeCommand,
    TriggerCommand,
)
from workflows.contracts import INVALID_SCHEDULE, REVISION_MISMATCH
from workflows.job import Answer, JobDefinition, JobRecord, JobState, Lifecycle, Triggered
from workflows.outbox import job_record

Remembered: TypeAlias = (
    CancelCommand
    | ChangeCommand
    | DeleteCommand
    | HoldCommand
    | PauseCommand
    | RegisterCommand
    | ReleaseCommand
    | ResumeCommand
    | TriggerCommand
)
"""Commands that are answered once, in the order of the turns. All but those of holds are remembered; a redrive is, by its run."""

ANSWERS_KEPT = 100
"""Answers of control updates that a job remembers. The server does not tell a repeated update across continue-as-new."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a command is not carried out."""

    reason: str
    type: str = "Conflict"


def answer_key(command: Remembered) -> str:
    """Name a command among all that a job remembers."""
    if isinstance(command, RegisterCommand):
        # As the front door names the registration in the state that it starts a workflow with.
        return command.key
    return f"{type(command).__name__}:{command.key}"


def find_answer(state: JobState, command: Remembered) -> Answer | None:
    """Find what a command was answered before."""
    key = answer_key(command)
    return next((each for each in state.answers if each.key == key), None)


def is_remembered(command: Remembered) -> bool:
    """Say whether a job remembers what it answered to a command.

    Not to those of holds, which change nothing when they come again: whoever spreads a hold would push out what others ask for.
    """
    return not isinstance(command, HoldCommand | ReleaseCommand)


def answer_command(
    state: JobState,
    command: Remembered,
    *,
    now: datetime,
    refusal: Refusal | None = None,
    triggered: Triggered | None = None,
) -> tuple[JobState, Answer]:
    """Answer a command, and remember that where ``is_remembered`` says so. Most are answered by the job as it stands then."""
    state = state.model_copy(update={"version": state.version + 1})
    has_record = not isinstance(command, CancelCommand | TriggerCommand)
    answer = Answer(
        key=answer_key(command),
        at=now,
        record=remembered_record(state) if has_record else None,
        triggered=triggered,
        refusal=refusal.reason if refusal else "",
        refusal_type=refusal.type if refusal else "Conflict",
    )
    if not is_remembered(command):
        return state, answer
    return state.model_copy(update={"answers": (*state.answers, answer)[-ANSWERS_KEPT:]}), answer


def remembered_record(state: JobState) -> JobRecord:
    """Show a job as an answer keeps it: without what may be long, a hundred times. ``answered_record`` puts it back."""
    return job_record(state).model_copy(update={"definition": JobDefinition(), "holds": ()})


def answered_record(state: JobState, record: JobRecord) -> JobRecord:
    """Complete what an answer has kept of a job by what it has now."""
    holds = state.holds if record.lifecycle in FIRING else ()
    return record.model_copy(update={"definition": state.definition, "holds": holds})


def refuse_command(state: JobState, command: Remembered, *, now: datetime) -> Refusal | None:
    """Say why a command cannot be carried out, of a job whose next fires are known."""
    if isinstance(command, TriggerCommand) and (reason := refuse_trigger(state, command)):
        return Refusal(reason=reason)
    return refuse_at_sight(state, command, now=now)


def refuse_at_sight(state: JobState, command: Remembered, *, now: datetime) -> Refusal | None:
    """Say why a command cannot be carried out, whatever the next fires are."""
    match command:
        case RegisterCommand():
            if state.lifecycle is not Lifecycle.DELETED:
                return Refusal(reason="A job of this id exists.")
            return None
        case DeleteCommand():
            return _refuse_other_revision(state, command.expected)
        case ChangeCommand() | PauseCommand() | ResumeCommand():
            is_steering = not isinstance(command, ChangeCommand)
            if state.lifecycle is Lifecycle.DELETED or (is_steering and state.lifecycle is Lifecycle.COMPLETED):
                return Refusal(reason=f"The job is {state.lifecycle.value}: it does not fire.")
            if isinstance(command, ChangeCommand) and command.one_fire is not None and command.one_fire <= now:
                # By the engine's clock. Afterwards it would be a fire of the past, which is none.
                return Refusal(reason="never fires: its time has passed", type=INVALID_SCHEDULE)
            return _refuse_other_revision(state, command.expected)
        case HoldCommand():
            is_over = state.lifecycle not in FIRING
            return Refusal(reason=f"The job is {state.lifecycle.value}: it does not fire.") if is_over else None
        case TriggerCommand():
            return Refusal(reason="The job is deleted.") if state.lifecycle is Lifecycle.DELETED else None
        case CancelCommand() | ReleaseCommand():
            return None
        case _:
            assert_never(command)


def _refuse_other_revision(state: JobState, expected: int | None) -> Refusal | None:
    if expected in (None, state.revision):
        return None
    return Refusal(reason=f"the job has revision {state.revision}", type=REVISION_MISMATCH)
