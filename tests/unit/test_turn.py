"""Turns, one at a time: what a job decides when, and what it never does. The clock is explicit; nothing sleeps."""

from datetime import datetime, timedelta

import pytest

from tests.unit.job_driver import EPOCH, JOB, NOON, Grid, JobDriver, at, every, run_id
from workflows.job import (
    CatchUpPolicy,
    Isolation,
    JobDefinition,
    JobState,
    Lifecycle,
    OverlapPolicy,
    RetryPolicy,
    Tuning,
)
from workflows.lifecycle import begin
from workflows.outbox import job_record
from workflows.resilience import AttemptEnd
from workflows.run import AttemptStatus, Failure, Outcome, Run, RunKind, RunStatus
from workflows.schedule import OneOffRule, Schedule
from workflows.settlement import settle_attempt, show_run
from workflows.turn import take_turn
from workflows.wake import needs_plan, next_wake


def drive(seconds: int, *, not_in_minutes: str | None = None, **fields: object) -> JobDriver:
    """A job on a grid, registered at noon."""
    excluded = frozenset({int(not_in_minutes)} if not_in_minutes else ())
    definition = JobDefinition.model_validate({"schedule": every(seconds, not_in_minutes=not_in_minutes)} | fields)
    driver = JobDriver(definition, grid=Grid(seconds, excluded))
    driver.wake()
    return driver


def in_berlin(seconds: int, **fields: object) -> Schedule:
    """A grid whose fires depend on a zone's rules: those that its clock shows in the first minute of an hour are no fires."""
    return every(seconds, not_in_minutes="1", timezone="Europe/Berlin", **fields)


def planned_at(driver: JobDriver) -> datetime:
    """Say when the planner was asked last."""
    assert driver.state.plan is not None
    return driver.state.plan.planned_at


def test_a_fire_is_dispatched_at_its_target_and_recorded_when_it_ends() -> None:
    """The ordinary life of a run; its row is final, numbered, fenced and has both its times."""
    driver = drive(60)
    driver.go_to(at(60))
    assert driver.started() == [60]
    [run] = driver.state.active
    assert (run.status, run.attempt, run.dispatched_at) == (RunStatus.RUNNING, 1, at(60))
    assert run.fence == (at(60) - EPOCH) // timedelta(microseconds=1)

    driver.now = at(63)
    driver.end(run.run_id)
    assert driver.state.active == ()
    _, row = driver.mirror.runs[run_id(60)]
    assert (row.status, row.outcome, row.scheduled_at, row.finished_at) == (
        RunStatus.SUCCESS,
        Outcome.RAN,
        at(60),
        at(63),
    )
    assert driver.state.counts.succeeded == 1


def test_a_second_wake_for_the_same_fire_does_nothing() -> None:
    """SB-060: the nominal time is the key, not the moment of the wake."""
    driver = drive(60)
    driver.go_to(at(60))
    driver.now = at(60.2)
    driver.wake()
    driver.end(run_id(60))
    driver.wake()
    assert driver.started() == [60]


def test_a_fire_late_within_its_grace_runs_and_one_beyond_is_missed() -> None:
    """SB-044: one rule at every length of an outage. Every 15 s the grace is 60 s, counted from the target, inclusive."""
    for late, outcome in ((59.999, Outcome.RAN), (60.0, Outcome.RAN), (60.001, Outcome.MISSED)):
        driver = drive(15, missed_window="SKIP", overlap="allow", max_concurrent=10)
        driver.be_away(timedelta(seconds=15 + late))
        assert driver.outcomes()[15] is outcome


@pytest.mark.parametrize("outage", [20, 59, 61, 300])
def test_skip_runs_nothing_that_was_missed_and_never_a_burst(outage: int) -> None:
    """SB-044: after an outage, skipping what was missed and what overlaps, one run is started and not three or four."""
    driver = drive(15, missed_window="SKIP")
    driver.be_away(timedelta(seconds=outage))
    assert len(driver.out) == 1
    missed = [second for second, outcome in driver.outcomes().items() if outcome is Outcome.MISSED]
    assert missed == [second for second in range(15, outage + 1, 15) if second + 60 < outage]
    assert driver.state.counts.missed == len(missed)


def test_after_an_outage_run_once_catches_up_once_and_goes_on_with_the_grid() -> None:
    """SB-038: 101 minutes away cost a minutely job one run that stands for all, and nothing else."""
    driver = drive(60)
    driver.be_away(timedelta(minutes=101, seconds=30))
    outcomes = driver.outcomes()
    # The fire of minute 101 is within its grace, but it came like the others while nobody was there.
    assert [second for second, outcome in outcomes.items() if outcome is Outcome.COALESCED] == list(range(60, 6060, 60))
    assert driver.started() == [6060]

    [caught_up] = driver.state.active
    assert (caught_up.kind, caught_up.stands_for) == (RunKind.CATCH_UP, 101)
    driver.end(run_id(6060))
    driver.go_to(at(6120))
    assert driver.started() == [6060, 6120]
    assert {entry.run_id for entry in driver.mirror.entries} == {run_id(6060)}


@pytest.mark.parametrize("overlap", ["skip", "buffer_one", "cancel_other", "terminate_other"])
def test_fires_that_came_together_within_their_grace_follow_the_catch_up_policy(overlap: str) -> None:
    """Fifty seconds away, every ten seconds, with a grace of a minute: the overlap policy alone would lose all but one."""
    once = drive(10, missed_window="RUN_ONCE", overlap=overlap)
    once.be_away(timedelta(seconds=52))
    [run] = once.state.active
    assert (run.run_id, run.kind, run.stands_for) == (run_id(50), RunKind.CATCH_UP, 5)

    each = drive(10, missed_window="RUN_ALL", overlap=overlap, catch_up_rate=6_000)
    each.be_away(timedelta(seconds=52))
    for second in (50, 10, 20, 30, 40):
        [run] = each.state.active
        assert (run.run_id, run.kind) == (run_id(second), RunKind.SCHEDULED if second == 50 else RunKind.CATCH_UP)
        each.now += timedelta(seconds=0.1)
        each.end(run.run_id)


def test_one_late_fire_is_live_and_so_are_those_behind_a_run() -> None:
    """A stall is several fires that nothing of the job held up."""
    one = drive(10)
    one.be_away(timedelta(seconds=19))
    assert [(run.kind, run.stands_for) for run in one.state.active] == [(RunKind.SCHEDULED, 1)]

    behind = drive(10)
    behind.go_to(at(10))
    behind.be_away(timedelta(seconds=35))
    assert [behind.outcomes()[second] for second in (20, 30, 40)] == [Outcome.SKIPPED] * 3


def test_run_all_catches_up_oldest_first_one_at_a_time_at_its_rate() -> None:
    """SB-051: each missed fire has a run and a key of its own; they take turns, at ``catch_up_rate``."""
    driver = drive(60, missed_window="RUN_ALL", catch_up_rate=6, schedule=every(60, end_at=at(240)))
    driver.be_away(timedelta(minutes=6))
    for second in (60, 120, 180, 240):
        [run] = driver.state.active
        assert (run.run_id, run.kind) == (run_id(second), RunKind.CATCH_UP)
        driver.now += timedelta(seconds=1)
        driver.end(run.run_id)
        driver.go_to(driver.now + timedelta(seconds=9))
    assert [run.dispatched_at for run in driver.dispatched] == [at(360), at(370), at(380), at(390)]
    assert driver.state.lifecycle is Lifecycle.COMPLETED
    keys = {run.idempotency_key for run in driver.dispatched}
    assert len(keys) == len(driver.dispatched)


def test_run_all_drops_the_oldest_beyond_its_bound() -> None:
    """A bound reached is said so: the newest ``max_missed`` are kept, the others are dropped by name."""
    driver = drive(60, missed_window="RUN_ALL", max_missed=3)
    driver.be_away(timedelta(minutes=10, seconds=30))
    assert [run.run_id for run in driver.state.catch_up] == [run_id(second) for second in (420, 480, 540)]
    assert driver.outcomes()[360] is Outcome.DROPPED
    assert driver.state.counts.missed == 6


def test_a_second_outage_drops_the_oldest_of_the_first() -> None:
    """The bound holds over outages: what gives up its place is told in its row."""
    driver = drive(60, missed_window="RUN_ALL", max_missed=3)
    driver.be_away(timedelta(minutes=4, seconds=30))
    assert [run.run_id for run in driver.state.catch_up] == [run_id(second) for second in (60, 120, 180)]
    driver.be_away(timedelta(minutes=3))
    assert [run.run_id for run in driver.state.catch_up] == [run_id(second) for second in (180, 300, 360)]
    assert [driver.outcomes()[second] for second in (60, 120)] == [Outcome.DROPPED] * 2
    assert driver.state.counts.started == 4


def test_a_large_outage_is_a_few_rows() -> None:
    """A month of missed minutes is told in ranges."""
    driver = drive(60, missed_window="SKIP")
    driver.be_away(timedelta(days=31, seconds=30))
    reasons = [(entry.count, entry.reason) for entry in driver.mirror.entries]
    assert reasons == [
        (24 * 60, "older than lookback_seconds (2592000)"),
        (30 * 24 * 60 - 1, "missed_window is SKIP"),
    ]


def test_the_fires_that_a_run_blocks_are_skipped_whatever_their_number() -> None:
    """SB-039 and SB-056: behind a run of ten minutes the job sleeps ever longer, but every fire is skipped and none missed."""
    for seconds in (1, 2, 60):
        driver = drive(seconds)
        driver.go_to(at(seconds))
        wakes = driver.wakes
        driver.go_to(at(600 + seconds))
        driver.end(run_id(seconds))
        blocked = {s: o for s, o in driver.outcomes().items() if seconds < s < 600 + seconds}
        assert list(blocked) == list(range(2 * seconds, 600 + seconds, seconds))
        assert set(blocked.values()) == {Outcome.SKIPPED}
        assert {entry.run_id for entry in driver.mirror.entries} == {run_id(seconds)}
        assert driver.wakes - wakes < 60


@pytest.mark.parametrize("status", [AttemptStatus.TIMED_OUT, AttemptStatus.LOST])
def test_a_hung_handler_blocks_a_job_until_it_is_given_up_and_never_in_silence(status: AttemptStatus) -> None:
    """Each fire that it blocks is told with the run in its way; when its timeout has ended it, the next fire runs."""
    driver = drive(10, retry={"max_attempts": 1})
    driver.go_to(at(10))
    driver.go_to(at(35))
    driver.end(run_id(10), status, failure=Failure(type="timeout"))
    driver.go_to(at(40))
    assert driver.started() == [10, 40]
    assert [driver.outcomes()[second] for second in (20, 30)] == [Outcome.SKIPPED] * 2
    assert {entry.run_id for entry in driver.mirror.entries} == {run_id(10)}
    assert driver.mirror.runs[run_id(10)][1].status is RunStatus.DEAD


def test_a_fire_that_crosses_the_end_of_the_run_before_it_starts() -> None:
    """A run that ends as the next fire comes does not block it, though its answer arrives a moment later."""
    driver = drive(10)
    driver.go_to(at(10))
    driver.now = at(20.15)
    driver.end(run_id(10))
    assert driver.started() == [10, 20]


def test_a_fire_well_before_the_end_of_the_run_is_skipped() -> None:
    """The counterpart: what came while the run was active is decided as if seen at once."""
    driver = drive(10)
    driver.go_to(at(10))
    driver.now = at(20.5)
    driver.end(run_id(10))
    assert driver.started() == [10]
    assert driver.outcomes()[20] is Outcome.SKIPPED


def test_buffer_one_holds_the_first_that_comes_and_skips_the_rest() -> None:
    """SB-065 for ``buffer_one``."""
    driver = drive(2, overlap="buffer_one")
    driver.go_to(at(9))
    driver.end(run_id(2))
    assert driver.started() == [2, 4]
    assert [s for s, o in driver.outcomes().items() if o is Outcome.SKIPPED] == [6, 8]


def test_buffer_all_is_bounded_and_keeps_the_order() -> None:
    """What finds no place is dropped, and says so."""
    driver = drive(2, overlap="buffer_all", max_buffered=2)
    driver.go_to(at(9))
    for second in (2, 4, 6):
        driver.end(run_id(second))
    assert driver.started() == [2, 4, 6]
    assert driver.outcomes()[8] is Outcome.DROPPED
    assert "max_buffered" in str(driver.mirror.entries[0].reason)


def test_cancel_other_waits_for_the_cancelled_run_and_the_newest_takes_the_place() -> None:
    """Replace: one cancellation, whatever the number of fires; those overtaken while waiting are skipped."""
    driver = drive(10, overlap="cancel_other")
    driver.go_to(at(35))
    assert driver.cancelled == [run_id(10)]
    assert driver.started() == [10]
    assert [driver.outcomes()[second] for second in (20, 30)] == [Outcome.SKIPPED, Outcome.PENDING]
    driver.end(run_id(10), AttemptStatus.CANCELLED)
    assert driver.started() == [10, 30]
    _, row = driver.mirror.runs[run_id(10)]
    assert (row.status, row.reason) == (RunStatus.CANCELLED, "overlap: cancelled for a newer fire")


def test_cancel_other_ends_a_run_between_attempts_at_once() -> None:
    """Nothing of it is out, so there is nothing to wait for."""
    driver = drive(10, overlap="cancel_other", retry=RetryPolicy(base=timedelta(seconds=60)))
    driver.go_to(at(10))
    driver.end(run_id(10), AttemptStatus.FAILED)
    driver.go_to(at(20))
    assert driver.started() == [10, 20]
    assert driver.cancelled == []


def test_a_look_at_a_run_that_is_being_cancelled_keeps_why() -> None:
    """What was seen crosses with the request; the reason stays until the end."""
    driver = drive(10, overlap="cancel_other")
    driver.go_to(at(20))
    run = driver.out[run_id(10)]
    seen = run.model_copy(update={"reason": None, "worker": "w"})
    driver.state = show_run(driver.state, seen, now=driver.now)
    driver.end(run.run_id, AttemptStatus.CANCELLED)
    assert driver.mirror.runs[run.run_id][1].reason == "overlap: cancelled for a newer fire"


def test_a_cancelled_run_that_succeeds_all_the_same_has_succeeded() -> None:
    """A request to end is no end; any other answer than success is read as the cancellation."""
    driver = drive(10, overlap="cancel_other")
    driver.go_to(at(20))
    driver.end(run_id(10), AttemptStatus.SUCCESS)
    assert driver.mirror.runs[run_id(10)][1].status is RunStatus.SUCCESS
    assert driver.started() == [10, 20]


def test_terminate_other_starts_at_once_and_ignores_the_late_answer() -> None:
    """The given-up run is over for the job; its fence is lower than that of the run that took its place."""
    driver = drive(10, overlap="terminate_other")
    driver.go_to(at(20))
    assert driver.started() == [10, 20]
    older, newer = driver.dispatched
    assert older.fence < newer.fence
    late = settle_attempt(
        driver.state, AttemptEnd(run_id=run_id(10), status=AttemptStatus.SUCCESS), now=driver.now, draw=0.0
    )
    assert late == driver.state
    assert driver.mirror.runs[run_id(10)][1].status is RunStatus.CANCELLED


@pytest.mark.parametrize("overlap", ["terminate_other", "cancel_other"])
def test_of_several_fires_due_at_once_only_the_newest_runs(overlap: str) -> None:
    """Late by less than their grace, they replace each other before any is dispatched; the older ones are skipped."""
    driver = drive(10, overlap=overlap, missed_window="SKIP")
    driver.be_away(timedelta(seconds=45))
    assert driver.started() == [40]
    assert driver.cancelled == []
    assert driver.state.counts.started == 1
    assert [driver.outcomes()[second] for second in (10, 20, 30)] == [Outcome.SKIPPED] * 3


def test_a_detached_run_that_is_given_up_leaves_its_rows_to_its_own_workflow() -> None:
    """Its job knows only the first attempt, and must not write over what came after it."""
    driver = drive(10, overlap="terminate_other", isolation="workflow")
    driver.go_to(at(20))
    assert driver.cancelled == [run_id(10)]
    assert driver.state.outbox.runs == ()
    assert driver.mirror.attempts == {}


def test_allow_is_bounded_and_detaches_from_the_first_meeting_on() -> None:
    """Inline runs that never drain would keep the job from continuing as new; the second and later ones get workflows."""
    driver = drive(10, overlap="allow", max_concurrent=3)
    driver.go_to(at(45))
    assert [run.detached for run in driver.dispatched] == [False, True, True]
    assert driver.started() == [10, 20, 30]
    assert driver.outcomes()[40] is Outcome.SKIPPED


def test_a_run_that_retries_is_active() -> None:
    """Its fires are skipped between its attempts too, and say which run blocked them."""
    driver = drive(10, retry=RetryPolicy(base=timedelta(seconds=60)))
    driver.go_to(at(10))
    driver.end(run_id(10), AttemptStatus.FAILED)
    driver.go_to(at(25))
    assert driver.started() == [10]
    assert driver.outcomes()[20] is Outcome.SKIPPED


def test_retries_do_not_move_the_grid() -> None:
    """The next fire stays where the schedule puts it, however the run before it goes."""
    driver = drive(60)
    driver.go_to(at(60))
    driver.end(run_id(60), AttemptStatus.FAILED)
    assert driver.state.plan is not None
    assert driver.state.plan.upcoming[0].nominal == at(120)


def test_catch_up_never_makes_a_live_fire_wait_or_skip() -> None:
    """The lane of missed fires is beside the road, under every overlap policy."""
    for overlap in OverlapPolicy:
        driver = drive(60, missed_window="RUN_ALL", overlap=overlap.value)
        driver.be_away(timedelta(minutes=5, seconds=30))
        live = [run for run in driver.dispatched if run.kind is RunKind.SCHEDULED]
        for run in live:
            driver.end(run.run_id)
        driver.go_to(at(359))
        assert [run.kind for run in driver.state.active] == [RunKind.CATCH_UP]
        driver.go_to(at(360))
        assert driver.started()[-1] == 360


def test_under_deadline_a_waiting_run_is_missed_when_its_time_is_over() -> None:
    """The deadline is looked at again before the actual start, and wakes the job by itself."""
    driver = drive(60, missed_window="DEADLINE", max_delay=timedelta(seconds=20), overlap="buffer_one")
    driver.go_to(at(140))
    assert [run.run_id for run in driver.state.waiting] == [run_id(120)]
    driver.go_to(at(140.001))
    assert driver.outcomes()[120] is Outcome.MISSED
    assert (driver.state.counts.missed, driver.state.counts.started) == (1, 1)


def test_under_deadline_a_run_that_no_worker_takes_is_missed() -> None:
    """An attempt that was never begun has run nothing."""
    driver = drive(60, missed_window="DEADLINE", max_delay=timedelta(seconds=20))
    driver.go_to(at(60))
    driver.now = at(80.1)
    driver.end(run_id(60), AttemptStatus.TIMED_OUT, not_started=True)
    assert driver.outcomes()[60] is Outcome.MISSED
    assert driver.state.counts.missed == 1


def test_under_deadline_a_parked_run_does_not_start_late() -> None:
    """A run parked since it was decided has not started; past its deadline it never does."""
    driver = drive(60, missed_window="DEADLINE", max_delay=timedelta(seconds=3))
    driver.go_to(at(60))
    driver.end(run_id(60), AttemptStatus.FAILED, failure=Failure(type="NotFoundError"), unknown_activity=True)
    driver.go_to(at(70))
    assert driver.started() == [60]
    assert driver.outcomes()[60] is Outcome.MISSED


def test_what_waits_behind_a_parked_run_starts_when_its_deadline_ends_that() -> None:
    """In the same turn: nothing else would wake the job for it."""
    driver = drive(4, missed_window="DEADLINE", max_delay=timedelta(seconds=6), overlap="buffer_one")
    driver.go_to(at(4))
    driver.end(run_id(4), AttemptStatus.FAILED, failure=Failure(type="NotFoundError"), unknown_activity=True)
    driver.be_away(timedelta(seconds=8.5))
    assert driver.outcomes()[4] is Outcome.MISSED
    assert driver.started() == [4, 8]


def test_a_maximum_delay_without_the_deadline_policy_means_nothing() -> None:
    """It is accepted beside other policies; a waiting run then waits, and the job sleeps."""
    driver = drive(60, max_delay=timedelta(seconds=20), overlap="buffer_one")
    driver.go_to(at(175))
    assert [run.run_id for run in driver.state.waiting] == [run_id(120)]


def test_a_parked_run_uses_up_no_attempt() -> None:
    """A rolling deploy of the workers costs a run time and nothing else."""
    driver = drive(3600, retry=RetryPolicy(max_attempts=1))
    driver.go_to(at(3600))
    for _ in range(5):
        driver.end(run_id(3600), AttemptStatus.FAILED, failure=Failure(message="no such"), unknown_activity=True)
        [run] = driver.state.active
        assert (run.status, run.attempt, run.reason) == (RunStatus.PARKED, 0, "unknown_activity: no such")
        assert run.next_attempt_at is not None
        driver.go_to(run.next_attempt_at)
    driver.end(run_id(3600))
    assert driver.mirror.runs[run_id(3600)][1].status is RunStatus.SUCCESS
    assert driver.mirror.attempts.keys() == {(run_id(3600), 1)}


def test_max_runs_counts_runs_and_completes_the_job() -> None:
    """The last run is dispatched, and the job is completed with it; it does not wait for its end."""
    driver = drive(10, overlap="allow", schedule=every(10, max_runs=2))
    driver.go_to(at(100))
    assert driver.started() == [10, 20]
    assert driver.state.lifecycle is Lifecycle.COMPLETED


def test_max_runs_is_not_used_up_by_runs_that_never_started() -> None:
    """A buffered run that missed its deadline gives its place back."""
    driver = drive(
        60,
        schedule=every(60, max_runs=2),
        missed_window="DEADLINE",
        max_delay=timedelta(seconds=20),
        overlap="buffer_one",
    )
    driver.go_to(at(150))
    assert driver.outcomes()[120] is Outcome.MISSED
    driver.end(run_id(60))
    driver.go_to(at(180))
    assert driver.started() == [60, 180]
    assert driver.state.lifecycle is Lifecycle.COMPLETED


def test_times_that_pass_while_max_runs_is_reached_are_no_fires() -> None:
    """A run that waits has the last place. When it gives it back, the grid goes on; what went by meanwhile is not made up for."""
    driver = drive(10, schedule=every(10, max_runs=2), overlap="buffer_one")
    driver.go_to(at(35))
    assert [run.run_id for run in driver.state.waiting] == [run_id(20)]
    assert job_record(driver.state).next_run_at is None
    driver.go_to(at(40))
    driver.cancel(run_id(20))
    assert job_record(driver.state).next_run_at == at(50)
    driver.end(run_id(10))
    driver.go_to(at(50))
    assert driver.started() == [10, 50]
    assert driver.outcomes() == {10: Outcome.RAN, 20: Outcome.CANCELLED, 50: Outcome.RAN}
    assert driver.state.lifecycle is Lifecycle.COMPLETED


def test_a_schedule_that_ends_completes_its_job() -> None:
    """The last fire is at ``end_at``, inclusive."""
    driver = drive(10)
    driver = JobDriver(JobDefinition(schedule=every(10, end_at=at(30))), grid=Grid(10, end_at=at(30)))
    driver.wake()
    for second in (10, 20, 30):
        driver.go_to(at(second))
        driver.end(run_id(second))
    assert driver.started() == [10, 20, 30]
    assert driver.state.lifecycle is Lifecycle.COMPLETED
    assert next_wake(driver.state, now=driver.now) is None


def test_a_one_off_completes_with_its_fire() -> None:
    """One fire, one run, and then nothing is planned."""
    schedule = Schedule(rule=OneOffRule(at=at(30)))
    driver = JobDriver(JobDefinition(schedule=schedule), grid=Grid(30, end_at=at(30)))
    driver.wake()
    driver.go_to(at(3600))
    assert driver.started() == [30]
    assert driver.state.lifecycle is Lifecycle.COMPLETED


def test_excluded_fires_are_in_the_ledger_with_what_excludes_them() -> None:
    """Nothing happened, and that is explained: before, between and after the wanted fires."""
    driver = JobDriver(
        JobDefinition(schedule=every(30, not_in_minutes="2,4", end_at=at(270)), overlap=OverlapPolicy.TERMINATE_OTHER),
        grid=Grid(30, frozenset({2, 4}), end_at=at(270)),
    )
    driver.wake()
    driver.go_to(at(600))
    assert driver.started() == [30, 60, 90, 180, 210]
    excluded = [second for second, outcome in driver.outcomes().items() if outcome is Outcome.EXCLUDED]
    assert excluded == [120, 150, 240, 270]
    assert {entry.reason for entry in driver.mirror.entries} == {"cron 2,4 * * * *"}
    assert driver.state.lifecycle is Lifecycle.COMPLETED


def test_a_deleted_job_fires_no_more_and_what_was_due_is_told() -> None:
    """What is nominal up to the deletion has an outcome, what waited is cancelled, what runs may end."""
    driver = drive(10, overlap="buffer_one")
    driver.go_to(at(25))
    driver.delete()
    assert driver.state.lifecycle is Lifecycle.DELETED
    assert driver.outcomes() == {10: Outcome.RAN, 20: Outcome.CANCELLED}
    driver.go_to(at(100))
    driver.end(run_id(10))
    assert driver.state.active == ()
    assert driver.started() == [10]


def test_a_job_deleted_after_an_outage_tells_every_fire_of_the_outage() -> None:
    """Deleting settles what was missed under the definition that goes, and starts none of it; what is live is cancelled."""
    driver = drive(60, missed_window="SKIP")
    driver.now = at(3630)
    driver.delete(cancel_active=True)
    outcomes = driver.outcomes()
    assert list(outcomes) == list(range(60, 3601, 60))
    assert outcomes[3540] is Outcome.MISSED
    assert driver.started() == [3600]
    assert driver.cancelled == [run_id(3600)]


def test_deleting_twice_is_deleting_once() -> None:
    """The second changes nothing."""
    driver = drive(60)
    driver.delete()
    before = driver.state.model_copy(update={"version": 0})
    driver.delete(cancel_active=True)
    assert driver.state.model_copy(update={"version": 0}) == before


def test_a_job_registered_again_is_not_blocked_by_the_old_run() -> None:
    """SB-075: the new registration fires beside the old run, which ends by itself and counts for nobody."""
    driver = drive(10)
    driver.go_to(at(10))
    driver.delete()
    driver.register(JobDefinition(schedule=every(10)), grid=Grid(10))
    driver.go_to(at(20))
    assert driver.started() == [10, 20]
    driver.end(run_id(10))
    assert driver.state.counts.succeeded == 0
    assert driver.state.last is None


def test_a_job_registered_again_never_catches_up_for_the_time_before() -> None:
    """SB-076: nothing nominal before the registration counts, whatever the policy."""
    driver = drive(60)
    driver.go_to(at(60))
    driver.end(run_id(60))
    driver.delete()
    driver.now = at(660)
    driver.register(JobDefinition(schedule=every(60), missed_window=CatchUpPolicy.RUN_ALL), grid=Grid(60))
    assert driver.started() == [60]
    driver.go_to(at(720))
    assert driver.started() == [60, 720]


def test_a_run_of_an_earlier_registration_is_not_tried_again_under_the_new_one() -> None:
    """Its target and payload are gone; what the new definition names is not what it was to do."""
    for fails_before in (True, False):
        driver = drive(10)
        driver.go_to(at(10))
        if fails_before:
            driver.end(run_id(10), AttemptStatus.FAILED)
        driver.delete()
        driver.register(JobDefinition(schedule=every(3600)), grid=Grid(3600))
        if not fails_before:
            driver.end(run_id(10), AttemptStatus.FAILED)
        driver.go_to(at(600))
        assert len(driver.dispatched) == 1
        _, row = driver.mirror.runs[run_id(10)]
        assert (row.status, row.reason) == (RunStatus.CANCELLED, "the job was deleted and registered again")


def test_a_detached_run_of_an_earlier_registration_counts_for_nobody() -> None:
    """It reports by itself, and does not know that the job was registered again."""
    driver = drive(10, isolation="workflow")
    driver.go_to(at(10))
    run = driver.out[run_id(10)]
    driver.delete()
    driver.register(JobDefinition(schedule=every(3600)), grid=Grid(3600))
    driver.report(run.model_copy(update={"status": RunStatus.SUCCESS, "finished_at": at(12)}))
    assert driver.state.counts.succeeded == 0
    assert driver.state.last is None


def test_a_registration_counts_from_its_request_by_the_clock_of_the_engine() -> None:
    """SB-116: a front door whose clock is ahead loses no fire, and one that is behind gets none of the past."""
    late = JobState(registered_at=at(-3), high_water=at(-3))
    assert begin(late, now=NOON).high_water == at(-3)
    behind = JobState(registered_at=at(-600), high_water=at(-600))
    assert begin(behind, now=NOON).high_water == at(-5)
    ahead = JobState(registered_at=at(600), high_water=at(600))
    assert begin(ahead, now=NOON).high_water == NOON


def test_a_refused_run_is_told_and_later_fires_go_on() -> None:
    """SB-096: a workflow that has the run's id already makes this one fail to start, and no other."""
    driver = drive(10, isolation="workflow")
    driver.go_to(at(10))
    driver.refuse(run_id(10))
    assert driver.outcomes()[10] is Outcome.FAILED_TO_START
    driver.go_to(at(20))
    assert driver.started() == [10, 20]


@pytest.mark.parametrize(
    ("timeout", "isolation", "detached"),
    [
        (timedelta(minutes=10), Isolation.AUTO, False),
        (timedelta(minutes=10, seconds=1), Isolation.AUTO, True),
        (timedelta(seconds=5), Isolation.WORKFLOW, True),
    ],
)
def test_a_run_is_detached_where_that_earns_its_cost(timeout: timedelta, isolation: Isolation, detached: bool) -> None:
    """Attempts over ten minutes, or on request."""
    driver = drive(60, timeout=timeout, isolation=isolation)
    driver.go_to(at(60))
    assert driver.dispatched[0].detached is detached


def test_a_long_history_detaches_new_runs() -> None:
    """So that a job whose inline runs never drain can continue as new in the end."""
    driver = drive(60)
    driver.now = at(60)
    driver.wake(detach=True)
    assert driver.dispatched[0].detached


def test_a_far_fire_is_asked_for_again_a_day_before() -> None:
    """Zone rules may change while a job sleeps; a year later they are looked up once more, and no more often."""
    driver = drive(360 * 86_400, schedule=in_berlin(360 * 86_400))
    [first, *_] = driver.state.plan.upcoming if driver.state.plan else ()
    wake_at = next_wake(driver.state, now=driver.now)
    assert wake_at == first.target - timedelta(days=1)
    driver.go_to(wake_at)
    assert next_wake(driver.state, now=driver.now) == first.target


def test_a_far_fire_that_no_zone_can_move_is_not_asked_for_again() -> None:
    """Unless it is more than a week away: for what workers have been set to since."""
    driver = drive(7 * 86_400)
    [first, *_] = driver.state.plan.upcoming if driver.state.plan else ()
    assert next_wake(driver.state, now=driver.now) == first.target
    earlier = driver.state.model_copy(update={"logic": 2})
    assert next_wake(earlier, now=driver.now) == first.target - timedelta(days=1)
    far = drive(360 * 86_400)
    [first, *_] = far.state.plan.upcoming if far.state.plan else ()
    assert next_wake(far.state, now=far.now) == first.target - timedelta(days=1)


def test_the_fires_of_each_day_are_asked_for_again_once_the_run_of_the_day_has_ended() -> None:
    """Not when it is dispatched, which would have to wait for the answer; and no later than two days before the next fire."""
    driver = drive(86_400, schedule=in_berlin(86_400))
    midnight = 43_200
    driver.go_to(at(midnight))
    assert (driver.started(), planned_at(driver)) == ([midnight], NOON)
    driver.now += timedelta(seconds=5)
    driver.end(run_id(midnight))
    driver.wake()
    assert planned_at(driver) == at(midnight + 5)
    driver.go_to(at(midnight + 86_400))
    assert (driver.started(), planned_at(driver)) == ([midnight, midnight + 86_400], at(midnight + 5))


def test_the_last_fires_of_a_job_are_asked_for_again_as_all_others() -> None:
    """Its plan has all that will ever come, and is no less old for that."""
    driver = drive(86_400, schedule=in_berlin(86_400, end_at=at(3 * 86_400)))
    midnight = 43_200
    driver.go_to(at(midnight))
    driver.now += timedelta(seconds=5)
    driver.end(run_id(midnight))
    driver.wake()
    assert driver.state.plan is not None
    assert driver.state.plan.exhausted
    assert planned_at(driver) == at(midnight + 5)


def test_a_fire_whose_plan_is_stale_is_not_decided_before_the_plan_is_asked_for_again() -> None:
    """No worker was there a day before it, when that should have happened."""
    driver = drive(360 * 86_400, schedule=in_berlin(360 * 86_400))
    [first, *_] = driver.state.plan.upcoming if driver.state.plan else ()
    fire = first.target
    assert not needs_plan(driver.state, now=fire - timedelta(days=1, seconds=1))
    assert needs_plan(driver.state, now=fire - timedelta(days=1))
    assert needs_plan(driver.state, now=fire)


def test_what_workers_have_been_set_to_reaches_each_job_within_a_week() -> None:
    """Or with its next run, where those are further apart. It comes with the plan."""
    driver = drive(86_400)
    for day in range(8):
        midnight = 43_200 + day * 86_400
        driver.go_to(at(midnight))
        assert planned_at(driver) == NOON
        driver.now += timedelta(seconds=5)
        driver.end(run_id(midnight))
        driver.wake()
    assert planned_at(driver) == at(midnight + 5)


def test_while_the_planner_fails_known_fires_are_still_waited_for() -> None:
    """A look-up that is overdue must not hide the fire that is known."""
    driver = drive(360 * 86_400, schedule=in_berlin(360 * 86_400))
    [first, *_] = driver.state.plan.upcoming if driver.state.plan else ()
    assert next_wake(driver.state, now=first.target - timedelta(hours=1)) == first.target


def test_fires_are_planned_in_batches_and_none_is_lost_between_them() -> None:
    """However few are asked for at once."""
    for size in (1, 2, 14):
        definition = JobDefinition(schedule=every(10, not_in_minutes="1"), overlap=OverlapPolicy.TERMINATE_OTHER)
        driver = JobDriver(definition, grid=Grid(10, frozenset({1})), tuning=Tuning(batch_size=size))
        driver.wake()
        driver.go_to(at(300))
        assert driver.started() == [*range(10, 60, 10), *range(120, 301, 10)]


def test_answers_are_kept_for_a_day() -> None:
    """As long as a caller may repeat a request; a state that grew for ever would not cross a continue-as-new."""
    driver = drive(60)
    assert take_turn(driver.state, now=driver.now).state.answers == ()


def test_what_was_seen_of_a_run_that_ended_changes_nothing() -> None:
    """Looks cross with answers."""
    driver = drive(60)
    driver.go_to(at(60))
    run: Run = driver.out[run_id(60)]
    driver.end(run_id(60))
    late = settle_attempt(driver.state, AttemptEnd(run_id=run.run_id, status=AttemptStatus.LOST), now=at(61), draw=0.0)
    assert late == driver.state
    assert driver.state.job_id == JOB
