"""Begins bulk redrives, cancels them and looks at them: the one way to their workflows."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from activities.job_control import PATIENCE, JobIsGone, translated
from workflows.contracts import BULK_REDRIVE_WORKFLOW, PROGRESS_MEMO, bulk_redrive_workflow_id
from workflows.dead_letter import BulkProgress, BulkRequest
from workflows.target import DEFAULT_TASK_QUEUE

BulkStatus: TypeAlias = Literal["running", "done", "cancelled", "stopped"]


@dataclass(frozen=True, kw_only=True)
class BulkStanding:
    """Where a bulk redrive stands."""

    progress: BulkProgress
    status: BulkStatus


class BulkControl:
    """Bulk redrives of one namespace."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def begin(self, request: BulkRequest, *, redrive_id: str) -> None:
        """Begin one, unless one of this id was begun before. Raises ``Unavailable``: it may have begun all the same."""
        with translated():
            async with asyncio.timeout(PATIENCE.total_seconds()):
                try:
                    await self._client.start_workflow(
                        BULK_REDRIVE_WORKFLOW,
                        request,
                        id=bulk_redrive_workflow_id(tenant=request.tenant, redrive_id=redrive_id),
                        task_queue=DEFAULT_TASK_QUEUE,
                        id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                        memo={PROGRESS_MEMO: request.progress},
                        static_summary=f"redrive of up to {request.limit} runs",
                        rpc_timeout=PATIENCE,
                    )
                except WorkflowAlreadyStartedError:
                    return

    async def cancel(self, redrive_id: str, *, tenant: str) -> None:
        """Ask one to begin no more redrives. One that is over, or that nobody knows, is left alone. Raises ``Unavailable``."""
        handle = self._client.get_workflow_handle(bulk_redrive_workflow_id(tenant=tenant, redrive_id=redrive_id))
        with suppress(JobIsGone), translated():
            async with asyncio.timeout(PATIENCE.total_seconds()):
                await handle.cancel(rpc_timeout=PATIENCE)

    async def look_at(self, redrive_id: str, *, tenant: str) -> BulkStanding | None:
        """Say where one stands; ``None`` where Temporal knows none of this id. Raises ``Unavailable``."""
        handle = self._client.get_workflow_handle(bulk_redrive_workflow_id(tenant=tenant, redrive_id=redrive_id))
        try:
            with translated():
                async with asyncio.timeout(PATIENCE.total_seconds()):
                    described = await handle.describe(rpc_timeout=PATIENCE)
                    progress = await described.memo_value(PROGRESS_MEMO, BulkProgress(), type_hint=BulkProgress)
        except JobIsGone:
            return None
        match described.status:
            case WorkflowExecutionStatus.RUNNING | WorkflowExecutionStatus.CONTINUED_AS_NEW:
                return BulkStanding(progress=progress, status="running")
            case WorkflowExecutionStatus.COMPLETED:
                return BulkStanding(progress=progress, status="done")
            case WorkflowExecutionStatus.CANCELED:
                return BulkStanding(progress=progress, status="cancelled")
            case _:
                return BulkStanding(progress=progress, status="stopped")
