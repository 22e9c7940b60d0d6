"""Redrives dead runs: one at a request, or many by a filter, at a rate.

One redrive is an update of the job's workflow, which is started again for it where the job is over. Asking twice is asking
once, in whatever process. Many are an activity that goes through the dead letters of before its beginning, the oldest first,
and tells by heartbeats how far it is.
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio import activity

from activities.job_control import JobControl, JobIsGone
from activities.mirror_writer import MirrorUnavailable, MirrorWriter
from activities.queries import Queries
from workflows.command import RedriveAnswer, RedriveCommand
from workflows.contracts import REDRIVE_MANY
from workflows.dead_letter import BulkProgress, BulkRequest, LetterPlace, end_round, note_redriven
from workflows.error import Busy, Conflict, NotFound, Unavailable
from workflows.job import Lifecycle, RunRecord
from workflows.redrive import redrive_run_id
from workflows.revival import revived_state
from workflows.run import RunStatus

PAGE: Final = 100

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

CHUNK_LASTS: Final = timedelta(seconds=20)
"""One activity of a bulk redrive. Between two the workflow shows how far it is."""

GONE: Final = "the job's workflow is not there; unless it has ended this moment, horarium restore starts it again"


@dataclass(frozen=True, kw_only=True)
class Redrive:
    """A redrive that was asked for."""

    run_id: str
    is_new: bool
    """Whether it was asked for now, as far as is known."""


class Redriver:
    """Redrives for any number of callers at once."""

    def __init__(self, *, queries: Queries, control: JobControl, writer: MirrorWriter | None = None) -> None:
        """With a ``writer``, whoever is answered can read the redrive; without, the job's workflow shows it in a moment."""
        self._queries = queries
        self._writer = writer
        self._control = control

    async def redrive(self, run_id: str, *, tenant: str) -> Redrive:
        """Run a dead run again. A dead run has one redrive, unless that was cancelled.

        Raises:
            NotFound: there is no such run.
            Conflict: it is not dead, or its job is not there to run it.
            Busy: its job has many redrives before it.
            Unavailable: it may be redriven all the same.
        """
        found = await self._queries.get_run(tenant, run_id)
        if found is None:
            raise NotFound("there is no such run")
        dead, job_id = found.record.run, found.record.job_id
        if dead.status is not RunStatus.DEAD:
            raise Conflict(f"the run is {dead.status}; only dead runs are redriven")
        if dead.redriven_by is not None and not await self._was_cancelled(dead.redriven_by, tenant=tenant):
            return Redrive(run_id=dead.redriven_by, is_new=False)
        name = redrive_run_id(dead.redriven_by or dead.run_id, job_id=job_id)
        command = RedriveCommand(key=name, run_id=name, dead=dead)
        async with self._control.turn(tenant=tenant, job_id=job_id):
            answer = await self._ask(command, tenant=tenant, job_id=job_id)
        if self._writer is not None:
            await self._show(self._writer, answer)
        return Redrive(run_id=answer.run_id, is_new=True)

    async def _was_cancelled(self, run_id: str, *, tenant: str) -> bool:
        found = await self._queries.get_run(tenant, run_id)
        return found is not None and found.record.run.status is RunStatus.CANCELLED

    async def _ask(self, command: RedriveCommand, *, tenant: str, job_id: str) -> RedriveAnswer:
        record = await self._queries.get_job(tenant, job_id)
        if record is None:
            raise Conflict("nothing is known of the run's job any more")
        try:
            if record.lifecycle in (Lifecycle.ACTIVE, Lifecycle.PAUSED):
                return await self._control.redrive(command, tenant=tenant, job_id=job_id)
            state = revived_state(record, last=await self._queries.get_last_run(record), now=datetime.now(UTC))
            return await self._control.redrive_in(state, command)
        except JobIsGone as error:
            raise Conflict(GONE) from error

    async def _show(self, writer: MirrorWriter, answer: RedriveAnswer) -> None:
        try:
            await writer.write(answer.rows)
        except MirrorUnavailable as error:
            raise Unavailable("the redrive is asked for; the mirror does not show it yet") from error


class BulkRedriver:
    """The activity of bulk redrives."""

    def __init__(self, *, queries: Queries, redriver: Redriver) -> None:
        self._queries = queries
        self._redriver = redriver

    @activity.defn(name=REDRIVE_MANY)
    async def redrive_many(self, request: BulkRequest) -> BulkProgress:
        """Redrive dead letters for a while. After the death of its worker it goes on from its last heartbeat."""
        told = activity.info().heartbeat_details
        progress = BulkProgress.model_validate(told[0]) if told else request.progress
        chunk = _Chunk(request, progress.model_copy(update={"trouble": None}))
        try:
            while chunk.is_open:
                await self._redrive_page(chunk)
        except Unavailable as error:
            chunk.progress = chunk.progress.model_copy(update={"trouble": str(error)})
        except asyncio.CancelledError:
            if not _is_cancelled():
                # The worker stops. Another one goes on.
                raise
        return chunk.progress

    async def _redrive_page(self, chunk: "_Chunk") -> None:
        request, progress = chunk.request, chunk.progress
        letters = await self._queries.read_dead_letters(
            request.tenant, request.chosen, after=progress.place, limit=PAGE
        )
        if not letters:
            chunk.end_round()
        for letter in letters:
            if not chunk.is_open:
                return
            await self._redrive_one(letter, chunk)
            activity.heartbeat(chunk.progress)

    async def _redrive_one(self, letter: RunRecord, chunk: "_Chunk") -> None:
        place = LetterPlace(finished_at=letter.run.finished_at or letter.run.created_at, run_id=letter.run.run_id)
        if letter.job_id not in chunk.busy_jobs:
            await chunk.wait_for_turn()
            try:
                redrive = await self._redriver.redrive(letter.run.run_id, tenant=letter.tenant)
            except Busy:
                chunk.busy_jobs.add(letter.job_id)
            except (Conflict, NotFound) as error:
                return chunk.note_failed(place, f"{letter.run.run_id}: {error}")
            else:
                return chunk.note_redriven(place, is_new=redrive.is_new)
        chunk.note_deferred(place)


def _is_cancelled() -> bool:
    details = activity.cancellation_details()
    return details is not None and details.cancel_requested


class _Chunk:
    """The part of a bulk redrive that one activity does. Ends after a while, or with a round."""

    def __init__(self, request: BulkRequest, progress: BulkProgress) -> None:
        self.request = request
        self.progress = progress
        self.busy_jobs: set[str] = set()
        self._pause = timedelta(minutes=1) / request.rate_per_minute
        self._ends_at = datetime.now(UTC) + CHUNK_LASTS
        self._rounds = progress.rounds

    @property
    def is_open(self) -> bool:
        is_over = self.progress.is_done or self.progress.rounds > self._rounds
        return not is_over and max(datetime.now(UTC), self.progress.next_at or EPOCH) < self._ends_at

    async def wait_for_turn(self) -> None:
        """Keep to the rate."""
        if self.progress.next_at is not None:
            await asyncio.sleep(max(0.0, (self.progress.next_at - datetime.now(UTC)).total_seconds()))

    def note_redriven(self, place: LetterPlace, *, is_new: bool) -> None:
        progress = note_redriven(self.progress, limit=self.request.limit) if is_new else self.progress
        self.progress = progress.model_copy(update={"place": place, "next_at": datetime.now(UTC) + self._pause})

    def note_deferred(self, place: LetterPlace) -> None:
        self.progress = self.progress.model_copy(update={"place": place, "deferred": self.progress.deferred + 1})

    def note_failed(self, place: LetterPlace, error: str) -> None:
        failed = {"place": place, "failed": self.progress.failed + 1, "last_error": error[:500]}
        self.progress = self.progress.model_copy(update=failed)

    def end_round(self) -> None:
        self.progress = end_round(self.progress)
