"""The workflow that carries a backlog of records until the mirror takes it."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from workflows.contracts import (
        RECORD_EVENTS,
        RECORD_HEARTBEAT_TIMEOUT,
        RECORD_TIMEOUT,
        RECORDS_WORKFLOW,
        SCHEDULER_TASK_QUEUE,
    )
    from workflows.job import MirrorBatch

UNTIL_RECORDED = RetryPolicy(initial_interval=timedelta(seconds=5), maximum_interval=timedelta(seconds=30))
"""For ever, and often enough that everything is there within a minute of the database's return."""


@workflow.defn(name=RECORDS_WORKFLOW)
class RecordsWorkflow:
    """One batch of records of a job."""

    @workflow.run
    async def run(self, backlog: MirrorBatch) -> None:
        """Write the records, however long that takes."""
        await workflow.execute_activity(
            RECORD_EVENTS,
            backlog,
            task_queue=SCHEDULER_TASK_QUEUE,
            start_to_close_timeout=RECORD_TIMEOUT,
            heartbeat_timeout=RECORD_HEARTBEAT_TIMEOUT,
            retry_policy=UNTIL_RECORDED,
        )
