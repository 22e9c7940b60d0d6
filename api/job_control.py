"""The only user of Temporal handles: starts the workflows of jobs and sends them their control updates.

Every call ends within ``PATIENCE``. Whoever is told ``Unavailable`` may repeat the request with the same key: what was
applied already is answered as it was then.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

from temporalio.client import Client, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from workers.connection import register_search_attributes
from workflows.command import DeleteCommand, RegisterCommand
from workflows.contracts import (
    JOB_WORKFLOW,
    LOGIC_VERSION,
    UPDATE_DELETE,
    UPDATE_REGISTER,
    WORKFLOW_TASK_TIMEOUT,
    job_workflow_id,
)
from workflows.error import Conflict, Unavailable
from workflows.job import JobInput, JobRecord, JobState
from workflows.target import DEFAULT_TASK_QUEUE
from workflows.visibility import job_memo, job_search_attributes, job_summary

Command: TypeAlias = DeleteCommand | RegisterCommand

PATIENCE: Final = timedelta(seconds=5)
"""For one call. A job under load answers within tens of milliseconds; a person waits about as long as this."""

MAYBE_APPLIED: Final = "Temporal did not answer in time; the request may still be applied: repeat it with the same key"

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

    def __init__(self, client: Client) -> None:
        self._client = client
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
        return await self._update(UPDATE_REGISTER, command, tenant=command.state.tenant, job_id=command.state.job_id)

    async def delete(self, command: DeleteCommand, *, tenant: str, job_id: str) -> JobRecord:
        """Delete a job.

        Raises:
            JobIsGone: it has no open workflow to be told.
            Unavailable: Temporal or the job does not answer; the job may be deleted all the same.
        """
        return await self._update(UPDATE_DELETE, command, tenant=tenant, job_id=job_id)

    async def _start(self, state: JobState) -> None:
        with _translated():
            async with asyncio.timeout(PATIENCE.total_seconds()):
                if self._has_search_attributes is None:
                    self._has_search_attributes = await register_search_attributes(self._client)
                await self._client.start_workflow(
                    JOB_WORKFLOW,
                    JobInput(logic_version=LOGIC_VERSION, state=state),
                    id=job_workflow_id(tenant=state.tenant, job_id=state.job_id),
                    task_queue=DEFAULT_TASK_QUEUE,
                    task_timeout=WORKFLOW_TASK_TIMEOUT,
                    id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                    search_attributes=job_search_attributes(state) if self._has_search_attributes else None,
                    memo=job_memo(state),
                    static_summary=job_summary(state),
                    rpc_timeout=PATIENCE,
                )

    async def _update(self, update: str, command: Command, *, tenant: str, job_id: str) -> JobRecord:
        handle = self._client.get_workflow_handle(job_workflow_id(tenant=tenant, job_id=job_id))
        with _translated():
            async with asyncio.timeout(PATIENCE.total_seconds()):
                record: JobRecord = await handle.execute_update(
                    update, command, id=f"{update}/{command.key}", result_type=JobRecord, rpc_timeout=PATIENCE
                )
        return record


@contextmanager
def _translated() -> Iterator[None]:
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
        case ApplicationError(type="AcceptedUpdateCompletedWorkflow"):
            return JobIsGone()
        case _:
            return Unavailable("the job did not carry out the request")
