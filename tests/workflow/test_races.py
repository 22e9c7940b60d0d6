"""Commands that meet a fire: given in the same moments, again and again, by jobs of every second side by side."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest
import pytest_asyncio
from temporalio.service import RPCError, RPCStatusCode

from tests.eventually import eventually
from tests.temporal_servers import unique
from tests.workflow.harness import QUICK, Harness, is_gapless, job, side_by_side
from tests.workflow.test_overlap import most_at_once
from workers.devserver import DevServer
from workflows.job import JobDefinition, OverlapPolicy, TriggerOutcome
from workflows.run import Outcome, RunKind, RunStatus
from workflows.schedule import IntervalRule, Schedule

pytestmark = pytest.mark.asyncio(loop_scope="module")

Answer = TypeVar("Answer")

SECOND = timedelta(seconds=1)
TRIES = 5
MANY_JOBS = 20
MANY = pytest.mark.slow
ENOUGH = timedelta(seconds=40)

JOBS: dict[str, JobDefinition] = {
    "triggered": job("take", payload=0.2),
    "skipping": job("noop", overlap=OverlapPolicy.ALLOW, max_concurrent=100),
    "paused": job(),
    "blocked": job("take", payload=5, isolation="workflow"),
}

ENDING = job("take", every_seconds=3600, payload=0.6, overlap=OverlapPolicy.ALLOW, heartbeat_timeout=1.5 * SECOND)
"""Hears of a cancellation with a heartbeat, of which there is one shortly before it ends."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(temporal_server: DevServer) -> AsyncIterator[Harness]:
    """All of them."""
    small = QUICK.model_copy(update={"history_limit": 40})
    async with side_by_side(temporal_server, JOBS, blocked=small) as harness:
        yield harness


async def until_about(phase: float) -> None:
    """Wait for a moment that lies so far behind, or before, a full second."""
    now = datetime.now(UTC).timestamp()
    await asyncio.sleep((phase - now) % 1)


async def test_a_trigger_in_the_moment_of_a_fire_never_makes_two_and_loses_none(harness: Harness) -> None:
    """SB-143: under ``skip``, whichever comes first runs; the other says by what it was skipped."""
    await trigger_around_fires(harness, harness.named["triggered"], tries=TRIES)


@MANY
async def test_two_hundred_triggers_in_moments_of_fires_never_make_two_and_lose_none(harness: Harness) -> None:
    """SB-143: of many jobs side by side."""
    ids = await asyncio.gather(*(harness.register(JOBS["triggered"]) for _ in range(MANY_JOBS)))
    await asyncio.gather(*(trigger_around_fires(harness, job_id, tries=200 // MANY_JOBS) for job_id in ids))
    await asyncio.gather(*(harness.delete(job_id, cancel_active=True) for job_id in ids))


async def trigger_around_fires(harness: Harness, job_id: str, *, tries: int) -> None:
    """Trigger a job of every second, each time a little later around a fire."""
    told = []
    for number in range(tries):
        await until_about((number - tries / 2) * 0.1 / tries)
        told.append((await harness.trigger(job_id)).triggered)
    names = {each.run_id for each in told}
    await eventually(
        lambda: names <= {run_id for run_id, run in harness.mirror.runs[job_id].items() if run.finished_at},
        limit=ENOUGH,
    )
    assert most_at_once(harness.code.of(job_id)) == 1
    runs = harness.mirror.runs[job_id]
    for each in told:
        skipped = each.outcome is TriggerOutcome.SKIPPED
        assert (runs[each.run_id].status is RunStatus.CANCELLED) is skipped
    fires = [(run.scheduled_at, run.outcome) for run in runs.values() if run.kind is RunKind.SCHEDULED]
    entries = [(entry.first, entry.outcome) for entry in harness.mirror.ledger.get(job_id, {}).values()]
    decided = sorted([*fires, *entries])
    assert is_gapless([nominal for nominal, _ in decided], SECOND)
    assert {outcome for _, outcome in decided} <= {Outcome.RAN, Outcome.SKIPPED, Outcome.PENDING}


async def test_the_fire_that_a_trigger_takes_the_place_of_never_runs(harness: Harness) -> None:
    """SB-085: asked milliseconds before and after fires: the answer names the one that does not run, and no other is lost."""
    await use_up_fires(harness, harness.named["skipping"], tries=TRIES)


@MANY
async def test_two_hundred_fires_that_triggers_take_the_place_of_never_run(harness: Harness) -> None:
    """SB-085: of many jobs side by side."""
    ids = await asyncio.gather(*(harness.register(JOBS["skipping"]) for _ in range(MANY_JOBS)))
    await asyncio.gather(*(use_up_fires(harness, job_id, tries=200 // MANY_JOBS) for job_id in ids))
    await asyncio.gather(*(harness.delete(job_id, cancel_active=True) for job_id in ids))


async def use_up_fires(harness: Harness, job_id: str, *, tries: int) -> None:
    """Have a trigger take the place of the next fire of a job of every second, five milliseconds before and after fires."""
    consumed = []
    for number in range(tries):
        await until_about((number - tries / 2) * 0.025 / tries)
        consumed.append((await harness.trigger(job_id, skip_next=True)).triggered.consumed)
    assert None not in consumed
    assert len(set(consumed)) == tries
    last = max(each for each in consumed if each is not None)

    def is_told() -> bool:
        entries = harness.mirror.ledger.get(job_id, {})
        fires = [run.scheduled_at for run in harness.mirror.runs[job_id].values() if run.kind is RunKind.SCHEDULED]
        return set(consumed) <= set(entries) and max(fires, default=last) > last

    await eventually(is_told, limit=ENOUGH)
    fires = [run.scheduled_at for run in harness.mirror.runs[job_id].values() if run.kind is RunKind.SCHEDULED]
    used_up = [entry.first for entry in harness.mirror.ledger[job_id].values() if entry.outcome is Outcome.CONSUMED]
    assert sorted(used_up) == sorted(each for each in consumed if each is not None)
    assert not set(fires) & set(used_up)
    assert is_gapless(sorted([*fires, *used_up]), SECOND)


async def test_a_pause_that_was_answered_before_a_fire_means_no_fire(harness: Harness) -> None:
    """SB-147: asked around full seconds; what fires afterwards fires after the resume."""
    job_id = harness.named["paused"]
    await harness.until_runs(job_id, 1)
    stood: list[tuple[datetime, datetime]] = []
    for number in range(3):
        await until_about((number - 1) * 0.02)
        await harness.pause(job_id)
        answered = datetime.now(UTC)
        await until_about(0.5)
        await until_about(0.2)
        asked = datetime.now(UTC)
        await harness.resume(job_id)
        stood.append((answered, asked))
    await eventually(lambda: max(harness.mirror.outcomes(job_id))[0] > stood[-1][1])
    for answered, asked in stood:
        begun = [call.run.scheduled_at for call in harness.code.of(job_id) if answered < call.run.scheduled_at < asked]
        assert begun == []
    told = harness.mirror.outcomes(job_id)
    assert Outcome.PAUSED in [outcome for _, outcome in told]


@MANY
@pytest.mark.timeout(300)
async def test_a_thousand_runs_that_are_cancelled_as_they_end_have_one_end_each(harness: Harness) -> None:
    """SB-147: a success or cancelled, as its job's code has it, and for good."""
    ids = await asyncio.gather(*(harness.register(ENDING) for _ in range(MANY_JOBS)))
    chance = random.Random(147)
    names = await asyncio.gather(*(cancel_ending_runs(harness, job_id, 1000 // MANY_JOBS, chance) for job_id in ids))

    def are_over() -> bool:
        rows = [harness.mirror.runs[job_id] for job_id in ids]
        return all(rows[n][name].finished_at is not None for n, some in enumerate(names) for name in some)

    await eventually(are_over, limit=ENOUGH)
    ends = Counter[RunStatus]()
    for job_id, some in zip(ids, names, strict=True):
        calls = {call.run.run_id: call.how for call in harness.code.of(job_id)}
        assert len(calls) == len(harness.code.of(job_id)), "none was called twice"
        for name in some:
            status = harness.mirror.runs[job_id][name].status
            ends[status] += 1
            if status is RunStatus.SUCCESS:
                assert calls[name] == "answered"
    await eventually(lambda: all(harness.mirror.jobs[job_id].active_runs == 0 for job_id in ids))
    assert ends.keys() == {RunStatus.SUCCESS, RunStatus.CANCELLED}
    print(f"\n{ends.total()} runs cancelled as they ended: {dict(ends)}")


async def cancel_ending_runs(harness: Harness, job_id: str, count: int, chance: random.Random) -> list[str]:
    """Trigger a job so often, and cancel each run at about its end."""
    names = []
    for _ in range(count):
        key = unique("key")
        told = await unless_closing(lambda key=key: harness.trigger(job_id, key=key, request_id=key))  # type: ignore[misc]
        names.append(told.triggered.run_id)
        await asyncio.sleep(chance.uniform(0.3, 0.7))
        await unless_closing(lambda name=names[-1]: harness.cancel_run(job_id, name))  # type: ignore[misc]
    return names


async def unless_closing(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Ask, and again where the job was just continuing as new, as callers do."""
    while True:
        try:
            return await ask()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise


async def test_a_run_is_in_the_way_across_restarts_and_continuations(harness: Harness) -> None:
    """SB-057: under ``skip``, after all workers were replaced and the job has continued as new, it still knows its run."""
    job_id = harness.named["blocked"]
    await eventually(lambda: harness.code.of(job_id))
    first = harness.code.of(job_id)[0].run.run_id
    await harness.stop_workers()
    await harness.start_workers()
    runs = await harness.until_runs(job_id, 2)
    assert runs[0].run_id == first
    assert runs[0].status is RunStatus.SUCCESS
    assert most_at_once(harness.code.of(job_id)) == 1
    blocked_by = {entry.run_id for entry in harness.mirror.ledger[job_id].values() if entry.outcome is Outcome.SKIPPED}
    assert first in blocked_by
    assert len(await harness.histories(job_id)) >= 2


async def test_a_fire_that_has_run_does_not_run_again_when_its_record_is_gone(harness: Harness) -> None:
    """SB-059: retention removed it, all workers were replaced, and the job is woken within the same minute."""
    anchor = datetime.now(UTC).replace(microsecond=0) + 2 * SECOND
    rule = IntervalRule(every=timedelta(minutes=1), anchor=anchor)
    job_id = await harness.register(job(schedule=Schedule(rule=rule, jitter_window_seconds=0)))
    [run] = await harness.until_runs(job_id, 1)
    harness.mirror.runs[job_id].clear()
    await harness.stop_workers()
    await harness.start_workers()
    await harness.pause(job_id)
    record = await harness.resume(job_id)
    assert record.next_run_at == anchor + timedelta(minutes=1)
    assert [call.run.run_id for call in harness.code.of(job_id)] == [run.run_id]
    assert harness.mirror.runs[job_id] == {}
