"""How workflows are run: in the sandbox by tests, and as they are by workers."""

from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from temporalio.client import Client
from temporalio.converter import WorkflowSerializationContext
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from tests.temporal_servers import unique
from tests.workflow.leaky_workflow import LeakyWorkflow
from workers.worker import WORKFLOWS
from workers.workflow_runner import plain_runner, strict_runner
from workflows.data_converter import DATA_CONVERTER


def make_worker(client: Client, *workflows: type) -> Worker:
    """Load workflows into the sandbox, as a worker of our tests does when it is made."""
    return Worker(client, task_queue=unique("sandbox"), workflows=workflows, workflow_runner=strict_runner())


async def test_our_workflows_load(temporal_client: Client) -> None:
    """Each module says what it passes through."""
    make_worker(temporal_client, *WORKFLOWS)


async def test_a_module_that_nobody_passed_through_is_refused_at_start(temporal_client: Client) -> None:
    """And not when the first job fires."""
    with pytest.raises(RuntimeError, match="LeakyWorkflow"):
        make_worker(temporal_client, LeakyWorkflow)


@pytest.mark.parametrize(
    ("runner", "asked"), [(strict_runner(), SandboxedWorkflowRunner), (plain_runner(), UnsandboxedWorkflowRunner)]
)
def test_no_workflow_is_asked_whom_a_value_is_for(
    runner: WorkflowRunner, asked: type[WorkflowRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK asks that several times for each value; all that anybody wants to know is whose workflow it is of."""

    class Unasked:
        def __getattr__(self, name: str) -> NoReturn:
            raise AssertionError(f"the workflow was asked: {name}")

    monkeypatch.setattr(asked, "create_instance", lambda *_: Unasked())
    details: Any = SimpleNamespace(info=SimpleNamespace(namespace="default", workflow_id="job/blue/a"))
    instance = runner.create_instance(details)
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
