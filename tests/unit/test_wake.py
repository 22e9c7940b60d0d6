"""When a job wakes, and what else it leaves alone so that a fire is on time. The clock is explicit; nothing sleeps."""

from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from tests.unit.job_driver import EPOCH, Grid, JobDriver, at, every
from workflows.job import JobDefinition, JobState, OverlapPolicy, Tuning
from workflows.resilience import ENGINE_FLOOR
from workflows.run import AttemptStatus, RunKind
from workflows.schedule import Exclusions
from workflows.turn import take_turn
from workflows.wake import LEAST_AHEAD, house_times, is_held_up, long_sleep_end, next_wake

LOOKS_AGAIN_AFTER = ENGINE_FLOOR
"""The engine looks ahead to one timer of a workflow, and to the next one no sooner than this after it rang."""


def catching_up(seconds: int, **fields: object) -> JobDriver:
    """A job with hundreds of missed fires to run, every one of them."""
    values = {"schedule": every(seconds), "missed_window": "RUN_ALL", "max_missed": 500, "misfire_grace": 1.0}
    driver = JobDriver(JobDefinition.model_validate(values | fields), grid=Grid(seconds))
    driver.wake()
    driver.be_away(timedelta(seconds=seconds * 501))
    return driver


def work(driver: JobDriver, *, span: timedelta, takes: timedelta, fails: bool = False) -> list[datetime]:
    """Let time pass with workers that need ``takes`` for each run; list when the job's timers rang, by the engine's rules."""
    until, rang = driver.now + span, list[datetime]()
    while True:
        armed_at, wake = driver.now, next_wake(driver.state, now=driver.now)
        ends = {run.dispatched_at + takes: run.run_id for run in driver.out.values() if run.dispatched_at}
        assert wake is not None
        rings_at = max(wake, armed_at + ENGINE_FLOOR) if wake > armed_at else wake
        end_at = min(ends, default=until)
        if min(rings_at, end_at) >= until:
            driver.now = until
            return rang
        if end_at <= rings_at:
            driver.now = end_at
            driver.end(ends[end_at], AttemptStatus.FAILED if fails else AttemptStatus.SUCCESS)
        else:
            driver.now = rings_at
            rang.append(rings_at)
            driver.wake()


@pytest.mark.parametrize("seconds", [2, 5, 7, 60])
@pytest.mark.parametrize(("overlap", "fails"), [("skip", False), ("allow", False), ("allow", True)])
def test_no_timer_rings_so_shortly_before_a_fire_that_it_would_come_late(
    seconds: int, overlap: str, fails: bool
) -> None:
    """The engine would look at the fire's timer too late: what the lane or a retry is due then, it does with the fire."""
    driver = catching_up(seconds, overlap=overlap)
    rang = work(driver, span=timedelta(seconds=seconds * 20), takes=timedelta(milliseconds=130), fails=fails)
    assert len(rang) >= 19
    period = timedelta(seconds=seconds)
    for moment in rang:
        after_a_fire = (moment - EPOCH) % period
        assert after_a_fire == timedelta(0) or period - after_a_fire >= LOOKS_AGAIN_AFTER


@pytest.mark.parametrize(
    ("seconds", "rate", "at_least"), [(2, 10, 18), (2, 60, 59), (5, 40, 71), (5, 60, 95), (60, 60, 114)]
)
def test_the_catch_up_lane_makes_its_rate_beside_frequent_fires(seconds: int, rate: int, at_least: int) -> None:
    """As far as the engine leaves room for other timers between them; where it leaves none, each fire brings one."""
    driver = catching_up(seconds, catch_up_rate=rate)
    begun = len(driver.dispatched)
    work(driver, span=timedelta(minutes=2), takes=timedelta(milliseconds=20))
    started = [run for run in driver.dispatched[begun:] if run.kind is RunKind.CATCH_UP]
    live = [run for run in driver.dispatched[begun:] if run.kind is RunKind.SCHEDULED]
    assert len(live) == 120 // seconds - 1
    assert at_least <= len(started) <= 2 * rate + 1
    starts = [run.dispatched_at for run in started if run.dispatched_at is not None]
    assert min(later - earlier for earlier, later in pairwise(starts)) >= timedelta(minutes=1) / rate


def test_a_lane_that_was_blocked_goes_on_at_its_rate_and_in_no_burst() -> None:
    """Places that went by are not made up for."""
    driver = catching_up(60, catch_up_rate=60)
    live = next(run for run in driver.out.values() if run.kind is RunKind.SCHEDULED)
    driver.go_to(driver.now + timedelta(seconds=20))
    driver.end(live.run_id)
    first = next(iter(driver.out.values()))
    assert (first.kind, first.dispatched_at) == (RunKind.CATCH_UP, driver.now)
    driver.end(first.run_id)
    assert not driver.out
    assert driver.state.next_catch_up_at == driver.now + timedelta(seconds=1)


def test_a_job_is_held_up_once_its_fires_are_decided_several_at_a_time() -> None:
    """From then on what is shown as next is brought up to date whenever the job wakes; before, each fire wakes it."""
    driver = JobDriver(JobDefinition(schedule=every(2)), grid=Grid(2))
    driver.wake()
    driver.go_to(at(2))
    assert not is_held_up(driver.state, now=at(9.9))
    assert is_held_up(driver.state, now=at(10))
    allowed = driver.state.model_copy(
        update={"definition": JobDefinition(schedule=every(2), overlap=OverlapPolicy.ALLOW)}
    )
    assert not is_held_up(allowed, now=at(10))


def test_house_keeping_keeps_away_from_a_fire() -> None:
    """A turn at the fire sees to it, and to what comes later; jobs that an earlier release began set timers for that too."""
    driver = JobDriver(JobDefinition(schedule=every(60)), grid=Grid(60))
    times = [at(10.1), at(8.6), at(8.8), at(9.9), at(10)]
    second = driver.state.model_copy(update={"logic": 2})
    first = driver.state.model_copy(update={"logic": 1})
    assert house_times(driver.state, times, wakes=[at(10)]) == [at(8.6)]
    assert house_times(driver.state, times, wakes=[]) == sorted(times)
    assert house_times(second, times, wakes=[at(10)]) == [at(8.6), at(10.1)]
    assert house_times(first, times, wakes=[at(10)]) == sorted(times)


TUNING = Tuning(wake_ahead=timedelta(minutes=1))
HOUR = 3600


def planned(*, jitter: float = 0.0) -> JobDriver:
    """A job of every hour that knows its next fires."""
    schedule = every(HOUR, jitter_window_seconds=jitter)
    driver = JobDriver(JobDefinition.model_validate({"schedule": schedule}), grid=Grid(HOUR))
    driver.wake()
    return driver


def sleeps_until(state: JobState, *, now: datetime, tuning: Tuning = TUNING) -> datetime:
    """When the long sleep before the next fire ends."""
    wake = next_wake(state, now=now)
    assert wake is not None
    return long_sleep_end(state, wake, now=now, tuning=tuning)


def test_jobs_that_are_due_at_one_instant_are_woken_at_many_before_it() -> None:
    """None so shortly before that it might come late, none longer before than it may."""
    state = planned().state
    ends = [
        sleeps_until(state.model_copy(update={"job_id": f"job-{number}"}), now=at(0)) - at(HOUR)
        for number in range(200)
    ]
    assert len({*ends}) == 200
    assert -TUNING.wake_ahead <= min(ends) < -TUNING.wake_ahead * 0.9
    assert -TUNING.wake_ahead * LEAST_AHEAD * 1.3 < max(ends) <= -TUNING.wake_ahead * LEAST_AHEAD


def test_a_job_with_jitter_is_woken_at_its_fire() -> None:
    """The jitter has spread it already."""
    state = planned(jitter=60.0).state
    assert state.plan is not None
    assert sleeps_until(state, now=at(0)) == state.plan.upcoming[0].target > at(HOUR)


def test_who_would_hardly_sleep_is_woken_at_the_fire() -> None:
    """What is left of the gap would be too short for a long sleep; and where nobody is to be woken ahead, nobody is."""
    state, least = planned().state, TUNING.long_sleep_threshold
    end = sleeps_until(state, now=at(0))
    assert sleeps_until(state, now=end - least) == end < at(HOUR)
    assert sleeps_until(state, now=end - least + timedelta(seconds=1)) == at(HOUR)
    assert sleeps_until(state, now=at(0), tuning=Tuning()) == at(HOUR)


def test_who_wakes_for_something_else_than_a_fire_does_so_at_its_time() -> None:
    """Such as the end of a pause."""
    driver = planned()
    assert long_sleep_end(driver.state, at(HOUR - 1), now=at(0), tuning=TUNING) == at(HOUR - 1)


@pytest.mark.parametrize(("span", "grace"), [(timedelta(hours=17), None), (timedelta(minutes=30), timedelta(hours=1))])
def test_planning_ends_after_any_absence(span: timedelta, grace: timedelta | None) -> None:
    """More is missed than one answer tells, and fires are due within the grace as well: they are missed with the others."""
    seconds, excluded = (10 if grace is None else 1), frozenset(range(1, 60, 2))
    schedule = every(seconds, not_in_minutes="1-59/2")
    driver = JobDriver(JobDefinition(schedule=schedule, misfire_grace=grace), grid=Grid(seconds, excluded))
    driver.wake()
    driver.be_away(span + timedelta(seconds=30.5))
    assert [run.kind for run in driver.state.active] == [RunKind.CATCH_UP]


def test_a_fire_that_only_the_planner_can_decide_keeps_nobody_awake_while_it_does_not_answer() -> None:
    """It lies behind more excluded fires than a plan tells."""
    exclude = Exclusions(cron=("*/2 * * * * *", "1-59/2 0-40 * * * *"))
    schedule = every(1).model_copy(update={"exclude": exclude})
    driver = JobDriver(JobDefinition(schedule=schedule), grid=Grid(1))
    driver._ask_planner()
    plan = driver.state.plan
    assert plan is not None
    assert plan.ask_again_at is not None
    driver.now = plan.upcoming[0].target + timedelta(milliseconds=10)
    assert plan.ask_again_at < driver.now
    turn = take_turn(driver.state, now=driver.now)
    assert turn.start == ()
    assert next_wake(turn.state, now=driver.now) is None
