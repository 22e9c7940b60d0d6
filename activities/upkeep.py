"""The activities of the mirror's upkeep, and what begins it."""

import asyncio
import logging
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio import activity
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError

from activities.heartbeat import heartbeating
from activities.purge import Purger
from activities.reconcile import ReconcileOptions, Reconciler
from activities.trouble import Trouble
from workflows.contracts import PURGE_MIRROR, RECONCILE_MIRROR, UPKEEP_WORKFLOW, UPKEEP_WORKFLOW_ID
from workflows.reconciliation import PURGED_TABLES, PurgeReport, ReconcileReport
from workflows.target import DEFAULT_TASK_QUEUE
from workflows.upkeep import UpkeepInput

logger = logging.getLogger(__name__)

TIMES_AS_LONG: Final = 20
"""A pass is not begun before so many times as long as the last one took: it takes at most a twentieth of a process."""

TRY_EVERY: Final = timedelta(seconds=5)


class Upkeep:
    """What a scheduler process does of it. Counts what it did since it started."""

    def __init__(self, *, reconciler: Reconciler, purger: Purger, every: timedelta, kept: timedelta) -> None:
        """A pass begins ``every`` so often; runs are kept for ``kept`` after their end."""
        self._reconciler = reconciler
        self._purger = purger
        self._every = every
        self._kept = kept
        self.mended: Counter[str] = Counter()
        """Differences by kind."""

        self.left: Counter[str] = Counter()
        """Differences that the last pass found and did not mend, by kind."""

        self.purged: Counter[str] = Counter()
        """Rows by table."""

    @activity.defn(name=RECONCILE_MIRROR)
    async def reconcile_mirror(self) -> ReconcileReport:
        """Make one pass, and say when the next one is due."""
        began = time.monotonic()
        async with heartbeating():
            report = await self._reconciler.reconcile(ReconcileOptions())
        took = timedelta(seconds=time.monotonic() - began)
        self._count(report)
        return report.model_copy(update={"again_in": max(self._every, TIMES_AS_LONG * took)})

    @activity.defn(name=PURGE_MIRROR)
    async def purge_mirror(self) -> PurgeReport:
        """Forget what is older than the retention."""
        async with heartbeating():
            report = await self._purger.purge(before=datetime.now(UTC) - self._kept)
        for table in PURGED_TABLES:
            self.purged[table] += getattr(report, table)
        return report

    def _count(self, report: ReconcileReport) -> None:
        self.left.clear()
        self.left.update(report.found)
        self.left.subtract(report.mended_by_kind)
        self.mended.update(report.mended_by_kind)


async def begin_upkeep(client: Client) -> None:
    """See to it that the upkeep of the namespace is under way. Tries until Temporal has answered."""
    trouble = Trouble(logger, expected=RPCError)
    while True:
        with trouble.survived("the upkeep of the mirror could not be begun yet"):
            await client.start_workflow(
                UPKEEP_WORKFLOW,
                UpkeepInput(),
                id=UPKEEP_WORKFLOW_ID,
                task_queue=DEFAULT_TASK_QUEUE,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                static_summary="compares the mirror with Temporal, and forgets what is old",
            )
            return
        await asyncio.sleep(TRY_EVERY.total_seconds())
