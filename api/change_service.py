"""What changing a job promises: it is replaced as a whole or in part, once, and only where something differs.

The mirror is looked at first: a request that changes nothing costs no workflow task, and a revision that was not the caller's
is refused without one, unless it has a key that the job may know. The job's workflow looks again, and decides.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from anyio import to_thread
from pydantic import JsonValue

from activities.job_control import JobControl, JobIsGone
from activities.queries import Queries
from activities.redrive import GONE
from api.answer import JobAnswer
from api.audit import Audit, job_facts
from api.job_body import JobRequest
from api.job_document import job_document, patched_document
from api.problem import FieldError, InvalidRequest
from api.quota import Quotas
from api.registration import changed_state, new_command_key
from api.request import JOB_EXISTS, Precondition
from api.service import JobService
from api.task_queue import TaskQueues
from workflows.change import FIRING, is_same_definition
from workflows.command import ChangeCommand
from workflows.contracts import JOB_ID_PATTERN
from workflows.error import Conflict, RevisionMismatch, Unavailable
from workflows.fire_times import next_fires
from workflows.job import JobRecord, Lifecycle, MirrorBatch
from workflows.outbox import job_record
from workflows.schedule import OneOffRule
from workflows.schedule_parser import check_fires


@dataclass(frozen=True, kw_only=True)
class WrittenJob:
    """A job after a write."""

    job: JobAnswer
    is_new: bool = False


class ChangeService:
    """Changes of jobs, on behalf of one tenant a call."""

    def __init__(
        self,
        *,
        jobs: JobService,
        queries: Queries,
        control: JobControl,
        audit: Audit,
        quotas: Quotas,
        task_queues: TaskQueues,
    ) -> None:
        self._jobs = jobs
        self._task_queues = task_queues
        self._audit = audit
        self._quotas = quotas
        self._queries = queries
        self._control = control

    async def put_job(
        self, job_id: str, body: JsonValue, *, tenant: str, key: str | None, precondition: Precondition
    ) -> WrittenJob:
        """Create a job, or replace the one that is there.

        Raises:
            InvalidRequest: the body is wrong, its task queue is not the tenant's, or its payload is none that its workers take.
            InvalidSchedule: the new schedule never fires.
            RevisionMismatch: the job has another revision than the caller has seen, or is there and must not be.
            PreconditionRequired: the caller does not say which it has seen, and must.
            QuotaExceeded: the tenant has as much as it may have.
            Unavailable: the job may be written all the same.
        """
        request = await self._jobs.read_request(_with_id(body, job_id), default_id=job_id, tenant=tenant)
        async with self._control.turn(tenant=tenant, job_id=job_id):
            before = await self._queries.get_job(tenant, job_id)
            if precondition.absent:
                is_new, warnings = True, await self._create(request, before, tenant=tenant, key=key)
            else:
                is_new, warnings = await self._put(request, before, tenant=tenant, key=key, precondition=precondition)
        return WrittenJob(job=await self._describe(tenant, request, warnings=warnings), is_new=is_new)

    async def patch_job(
        self, job_id: str, patch: JsonValue, *, tenant: str, key: str | None, precondition: Precondition
    ) -> JobAnswer:
        """Change the fields of a job that a merge patch names. Raises as ``put_job`` does, and ``NotFound``."""
        if not isinstance(patch, dict):
            raise InvalidRequest(FieldError(pointer="", detail="give an object with the fields that change"))
        async with self._control.turn(tenant=tenant, job_id=job_id):
            before = await self._jobs.find(tenant, job_id)
            if before.lifecycle is Lifecycle.DELETED:
                raise Conflict("the job is deleted; PUT or POST registers it again")
            _check_unless_repeated(precondition, before, key=key)
            enabled = before.lifecycle is not Lifecycle.PAUSED
            document = job_document(before.definition, job_id=job_id, enabled=enabled)
            patched = _with_id(patched_document(document, patch), job_id)
            request = await self._jobs.read_request(patched, default_id=job_id, tenant=tenant)
            warnings = await self._change(before, request, key=key, precondition=precondition)
        return await self._describe(tenant, request, warnings=warnings)

    async def renew_calendars(self, job_id: str, *, tenant: str) -> bool:
        """Give a job the present days of the calendars that it names. False where its schedule would never fire again.

        A calendar that is no more is kept as the job knows it. Raises ``HorariumError`` where another attempt is needed.
        """
        async with self._control.turn(tenant=tenant, job_id=job_id):
            before = await self._jobs.find(tenant, job_id)
            old = before.definition.schedule
            present = await self._jobs.find_calendars([each.name for each in old.calendars], tenant=tenant)
            renewed = tuple(present.get(each.name, each) for each in old.calendars)
            if renewed == old.calendars or before.lifecycle not in FIRING:
                return True
            new = old.model_copy(update={"calendars": renewed})
            now = datetime.now(UTC)
            if not await to_thread.run_sync(partial(next_fires, new, job_id=job_id, after=now, count=1)):
                return False
            command = ChangeCommand(
                key=new_command_key(),
                definition=before.definition.model_copy(update={"schedule": new}),
                expected=before.revision,
            )
            facts = job_facts(before)
            async with self._audit.recording("job.calendar", tenant=tenant, job_id=job_id, before=facts) as note:
                record = await self._apply(before, command)
                note.after = job_facts(record)
            await self._jobs.write_through(MirrorBatch(job=record))
        return True

    async def _put(
        self,
        request: JobRequest,
        before: JobRecord | None,
        *,
        tenant: str,
        key: str | None,
        precondition: Precondition,
    ) -> tuple[bool, tuple[str, ...]]:
        """Write a job, in the caller's turn; say whether it is new, and answer warnings."""
        _check_unless_repeated(precondition, before, key=key)
        if before is not None and _is_there(before):
            return False, await self._change(before, request, key=key, precondition=precondition)
        try:
            return True, await self._jobs.register(request, tenant=tenant, key=key or new_command_key(), before=before)
        except Conflict:
            # Another process may have registered it in this very moment.
            before = await self._queries.get_job(tenant, request.job_id)
            if before is None or not _is_there(before):
                raise
            _check_unless_repeated(precondition, before, key=key)
            return False, await self._change(before, request, key=key, precondition=precondition)

    async def _create(
        self, request: JobRequest, before: JobRecord | None, *, tenant: str, key: str | None
    ) -> tuple[str, ...]:
        """Register a job where there is none, in the caller's turn, and answer warnings.

        Repeated with its key, it finds the job that it has registered before.
        """
        try:
            return await self._jobs.register(request, tenant=tenant, key=key, before=before)
        except Conflict as error:
            raise RevisionMismatch(JOB_EXISTS) from error

    async def _describe(self, tenant: str, request: JobRequest, *, warnings: tuple[str, ...]) -> JobAnswer:
        record = await self._jobs.find(tenant, request.job_id)
        return await self._jobs.describe(record, warnings=(*request.warnings, *warnings))

    async def _change(
        self, before: JobRecord, request: JobRequest, *, key: str | None, precondition: Precondition
    ) -> tuple[str, ...]:
        if key is not None and precondition.may_be_repeated(before, key=key):
            await self._require_done(before, request, key=key, precondition=precondition)
            await self._settle_share(before)
            return ()
        if not _differs(before, request):
            await self._settle_share(before)
            return ()
        old, new = before.definition, request.definition
        one_fire = None
        if old.schedule != new.schedule:
            check = partial(_check_schedule, request, job_id=before.job_id, now=datetime.now(UTC))
            one_fire = await to_thread.run_sync(check)
        if old.target.task_queue != new.target.task_queue:
            await self._task_queues.require(new.target, tenant=before.tenant)
        is_other_call = (old.target, old.payload) != (new.target, new.payload)
        warnings = await self._jobs.check_payload(new) if is_other_call else ()
        await self._jobs.require_temporal()
        may_be_held_otherwise = old.labels != new.labels or before.lifecycle is Lifecycle.COMPLETED
        command = ChangeCommand(
            key=key or new_command_key(),
            definition=new,
            one_fire=one_fire,
            enabled=request.enabled,
            expected=precondition.revision,
            holds=await self._jobs.find_holds(new, tenant=before.tenant) if may_be_held_otherwise else None,
        )
        tenant, job_id = before.tenant, before.job_id
        async with (
            self._quotas.claiming(job_id, new.schedule, tenant=tenant),
            self._audit.recording("job.change", tenant=tenant, job_id=job_id, before=job_facts(before)) as note,
        ):
            record = await self._apply(before, command)
            note.after = job_facts(record)
        await self._jobs.write_through(MirrorBatch(job=record))
        return warnings

    async def _require_done(
        self, before: JobRecord, request: JobRequest, *, key: str, precondition: Precondition
    ) -> None:
        """See that a job has gone on by this very request since the caller saw it. Raises ``RevisionMismatch`` where not."""
        assert precondition.revision is not None
        await self._jobs.require_temporal()
        # Whatever it asks for, it changes nothing: the job does not go back to the revision that is expected.
        command = ChangeCommand(key=key, definition=before.definition, expected=precondition.revision)
        try:
            done = await self._control.change(command, tenant=before.tenant, job_id=before.job_id)
        except JobIsGone as error:
            # Nobody knows any more what made the revision that is there.
            precondition.check(before)
            raise Unavailable("the workflow of this job is just ending") from error
        is_followed = done.revision < before.revision
        is_same = is_followed or is_same_definition(before.definition, request.definition)
        if not is_same or done.revision not in (precondition.revision, precondition.revision + 1):
            # What was done under the key was another request.
            precondition.check(before)

    async def _settle_share(self, job: JobRecord) -> None:
        """Let a job hold no more of the quotas than it takes, since a change of it that was in doubt.

        It is asked to be what it is. When it has answered, nothing that it was told before is left to be done.
        """
        tenant, job_id, schedule = job.tenant, job.job_id, job.definition.schedule
        command = ChangeCommand(key=new_command_key(), definition=job.definition, expected=job.revision)
        with suppress(JobIsGone, Conflict, RevisionMismatch, Unavailable):
            if await self._quotas.is_overclaimed(job_id, schedule, tenant=tenant):
                async with self._quotas.claiming(job_id, schedule, tenant=tenant):
                    await self._control.change(command, tenant=tenant, job_id=job_id)

    async def _apply(self, before: JobRecord, command: ChangeCommand) -> JobRecord:
        tenant, job_id = before.tenant, before.job_id
        try:
            return await self._control.change(command, tenant=tenant, job_id=job_id)
        except JobIsGone as error:
            if before.lifecycle is not Lifecycle.COMPLETED:
                raise Conflict(GONE) from error
        last = await self._queries.get_last_run(before)
        state = await to_thread.run_sync(partial(changed_state, before, last, command, now=datetime.now(UTC)))
        if await self._control.resume(state):
            return job_record(state)
        try:
            return await self._control.change(command, tenant=tenant, job_id=job_id)
        except JobIsGone as error:
            raise Unavailable("the workflow of this job is just ending") from error


def _check_unless_repeated(precondition: Precondition, before: JobRecord | None, *, key: str | None) -> None:
    if before is None or not precondition.may_be_repeated(before, key=key):
        precondition.check(before)


def _check_schedule(request: JobRequest, *, job_id: str, now: datetime) -> datetime | None:
    """See that a schedule fires; answer the time of one that does so once. Raises ``InvalidSchedule``."""
    check_fires(request.schedule, job_id=job_id, after=now)
    schedule = request.definition.schedule
    if not isinstance(schedule.rule, OneOffRule):
        return None
    [fire] = next_fires(schedule, job_id=job_id, after=now, count=1)
    return fire.nominal


def _is_there(record: JobRecord | None) -> bool:
    return record is not None and record.lifecycle is not Lifecycle.DELETED


def _differs(before: JobRecord, request: JobRequest) -> bool:
    """Say whether there is anything to do."""
    if not is_same_definition(before.definition, request.definition):
        return True
    is_other_state = {True: before.lifecycle is Lifecycle.PAUSED, False: before.lifecycle is Lifecycle.ACTIVE}
    return request.enabled is not None and is_other_state[request.enabled]


def _with_id(body: JsonValue, job_id: str) -> JsonValue:
    """Put the id of the path into a body, which may say the same and nothing else."""
    if not re.fullmatch(JOB_ID_PATTERN, job_id):
        raise InvalidRequest(FieldError(parameter="job_id", detail=f"an id is made of {JOB_ID_PATTERN}"))
    if not isinstance(body, dict):
        return body
    if body.get("job_id") not in (None, job_id):
        raise InvalidRequest(FieldError(pointer="/job_id", detail="not the id in the path, and an id never changes"))
    return {**body, "job_id": job_id}
