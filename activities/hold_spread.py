"""Tells jobs of a hold, or of its end, at a rate.

Which jobs, is asked of the mirror each time: those that do not carry what they should, and those that carry what they should
not. Telling one is an update of its workflow, which is idempotent; what the job answers is written through to the mirror, so
that it is not found again. Whoever dies is replaced by another, which finds what is left.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import uuid4

from temporalio import activity

from activities.hold_store import HoldStore, StoredHold, Untold
from activities.job_control import JobControl, JobIsGone
from activities.mirror_writer import MirrorUnavailable, MirrorWriter
from workflows.command import HoldCommand, ReleaseCommand
from workflows.contracts import SPREAD_HOLD
from workflows.error import Busy, Conflict, Unavailable
from workflows.hold import HoldOrder, HoldProgress
from workflows.job import MirrorBatch

PAGE: Final = 200

TOLD_AT_ONCE: Final = 8
"""Jobs: each wakes a workflow."""

JOBS_A_SECOND: Final = 100
"""At most: thousands that wake at once would keep others from firing in time."""

CHUNK_LASTS: Final = timedelta(seconds=20)
"""One activity. Between two the workflow shows how far it is."""


class HoldSpreader:
    """The activity of holds."""

    def __init__(self, *, store: HoldStore, control: JobControl, writer: MirrorWriter) -> None:
        self._store = store
        self._control = control
        self._writer = writer

    @activity.defn(name=SPREAD_HOLD)
    async def spread_hold(self, order: HoldOrder) -> HoldProgress:
        """Tell jobs for a while. After the death of its worker it goes on from its last heartbeat."""
        told = activity.info().heartbeat_details
        progress = HoldProgress.model_validate(told[0]) if told else order.progress or HoldProgress()
        if not progress.after:
            progress = progress.model_copy(update={"failed": 0, "trouble": None})
        ends_at = datetime.now(UTC) + CHUNK_LASTS
        while not progress.is_done and datetime.now(UTC) < ends_at:
            try:
                progress = await self._tell_page(order, progress)
            except Unavailable as error:
                return progress.model_copy(update={"after": "", "trouble": str(error)})
            activity.heartbeat(progress)
            if not progress.after and progress.trouble is not None:
                break
        return progress

    async def _tell_page(self, order: HoldOrder, progress: HoldProgress) -> HoldProgress:
        """Tell the next jobs; a round that has none left is over, and the last one if nothing kept it from any."""
        now = datetime.now(UTC)
        stored = await self._store.find(order.tenant, order.hold_id)
        if stored is None:
            return progress.model_copy(update={"is_done": True})
        found = await self._store.find_untold(stored, now=now, after=progress.after, limit=PAGE)
        if not found:
            return progress.model_copy(update={"after": "", "is_done": progress.trouble is None})
        for start in range(0, len(found), TOLD_AT_ONCE):
            batch = found[start : start + TOLD_AT_ONCE]
            pace = asyncio.create_task(asyncio.sleep(len(batch) / JOBS_A_SECOND))
            for outcome in await asyncio.gather(*(self._tell(stored, each) for each in batch)):
                progress = _note(progress, outcome)
            progress = progress.model_copy(update={"after": batch[-1].job_id})
            activity.heartbeat(progress)
            await pace
        return progress

    async def _tell(self, stored: StoredHold, job: Untold) -> str | None:
        """Tell one job; says what kept it from being told, nothing where its workflow is gone, and ``None`` when it was."""
        tenant, hold = stored.tenant, stored.hold
        key = f"{hold.hold_id}/{uuid4().hex}"
        try:
            if job.is_to_be_held:
                command = HoldCommand(key=key, hold=hold)
                record = await self._control.hold(command, tenant=tenant, job_id=job.job_id)
            else:
                ended = ReleaseCommand(key=key, hold_id=hold.hold_id, catch_up=hold.catch_up)
                record = await self._control.release(ended, tenant=tenant, job_id=job.job_id)
            await self._writer.write(MirrorBatch(job=record))
        except (Conflict, JobIsGone):
            return ""
        except (Busy, MirrorUnavailable, Unavailable) as error:
            return f"job {job.job_id}: {error}"
        return None


def _note(progress: HoldProgress, outcome: str | None) -> HoldProgress:
    match outcome:
        case None:
            return progress.model_copy(update={"told": progress.told + 1})
        case "":
            return progress.model_copy(update={"failed": progress.failed + 1})
        case trouble:
            return progress.model_copy(update={"trouble": trouble[:500]})
