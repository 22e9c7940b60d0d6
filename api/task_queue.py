"""Which task queues a job may name: held against what is granted to its tenant before anything is done."""

from activities.task_queue_grant import refusal_of
from activities.task_queue_store import TaskQueueStore
from api.problem import FieldError, InvalidRequest
from workflows.target import DEFAULT_TASK_QUEUE, Target


class TaskQueues:
    """The task queues of all tenants."""

    def __init__(self, store: TaskQueueStore) -> None:
        self._store = store

    async def require(self, target: Target, *, tenant: str) -> None:
        """See that the jobs of a tenant may name a target's queue.

        Raises:
            InvalidRequest: they may not.
            Unavailable: the database does not answer.
        """
        if target.task_queue == DEFAULT_TASK_QUEUE:
            return
        refusal = refusal_of(target.task_queue, await self._store.read_grants(), tenant=tenant)
        if refusal is not None:
            raise InvalidRequest(FieldError(pointer="/target/task_queue", detail=refusal))

    async def granted_to(self, tenant: str) -> list[str]:
        """List the patterns that a tenant has."""
        return list((await self._store.read_grants()).get(tenant, ()))
