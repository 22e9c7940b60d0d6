"""Begins backfills and steers them: the one way to their workflows."""

import asyncio
from datetime import timedelta
from typing import Final

from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from activities.job_control import PATIENCE, translated
from workflows.backfill import BackfillState, SteerBackfill
from workflows.backfill_record import BackfillRecord
from workflows.contracts import (
    BACKFILL_WORKFLOW,
    UPDATE_CANCEL_BACKFILL,
    UPDATE_PAUSE_BACKFILL,
    UPDATE_RESUME_BACKFILL,
    backfill_workflow_id,
)
from workflows.target import DEFAULT_TASK_QUEUE

TASK_TIMEOUT: Final = timedelta(seconds=5)


class BackfillControl:
    """Backfills of one namespace. Each call raises ``Unavailable`` where it may have been carried out all the same."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def begin(self, state: BackfillState) -> bool:
        """Begin a backfill, unless one of this id was begun before. Answers whether it was begun now."""
        record = state.record
        with translated():
            async with asyncio.timeout(PATIENCE.total_seconds()):
                try:
                    await self._client.start_workflow(
                        BACKFILL_WORKFLOW,
                        state,
                        id=_workflow_id(record),
                        task_queue=DEFAULT_TASK_QUEUE,
                        task_timeout=TASK_TIMEOUT,
                        id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                        static_summary=f"backfill of {record.total} fires of {state.definition.name[:100]}",
                        rpc_timeout=PATIENCE,
                    )
                except WorkflowAlreadyStartedError:
                    return False
        return True

    async def pause(self, record: BackfillRecord, *, reason: str) -> BackfillRecord:
        """Let it begin no more runs until resumed. Raises ``Conflict``, and ``JobIsGone`` where it is over."""
        return await self._steer(UPDATE_PAUSE_BACKFILL, record, reason=reason)

    async def resume(self, record: BackfillRecord, *, reason: str) -> BackfillRecord:
        """Let it go on. Raises as ``pause`` does."""
        return await self._steer(UPDATE_RESUME_BACKFILL, record, reason=reason)

    async def cancel(self, record: BackfillRecord, *, reason: str) -> BackfillRecord:
        """Let it begin no more runs. Raises ``JobIsGone`` where it is over."""
        return await self._steer(UPDATE_CANCEL_BACKFILL, record, reason=reason)

    async def _steer(self, update: str, record: BackfillRecord, *, reason: str) -> BackfillRecord:
        handle = self._client.get_workflow_handle(_workflow_id(record))
        with translated():
            async with asyncio.timeout(PATIENCE.total_seconds()):
                answer: BackfillRecord = await handle.execute_update(
                    update, SteerBackfill(reason=reason), result_type=BackfillRecord, rpc_timeout=PATIENCE
                )
        return answer


def _workflow_id(record: BackfillRecord) -> str:
    return backfill_workflow_id(tenant=record.tenant, job_id=record.job_id, backfill_id=record.backfill_id)
