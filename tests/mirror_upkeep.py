"""One pass over the mirror of a stack, for tests that share it with others: each looks at its own jobs."""

from datetime import timedelta

from activities.mirror_writer import MirrorWriter
from activities.reconcile import ReconcileOptions
from tests.api_stack import ApiStack
from workers.mirror import open_parts
from workflows.reconciliation import Difference, ReconcileReport


async def one_pass(stack: ApiStack, *, mend: bool = True) -> ReconcileReport:
    """Compare everything, as an operator who waits for it."""
    writer = MirrorWriter(stack.database_url)
    try:
        async with open_parts(stack.database_url, await stack.temporal(), writer=writer) as parts:
            return await parts.reconciler.reconcile(ReconcileOptions(mend=mend, settling=timedelta(0)))
    finally:
        await writer.close()


def of_job(report: ReconcileReport, job_id: str) -> list[Difference]:
    """What a pass has found about one job."""
    assert report.trouble == ""
    return [each for each in report.differences if each.job_id == job_id]
