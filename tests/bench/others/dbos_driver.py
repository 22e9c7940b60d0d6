"""DBOS on PostgreSQL: one process that schedules and works."""

import threading
from datetime import UTC, datetime

from dbos import DBOS

from tests.bench.others.workload import Workload, job_name, read_workload, run_noop

WORK = read_workload()


@DBOS.workflow()
def noop(due: datetime, job_id: str) -> None:
    """Run as a durable workflow."""
    run_noop(job_id, due.timestamp(), work=WORK.work)


def main(load: Workload) -> None:
    """Create the schedules that are not there yet, and serve."""
    DBOS(
        config={
            "name": "bench",
            "system_database_url": load.store,
            "log_level": "ERROR",
            "scheduler_polling_interval_sec": 1.0,
        }
    )
    DBOS.launch()
    there = {schedule["schedule_name"] for schedule in DBOS.list_schedules()}
    for number in range(load.jobs):
        if job_name(number) not in there:
            DBOS.create_schedule(
                schedule_name=job_name(number), workflow_fn=noop, schedule=_cron(load, number), context=job_name(number)
            )
    load.ready_file.touch()
    threading.Event().wait()


def _cron(load: Workload, number: int) -> str:
    if load.due:
        due = datetime.fromtimestamp(load.due, UTC)
        return f"{due.second} {due.minute} {due.hour} * * *"
    return f"{number % load.period}-59/{load.period} * * * * *"


if __name__ == "__main__":
    main(WORK)
