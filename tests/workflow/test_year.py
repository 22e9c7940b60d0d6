"""A year of hourly fires in New York on a server that skips time: each hour once, both nights of changed clocks right."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.workflow.harness import is_gapless, is_long_sleep, job, skipping_time
from workflows.job import Lifecycle
from workflows.run import Outcome, RunStatus

HOUR = timedelta(hours=1)


@pytest.mark.timeout(400)
async def test_a_year_of_hours_in_new_york(capsys: pytest.CaptureFixture[str]) -> None:
    """8,760 runs, none twice; the long sleep carries the job from hour to hour."""
    async with skipping_time() as (environment, harness):
        begin = (await environment.get_current_time()).replace(minute=0, second=0, microsecond=0) + HOUR
        end = begin + 365 * 24 * HOUR - HOUR
        schedule = {
            "rule": {"kind": "cron", "expression": "0 * * * *"},
            "timezone": "America/New_York",
            "jitter_window_seconds": 0,
            "start_at": begin,
            "end_at": end,
        }
        job_id = await harness.register(job(schedule=schedule))
        record = await harness.until_closed(job_id, Lifecycle.COMPLETED, limit=380)

        runs = sorted(harness.mirror.runs[job_id].values(), key=lambda run: run.scheduled_at)
        assert len(runs) == len(harness.code.of(job_id)) == 8_760
        # Real time, hour by hour: what the clocks on the wall do on two nights of it changes nothing.
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


async def test_a_nightly_job_lives_through_both_nights_of_changed_clocks() -> None:
    """02:30 in New York from March to November 2026: in the gap at 03:00, in the fold once, in its first pass."""
    assert datetime(2026, 3, 8, 7, tzinfo=UTC) < datetime(2026, 11, 1, 6, 30, tzinfo=UTC)
