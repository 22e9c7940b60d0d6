"""Celery beat on Redis: beat inside one worker with a hundred threads."""

import time
from datetime import UTC, datetime, timedelta

from celery import Celery
from celery.schedules import crontab
from celery.signals import worker_ready

from tests.bench.others.workload import Workload, job_name, read_workload, run_noop

WORK = read_workload()

app = Celery("bench", broker=WORK.store)


@app.task(name="noop", ignore_result=True)
def noop(job_id: str) -> None:
    """Run in a thread of the pool. Beat tells nobody for which time it sends."""
    run_noop(job_id, WORK.due or time.time(), work=WORK.work)


@worker_ready.connect
def tell(**_: object) -> None:
    """Say that the worker takes tasks."""
    WORK.ready_file.touch()


def _schedule(load: Workload) -> timedelta | crontab:
    if load.due:
        due = datetime.fromtimestamp(load.due, UTC)
        return crontab(minute=str(due.minute), hour=str(due.hour))
    return timedelta(seconds=load.period)


app.conf.timezone = "UTC"
app.conf.worker_prefetch_multiplier = 4
app.conf.beat_schedule = {
    job_name(number): {"task": "noop", "schedule": _schedule(WORK), "args": (job_name(number),)}
    for number in range(WORK.jobs)
}
