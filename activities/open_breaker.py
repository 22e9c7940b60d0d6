"""Which circuit breakers are open, as Temporal's list of workflows has it: one for all processes."""

from datetime import timedelta
from typing import Final

from temporalio.client import Client

from workflows.contracts import DOWNSTREAM_WORKFLOW, named_downstream

MOST: Final = 100
"""Open breakers that are told of. Of as many, the first hundred say what there is to say."""


async def list_open_breakers(client: Client, *, limit: timedelta) -> list[tuple[str, str]]:
    """List them by tenant and downstream. Raises ``RPCError`` or ``RuntimeError`` when Temporal does not answer."""
    query = f"WorkflowType = '{DOWNSTREAM_WORKFLOW}' AND ExecutionStatus = 'Running'"
    found = client.list_workflows(query, page_size=MOST, limit=MOST, rpc_timeout=limit)
    return [named_downstream(each.id) async for each in found]
