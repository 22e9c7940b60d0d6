"""The sandbox that workers run workflows in."""

import pytest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from tests.temporal_servers import unique
from tests.workflow.leaky_workflow import LeakyWorkflow
from workers.worker import WORKFLOWS, strict_runner


async def test_our_workflows_load(temporal_client: Client) -> None:
    """Each module says what it passes through."""
    Worker(temporal_client, task_queue=unique("sandbox"), workflows=WORKFLOWS, workflow_runner=strict_runner())


async def test_a_module_that_nobody_passed_through_is_refused_at_start(temporal_client: Client) -> None:
    """And not when the first job fires."""
    with pytest.raises(RuntimeError, match="LeakyWorkflow"):
        Worker(
            temporal_client, task_queue=unique("sandbox"), workflows=[LeakyWorkflow], workflow_runner=strict_runner()
        )


async def test_time_can_be_skipped(time_skipping: WorkflowEnvironment) -> None:
    """The server of the fixture has a clock of its own."""
    before = await time_skipping.get_current_time()
    await time_skipping.sleep(3600)
    assert (await time_skipping.get_current_time() - before).total_seconds() >= 3600
