"""``horarium encryption in-use``: which keys the open workflows of a namespace still need."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any, Final

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from horarium.encrypted_payload import is_encrypted, is_in_clear, key_id_of
from workers.connection import connect
from workers.settings import Settings

PATIENCE: Final = timedelta(seconds=10)

AT_ONCE: Final = 16
"""Histories that are read at once."""

IN_CLEAR: Final = ""
"""Stands for the key of what is not encrypted."""


async def count_keys_in_use(settings: Settings) -> Counter[str]:
    """Count the open workflows by each key that their present run needs: it began with it, or holds what came later under it.

    Reads the histories of all of them. Raises ``InvalidSettings``, ``TimeoutError`` where Temporal does not answer, and
    ``RPCError`` where it refuses.
    """
    client = await connect(settings, name="horarium-encryption", patience=PATIENCE)
    counts: Counter[str] = Counter()
    async for executions in _open_workflows(client):
        for keys in await asyncio.gather(*(_keys_of_run(client, each) for each in executions)):
            counts.update(keys)
    return counts


async def _open_workflows(client: Client) -> AsyncIterator[list[WorkflowExecution]]:
    """List them, so many at a time as are read at once."""
    some: list[WorkflowExecution] = []
    async for execution in client.list_workflows("ExecutionStatus = 'Running'"):
        if not is_in_clear(execution.id):
            some.append(execution)
        if len(some) == AT_ONCE:
            yield some
            some = []
    yield some


async def _keys_of_run(client: Client, execution: WorkflowExecution) -> set[str]:
    """Find the keys that a run needs.

    In the clear counts what it began with alone: what the SDK notes for itself, and what is searched for, always is.
    """
    memo = list(execution.raw_info.memo.fields.values())
    keys = set(map(_key_of, memo))
    handle = client.get_workflow_handle(execution.id, run_id=execution.run_id)
    try:
        async for event in handle.fetch_history_events():
            if not memo and event.HasField("workflow_execution_started_event_attributes"):
                keys.update(map(_key_of, event.workflow_execution_started_event_attributes.input.payloads))
            keys.update(key_id_of(payload) for payload in _payloads_in(event) if is_encrypted(payload))
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return set()  # It has ended meanwhile, and is forgotten.
    return keys


def _payloads_in(message: Message) -> Iterator[Payload]:
    """Find all payloads in a message of Temporal."""
    if isinstance(message, Payload):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in _messages_in(field, value):
                yield from _payloads_in(inner)


def _messages_in(field: Any, value: Any) -> list[Message]:
    """List the messages of a field, of whatever kind that is."""
    if field.message_type.GetOptions().map_entry:
        return [each for each in value.values() if isinstance(each, Message)]
    return [value] if isinstance(value, Message) else list(value)


def _key_of(payload: Payload) -> str:
    return key_id_of(payload) if is_encrypted(payload) else IN_CLEAR
