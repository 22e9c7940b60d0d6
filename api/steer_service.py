"""What steering promises: jobs are paused and resumed, run at once, and their runs cancelled; each answer is readable."""

import base64
import hashlib
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime

from pydantic import JsonValue

from activities.job_control import JobControl, JobIsGone
from activities.queries import Queries, RecordedRun
from activities.redrive import GONE
from api.answer import JobAnswer, RunAnswer
from api.audit import Audit
from api.registration import new_command_key
from api.request import Precondition
from api.service import JobService
from api.steer_body import TriggerAnswer, TriggerBody, read_cancel, read_pause, read_resume, read_trigger
from workflows.command import CancelCommand, PauseCommand, ResumeCommand, TriggerCommand
from workflows.command import TriggerAnswer as Answered
from workflows.error import Conflict, NotFound
from workflows.hold import standstill
from workflows.job import JobRecord, Lifecycle, MirrorBatch
from workflows.revival import revived_state
from workflows.run import FINAL_STATUSES, PayloadOverride


class SteerService:
    """Everything that the API does with jobs beside changing them, on behalf of one tenant a call."""

    def __init__(self, *, jobs: JobService, queries: Queries, control: JobControl, audit: Audit) -> None:
        self._jobs = jobs
        self._audit = audit
        self._queries = queries
        self._control = control

    async def pause(
        self, job_id: str, body: JsonValue, *, tenant: str, key: str | None, precondition: Precondition
    ) -> JobAnswer:
        """Let a job fire no more until it is resumed. Of a paused job, the reason and the expiry are replaced.

        Raises:
            InvalidRequest: the body is wrong.
            NotFound: there never was such a job.
            Conflict: it is completed or deleted, or Temporal does not have it.
            RevisionMismatch: it has another revision than the caller has seen.
            Unavailable: it may be paused all the same.
        """
        pause = read_pause(body, now=datetime.now(UTC))
        command = PauseCommand(key=key or new_command_key(), pause=pause, expected=precondition.revision)
        await self._jobs.require_temporal()
        async with self._control.turn(tenant=tenant, job_id=job_id):
            found = await self._find_steerable(tenant, job_id, key=key, precondition=precondition)
            async with self._audit.recording(
                "job.pause", tenant=tenant, job_id=job_id, before=_pause_facts(found)
            ) as note:
                try:
                    record = await self._control.pause(command, tenant=tenant, job_id=job_id)
                except JobIsGone as error:
                    raise Conflict(GONE) from error
                note.after = _pause_facts(record)
            await self._jobs.write_through(MirrorBatch(job=record))
        return await self._jobs.get_job(job_id, tenant=tenant)

    async def resume(
        self, job_id: str, body: JsonValue, *, tenant: str, key: str | None, precondition: Precondition
    ) -> JobAnswer:
        """Let a paused job fire again; a job that is not paused stays as it is. Raises as ``pause`` does."""
        command = ResumeCommand(
            key=key or new_command_key(), catch_up=read_resume(body), expected=precondition.revision
        )
        await self._jobs.require_temporal()
        async with self._control.turn(tenant=tenant, job_id=job_id):
            found = await self._find_steerable(tenant, job_id, key=key, precondition=precondition)
            if found.lifecycle is Lifecycle.PAUSED or precondition.may_be_repeated(found, key=key):
                await self._resume(found, command)
        return await self._jobs.get_job(job_id, tenant=tenant)

    async def _resume(self, found: JobRecord, command: ResumeCommand) -> None:
        tenant, job_id = found.tenant, found.job_id
        async with self._audit.recording(
            "job.resume", tenant=tenant, job_id=job_id, before=_pause_facts(found)
        ) as note:
            try:
                record = await self._control.resume_paused(command, tenant=tenant, job_id=job_id)
            except JobIsGone as error:
                raise Conflict(GONE) from error
            note.after = {"catch_up": command.catch_up.value, "state": record.lifecycle.value}
        await self._jobs.write_through(MirrorBatch(job=record))

    def turn_of(self, job_id: str, *, tenant: str) -> AbstractAsyncContextManager[None]:
        """Let triggers of a job be worked on a few at a time, from their first word with the database on.

        Of a hundred at once each would else wait for all others there, where it has patience for a slow database and not for a
        queue. Raises ``Unavailable`` when the wait is too long.
        """
        return self._control.place(tenant=tenant, job_id=job_id)

    async def trigger(self, job_id: str, body: JsonValue, *, tenant: str, key: str | None) -> TriggerAnswer:
        """Run a job now, paused, held and completed ones too. Called in its turn.

        Raises:
            InvalidRequest: the body is wrong, or its payload is none that the job's workers take.
            NotFound: there never was such a job.
            Conflict: it is deleted, or has no fire that the run could take the place of.
            Unavailable: it may be triggered all the same.
        """
        asked = read_trigger(body)
        command = TriggerCommand(
            key=key or new_command_key(),
            request_id=new_request_id(tenant=tenant, job_id=job_id, key=key),
            override=_override_of(asked),
            overlap=asked.overlap,
            skip_next=asked.skip_next,
        )
        answered = await self._trigger(command, tenant=tenant, job_id=job_id)
        triggered = answered.triggered
        return TriggerAnswer(
            outcome=triggered.outcome,
            run_id=triggered.run_id,
            consumed=triggered.consumed,
            run=await self._jobs.get_run(triggered.run_id, tenant=tenant),
            warnings=_warnings_of(answered.rows.job),
        )

    async def cancel_run(self, run_id: str, body: JsonValue, *, tenant: str, key: str | None) -> RunAnswer:
        """Ask a run to end, wherever it stands; one that is over stays as it is.

        Raises:
            InvalidRequest: the body is wrong.
            NotFound: there is no such run.
            Conflict: Temporal does not have its job.
            Unavailable: it may be cancelled all the same.
        """
        command = CancelCommand(key=key or new_command_key(), run_id=run_id, reason=read_cancel(body))
        found = await self._find_run(run_id, tenant=tenant)
        if found.record.run.status not in FINAL_STATUSES:
            job_id = found.record.job_id
            async with self._control.place(tenant=tenant, job_id=job_id):
                await self._jobs.require_temporal()
                async with self._audit.recording("run.cancel", tenant=tenant, job_id=job_id, subject=run_id) as note:
                    try:
                        rows = await self._control.cancel_run(command, tenant=tenant, job_id=job_id)
                    except JobIsGone as error:
                        raise Conflict(GONE) from error
                    note.after = {"reason": command.reason}
                await self._jobs.write_through(rows)
        return await self._jobs.get_run(run_id, tenant=tenant)

    async def _find_steerable(
        self, tenant: str, job_id: str, *, key: str | None, precondition: Precondition
    ) -> JobRecord:
        found = await self._jobs.find(tenant, job_id)
        if found.lifecycle in (Lifecycle.DELETED, Lifecycle.COMPLETED):
            raise Conflict(f"the job is {found.lifecycle.value}: it does not fire")
        if not precondition.may_be_repeated(found, key=key):
            precondition.check(found)
        return found

    async def _trigger(self, command: TriggerCommand, *, tenant: str, job_id: str) -> Answered:
        found = await self._jobs.find(tenant, job_id)
        if found.lifecycle is Lifecycle.DELETED:
            raise Conflict("the job is deleted")
        if command.override is not None:
            await self._jobs.check_payload(found.definition.model_copy(update={"payload": command.override.payload}))
        await self._jobs.require_temporal()
        async with self._audit.recording("job.trigger", tenant=tenant, job_id=job_id) as note:
            answered = await self._ask_trigger(found, command)
            note.after = answered.triggered.model_dump(mode="json")
        await self._jobs.write_through(answered.rows)
        return answered

    async def _ask_trigger(self, found: JobRecord, command: TriggerCommand) -> Answered:
        try:
            return await self._control.trigger(command, tenant=found.tenant, job_id=found.job_id)
        except JobIsGone as error:
            if found.lifecycle is not Lifecycle.COMPLETED:
                raise Conflict(GONE) from error
        state = revived_state(found, last=await self._queries.get_last_run(found), now=datetime.now(UTC))
        try:
            return await self._control.trigger_in(state, command)
        except JobIsGone as error:
            raise Conflict(GONE) from error

    async def _find_run(self, run_id: str, *, tenant: str) -> RecordedRun:
        found = await self._queries.get_run(tenant, run_id)
        if found is None:
            raise NotFound("there is no such run")
        return found


def new_request_id(*, tenant: str, job_id: str, key: str | None) -> str:
    """Make the name of a trigger. From an idempotency key it is always the same, so that a repeat is the same run."""
    seed = f"{tenant}\0{job_id}\0{key or new_command_key()}"
    return base64.b32encode(hashlib.sha256(seed.encode()).digest()[:15]).decode().lower()


def _warnings_of(record: JobRecord | None) -> list[str]:
    """Say what keeps the job that was triggered from firing by itself."""
    still = None if record is None else standstill(record)
    return [] if still is None else [f"its fires do not run: {still.reason}"]


def _pause_facts(record: JobRecord) -> JsonValue:
    pause = None if record.pause is None else record.pause.model_dump(mode="json")
    return {"state": record.lifecycle.value, "pause": pause}


def _override_of(body: TriggerBody) -> PayloadOverride | None:
    return PayloadOverride(payload=body.payload) if "payload" in body.model_fields_set else None
