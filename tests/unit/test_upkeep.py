"""What a scheduler process counts of the mirror's upkeep."""

from datetime import timedelta
from typing import cast

from temporalio.testing import ActivityEnvironment

from activities.purge import Purger
from activities.reconcile import ReconcileOptions, Reconciler
from activities.upkeep import Upkeep
from workflows.reconciliation import TOLD, Difference, DifferenceKind, ReconcileReport, with_differences


class _Reconciler:
    """Answers with one report each time."""

    def __init__(self, *reports: ReconcileReport) -> None:
        self._reports = iter(reports)

    async def reconcile(self, options: ReconcileOptions) -> ReconcileReport:
        return next(self._reports)


def _found(count: int, kind: DifferenceKind, *, mended: bool) -> list[Difference]:
    return [Difference(tenant="default", job_id=f"job-{number}", kind=kind, mended=mended) for number in range(count)]


async def test_differences_beyond_those_that_a_report_names_are_counted_too() -> None:
    """Those that were mended for good, and those that are left as of the last pass."""
    missing = _found(TOLD + 50, DifferenceKind.MISSING, mended=True)
    unknown = _found(3, DifferenceKind.UNKNOWN_TO_TEMPORAL, mended=False)
    first = with_differences(ReconcileReport(), missing + unknown)
    second = with_differences(ReconcileReport(), unknown)
    upkeep = Upkeep(
        reconciler=cast(Reconciler, _Reconciler(first, second)),
        purger=cast(Purger, None),
        every=timedelta(minutes=1),
        kept=timedelta(days=90),
    )
    for _ in range(2):
        await ActivityEnvironment().run(upkeep.reconcile_mirror)
        assert +upkeep.mended == {"missing": TOLD + 50}
        assert +upkeep.left == {"unknown_to_temporal": 3}
