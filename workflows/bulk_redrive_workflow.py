"""The workflow of a bulk redrive: lets an activity go through the dead letters, and shows how far it is.

Its memo says that to whoever asks, with or without workers. Restarted, it goes on from where the activity told it to be;
cancelled, it begins no more redrives and says how many it has begun.
"""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from workflows.contracts import BULK_REDRIVE_WORKFLOW, PROGRESS_MEMO, REDRIVE_MANY, SCHEDULER_TASK_QUEUE
    from workflows.dead_letter import BulkProgress, BulkRequest

BETWEEN_ROUNDS = timedelta(seconds=5)
"""For jobs that were busy, and for whatever was away."""

CHUNKS_A_RUN = 50
"""Then it continues as new. About eight events each."""

UNTIL_DONE = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30))


@workflow.defn(name=BULK_REDRIVE_WORKFLOW)
class BulkRedriveWorkflow:
    """One bulk redrive."""

    @workflow.run
    async def run(self, request: BulkRequest) -> BulkProgress:
        """Go on until every letter was redriven or cannot be, or the limit is reached."""
        progress: BulkProgress = request.progress
        for _ in range(CHUNKS_A_RUN):
            before = progress
            progress = await self._redrive_some(request, progress)
            workflow.upsert_memo({PROGRESS_MEMO: progress})
            if progress.is_done:
                return progress
            if workflow.cancellation_reason() is not None:
                raise asyncio.CancelledError
            await self._rest(progress, is_new_round=progress.rounds > before.rounds)
        # Given again, because a memo that was changed in a run is not carried over to the next one.
        workflow.continue_as_new(request.model_copy(update={"progress": progress}), memo={PROGRESS_MEMO: progress})

    async def _redrive_some(self, request: BulkRequest, progress: BulkProgress) -> BulkProgress:
        done: BulkProgress = await workflow.execute_activity(
            REDRIVE_MANY,
            request.model_copy(update={"progress": progress}),
            result_type=BulkProgress,
            task_queue=SCHEDULER_TASK_QUEUE,
            start_to_close_timeout=timedelta(minutes=2),
            heartbeat_timeout=timedelta(seconds=30),
            retry_policy=UNTIL_DONE,
            # The activity tells how far it came.
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        return done

    async def _rest(self, progress: BulkProgress, *, is_new_round: bool) -> None:
        due = timedelta(0) if progress.next_at is None else progress.next_at - workflow.now()
        pause = BETWEEN_ROUNDS if is_new_round or progress.trouble is not None else timedelta(0)
        if (longest := max(due, pause)) > timedelta(0):
            await workflow.sleep(longest)
