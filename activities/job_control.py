"""The one way to the workflows of jobs: starts them and sends them their control updates.

Every call ends within ``PATIENCE``. Whoever is told ``Unavailable`` may repeat the request with the same key: what was
applied already is answered as it was then.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import Final, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from workflows.command import DeleteCommand, RedriveAnswer, RedriveCommand, RegisterCommand
from workflows.contracts import (
    BUSY,
    JOB_WORKFLOW,
    LOGIC_VERSION,
    UPDATE_DELETE,
    UPDATE_REDRIVE,
    UPDATE_REGISTER,
    WORKFLOW_TASK_TIMEOUT,
    job_workflow_id,
)
from workflows.error import Busy, Conflict, Unavailable
from workflows.job import JobInput, JobRecord, JobState
from workflows.target import DEFAULT_TASK_QUEUE
from workflows.visibility import job_memo, job_search_attributes, job_summary

Command: TypeAlias = DeleteCommand | RedriveCommand | RegisterCommand

Answer = TypeVar("Answer")

PATIENCE: Final = timedelta(seconds=5)
"""For one call. A job under load answers within tens of milliseconds; a person waits about as long as this."""

MAYBE_APPLIED: Final = (
    "Temporal did not answer in time; the request may still be applied: "
    "repeat it, with the same Idempotency-Key if it had one"
)

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
        """The server takes ten updates of a workflow at a time and refuses more; here the others wait."""

    @asynccontextmanager
    async def turn(self, *, tenant: str, job_id: str) -> AsyncIterator[None]:
        """Let writes to one job wait for each other. Raises ``Unavailable`` when that takes too long."""
        name = job_workflow_id(tenant=tenant, job_id=job_id)
        lock = self._turns.setdefault(name, asyncio.Lock())
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
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
                answer: RedriveAnswer = await self._client.execute_update_with_start_workflow(
                    UPDATE_REDRIVE,
                    command,
                    start_workflow_operation=start,
                    id=_update_id(UPDATE_REDRIVE, command),
                    result_type=RedriveAnswer,
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
        handle = self._client.get_workflow_handle(job_workflow_id(tenant=tenant, job_id=job_id))
        with translated():
            async with asyncio.timeout(PATIENCE.total_seconds()):
                answer: Answer = await handle.execute_update(
                    update, command, id=_update_id(update, command), result_type=answer_type, rpc_timeout=PATIENCE
                )
        return answer


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
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise JobIsGone from error
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
        case ApplicationError(type="AcceptedUpdateCompletedWorkflow"):
            return JobIsGone()
        case _:
            return Unavailable("the job did not carry out the request")
