"""Backfills on a real server: each fire of a range runs once, however many are asked for, and live fires go on beside them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
import pytest_asyncio

from activities.backfill_control import BackfillControl
from activities.job_control import JobIsGone
from tests.eventually import eventually
from tests.workflow.harness import (
    QUICK,
    SLEEPY,
    Call,
    Harness,
    chain_of,
    every,
    job,
    side_by_side,
)
from workers.devserver import DevServer
from workflows.backfill_record import BackfillRecord, BackfillStatus, ExistingRuns
from workflows.contracts import backfill_workflow_id
from workflows.error import Conflict
from workflows.job import JobDefinition, Lifecycle
from workflows.run import Outcome, Run, RunKind, RunStatus

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOUR = timedelta(hours=1)
NIGHT = datetime(2026, 6, 1, tzinfo=UTC)
ENOUGH = timedelta(seconds=60)


def hourly(activity: str = "noop", **fields: Any) -> JobDefinition:
    """A job that fires on the hour, so that no live fire is in a test."""
    return job(activity, every_seconds=3600, **fields)


JOBS = {
    "sequence": job("take", payload=0.05, every_seconds=1, overlap="skip"),
    "parallel": hourly("take", payload=0.5),
    "steered": hourly("take", payload=0.2),
    "cancelled": hourly("take", payload=2.0),
    "again": hourly(),
    "skipped": hourly(),
    "continued": hourly(),
    "paused": hourly(),
    "completed": hourly(schedule=every(1, max_runs=1)),
    "deleted": hourly("take", payload=0.3),
    "pinned": hourly("take", payload=0.2),
    "dead": hourly("fail", payload=9, retry={"max_attempts": 1}),
    "slow": hourly("take", payload=30.0, heartbeat_timeout=timedelta(seconds=1.5)),
    "away": hourly("take", payload=0.2),
    "retried": hourly("fail", payload=1, retry={"base": timedelta(milliseconds=1), "cap": timedelta(milliseconds=1)}),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(temporal_server: DevServer) -> AsyncIterator[Harness]:
    """All of them; one sleeps the long way between its backfilled runs."""
    async with side_by_side(temporal_server, JOBS, tuning=QUICK, paused=SLEEPY) as harness:
        await eventually(lambda: len(harness.mirror.jobs) == len(JOBS))
        yield harness


async def ask(harness: Harness, name: str, *, fires: int = 5, hours_after: int = 0, **fields: Any) -> BackfillRecord:
    """Ask for a backfill of so many hours of a night, of a job of every hour."""
    start = NIGHT + hours_after * HOUR
    return await harness.backfill(harness.named[name], start=start, end=start + (fires - 1) * HOUR, **fields)


def backfilled(harness: Harness, name: str) -> list[Run]:
    """The backfilled runs of a job, in the order of their nominal times."""
    runs = harness.mirror.runs.get(harness.named[name], {}).values()
    return sorted((run for run in runs if run.kind is RunKind.BACKFILL), key=lambda run: run.scheduled_at)


def calls_of(harness: Harness, name: str) -> list[Call]:
    """Calls of job code by backfilled runs, in the order of their beginning."""
    return [call for call in harness.code.of(harness.named[name]) if call.run.kind == "backfill"]


def most_at_once(calls: list[Call]) -> int:
    """How many calls were under way at the same time, at most."""
    return max(
        sum(other.began <= call.began < (other.ended or datetime.max.replace(tzinfo=UTC)) for other in calls)
        for call in calls
    )


async def test_ten_fires_run_one_after_the_other_while_live_fires_go_on(harness: Harness) -> None:
    """SB-160: of a job with the policy skip; each has its own nominal time, and no live fire is skipped for them."""
    job_id = harness.named["sequence"]
    start = NIGHT
    asked = await harness.backfill(job_id, start=start, end=start + timedelta(seconds=9))
    done = await harness.until_backfilled(asked, limit=ENOUGH)
    assert (done.status, done.total, done.succeeded, done.running) == (BackfillStatus.DONE, 10, 10, ())
    calls = calls_of(harness, "sequence")
    assert [call.run.scheduled_at for call in calls] == [start + timedelta(seconds=n) for n in range(10)]
    assert most_at_once(calls) == 1
    runs = await eventually(lambda: rows_of(harness, "sequence", 10))
    assert {run.status for run in runs} == {RunStatus.SUCCESS}
    everything = harness.code.of(job_id)
    fences = [call.run.fence for call in sorted(everything, key=lambda call: call.run.fence)]
    assert len(fences) == len(set(fences))
    live = [outcome for nominal, outcome in harness.mirror.outcomes(job_id) if nominal > asked.requested_at]
    assert len(live) >= 2
    assert Outcome.SKIPPED not in live
    assert Outcome.MISSED not in live


def rows_of(harness: Harness, name: str, count: int) -> list[Run]:
    """The backfilled runs, once the mirror has so many."""
    runs = backfilled(harness, name)
    assert len(runs) == count, runs
    return runs


async def test_so_many_run_beside_each_other_as_were_asked_for(harness: Harness) -> None:
    """SB-160: up to the backfill's own bound, whatever the job's overlap policy says."""
    asked = await ask(harness, "parallel", fires=10, max_concurrent=4)
    done = await harness.until_backfilled(asked, limit=ENOUGH)
    assert done.succeeded == 10
    calls = calls_of(harness, "parallel")
    assert len(calls) == 10
    assert 2 <= most_at_once(calls) <= 4


async def test_a_backfill_is_paused_and_resumed(harness: Harness) -> None:
    """Paused it begins nothing; what is under way goes on, and nothing is lost."""
    asked = await ask(harness, "steered", fires=6)
    control = BackfillControl(harness.client)
    await eventually(lambda: len(calls_of(harness, "steered")) >= 2)
    paused = await control.pause(asked, reason="the bank is busy")
    assert (paused.status, paused.reason) == (BackfillStatus.PAUSED, "the bank is busy")
    assert paused.version > asked.version

    def is_quiet() -> int:
        record = harness.mirror.backfills[asked.backfill_id]
        assert record.running == ()
        assert record.succeeded >= 2
        return record.succeeded

    succeeded = await eventually(is_quiet)
    assert (await control.pause(asked, reason="still")).status is BackfillStatus.PAUSED
    assert len(calls_of(harness, "steered")) == succeeded < 6
    assert (await control.resume(asked, reason="")).status is BackfillStatus.RUNNING
    done = await harness.until_backfilled(asked, limit=ENOUGH)
    assert (done.status, done.succeeded) == (BackfillStatus.DONE, 6)
    assert len(calls_of(harness, "steered")) == 6
    with pytest.raises(JobIsGone):
        await control.cancel(asked, reason="too late")


async def test_a_cancelled_backfill_lets_what_it_has_begun_end(harness: Harness) -> None:
    """And counts it. It can be cancelled again, but not resumed."""
    asked = await ask(harness, "cancelled", fires=5)
    await eventually(lambda: bool(calls_of(harness, "cancelled")))
    control = BackfillControl(harness.client)
    for reason in ("by mistake", ""):
        cancelled = await control.cancel(asked, reason=reason)
        assert (cancelled.status, cancelled.reason) == (BackfillStatus.CANCELLING, "by mistake")
    with pytest.raises(Conflict, match="the backfill is cancelling"):
        await control.resume(asked, reason="")
    done = await harness.until_backfilled(asked)
    assert (done.status, done.succeeded, done.total) == (BackfillStatus.CANCELLED, 1, 5)
    assert len(calls_of(harness, "cancelled")) == 1


async def test_six_backfills_at_once_run_exactly_what_was_asked_for(harness: Harness) -> None:
    """Three fires six times over, to be run again, are eighteen runs, each under a key of its own; native ones are merged."""
    all_asked = await asyncio.gather(
        *(ask(harness, "again", fires=3, existing=ExistingRuns.RUN_AGAIN, max_concurrent=3) for _ in range(6))
    )
    done = [await harness.until_backfilled(asked, limit=ENOUGH) for asked in all_asked]
    assert [each.succeeded for each in done] == [3] * 6
    calls = calls_of(harness, "again")
    assert Counter(call.run.scheduled_at for call in calls) == {NIGHT + n * HOUR: 6 for n in range(3)}
    assert len({call.run.idempotency_key for call in calls}) == 18
    assert len({call.run.fence for call in calls}) == 18


async def test_backfills_at_once_that_pass_over_what_runs_run_each_fire_once(harness: Harness) -> None:
    """Ranges that overlap: every fire of the union has one run, and every backfill knows what became of its own."""
    all_asked = await asyncio.gather(
        *(ask(harness, "skipped", fires=3, hours_after=n, max_concurrent=2) for n in range(4))
    )
    done = [await harness.until_backfilled(asked, limit=ENOUGH) for asked in all_asked]
    assert [each.status for each in done] == [BackfillStatus.DONE] * 4
    assert [each.succeeded + each.skipped for each in done] == [3] * 4
    calls = calls_of(harness, "skipped")
    assert sorted(call.run.scheduled_at for call in calls) == [NIGHT + n * HOUR for n in range(6)]
    assert sum(each.succeeded for each in done) == 6


async def test_nothing_is_lost_or_doubled_by_continuing_as_new(harness: Harness) -> None:
    """The backfill and its job both do, again and again."""
    asked = await ask(harness, "continued", fires=16, max_concurrent=3, history_limit=50)
    done = await harness.until_backfilled(asked, limit=ENOUGH)
    assert (done.status, done.succeeded) == (BackfillStatus.DONE, 16)
    calls = calls_of(harness, "continued")
    assert sorted(call.run.scheduled_at for call in calls) == [NIGHT + n * HOUR for n in range(16)]
    name = backfill_workflow_id(tenant="default", job_id=asked.job_id, backfill_id=asked.backfill_id)
    assert len(await chain_of(harness.client, name)) >= 3


async def test_a_paused_job_is_backfilled_and_stays_paused(harness: Harness) -> None:
    """Its fires of the pause as well."""
    job_id = harness.named["paused"]
    await harness.pause(job_id)
    done = await harness.until_backfilled(await ask(harness, "paused"), limit=ENOUGH)
    assert (done.status, done.succeeded) == (BackfillStatus.DONE, 5)
    assert harness.mirror.jobs[job_id].lifecycle is Lifecycle.PAUSED


async def test_a_job_that_is_over_is_backfilled_in_a_workflow_of_its_own(harness: Harness) -> None:
    """Which then ends as well; the job stays completed."""
    job_id = harness.named["completed"]
    await harness.until_closed(job_id, Lifecycle.COMPLETED)
    asked = await harness.backfill(job_id, start=NIGHT, end=NIGHT + timedelta(seconds=2))
    done = await harness.until_backfilled(asked, limit=ENOUGH)
    assert (done.status, done.succeeded) == (BackfillStatus.DONE, 3)

    async def is_over() -> bool:
        return (await harness.handle(job_id).describe()).close_time is not None

    await eventually(is_over)
    assert harness.mirror.jobs[job_id].lifecycle is Lifecycle.COMPLETED
    assert harness.mirror.jobs[job_id].counts.succeeded == 4


async def test_a_deleted_job_ends_its_backfills(harness: Harness) -> None:
    """Nobody has told the backfill: the job does when it is asked next."""
    asked = await ask(harness, "deleted", fires=20)
    await eventually(lambda: bool(calls_of(harness, "deleted")))
    await harness.delete(harness.named["deleted"])
    done = await harness.until_backfilled(asked, limit=ENOUGH)
    assert (done.status, done.reason) == (BackfillStatus.CANCELLED, "the job was deleted")
    assert done.succeeded == len(calls_of(harness, "deleted")) < 20


async def test_all_runs_are_made_under_the_definition_that_was_asked_for(harness: Harness) -> None:
    """The job is changed twice meanwhile, to another payload and another schedule."""
    job_id = harness.named["pinned"]
    asked = await ask(harness, "pinned", fires=6)
    await eventually(lambda: bool(calls_of(harness, "pinned")))
    await harness.change(job_id, hourly("take", payload=0.1))
    await harness.change(job_id, job("noop", every_seconds=7200))
    done = await harness.until_backfilled(asked, limit=ENOUGH)
    assert done.succeeded == 6
    assert [call.run.payload for call in calls_of(harness, "pinned")] == [0.2] * 6
    runs = await eventually(lambda: rows_of(harness, "pinned", 6))
    assert {run.revision for run in runs} == {1}


async def test_dead_runs_are_counted_and_retried_ones_are_waited_for(harness: Harness) -> None:
    """By the job's own policy. Asked for again, what is dead is passed over: it is among the dead letters."""
    dead, retried = await asyncio.gather(ask(harness, "dead", fires=3), ask(harness, "retried", fires=3))
    done = await harness.until_backfilled(dead, limit=ENOUGH)
    assert (done.status, done.dead, done.succeeded) == (BackfillStatus.DONE, 3, 0)
    await eventually(lambda: harness.mirror.jobs[harness.named["dead"]].counts.dead == 3)
    again = await harness.until_backfilled(await ask(harness, "dead", fires=3), limit=ENOUGH)
    assert (again.skipped, again.dead) == (3, 0)
    done = await harness.until_backfilled(retried, limit=ENOUGH)
    assert done.succeeded == 3
    calls = calls_of(harness, "retried")
    assert len(calls) == 6
    of_a_run = [call.run.fence for call in calls if call.run.run_id == calls[0].run.run_id]
    assert all(later > earlier for earlier, later in pairwise(of_a_run))


async def test_a_cancelled_run_is_counted_and_run_by_the_next_backfill(harness: Harness) -> None:
    """By the job, as any other run is cancelled; its time is free again, under a second name."""
    job_id = harness.named["slow"]
    asked = await ask(harness, "slow", fires=1)
    await eventually(lambda: bool(calls_of(harness, "slow")))
    await harness.cancel_run(job_id, calls_of(harness, "slow")[0].run.run_id)
    done = await harness.until_backfilled(asked, limit=ENOUGH)
    assert (done.status, done.cancelled, done.succeeded) == (BackfillStatus.DONE, 1, 0)
    await harness.change(job_id, hourly())
    await eventually(lambda: harness.mirror.jobs[job_id].revision == 2)
    done = await harness.until_backfilled(await ask(harness, "slow", fires=1), limit=ENOUGH)
    assert done.succeeded == 1
    assert calls_of(harness, "slow")[-1].run.run_id.startswith(f"{job_id}:backfill-2-")


async def test_a_backfill_goes_on_after_a_time_without_workers_and_without_a_mirror(harness: Harness) -> None:
    """What it waits for is told; each fire has one run."""
    asked = await ask(harness, "away", fires=4)
    await eventually(lambda: bool(calls_of(harness, "away")))
    await harness.stop_workers()
    harness.mirror.trouble = "down"
    refusals = harness.mirror.refusals
    await harness.start_workers()
    await eventually(lambda: harness.mirror.refusals > refusals)
    harness.mirror.trouble = ""
    done = await harness.until_backfilled(asked, limit=ENOUGH)
    assert (done.status, done.succeeded + done.dead) == (BackfillStatus.DONE, 4)
    assert len({call.run.run_id for call in calls_of(harness, "away")}) == 4
