"""Workers die amid a backfill: every fire of its range has one run all the same, and the backfill knows of each."""

import random
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path

import pytest
from temporalio.client import Client

from activities.backfill_control import BackfillControl
from activities.database import open_database
from activities.queries import Queries, RunFilter
from tests.chaos.stack import TEMPORAL, Stack, register
from tests.eventually import eventually
from workflows.backfill import BackfillState, first_record
from workflows.backfill_record import BackfillRecord, BackfillStatus
from workflows.job import JobDefinition
from workflows.run import FINAL_STATUSES, Run, RunKind
from workflows.schedule import IntervalRule, Schedule
from workflows.target import ActivityTarget

pytestmark = pytest.mark.slow

FIRES = 60
KILLS = 8
HOUR = timedelta(hours=1)
NIGHT = datetime(2026, 6, 1, tzinfo=UTC)

HOURLY = JobDefinition(
    name="noop",
    schedule=Schedule(rule=IntervalRule(every=HOUR), jitter_window_seconds=0),
    target=ActivityTarget(activity="noop"),
    timeout=timedelta(seconds=10),
    heartbeat_timeout=timedelta(seconds=2),
)


@pytest.fixture
async def stack(tmp_path: Path, postgresql_url: str) -> AsyncIterator[Stack]:
    """A scheduler worker and a job worker; at most two runs of the lane begin in a second, so that it takes its time."""
    stack = Stack(tmp_path, database_url=postgresql_url, catch_up_per_second="2")
    try:
        for name, role in (("scheduler", "scheduler"), ("job", "job")):
            await stack.start_worker(name, role=role)
        yield stack
    finally:
        stack.stop()


async def begin(client: Client, *, backfill_id: str, first: int = 0) -> BackfillRecord:
    """Ask for a backfill, as the API does."""
    start = NIGHT + first * HOUR
    times = {"start": start, "end": start + (FIRES - 1) * HOUR, "requested_at": datetime.now(UTC)}
    about = {"tenant": "default", "job_id": "hourly", "backfill_id": backfill_id, "total": FIRES, "max_concurrent": 4}
    record = first_record(BackfillRecord.model_validate(about | times))
    await BackfillControl(client).begin(BackfillState(record=record, definition=HOURLY, history_limit=100))
    return record


@pytest.mark.timeout(600)
async def test_kill_nine_amid_a_backfill_loses_and_doubles_no_fire(stack: Stack, postgresql_url: str) -> None:
    """Of scheduler, job worker and Temporal in turn, while two backfills go on whose ranges overlap."""
    await register(await stack.connect(), "hourly", HOURLY)
    queries = Queries(open_database(postgresql_url))
    await eventually(lambda: queries.get_job("default", "hourly"))
    client = await stack.connect()
    asked = [await begin(client, backfill_id="one"), await begin(client, backfill_id="other", first=FIRES // 2)]
    chance = random.Random(20261130)
    for victim in islice(cycle(["scheduler", "job", "scheduler", TEMPORAL]), KILLS):
        await eventually(lambda: has_begun_more(queries), limit=timedelta(seconds=60))
        await stack.kill_and_restart(victim)
        await eventually(lambda: has_begun_more(queries, than=chance.randint(0, 3)), limit=timedelta(seconds=60))

    async def are_done() -> list[BackfillRecord]:
        found = [await queries.get_backfill("default", each.backfill_id) for each in asked]
        assert all(each is not None and each.status is BackfillStatus.DONE for each in found), (found, stack.logs())
        return [each for each in found if each is not None]

    done = await eventually(are_done, limit=timedelta(seconds=240))
    runs = await all_runs(queries)
    expected = Counter(NIGHT + n * HOUR for n in range(FIRES + FIRES // 2))
    assert Counter(run.scheduled_at for run in runs) == expected
    assert {run.status for run in runs} <= FINAL_STATUSES
    fences = [run.fence for run in runs]
    assert len(fences) == len(set(fences))
    for each in done:
        assert each.succeeded + each.dead + each.skipped == FIRES
        assert each.cancelled == 0
    assert sum(each.succeeded + each.dead for each in done) == len(runs)
    print(f"\n{KILLS} processes killed amid two backfills of {FIRES} fires that overlap: {len(runs)} runs, once each")


async def has_begun_more(queries: Queries, *, than: int = 0) -> bool:
    """Whether there are more runs than so many."""
    return len(await all_runs(queries)) > than


async def all_runs(queries: Queries) -> list[Run]:
    """The backfilled runs that the mirror knows."""
    page = await queries.list_runs("default", "hourly", RunFilter(), limit=1000)
    return [each.record.run for each in page.items if each.record.run.kind is RunKind.BACKFILL]
