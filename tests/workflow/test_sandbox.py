"""The sandbox that workers run workflows in."""

import sys
from importlib.machinery import SourceFileLoader
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from temporalio.client import Client
from temporalio.converter import WorkflowSerializationContext
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from tests.temporal_servers import unique
from tests.workflow.leaky_workflow import LeakyWorkflow
from workers.sandbox import keep_compiled, strict_runner
from workers.worker import WORKFLOWS
from workflows.data_converter import DATA_CONVERTER


def make_worker(client: Client, *workflows: type) -> Worker:
    """Load workflows into the sandbox, as a worker does when it is made."""
    return Worker(client, task_queue=unique("sandbox"), workflows=workflows, workflow_runner=strict_runner())


async def test_our_workflows_load(temporal_client: Client) -> None:
    """Each module says what it passes through."""
    make_worker(temporal_client, *WORKFLOWS)


async def test_a_module_that_nobody_passed_through_is_refused_at_start(temporal_client: Client) -> None:
    """And not when the first job fires."""
    with pytest.raises(RuntimeError, match="LeakyWorkflow"):
        make_worker(temporal_client, LeakyWorkflow)


async def test_workflows_are_compiled_once_a_process(temporal_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that wakes reads no file, so it costs the same where Python may not keep what it has compiled."""

    def refuse(_: object, path: str) -> NoReturn:
        raise OSError(f"{path} was read")

    monkeypatch.setattr(SourceFileLoader, "get_data", refuse)
    with pytest.raises(RuntimeError, match="HorariumJob"):
        make_worker(temporal_client, *WORKFLOWS)
    monkeypatch.undo()
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    keep_compiled(WORKFLOWS)
    monkeypatch.setattr(SourceFileLoader, "get_data", refuse)
    make_worker(temporal_client, *WORKFLOWS)


def test_no_sandbox_is_entered_to_ask_whom_a_value_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK asks that several times for each value; all that anybody wants to know is whose workflow it is of."""

    class Unentered:
        def __getattr__(self, name: str) -> NoReturn:
            raise AssertionError(f"the sandbox was entered: {name}")

    monkeypatch.setattr(SandboxedWorkflowRunner, "create_instance", lambda *_: Unentered())
    details: Any = SimpleNamespace(info=SimpleNamespace(namespace="default", workflow_id="job/blue/a"))
    instance = strict_runner().create_instance(details)
    context = WorkflowSerializationContext(namespace="default", workflow_id="job/blue/a")
    assert instance.get_serialization_context(None) == context
    assert instance.get_external_store_context(None).target is None


def test_our_converter_makes_nothing_of_contexts() -> None:
    """Without encryption, which wants the tenant of the workflow alone. Who wants more must ask the sandbox again."""
    context = WorkflowSerializationContext(namespace="default", workflow_id="job/default/a")
    assert DATA_CONVERTER.with_context(context) is DATA_CONVERTER
    assert DATA_CONVERTER.payload_codec is None
    assert DATA_CONVERTER.external_storage is None


async def test_time_can_be_skipped(time_skipping: WorkflowEnvironment) -> None:
    """The server of the fixture has a clock of its own."""
    before = await time_skipping.get_current_time()
    await time_skipping.sleep(3600)
    assert (await time_skipping.get_current_time() - before).total_seconds() >= 3600
