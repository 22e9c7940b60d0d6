"""Tenants beside each other on a busy task queue, as a server with fairness treats them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from tests.temporal_servers import connect_to, running_server, server_options, unique
from workflows.attempt import AttemptOrder, priority_of
from workflows.job import JobDefinition
from workflows.run import Run, RunKind

pytestmark = pytest.mark.slow

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


@workflow.defn
class Turn:
    """Says when it had its turn."""

    @workflow.run
    async def run(self) -> float:
        """Seconds since the epoch."""
        return workflow.now().timestamp()


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a server with the settings of production."""
    options = server_options(tmp_path)
    settings = {"matching.enableFairness": "true", "matching.numTaskqueueReadPartitions": "1"}
    settings["matching.numTaskqueueWritePartitions"] = "1"
    with running_server(replace(options, dynamic_config=settings)) as server:
        yield await connect_to(server)


async def turns(client: Client, waiting: list[AttemptOrder]) -> list[AttemptOrder]:
    """Let work wait for a worker that does one thing at a time; answers it in the order of its turns."""
    queue = unique("busy")
    handles = [
        await client.start_workflow(Turn.run, id=unique("turn"), task_queue=queue, priority=priority_of(order))
        for order in waiting
    ]
    worker = Worker(
        client,
        task_queue=queue,
        workflows=[Turn],
        max_concurrent_workflow_tasks=1,
        max_cached_workflows=0,
        max_concurrent_workflow_task_polls=1,
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    async with worker:
        times = await asyncio.gather(*(handle.result() for handle in handles))
    return [order for _, _, order in sorted(zip(times, range(len(waiting)), waiting, strict=True), key=lambda x: x[:2])]


def order(tenant: str, *, kind: RunKind = RunKind.SCHEDULED, weight: float = 1.0) -> AttemptOrder:
    """An attempt of a tenant."""
    run = Run(run_id="r", kind=kind, scheduled_at=NOON, target_at=NOON, created_at=NOON)
    return AttemptOrder(tenant=tenant, job_id="j", definition=JobDefinition(), run=run, fairness_weight=weight)


async def test_a_small_tenant_does_not_wait_behind_a_large_one(client: Client) -> None:
    """Ten attempts that came last are done among the first thirty of a hundred."""
    went = await turns(client, [order("large")] * 90 + [order("small")] * 10)
    assert Counter(each.tenant for each in went[:30])["small"] >= 9


async def test_a_heavier_tenant_gets_more(client: Client) -> None:
    """Three quarters of the turns while both have work waiting."""
    went = await turns(client, [order("light")] * 60 + [order("heavy", weight=3.0)] * 60)
    assert 24 <= Counter(each.tenant for each in went[:40])["heavy"] <= 36


async def test_the_lane_stands_behind_live_runs(client: Client) -> None:
    """Whatever waits in it: a live run that came last goes first."""
    lane = [order("one", kind=kind) for kind in (RunKind.CATCH_UP, RunKind.BACKFILL, RunKind.REDRIVE)] * 20
    went = await turns(client, [*lane, *[order("one")] * 5])
    assert Counter(each.run.kind for each in went[:8])[RunKind.SCHEDULED] >= 4
