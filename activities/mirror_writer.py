"""The one writer of the mirror in a process: groups the records of many jobs, and never lets anybody wait for long.

It has two lanes. On the *swift* one are callers who hold up a workflow task, and with it fires: they get half a second, and after
a failure are refused at once for a while. On the *patient* one is whoever sends records late, by an ordinary activity that delays
nothing: there a database that takes seconds for each answer gets its time. Neither lane waits for the other, nor fails with it.
"""

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Final

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.database import cause_of
from activities.heartbeat import heartbeating
from activities.mirror_lane import MirrorCondition, MirrorLane, MirrorRefused, MirrorUnavailable, WriterOptions
from workflows.contracts import MIRROR_REFUSED, MIRROR_UNAVAILABLE, RECORD_EVENTS
from workflows.job import MirrorBatch

__all__ = ["MirrorRefused", "MirrorUnavailable", "MirrorWriter", "WriterOptions"]

logger = logging.getLogger(__name__)

SWIFT: Final = WriterOptions()

PATIENT: Final = WriterOptions(budget=timedelta(seconds=150), statement=timedelta(seconds=15))
"""A transaction is nine round trips to PostgreSQL, and 56 where the connection has to be made: at two seconds each that is two
minutes. A database that gives no answer at all is found out by the limit for one. Less than the activity has, so that it is
answered."""


class MirrorWriter:
    """Writes batches of records; used by one event loop, by any number of callers at once."""

    def __init__(self, url: str, *, options: WriterOptions = SWIFT, patient: WriterOptions = PATIENT) -> None:
        self._condition = MirrorCondition()
        self._swift = MirrorLane(url, options=options, condition=self._condition)
        self._patient = MirrorLane(url, options=patient, condition=self._condition)
        self._lanes = (self._swift, self._patient)

    @property
    def last_commit_at(self) -> datetime | None:
        """When records were last committed."""
        return self._condition.last_commit_at

    @property
    def failing_since(self) -> datetime | None:
        """Set at a failure of the database, cleared by the next commit."""
        return self._condition.failing_since

    @property
    def waiting_since(self) -> float | None:
        """When the first of those came who wait for their turn, by the monotonic clock; ``None`` when nobody waits."""
        return min((lane.waiting_since for lane in self._lanes if lane.waiting_since is not None), default=None)

    @property
    def transactions(self) -> int:
        """Transactions committed since the start."""
        return sum(lane.upsert.transactions for lane in self._lanes)

    @property
    def rows_written(self) -> int:
        """Rows committed since the start."""
        return sum(lane.upsert.rows_written for lane in self._lanes)

    @property
    def records_refused(self) -> int:
        """Records that the database can never take, each time they were tried."""
        return sum(lane.upsert.records_refused for lane in self._lanes)

    @property
    def nominal_conflicts(self) -> int:
        """Runs not recorded because another one has their nominal time."""
        return sum(lane.upsert.nominal_conflicts for lane in self._lanes)

    @activity.defn(name=RECORD_EVENTS)
    async def record_events(self, batch: MirrorBatch) -> None:
        """Write a batch for a workflow. Fails as ``MIRROR_UNAVAILABLE``, or as ``MIRROR_REFUSED``, which is not to be retried."""
        try:
            if activity.info().is_local:
                await self.write(batch)
            else:
                async with heartbeating():
                    await self.write_patiently(batch)
        except MirrorUnavailable as error:
            benign = ApplicationErrorCategory.BENIGN  # the lane has logged it, once for all jobs
            raise ApplicationError(str(error), type=MIRROR_UNAVAILABLE, category=benign) from error
        except MirrorRefused as error:
            raise ApplicationError(str(error), type=MIRROR_REFUSED, non_retryable=True) from error

    async def write(self, batch: MirrorBatch) -> None:
        """Return when the batch is committed. Raises ``MirrorUnavailable`` within the budget, or ``MirrorRefused``."""
        await self._swift.write(batch)

    async def write_patiently(self, batch: MirrorBatch) -> None:
        """Do the same for a caller who holds nothing up."""
        await self._patient.write(batch)

    async def prepare(self, *, now: datetime) -> None:
        """Connect, and make the partitions of this month and the next, so that the first records wait for neither.

        For the start of a process: a connection costs many round trips, and the database may be slow later. Never fails: one
        that is away is dealt with by ``write``.
        """
        in_next_month = now.replace(day=1) + timedelta(days=31)
        for lane in self._lanes:
            try:
                await lane.upsert.prepare([now, in_next_month])
            except Exception as error:
                logger.warning("the mirror is not ready", extra={"error": cause_of(error)})

    async def check(self) -> None:
        """After a failure, look whether the database is back, in case that nobody else does. Never fails."""
        await asyncio.gather(*(lane.check() for lane in self._lanes))

    async def close(self) -> None:
        """Finish what is being written and let go of the database."""
        await asyncio.gather(*(lane.close() for lane in self._lanes))
