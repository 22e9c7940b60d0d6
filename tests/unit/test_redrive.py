"""Dead runs run again: their names, their lane, and that asking twice is asking once. Pure."""

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.job_driver import JOB, Grid, JobDriver, at, every, run_id
from workflows.command import RedriveCommand
from workflows.job import JobDefinition, JobState, Lifecycle, OverlapPolicy
from workflows.policies import LANE
from workflows.redrive import (
    REMEMBERED,
    REMEMBERED_FOR,
    WAITING_LIMIT,
    answer_redrive,
    knows_redrive,
    may_take_redrive,
    redrive_run_id,
    take_redrive,
    waiting_redrives,
    without_old_redrives,
)
from workflows.run import AttemptStatus, Failure, Run, RunKind, RunStatus

PERMANENT = Failure(type="ValueError", message="broken", retryable=False)


def drive(seconds: int = 60, **fields: Any) -> JobDriver:
    """A job on a grid, registered at noon."""
    driver = JobDriver(
        JobDefinition.model_validate({"schedule": every(seconds)} | fields), grid=Grid(seconds, frozenset())
    )
    driver.wake()
    return driver


def kill(driver: JobDriver, second: int) -> Run:
    """Let the fire of a second die."""
    driver.go_to(at(second))
    driver.end(run_id(second), AttemptStatus.FAILED, failure=PERMANENT, checkpoint={"item": 3})
    _, dead = driver.mirror.runs[run_id(second)]
    assert dead.status is RunStatus.DEAD
    return dead


def command_for(dead: Run) -> RedriveCommand:
    """What is asked for."""
    name = redrive_run_id(dead.run_id, job_id=JOB)
    return RedriveCommand(key=name, run_id=name, dead=dead)


def redrive(driver: JobDriver, dead: Run) -> str:
    """Ask for a redrive, as the workflow carries it out."""
    command = command_for(dead)
    driver.state = take_redrive(driver.state, command, now=driver.now)
    driver.wake()
    return command.run_id


@pytest.mark.parametrize(
    ("dead", "names"),
    [
        ("j:20260608T120000Z", ["j:redrive-20260608T120000Z", "j:redrive-2-20260608T120000Z", "j:redrive-3-20260608T120000Z"]),
        ("j:manual-abc", ["j:redrive-manual-abc", "j:redrive-2-manual-abc", "j:redrive-3-manual-abc"]),
        ("j:manual-2-abc", ["j:redrive-manual-2-abc", "j:redrive-2-manual-2-abc", "j:redrive-3-manual-2-abc"]),
    ],
)  # fmt: skip
def test_a_redrive_is_named_by_its_dead_run_and_names_do_not_grow(dead: str, names: list[str]) -> None:
    """The same for whoever asks; the redrive of a redrive counts up."""
    for name in names:
        dead = redrive_run_id(dead, job_id="j")
        assert dead == name


def test_names_of_jobs_that_contain_the_word_are_no_redrives() -> None:
    """The job's own id is not read for a number."""
    assert (
        redrive_run_id("redrive-2-x:20260608T120000Z", job_id="redrive-2-x") == "redrive-2-x:redrive-20260608T120000Z"
    )


def test_a_redrive_has_the_dead_runs_key_time_and_checkpoint() -> None:
    """And a fence above all before; it does not count as a fire, and marks the dead run."""
    driver = drive()
    dead = kill(driver, 60)
    name = redrive(driver, dead)
    [run] = driver.state.active
    assert (run.run_id, run.kind, run.redrive_of) == (name, RunKind.REDRIVE, dead.run_id)
    assert (run.scheduled_at, run.idempotency_key) == (dead.scheduled_at, dead.idempotency_key)
    assert (run.checkpoint, run.attempt) == ({"item": 3}, 1)
    assert run.fence > dead.fence
    assert driver.mirror.runs[dead.run_id][1].redriven_by == name
    assert driver.state.counts.started == 1
    driver.end(name)
    assert (driver.state.counts.succeeded, driver.state.counts.dead) == (1, 1)


def test_asking_twice_is_asking_once_also_after_it_has_ended() -> None:
    """However often, and whatever the mirror shows to whoever asks."""
    driver = drive()
    dead = kill(driver, 60)
    name = redrive(driver, dead)
    redrive(driver, dead)
    driver.end(name)
    redrive(driver, dead)
    assert [run.run_id for run in driver.dispatched].count(name) == 1
    assert answer_redrive(driver.state, command_for(dead)).run_id == name


def test_live_fires_go_on_beside_a_redrive_and_a_redrive_waits_for_a_live_run() -> None:
    """It is in nobody's way, and begins only where a live fire would be let in."""
    driver = drive(overlap=OverlapPolicy.SKIP)
    dead = kill(driver, 60)
    driver.go_to(at(120))
    name = redrive(driver, dead)
    assert [run.run_id for run in driver.state.active] == [run_id(120)]
    driver.end(run_id(120))
    assert [run.run_id for run in driver.state.active] == [name]
    driver.go_to(at(180))
    assert {run.run_id for run in driver.state.active} == {name, run_id(180)}
    assert set(LANE) == {RunKind.CATCH_UP, RunKind.BACKFILL, RunKind.REDRIVE}


@pytest.mark.parametrize("lifecycle", [Lifecycle.PAUSED, Lifecycle.COMPLETED, Lifecycle.DELETED])
def test_a_job_that_does_not_fire_redrives_and_stays_as_it_is(lifecycle: Lifecycle) -> None:
    """Nothing else is started, and the high-water mark does not move."""
    driver = drive()
    dead = kill(driver, 60)
    driver.state = driver.state.model_copy(update={"lifecycle": lifecycle, "plan": None})
    before = driver.state.high_water
    driver.now = at(3600)
    name = redrive(driver, dead)
    assert [run.run_id for run in driver.state.active] == [name]
    driver.end(name)
    assert (driver.state.lifecycle, driver.state.high_water, driver.state.active) == (lifecycle, before, ())


def test_a_redrive_goes_before_missed_fires_and_is_no_part_of_their_bound() -> None:
    """One at a time, at the rate of the lane."""
    driver = drive(missed_window="RUN_ALL", max_missed=2, catch_up_rate=60)
    dead = kill(driver, 60)
    driver.state = take_redrive(driver.state, command_for(dead), now=driver.now)
    driver.be_away(timedelta(minutes=30))
    assert [run.kind for run in (*driver.state.active, *driver.state.catch_up)].count(RunKind.CATCH_UP) == 2
    assert knows_redrive(driver.state, redrive_run_id(dead.run_id, job_id=JOB))


def test_a_job_takes_a_few_redrives_and_says_when_it_has_enough() -> None:
    """What it knows already is no new one."""
    state = JobState(job_id=JOB)
    deads = [Run(run_id=f"{JOB}:manual-{n}", scheduled_at=at(n), target_at=at(n), created_at=at(n)) for n in range(20)]
    for dead in deads[:WAITING_LIMIT]:
        assert may_take_redrive(state, command_for(dead))
        state = take_redrive(state, command_for(dead), now=at(30))
    assert len(waiting_redrives(state)) == WAITING_LIMIT
    assert not may_take_redrive(state, command_for(deads[-1]))
    assert may_take_redrive(state, command_for(deads[0]))
    assert not may_take_redrive(JobState(job_id=JOB), command_for(deads[0]), queued=WAITING_LIMIT)


def test_what_is_remembered_is_bounded() -> None:
    """By number and by age: the state crosses every continue-as-new."""
    state = JobState(job_id=JOB)
    for n in range(REMEMBERED + 5):
        dead = Run(run_id=f"{JOB}:manual-{n}", scheduled_at=at(n), target_at=at(n), created_at=at(n))
        state = take_redrive(state, command_for(dead), now=at(n)).model_copy(update={"catch_up": ()})
    assert len(state.redriven) == REMEMBERED
    assert without_old_redrives(state, now=at(0) + REMEMBERED_FOR + timedelta(days=1)).redriven == ()


def test_registering_a_job_again_keeps_the_redrives_that_wait() -> None:
    """They were asked for since it was deleted."""
    driver = drive(overlap=OverlapPolicy.SKIP)
    dead = kill(driver, 60)
    driver.go_to(at(120))
    driver.delete()
    name = redrive(driver, dead)
    driver.register(JobDefinition(schedule=every(60)), grid=Grid(60, frozenset()))
    driver.end(run_id(120))
    assert name in {run.run_id for run in (*driver.state.active, *driver.state.catch_up)}
