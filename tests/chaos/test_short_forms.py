"""Short forms of faults that befall schedulers and Temporal, one after the other on one stack; the long ones stand beside."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from activities.database import open_database
from activities.queries import Queries
from tests.chaos.stack import TEMPORAL, Stack, register
from tests.chaos.test_cluster_loss import all_decided, lose_temporal, restore, start_empty
from tests.chaos.test_kill_at_fire import ATTEMPTS, JOB_CODE, calls_in, is_amid, job, runs_of
from tests.chaos.test_kill_nine import grid, nominal_times
from tests.eventually import eventually
from tests.wrong_clock import clock_of_children
from workflows.run import FINAL_STATUSES, Run, RunStatus
from workflows.schedule import IntervalRule, OneOffRule

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORKER = "worker"
LONG_SLEEP_FROM = "1"
"""Seconds: less than the period, so that each fire ends in a continue-as-new."""

PERIOD = timedelta(seconds=2)
BURST = 20
PUNCTUAL = timedelta(seconds=20)
"""For a busy machine; far less than what the clock is off."""

WHILE_IT_DECIDES = timedelta(seconds=0.03)
"""After a fire is due."""

WHILE_IT_WAITS = timedelta(seconds=0.3)
"""After an attempt that fails: about a second lies between two."""


@pytest.fixture(scope="module")
def sink(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where calls are counted, outside of Horarium."""
    sink = tmp_path_factory.mktemp("sink") / "calls"
    sink.touch()
    return sink


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory, module_sqlite_url: str, sink: Path) -> AsyncIterator[Stack]:
    """A worker for everything."""
    folder = tmp_path_factory.mktemp("short")
    stack = Stack(
        folder, database_url=module_sqlite_url, long_sleep_threshold=LONG_SLEEP_FROM, activities="counted_jobs"
    )
    try:
        (folder / WORKER).mkdir()
        (folder / WORKER / "counted_jobs.py").write_text(JOB_CODE.format(sink=sink, attempts=ATTEMPTS))
        await stack.start_worker(WORKER, role="both")
        yield stack
    finally:
        stack.stop()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def queries(module_sqlite_url: str, stack: Stack) -> AsyncIterator[Queries]:
    """What people read."""
    engine = open_database(stack.database_url)
    yield Queries(engine)
    await engine.dispose()


async def test_a_scheduler_that_dies_amid_a_fire_loses_and_doubles_nothing(
    stack: Stack, queries: Queries, sink: Path
) -> None:
    """``kill -9`` while it decides and puts to sleep, and while a run waits between two attempts."""
    client = await stack.connect()
    await register(client, "retrier", job("fail_at_first", IntervalRule(every=PERIOD)))
    begun = datetime.now(UTC)
    [fire, *_] = grid(begun + PERIOD / 2, begun + 2 * PERIOD, PERIOD)
    await asyncio.sleep((fire + WHILE_IT_DECIDES - datetime.now(UTC)).total_seconds())
    await stack.kill_and_restart(WORKER)
    before = called(sink, "retrier")
    await eventually(lambda: called(sink, "retrier") - before, every=timedelta(milliseconds=20))
    await asyncio.sleep(WHILE_IT_WAITS.total_seconds())
    killed = datetime.now(UTC)
    await stack.kill_and_restart(WORKER)
    expected = grid(begun + PERIOD, datetime.now(UTC), PERIOD)
    entries = await eventually(lambda: all_decided(queries, "retrier", expected))
    told = nominal_times(entries, PERIOD)
    assert len(told) == len(set(told)), "one outcome each"
    assert set(expected) <= set(told), stack.logs()
    calls = calls_in(sink)
    assert max(calls.values()) == 1, "no attempt was made twice"
    ran = [run for run in await runs_of(queries, "retrier") if run.status is RunStatus.SUCCESS]
    assert ran
    for run in ran:
        assert [calls[run.run_id, number] for number in range(1, run.attempt + 1)] == [1] * run.attempt
    assert any(is_amid(run, killed) for run in ran), "it died amid the retries of a run"


async def test_a_server_that_dies_in_a_burst_accounts_for_all_its_fires(
    stack: Stack, queries: Queries, sink: Path
) -> None:
    """``kill -9`` of Temporal while many jobs that are due in one second are under way."""
    client = await stack.connect()
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
    names = [f"burst-{number}" for number in range(BURST)]
    await asyncio.gather(*(register(client, name, job("count", OneOffRule(at=due))) for name in names))
    await eventually(lambda: called(sink, "burst-"), every=timedelta(milliseconds=10))
    before = len(called(sink, "burst-"))
    await stack.kill_and_restart(TEMPORAL)

    async def all_ended() -> list[Run]:
        runs = [run for name in names for run in await runs_of(queries, name)]
        assert len(runs) == BURST, f"{len(runs)} runs"
        assert all(run.status in FINAL_STATUSES for run in runs)
        return runs

    runs = await eventually(all_ended)
    assert {run.status for run in runs} == {RunStatus.SUCCESS}
    assert max(calls_in(sink).values()) == 1, "no attempt was made twice"
    assert {run_id for run_id, _ in called(sink, "burst-")} == {run.run_id for run in runs}
    assert before < BURST, "it died amid the burst"


async def test_every_job_is_restored_from_the_database(stack: Stack, queries: Queries, sink: Path) -> None:
    """Temporal's disk is lost; ``horarium restore`` starts its jobs above what was decided, and nothing runs twice."""
    client = await stack.connect()
    await register(client, "lost", job("count", IntervalRule(every=PERIOD)))
    await eventually(lambda: succeeded(queries, "lost", at_least=1))
    known = {run.run_id: run.fence for run in await runs_of(queries, "lost")}
    lost_at = await lose_temporal(stack)
    await start_empty(stack)
    report = await restore(stack, stack.database_url, lost_at)
    assert report["started"] >= 1
    assert report["failed"] == []
    again = await restore(stack, stack.database_url, lost_at)
    assert (again["started"], again["lost_runs"], again["in_doubt"]) == (0, 0, 0)

    await eventually(lambda: succeeded(queries, "lost", at_least=len(known) + 1))
    first = min(run.scheduled_at for run in await runs_of(queries, "lost"))
    expected = grid(first, datetime.now(UTC), PERIOD)
    entries = await eventually(lambda: all_decided(queries, "lost", expected))
    told = nominal_times(entries, PERIOD)
    assert len(told) == len(set(told)), "one outcome each"
    assert set(expected) <= set(told)
    assert max(calls_in(sink).values()) == 1, "nothing ran twice"
    later = [run for run in await runs_of(queries, "lost") if run.run_id not in known and run.fence]
    assert min(run.fence for run in later) > max(known.values())


async def test_no_fire_is_early_or_late_by_a_workers_clock(stack: Stack, queries: Queries, sink: Path) -> None:
    """SB-113: the only worker's clock is ten minutes ahead. By the clock of this process, fires run when they are due."""
    with clock_of_children(ahead=timedelta(minutes=10)):
        await stack.kill_and_restart(WORKER)
    client = await stack.connect()
    registered = datetime.now(UTC)
    await register(client, "deceived", job("count", IntervalRule(every=PERIOD)))
    seen = dict[str, datetime]()

    def three_called() -> bool:
        for run_id, _ in called(sink, "deceived"):
            seen.setdefault(run_id, datetime.now(UTC))
        return len(seen) >= 3

    await eventually(three_called, every=timedelta(milliseconds=20))
    await eventually(lambda: succeeded(queries, "deceived", at_least=3))
    runs = sorted(await runs_of(queries, "deceived"), key=lambda run: run.scheduled_at)
    lateness = [seen[run.run_id] - run.target_at for run in runs if run.run_id in seen]
    assert timedelta(0) <= min(lateness)
    assert max(lateness) < PUNCTUAL
    assert runs[0].scheduled_at <= registered + 2 * PERIOD, "none was left out"


def called(sink: Path, job_id: str) -> Counter[tuple[str, int]]:
    """How often each attempt of the jobs whose id begins so was made."""
    return Counter({call: times for call, times in calls_in(sink).items() if job_id in call[0]})


async def succeeded(queries: Queries, job_id: str, *, at_least: int) -> bool:
    """Whether so many runs of a job have succeeded."""
    return sum(run.status is RunStatus.SUCCESS for run in await runs_of(queries, job_id)) >= at_least
