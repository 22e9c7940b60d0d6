"""APScheduler 4 on PostgreSQL: one process that schedules and works."""

import asyncio
from datetime import UTC, datetime

from apscheduler import AsyncScheduler, ConflictPolicy, TaskDefaults, current_job
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from sqlalchemy.ext.asyncio import create_async_engine

from tests.bench.others.workload import Workload, job_name, read_workload, run_noop

WORK = read_workload()


def noop() -> None:
    """Run in a thread of the pool."""
    job = current_job.get()
    run_noop(job.schedule_id, job.scheduled_fire_time.timestamp(), work=WORK.work)


async def main(load: Workload) -> None:
    """Add the schedules that are not there yet, and serve."""
    store = SQLAlchemyDataStore(create_async_engine(load.store.replace("postgresql://", "postgresql+asyncpg://")))
    # By default one run at a time of each function, whatever the number of schedules, and on the scheduler's own thread.
    defaults = TaskDefaults(job_executor="threadpool", max_running_jobs=load.jobs)
    async with AsyncScheduler(store, max_concurrent_jobs=100, task_defaults=defaults) as scheduler:
        for number in range(load.jobs):
            await scheduler.add_schedule(
                noop, _trigger(load, number), id=job_name(number), conflict_policy=ConflictPolicy.do_nothing
            )
        load.ready_file.touch()
        await scheduler.run_until_stopped()


def _trigger(load: Workload, number: int) -> DateTrigger | IntervalTrigger:
    if load.due:
        return DateTrigger(datetime.fromtimestamp(load.due, UTC))
    now = datetime.now(UTC).timestamp()
    first = now - now % load.period + load.period + number % load.period
    return IntervalTrigger(seconds=load.period, start_time=datetime.fromtimestamp(first // 1, UTC))


if __name__ == "__main__":
    asyncio.run(main(WORK))
