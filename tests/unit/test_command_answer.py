"""What a job remembers of its answers to commands, and what it does not."""

from datetime import timedelta

from temporalio.contrib.pydantic import pydantic_data_converter

from tests.records import NOON
from workflows.command import ChangeCommand, HoldCommand, ReleaseCommand, TriggerCommand
from workflows.command_answer import ANSWERS_KEPT, answer_command, answered_record, find_answer, refuse_command
from workflows.contracts import INVALID_SCHEDULE
from workflows.hold import REASON_LIMIT
from workflows.job import Hold, JobDefinition, JobState, Lifecycle, Triggered

PAYLOAD_LIMIT = 2 * 1024 * 1024
"""Bytes that Temporal takes, of a state that crosses a continue-as-new."""

HOLDS = tuple(Hold(hold_id=f"h_{number}", at=NOON, reason="r" * REASON_LIMIT, by="ops") for number in range(100))


def answer_changes(state: JobState) -> JobState:
    """Let a job answer as many changes as it remembers."""
    for number in range(ANSWERS_KEPT):
        command = ChangeCommand(key=f"c{number}", definition=state.definition)
        state, _ = answer_command(state, command, now=NOON)
    return state


def test_a_hundred_answers_of_a_job_under_a_hundred_holds_cross_a_continue_as_new() -> None:
    """The holds are in the state once, not once an answer."""
    state = answer_changes(JobState(job_id="report", holds=HOLDS))
    assert len(state.answers) == ANSWERS_KEPT
    [payload] = pydantic_data_converter.payload_converter.to_payloads([state])
    assert len(payload.data) < PAYLOAD_LIMIT / 4


def test_a_repeated_command_is_answered_with_the_definition_and_the_holds_of_now() -> None:
    """What is not kept twice; of a job that was deleted then, none."""
    command = ChangeCommand(key="c", definition=JobDefinition())
    state, answer = answer_command(JobState(job_id="report", holds=HOLDS), command, now=NOON)
    assert answer.record is not None
    assert (answer.record.definition, answer.record.holds) == (JobDefinition(), ())
    later = state.model_copy(update={"definition": JobDefinition(name="other"), "holds": HOLDS[1:]})
    record = answered_record(later, answer.record)
    assert (record.definition.name, record.holds) == ("other", HOLDS[1:])
    deleted = answer.record.model_copy(update={"lifecycle": Lifecycle.DELETED})
    assert answered_record(later, deleted).holds == ()


def test_telling_a_job_of_holds_pushes_out_no_answer() -> None:
    """A trigger that is repeated after a hundred of them finds what it was answered, and does not run again."""
    trigger = TriggerCommand(key="t", request_id="t")
    state, told = answer_command(JobState(job_id="report"), trigger, now=NOON, triggered=Triggered(run_id="run"))
    for number in range(ANSWERS_KEPT):
        at = NOON + timedelta(seconds=number)
        version = state.version
        state, held = answer_command(state, HoldCommand(key=f"h{number}", hold=HOLDS[0]), now=at)
        assert held.record is not None
        assert held.record.version == state.version == version + 1
        state, _ = answer_command(state, ReleaseCommand(key=f"h{number}", hold_id="h_0"), now=at)
    assert find_answer(state, trigger) == told


def test_a_change_to_one_time_is_refused_whenever_it_is_carried_out_too_late() -> None:
    """It was in time when it was asked for, and had to wait for a planner. Else the job would complete without a word."""
    command = ChangeCommand(key="c", definition=JobDefinition(), one_fire=NOON)
    state = JobState(job_id="report")
    assert refuse_command(state, command, now=NOON - timedelta(microseconds=1)) is None
    refusal = refuse_command(state, command, now=NOON)
    assert refusal is not None
    assert (refusal.type, refusal.reason) == (INVALID_SCHEDULE, "never fires: its time has passed")
