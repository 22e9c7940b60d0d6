"""How the records of a job reach the mirror, and when.

The durable part of ``outbox``. On the way, by a local activity, where that delays nothing; as an ordinary activity where the
mirror was away, or where nothing else will happen soon; handed over to a workflow of their own where they become too many.
The mirror is told only what a committed workflow task has decided, or what the history itself says.
"""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import TypeAlias

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception

from workflows.attempt import ONE_ATTEMPT
from workflows.contracts import (
    LOCAL_ACTIVITY_TIMEOUT,
    MIRROR_REFUSED,
    RECORD_EVENTS,
    RECORD_HEARTBEAT_TIMEOUT,
    RECORD_TIMEOUT,
    RECORDS_WORKFLOW,
    SCHEDULER_TASK_QUEUE,
    records_workflow_id,
)
from workflows.job import JobInput, JobRecord, JobState, MirrorBatch
from workflows.outbox import (
    highest_version,
    is_empty,
    job_record,
    mirror_pause,
    oldest,
    record_count,
    sealed,
    up_to,
    without,
)
from workflows.wake import next_wake

TOLD_WITHIN = timedelta(seconds=15)
"""How long decisions may wait for the next workflow task to be told of; else they cost an activity."""

OVERDUE_AFTER = timedelta(seconds=5)
"""How long records wait for a task that dispatches nothing. Jobs that replace their runs may have no other."""

PROBE = 10
"""Records that are tried first after a failure. All that are unsent would be written into the history at every try."""

StartChore: TypeAlias = Callable[[Coroutine[None, None, None]], object]
"""Lets something go on beside the job's turns, which it keeps from continuing as new."""


class RecordSender:
    """Sends the outbox of one job, and knows what the mirror has confirmed of it.

    ``read`` and ``write`` are for the job's state: its workflow goes on changing it while records are on their way.
    """

    def __init__(
        self,
        given: JobInput,
        *,
        read: Callable[[], JobState],
        write: Callable[[JobState], None],
        start_chore: StartChore,
    ) -> None:
        self._read = read
        self._write = write
        self._start_chore = start_chore
        self.send_again_at = given.send_again_at
        """Set while the mirror does not take records."""

        self._sending = False
        self._shown = _present(given.state) if given.mirrored else None
        """The job as the mirror has confirmed it; its version left out."""

        self._certain = given.state.version
        """Version of the last record that an earlier, committed task has made."""

        self._waiting_since: datetime | None = None
        """Since when a task that would send is waited for."""

        self._has_decided = False
        """The present task has decided what depends on its time. Should it be lost, the next try may decide otherwise, so
        its decisions are not told before it is committed. How an attempt ended is in the history, and certain."""

    def enter_task(self) -> None:
        """Mark, at the first turn of a workflow task, what earlier tasks have decided: that alone is certain."""
        self._certain = self._read().version
        self._has_decided = False

    def note_decision(self) -> None:
        """Take notice that the present task has decided something that depends on its time."""
        self._has_decided = True

    def has_unsent(self) -> bool:
        """Say whether the mirror has not confirmed everything, the job's own row included."""
        state = self._read()
        return not is_empty(state.outbox) or self._shown != _present(state)

    def is_overdue(self) -> bool:
        """Say, in a task that dispatches, whether records have waited too long for one that does not."""
        if self._sending or not self.has_unsent():
            return False
        if self.send_again_at is not None:
            return workflow.now() >= self.send_again_at
        self._waiting_since = self._waiting_since or workflow.now()
        return workflow.now() - self._waiting_since >= OVERDUE_AFTER

    def next_try_at(self) -> datetime | None:
        """Say when a mirror that takes nothing is tried again; ``None`` while it is tried, or takes what it is sent."""
        return None if self._sending else self.send_again_at

    async def send(self, *, outbox_limit: int) -> None:
        """Send what may be sent now. Hardly ever in a task that dispatches: its commands would wait for the mirror."""
        if self._sending:
            return
        if self.send_again_at is None:
            if self._has_decided:
                await self._send_certain()
            elif self.has_unsent():
                await self._send_on_the_way()
            return
        if record_count(self._read().outbox) > outbox_limit:
            await self._hand_over_backlog()
        if workflow.now() < self.send_again_at:
            return
        if not self.has_unsent():
            # Everything was handed over. What comes next may find the mirror well.
            self.send_again_at = None
            return
        self._sending = True
        self._start_chore(self._send_late())

    async def _send_certain(self) -> None:
        """Send what earlier tasks decided. The rest waits for the next task, or is sent as one that follows this one."""
        state = self._read()
        wake = next_wake(state, now=workflow.now())
        if wake is None or wake - workflow.now() > TOLD_WITHIN:
            # The activity begins only if this task is committed.
            self._sending = True
            self._start_chore(self._send_late())
            return
        batch = up_to(state.outbox, self._certain)
        if not is_empty(batch):
            await self._send_locally(batch, self._shown)

    async def _send_on_the_way(self) -> None:
        state = self._seal()
        await self._send_locally(state.outbox, _present(state))

    async def _send_locally(self, batch: MirrorBatch, shown: JobRecord | None) -> None:
        try:
            await workflow.execute_local_activity(
                RECORD_EVENTS, batch, start_to_close_timeout=LOCAL_ACTIVITY_TIMEOUT, retry_policy=ONE_ATTEMPT
            )
        except FailureError as error:
            if is_cancelled_exception(error):
                raise asyncio.CancelledError from error
            if not _is_refusal(error):
                self._leave_mirror_alone()
                return
        self._confirm(batch, shown)

    async def _send_late(self) -> None:
        """Send all as an activity, which delays nothing; after a failure a few first, to see whether the mirror takes any."""
        sent = True
        if self.send_again_at is not None and not is_empty(self._read().outbox):
            sent = await self._send_as_activity(oldest(self._read().outbox, PROBE), self._shown)
        if sent:
            state = self._seal()
            sent = await self._send_as_activity(state.outbox, _present(state))
        self._sending = False
        if sent:
            self.send_again_at = None
        else:
            self._leave_mirror_alone()

    async def _send_as_activity(self, batch: MirrorBatch, shown: JobRecord | None) -> bool:
        try:
            await workflow.execute_activity(
                RECORD_EVENTS,
                batch,
                task_queue=SCHEDULER_TASK_QUEUE,
                schedule_to_close_timeout=RECORD_TIMEOUT,
                heartbeat_timeout=RECORD_HEARTBEAT_TIMEOUT,
                retry_policy=ONE_ATTEMPT,
            )
        except FailureError as error:
            if not _is_refusal(error):
                return False
        self._confirm(batch, shown)
        return True

    async def _hand_over_backlog(self) -> None:
        """Give the records to a workflow that retries for ever, so that they do not grow the job's state."""
        state = self._seal()
        backlog, shown = state.outbox, _present(state)
        name = records_workflow_id(tenant=state.tenant, job_id=state.job_id, version=highest_version(backlog))
        try:
            await workflow.start_child_workflow(
                RECORDS_WORKFLOW, backlog, id=name, parent_close_policy=workflow.ParentClosePolicy.ABANDON
            )
        except FailureError as error:
            if is_cancelled_exception(error):
                raise asyncio.CancelledError from error
            # Kept, and handed over under another name, a higher version, when the next record is made.
            workflow.logger.warning("backlog_kept", extra={"job_id": state.job_id, "reason": str(error)})
            return
        self._confirm(backlog, shown)

    def _seal(self) -> JobState:
        state = sealed(self._read())
        self._write(state)
        return state

    def _confirm(self, sent: MirrorBatch, shown: JobRecord | None) -> None:
        self._shown, self._waiting_since = shown, None
        state = self._read()
        self._write(state.model_copy(update={"outbox": without(state.outbox, sent)}))

    def _leave_mirror_alone(self) -> None:
        pause = mirror_pause(self._read(), is_first=self.send_again_at is None)
        self.send_again_at = workflow.now() + pause


def _present(state: JobState) -> JobRecord:
    return job_record(state).model_copy(update={"version": 0})


def _is_refusal(error: FailureError) -> bool:
    """Say whether the mirror has taken all of a batch that it can ever take."""
    cause = error if error.cause is None else error.cause
    return isinstance(cause, ApplicationError) and cause.type == MIRROR_REFUSED
