"""Looks at attempts that have not answered: has a worker taken them, and does any worker poll their queue?"""

from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.api.enums.v1 import EventType, PendingActivityState, PendingWorkflowTaskState, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from workflows.contracts import OBSERVE_ATTEMPT
from workflows.observation import Observation, ObserveRequest

POLL_LASTS = timedelta(seconds=75)
"""A poll lasts up to a minute. The server lists pollers for five: an older entry is a worker that was killed."""


FIRST_EVENTS = 10
"""Among so many is the first task of nearly every workflow that a worker has had."""

REPORTED_PROBLEMS = SearchAttributeKey.for_keyword_list("TemporalReportedProblems")
"""Set by the server on a workflow whose tasks fail again and again."""


class Observer:
    """Asks the Temporal server. Needs a client of its own namespace."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name=OBSERVE_ATTEMPT)
    async def observe_attempt(self, request: ObserveRequest) -> Observation:
        """Say what Temporal knows about an attempt."""
        if request.child_id:
            return await self._observe_child(request)
        described = await self._describe(request.workflow_id)
        if described is None:
            if await self._is_about_to_start(request.workflow_id):
                return Observation()
            # It may have begun, and even ended, between these two looks.
            described = await self._describe(request.workflow_id)
        if described is None:
            return Observation(ended=True)
        if not request.activity_id:
            return Observation(ended=described.status is not WorkflowExecutionStatus.RUNNING)
        started_at, worker = _started(described, request.activity_id)
        if started_at is not None:
            return Observation(started_at=started_at, worker=worker)
        return Observation(polled=await is_polled(self._client, request.task_queue))

    async def _describe(self, workflow_id: str, *, run_id: str | None = None) -> WorkflowExecutionDescription | None:
        """Ask how a workflow stands; ``None`` for one that is not there."""
        try:
            return await self._client.get_workflow_handle(workflow_id, run_id=run_id).describe()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return None

    async def _is_about_to_start(self, workflow_id: str) -> bool:
        """Say whether the job that asks has ordered this workflow, and Temporal has not started it yet.

        A busy server takes seconds for that. No job continues as new meanwhile, so the run of it that asks is the one that
        has ordered it; where that is gone, nobody hears the answer.
        """
        asking = activity.info()
        assert asking.workflow_id is not None
        job = await self._describe(asking.workflow_id, run_id=asking.workflow_run_id)
        children = job.raw_description.pending_children if job is not None else ()
        # One that was started has a run id, and is gone if it cannot be found.
        return any(child.workflow_id == workflow_id and not child.run_id for child in children)

    async def _observe_child(self, request: ObserveRequest) -> Observation:
        """Say what Temporal knows about an attempt that is a workflow. Raises ``RPCError`` when it is not there (yet)."""
        described = await self._client.get_workflow_handle(request.child_id).describe()
        if not await self._is_taken(described):
            return Observation(polled=await is_polled(self._client, request.task_queue, workflows=True))
        problems = described.typed_search_attributes.get(REPORTED_PROBLEMS)
        trouble = f"its workflow cannot go on: {', '.join(problems)}" if problems else None
        return Observation(started_at=described.start_time, trouble=trouble)

    async def _is_taken(self, described: WorkflowExecutionDescription) -> bool:
        """Say whether any worker has ever had a task of a workflow, or of the run of it that continued as this one."""
        raw = described.raw_description
        is_first = raw.workflow_execution_info.first_run_id in ("", described.run_id)
        if described.status is not WorkflowExecutionStatus.RUNNING or not is_first:
            return True
        if raw.pending_workflow_task.state == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED:
            return True
        # Signals and cancellations may stand before it.
        handle = self._client.get_workflow_handle(described.id, run_id=described.run_id)
        async for event in handle.fetch_history_events(page_size=FIRST_EVENTS):
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
                return True
        return False


async def is_polled(client: Client, task_queue: str, *, workflows: bool = False) -> bool:
    """Say whether any worker polls the queue for activities, or for workflows."""
    kind = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW if workflows else TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    answer = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=task_queue),
            task_queue_type=kind,
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
