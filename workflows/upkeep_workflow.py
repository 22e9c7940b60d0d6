"""The workflow that looks after the mirror: compares it with Temporal every minute or so, and forgets what is old every hour.

There is one in a namespace, by its id, so that one process at a time does either; which one is Temporal's choice, and another
takes over when it dies. Nothing waits for it: a fire needs neither.
"""

import asyncio
from datetime import datetime, timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from workflows.contracts import PURGE_MIRROR, RECONCILE_MIRROR, SCHEDULER_TASK_QUEUE, UPKEEP_WORKFLOW
    from workflows.reconciliation import PurgeReport, ReconcileReport
    from workflows.upkeep import UpkeepInput
    from workflows.value import Value

Report = TypeVar("Report", bound=Value)

PURGE_EVERY = timedelta(hours=1)

AFTER_FAILURE = timedelta(minutes=1)

ROUNDS_A_RUN = 30
"""Then it continues as new. About eleven events each."""

LONGEST = timedelta(hours=6)
"""For one pass over millions of jobs. One whose worker has died is noticed by its heartbeats."""

SILENT_FOR = timedelta(seconds=30)

ONCE = RetryPolicy(maximum_attempts=1)
"""Another round follows."""


@workflow.defn(name=UPKEEP_WORKFLOW)
class UpkeepWorkflow:
    """The upkeep of a namespace's mirror."""

    @workflow.run
    async def run(self, given: UpkeepInput) -> None:
        """Go on for ever. Cancelled, it ends; the next worker that starts begins another."""
        purged_at = given.purged_at
        for _ in range(ROUNDS_A_RUN):
            report = await self._do(RECONCILE_MIRROR, ReconcileReport)
            if self._is_purge_due(purged_at):
                await self._do(PURGE_MIRROR, PurgeReport)
                purged_at = workflow.now()
            await workflow.sleep(AFTER_FAILURE if report is None else report.again_in)
        workflow.continue_as_new(UpkeepInput(purged_at=purged_at))

    def _is_purge_due(self, purged_at: datetime | None) -> bool:
        return purged_at is None or workflow.now() - purged_at >= PURGE_EVERY

    async def _do(self, activity: str, report: type[Report]) -> Report | None:
        """Carry out one step; ``None`` where it failed."""
        try:
            done: Report = await workflow.execute_activity(
                activity,
                result_type=report,
                task_queue=SCHEDULER_TASK_QUEUE,
                start_to_close_timeout=LONGEST,
                heartbeat_timeout=SILENT_FOR,
                retry_policy=ONCE,
            )
        except FailureError as error:
            if is_cancelled_exception(error):
                raise asyncio.CancelledError from error
            workflow.logger.warning("upkeep_failed", extra={"activity": activity, "reason": str(error.cause or error)})
            return None
        return done
