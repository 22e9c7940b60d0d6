"""The workflow that delivers one alert."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from workflows.alert import Alert
    from workflows.contracts import ALERT_WORKFLOW, SCHEDULER_TASK_QUEUE, SEND_ALERT

UNTIL_TAKEN = RetryPolicy(initial_interval=timedelta(seconds=2), maximum_interval=timedelta(minutes=5))

OLD_AFTER = timedelta(days=1)
"""An alert that nobody has taken for a day tells nobody anything new."""


@workflow.defn(name=ALERT_WORKFLOW)
class AlertWorkflow:
    """One alert."""

    @workflow.run
    async def run(self, alert: Alert) -> None:
        """Send it until it is taken, or old."""
        await workflow.execute_activity(
            SEND_ALERT,
            alert,
            task_queue=SCHEDULER_TASK_QUEUE,
            start_to_close_timeout=timedelta(seconds=30),
            schedule_to_close_timeout=OLD_AFTER,
            retry_policy=UNTIL_TAKEN,
        )
