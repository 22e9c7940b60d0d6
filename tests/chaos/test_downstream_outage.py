"""A downstream fails while many runs wait for it: it is left alone, and afterwards every run completes, without a second wave."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from activities.database import open_database
from activities.queries import Queries, RunFilter
from tests.chaos.stack import Stack, register
from tests.eventually import eventually
from workflows.job import JobDefinition
from workflows.run import Run, RunStatus
from workflows.schedule import OneOffRule, Schedule
from workflows.target import ActivityTarget

pytestmark = pytest.mark.slow

LONG = os.environ.get("HORARIUM_CHAOS") == "long"
RUNS = 2000 if LONG else 150
OUTAGE = timedelta(minutes=5) if LONG else timedelta(seconds=25)
OPEN_FOR = 30 if LONG else 3
LONGEST_OPEN = 120 if LONG else 6
RETURN_RATE = 20
COMPLETE_WITHIN = timedelta(seconds=LONGEST_OPEN * 3 + 4 * RUNS / RETURN_RATE + 30)
FAILURES_TO_OPEN = 20
BUDGET_FLOOR = 5
SCHEDULERS = 2

JOB_CODE = '''
"""A job that calls a downstream, which is down while a file says so. Every call is written down outside of Horarium."""

import time
from pathlib import Path

from temporalio import activity

SINK = Path("{sink}")


@activity.defn
async def call_bank() -> None:
    """Call it."""
    down = (SINK / "down").exists()
    with (SINK / "calls").open("a") as calls:
        calls.write(f"{{time.time()}} {{'down' if down else 'up'}}\\n")
    if down:
        raise ConnectionError("the bank does not answer")
'''


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    """Where the downstream's calls are counted."""
    sink = tmp_path / "sink"
    sink.mkdir()
    (sink / "down").touch()
    return sink


@pytest.fixture
async def stack(tmp_path: Path, postgresql_url: str, sink: Path) -> AsyncIterator[Stack]:
    """Two scheduler workers and a job worker."""
    stack = Stack(
        tmp_path,
        database_url=postgresql_url,
        activities="bank_jobs",
        breaker_failures=str(FAILURES_TO_OPEN),
        breaker_open=str(OPEN_FOR),
        breaker_longest_open=str(LONGEST_OPEN),
        retry_budget_floor=str(BUDGET_FLOOR),
        readmission_rate=str(RETURN_RATE),
    )
    try:
        for name, role in (("scheduler-1", "scheduler"), ("scheduler-2", "scheduler"), ("job", "job")):
            (tmp_path / name).mkdir()
            (tmp_path / name / "bank_jobs.py").write_text(JOB_CODE.format(sink=sink))
            await stack.start_worker(name, role=role)
        yield stack
    finally:
        stack.stop()


@pytest.mark.timeout(1200 if LONG else 200)
async def test_a_dead_downstream_is_left_alone_and_every_run_completes(
    stack: Stack, postgresql_url: str, sink: Path
) -> None:
    """Attempts while it is down stay within what opens the breakers, the budget and the probes; then all complete."""
    client = await stack.connect()
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=RUNS / 25 + 10)
    for number in range(RUNS):
        await register(client, f"pay-{number}", payment(due))
    assert datetime.now(UTC) < due, "registered too slowly"
    await asyncio.sleep(max(0.0, (due - datetime.now(UTC)).total_seconds()) + OUTAGE.total_seconds() / 2)
    await stack.kill_and_restart("scheduler-1")
    await asyncio.sleep(OUTAGE.total_seconds() / 2)
    while_down = calls(sink)
    (sink / "down").unlink()
    recovered = datetime.now(UTC).timestamp()

    queries = Queries(open_database(postgresql_url))
    runs = await eventually(
        lambda: all_ended(queries),
        limit=COMPLETE_WITHIN,
        every=timedelta(seconds=2),
    )
    statuses = Counter(run.status for run in runs)
    assert statuses == {RunStatus.SUCCESS: RUNS}, (statuses, Counter(run.reason for run in runs), stack.logs())

    processes = SCHEDULERS + 1
    probes = OUTAGE.total_seconds() / OPEN_FOR + 2
    in_flight = 2 * FAILURES_TO_OPEN
    bound = processes * (FAILURES_TO_OPEN + in_flight + BUDGET_FLOOR) + probes
    print(f"\n{len(while_down)} calls while down (at most {bound:.0f})")
    assert len(while_down) <= bound

    seconds = Counter(int(at) for at in calls(sink) if at >= recovered)
    print(f"after recovery: {sum(seconds.values())} calls, at most {max(seconds.values())} in a second")
    assert max(seconds.values()) <= SCHEDULERS * RETURN_RATE * 3, "no second wave"


def payment(at: datetime) -> JobDefinition:
    """A run of its own, that calls the bank."""
    return JobDefinition(
        name="call_bank",
        schedule=Schedule(rule=OneOffRule(at=at)),
        target=ActivityTarget(activity="call_bank"),
        downstream="bank",
        timeout=timedelta(seconds=10),
        heartbeat_timeout=timedelta(seconds=5),
    )


def calls(sink: Path) -> list[float]:
    """When the downstream was called."""
    return [float(line.split()[0]) for line in (sink / "calls").read_text().splitlines()]


async def all_ended(queries: Queries) -> list[Run]:
    """Every run, once all are final."""
    runs: list[Run] = []
    for number in range(RUNS):
        page = await queries.list_runs("default", f"pay-{number}", RunFilter(), limit=10)
        runs += [each.record.run for each in page.items]
    open_ones = [run for run in runs if run.finished_at is None]
    assert len(runs) == RUNS, f"{len(runs)} runs"
    assert not open_ones, f"{len(open_ones)} runs are open, such as {open_ones[0]}"
    return runs
