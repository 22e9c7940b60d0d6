"""What the routes promise, over Temporal and the mirror together: jobs registered, read and deleted.

Temporal decides and the mirror is read. A write goes to the job's workflow first and is then written through to the
mirror, so that whoever was answered can read it; the workflow mirrors itself as well, and the newer of both stays.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from anyio import to_thread
from pydantic import JsonValue

from activities.backfill_control import BackfillControl
from activities.calendar_store import CalendarStore
from activities.hold_store import HoldStore
from activities.job_control import MAYBE_APPLIED, JobControl, JobIsGone
from activities.mirror_writer import MirrorUnavailable, MirrorWriter
from activities.page import Page
from activities.queries import JobFilter, Queries, RecordedRun, RunFilter
from api.answer import (
    FireAnswer,
    JobAnswer,
    JobSummary,
    LedgerAnswer,
    RunAnswer,
    Standing,
    describe_job,
    describe_ledger_entry,
    describe_run,
    summarise_job,
)
from api.audit import Audit, job_facts
from api.calendar_body import named_calendars
from api.health import Findings, health_of
from api.job_body import JobRequest, read_job
from api.job_document import ExportedJob, export_job
from api.payload_check import check_payload
from api.quota import Quotas
from api.registration import deleted_record, first_state, new_command_key, new_job_id
from api.request import Precondition
from api.task_queue import TaskQueues
from api.temporal_link import TemporalLinks
from api.temporal_probe import TemporalProbe
from api.upcoming import undecided_entries, upcoming_fires
from workflows.command import DeleteCommand, RegisterCommand
from workflows.contracts import job_workflow_id
from workflows.error import Conflict, NotFound, RevisionMismatch, Unavailable
from workflows.job import Hold, JobDefinition, JobRecord, Lifecycle, MirrorBatch
from workflows.outbox import job_record
from workflows.run import RunStatus
from workflows.schedule_parser import Calendars
from workflows.target import ActivityTarget, WorkflowTarget

PARKED = RunFilter(statuses=frozenset({RunStatus.PARKED}))


@dataclass(frozen=True, kw_only=True)
class LedgerRange:
    """Which nominal times are told, both ends inclusive."""

    start: datetime
    end: datetime


class JobService:
    """Everything that the API does with jobs, on behalf of one tenant a call."""

    def __init__(
        self,
        *,
        queries: Queries,
        calendars: CalendarStore,
        holds: HoldStore,
        writer: MirrorWriter,
        control: JobControl,
        backfills: BackfillControl,
        probe: TemporalProbe,
        links: TemporalLinks,
        audit: Audit,
        quotas: Quotas,
        task_queues: TaskQueues,
    ) -> None:
        self._queries = queries
        self._task_queues = task_queues
        self._audit = audit
        self._quotas = quotas
        self._calendars = calendars
        self._holds = holds
        self._links = links
        self._writer = writer
        self._control = control
        self._backfills = backfills
        self._probe = probe

    async def create_job(self, body: JsonValue, *, tenant: str, key: str | None) -> JobAnswer:
        """Register a job; it is readable when this returns. Repeated with its key, it finds what it did before.

        Raises:
            InvalidRequest: the body is wrong, its task queue is not the tenant's, or its payload is none that its workers take.
            InvalidSchedule: the job would never fire.
            Conflict: there is a job of this id.
            QuotaExceeded: the tenant has as much as it may have.
            Unavailable: the job may be registered all the same.
        """
        default_id = new_job_id(tenant=tenant, key=key)
        request = await self.read_request(body, default_id=default_id, tenant=tenant)
        async with self._control.turn(tenant=tenant, job_id=request.job_id):
            before = await self._queries.get_job(tenant, request.job_id)
            warnings = await self.register(request, tenant=tenant, key=key, before=before)
        return await self.describe(await self.find(tenant, request.job_id), warnings=(*request.warnings, *warnings))

    async def register(
        self, request: JobRequest, *, tenant: str, key: str | None, before: JobRecord | None
    ) -> tuple[str, ...]:
        """Register a job, in the caller's turn; answers warnings. Raises as ``create_job`` does."""
        is_new = before is None or before.lifecycle is Lifecycle.DELETED
        warnings: tuple[str, ...] = ()
        # A repeated request is answered as before, whatever its workers say by now.
        if is_new:
            await self._task_queues.require(request.definition.target, tenant=tenant)
            warnings = await self.check_payload(request.definition)
        await self.write_through(MirrorBatch(job=await self._register(request, tenant=tenant, key=key, before=before)))
        return warnings

    async def delete_job(
        self, job_id: str, *, tenant: str, key: str | None, cancel_active: bool, precondition: Precondition
    ) -> JobAnswer:
        """Delete a job; its history stays. Deleting it again changes nothing.

        Raises:
            NotFound: there never was such a job.
            RevisionMismatch: it has another revision than the caller has seen.
            PreconditionRequired: the caller does not say which it has seen, and must.
            Unavailable: the job may be deleted all the same.
        """
        await self.require_temporal()
        async with self._control.turn(tenant=tenant, job_id=job_id):
            found = await self.find(tenant, job_id)
            if precondition.revision not in (None, found.revision):
                raise RevisionMismatch(f"the job has revision {found.revision}")
            if found.lifecycle is not Lifecycle.DELETED:
                precondition.check(found)
            if found.lifecycle is not Lifecycle.DELETED or (cancel_active and found.active_runs):
                command = DeleteCommand(
                    key=key or new_command_key(), cancel_active=cancel_active, expected=precondition.revision
                )
                await self.write_through(MirrorBatch(job=await self._delete(found, command)))
                await self._quotas.release(job_id, tenant=tenant)
                await self._cancel_backfills(job_id, tenant=tenant)
        return await self.describe(await self.find(tenant, job_id))

    async def get_job(self, job_id: str, *, tenant: str) -> JobAnswer:
        """Read a job, a deleted one too. Raises ``NotFound``."""
        return await self.describe(await self.find(tenant, job_id))

    async def list_jobs(self, chosen: JobFilter, *, tenant: str, cursor: str | None, limit: int) -> Page[JobSummary]:
        """List jobs by id. Raises ``InvalidCursor``."""
        page = await self._queries.list_jobs(tenant, chosen, cursor=cursor, limit=limit)
        answers = await asyncio.gather(*(self._summarise(record) for record in page.items))
        return Page(tuple(answers), next=page.next, previous=page.previous)

    async def export_jobs(self, chosen: JobFilter, *, tenant: str, cursor: str | None, limit: int) -> Page[ExportedJob]:
        """List jobs by id as bodies that make them what they are. Raises ``InvalidCursor``."""
        page = await self._queries.list_jobs(tenant, chosen, cursor=cursor, limit=limit, with_payloads=True)
        exported = await to_thread.run_sync(lambda: tuple(map(export_job, page.items)))
        return Page(exported, next=page.next, previous=page.previous)

    async def list_runs(
        self,
        job_id: str,
        chosen: RunFilter,
        *,
        tenant: str,
        cursor: str | None,
        limit: int,
        include_attempts: bool,
    ) -> Page[RunAnswer]:
        """List the runs of a job, newest first. Raises ``NotFound`` and ``InvalidCursor``."""
        await self.find(tenant, job_id)
        page = await self._queries.list_runs(
            tenant, job_id, chosen, cursor=cursor, limit=limit, include_attempts=include_attempts
        )
        answers = tuple(self._describe_run(found, include_attempts=include_attempts) for found in page.items)
        return Page(answers, next=page.next, previous=page.previous)

    async def get_run(self, run_id: str, *, tenant: str) -> RunAnswer:
        """Read a run with its attempts. Raises ``NotFound``."""
        found = await self._queries.get_run(tenant, run_id)
        if found is None:
            raise NotFound("there is no such run")
        return self._describe_run(found, include_attempts=True)

    async def list_ledger(
        self, job_id: str, wanted: LedgerRange, *, tenant: str, cursor: str | None, limit: int
    ) -> Page[LedgerAnswer]:
        """Say what became of every nominal time in a range, oldest first; the last page ends with what is undecided.

        Raises ``NotFound`` and ``InvalidCursor``.
        """
        record = await self.find(tenant, job_id)
        page = await self._queries.list_ledger(
            tenant, job_id, start=wanted.start, end=wanted.end, cursor=cursor, limit=limit
        )
        now = datetime.now(UTC)
        undecided = (
            () if page.next else undecided_entries(record, start=wanted.start, end=min(wanted.end, now), now=now)
        )
        told = await self._queries.tell_backfilled(tenant, job_id, undecided)
        return Page(tuple(map(describe_ledger_entry, (*page.items, *told))), next=page.next)

    async def list_upcoming(self, job_id: str, *, tenant: str, count: int) -> Sequence[FireAnswer]:
        """List the next fires of a job. Raises ``NotFound``."""
        return upcoming_fires(await self.find(tenant, job_id), count=count, now=datetime.now(UTC))

    async def is_stale(self) -> bool:
        """Say whether Temporal is silent, so that what is read may be old."""
        return not await self._probe.is_reachable()

    async def read_request(self, body: JsonValue, *, default_id: str, tenant: str) -> JobRequest:
        """Read the body of a job with the calendars that it names, as they are now. Raises as ``read_job`` does."""
        calendars = await self.find_calendars(named_calendars(body), tenant=tenant)
        return await to_thread.run_sync(partial(read_job, body, default_id=default_id, calendars=calendars))

    async def find_calendars(self, names: Collection[str], *, tenant: str) -> Calendars:
        """Find the days of calendars, those of them that there are."""
        found = await self._calendars.find_all(tenant, names) if names else []
        return {calendar.name: calendar.days() for calendar in found}

    async def find_holds(self, definition: JobDefinition, *, tenant: str) -> tuple[Hold, ...]:
        """Find the holds over a job as it is defined."""
        return await self._holds.holds_over(tenant, definition.labels, now=datetime.now(UTC))

    async def require_temporal(self) -> None:
        """Refuse a write at once, rather than after all the patience of a client that tries again and again."""
        if not await self._probe.is_reachable():
            raise Unavailable("Temporal does not answer; nothing was done")

    async def find(self, tenant: str, job_id: str) -> JobRecord:
        """Read a job as it is recorded, a deleted one too. Raises ``NotFound``."""
        record = await self._queries.get_job(tenant, job_id)
        if record is None:
            raise NotFound("there is no such job")
        return record

    async def check_payload(self, definition: JobDefinition) -> tuple[str, ...]:
        """Hold the payload against what the job's workers say that they take; answers warnings. Raises ``InvalidRequest``."""
        target, payload = definition.target, definition.payload
        if not isinstance(target, ActivityTarget):
            return ()
        catalogue, polled = await asyncio.gather(
            self._probe.catalogue_of(target.task_queue), self._probe.is_polled(target.task_queue)
        )
        return await to_thread.run_sync(
            partial(check_payload, payload, target=target, catalogue=catalogue, polled=polled)
        )

    async def _register(
        self, request: JobRequest, *, tenant: str, key: str | None, before: JobRecord | None
    ) -> JobRecord:
        is_there = before is not None and before.lifecycle is not Lifecycle.DELETED
        if is_there and key is None:
            raise _job_exists(request.job_id)
        command_key = key or new_command_key()
        now, holds = datetime.now(UTC), await self.find_holds(request.definition, tenant=tenant)
        state = await to_thread.run_sync(
            partial(first_state, request, tenant=tenant, key=command_key, before=before, now=now, holds=holds)
        )
        await self.require_temporal()
        command = RegisterCommand(key=command_key, state=state)
        if not is_there:
            async with (
                self._quotas.claiming(request.job_id, request.definition.schedule, tenant=tenant),
                self._audit.recording(
                    "job.create", tenant=tenant, job_id=request.job_id, before=job_facts(before)
                ) as note,
            ):
                record = await self._control.register(command) or job_record(state)
                note.after = job_facts(record)
                return record
        try:
            # It may be there because of this very request, whose first answer was lost: then the job remembers the key.
            return await self._control.register_in_place(command)
        except (Conflict, JobIsGone) as error:
            raise _job_exists(request.job_id) from error

    async def _delete(self, found: JobRecord, command: DeleteCommand) -> JobRecord:
        tenant, job_id = found.tenant, found.job_id
        async with self._audit.recording("job.delete", tenant=tenant, job_id=job_id, before=job_facts(found)) as note:
            try:
                record = await self._control.delete(command, tenant=tenant, job_id=job_id)
            except JobIsGone:
                record = deleted_record(found, now=datetime.now(UTC))
            note.after = {"state": record.lifecycle.value}
            return record

    async def _cancel_backfills(self, job_id: str, *, tenant: str) -> None:
        """Let the backfills of a deleted job begin no more. One that is not told is told by the job itself, when it goes on."""
        for record in await self._queries.read_open_backfills(tenant, job_id):
            with suppress(JobIsGone, Unavailable):
                cancelled = await self._backfills.cancel(record, reason="the job was deleted")
                await self.write_through(MirrorBatch(backfills=(cancelled,)))

    async def write_through(self, rows: MirrorBatch) -> None:
        """Write what a job has answered to the mirror, so that the caller can read it. Raises ``Unavailable``."""
        try:
            await self._writer.write(rows)
        except MirrorUnavailable as error:
            raise Unavailable(MAYBE_APPLIED) from error

    async def describe(self, record: JobRecord, *, warnings: Sequence[str] = ()) -> JobAnswer:
        """Say a job as it stands."""
        page, workflow = await asyncio.gather(
            self._queries.list_runs(record.tenant, record.job_id, PARKED, limit=1),
            self._probe.look_at(job_workflow_id(tenant=record.tenant, job_id=record.job_id)),
        )
        parked = page.items[0].record.run if page.items else None
        standing = await self._stand(record, Findings(parked=parked, workflow=workflow))
        return await to_thread.run_sync(partial(describe_job, record, standing, warnings=warnings))

    async def _summarise(self, record: JobRecord) -> JobSummary:
        return summarise_job(record, await self._stand(record, Findings()))

    async def _stand(self, record: JobRecord, findings: Findings) -> Standing:
        target = record.definition.target
        reachable, polled = await asyncio.gather(
            self._probe.is_reachable(),
            self._probe.is_polled(target.task_queue, workflows=isinstance(target, WorkflowTarget)),
        )
        now = datetime.now(UTC)
        health = health_of(record, replace(findings, polled=polled), now=now)
        url = self._links.to_job(tenant=record.tenant, job_id=record.job_id)
        return Standing(health=health, stale=not reachable, temporal_url=url, now=now)

    def _describe_run(self, found: RecordedRun, *, include_attempts: bool) -> RunAnswer:
        record = found.record
        return describe_run(
            record.run,
            job_id=record.job_id,
            temporal_url=self._links.to_run(record.run),
            attempts=found.attempts if include_attempts else None,
        )


def _job_exists(job_id: str) -> Conflict:
    return Conflict(f"there is a job {job_id} already; delete it first")
