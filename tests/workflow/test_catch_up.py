"""What becomes of fires that came while no worker of workflows was there."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
import pytest_asyncio

from tests.eventually import eventually
from tests.workflow.harness import Harness, is_gapless, job, lateness, side_by_side, skipping_time
from workers.devserver import DevServer
from workflows.job import JobDefinition
from workflows.run import Outcome, RunKind
from workflows.schedule import IntervalRule, Schedule

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECOND = timedelta(seconds=1)
ENOUGH = timedelta(seconds=40)
AWAY = 6


def catching_up(missed_window: str, **fields: Any) -> JobDefinition:
    """A job of every second that is missed after a second."""
    return job(missed_window=missed_window, misfire_grace=SECOND, **fields)


JOBS = {
    "skip": catching_up("SKIP"),
    "once": catching_up("RUN_ONCE"),
    "all": catching_up("RUN_ALL", catch_up_rate=120),
    "all_bounded": catching_up("RUN_ALL", max_missed=2, catch_up_rate=120),
    "deadline": catching_up("DEADLINE", max_delay=2 * SECOND),
    "old": catching_up("RUN_ALL", lookback=3 * SECOND, catch_up_rate=120),
    "patient": job(missed_window="SKIP", overlap="allow", max_concurrent=50),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(temporal_server: DevServer) -> AsyncIterator[Harness]:
    """All jobs, after an absence of some seconds that each of them has noticed."""
    async with side_by_side(temporal_server, JOBS) as harness:
        hourly = await harness.register(hourly_from(await harness.now() + 2 * SECOND))
        for job_id in (hourly, *harness.named.values()):
            await harness.until_runs(job_id, 1, limit=ENOUGH)
        await harness.stop_workers()
        await asyncio.sleep(AWAY)  # the absence itself
        await harness.start_workers()
        for job_id in harness.named.values():
            await until_current(harness, job_id)
        harness.named["hourly"] = hourly
        yield harness


def hourly_from(first: datetime) -> JobDefinition:
    """A job whose fire of a moment ago is within its deadline for an hour."""
    hour = timedelta(hours=1)
    return job(
        missed_window="DEADLINE",
        max_delay=hour,
        schedule=Schedule(rule=IntervalRule(every=hour, anchor=first.replace(microsecond=0)), jitter_window_seconds=0),
    )


async def until_current(harness: Harness, job_id: str) -> None:
    """Wait until a job has told everything up to some seconds after now, without a gap."""
    goal = await harness.now() + SECOND

    def look() -> bool:
        told = fires_of(harness, job_id)
        return bool(told) and max(told) > goal and is_gapless(sorted(told), SECOND)

    await eventually(look, limit=ENOUGH)


def fires_of(harness: Harness, job_id: str) -> dict[datetime, Outcome]:
    """Every fire, those of ranges one by one."""
    runs = {run.scheduled_at: run.outcome for run in harness.mirror.runs[job_id].values()}
    for entry in harness.mirror.ledger.get(job_id, {}).values():
        assert entry.count == (entry.last - entry.first) // SECOND + 1
        for number in range(entry.count):
            nominal = entry.first + number * SECOND
            assert nominal not in runs
            runs[nominal] = entry.outcome
    return runs


def count(harness: Harness, job_id: str, outcome: Outcome) -> int:
    """How many fires had an outcome."""
    return list(fires_of(harness, job_id).values()).count(outcome)


async def test_skip_runs_none_of_what_was_missed(harness: Harness) -> None:
    """SB-044: the range is in the ledger, and nothing runs later than its grace but by the slowness of the machine."""
    job_id = harness.named["skip"]
    assert count(harness, job_id, Outcome.MISSED) >= AWAY - 2
    assert {run.kind for run in harness.mirror.runs[job_id].values()} == {RunKind.SCHEDULED}
    assert harness.mirror.jobs[job_id].counts.missed == count(harness, job_id, Outcome.MISSED)


async def test_run_once_runs_the_newest_for_all(harness: Harness) -> None:
    """SB-038: one catch-up run that says for how many it stands; they say in which run they went."""
    job_id = harness.named["once"]
    caught_up = [run for run in harness.mirror.runs[job_id].values() if run.kind is RunKind.CATCH_UP]
    assert len(caught_up) >= 1
    coalesced = [e for e in harness.mirror.ledger[job_id].values() if e.outcome is Outcome.COALESCED]
    largest = max(caught_up, key=lambda run: run.stands_for)
    assert largest.stands_for >= AWAY - 3
    assert sum(entry.count for entry in coalesced if entry.run_id == largest.run_id) == largest.stands_for - 1
    assert count(harness, job_id, Outcome.MISSED) == 0


async def test_run_all_runs_each_oldest_first_one_at_a_time(harness: Harness) -> None:
    """SB-051: four and more missed, as many different times, kinds and keys in what the handler is told."""
    job_id = harness.named["all"]
    calls = [call for call in harness.code.of(job_id) if call.run.kind.value == "catch_up"]
    assert len(calls) >= AWAY - 3
    nominal = [call.run.scheduled_at for call in calls]
    assert nominal == sorted(set(nominal))
    assert len({call.run.idempotency_key for call in calls}) == len(calls)
    assert {call.run.stands_for for call in calls} == {1}
    began = [call.began for call in calls]
    assert all(later - earlier > 0.4 * SECOND for earlier, later in pairwise(began))
    assert count(harness, job_id, Outcome.MISSED) == 0


async def test_run_all_drops_what_is_beyond_its_bound(harness: Harness) -> None:
    """The newest are kept."""
    job_id = harness.named["all_bounded"]
    dropped = [e for e in harness.mirror.ledger[job_id].values() if e.outcome is Outcome.DROPPED]
    assert {entry.reason for entry in dropped} == {"more than max_missed (2) fires were missed"}
    assert sum(entry.count for entry in dropped) >= AWAY - 5


async def test_under_deadline_nothing_runs_too_late(harness: Harness) -> None:
    """The deadline is for the actual start; what cannot make it is missed."""
    job_id = harness.named["deadline"]
    assert count(harness, job_id, Outcome.MISSED) >= AWAY - 3
    ran = [run for run in harness.mirror.runs[job_id].values() if run.outcome is Outcome.RAN]
    assert max(map(lateness, ran)) <= 2 * SECOND


async def test_sb_042_what_has_run_does_not_run_again_while_its_deadline_lasts(harness: Harness) -> None:
    """Neither when workers come back nor when another job is registered."""
    job_id = harness.named["hourly"]
    another = await harness.register(catching_up("DEADLINE", max_delay=2 * SECOND))
    await harness.until_runs(another, 1, limit=ENOUGH)
    assert list(fires_of(harness, job_id).values()) == [Outcome.RAN]
    assert len(harness.code.of(job_id)) == 1


async def test_what_is_older_than_the_lookback_never_runs(harness: Harness) -> None:
    """Whatever the policy."""
    job_id = harness.named["old"]
    missed = [entry for entry in harness.mirror.ledger[job_id].values() if entry.outcome is Outcome.MISSED]
    assert {entry.reason for entry in missed} == {"older than lookback_seconds (3)"}


async def test_within_its_grace_a_late_fire_is_live(harness: Harness) -> None:
    """A minute by default: nothing of a few seconds is missed."""
    job_id = harness.named["patient"]
    assert set(fires_of(harness, job_id).values()) == {Outcome.RAN}
    assert {run.kind for run in harness.mirror.runs[job_id].values()} == {RunKind.SCHEDULED}


async def test_a_weekly_job_that_was_missed_says_so() -> None:
    """SB-041: its row is not that of its last success; the week is in the ledger with its reason, and counted."""
    async with skipping_time() as (environment, harness):
        week = timedelta(days=7)
        weekly = job(every_seconds=week.total_seconds(), missed_window="SKIP", misfire_grace=SECOND)
        job_id = await harness.register(weekly)
        await environment.sleep(week)
        [success] = await harness.until_runs(job_id, 1)
        assert harness.mirror.jobs[job_id].last_status == "success"
        fire = success.scheduled_at + week
        await environment.sleep(fire - 2 * SECOND - await environment.get_current_time())
        await harness.stop_workers()

        async def is_late() -> bool:
            return await environment.get_current_time() > fire + 2 * SECOND

        await eventually(is_late)
        await harness.start_workers()
        await eventually(lambda: harness.mirror.ledger.get(job_id))
        [entry] = harness.mirror.ledger[job_id].values()
        assert (entry.first, entry.outcome, entry.reason) == (fire, Outcome.MISSED, "missed_window is SKIP")
        record = harness.mirror.jobs[job_id]
        assert (record.last_status, record.counts.missed, record.next_run_at) == ("missed", 1, fire + week)
