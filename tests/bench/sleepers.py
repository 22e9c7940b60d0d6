"""Twenty thousand jobs that sleep the long way: what they hold while they sleep, and whether all of them fire on time.

Compressed in time and not in number. Nine in ten are put to sleep without waking a worker: started as the next run of a job that
continues as new with a backoff, with its plan in its state. Then they come due, spread over each second, at a rate that one
worker holds, for as long as is planned: on a slow machine some are still asleep at the end. Each has one fire.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.client import Client

from tests.bench.column import Column
from tests.bench.fire_log import BenchJob, look
from tests.bench.measure import Tell
from tests.bench.result import Sleepers
from tests.bench.stand import Stand, define, standing
from tests.chaos.stack import register
from tests.eventually import eventually
from workflows.contracts import JOB_WORKFLOW, WORKFLOW_TASK_TIMEOUT, job_workflow_id
from workflows.job import DEFAULT_TENANT, JobInput, JobState, Tuning
from workflows.planner import make_plan
from workflows.target import DEFAULT_TASK_QUEUE
from workflows.visibility import job_memo, job_search_attributes
from workflows.wake import plan_request

AT_ONCE = 24
"""Starts on the way."""

ASLEEP_WITHIN = timedelta(minutes=1)
"""The last of those that are registered as usual."""

SETTLED_WITHIN = 10
"""Seconds from the last start until the first job is due."""

PROBES = 200
"""Jobs started first, due in a year, to see how many a second this machine starts."""

START_SLACK = 1.3
"""Times as long as starting should take, before the first job is due."""

YEAR = 365 * 86_400

GIVE_UP_AFTER = 30
"""Seconds without any fire."""

DAY = 86_400

TUNING = Tuning(long_sleep_threshold=timedelta(seconds=1))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many, and how compressed."""

    jobs: int
    registered: int
    """Of them, as anybody registers them: woken, planned, mirrored and put to sleep by the worker."""

    start_rate: float
    """Jobs a second that are taken in, about; what is found decides when the first one is due."""

    fire_rate: int
    """Jobs due in each second."""

    fire_seconds: int
    """In which they come due."""

    @property
    def due(self) -> int:
        """Jobs that come due."""
        return min(self.jobs, self.fire_rate * self.fire_seconds)


async def measure_sleepers(plan: Plan, tell: Tell) -> Sleepers:
    """Put them to sleep, look, and let them fire."""
    async with standing(Column.LONG_SLEEP) as stand:
        databases, server = stand.database_bytes(), stand.memory()[0]
        start_rate = await _probe(stand.client, tell)
        first_due = math.ceil(time.time() + START_SLACK * plan.jobs / start_rate + SETTLED_WITHIN)
        jobs = [BenchJob(f"sleeper-{n}", DAY, first_due + n // plan.fire_rate) for n in range(plan.jobs)]
        usual, others = jobs[: plan.registered], jobs[plan.registered :]
        begin = time.time()
        await _start_all(usual, _register(stand.client), tell)
        await eventually(lambda: stand.count_jobs() >= len(usual), limit=ASLEEP_WITHIN)
        mirror = stand.database_bytes()[1] - databases[1]
        before = stand.memory()[1]
        await _start_all(others, _put_to_sleep(stand.client), tell)
        started = time.time() - begin
        asleep, database = stand.memory(), stand.database_bytes()[0] - databases[0]
        asleep_at_once = plan.jobs - len(stand.log.starts())
        due = jobs[: plan.due]
        tenth = await _let_fire(stand, due[: plan.due // 10], tell)
        tenth_fired = stand.memory()[1]
        last = max(tenth, await _let_fire(stand, due, tell))
        seen = look(stand.log, due, first_due, due[-1].offset + 1)
        return Sleepers(
            jobs=plan.jobs,
            due=plan.due,
            asleep_at_once=asleep_at_once,
            started_a_second=plan.jobs / started,
            worker_bytes_before=before,
            worker_bytes_asleep=asleep[1],
            worker_bytes_tenth_fired=tenth_fired,
            worker_bytes_fired=stand.memory()[1],
            server_bytes=(asleep[0] - server) / plan.jobs,
            database_bytes=database / plan.jobs,
            mirror_bytes=mirror / max(1, len(usual)),
            fires_a_second=len(seen.lateness) / max(1.0, last - first_due),
            lateness=seen.lateness,
            lost=seen.lost,
            repeated=seen.repeated,
        )


async def _probe(client: Client, tell: Tell) -> float:
    """Start a few, and say how many a second that were."""
    due = int(time.time()) + YEAR
    begin = time.time()
    await _start_all([BenchJob(f"probe-{n}", DAY, due) for n in range(PROBES)], _put_to_sleep(client), tell)
    return PROBES / (time.time() - begin)


async def _start_all(jobs: Sequence[BenchJob], start: Callable[[BenchJob], Awaitable[None]], tell: Tell) -> None:
    free = asyncio.Semaphore(AT_ONCE)
    async with asyncio.TaskGroup() as group:
        for number, job in enumerate(jobs):
            await free.acquire()
            if number % 100 == 0:
                tell(f"{number:,} of {len(jobs):,} are started")
            group.create_task(_start(job, start, free))


async def _start(job: BenchJob, start: Callable[[BenchJob], Awaitable[None]], free: asyncio.Semaphore) -> None:
    try:
        await start(job)
    finally:
        free.release()


def _register(client: Client) -> Callable[[BenchJob], Awaitable[None]]:
    return lambda job: register(client, job.job_id, define(job, jitter=1, max_runs=1))


def _put_to_sleep(client: Client) -> Callable[[BenchJob], Awaitable[None]]:
    """Start a job's workflow as the run that sleeps until its fire, as continue-as-new would."""

    async def start(job: BenchJob) -> None:
        now = datetime.now(UTC)
        state = _planned(job, now)
        assert state.plan is not None
        due = state.plan.upcoming[0].target
        await client.start_workflow(
            JOB_WORKFLOW,
            JobInput(state=state, sleep_until=due, resumed=True),
            id=job_workflow_id(tenant=DEFAULT_TENANT, job_id=job.job_id),
            task_queue=DEFAULT_TASK_QUEUE,
            task_timeout=WORKFLOW_TASK_TIMEOUT,
            start_delay=max(due - datetime.now(UTC), timedelta()),
            memo=job_memo(state),
            search_attributes=job_search_attributes(state),
        )

    return start


def _planned(job: BenchJob, now: datetime) -> JobState:
    state = JobState(
        job_id=job.job_id,
        definition=define(job, jitter=1, max_runs=1),
        registered_at=now,
        high_water=now,
        version=int(now.timestamp() * 1_000_000),
    )
    return state.model_copy(update={"plan": make_plan(plan_request(state, now=now), tuning=TUNING)})


async def _let_fire(stand: Stand, jobs: Sequence[BenchJob], tell: Tell) -> float:
    """Wait until as many have fired as there are jobs, and say when the last of them did; no longer than there is hope."""
    quiet_since, count = time.time(), len(stand.log.starts())
    while count < len(jobs) and time.time() < max(quiet_since, jobs[-1].offset) + GIVE_UP_AFTER:
        await asyncio.sleep(0.5)
        begun = len(stand.log.starts())
        if begun > count:
            quiet_since, count = time.time(), begun
        tell(f"{count:,} have fired")
    return quiet_since
