"""What the routes of backfills promise: they are begun once, read, and steered."""

from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypeAlias

from anyio import to_thread
from pydantic import JsonValue

from activities.backfill_control import BackfillControl
from activities.backfill_definition import BackfillDefinitions
from activities.job_control import JobControl, JobIsGone
from activities.page import Page
from activities.queries import Queries
from api.audit import Audit, Note
from api.backfill_body import (
    AskedBackfill,
    BackfillAnswer,
    BackfillPreview,
    describe_backfill,
    read_backfill,
    read_cancelling,
    read_steering,
    require_few,
    require_remembered,
)
from api.caller import CALLER
from api.registration import new_command_key
from api.service import JobService
from api.steer_service import new_request_id
from api.temporal_link import TemporalLinks
from api.temporal_probe import TemporalProbe
from workflows.backfill import BackfillState, cancelled_record, first_record
from workflows.backfill_range import FireCount, count_fires
from workflows.backfill_record import OPEN_STATUSES, BackfillRecord
from workflows.command import CancelCommand
from workflows.contracts import backfill_workflow_id
from workflows.error import Conflict, NotFound, Unavailable
from workflows.job import JobRecord, Lifecycle, MirrorBatch
from workflows.outbox import IF_LOST

OPEN_LIMIT: Final = 20
"""Backfills of one job that are not over."""

Begun: TypeAlias = BackfillAnswer | BackfillPreview


class BackfillService:
    """Everything that the API does with backfills, on behalf of one tenant a call."""

    def __init__(
        self,
        *,
        jobs: JobService,
        queries: Queries,
        definitions: BackfillDefinitions,
        control: BackfillControl,
        runs: JobControl,
        probe: TemporalProbe,
        links: TemporalLinks,
        audit: Audit,
        most_fires: int,
        runs_kept: timedelta,
    ) -> None:
        """``most_fires``: of one backfill. ``runs_kept``: so long after their end runs are forgotten."""
        self._jobs = jobs
        self._queries = queries
        self._definitions = definitions
        self._control = control
        self._runs = runs
        self._probe = probe
        self._links = links
        self._audit = audit
        self._most_fires = most_fires
        self._runs_kept = runs_kept

    async def begin(self, job_id: str, body: JsonValue, *, tenant: str, key: str | None) -> Begun:
        """Begin a backfill, or say what it would do. Repeated with its key, it is the same one.

        Raises:
            InvalidRequest: the body is wrong, the range lies in the future or where runs are forgotten, or has too many fires.
            NotFound: there never was such a job.
            Conflict: it is deleted, or has many backfills already.
            Unavailable: it may have begun all the same.
        """
        found = await self._jobs.find(tenant, job_id)
        now = datetime.now(UTC)
        schedule = found.definition.schedule
        asked = read_backfill(body, timezone=schedule.timezone, now=now)
        if found.lifecycle is Lifecycle.DELETED:
            raise Conflict("the job is deleted")
        require_remembered(asked, registered_at=found.registered_at, kept=self._runs_kept, now=now)
        count = await to_thread.run_sync(
            partial(count_fires, schedule, job_id=job_id, start=asked.start, end=asked.end)
        )
        require_few(count, most=self._most_fires)
        if asked.body.dry_run:
            return await self._preview(found, asked, count)
        backfill_id = new_request_id(tenant=tenant, job_id=job_id, key=key)
        record = _new_record(found, asked, count, backfill_id=backfill_id, now=now)
        await self._begin(record, found)
        return await self.get(backfill_id, tenant=tenant)

    async def get(self, backfill_id: str, *, tenant: str) -> BackfillAnswer:
        """Say how a backfill stands. Raises ``NotFound``."""
        record = await self._find(backfill_id, tenant=tenant)
        if record.status not in OPEN_STATUSES:
            return self._describe(record)
        look = await self._probe.look_at(_workflow_of(record))
        if look is None or look.is_open:
            return self._describe(record)
        # It may have ended since it was read.
        record = await self._find(backfill_id, tenant=tenant)
        return self._describe(record, is_stopped=record.status in OPEN_STATUSES)

    async def list_backfills(self, job_id: str, *, tenant: str, cursor: str | None, limit: int) -> Page[BackfillAnswer]:
        """List the backfills of a job, those asked for last first. Raises ``NotFound`` and ``InvalidCursor``."""
        await self._jobs.find(tenant, job_id)
        page = await self._queries.list_backfills(tenant, job_id, cursor=cursor, limit=limit)
        return Page(tuple(map(self._describe, page.items)), next=page.next, previous=page.previous)

    async def pause(self, backfill_id: str, body: JsonValue, *, tenant: str) -> BackfillAnswer:
        """Let a backfill begin no more runs until it is resumed.

        Raises:
            InvalidRequest: the body is wrong.
            NotFound: there is no such backfill.
            Conflict: it is over, or is being cancelled.
            Unavailable: it may be paused all the same.
        """
        reason = read_steering(body)
        record = await self._find_open(backfill_id, tenant=tenant)
        async with self._recording("backfill.pause", record, reason=reason):
            try:
                paused = await self._control.pause(record, reason=reason)
            except JobIsGone as error:
                raise Conflict("the backfill is over") from error
        await self._jobs.write_through(MirrorBatch(backfills=(paused,)))
        return await self.get(backfill_id, tenant=tenant)

    async def resume(self, backfill_id: str, body: JsonValue, *, tenant: str) -> BackfillAnswer:
        """Let a paused backfill go on; one that is not paused stays as it is. Raises as ``pause`` does."""
        reason = read_steering(body)
        record = await self._find_open(backfill_id, tenant=tenant)
        async with self._recording("backfill.resume", record, reason=reason):
            try:
                resumed = await self._control.resume(record, reason=reason)
            except JobIsGone as error:
                raise Conflict("the backfill is over") from error
        await self._jobs.write_through(MirrorBatch(backfills=(resumed,)))
        return await self.get(backfill_id, tenant=tenant)

    async def cancel(self, backfill_id: str, body: JsonValue, *, tenant: str) -> BackfillAnswer:
        """Let a backfill begin no more runs; one that is over stays as it is.

        Raises ``InvalidRequest``, ``NotFound``, and ``Unavailable``: it may be cancelled all the same.
        """
        asked = read_cancelling(body)
        record = await self._find(backfill_id, tenant=tenant)
        if record.status in OPEN_STATUSES:
            await self._jobs.require_temporal()
            async with self._recording("backfill.cancel", record, reason=asked.reason):
                record = await self._cancel(record, reason=asked.reason)
                if asked.cancel_active:
                    await self._cancel_runs(record, reason=asked.reason or "its backfill was cancelled")
        return await self.get(backfill_id, tenant=tenant)

    async def _cancel(self, record: BackfillRecord, *, reason: str) -> BackfillRecord:
        """Cancel a backfill, or its row where its workflow is not there any more. Answers it with what it has begun."""
        try:
            told = shown = await self._control.cancel(record, reason=reason)
        except JobIsGone:
            # It may have come to its end, and said so, since it was read.
            told = await self._find(record.backfill_id, tenant=record.tenant)
            if told.status not in OPEN_STATUSES:
                return told
            shown = cancelled_record(told, reason=reason, now=datetime.now(UTC))
        await self._jobs.write_through(MirrorBatch(backfills=(shown,)))
        return told

    async def _begin(self, record: BackfillRecord, found: JobRecord) -> None:
        tenant, job_id, backfill_id = record.tenant, record.job_id, record.backfill_id
        await self._jobs.require_temporal()
        opened = await self._queries.read_open_backfills(tenant, job_id)
        if len(opened) >= OPEN_LIMIT and all(each.backfill_id != backfill_id for each in opened):
            raise Conflict(f"the job has {len(opened)} backfills that are not over; {OPEN_LIMIT} are allowed")
        async with self._audit.recording("backfill.create", tenant=tenant, job_id=job_id, subject=backfill_id) as note:
            is_new = await self._control.begin(BackfillState(record=record, definition=found.definition))
            note.after = record.model_dump(mode="json", include=_ASKED)
        # One that was begun before has told how it stands, or is about to: this is for a caller who reads sooner.
        shown = record if is_new else record.model_copy(update={"version": IF_LOST})
        await self._jobs.write_through(MirrorBatch(backfills=(shown,)))
        if not is_new:
            # Of that one the job may have had another definition.
            return
        with suppress(Unavailable):  # whoever asks for its runs keeps it too
            await self._definitions.keep_definition(found.definition, tenant=tenant, backfill_id=backfill_id)

    async def _preview(self, found: JobRecord, asked: AskedBackfill, count: FireCount) -> BackfillPreview:
        existing = await self._queries.count_times_with_runs(found.tenant, found.job_id, asked.start, asked.end)
        return BackfillPreview.model_validate(
            {
                "job_id": found.job_id,
                "revision": found.revision,
                "from": asked.start,
                "to": asked.end,
                "existing_runs": existing,
                **count.model_dump(exclude={"is_exact"}),
            }
        )

    async def _cancel_runs(self, record: BackfillRecord, *, reason: str) -> None:
        tenant, job_id = record.tenant, record.job_id
        for run_id in record.running:
            command = CancelCommand(key=new_command_key(), run_id=run_id, reason=reason)
            with suppress(JobIsGone):
                await self._jobs.write_through(await self._runs.cancel_run(command, tenant=tenant, job_id=job_id))

    async def _find(self, backfill_id: str, *, tenant: str) -> BackfillRecord:
        record = await self._queries.get_backfill(tenant, backfill_id)
        if record is None:
            raise NotFound("there is no such backfill")
        return record

    async def _find_open(self, backfill_id: str, *, tenant: str) -> BackfillRecord:
        record = await self._find(backfill_id, tenant=tenant)
        if record.status not in OPEN_STATUSES:
            raise Conflict(f"the backfill is {record.status.value}")
        await self._jobs.require_temporal()
        return record

    def _recording(self, action: str, record: BackfillRecord, *, reason: str) -> AbstractAsyncContextManager[Note]:
        before: JsonValue = {"status": record.status.value, "reason": reason}
        return self._audit.recording(
            action, tenant=record.tenant, job_id=record.job_id, subject=record.backfill_id, before=before
        )

    def _describe(self, record: BackfillRecord, *, is_stopped: bool = False) -> BackfillAnswer:
        url = self._links.to_workflow(_workflow_of(record))
        return describe_backfill(record, temporal_url=url, is_stopped=is_stopped)


_ASKED: Final = {"start", "end", "existing", "max_concurrent", "rate_per_minute", "total", "revision", "reason"}


def _new_record(
    found: JobRecord, asked: AskedBackfill, count: FireCount, *, backfill_id: str, now: datetime
) -> BackfillRecord:
    caller, body = CALLER.get(), asked.body
    return first_record(
        BackfillRecord(
            tenant=found.tenant,
            job_id=found.job_id,
            backfill_id=backfill_id,
            revision=found.revision,
            start=asked.start,
            end=asked.end,
            existing=body.existing,
            max_concurrent=body.max_concurrent,
            rate_per_minute=body.rate_per_minute,
            reason=body.reason,
            requested_by=caller.name or caller.actor,
            requested_at=now,
            total=count.total,
        )
    )


def _workflow_of(record: BackfillRecord) -> str:
    return backfill_workflow_id(tenant=record.tenant, job_id=record.job_id, backfill_id=record.backfill_id)
