"""The workflow of a hold: lets an activity tell the jobs of it, or of its end, until all have been told.

It does not live as long as the hold: each job carries the hold's end. Whoever finds a job that is not as the store says starts
it again, or, while it runs, has it look once more. Its memo says how far it is.
"""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from workflows.contracts import HOLD_WORKFLOW, PROGRESS_MEMO, SCHEDULER_TASK_QUEUE, SIGNAL_SPREAD, SPREAD_HOLD
    from workflows.hold import HoldOrder, HoldProgress

BETWEEN_ROUNDS = timedelta(seconds=5)
"""For jobs that did not answer, and for whatever was away."""

CHUNKS_A_RUN = 50
"""Then it continues as new. About eight events each."""

UNTIL_DONE = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30))


@workflow.defn(name=HOLD_WORKFLOW)
class HoldWorkflow:
    """Tells jobs of one hold."""

    @workflow.init
    def __init__(self, order: HoldOrder) -> None:
        self._progress: HoldProgress = order.progress or HoldProgress()
        self._looks_again = False

    @workflow.signal(name=SIGNAL_SPREAD)
    def spread(self) -> None:
        """Look at the jobs once more: the hold, or its jobs, may be others than when the last look began."""
        self._looks_again = True

    @workflow.run
    async def run(self, order: HoldOrder) -> HoldProgress:
        """Go on until every job is as the store says."""
        for _ in range(CHUNKS_A_RUN):
            self._looks_again = False
            self._progress = await self._tell_some(order)
            workflow.upsert_memo({PROGRESS_MEMO: self._progress})
            if self._looks_again:
                self._progress = self._progress.model_copy(update={"after": "", "is_done": False})
            elif self._progress.is_done:
                return self._progress
            elif self._progress.trouble is not None:
                await self._rest()
        # Given again, because a memo that was changed in a run is not carried over to the next one.
        carried = order.model_copy(update={"progress": self._progress})
        workflow.continue_as_new(carried, memo={PROGRESS_MEMO: self._progress})

    async def _tell_some(self, order: HoldOrder) -> HoldProgress:
        told: HoldProgress = await workflow.execute_activity(
            SPREAD_HOLD,
            order.model_copy(update={"progress": self._progress}),
            result_type=HoldProgress,
            task_queue=SCHEDULER_TASK_QUEUE,
            start_to_close_timeout=timedelta(minutes=2),
            heartbeat_timeout=timedelta(seconds=30),
            retry_policy=UNTIL_DONE,
        )
        return told

    async def _rest(self) -> None:
        try:
            await workflow.wait_condition(lambda: self._looks_again, timeout=BETWEEN_ROUNDS)
        except TimeoutError:
            return
