"""Looks at attempts that have not answered, at the real server: what is on its way is not taken for dead."""

import dataclasses
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment
from temporalio.worker import Worker

from activities.observation import Observer
from tests.eventually import eventually
from tests.temporal_servers import unique
from tests.workflow.team_workflow import Crowd
from workflows.observation import Observation, ObserveRequest

MANY = 150
"""So many that the last is still to be started when the first is, however fast the server."""

LOOKS = 5
"""At the last of them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Looker:
    """Looks as an activity of one run of a workflow does."""

    client: Client
    workflow_id: str
    run_id: str

    async def look(self, request: ObserveRequest) -> Observation:
        """Look."""
        environment = ActivityEnvironment()
        environment.info = dataclasses.replace(
            environment.info, workflow_id=self.workflow_id, workflow_run_id=self.run_id
        )
        seen: Observation = await environment.run(Observer(self.client).observe_attempt, request)
        return seen

    async def has_ordered(self) -> bool:
        """Whether this workflow has ordered others."""
        described = await self.client.get_workflow_handle(self.workflow_id, run_id=self.run_id).describe()
        return len(described.raw_description.pending_children) > 0


@asynccontextmanager
async def crowd(client: Client, names: list[str]) -> AsyncIterator[Looker]:
    """A workflow that orders others of these names; the block begins when it has done so."""
    queue = unique("team")
    async with Worker(client, task_queue=queue, workflows=[Crowd]):
        handle: WorkflowHandle[Any, Any] = await client.start_workflow(
            Crowd.run, args=[names, unique("nobody")], id=unique("crowd"), task_queue=queue
        )
        assert handle.first_execution_run_id is not None
        looker = Looker(client=client, workflow_id=handle.id, run_id=handle.first_execution_run_id)
        try:
            await eventually(looker.has_ordered, every=timedelta(milliseconds=5))
            yield looker
        finally:
            await handle.terminate()


async def is_there(client: Client, workflow_id: str) -> bool:
    """Whether Temporal has started a workflow."""
    try:
        await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True


async def test_a_run_whose_workflow_is_still_to_be_started_is_not_dead(temporal_client: Client) -> None:
    """A busy server starts it later than the first look comes. Until then it has not answered, and from then on it runs. Of a
    workflow that is an attempt, such a look says nothing at all: neither that no worker takes it, nor that it is over."""
    early = await eventually(lambda: early_looks(temporal_client))
    assert not any(seen.ended for seen, _ in early)
    assert all(says_nothing for _, says_nothing in early)


async def early_looks(client: Client) -> list[tuple[Observation, bool]]:
    """Look at the last of many workflows that are being started, as runs and as attempts; answers what was seen too early."""
    names = [unique("run") for _ in range(MANY)]
    async with crowd(client, names) as looker:
        early = list[tuple[Observation, bool]]()
        for name in names[-LOOKS:]:
            seen = await looker.look(ObserveRequest(workflow_id=name))
            says_nothing = await is_silent(looker.look(attempt(looker, name)))
            if not await is_there(client, name):
                early.append((seen, says_nothing))
        await eventually(lambda: is_there(client, names[-1]))
        assert not (await looker.look(ObserveRequest(workflow_id=names[-1]))).ended
        waits = await looker.look(attempt(looker, names[-1]))
        assert (waits.started_at, waits.polled, waits.ended) == (None, False, False)
    return early


def attempt(looker: Looker, name: str) -> ObserveRequest:
    """A look, by the workflow of a run, at the workflow that is its attempt."""
    return ObserveRequest(workflow_id=looker.workflow_id, child_id=name, task_queue=unique("nobody"))


async def is_silent(looking: Awaitable[Observation]) -> bool:
    """Whether a look fails because there is nothing to look at."""
    try:
        await looking
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return True
    return False


async def test_a_run_that_nobody_is_to_start_has_ended(temporal_client: Client) -> None:
    """Whether the workflow that asks is there or gone; and one that was started and closed has ended too."""
    names = [unique("run")]
    async with crowd(temporal_client, names) as looker:
        assert (await looker.look(ObserveRequest(workflow_id=unique("run")))).ended
        gone = dataclasses.replace(looker, workflow_id=unique("job"))
        assert (await gone.look(ObserveRequest(workflow_id=unique("run")))).ended
        await eventually(lambda: is_there(temporal_client, names[0]))
        await temporal_client.get_workflow_handle(names[0]).terminate()
        assert (await looker.look(ObserveRequest(workflow_id=names[0]))).ended
