"""Has jobs told of a hold: the one way to the workflows that do it."""

import asyncio
from typing import Final

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy

from activities.job_control import PATIENCE, translated
from workflows.contracts import HOLD_WORKFLOW, PROGRESS_MEMO, SIGNAL_SPREAD, hold_workflow_id
from workflows.hold import HoldOrder, HoldProgress
from workflows.target import DEFAULT_TASK_QUEUE

SUMMARY: Final = "tells jobs of a hold"


class HoldControl:
    """Holds of one namespace."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def spread(self, hold_id: str, *, tenant: str) -> None:
        """Let the jobs be as the store says of a hold. Begins that, or has it look again. Raises ``Unavailable``."""
        with translated():
            async with asyncio.timeout(PATIENCE.total_seconds()):
                await self._client.start_workflow(
                    HOLD_WORKFLOW,
                    HoldOrder(tenant=tenant, hold_id=hold_id),
                    id=hold_workflow_id(tenant=tenant, hold_id=hold_id),
                    task_queue=DEFAULT_TASK_QUEUE,
                    id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                    start_signal=SIGNAL_SPREAD,
                    memo={PROGRESS_MEMO: HoldProgress()},
                    static_summary=SUMMARY,
                    rpc_timeout=PATIENCE,
                )
