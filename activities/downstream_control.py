"""Looks at open breakers and closes them: the API's way to their workflows."""

import asyncio
from contextlib import suppress

from temporalio.client import Client, WorkflowExecutionStatus

from activities.job_control import PATIENCE, JobIsGone, translated
from workflows.breaker import ProbeAnswer
from workflows.contracts import UPDATE_RESET_BREAKER, downstream_workflow_id
from workflows.downstream import BreakerLook, read_breaker_memo


class DownstreamControl:
    """The open breakers of one namespace."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def look_at(self, downstream: str, *, tenant: str) -> BreakerLook | None:
        """Say how an open breaker stands; ``None`` where it is closed. Raises ``Unavailable``."""
        handle = self._client.get_workflow_handle(downstream_workflow_id(tenant=tenant, downstream=downstream))
        try:
            with translated():
                async with asyncio.timeout(PATIENCE.total_seconds()):
                    described = await handle.describe(rpc_timeout=PATIENCE)
                    memo = await described.memo()
        except JobIsGone:
            return None
        if described.status not in (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW):
            return None
        return read_breaker_memo(memo, started_at=described.start_time)

    async def reset(self, downstream: str, *, tenant: str) -> None:
        """Close a breaker; one that is closed stays so. Raises ``Unavailable``: it may be closed all the same."""
        handle = self._client.get_workflow_handle(downstream_workflow_id(tenant=tenant, downstream=downstream))
        with suppress(JobIsGone), translated():
            async with asyncio.timeout(PATIENCE.total_seconds()):
                await handle.execute_update(UPDATE_RESET_BREAKER, result_type=ProbeAnswer, rpc_timeout=PATIENCE)
