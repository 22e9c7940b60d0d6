"""Looks at attempts that have not answered: has a worker taken them, and does any worker poll their queue?"""

from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.api.enums.v1 import PendingActivityState, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from workflows.contracts import OBSERVE_ATTEMPT
from workflows.observation import Observation, ObserveRequest

POLL_LASTS = timedelta(seconds=75)
"""A poll lasts up to a minute. The server lists pollers for five: an older entry is a worker that was killed."""


class Observer:
    """Asks the Temporal server. Needs a client of its own namespace."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name=OBSERVE_ATTEMPT)
    async def observe_attempt(self, request: ObserveRequest) -> Observation:
        """Say what Temporal knows about an attempt."""
        try:
            described = await self._client.get_workflow_handle(request.workflow_id).describe()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return Observation(ended=True)
        if not request.activity_id:
            return Observation(ended=described.status is not WorkflowExecutionStatus.RUNNING)
        started_at, worker = _started(described, request.activity_id)
        if started_at is not None:
            return Observation(started_at=started_at, worker=worker)
        return Observation(polled=await is_polled(self._client, request.task_queue))


async def is_polled(client: Client, task_queue: str) -> bool:
    """Say whether any worker polls the queue for activities."""
    answer = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=task_queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        )
    )
    oldest = datetime.now(UTC) - POLL_LASTS
    return any(poller.last_access_time.ToDatetime(tzinfo=UTC) >= oldest for poller in answer.pollers)


def _started(described: WorkflowExecutionDescription, activity_id: str) -> tuple[datetime | None, str | None]:
    for pending in described.raw_description.pending_activities:
        if pending.activity_id != activity_id or pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED:
            continue
        return pending.last_started_time.ToDatetime(tzinfo=UTC), pending.last_worker_identity or None
    return None, None
