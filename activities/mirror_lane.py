"""One lane to the mirror: callers who are equally patient, grouped into transactions, on connections of their own.

Owns when records are written and how long is tried; ``mirror_upsert`` owns how. Promises its callers an answer within the
budget: the records are committed, or an error says that they may not be. After a failure of the database it refuses at once for
a while, so that a database that is down costs the jobs nothing, and then lets a single caller try.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from activities.database import Limits, cause_of, open_database
from activities.deadline import Deadline
from activities.mirror_upsert import MirrorUpsert
from workflows.error import HorariumError, Unavailable
from workflows.job import MirrorBatch

logger = logging.getLogger(__name__)


class MirrorUnavailable(Unavailable):
    """The mirror did not take the records in time, or is not being tried at present. Sending them again later is right."""


class MirrorRefused(HorariumError):
    """The mirror can never take one of the records. The others of the batch are written."""


@dataclass(frozen=True, kw_only=True)
class WriterOptions:
    """Bounds of the writer, or of one lane of it."""

    gather: timedelta = timedelta(milliseconds=20)
    """How long the first record of a group waits for others."""

    group_size: int = 500
    """Records in a group, about: a batch is never split. Laying out more would hold up the event loop."""

    budget: timedelta = timedelta(milliseconds=450)
    """For a caller, and for one transaction. A little less than a local activity has, so that the caller is answered."""

    statement: timedelta | None = None
    """For one answer of the database; ``None``: as long as the budget. Tells a slow database from one that is gone."""

    pause: timedelta = timedelta(seconds=10)
    """How long nothing is tried after a failure."""

    connections: int = 2
    """One to write, and one more while a connection that hung is being closed."""

    def limits(self) -> Limits:
        """Say what that means for connections."""
        answer = self.statement or self.budget
        return Limits(connect=answer, statement=answer, connections=self.connections)


@dataclass
class MirrorCondition:
    """How the database has answered last, on whatever lane."""

    last_commit_at: datetime | None = None
    failing_since: datetime | None = None
    """Set at a failure of the database, cleared by the next commit."""

    def note_answer(self) -> None:
        """The database does what it is asked."""
        if self.failing_since is not None:
            logger.info("the mirror is written again", extra={"failing_since": self.failing_since.isoformat()})
        self.failing_since = None

    def note_commit(self) -> None:
        """Records were committed."""
        self.last_commit_at = datetime.now(UTC)
        self.note_answer()

    def note_failure(self, reason: str) -> None:
        """The database failed."""
        self.failing_since = self.failing_since or datetime.now(UTC)
        logger.warning("the mirror cannot be written", extra={"error": reason})


@dataclass(eq=False)
class _Waiting:
    """A caller and its batch."""

    batch: MirrorBatch
    arrived: float
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def size(self) -> int:
        batch = self.batch
        parts = (batch.runs, batch.attempts, batch.ledger, batch.backfills)
        return (batch.job is not None) + sum(map(len, parts))


class MirrorLane:
    """Writes batches of records; used by one event loop, by any number of callers at once."""

    def __init__(self, url: str, *, options: WriterOptions, condition: MirrorCondition) -> None:
        self._options = options
        self._condition = condition
        self._engine = open_database(url, limits=options.limits(), reuse_plans=True)
        self._deadline = Deadline(options.budget)
        self.upsert = MirrorUpsert(self._engine, deadline=self._deadline)
        """For what it has counted."""

        self._queue: deque[_Waiting] = deque()
        self._flushing: asyncio.Task[None] | None = None
        self._retry_at: float | None = None

    @property
    def waiting_since(self) -> float | None:
        """When the first of those came who wait for their turn, by the monotonic clock; ``None`` when nobody waits."""
        return self._queue[0].arrived if self._queue else None

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

    async def check(self) -> None:
        """After a failure, look whether the database is back, in case that nobody else does. Never fails."""
        if self._retry_at is None or time.monotonic() < self._retry_at:
            return
        self._pause()
        try:
            await self.upsert.prepare(())
        except Exception as error:
            logger.warning("the mirror cannot be written", extra={"error": cause_of(error)})
        else:
            self._retry_at = None
            self._condition.note_answer()

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
        if time.monotonic() < self._retry_at:
            raise MirrorUnavailable("the mirror failed a moment ago and is not tried yet")
        self._pause()

    def _pause(self) -> None:
        self._retry_at = time.monotonic() + self._options.pause.total_seconds()

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
            async for refusal in self.upsert.write([waiting.batch for waiting in group]):
                error = None if refusal is None else MirrorRefused("the mirror cannot hold one of the records")
                _answer(unanswered.popleft(), error)
        except Exception as failure:  # whatever it is, those who wait must hear of it
            self._fail(unanswered, cause_of(failure))
        else:
            self._retry_at = None
            self._condition.note_commit()

    def _fail(self, unanswered: Iterable[_Waiting], reason: str) -> None:
        """Fail everybody who waits, those of the next groups too."""
        self._pause()
        self._condition.note_failure(reason)
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
