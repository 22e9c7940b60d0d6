"""A worker's clock is off by ten minutes: jobs fire by Temporal's clock, neither early nor late, and their rows make sense."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from activities.queries import Queries, RunFilter
from tests.chaos.stack import Stack, register
from tests.eventually import eventually
from tests.wrong_clock import clock_of_children
from workflows.contracts import scheduled_run_id
from workflows.job import JobDefinition, OverlapPolicy
from workflows.run import Outcome, Run, RunStatus
from workflows.schedule import IntervalRule, Schedule
from workflows.target import ActivityTarget

pytestmark = pytest.mark.slow

LONG = os.environ.get("HORARIUM_CHAOS") == "long"
TOGETHER = timedelta(seconds=60 if LONG else 12)
ALONE = timedelta(seconds=60 if LONG else 12)
"""The worker with the wrong clock: it decides and plans everything."""

JUST_BEFORE = timedelta(seconds=1)

SETTLED_AFTER = timedelta(seconds=5)
"""The first fires of a new stack meet cold caches, and so do those after the death of a worker."""

OFF_BY = timedelta(minutes=10)
ON_TIMER, SLEEPER = timedelta(seconds=3), timedelta(seconds=6)
LONG_SLEEP_FROM = "4"
ENDED_WITHIN = timedelta(seconds=40)
PUNCTUAL = timedelta(seconds=5)
"""For a busy machine; far less than what the clock is off."""

JOB_CODE = '''
"""A job that leaves a file for each call: the kernel dates it, whose clock is right."""

import os
from pathlib import Path

from temporalio import activity

from horarium import current_run

SINK = Path("{sink}")


@activity.defn
async def leave_trace() -> None:
    """Say which process was here, and when."""
    (SINK / current_run().run_id).write_text(str(os.getpid()))
'''


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    """Where the files are."""
    sink = tmp_path / "sink"
    sink.mkdir()
    return sink


@pytest.fixture(params=["ahead", "behind"])
async def stack(
    request: pytest.FixtureRequest, tmp_path: Path, postgresql_url: str, sink: Path
) -> AsyncIterator[Stack]:
    """Two workers for everything, one of whose clocks is wrong."""
    stack = Stack(tmp_path, database_url=postgresql_url, long_sleep_threshold=LONG_SLEEP_FROM, activities="trace_jobs")
    ahead = OFF_BY if request.param == "ahead" else -OFF_BY
    try:
        for name in ("right", "wrong"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "trace_jobs.py").write_text(JOB_CODE.format(sink=sink))
        await stack.start_worker("right", role="both")
        with clock_of_children(ahead=ahead):
            await stack.start_worker("wrong", role="both")
        yield stack
    finally:
        stack.stop()


@pytest.mark.timeout(240)
async def test_no_fire_is_early_or_late_by_a_workers_clock(stack: Stack, queries: Queries, sink: Path) -> None:
    """SB-113: beside a worker whose clock is right, and alone. By the file system's clock, and once each."""
    client = await stack.connect()
    jobs = {f"timer-{number}": ON_TIMER for number in range(3)} | {f"sleeper-{number}": SLEEPER for number in range(3)}
    for job_id, period in jobs.items():
        await register(client, job_id, tracing(period))
    begun = datetime.now(UTC) + SETTLED_AFTER
    await asyncio.sleep((SETTLED_AFTER + TOGETHER).total_seconds())
    stack.worker("right").process.kill()
    killed = datetime.now(UTC)
    await asyncio.sleep((ALONE + SETTLED_AFTER).total_seconds())
    ended = datetime.now(UTC)

    lateness = list[timedelta]()
    for job_id, period in jobs.items():
        runs = await eventually(
            lambda job_id=job_id, period=period: runs_of(queries, job_id, period, begun, ended),  # type: ignore[misc]
            limit=ENDED_WITHIN,
        )
        for run in runs:
            assert run.run_id == scheduled_run_id(job_id=job_id, nominal=run.scheduled_at)
            assert (run.status, run.outcome) == (RunStatus.SUCCESS, Outcome.RAN)
            assert run.dispatched_at is not None
            assert run.started_at is not None
            assert run.finished_at is not None
            assert run.started_at <= run.finished_at
            if run.attempt == 1:
                assert run.dispatched_at <= run.started_at, "what the wrong clock says is corrected"
            called_at = datetime.fromtimestamp((sink / run.run_id).stat().st_mtime, UTC)
            # The death of a worker delays what was due about then, by its time-outs and not by a clock.
            if not killed - JUST_BEFORE <= run.target_at <= killed + SETTLED_AFTER:
                lateness.append(called_at - run.target_at)
    by_worker = calls_by_worker(sink)
    wrong = by_worker[str(stack.worker("wrong").process.pid)]
    print(
        f"\n{len(lateness)} fires, {wrong} of {by_worker.total()} calls by the worker whose clock is wrong: "
        f"{min(lateness).total_seconds():.3f} to {max(lateness).total_seconds():.3f} s after they were due"
    )
    assert timedelta(0) <= min(lateness)
    assert max(lateness) < PUNCTUAL
    assert 0 < wrong < by_worker.total(), "both took part"


def calls_by_worker(sink: Path) -> Counter[str]:
    """How often each process was called, by its id."""
    return Counter(path.read_text() for path in sink.iterdir())


def tracing(period: timedelta) -> JobDefinition:
    """A job that leaves traces. A fire that its killed worker has delayed by a period keeps the next one from nothing."""
    return JobDefinition(
        name="leave_trace",
        schedule=Schedule(rule=IntervalRule(every=period), jitter_window_seconds=0),
        target=ActivityTarget(activity="leave_trace"),
        heartbeat_timeout=timedelta(seconds=3),
        overlap=OverlapPolicy.ALLOW,
    )


async def runs_of(queries: Queries, job_id: str, period: timedelta, start: datetime, end: datetime) -> list[Run]:
    """The runs of a job between two times, once there is one for each nominal time and all have ended."""
    page = await queries.list_runs("default", job_id, RunFilter(start=start, end=end), limit=1000)
    runs = sorted((each.record.run for each in page.items), key=lambda run: run.scheduled_at)
    assert len(runs) >= int((end - start) / period) - 1, f"{job_id}: {len(runs)} runs"
    assert all(run.finished_at for run in runs), f"{job_id}: not all have ended"
    assert all(later.scheduled_at - earlier.scheduled_at == period for earlier, later in pairwise(runs)), (
        f"{job_id}: a hole"
    )
    return runs
