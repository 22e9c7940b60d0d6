"""How the code of our workflows is run: as it is by workers, and in Temporal's sandbox by tests.

The sandbox finds what would break a replay before it is released: a clock, a random number, a module that changes. It loads a
workflow's module for each run and is entered for each task, which cost a worker more than all that our workflows do
(docs/performance.md, "Sandbox"). What workers run is what the tests have run in it.
"""

from dataclasses import dataclass
from typing import Final

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import SerializationContext, StorageDriverStoreContext, WorkflowSerializationContext
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from temporalio.workflow import Info, SandboxImportNotificationPolicy

NOBODY: Final = StorageDriverStoreContext(target=None)


def plain_runner() -> WorkflowRunner:
    """Run workflows as they are."""
    return _PlainRunner()


def strict_runner() -> SandboxedWorkflowRunner:
    """Run workflows in the sandbox; a module that nobody passed through on purpose is an error."""
    policy = (
        SandboxImportNotificationPolicy.WARN_ON_DYNAMIC_IMPORT
        | SandboxImportNotificationPolicy.RAISE_ON_UNINTENTIONAL_PASSTHROUGH
    )
    return _StrictRunner(restrictions=SandboxRestrictions.default.with_import_notification_policy(policy))


class _PlainRunner(UnsandboxedWorkflowRunner):
    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return _Instance(super().create_instance(det), _context_of(det))


@dataclass(frozen=True)
class _StrictRunner(SandboxedWorkflowRunner):
    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return _Instance(super().create_instance(det), _context_of(det))


def _context_of(det: WorkflowInstanceDetails) -> WorkflowSerializationContext:
    return WorkflowSerializationContext(namespace=det.info.namespace, workflow_id=det.info.workflow_id)


class _Instance(WorkflowInstance):
    """A workflow that is not asked for whom a value is; the SDK asks several times for each value that leaves it.

    Says of every value that it is the workflow's own. Nobody makes more of a context than whose value it is, and whatever a
    workflow of ours sends, to activities and to other workflows, is its own tenant's. A codec that needs to know more, or a
    store, would need to ask again.
    """

    def __init__(self, asked: WorkflowInstance, context: SerializationContext) -> None:
        self._asked = asked
        self._context = context

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        return self._asked.activate(act)

    def get_serialization_context(self, command_info: object) -> SerializationContext | None:
        return self._context

    def get_external_store_context(self, command_info: object) -> StorageDriverStoreContext:
        return NOBODY

    def get_info(self) -> Info:
        return self._asked.get_info()

    def get_thread_id(self) -> int | None:
        return self._asked.get_thread_id()
