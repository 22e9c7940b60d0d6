"""How a job runs fires of its backfills: fenced, under the definition that was meant, and in nobody's way. Pure."""

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.unit.job_driver import JOB, NOON, Grid, JobDriver, at, every, run_id
from workflows.backfill import StartedFire
from workflows.backfill_admission import ACTIVE_LIMIT, BackfillAnswer, BackfillCommand, admit_fires
from workflows.backfill_record import ExistingRuns
from workflows.contracts import run_workflow_id
from workflows.dispatch import next_attempt
from workflows.job import EarlierDefinition, JobDefinition, Lifecycle, OverlapPolicy, Pause
from workflows.job_state import definition_of, find_run
from workflows.lifecycle import delete_job
from workflows.policies import is_blocking, may_start_catch_up
from workflows.run import Outcome, Run, RunKind, RunStatus
from workflows.settlement import forget_twin
from workflows.turn import decide_due

DEFINITION = JobDefinition(schedule=every(60), payload="usual")


def drive(**fields: Any) -> JobDriver:
    """A job of every minute, registered at noon."""
    driver = JobDriver(DEFINITION.model_copy(update=fields), grid=Grid(60, frozenset()))
    driver.wake()
    return driver


def fires(*seconds: int) -> tuple[StartedFire, ...]:
    """Fires with names of runs."""
    return tuple(StartedFire(nominal=at(second), run_id=f"{JOB}:backfill-{second}") for second in seconds)


def admit(driver: JobDriver, *seconds: int, **fields: Any) -> BackfillAnswer:
    """Ask the job for runs, as its workflow carries that out."""
    command = BackfillCommand.model_validate(
        {"key": "k", "backfill_id": "b", "definition": DEFINITION, "fires": fires(*seconds)} | fields
    )
    turn, answer = admit_fires(driver.state, command, now=driver.now)
    driver.state = turn.state
    assert turn.start == tuple(find_run(driver.state, run.run_id) for run in turn.start)
    driver.dispatched += turn.start
    return answer


def test_backfilled_runs_are_fenced_with_all_others_of_the_job() -> None:
    """Strictly rising over live fires, backfills and live fires again, however many begin in one moment."""
    driver = drive()
    driver.go_to(at(60))
    driver.end(run_id(60))
    assert len(admit(driver, -300, -240, -180).started) == 3
    driver.go_to(at(120))
    fences = [run.fence for run in driver.dispatched]
    assert len(fences) == 5
    assert all(later > earlier for earlier, later in pairwise(fences))


def test_a_clock_that_was_set_back_lowers_no_fence() -> None:
    """The job's own counter goes on."""
    driver = drive()
    driver.go_to(at(60))
    before = driver.state.fence
    driver.now -= timedelta(hours=1)
    admit(driver, -300)
    assert driver.state.fence == before + 1


def test_a_backfilled_run_has_its_nominal_time_and_a_workflow_of_its_own() -> None:
    """Its deadlines count from now; its key is that of the fire, unless it runs again."""
    driver = drive()
    admit(driver, -300)
    [run] = driver.state.active
    assert (run.kind, run.scheduled_at, run.target_at, run.backfill_id) == (RunKind.BACKFILL, at(-300), NOON, "b")
    assert (run.detached, run.workflow_id) == (True, run_workflow_id(tenant="default", run_id=run.run_id))
    assert (run.status, run.attempt, run.max_attempts) == (RunStatus.RUNNING, 1, DEFINITION.retry.max_attempts)
    assert run.idempotency_key == f"{JOB}:{int(at(-300).timestamp())}"
    admit(driver, -240, existing=ExistingRuns.RUN_AGAIN)
    assert driver.state.active[-1].idempotency_key == f"{JOB}:{int(at(-240).timestamp())}:b"


def test_backfilled_runs_are_in_nobodys_way_and_nobody_in_theirs() -> None:
    """A live fire starts under the policy skip, and missed ones are caught up beside them."""
    driver = drive(overlap=OverlapPolicy.SKIP)
    driver.go_to(at(60))
    admit(driver, -300, -240)
    driver.go_to(at(60) + timedelta(seconds=1))
    driver.end(run_id(60))
    backfilled = driver.state.active
    assert len(backfilled) == 2
    assert not any(map(is_blocking, backfilled))
    assert may_start_catch_up(DEFINITION, active=backfilled)
    driver.go_to(at(120))
    assert run_id(120) in [run.run_id for run in driver.state.active]


def test_what_runs_already_is_passed_over_although_the_mirror_does_not_know_it_yet() -> None:
    """It runs, waits, or has just ended. To run it again is another wish."""
    driver = drive()
    driver.go_to(at(60))
    assert admit(driver, 60).skipped == (at(60),)
    assert len(admit(driver, 60, existing=ExistingRuns.RUN_AGAIN).started) == 1
    driver = drive()
    driver.go_to(at(60))
    _settle_unseen(driver)
    assert admit(driver, 60).skipped == (at(60),)


def _settle_unseen(driver: JobDriver) -> None:
    """Let the run of a fire end, and its row stay in the outbox."""
    taken, driver.mirror.take = driver.mirror.take, lambda state, *, grids: state  # type: ignore[method-assign]
    driver.end(run_id(60))
    driver.mirror.take = taken  # type: ignore[method-assign]
    assert driver.state.outbox.runs
    assert not driver.state.active


def test_a_fire_that_is_still_the_schedules_own_is_left_to_it() -> None:
    """Between nominal and target time; once the job is paused it is not."""
    driver = drive(schedule=every(60, jitter_window_seconds=30.0))
    plan = driver.state.plan
    assert plan is not None
    target = plan.upcoming[0].target
    assert target > at(60)
    driver.go_to(at(60))
    assert admit(driver, 60).skipped == (at(60),)
    driver.state = driver.state.model_copy(update={"lifecycle": Lifecycle.PAUSED, "pause": Pause(at=driver.now)})
    assert len(admit(driver, 60).started) == 1


def test_a_job_whose_planner_is_silent_says_so_and_decides_nothing() -> None:
    """A fire above the high-water mark may be one of the schedule's; the backfill asks again."""
    driver = drive()
    driver.state = driver.state.model_copy(update={"plan": None})
    answer = admit(driver, 30)
    assert (answer.started, answer.skipped, answer.gone) == ((), (), "")
    assert len(admit(driver, -60).started) == 1


@pytest.mark.parametrize("lifecycle", [Lifecycle.PAUSED, Lifecycle.COMPLETED])
def test_jobs_that_do_not_fire_are_backfilled(lifecycle: Lifecycle) -> None:
    """And stay as they are."""
    driver = drive()
    driver.state = driver.state.model_copy(update={"lifecycle": lifecycle})
    assert len(admit(driver, -60).started) == 1
    assert driver.state.lifecycle is lifecycle


@pytest.mark.parametrize("seconds", [None, 600])
def test_a_held_job_is_backfilled_as_a_paused_one_is(seconds: int | None) -> None:
    """What fell into the hold too, of which nothing is planned; it stays held."""
    driver = drive()
    driver.hold("h", until=None if seconds is None else at(seconds))
    driver.go_to(at(300))
    driver.state = driver.state.model_copy(update={"plan": None})
    assert [fire.nominal for fire in admit(driver, -60, 60, 240).started] == [at(-60), at(60), at(240)]
    assert [hold.hold_id for hold in driver.state.holds] == ["h"]


def test_a_fire_after_the_end_of_a_hold_is_the_schedules_own() -> None:
    """The hold is still there at that moment, and the planner has not answered yet."""
    driver = drive()
    driver.hold("h", until=at(90))
    driver.state = driver.state.model_copy(update={"plan": None})
    assert [fire.nominal for fire in admit(driver, 60, 120).started] == [at(60)]


def test_a_deleted_job_runs_nothing_more_nor_does_another_registration_of_its_id() -> None:
    """The backfill is told why."""
    driver = drive()
    known = admit(driver, -60).registered_at
    assert known == driver.state.registered_at
    assert admit(driver, -120, registered_at=known).gone == ""
    other = admit(driver, -180, registered_at=NOON - timedelta(days=1))
    assert (other.gone, other.started) == ("the job was deleted and registered again", ())
    driver.state = delete_job(driver.state, now=driver.now, cancel_active=False).state
    assert admit(driver, -180).gone == "the job was deleted"


def test_a_run_keeps_the_definition_of_the_backfill_for_all_that_has_changed_since() -> None:
    """Although the job has forgotten that definition long ago."""
    driver = drive()
    driver.state = driver.state.model_copy(update={"revision": 7, "definition": JobDefinition(payload="new")})
    old = DEFINITION.model_copy(update={"payload": "old"})
    admit(driver, -60, revision=3, definition=old)
    assert driver.state.earlier == (EarlierDefinition(revision=3, definition=old),)
    [run] = driver.state.active
    assert definition_of(driver.state, run).payload == "old"
    admit(driver, -120, revision=3, definition=old)
    assert len(driver.state.earlier) == 1


def test_a_repeated_question_begins_nothing_twice() -> None:
    """The answer was lost: a run of that name is under way."""
    driver = drive()
    assert admit(driver, -60) == admit(driver, -60)
    assert len(driver.state.active) == 1


def test_a_job_holds_so_many_backfilled_runs_at_once() -> None:
    """What has no room is not named, and is asked for later."""
    driver = drive()
    answer = admit(driver, *range(-60 * (ACTIVE_LIMIT + 5), 0, 60))
    assert len(answer.started) == ACTIVE_LIMIT
    assert answer.skipped == ()


def test_a_run_that_temporal_has_already_is_forgotten_without_a_trace() -> None:
    """It was admitted before, and its own workflow tells its rows."""
    driver = drive()
    admit(driver, -60)
    before = driver.state.outbox
    driver.state = forget_twin(driver.state, f"{JOB}:backfill--60")
    assert driver.state.active == ()
    assert driver.state.outbox == before


def test_a_backfilled_run_counts_as_no_fire_of_the_schedule() -> None:
    """``max_runs`` bounds what the schedule starts; how runs end is counted of all."""
    driver = drive(schedule=every(60, max_runs=2))
    admit(driver, -60, -120)
    assert driver.state.counts.started == 0
    for run in driver.state.active:
        driver.out[run.run_id] = run
        driver.report(_success(run, driver.now))
    assert (driver.state.counts.started, driver.state.counts.succeeded) == (0, 2)


def _success(run: Run, now: datetime) -> Run:
    done = next_attempt(run, now=now, last_fence=run.fence)
    return done.model_copy(update={"status": RunStatus.SUCCESS, "outcome": Outcome.RAN, "finished_at": now})


@pytest.mark.parametrize("logic", [4, 5])
def test_a_fire_beyond_an_old_plan_is_the_jobs_own_to_decide_first(logic: int) -> None:
    """The planner does not answer, and will find that it was missed. Runs of the fourth version go on to start it."""
    driver = drive(missed_window="RUN_ALL")
    driver.state = driver.state.model_copy(update={"logic": logic})
    driver.now = at(3_605)
    driver._carry_out(decide_due(driver.state, now=driver.now))
    if logic == 4:
        assert admit(driver, 1_800, 2_400).started == fires(1_800, 2_400)
        return
    assert admit(driver, 1_800, 2_400).started == ()
    driver.wake()
    assert admit(driver, 1_800, 2_400).skipped == (at(1_800), at(2_400))
