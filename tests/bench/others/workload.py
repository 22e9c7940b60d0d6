"""What another scheduler's process is told, and the no-op that it runs. Standard library alone: its environment has not ours."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench.fire_log import note_fire

END = "end-"
"""Before the job's id in the line that says that the work is over."""


@dataclass(frozen=True)
class Workload:
    """Jobs, and when they are due."""

    jobs: int
    period: int
    """Seconds; job ``n`` is due in the second ``n % period`` of each."""

    due: int
    """Instead: the Unix time at which all are due once; 0 for none."""

    work: float
    """Seconds that a run takes."""

    store: str
    """URL of the database or broker."""

    ready_file: Path


def read_workload() -> Workload:
    """Read the environment."""
    return Workload(
        jobs=int(os.environ["BENCH_JOBS"]),
        period=int(os.environ["BENCH_PERIOD"]),
        due=int(os.environ["BENCH_DUE"]),
        work=float(os.environ["BENCH_WORK"]),
        store=os.environ["BENCH_STORE"],
        ready_file=Path(os.environ["BENCH_READY"]),
    )


def job_name(number: int) -> str:
    """Name a job."""
    return f"job-{number}"


def run_noop(job_id: str, due: float, *, work: float) -> None:
    """Say that the work begins, take its time, and say that it is over."""
    note_fire(job_id, due)
    if work:
        time.sleep(work)
        note_fire(f"{END}{job_id}", due)
