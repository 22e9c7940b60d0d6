"""What a native Schedule starts: a workflow that runs the no-op as an activity, as a job of Horarium does."""

from datetime import timedelta

from temporalio import workflow

NATIVE_TASK_QUEUE = "bench-native"

NOOP = "native_noop"


@workflow.defn(name="BenchNoop")
class NoopWorkflow:
    """One fire."""

    @workflow.run
    async def run(self) -> None:
        """Run the activity once."""
        await workflow.execute_activity(NOOP, start_to_close_timeout=timedelta(seconds=300))
