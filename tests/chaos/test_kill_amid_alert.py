"""The worker dies between the moment in which an alert is raised and the one in which it is taken: it arrives all the same."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from activities.queries import Queries
from tests.chaos.bank import HTTP_ALLOW
from tests.chaos.stack import Stack, register
from tests.chaos.test_kill_at_fire import runs_of
from tests.eventually import eventually
from tests.http_receiver import Received, answer, hang, receiving
from workers.devserver import free_port
from workflows.alert_rule import AlertKind, AlertRules
from workflows.contracts import alert_workflow_id, scheduled_run_id
from workflows.job import JobDefinition, RetryPolicy
from workflows.run import RunStatus
from workflows.schedule import OneOffRule, Schedule
from workflows.target import HttpTarget

pytestmark = pytest.mark.slow

WORKER = "worker"
JOBS = 5
TAKEN_WITHIN = timedelta(seconds=90)
"""A delivery that died with its worker counts as under way for half a minute."""


@pytest.fixture
async def stack(tmp_path: Path, postgresql_url: str) -> AsyncIterator[Stack]:
    """A worker for everything, which may reach this machine."""
    stack = Stack(tmp_path, database_url=postgresql_url, http_allow=HTTP_ALLOW)
    try:
        await stack.start_worker(WORKER, role="both")
        yield stack
    finally:
        stack.stop()


def refused(at: datetime, *, hook: int) -> JobDefinition:
    """A run that dies at once, because nobody listens, and whose alert goes to another port."""
    return JobDefinition(
        name="refused",
        schedule=Schedule(rule=OneOffRule(at=at), jitter_window_seconds=0),
        target=HttpTarget(url=f"http://127.0.0.1:{free_port()}/work"),
        heartbeat_timeout=timedelta(seconds=5),
        retry=RetryPolicy(max_attempts=1),
        alerts=AlertRules(url=f"http://127.0.0.1:{hook}/hook", on=(AlertKind.DEAD,)),
    )


@pytest.mark.timeout(240)
async def test_an_alert_is_told_once_though_its_worker_dies_before_it_is_taken(stack: Stack, queries: Queries) -> None:
    """``kill -9`` as soon as the first is raised and nobody listens yet, and again while the receiver has them all and has not
    answered. Then each is taken, under its own key, once; and none is raised anew."""
    client, port = await stack.connect(), free_port()
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    names = [f"refused-{number}" for number in range(JOBS)]
    for name in names:
        await register(client, name, refused(due, hook=port))
    ids = {f"default:dead:{scheduled_run_id(job_id=name, nominal=due)}" for name in names}
    await eventually(lambda: any_raised(client, ids), every=timedelta(milliseconds=5))
    await stack.kill_worker(WORKER)

    async with receiving(hang, port=port) as receiver:
        await stack.start_worker(WORKER, role="both")
        await eventually(lambda: keys_of(receiver.received).keys() == ids, limit=TAKEN_WITHIN)
        await stack.kill_worker(WORKER)
        unanswered = keys_of(receiver.received)

    async with receiving(answer(204), port=port) as receiver:
        await stack.start_worker(WORKER, role="both")
        await eventually(lambda: all_delivered(client, ids), limit=TAKEN_WITHIN)
        assert keys_of(receiver.received) == dict.fromkeys(ids, 1), unanswered
        assert {(each.method, each.target) for each in receiver.received} == {("POST", "/hook")}
        told = {body["job_id"]: body for body in map(body_of, receiver.received)}
        assert told.keys() == set(names)
        for name in names:
            [run] = await runs_of(queries, name)
            assert run.status is RunStatus.DEAD
            assert (told[name]["kind"], told[name]["run"]["run_id"]) == ("dead", run.run_id)


async def any_raised(client: Client, ids: set[str]) -> bool:
    """Whether one of the alerts has been handed to Temporal."""
    return any([await is_raised(client, alert_id) for alert_id in ids])


async def is_raised(client: Client, alert_id: str) -> bool:
    """Whether an alert has been handed to Temporal."""
    try:
        await client.get_workflow_handle(alert_workflow_id(tenant="default", alert_id=alert_id)).describe()
    except RPCError:
        return False
    return True


async def all_delivered(client: Client, ids: set[str]) -> bool:
    """Whether the workflow of each alert has ended well; fails where one has had a second run."""
    for alert_id in ids:
        name = alert_workflow_id(tenant="default", alert_id=alert_id)
        runs = [each async for each in client.list_workflows(f"WorkflowId = '{name}'")]
        assert len(runs) == 1, runs
        described = await client.get_workflow_handle(name).describe()
        assert described.close_time is not None, f"{alert_id} is under way"
    return True


def keys_of(received: list[Received]) -> Counter[str]:
    """How often each key was sent."""
    return Counter(each.headers["idempotency-key"] for each in received)


def body_of(received: Received) -> dict[str, Any]:
    """What was told."""
    body: dict[str, Any] = json.loads(received.body)
    return body
