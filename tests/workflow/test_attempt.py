"""Attempts on real workers: retries, timeouts, lost workers, unknown activities, queues without workers."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
import pytest_asyncio
from temporalio import activity
from temporalio.worker import Worker

from tests.eventually import eventually
from tests.temporal_servers import connect_to, unique
from tests.workflow.harness import Harness, job, kinds_of, side_by_side
from workers.devserver import DevServer
from workflows.job import JobDefinition
from workflows.run import AttemptStatus, Run, RunStatus

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENOUGH = timedelta(seconds=30)
OFTEN = {"max_attempts": 3, "base": timedelta(milliseconds=1), "cap": timedelta(milliseconds=1)}

FOREIGN_QUEUE = unique("foreign")
"""Of a worker in another language, that knows nothing of reports and heartbeats."""

EMPTY_QUEUE = unique("empty")
LATE_QUEUE = unique("late")
DEPLOYED_QUEUE = unique("deployed")


def once(name: str, *, payload: Any = None, queue: str = "horarium", **fields: Any) -> JobDefinition:
    """A job of a single fire in some seconds from now."""
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=4)
    schedule = {"rule": {"kind": "one_off", "at": at}}
    target = {"activity": name, "task_queue": queue}
    return job(name, payload=payload, schedule=schedule, target=target, **fields)


@activity.defn
async def silent(_: Any) -> None:
    """Hang without a heartbeat."""
    await asyncio.sleep(60)


@activity.defn
async def plain(run: dict[str, Any]) -> str:
    """Answer without a report."""
    return f"fence {run['fence'] > 0}"


@activity.defn
async def odd_bytes(_: Any) -> bytes:
    """Answer with what is not JSON."""
    return b"\xff\x00"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(temporal_server: DevServer) -> AsyncIterator[Harness]:
    """All jobs of this module, which are made when the workers are there: each has one chance."""
    client = await connect_to(temporal_server)
    async with (
        Worker(client, task_queue=FOREIGN_QUEUE, activities=[silent, plain, odd_bytes]),
        side_by_side(temporal_server, {}) as harness,
    ):
        for name, definition in jobs_of_one_fire().items():
            harness.named[name] = await harness.register(definition)
        yield harness


def jobs_of_one_fire() -> dict[str, JobDefinition]:
    """Make the jobs, by the names that the tests have for them."""
    return {
        "recovers": once("fail", payload=2, retry=OFTEN),
        "dies": once("fail", payload=9, retry=OFTEN),
        "permanent": once("fail_for_good", retry=OFTEN),
        "slow": once("take", payload=60, timeout=timedelta(seconds=2), retry={"max_attempts": 1}),
        "lost": once("silent", queue=FOREIGN_QUEUE, heartbeat_timeout=timedelta(seconds=2), retry={"max_attempts": 1}),
        "plain": once("plain", queue=FOREIGN_QUEUE, heartbeat_timeout=None),
        "bytes": once("odd_bytes", queue=FOREIGN_QUEUE, heartbeat_timeout=None, retry={"max_attempts": 1}),
        "unknown": once("plain", queue=DEPLOYED_QUEUE, heartbeat_timeout=None, retry={"max_attempts": 1}),
        "no_worker": once("plain", queue=EMPTY_QUEUE, queue_timeout=timedelta(seconds=8)),
        "late_worker": once("plain", queue=LATE_QUEUE, heartbeat_timeout=None),
        "busy": once("take", payload=4),
        "at_once": once("fail", payload=0, retry=OFTEN),
        "retried": once("fail", payload=5, retry=OFTEN | {"max_attempts": 6}),
    }


async def end_of(harness: Harness, name: str) -> Run:
    """Wait for the end of a job's only run."""
    [run] = await harness.until_runs(harness.named[name], 1, limit=ENOUGH)
    return run


def attempts_of(harness: Harness, name: str) -> list[AttemptStatus]:
    """Statuses of the attempts, in order."""
    rows = harness.mirror.attempts[harness.named[name]]
    return [rows[key].status for key in sorted(rows)]


async def until_shown(harness: Harness, name: str, reason: str) -> Run:
    """Wait until the mirror's row of a run gives a reason."""

    def look() -> Run:
        [run] = harness.mirror.runs[harness.named[name]].values()
        assert reason in (run.reason or ""), run.reason
        return run

    await eventually(lambda: harness.named[name] in harness.mirror.runs)
    return await eventually(look)


async def test_a_run_that_takes_a_while_is_seen_to_run(harness: Harness) -> None:
    """With its worker and its start, before it has answered."""

    def look() -> Run | None:
        rows = harness.mirror.runs.get(harness.named["busy"], {})
        return next((run for run in rows.values() if run.started_at and run.status is RunStatus.RUNNING), None)

    run = await eventually(look)
    assert run is not None
    assert run.worker == harness.client.identity
    assert (await end_of(harness, "busy")).status is RunStatus.SUCCESS


async def test_a_queue_that_nobody_polls_is_said_so_within_seconds(harness: Harness) -> None:
    """In the run's row, while it waits; when its time is over it is dead as not started."""
    run = await until_shown(harness, "no_worker", "no worker polls")
    assert (run.status, run.reason) == (RunStatus.PENDING, f"no worker polls task queue {EMPTY_QUEUE}")
    ended = await end_of(harness, "no_worker")
    assert ended.status is RunStatus.DEAD
    assert (ended.reason or "").startswith("not_started")
    assert ended.started_at is None


async def test_a_run_waits_for_a_worker_that_comes_late(harness: Harness) -> None:
    """As long as its queue timeout allows, without using up an attempt."""
    await until_shown(harness, "late_worker", "no worker polls")
    async with Worker(harness.client, task_queue=LATE_QUEUE, activities=[plain]):
        run = await end_of(harness, "late_worker")
    assert (run.status, run.attempt, run.result) == (RunStatus.SUCCESS, 1, "fence True")


async def test_an_activity_that_no_worker_knows_is_parked_and_runs_when_one_does(harness: Harness) -> None:
    """A rolling deploy: the reason is in the row, and no attempt is used up."""
    async with Worker(harness.client, task_queue=DEPLOYED_QUEUE, activities=[silent]):
        parked = await until_shown(harness, "unknown", "unknown_activity")
    assert (parked.status, parked.attempt) == (RunStatus.PARKED, 0)
    async with Worker(harness.client, task_queue=DEPLOYED_QUEUE, activities=[plain]):
        run = await end_of(harness, "unknown")
    assert (run.status, run.attempt) == (RunStatus.SUCCESS, 1)
    assert attempts_of(harness, "unknown") == [AttemptStatus.SUCCESS]


async def test_a_failing_attempt_is_tried_again_until_it_succeeds(harness: Harness) -> None:
    """Every attempt is a row, with one idempotency key and rising fences."""
    run = await end_of(harness, "recovers")
    assert (run.status, run.attempt, run.result, run.failure) == (RunStatus.SUCCESS, 3, "at last", None)
    assert attempts_of(harness, "recovers") == [AttemptStatus.FAILED, AttemptStatus.FAILED, AttemptStatus.SUCCESS]
    calls = harness.code.of(harness.named["recovers"])
    assert [call.run.attempt for call in calls] == [1, 2, 3]
    assert len({call.run.idempotency_key for call in calls}) == 1
    fences = [call.run.fence for call in calls]
    assert fences == sorted(set(fences))
    waits = [later.began - earlier.began for earlier, later in pairwise(calls)]
    assert min(waits) >= timedelta(seconds=0.9)


async def test_a_retry_costs_at_most_six_writes_of_workflow_state(harness: Harness) -> None:
    """As the server counts them: what a job with five retries takes more than one with none."""
    retries = (await end_of(harness, "retried")).attempt - (await end_of(harness, "at_once")).attempt
    assert retries == 5
    more = await state_writes(harness, "retried") - await state_writes(harness, "at_once")
    assert more <= 6 * retries, f"{more} writes for {retries} retries"


async def state_writes(harness: Harness, name: str) -> int:
    """How often the server has written the state of a job's workflow, up to its end."""
    handle = harness.handle(harness.named[name])
    await handle.result()
    described = await handle.describe()
    return described.raw_description.workflow_execution_info.state_transition_count


async def test_a_run_is_dead_when_its_attempts_are_used_up(harness: Harness) -> None:
    """With the last error, and the job goes on to its end."""
    run = await end_of(harness, "dies")
    assert (run.status, run.attempt) == (RunStatus.DEAD, 3)
    assert run.failure is not None
    assert (run.failure.type, run.failure.message) == ("ValueError", "attempt 3")
    assert attempts_of(harness, "dies") == [AttemptStatus.FAILED] * 3
    await eventually(lambda: harness.mirror.jobs[harness.named["dies"]].counts.dead == 1)


async def test_a_permanent_error_is_not_tried_again(harness: Harness) -> None:
    """The job's code knows best."""
    run = await end_of(harness, "permanent")
    assert (run.status, run.attempt) == (RunStatus.DEAD, 1)
    assert len(harness.code.of(harness.named["permanent"])) == 1


async def test_an_attempt_that_takes_too_long_has_timed_out(harness: Harness) -> None:
    """``timeout_seconds``."""
    run = await end_of(harness, "slow")
    assert (run.status, run.failure and run.failure.type) == (RunStatus.DEAD, "timeout")
    assert attempts_of(harness, "slow") == [AttemptStatus.TIMED_OUT]


async def test_a_worker_that_falls_silent_is_lost(harness: Harness) -> None:
    """``heartbeat_timeout_seconds``, long before the attempt's own timeout."""
    run = await end_of(harness, "lost")
    assert (run.status, run.failure and run.failure.type) == (RunStatus.DEAD, "lost")
    assert attempts_of(harness, "lost") == [AttemptStatus.LOST]


async def test_a_worker_that_knows_nothing_of_reports_can_run_jobs(harness: Harness) -> None:
    """Its bare answer is the result."""
    run = await end_of(harness, "plain")
    assert (run.status, run.result, run.worker) == (RunStatus.SUCCESS, "fence True", None)


async def test_an_answer_that_is_not_json_does_not_stop_the_job(harness: Harness) -> None:
    """A worker in another language may answer with anything."""
    run = await end_of(harness, "bytes")
    assert run.status in (RunStatus.SUCCESS, RunStatus.DEAD)
    [history] = await harness.histories(harness.named["bytes"])
    assert "workflow_task_failed" not in kinds_of(history)
