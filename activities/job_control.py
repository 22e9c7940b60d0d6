"""The one way to the workflows of jobs: starts them and sends them their control updates.

A job that answers nobody is waited for as long as ``PATIENCE``, one that is busy with others up to ``LONGEST_PATIENCE``. Whoever
is told ``Unavailable`` may repeat the request with the same key: what was applied already is answered as it was then.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import Final, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from temporalio.api.errordetails.v1 import WorkflowNotReadyFailure
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from horarium.encrypted_payload import CannotDecrypt
from workflows.backfill_admission import BackfillAnswer, BackfillCommand
from workflows.command import (
    CancelCommand,
    ChangeCommand,
    DeleteCommand,
    HoldCommand,
    PauseCommand,
    RedriveAnswer,
    RedriveCommand,
    RegisterCommand,
    ReleaseCommand,
    ResumeCommand,
    ShowCommand,
    TriggerAnswer,
    TriggerCommand,
)
from workflows.contracts import (
    BUSY,
    INVALID_SCHEDULE,
    JOB_WORKFLOW,
    LOGIC_VERSION,
    REVISION_MISMATCH,
    UPDATE_BACKFILL,
    UPDATE_CANCEL_RUN,
    UPDATE_CHANGE,
    UPDATE_DELETE,
    UPDATE_HOLD,
    UPDATE_PAUSE,
    UPDATE_REDRIVE,
    UPDATE_REGISTER,
    UPDATE_RELEASE,
    UPDATE_RESUME,
    UPDATE_SHOW,
    UPDATE_TRIGGER,
    WORKFLOW_TASK_TIMEOUT,
    job_workflow_id,
)
from workflows.error import Busy, Conflict, InvalidSchedule, RevisionMismatch, Unavailable
from workflows.job import JobInput, JobRecord, JobState, MirrorBatch
from workflows.target import DEFAULT_TASK_QUEUE
from workflows.visibility import job_memo, job_search_attributes, job_summary

Command: TypeAlias = (
    BackfillCommand
    | CancelCommand
    | ChangeCommand
    | DeleteCommand
    | HoldCommand
    | PauseCommand
    | RedriveCommand
    | RegisterCommand
    | ReleaseCommand
    | ResumeCommand
    | TriggerCommand
)

Answer = TypeVar("Answer")

PATIENCE: Final = timedelta(seconds=5)
"""For one call. A job under load answers within tens of milliseconds; a person waits about as long as this."""

LONGEST_PATIENCE: Final = timedelta(seconds=15)
"""For an update of a job that answers others meanwhile: it is there, and gets to everybody."""

MAYBE_APPLIED: Final = (
    "Temporal did not answer in time; the request may still be applied: "
    "repeat it, with the same Idempotency-Key if it had one"
)

QUEUE_PATIENCE: Final = timedelta(seconds=35)
"""For the turn of a request that may stand behind a hundred others for the same job. With the patience for its update and for the
database it makes less than a minute, which is what clients wait, and how long an idempotency key is held."""

PLACES: Final = 5
"""Updates of one job that this process has in flight. The server refuses an eleventh, and there may be another process."""

_TRIES: Final = 3
"""A workflow may end between the refused start and the update, and another be started in between."""

_TRANSIENT: Final = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.ABORTED,
        RPCStatusCode.INTERNAL,
    }
)

_REFUSALS: Final = frozenset(
    {RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.UNAUTHENTICATED, RPCStatusCode.PERMISSION_DENIED}
)
"""Nothing is wrong with the request: somebody has paused the workflow in Temporal, or our key there has expired."""

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1
"""Seconds before an update is sent again. Each is twice the one before."""


class JobIsGone(Exception):
    """Temporal has no open workflow of the job: it has completed, or somebody ended it there."""


class JobControl:
    """Commands to the workflows of jobs."""

    def __init__(self, client: Client, *, find_search_attributes: Callable[[], Awaitable[bool]]) -> None:
        """``find_search_attributes`` says whether the namespace knows ours."""
        self._client = client
        self._find_search_attributes = find_search_attributes
        self._has_search_attributes: bool | None = None
        """Whether the namespace knows ours: an unknown one would stop the job. Asked before the first start."""

        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Of writes that look at the mirror first, one at a time."""

        self._places: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """The server takes ten updates of a workflow at a time and refuses more; here the others wait."""

        self._waiting: defaultdict[str, dict[asyncio.Timeout, float]] = defaultdict(dict)
        """Who waits for an answer of a workflow, and until when at the latest, by the clock of the event loop."""

    @asynccontextmanager
    async def place(self, *, tenant: str, job_id: str) -> AsyncIterator[None]:
        """Let requests for one job be carried out a few at a time. Raises ``Unavailable`` when the wait is too long."""
        name = job_workflow_id(tenant=tenant, job_id=job_id)
        places = self._places.setdefault(name, asyncio.Semaphore(PLACES))
        try:
            async with asyncio.timeout(QUEUE_PATIENCE.total_seconds()):
                await places.acquire()
        except TimeoutError as error:
            raise Unavailable("many other requests for this job are being carried out") from error
        try:
            yield
        finally:
            places.release()

    @asynccontextmanager
    async def turn(self, *, tenant: str, job_id: str) -> AsyncIterator[None]:
        """Let writes to one job wait for each other. Raises ``Unavailable`` when that takes too long."""
        name = job_workflow_id(tenant=tenant, job_id=job_id)
        lock = self._turns.setdefault(name, asyncio.Lock())
        try:
            async with asyncio.timeout(QUEUE_PATIENCE.total_seconds()):
                await lock.acquire()
        except TimeoutError as error:
            raise Unavailable("other requests for this job are being carried out") from error
        try:
            yield
        finally:
            lock.release()

    async def register(self, command: RegisterCommand) -> JobRecord | None:
        """Start the workflow of a job; ``None`` says that it was started just now.

        Where a workflow of its id is open, that one is asked to take the job: see ``register_in_place``.

        Raises:
            Conflict: a job of this id exists.
            Unavailable: Temporal or the job does not answer; the job may be registered all the same.
        """
        for _ in range(_TRIES):
            try:
                await self._start(command.state)
            except WorkflowAlreadyStartedError:
                with suppress(JobIsGone):
                    return await self.register_in_place(command)
            else:
                return None
        raise Unavailable("the workflow of this job is just ending")

    async def register_in_place(self, command: RegisterCommand) -> JobRecord:
        """Ask the open workflow of a job to take a registration.

        It does when it only drains what was deleted, and answers as it did then when it took this very command before.

        Raises:
            Conflict: a job of this id exists.
            JobIsGone: there is no open workflow.
            Unavailable: Temporal or the job does not answer; the job may be registered all the same.
        """
        tenant, job_id = command.state.tenant, command.state.job_id
        return await self._update(UPDATE_REGISTER, command, JobRecord, tenant=tenant, job_id=job_id)

    async def delete(self, command: DeleteCommand, *, tenant: str, job_id: str) -> JobRecord:
        """Delete a job.

        Raises:
            JobIsGone: it has no open workflow to be told.
            Unavailable: Temporal or the job does not answer; the job may be deleted all the same.
        """
        return await self._update(UPDATE_DELETE, command, JobRecord, tenant=tenant, job_id=job_id)

    async def change(self, command: ChangeCommand, *, tenant: str, job_id: str) -> JobRecord:
        """Replace the definition of a job.

        Raises:
            RevisionMismatch: it has another revision than the command expects.
            InvalidSchedule: its one fire has passed.
            Conflict: it is deleted.
            JobIsGone: it has no open workflow.
            Unavailable: Temporal or the job does not answer; the job may be changed all the same.
        """
        return await self._update(UPDATE_CHANGE, command, JobRecord, tenant=tenant, job_id=job_id)

    async def pause(self, command: PauseCommand, *, tenant: str, job_id: str) -> JobRecord:
        """Pause a job. Raises as ``change`` does, ``Conflict`` for one that is completed too."""
        return await self._update(UPDATE_PAUSE, command, JobRecord, tenant=tenant, job_id=job_id)

    async def resume_paused(self, command: ResumeCommand, *, tenant: str, job_id: str) -> JobRecord:
        """Let a paused job fire again. Raises as ``change`` does."""
        return await self._update(UPDATE_RESUME, command, JobRecord, tenant=tenant, job_id=job_id)

    async def hold(self, command: HoldCommand, *, tenant: str, job_id: str) -> JobRecord:
        """Hold a job. Raises as ``pause`` does."""
        return await self._update(UPDATE_HOLD, command, JobRecord, tenant=tenant, job_id=job_id)

    async def release(self, command: ReleaseCommand, *, tenant: str, job_id: str) -> JobRecord:
        """Take a hold from a job. Raises ``JobIsGone`` and ``Unavailable``."""
        return await self._update(UPDATE_RELEASE, command, JobRecord, tenant=tenant, job_id=job_id)

    async def trigger(self, command: TriggerCommand, *, tenant: str, job_id: str) -> TriggerAnswer:
        """Run a job now.

        Raises:
            Conflict: it is deleted, or has no fire that the run could take the place of.
            Busy: it holds as many payloads of triggers as it can.
            JobIsGone: it has no open workflow.
            Unavailable: Temporal or the job does not answer; it may be triggered all the same.
        """
        return await self._update(UPDATE_TRIGGER, command, TriggerAnswer, tenant=tenant, job_id=job_id)

    async def trigger_in(self, state: JobState, command: TriggerCommand) -> TriggerAnswer:
        """Run a job now whose workflow has ended, in one that goes on from ``state`` until it has. See ``redrive_in``."""
        return await self._update_with_start(UPDATE_TRIGGER, command, TriggerAnswer, state=state)

    async def cancel_run(self, command: CancelCommand, *, tenant: str, job_id: str) -> MirrorBatch:
        """Ask a run to end. Raises ``JobIsGone`` and ``Unavailable``, as ``trigger`` does."""
        return await self._update(UPDATE_CANCEL_RUN, command, MirrorBatch, tenant=tenant, job_id=job_id)

    async def show(self, command: ShowCommand, *, tenant: str, job_id: str) -> MirrorBatch:
        """Ask a job how it stands, which wakes one that sleeps. Raises ``JobIsGone`` and ``Unavailable``."""
        handle = self._client.get_workflow_handle(job_workflow_id(tenant=tenant, job_id=job_id))

        async def send() -> MirrorBatch:
            rows: MirrorBatch = await handle.execute_update(
                UPDATE_SHOW, command, result_type=MirrorBatch, rpc_timeout=PATIENCE
            )
            return rows

        with translated():
            async with asyncio.timeout(PATIENCE.total_seconds()):
                return await _until_ready(send)

    async def redrive(self, command: RedriveCommand, *, tenant: str, job_id: str) -> RedriveAnswer:
        """Run a dead run of a job again.

        Raises:
            Busy: the job has many redrives to begin already.
            JobIsGone: it has no open workflow.
            Unavailable: Temporal or the job does not answer; it may be redriven all the same.
        """
        return await self._update(UPDATE_REDRIVE, command, RedriveAnswer, tenant=tenant, job_id=job_id)

    async def redrive_in(self, state: JobState, command: RedriveCommand) -> RedriveAnswer:
        """Run a dead run of a job again whose workflow has ended, in one that goes on from ``state`` until it has.

        Where a workflow of the job is open, that one does it. The server itself sees to it that the same request, repeated when
        that workflow has ended too, starts no other. Raises as ``redrive`` does.
        """
        return await self._update_with_start(UPDATE_REDRIVE, command, RedriveAnswer, state=state)

    async def backfill(self, command: BackfillCommand, *, tenant: str, job_id: str) -> BackfillAnswer:
        """Ask a job to run fires of a backfill. Raises ``JobIsGone`` and ``Unavailable``, as ``redrive`` does."""
        return await self._update(UPDATE_BACKFILL, command, BackfillAnswer, tenant=tenant, job_id=job_id)

    async def backfill_in(self, state: JobState, command: BackfillCommand) -> BackfillAnswer:
        """Run fires of a backfill of a job whose workflow has ended, in one that goes on from ``state``. See ``redrive_in``."""
        return await self._update_with_start(UPDATE_BACKFILL, command, BackfillAnswer, state=state)

    async def _update_with_start(
        self, update: str, command: Command, answer_type: type[Answer], *, state: JobState
    ) -> Answer:
        with translated():
            async with asyncio.timeout(PATIENCE.total_seconds()):
                start: WithStartWorkflowOperation[object, None] = WithStartWorkflowOperation(
                    JOB_WORKFLOW,
                    JobInput(logic_version=LOGIC_VERSION, state=state, resumed=True),
                    id=job_workflow_id(tenant=state.tenant, job_id=state.job_id),
                    task_queue=DEFAULT_TASK_QUEUE,
                    task_timeout=WORKFLOW_TASK_TIMEOUT,
                    id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                    search_attributes=job_search_attributes(state) if await self._may_search() else None,
                    memo=job_memo(state),
                    static_summary=job_summary(state),
                )
                answer: Answer = await self._client.execute_update_with_start_workflow(
                    update,
                    command,
                    start_workflow_operation=start,
                    id=_update_id(update, command),
                    result_type=answer_type,
                    rpc_timeout=PATIENCE,
                )
        return answer

    async def resume(self, state: JobState) -> bool:
        """Start the workflow of a job that goes on from ``state``; ``False`` says that one is open, which is left alone.

        Raises ``Unavailable``: Temporal does not answer; it may be started all the same.
        """
        try:
            await self._start(state, resumed=True)
        except WorkflowAlreadyStartedError:
            return False
        return True

    async def _start(self, state: JobState, *, resumed: bool = False) -> None:
        with translated():
            async with asyncio.timeout(PATIENCE.total_seconds()):
                await self._client.start_workflow(
                    JOB_WORKFLOW,
                    JobInput(logic_version=LOGIC_VERSION, state=state, resumed=resumed),
                    id=job_workflow_id(tenant=state.tenant, job_id=state.job_id),
                    task_queue=DEFAULT_TASK_QUEUE,
                    task_timeout=WORKFLOW_TASK_TIMEOUT,
                    id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                    search_attributes=job_search_attributes(state) if await self._may_search() else None,
                    memo=job_memo(state),
                    static_summary=job_summary(state),
                    rpc_timeout=PATIENCE,
                )

    async def _may_search(self) -> bool:
        if self._has_search_attributes is None:
            self._has_search_attributes = await self._find_search_attributes()
        return self._has_search_attributes

    async def _update(
        self, update: str, command: Command, answer_type: type[Answer], *, tenant: str, job_id: str
    ) -> Answer:
        name = job_workflow_id(tenant=tenant, job_id=job_id)
        handle = self._client.get_workflow_handle(name)
        update_id = _update_id(update, command)

        async def send() -> Answer:
            answer: Answer = await handle.execute_update(
                update, command, id=update_id, result_type=answer_type, rpc_timeout=LONGEST_PATIENCE
            )
            return answer

        with translated():
            async with self._patience(name):
                return await _until_ready(send)

    @asynccontextmanager
    async def _patience(self, name: str) -> AsyncIterator[None]:
        """Wait ``PATIENCE`` for a workflow, and ``LONGEST_PATIENCE`` for one that answers somebody else meanwhile."""
        now, waiting = asyncio.get_running_loop().time, self._waiting[name]
        async with asyncio.timeout(PATIENCE.total_seconds()) as limit:
            waiting[limit] = now() + LONGEST_PATIENCE.total_seconds()
            try:
                yield
            finally:
                del waiting[limit]
                if not waiting:
                    self._waiting.pop(name, None)
        for other, end in waiting.items():
            if not other.expired():
                other.reschedule(end)


async def _until_ready(send: Callable[[], Awaitable[Answer]]) -> Answer:
    """Send an update again for as long as the server says that its workflow is not ready, until the caller's patience ends.

    It does when it failed the task that had the update: what ends a run of a workflow is refused while there is news for it. The
    workflow does that task anew, and without the update, which was not applied.
    """
    pause: float = _FIRST_PAUSE
    while True:
        try:
            return await send()
        except RPCError as error:
            if not _is_not_ready(error):
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _is_not_ready(error: RPCError) -> bool:
    return any(detail.Is(WorkflowNotReadyFailure.DESCRIPTOR) for detail in error.grpc_status.details)


def _update_id(update: str, command: Command) -> str:
    return f"{update}/{command.key}"


@contextmanager
def translated() -> Iterator[None]:
    """Say what Temporal raises in our own terms."""
    try:
        yield
    except WorkflowUpdateFailedError as error:
        raise _refusal(error.cause) from error
    except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
        raise Unavailable(MAYBE_APPLIED) from error
    except CannotDecrypt as error:
        raise Unavailable(f"the answer cannot be read, and the request may be applied: {error.message}") from error
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise JobIsGone from error
        if error.status in _REFUSALS:
            raise Unavailable(f"Temporal refuses this for now: {error.message}") from error
        if error.status is RPCStatusCode.UNKNOWN:
            raise Unavailable(f"Temporal failed, and the request may be applied: {error.message}") from error
        if error.status not in _TRANSIENT:
            raise
        raise Unavailable(MAYBE_APPLIED) from error
    except RuntimeError as error:
        # The client connects at its first call, and says so only by the text when it cannot.
        if "connect" not in str(error).lower():
            raise
        raise Unavailable("Temporal cannot be reached") from error


def _refusal(cause: BaseException) -> Exception:
    match cause:
        case ApplicationError(type="Conflict"):
            return Conflict(cause.message)
        case ApplicationError(type=kind) if kind == BUSY:
            return Busy(cause.message)
        case ApplicationError(type=kind) if kind == REVISION_MISMATCH:
            return RevisionMismatch(cause.message)
        case ApplicationError(type=kind) if kind == INVALID_SCHEDULE:
            return InvalidSchedule(cause.message)
        case ApplicationError(type="AcceptedUpdateCompletedWorkflow"):
            return JobIsGone()
        case _:
            return Unavailable("the job did not carry out the request")
