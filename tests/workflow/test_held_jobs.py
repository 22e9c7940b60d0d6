"""Jobs held and released by updates, awake and asleep the long way; their ends need nobody."""

import asyncio
from datetime import UTC, datetime, timedelta

from temporalio.client import Client

from tests.eventually import eventually
from tests.workflow.harness import (
    SLEEPY,
    Harness,
    count_kind,
    every,
    is_gapless,
    job,
    refusal_of,
    running,
)
from tests.workflow.test_long_sleep import until_asleep
from workflows.job import Lifecycle, PausedFires, TriggerOutcome
from workflows.run import Outcome, Run, RunKind

MONTHLY = 86_400 * 30
SECOND = timedelta(seconds=1)


async def until_ledger(harness: Harness, job_id: str, outcome: Outcome) -> None:
    """Wait until the ledger tells of such an outcome."""
    await eventually(lambda: outcome in [found for _, found in harness.mirror.outcomes(job_id)])


async def test_a_hold_ends_by_itself_at_its_time(temporal_client: Client) -> None:
    """Of a job of every second: what is held is a line, the first fire after the end runs, and none is lost or doubled."""
    async with running(temporal_client) as harness:
        job_id = await harness.register(job())
        await harness.until_runs(job_id, 1)
        until = datetime.now(UTC) + 3 * SECOND
        record = await harness.hold(job_id, "h_bank", until=until, reason="the bank migrates")
        assert [hold.hold_id for hold in record.holds] == ["h_bank"]
        assert record.lifecycle is Lifecycle.ACTIVE
        assert record.next_run_at is not None
        assert until < record.next_run_at <= until + SECOND
        await until_ledger(harness, job_id, Outcome.HELD)
        await eventually(lambda: max(at for at, _ in harness.mirror.outcomes(job_id)) > until + SECOND)
        [held] = harness.mirror.ledger[job_id].values()
        assert (held.outcome, held.reason) == (Outcome.HELD, "held by h_bank (the bank migrates)")
        assert held.last <= until
        runs = sorted(harness.mirror.runs[job_id])
        assert any(run.endswith(f"{record.next_run_at:%Y%m%dT%H%M%SZ}") for run in runs)
        told = sorted([*harness.mirror.runs[job_id].values()], key=lambda run: run.scheduled_at)
        before = [run.scheduled_at for run in told if run.scheduled_at < held.first]
        after = [run.scheduled_at for run in told if run.scheduled_at > held.last]
        assert is_gapless([*before, held.first], SECOND)
        assert is_gapless([held.last, *after], SECOND)
        assert (held.last - held.first) / SECOND + 1 == held.count


async def test_a_sleeping_job_is_held_at_once_and_sleeps_on(temporal_client: Client) -> None:
    """In a sleep of a month: the answer is the applied state, and a hold of weeks costs one more sleep."""
    async with running(temporal_client, tuning=SLEEPY) as harness:
        job_id = await harness.register(job(every_seconds=MONTHLY))
        await until_asleep(harness, job_id)
        until = datetime.now(UTC) + timedelta(days=40)
        record = await asyncio.wait_for(harness.hold(job_id, "h", until=until), 10)
        assert record.next_run_at is not None
        assert record.next_run_at > until
        await until_asleep(harness, job_id, sleeps=2)
        released = await asyncio.wait_for(harness.release(job_id, "h"), 10)
        assert released.holds == ()
        assert released.next_run_at is not None
        assert released.next_run_at <= until


async def test_held_paused_and_triggered_are_independent(temporal_client: Client) -> None:
    """Two holds and a pause over one job: it fires when the last is gone; a trigger runs all the while."""
    async with running(temporal_client) as harness:
        job_id = await harness.register(job())
        await harness.hold(job_id, "h_a")
        held = datetime.now(UTC)
        await harness.hold(job_id, "h_b", until=datetime.now(UTC) + timedelta(hours=1))
        await harness.pause(job_id)
        assert (await harness.release(job_id, "h_a")).lifecycle is Lifecycle.PAUSED
        assert (await harness.resume(job_id)).lifecycle is Lifecycle.ACTIVE
        told = await harness.trigger(job_id)
        assert told.triggered.outcome is TriggerOutcome.STARTED
        assert await refusal_of(harness.trigger(job_id, skip_next=True)) == "Conflict"
        # A fire may have come before the first hold did.
        assert {run.kind for run in await _until_runs_after(harness, job_id, held, count=1)} == {RunKind.MANUAL}
        record = await harness.release(job_id, "h_b")
        assert record.holds == ()
        runs = await _until_runs_after(harness, job_id, held, count=3)
        assert {run.kind for run in runs} == {RunKind.MANUAL, RunKind.SCHEDULED}


async def _until_runs_after(harness: Harness, job_id: str, moment: datetime, *, count: int) -> list[Run]:
    def runs() -> list[Run]:
        return [run for run in harness.mirror.runs.get(job_id, {}).values() if run.scheduled_at > moment]

    await eventually(lambda: len(runs()) >= count)
    return runs()


async def test_a_change_of_labels_brings_its_holds_with_it(temporal_client: Client) -> None:
    """In one update: no fire slips in between."""
    async with running(temporal_client) as harness:
        job_id = await harness.register(job())
        await harness.until_runs(job_id, 1)
        held = await harness.change(job_id, job(labels={"team": "finance"}), holds=(harness.a_hold("h"),))
        assert held.next_run_at is None
        started = len(harness.code.of(job_id))
        await eventually(lambda: datetime.now(UTC) > held.updated_at + 2 * SECOND)
        assert len(harness.code.of(job_id)) <= started + 1
        released = await harness.change(job_id, job(), holds=())
        assert released.next_run_at is not None
        await until_ledger(harness, job_id, Outcome.HELD)


async def test_a_hold_that_ended_while_no_worker_was_there_ended_then(temporal_client: Client) -> None:
    """As of its time: what came after it is missed, and caught up as missed fires are."""
    async with running(temporal_client) as harness:
        job_id = await harness.register(job(missed_window="RUN_ONCE", misfire_grace=SECOND))
        until = datetime.now(UTC) + 2 * SECOND
        await harness.hold(job_id, "h", until=until)
        await harness.stop_workers()
        await eventually(lambda: datetime.now(UTC) > until + 4 * SECOND)
        await harness.start_workers()
        runs = await harness.until_runs(job_id, 2)
        [caught_up] = [run for run in runs if run.kind is RunKind.CATCH_UP]
        assert caught_up.scheduled_at > until
        [held] = [entry for entry in harness.mirror.ledger[job_id].values() if entry.outcome is Outcome.HELD]
        assert held.last <= until < held.last + SECOND
        assert {run.kind for run in runs} == {RunKind.CATCH_UP, RunKind.SCHEDULED}


async def test_a_hold_that_asks_for_it_is_caught_up_by_one_run(temporal_client: Client) -> None:
    """Over a continue-as-new, too: the choice is in the job's state."""
    async with running(temporal_client) as harness:
        job_id = await harness.register(job(schedule=every(1), missed_window="RUN_ONCE"))
        await harness.hold(job_id, "h", until=datetime.now(UTC) + 4 * SECOND, catch_up=PausedFires.APPLY)
        runs = await harness.until_runs(job_id, 2)
        [caught_up] = [run for run in runs if run.kind is RunKind.CATCH_UP]
        assert caught_up.stands_for >= 3


async def test_what_a_held_job_writes_down_does_not_grow_with_its_fires(temporal_client: Client) -> None:
    """A job of every second, held for seconds: no timer a fire."""
    async with running(temporal_client) as harness:
        job_id = await harness.register(job())
        await harness.hold(job_id, "h")
        before = count_kind(await harness.histories(job_id), "timer_started")
        held_at = datetime.now(UTC)
        await eventually(lambda: datetime.now(UTC) > held_at + 4 * SECOND)
        assert count_kind(await harness.histories(job_id), "timer_started") == before
