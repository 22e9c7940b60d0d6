"""The no-op as a job of Horarium: a module that its workers load."""

from typing import Any

from temporalio import activity

from horarium import JobRun
from tests.bench.fire_log import note_fire


@activity.defn
async def bench_noop(run: JobRun[Any]) -> None:
    """Do nothing but say that it began."""
    due = run.scheduled_at
    note_fire(run.job_id, due.timestamp(), jitter=(run.target_at - due).total_seconds())
