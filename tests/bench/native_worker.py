"""A worker for what native Schedules start, set up as Horarium's own: ``python -m tests.bench.native_worker ADDRESS``."""

import asyncio
import signal
import sys
from datetime import UTC, datetime
from typing import Final

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import PollerBehaviorAutoscaling, Worker

from tests.bench.fire_log import note_fire
from tests.bench.native_workflow import NATIVE_TASK_QUEUE, NOOP, NoopWorkflow
from workers.settings import Settings

DUE = "-2026-01-01T00:00:00Z"
"""Of this form and length."""


WORKFLOW_TASK_SLOTS: Final = 100
"""What the native worker does best with: its workflow decides in a moment, and loads nothing."""


@activity.defn(name=NOOP)
async def noop() -> None:
    """Do nothing but say that it began. The due time is what the Schedule appended to the workflow's id."""
    workflow_id = activity.info().workflow_id
    assert workflow_id is not None
    job_id, due = workflow_id[: -len(DUE)], workflow_id[-len(DUE) :]
    note_fire(job_id, datetime.strptime(due, "-%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp())


async def main(address: str) -> None:
    """Work until SIGTERM."""
    settings = Settings()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    worker = Worker(
        await Client.connect(address),
        task_queue=NATIVE_TASK_QUEUE,
        workflows=[NoopWorkflow],
        activities=[noop],
        max_cached_workflows=settings.max_cached_workflows,
        max_concurrent_workflow_tasks=WORKFLOW_TASK_SLOTS,
        max_concurrent_activities=settings.job_slots,
        workflow_task_poller_behavior=PollerBehaviorAutoscaling(),
        activity_task_poller_behavior=PollerBehaviorAutoscaling(),
    )
    async with worker:
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
