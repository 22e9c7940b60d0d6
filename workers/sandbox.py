"""The sandbox that workflows run in: Temporal's own, made strict, and spared two things that cost more than the work itself.

A job that wakes from the long sleep is a new run, and each run loads its workflow's module anew. And the SDK enters a job's
sandbox several times for each value that leaves it, to ask whom the value is for.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType
from typing import Final

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import SerializationContext, StorageDriverStoreContext, WorkflowSerializationContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from temporalio.workflow import Info, SandboxImportNotificationPolicy

NOBODY: Final = StorageDriverStoreContext(target=None)


def strict_runner() -> SandboxedWorkflowRunner:
    """Make the sandbox that workflows run in: a module that nobody passed through on purpose is an error."""
    policy = (
        SandboxImportNotificationPolicy.WARN_ON_DYNAMIC_IMPORT
        | SandboxImportNotificationPolicy.RAISE_ON_UNINTENTIONAL_PASSTHROUGH
    )
    return _Runner(restrictions=SandboxRestrictions.default.with_import_notification_policy(policy))


def keep_compiled(workflows: Iterable[type]) -> None:
    """Compile the modules of workflows once for the life of this process.

    Without it each sandbox reads the compiled module from disk, and where Python may write none (``PYTHONDONTWRITEBYTECODE``,
    a read-only file system; containers have both) it compiles the source each time.
    """
    names = {part for workflow in workflows for part in _with_parents(workflow.__module__)}
    loaders = {name: loader for name in names if (loader := _keep(sys.modules[name])) is not None}
    sys.meta_path.insert(0, _KeptModules(loaders))


def _with_parents(module: str) -> Iterable[str]:
    parts = module.split(".")
    return (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _keep(module: ModuleType) -> "_KeptModule | None":
    loader = module.__spec__.loader if module.__spec__ is not None else None
    return _KeptModule(loader) if isinstance(loader, SourceFileLoader) else None


class _KeptModule(SourceFileLoader):
    """Loads a module from what was compiled at first."""

    def __init__(self, loader: SourceFileLoader) -> None:
        super().__init__(loader.name, loader.path)
        self._code = loader.get_code(loader.name)

    def get_code(self, fullname: str) -> CodeType | None:
        return self._code


class _KeptModules(MetaPathFinder):
    """Finds the modules that are kept."""

    def __init__(self, loaders: Mapping[str, _KeptModule]) -> None:
        self._loaders = loaders

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        loader = self._loaders.get(fullname)
        return None if loader is None else spec_from_file_location(fullname, loader.path, loader=loader)


@dataclass(frozen=True)
class _Runner(SandboxedWorkflowRunner):
    """Makes sandboxes that are not entered to ask for contexts."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        context = WorkflowSerializationContext(namespace=det.info.namespace, workflow_id=det.info.workflow_id)
        return _Instance(super().create_instance(det), context)


class _Instance(WorkflowInstance):
    """A workflow in its sandbox.

    Says of every value that it is the workflow's own. Nobody makes more of a context than whose value it is, and whatever a
    workflow of ours sends, to activities and to other workflows, is its own tenant's. A codec that needs to know more, or a
    store, would need to ask again.
    """

    def __init__(self, sandboxed: WorkflowInstance, context: SerializationContext) -> None:
        self._sandboxed = sandboxed
        self._context = context

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        return self._sandboxed.activate(act)

    def get_serialization_context(self, command_info: object) -> SerializationContext | None:
        return self._context

    def get_external_store_context(self, command_info: object) -> StorageDriverStoreContext:
        return NOBODY

    def get_info(self) -> Info:
        return self._sandboxed.get_info()

    def get_thread_id(self) -> int | None:
        return self._sandboxed.get_thread_id()
