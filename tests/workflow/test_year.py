"""A year in New York on a server that skips time: every hour once, and both nights of changed clocks right."""

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.workflow.harness import is_gapless, is_long_sleep, job, skipping_time
from workers.settings import Settings
from workers.workflow_runner import plain_runner
from workflows.job import Lifecycle
from workflows.run import Outcome, RunStatus

pytestmark = pytest.mark.slow

HOUR = timedelta(hours=1)
YEAR = 365 * 24 * HOUR
NEW_YORK = ZoneInfo("America/New_York")


@pytest.fixture(autouse=True)
def without_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its price would be paid at each of thousands of continuations."""
    monkeypatch.setattr("workers.worker.strict_runner", plain_runner)


def in_new_york(expression: str, *, begin: datetime, end: datetime) -> dict[str, object]:
    """A schedule without jitter, both ends inclusive."""
    return {
        "rule": {"kind": "cron", "expression": expression},
        "timezone": "America/New_York",
        "jitter_window_seconds": 0,
        "start_at": begin,
        "end_at": end,
    }


@pytest.mark.timeout(600)
async def test_a_year_of_hours(capsys: pytest.CaptureFixture[str]) -> None:
    """8,760 runs, none twice; the long sleep carries the job from hour to hour."""
    async with skipping_time(tuning=Settings().tuning(search_attributes=False)) as (environment, harness):
        begin = (await environment.get_current_time()).replace(minute=0, second=0, microsecond=0) + HOUR
        end = begin + YEAR - HOUR
        job_id = await harness.register(job(schedule=in_new_york("0 * * * *", begin=begin, end=end)))
        record = await harness.until_closed(job_id, Lifecycle.COMPLETED, limit=580)

        runs = sorted(harness.mirror.runs[job_id].values(), key=lambda run: run.scheduled_at)
        assert len(runs) == len(harness.code.of(job_id)) == 8_760
        # Real time, hour by hour: what the clocks on the wall do in two of its nights changes nothing.
        assert (runs[0].scheduled_at, runs[-1].scheduled_at) == (begin, end)
        assert is_gapless([run.scheduled_at for run in runs], HOUR)
        assert {(run.status, run.outcome) for run in runs} == {(RunStatus.SUCCESS, Outcome.RAN)}
        assert harness.mirror.ledger == {}
        assert (record.counts.started, record.counts.succeeded) == (8_760, 8_760)

        histories = await harness.histories(job_id)
        sleeps = sum(map(is_long_sleep, histories))
        longest = max(len(history.events) for history in histories)
        with capsys.disabled():
            print(f"\n{len(runs)} runs, {sleeps} long sleeps, longest history {longest} events")
        assert sleeps >= 8_700
        assert longest < 500


async def test_a_year_of_nights() -> None:
    """In one of them 02:30 does not exist, and the run comes at 03:00; in another 01:30 comes twice, and the run once."""
    async with skipping_time() as (environment, harness):
        begin = (await environment.get_current_time()).replace(minute=0, second=0, microsecond=0) + HOUR
        jobs = {
            hour: await harness.register(job(schedule=in_new_york(f"30 {hour} * * *", begin=begin, end=begin + YEAR)))
            for hour in (1, 2)
        }
        for hour, job_id in jobs.items():
            await harness.until_closed(job_id, Lifecycle.COMPLETED, limit=100)
            ran = sorted(run.scheduled_at for run in harness.mirror.runs[job_id].values())
            assert ran == nights_of(hour, begin=begin, end=begin + YEAR)


def nights_of(hour: int, *, begin: datetime, end: datetime) -> list[datetime]:
    """Walk the year by half hours: each first half past the hour on the wall, or where the clocks jump over it."""
    found: dict[date, datetime] = {}
    moment, before = begin, (0, 0)
    while moment <= end:
        local = moment.astimezone(NEW_YORK)
        wall = (local.hour, local.minute)
        if wall == (hour, 30) or (before < (hour, 30) < wall < (hour + 2, 0) and moment > begin):
            found.setdefault(local.date(), moment)
        moment, before = moment + HOUR / 2, wall
    return list(found.values())
