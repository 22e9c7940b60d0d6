"""What waits in a task queue for a worker, as the Temporal server counts it. Known also when no worker is left."""

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client


class QueueKind(Enum):
    """What waits there."""

    ACTIVITY = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    """Attempts of runs, and our own activities."""

    WORKFLOW = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
    """Decisions of jobs."""

    @property
    def label(self) -> str:
        """Name it in metrics."""
        return self.name.lower()


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """What waits in one queue. The server counts anew every few seconds; what a worker takes at once never waits."""

    task_queue: str
    kind: QueueKind
    count: int
    oldest: timedelta
    """For how long the oldest has waited; zero when nothing waits."""

    pollers: int
    """Workers that have asked for work lately. The server forgets one minutes after it died."""


async def read_backlog(client: Client, *, task_queue: str, kind: QueueKind, limit: timedelta) -> Backlog:
    """Ask the server about a queue. Raises ``RPCError``."""
    answer = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=task_queue),
            task_queue_type=kind.value,
            report_stats=True,
        ),
        timeout=limit,
    )
    stats = answer.stats
    return Backlog(
        task_queue=task_queue,
        kind=kind,
        count=max(0, stats.approximate_backlog_count),
        oldest=max(timedelta(0), stats.approximate_backlog_age.ToTimedelta()),
        pollers=len(answer.pollers),
    )
