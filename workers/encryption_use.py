"""``horarium encryption in-use``: which keys the open workflows of a namespace still need."""

from collections import Counter
from datetime import timedelta
from typing import Final

from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowExecution

from horarium.encrypted_payload import is_encrypted, is_in_clear, key_id_of
from workers.connection import connect
from workers.settings import Settings

PATIENCE: Final = timedelta(seconds=10)

IN_CLEAR: Final = ""
"""Stands for the key of what is not encrypted."""


async def count_keys_in_use(settings: Settings) -> Counter[str]:
    """Count the open workflows by the key that each began its present run with.

    Raises ``InvalidSettings``, ``TimeoutError`` where Temporal does not answer, and ``RPCError`` where it refuses.
    """
    client = await connect(settings, name="horarium-encryption", patience=PATIENCE)
    counts: Counter[str] = Counter()
    async for execution in client.list_workflows("ExecutionStatus = 'Running'"):
        if not is_in_clear(execution.id):
            counts.update(set(map(_key_of, await _payloads_at_the_beginning(client, execution))))
    return counts


async def _payloads_at_the_beginning(client: Client, execution: WorkflowExecution) -> list[Payload]:
    """Find what a run began with: its memo is set together with its input, and stands in the list already."""
    memo = list(execution.raw_info.memo.fields.values())
    if memo:
        return memo
    handle = client.get_workflow_handle(execution.id, run_id=execution.run_id)
    async for event in handle.fetch_history_events(page_size=1):
        return list(event.workflow_execution_started_event_attributes.input.payloads)
    return []


def _key_of(payload: Payload) -> str:
    return key_id_of(payload) if is_encrypted(payload) else IN_CLEAR
