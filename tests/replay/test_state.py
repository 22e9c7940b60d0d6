"""What a job carries through its sleep, and what it is told, is read by every later release, and by the one before."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue
from temporalio import workflow
from temporalio.contrib.pydantic import pydantic_data_converter

from tests.replay.later_release import with_unknown_members, without_free_form
from tests.replay.record import COMMANDS, SIGNALS
from tests.replay.recordings import STATES, list_states
from workers.worker import WORKFLOWS
from workflows.admission import DownstreamInput, ProbeReport, ProbeRequest
from workflows.alert import Alert
from workflows.backfill import BackfillState, SteerBackfill
from workflows.backfill_admission import BackfillCommand
from workflows.catalogue import Announcement, CatalogueInput
from workflows.command import (
    CancelCommand,
    ChangeCommand,
    DeleteCommand,
    HoldCommand,
    PauseCommand,
    RedriveCommand,
    RegisterCommand,
    ReleaseCommand,
    ResumeCommand,
    RunInput,
    ShowCommand,
    TriggerCommand,
)
from workflows.contracts import SIGNAL_SPREAD, UPDATE_RESET_BREAKER
from workflows.dead_letter import BulkRequest
from workflows.hold import HoldOrder
from workflows.job import JobInput, MirrorBatch
from workflows.run import Run
from workflows.upkeep import UpkeepInput
from workflows.value import Value

VALUES = (
    Alert,
    Announcement,
    BackfillCommand,
    BackfillState,
    BulkRequest,
    CancelCommand,
    CatalogueInput,
    ChangeCommand,
    DeleteCommand,
    DownstreamInput,
    HoldCommand,
    HoldOrder,
    JobInput,
    MirrorBatch,
    PauseCommand,
    ProbeReport,
    ProbeRequest,
    RedriveCommand,
    RegisterCommand,
    ReleaseCommand,
    ResumeCommand,
    Run,
    RunInput,
    ShowCommand,
    SteerBackfill,
    TriggerCommand,
    UpkeepInput,
)

TYPES: dict[str, type[Value]] = {each.__name__: each for each in VALUES}


def name_of(path: Path) -> str:
    """A state's name in a report."""
    return str(path.relative_to(STATES))


def read(path: Path) -> Any:
    """Read a state as JSON."""
    return json.loads(path.read_text())


def decode(path: Path, document: JsonValue) -> Value:
    """Decode as a worker does."""
    return TYPES[path.parent.name].model_validate_json(json.dumps(document))


@pytest.mark.parametrize("path", list_states(), ids=name_of)
def test_a_recorded_state_is_read(path: Path) -> None:
    """Completely: written again and read again it is the same, and nothing that was recorded is lost."""
    document = read(path)
    value = decode(path, document)
    again = json.loads(value.model_dump_json())
    assert decode(path, again) == value
    assert _kept(document, again) == document


@pytest.mark.parametrize("path", list_states(), ids=name_of)
def test_members_of_a_later_release_are_passed_over(path: Path) -> None:
    """A worker that is not yet upgraded reads what an upgraded one wrote."""
    document = without_free_form(read(path))
    assert decode(path, with_unknown_members(document)) == decode(path, document)


@pytest.mark.parametrize("name", sorted(TYPES))
def test_every_value_that_is_stored_was_recorded(name: str) -> None:
    """Also as Temporal's converter writes it."""
    paths = [path for path in list_states() if path.parent.name == name]
    assert paths
    [payload] = pydantic_data_converter.payload_converter.to_payloads([decode(paths[0], read(paths[0]))])
    assert payload.metadata["encoding"] == b"json/plain"


@pytest.mark.parametrize("each", WORKFLOWS)
def test_whatever_a_workflow_can_be_told_is_recorded(each: type) -> None:
    """A new update or signal needs a scenario, so that a later release is held to it."""
    definition = workflow._Definition.must_from_class(each)
    told = {name for name in (*definition.updates, *definition.signals) if name is not None}
    assert told <= {*COMMANDS, *SIGNALS, UPDATE_RESET_BREAKER, SIGNAL_SPREAD}
    assert {*COMMANDS.values(), *SIGNALS.values()} <= TYPES.keys()


def test_a_state_without_any_member_is_read() -> None:
    """Every field has a default, so that an older release may leave out what it does not know."""
    assert JobInput.model_validate_json("{}") == JobInput()
    assert DeleteCommand.model_validate_json("{}") == DeleteCommand()
    assert RegisterCommand.model_validate_json("{}") == RegisterCommand()
    assert MirrorBatch.model_validate_json("{}") == MirrorBatch()


def _kept(document: Any, again: Any) -> Any:
    """Take from what was written again the members that were recorded; later releases may write more."""
    if isinstance(document, dict) and isinstance(again, dict):
        return {key: _kept(value, again[key]) for key, value in document.items() if key in again}
    if isinstance(document, list) and isinstance(again, list):
        return [_kept(one, other) for one, other in zip(document, again, strict=True)]
    return again
