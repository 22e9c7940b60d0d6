"""After two hours without any scheduler: live fires are on time, what was missed follows each job's policy, in its own time."""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import pytest
from temporalio.client import Client

from activities.queries import Queries
from tests.chaos.downtime import aligned, all_told, check_counts, check_rate_of_job, count_outcomes
from tests.chaos.stack import Stack
from tests.eventually import eventually
from workflows.contracts import JOB_WORKFLOW, WORKFLOW_TASK_TIMEOUT, job_workflow_id
from workflows.job import CatchUpPolicy, JobDefinition, JobInput, JobState
from workflows.run import Run, RunKind, RunStatus
from workflows.schedule import IntervalRule, Schedule
from workflows.target import DEFAULT_TASK_QUEUE, ActivityTarget

pytestmark = pytest.mark.slow

LONG: Final = os.environ.get("HORARIUM_CHAOS") == "long"

JOBS: Final = 500 if LONG else 50
PERIOD: Final = timedelta(seconds=60 if LONG else 6)
"""Either way 500 fires a minute; in the short form an hour is six minutes long."""

MISSED: Final = 120
"""Fires of each job in the two hours."""

CERTAINLY_MISSED: Final = MISSED - 2
"""The last ones may still be live when the job wakes."""

OBSERVED: Final = 3 * PERIOD if LONG else 4 * PERIOD
SETTLED_AFTER: Final = timedelta(seconds=20 if LONG else 12)
"""All jobs wake at once and plan, on a machine that may have two cores."""

MAX_MISSED: Final = 10
CATCH_UP_RATE: Final = 60
WORKERS: Final = ("worker-1", "worker-2")
RATE_OF_PROCESS: Final = 5 if LONG else 2
"""Starts of the catch-up lane a second, over all jobs."""

GRACE: Final = PERIOD
MAX_DELAY: Final = PERIOD
CAUGHT_UP_WITHIN: Final = timedelta(seconds=300 if LONG else 60)

SHARES: Final = (
    (CatchUpPolicy.SKIP, 0.4),
    (CatchUpPolicy.RUN_ONCE, 0.3),
    (CatchUpPolicy.DEADLINE, 0.2),
    (CatchUpPolicy.RUN_ALL, 0.1),
)


@pytest.fixture
async def stack(tmp_path: Path, postgresql_url: str) -> AsyncIterator[Stack]:
    """Temporal, and no worker yet."""
    stack = Stack(tmp_path, database_url=postgresql_url, catch_up_per_second=str(RATE_OF_PROCESS))
    try:
        yield stack
    finally:
        stack.stop()


@pytest.mark.timeout(900)
async def test_two_hours_of_downtime_are_caught_up_without_a_late_fire(stack: Stack, queries: Queries) -> None:
    """500 jobs a minute, of all policies, whose last decision was two hours ago when the scheduler comes."""
    client = await stack.connect()
    down_since = aligned(datetime.now(UTC), PERIOD) - MISSED * PERIOD
    jobs = {
        f"{policy.value.lower()}-{number}": policy for policy, share in SHARES for number in range(int(share * JOBS))
    }
    assert len(jobs) == JOBS
    for job_id, policy in jobs.items():
        await go_on(client, job_id, definition_of(policy), high_water=down_since)
    await asyncio.gather(*(stack.start_worker(name, role="both") for name in WORKERS))
    up_since = datetime.now(UTC)
    await asyncio.sleep((SETTLED_AFTER + OBSERVED).total_seconds())
    until = datetime.now(UTC)

    runs, ledger = {}, {}
    for job_id in jobs:
        runs[job_id], ledger[job_id] = await eventually(
            lambda job_id=job_id: all_told(queries, job_id, until, PERIOD),  # type: ignore[misc]
            limit=CAUGHT_UP_WITHIN,
            every=timedelta(seconds=1),
        )
    for job_id, policy in jobs.items():
        check_counts(
            definition_of(policy),
            runs[job_id],
            ledger[job_id],
            period=PERIOD,
            after=down_since,
            until=until,
            missed=CERTAINLY_MISSED,
        )

    everything = [run for of_job in runs.values() for run in of_job]
    assert {run.status for run in everything} == {RunStatus.SUCCESS}
    check_rate([run for run in everything if run.kind is RunKind.CATCH_UP])
    for of_job in runs.values():
        check_rate_of_job([run for run in of_job if run.kind is RunKind.CATCH_UP], per_minute=CATCH_UP_RATE)
    live = [run for run in everything if up_since + SETTLED_AFTER <= run.target_at <= until]
    late = sorted((run.dispatched_at - run.target_at).total_seconds() for run in live if run.dispatched_at)
    outcomes = count_outcomes([entry for of_job in ledger.values() for entry in of_job])
    print(
        f"\n{JOBS} jobs, {MISSED} fires of each missed; outcomes: {', '.join(f'{o.value} {n}' for o, n in outcomes.items())}; "
        f"{sum(run.kind is RunKind.CATCH_UP for run in everything)} catch-up runs; {len(live)} live fires, lateness p50 "
        f"{median(late):.3f} s, p99 {quantiles(late, n=100)[98]:.3f} s, most {late[-1]:.3f} s"
    )
    assert median(late) < 1
    assert late[-1] < PERIOD.total_seconds() / 2, "no live fire was late"


def definition_of(policy: CatchUpPolicy) -> JobDefinition:
    """A job; all are spread over the period by their jitter."""
    values: dict[str, Any] = {
        "name": "noop",
        "schedule": Schedule(rule=IntervalRule(every=PERIOD), jitter_window_seconds=PERIOD.total_seconds() - 1),
        "target": ActivityTarget(activity="noop"),
        "missed_window": policy,
        "misfire_grace": GRACE,
        "max_missed": MAX_MISSED,
        "catch_up_rate": CATCH_UP_RATE,
        "max_delay": MAX_DELAY if policy is CatchUpPolicy.DEADLINE else None,
    }
    return JobDefinition.model_validate(values)


async def go_on(client: Client, job_id: str, definition: JobDefinition, *, high_water: datetime) -> None:
    """Start a job as ``horarium restore`` does, with everything decided up to a time."""
    state = JobState(
        job_id=job_id,
        definition=definition,
        registered_at=high_water - PERIOD,
        high_water=high_water,
        version=int(high_water.timestamp() * 1_000_000),
    )
    await client.start_workflow(
        JOB_WORKFLOW,
        JobInput(state=state, resumed=True),
        id=job_workflow_id(tenant=state.tenant, job_id=job_id),
        task_queue=DEFAULT_TASK_QUEUE,
        task_timeout=WORKFLOW_TASK_TIMEOUT,
    )


def check_rate(caught_up: list[Run]) -> None:
    """All jobs together start their catch-up runs no faster than the processes may."""
    together = sorted(run.dispatched_at for run in caught_up if run.dispatched_at)
    span = (together[-1] - together[0]).total_seconds()
    assert span >= (len(together) - 2 * len(WORKERS)) / (RATE_OF_PROCESS * len(WORKERS)) - 1
