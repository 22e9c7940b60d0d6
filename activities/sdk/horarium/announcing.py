"""Tells the catalogue of a task queue what a worker can run, when the worker starts and as long as it lives.

A worker is never held up or brought down by this: what fails is tried again later. Nothing is started where no scheduler is,
such as in a test server of the team's: a workflow that nobody takes up would keep one that skips time from doing so.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration
from temporalio.api.common.v1 import Payload, Payloads, WorkflowType
from temporalio.api.enums.v1 import TaskQueueType, WorkflowExecutionStatus
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    SignalWithStartWorkflowExecutionRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from horarium.catalogue import (
    ANNOUNCE,
    CATALOGUE_MEMO,
    CATALOGUE_TASK_QUEUE,
    CATALOGUE_WORKFLOW,
    FRESH_FOR,
    RENEW_EVERY,
    Announcement,
    announce,
    catalogue_workflow_id,
    unpack,
)
from horarium.clock import now

logger = logging.getLogger(__name__)

PATIENCE: Final = timedelta(seconds=10)

FIRST_PAUSE: Final = timedelta(seconds=1)
"""After a try that was in vain, doubled each time up to ``RENEW_EVERY``."""

TASK_TIMEOUT: Final = timedelta(seconds=2)
"""As the scheduler's other workflows have it."""

_PLAIN: Final = {"encoding": b"json/plain"}


@asynccontextmanager
async def announcing(
    client: Client, *, task_queue: str, functions: Iterable[Callable[..., Any]]
) -> AsyncIterator[None]:
    """Announce what a worker with these activities can run, while the body runs."""
    task = asyncio.create_task(_keep_announced(client, task_queue, announce(functions)))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _keep_announced(client: Client, task_queue: str, announcement: Announcement) -> None:
    pause = FIRST_PAUSE
    while announcement.schemas:
        is_known = await _try_to_announce(client, task_queue, announcement)
        await asyncio.sleep((RENEW_EVERY if is_known else pause).total_seconds())
        pause = FIRST_PAUSE if is_known else min(2 * pause, RENEW_EVERY)


async def _try_to_announce(client: Client, task_queue: str, announcement: Announcement) -> bool:
    """Announce where that is needed and possible; whether it need not be tried again soon."""
    try:
        if not await _is_known(client, task_queue, announcement.version):
            if not await _has_scheduler(client):
                return False
            await _tell(client, task_queue, announcement)
    except Exception as error:  # whatever it is: the worker does without, and it is tried again
        logger.warning(
            "what this worker can run could not be announced; payloads of its jobs may go unchecked",
            extra={"task_queue": task_queue, "error": str(error)},
        )
        return False
    return True


async def _has_scheduler(client: Client) -> bool:
    """Look whether anybody takes the scheduler's workflows up in this namespace."""
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=CATALOGUE_TASK_QUEUE),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    try:
        answer = await client.workflow_service.describe_task_queue(request, retry=True, timeout=PATIENCE)
    except RPCError as error:
        if error.status is not RPCStatusCode.UNIMPLEMENTED:
            raise
        return False  # a test server that skips time
    return bool(answer.pollers)


async def _is_known(client: Client, task_queue: str, version: str) -> bool:
    """Look whether a worker of this version was heard of lately."""
    request = DescribeWorkflowExecutionRequest(namespace=client.namespace)
    request.execution.workflow_id = catalogue_workflow_id(task_queue)
    try:
        answer = await client.workflow_service.describe_workflow_execution(request, retry=True, timeout=PATIENCE)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    seen_at = _seen_at(answer, version)
    return seen_at is not None and now() - seen_at < FRESH_FOR


def _seen_at(answer: DescribeWorkflowExecutionResponse, version: str) -> datetime | None:
    info = answer.workflow_execution_info
    if info.status != WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING:
        return None
    try:
        catalogue: Any = unpack(json.loads(info.memo.fields[CATALOGUE_MEMO].data))
        seen = {each["version"]: datetime.fromisoformat(each["seen_at"]) for each in catalogue["versions"]}
        return seen.get(version)
    except (ValueError, LookupError, TypeError):
        # Not written yet, or by a scheduler with a codec of its own. Announcing once too often does no harm.
        return None


async def _tell(client: Client, task_queue: str, announcement: Announcement) -> None:
    """Send the announcement.

    Past the client's own converter, which may encrypt: the scheduler has another one. The request's id is the same for all
    workers of a version, so that a fleet that starts at once leaves one signal.
    """
    argument = Payload(metadata=_PLAIN, data=json.dumps(announcement.to_json()).encode())
    request = SignalWithStartWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_id=catalogue_workflow_id(task_queue),
        workflow_type=WorkflowType(name=CATALOGUE_WORKFLOW),
        task_queue=TaskQueue(name=CATALOGUE_TASK_QUEUE),
        workflow_task_timeout=Duration(seconds=TASK_TIMEOUT.seconds),
        signal_name=ANNOUNCE,
        signal_input=Payloads(payloads=[argument]),
        identity=client.identity,
        request_id=f"{announcement.version}/{int(now().timestamp() // FRESH_FOR.total_seconds())}",
    )
    await client.workflow_service.signal_with_start_workflow_execution(request, retry=True, timeout=PATIENCE)
