"""A workflow module that lets in a module which nobody passed through on purpose. See ``test_sandbox``."""

import yaml
from temporalio import workflow


@workflow.defn
class LeakyWorkflow:
    """Would load YAML's module anew for each run, or share it without anybody having thought about that."""

    @workflow.run
    async def run(self) -> str:
        """Use the module."""
        return str(yaml.__name__)
