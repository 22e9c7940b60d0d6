"""The one writer of the mirror in a process: groups the records of many jobs, and never lets anybody wait for long.

Owns when records are written and how long is tried; ``mirror_upsert`` owns how. Promises its callers an answer within the budget:
the records are committed, or an error says that they may not be. After a failure of the database it refuses at once for a
while, so that a database that is down costs the jobs nothing, and then lets a single caller try.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.database import Limits, cause_of, open_database
from activities.deadline import Deadline
from activities.mirror_upsert import MirrorUpsert
from workflows.contracts import MIRROR_REFUSED, MIRROR_UNAVAILABLE, RECORD_EVENTS
from workflows.error import HorariumError, Unavailable
from workflows.job import MirrorBatch

logger = logging.getLogger(__name__)


class MirrorUnavailable(Unavailable):
    """The mirror did not take the records in time, or is not being tried at present. Sending them again later is right."""


class MirrorRefused(HorariumError):
    """The mirror can never take one of the records. The others of the batch are written."""


@dataclass(frozen=True, kw_only=True)
class WriterOptions:
    """Bounds of the writer."""

    gather: timedelta = timedelta(milliseconds=20)
    """How long the first record of a group waits for others."""

    group_size: int = 500
    """Records in a group, about: a batch is never split. Laying out more would hold up the event loop."""

    budget: timedelta = timedelta(milliseconds=450)
    """For a caller, and for one transaction. A little less than a local activity has, so that the caller is answered."""

    pause: timedelta = timedelta(seconds=10)
    """How long nothing is tried after a failure."""

    connections: int = 2
    """One to write, and one more while a connection that hung is being closed."""


@dataclass(eq=False)
class _Waiting:
    """A caller and its batch."""

    batch: MirrorBatch
    arrived: float
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def size(self) -> int:
        batch = self.batch
        return (batch.job is not None) + len(batch.runs) + len(batch.attempts) + len(batch.ledger)


class MirrorWriter:
    """Writes batches of records; used by one event loop, by any number of callers at once."""

    def __init__(self, url: str, *, options: WriterOptions | None = None) -> None:
        self._options = options or WriterOptions()
        self._engine = open_database(url, limits=_limits(self._options), reuse_plans=True)
        self._deadline = Deadline(self._options.budget)
        self._upsert = MirrorUpsert(self._engine, deadline=self._deadline)
        self._queue: deque[_Waiting] = deque()
        self._flushing: asyncio.Task[None] | None = None
        self._retry_at: float | None = None

        self.last_commit_at: datetime | None = None
        self.failing_since: datetime | None = None
        """Set at a failure of the database, cleared by the next commit."""

    @property
    def waiting_since(self) -> float | None:
        """When the first of those came who wait for their turn, by the monotonic clock; ``None`` when nobody waits."""
        return self._queue[0].arrived if self._queue else None

    @property
    def transactions(self) -> int:
        """Transactions committed since the start."""
        return self._upsert.transactions

    @property
    def rows_written(self) -> int:
        """Rows committed since the start."""
        return self._upsert.rows_written

    @property
    def records_refused(self) -> int:
        """Records that the database can never take, each time they were tried."""
        return self._upsert.records_refused

    @property
    def nominal_conflicts(self) -> int:
        """Runs not recorded because another one has their nominal time."""
        return self._upsert.nominal_conflicts

    @activity.defn(name=RECORD_EVENTS)
    async def record_events(self, batch: MirrorBatch) -> None:
        """Write a batch for a workflow. Fails as ``MIRROR_UNAVAILABLE``, or as ``MIRROR_REFUSED``, which is not to be retried."""
        try:
            await self.write(batch)
        except MirrorUnavailable as error:
            benign = ApplicationErrorCategory.BENIGN  # the writer has logged it, once for all jobs
            raise ApplicationError(str(error), type=MIRROR_UNAVAILABLE, category=benign) from error
        except MirrorRefused as error:
            raise ApplicationError(str(error), type=MIRROR_REFUSED, non_retryable=True) from error

    async def write(self, batch: MirrorBatch) -> None:
        """Return when the batch is committed. Raises ``MirrorUnavailable`` within the budget, or ``MirrorRefused``."""
        waiting = _Waiting(batch, time.monotonic())
        if not waiting.size:
            return
        self._admit()
        self._queue.append(waiting)
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush_all())
        try:
            async with asyncio.timeout(self._options.budget.total_seconds()):
                await waiting.done
        except TimeoutError:
            raise MirrorUnavailable("the mirror did not commit in time") from None

    async def prepare(self, *, now: datetime) -> None:
        """Connect, and make the partitions of this month and the next, so that the first records wait for neither.

        For the start of a process. Never fails: a database that is away is dealt with by ``write``.
        """
        in_next_month = now.replace(day=1) + timedelta(days=31)
        try:
            await self._upsert.prepare([now, in_next_month])
        except Exception as error:
            logger.warning("the mirror is not ready", extra={"error": cause_of(error)})

    async def check(self) -> None:
        """After a failure, look whether the database is back, in case that nobody else does. Never fails."""
        if self._retry_at is None or time.monotonic() < self._retry_at:
            return
        self._retry_at = time.monotonic() + self._options.pause.total_seconds()
        try:
            await self._upsert.prepare(())
        except Exception as error:
            logger.warning("the mirror cannot be written", extra={"error": cause_of(error)})
        else:
            self._recover()

    async def close(self) -> None:
        """Finish what is being written and let go of the database."""
        if self._flushing is not None:
            await self._flushing
        await self._deadline.close()
        await self._engine.dispose()

    def _admit(self) -> None:
        """Refuse a caller while nothing is to be tried; the first one after the pause starts the next pause and may try."""
        if self._retry_at is None:
            return
        now = time.monotonic()
        if now < self._retry_at:
            raise MirrorUnavailable("the mirror failed a moment ago and is not tried yet")
        self._retry_at = now + self._options.pause.total_seconds()

    async def _flush_all(self) -> None:
        while self._queue:
            await self._gather()
            group = self._take_group()
            if group:
                await self._flush(group)

    async def _gather(self) -> None:
        """Wait until the first caller has waited long enough, unless a whole group is there already."""
        due = self._queue[0].arrived + self._options.gather.total_seconds()
        if sum(waiting.size for waiting in self._queue) < self._options.group_size:
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _take_group(self) -> list[_Waiting]:
        """Take the callers of the next transaction, but for those who have given up."""
        group: list[_Waiting] = []
        size = 0
        while self._queue and size < self._options.group_size:
            waiting = self._queue.popleft()
            if not waiting.done.done():
                group.append(waiting)
                size += waiting.size
        return group

    async def _flush(self, group: Sequence[_Waiting]) -> None:
        """Write a group, and answer each caller as soon as its batch is dealt with."""
        unanswered = deque(group)
        try:
            async for refusal in self._upsert.write([waiting.batch for waiting in group]):
                error = None if refusal is None else MirrorRefused("the mirror cannot hold one of the records")
                _answer(unanswered.popleft(), error)
        except Exception as failure:  # whatever it is, those who wait must hear of it
            self._fail(unanswered, cause_of(failure))
        else:
            self._succeed()

    def _succeed(self) -> None:
        self.last_commit_at = datetime.now(UTC)
        self._recover()

    def _recover(self) -> None:
        if self.failing_since is not None:
            logger.info("the mirror is written again", extra={"failing_since": self.failing_since.isoformat()})
        self.failing_since = self._retry_at = None

    def _fail(self, unanswered: Iterable[_Waiting], reason: str) -> None:
        """Fail everybody who waits, those of the next groups too."""
        self.failing_since = self.failing_since or datetime.now(UTC)
        self._retry_at = time.monotonic() + self._options.pause.total_seconds()
        logger.warning("the mirror cannot be written", extra={"error": reason})
        queued = [*self._queue]
        self._queue.clear()
        for waiting in (*unanswered, *queued):
            _answer(waiting, MirrorUnavailable("the mirror cannot be written"))


def _answer(waiting: _Waiting, error: HorariumError | None) -> None:
    if waiting.done.done():
        return
    if error is None:
        waiting.done.set_result(None)
    else:
        waiting.done.set_exception(error)


def _limits(options: WriterOptions) -> Limits:
    return Limits(connect=options.budget, statement=options.budget, connections=options.connections)
