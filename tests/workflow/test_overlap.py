"""Overlap policies with runs that really run at the same time. All jobs here live side by side."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from temporalio.client import WorkflowHistory

from tests.eventually import eventually
from tests.workflow.harness import QUICK, Call, Harness, job, side_by_side
from workers.devserver import DevServer
from workflows.run import Outcome, RunStatus

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENOUGH = timedelta(seconds=40)

LISTENS = timedelta(seconds=1.5)
"""Heartbeat timeout; a cancellation arrives with a heartbeat, of which there are three in it."""

JOBS = {
    "skip": job("take", payload=3.5),
    "blocked": job("take", payload=20),
    "buffer_one": job("take", payload=3.5, overlap="buffer_one"),
    "buffer_all": job("take", payload=3.5, overlap="buffer_all", max_buffered=2),
    "cancel": job("take", every_seconds=3, payload=60, overlap="cancel_other", heartbeat_timeout=LISTENS),
    "cancel_deaf": job("ignore_cancel", payload=4.5, overlap="cancel_other", heartbeat_timeout=LISTENS),
    "terminate": job("ignore_cancel", every_seconds=2, payload=5, overlap="terminate_other"),
    "allow": job("take", payload=5, overlap="allow", max_concurrent=3),
    "never_drains": job("take", payload=2.6, overlap="allow", max_concurrent=50),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(temporal_server: DevServer) -> AsyncIterator[Harness]:
    """All of them, on one server and one set of workers."""
    short = QUICK.model_copy(update={"history_limit": 60})
    async with side_by_side(temporal_server, JOBS, never_drains=short) as harness:
        yield harness


def most_at_once(calls: list[Call]) -> int:
    """How many calls ran at the same time at most."""
    changes = [(call.began, 1) for call in calls] + [(call.ended, -1) for call in calls if call.ended]
    running_now = most = 0
    for _, change in sorted(changes):
        running_now += change
        most = max(most, running_now)
    return most


async def test_skip_never_runs_two_at_once_and_says_what_it_skipped(harness: Harness) -> None:
    """SB-056: each blocked fire has an entry with the reason and the run in its way."""
    job_id = harness.named["skip"]
    await harness.until_runs(job_id, 2, limit=ENOUGH)
    outcomes = await harness.until_decided(job_id, 8)
    assert most_at_once(harness.code.of(job_id)) == 1
    assert set(outcomes) == {Outcome.RAN, Outcome.SKIPPED}
    started = {call.run.run_id for call in harness.code.of(job_id)}
    for entry in harness.mirror.ledger[job_id].values():
        assert entry.reason == "overlap"
        assert entry.run_id in started


async def test_buffers_hold_fires_within_their_bounds(harness: Harness) -> None:
    """SB-065: ``buffer_one`` starts the one that waited, ``buffer_all`` all of them in order; what finds no place is told."""
    one, many = harness.named["buffer_one"], harness.named["buffer_all"]
    for job_id, refused in ((one, Outcome.SKIPPED), (many, Outcome.DROPPED)):
        runs = await harness.until_runs(job_id, 3, limit=ENOUGH)
        outcomes = await harness.until_decided(job_id, 8)
        assert most_at_once(harness.code.of(job_id)) == 1
        assert refused in outcomes
        assert [call.run.run_id for call in harness.code.of(job_id)][:3] == [run.run_id for run in runs][:3]
    first, second = sorted(run.scheduled_at for run in harness.mirror.runs[many].values())[:2]
    assert second - first == timedelta(seconds=1)


async def test_cancel_other_reaches_the_handler_and_waits_for_it(harness: Harness) -> None:
    """SB-091: with the next heartbeat, and the new run starts when the old one has ended."""
    job_id = harness.named["cancel"]
    runs = await harness.until_runs(job_id, 2, limit=ENOUGH)
    assert [run.status for run in runs[:2]] == [RunStatus.CANCELLED] * 2
    assert runs[0].reason == "overlap: cancelled for a newer fire"
    calls = harness.code.of(job_id)
    assert [call.how for call in calls[:2]] == ["CancelledError"] * 2
    assert most_at_once(calls) == 1
    assert harness.mirror.attempts[job_id][runs[0].run_id, 1].status.value == "cancelled"


async def test_cancel_other_waits_for_a_handler_that_does_not_listen(harness: Harness) -> None:
    """SB-091: the newest of those that came meanwhile runs; the others were overtaken."""
    job_id = harness.named["cancel_deaf"]
    runs = await harness.until_runs(job_id, 4, limit=ENOUGH)
    first = next(index for index, run in enumerate(runs) if run.attempt)
    runs = (await harness.until_runs(job_id, first + 4, limit=ENOUGH))[first:]
    assert runs[0].status is RunStatus.SUCCESS
    assert {run.outcome for run in runs[1:4]} == {Outcome.SKIPPED}
    assert {run.reason for run in runs[1:4]} == {"overlap: a newer fire took its place"}
    assert most_at_once(harness.code.of(job_id)) == 1


async def test_terminate_other_starts_at_once(harness: Harness) -> None:
    """SB-091: the old run is over for the job, whatever its handler does; its fence is the lower one."""
    job_id = harness.named["terminate"]
    runs = await harness.until_runs(job_id, 2, limit=ENOUGH)
    assert [(run.status, run.reason) for run in runs[:2]] == [
        (RunStatus.CANCELLED, "overlap: given up for a newer fire")
    ] * 2
    calls = harness.code.of(job_id)
    assert calls[0].ended is None or calls[1].began < calls[0].ended
    fences = [call.run.fence for call in calls]
    assert fences == sorted(set(fences))


async def test_allow_runs_beside_each_other_up_to_its_bound(harness: Harness) -> None:
    """From the first meeting on runs are detached; each reports back (SB-066)."""
    job_id = harness.named["allow"]
    runs = await harness.until_runs(job_id, 6, limit=ENOUGH)
    await harness.until_decided(job_id, 10)
    assert most_at_once(harness.code.of(job_id)) == 3
    assert [run.detached for run in runs[:3]] == [False, True, True]
    assert {run.status for run in runs} == {RunStatus.SUCCESS}
    reasons = {entry.reason for entry in harness.mirror.ledger[job_id].values()}
    assert reasons == {"overlap: max_concurrent (3) runs are active"}


async def test_a_job_that_never_drains_continues_as_new_beside_detached_runs(harness: Harness) -> None:
    """Some run is always active; in the end all are detached, and cross the continue-as-new."""
    job_id = harness.named["never_drains"]
    await harness.until_runs(job_id, 9, limit=ENOUGH)
    outcomes = await harness.until_decided(job_id, 9)
    assert set(outcomes[:9]) == {Outcome.RAN}

    async def has_continued() -> list[WorkflowHistory]:
        histories = await harness.histories(job_id)
        assert len(histories) >= 2
        return histories

    histories = await eventually(has_continued)
    assert max(len(history.events) for history in histories) < 200


async def test_a_blocked_job_stays_small(harness: Harness) -> None:
    """SB-039: a job of every second behind a run of twenty wakes ever more rarely."""
    job_id = harness.named["blocked"]
    await harness.until_runs(job_id, 1, limit=ENOUGH)
    outcomes = await harness.until_decided(job_id, 18)
    assert set(outcomes[1:18]) == {Outcome.SKIPPED}
    [history] = await harness.histories(job_id)
    assert len(history.events) < 160
