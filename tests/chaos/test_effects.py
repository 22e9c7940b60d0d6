"""Effects happen once, whatever happens to workers and database. They are counted in a sink outside all of our tables."""

import asyncio
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import pytest

from activities.job_control import JobControl
from tests.chaos.effect_jobs import Call, Sink
from tests.chaos.effect_stage import HEARTBEAT_TIMEOUT, Stage, effectful, running_stage
from tests.chaos.faulty_postgres import Fault
from tests.chaos.stack import register
from tests.eventually import eventually
from tests.temporal_servers import unique
from workflows.command import ShowCommand, TriggerCommand
from workflows.job import JobDefinition
from workflows.run import AttemptStatus, PayloadOverride, RunStatus
from workflows.schedule import IntervalRule

LONG = pytest.mark.slow

TIMES = pytest.mark.parametrize("times", [1, pytest.param(6, marks=[LONG, pytest.mark.timeout(300)])])
"""How often the fault befalls."""

STEPS = 12
STEPS_TO_A_FULL_PAGE = 60
"""More effects than a page of the table has room for: only then does PostgreSQL ask the disk for more."""

SLACK = timedelta(seconds=2)
"""For a busy machine."""

LOST_AT_MOST = timedelta(seconds=1)
"""How old a checkpoint may be when its worker dies."""

OUTAGE = timedelta(seconds=4)
"""Longer than the heartbeat timeout."""


@pytest.fixture(scope="module")
def started_stage(tmp_path_factory: pytest.TempPathFactory, postgres_data: Path) -> Iterator[Stage]:
    """A scheduler worker, two job workers, Temporal and PostgreSQL, shared by the tests."""
    with running_stage(tmp_path_factory.mktemp("effects"), data=postgres_data) as stage:
        yield stage


@pytest.fixture
async def stage(started_stage: Stage) -> Stage:
    """The stage, complete again after whatever the test before has done to it."""
    await started_stage.require_workers()
    return started_stage


@TIMES
async def test_a_killed_worker_is_noticed_and_its_run_goes_on_from_the_checkpoint(stage: Stage, times: int) -> None:
    """SB-093: six checkpoints, 100 ms apart, into a run: noticed within the heartbeat timeout, and each effect is there once."""
    repeated = 0
    for _ in range(times):
        await stage.require_workers()
        repeated += await kill_amid_a_run(stage)
    print(
        f"\n{times} workers killed: {times * STEPS} effects once each, {repeated} called a second time with the same key"
    )


async def kill_amid_a_run(stage: Stage) -> int:
    """Do so once; answers how many effects were called twice."""
    path, sink = stage.sink()
    return await kill_amid(stage, await stage.start("take_steps", {"sink": str(path), "steps": STEPS}), sink)


async def kill_amid(stage: Stage, run_id: str, sink: Sink, *, heartbeat_timeout: timedelta = HEARTBEAT_TIMEOUT) -> int:
    """Kill the worker of a run, and wait for its end."""
    [*_, last] = await eventually(lambda: at_least(sink, 6), every=timedelta(milliseconds=20))
    stage.process_of(last.worker).signal(signal.SIGKILL)
    killed_at = datetime.now(UTC)

    found = await stage.end_of(run_id, limit=heartbeat_timeout + timedelta(seconds=40))
    assert found.record.run.status is RunStatus.SUCCESS
    assert [attempt.status for attempt in found.attempts] == [AttemptStatus.LOST, AttemptStatus.SUCCESS]
    assert found.attempts[0].finished_at is not None
    assert found.attempts[0].finished_at - killed_at < heartbeat_timeout + SLACK

    assert sink.effects() == [f"step:{step}" for step in range(STEPS)]
    [(_, first), (resumed_at, second)] = sink.notes("begun")
    assert (first, second) == (1, 2)
    begun_before = len([call for call in sink.calls() if call.attempt == 1])
    assert begun_before - LOST_AT_MOST / timedelta(milliseconds=100) <= int(resumed_at) <= begun_before
    assert int(resumed_at) > 0
    # What was done and not saved is replayed; only the one effect that was under way may have been called a second time.
    repeated = names_called_twice(sink)
    assert repeated in ([], [f"step:{begun_before - 1}"])
    return len(repeated)


@LONG
@pytest.mark.timeout(120)
async def test_a_job_that_says_nothing_of_heartbeats_is_noticed_by_the_default(stage: Stage) -> None:
    """SB-090: within the half minute that it is, and its run goes on from the checkpoint."""
    default = JobDefinition().heartbeat_timeout
    assert default == timedelta(seconds=30)
    path, sink = stage.sink()
    run_id = await stage.start("take_steps", {"sink": str(path), "steps": STEPS}, heartbeat_timeout=default)
    await kill_amid(stage, run_id, sink, heartbeat_timeout=default)


@LONG
@pytest.mark.timeout(600)
async def test_the_death_of_workers_moves_no_next_fire(stage: Stage) -> None:
    """SB-093: twenty runs of a job whose next fire is hours away, each killed amid it: every one goes on, and the fire stays."""
    client = await stage.stack.connect()
    control, job_id = JobControl(client, find_search_attributes=all_known), unique("hours-away")
    await register(client, job_id, effectful("take_steps", IntervalRule(every=timedelta(hours=12))))
    about = {"tenant": "default", "job_id": job_id}
    before = (await control.show(ShowCommand(), **about)).job
    assert before is not None
    assert before.next_run_at is not None
    for _ in range(20):
        await stage.require_workers()
        path, sink = stage.sink()
        request_id = unique("request")
        override = PayloadOverride(payload={"sink": str(path), "steps": STEPS})
        command = TriggerCommand(key=request_id, request_id=request_id, override=override)
        told = await control.trigger(command, **about)
        await kill_amid(stage, told.triggered.run_id, sink)
        shown = (await control.show(ShowCommand(), **about)).job
        assert shown is not None
        assert (shown.next_run_at, shown.counts.missed) == (before.next_run_at, 0)


async def all_known() -> bool:
    """The server was started with our search attributes."""
    return True


@TIMES
async def test_a_zombies_effects_are_refused(stage: Stage, times: int) -> None:
    """SB-071, SB-088: stopped amid an effect until another attempt is through; then it goes on, deaf to what it is told."""
    for _ in range(times):
        await stage.require_workers()
        await stop_amid_an_effect(stage)
    print(
        f"\n{times} workers stopped for longer than their timeout: {times * 3} effects of theirs refused, {times} results"
    )


async def stop_amid_an_effect(stage: Stage) -> None:
    """Do so once."""
    path, sink = stage.sink()
    run_id = await stage.start("never_give_up", {"sink": str(path), "steps": 4})
    [*_, last] = await eventually(lambda: at_least(sink, 2), every=timedelta(milliseconds=20))
    zombie = stage.process_of(last.worker)
    zombie.signal(signal.SIGSTOP)

    found = await stage.end_of(run_id)
    # Not always the second one: Temporal may give that to the process that stands still, whose polls are still open.
    winner = len(found.attempts)
    assert (found.record.run.status, found.record.run.result) == (RunStatus.SUCCESS, winner)
    assert winner > 1
    thawed_at = time.time()
    zombie.signal(signal.SIGCONT)
    await eventually(lambda: {("1", 1), ("2", 1), ("3", 1)} <= set(sink.notes("refused")))

    assert sink.effects() == [f"step:{step}" for step in range(4)]
    assert [call for call in sink.calls() if call.at > thawed_at] == []
    # The winner got what the first attempt had done, and did the rest; the effect that was under way was called by both.
    assert [value for value, attempt in sink.notes("got") if attempt == winner] == [
        f"of attempt {number}" for number in (1, winner, winner, winner)
    ]
    assert names_called_twice(sink) == ["step:1"]
    found_later = await stage.end_of(run_id)
    assert (found_later.record.run.result, len(found_later.attempts)) == (winner, winner)


@TIMES
async def test_a_worker_that_dies_after_the_effect_has_its_result_replayed(stage: Stage, times: int) -> None:
    """It died before it could report: nothing is called again."""
    for _ in range(times):
        await stage.require_workers()
        await die_after_an_effect(stage)
    print(f"\n{times} workers dead after an effect: {times} calls, {times} results replayed")


async def die_after_an_effect(stage: Stage) -> None:
    """Do so once."""
    path, sink = stage.sink()
    run_id = await stage.start("charge_and_die", {"sink": str(path)})
    found = await stage.end_of(run_id)
    assert [attempt.status for attempt in found.attempts] == [AttemptStatus.LOST, AttemptStatus.SUCCESS]
    assert found.record.run.result == "receipt of attempt 1"
    assert len(sink.calls()) == 1


@pytest.mark.parametrize(
    "fault", [fault if fault == "frozen" else pytest.param(fault, marks=LONG) for fault in get_args(Fault)]
)
async def test_effects_wait_while_the_database_is_in_trouble(stage: Stage, fault: Fault) -> None:
    """None is repeated, none is lost, and the attempt is not: its heartbeats go on, and it ends when the database is well."""
    path, sink = stage.sink()
    steps = STEPS_TO_A_FULL_PAGE if fault == "full" else STEPS
    run_id = await stage.start("take_steps", {"sink": str(path), "steps": steps})
    await eventually(lambda: at_least(sink, 4), every=timedelta(milliseconds=20))
    stage.database.begin(fault)
    await asyncio.sleep(OUTAGE.total_seconds())
    during = len(sink.calls())
    stage.database.end(fault)

    found = await stage.end_of(run_id)
    assert found.record.run.status is RunStatus.SUCCESS
    assert len(found.attempts) == 1
    assert during < steps, "it waited"
    assert [call.name for call in sink.calls()] == [f"step:{step}" for step in range(steps)]
    print(
        f"\n{fault}: {during} of {steps} effects when the database was well again, all {steps} called once, one attempt"
    )


def at_least(sink: Sink, count: int) -> list[Call]:
    """The calls so far, once there are as many."""
    calls = sink.calls()
    return calls if len(calls) >= count else []


def names_called_twice(sink: Sink) -> list[str]:
    """Effects whose receiver was called more than once, always with the same key."""
    keys = {(call.name, call.key) for call in sink.calls()}
    assert len(keys) == len({name for name, _ in keys}), "one effect, one key"
    names = [call.name for call in sink.calls()]
    return sorted({name for name in names if names.count(name) > 1})
