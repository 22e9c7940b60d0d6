"""The plan of a job: what it has missed, what comes next, what is excluded, and when there is too much for one answer."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.planning import Planner
from tests.unit.job_driver import JOB, NOON, Grid, at, every
from workflows.job import CatchUpPolicy, FirePlan, JobDefinition, JobState, PlanRequest, Tuning
from workflows.planner import make_plan
from workflows.policies import decide_catch_up
from workflows.schedule import BusinessDays, CronRule, Exclusions, OneOffRule, Roll, Schedule
from workflows.wake import needs_plan, with_plan

LOCAL = at(60).replace(tzinfo=None)


def ask(schedule: Schedule, *, now: datetime, after: datetime = NOON, batch: int = 14, **fields: Any) -> FirePlan:
    """Ask once."""
    request = PlanRequest(
        job_id=JOB, definition=JobDefinition(schedule=schedule, **fields), revision=3, after=after, now=now
    )
    return make_plan(request, tuning=Tuning(batch_size=batch))


def test_nothing_missed_is_a_list_of_what_comes() -> None:
    """Strictly after the high-water mark, as many as asked for, for the revision that was asked about."""
    plan = ask(every(60), now=at(30), batch=3)
    assert [fire.nominal for fire in plan.upcoming] == [at(60), at(120), at(180)]
    assert (plan.revision, plan.planned_at, plan.complete, plan.exhausted) == (3, at(30), True, False)
    assert (plan.missed, plan.too_old, plan.excluded, plan.ask_again_at) == (None, None, (), None)
    assert (plan.grace, plan.tuning) == (timedelta(seconds=60), Tuning(batch_size=3))


@pytest.mark.parametrize(
    ("schedule", "is_lasting"),
    [
        (Schedule(rule=CronRule(expression="0 9 * * *")), True),
        (Schedule(rule=CronRule(expression="0 9 * * *"), timezone="Europe/Berlin"), False),
        (every(60, timezone="Europe/Berlin"), True),
        (every(60, timezone="Europe/Berlin", not_in_minutes="1"), False),
        (every(60, timezone="Europe/Berlin", business_days=BusinessDays(roll=Roll.SKIP)), False),
        (Schedule(rule=OneOffRule(at=at(60)), timezone="Europe/Berlin"), True),
        (Schedule(rule=OneOffRule(local=LOCAL), timezone="Europe/Berlin"), False),
    ],
)
def test_a_plan_lasts_where_no_rule_of_a_zone_has_a_say(schedule: Schedule, is_lasting: bool) -> None:
    """Zone rules change by decree, and such plans need not be asked for again."""
    assert ask(schedule, now=NOON).is_lasting is is_lasting


def test_a_fire_on_its_way_to_its_target_is_upcoming() -> None:
    """Live ones are listed, due or not; the planner decides nothing about them."""
    plan = ask(every(60), now=at(120))
    assert plan.missed is not None
    assert plan.missed.ranges == ()
    assert plan.upcoming[0].nominal == at(60)


@pytest.mark.parametrize(("late", "missed"), [(timedelta(seconds=60), 0), (timedelta(seconds=60, microseconds=1), 1)])
def test_a_fire_is_missed_from_just_after_its_grace(late: timedelta, missed: int) -> None:
    """Exclusive to the microsecond, as the turn reads it; measured from the target, not from the nominal time."""
    for jitter in (0.0, 5.0):
        schedule = every(60, jitter_window_seconds=jitter)
        offset = ask(schedule, now=NOON).offset
        plan = ask(schedule, now=at(60) + offset + late)
        assert plan.missed is not None
        assert sum(each.count for each in plan.missed.ranges) == missed
        assert plan.upcoming[0].nominal == at(60 + 60 * missed)
        state = JobState(job_id=JOB, revision=3, high_water=NOON, plan=ask(schedule, now=NOON))
        assert needs_plan(state, now=at(60) + offset + late) is bool(missed)


def test_missed_fires_come_with_as_many_of_the_newest_as_the_policy_needs() -> None:
    """And one more, so that what is left of a range has an end."""
    for policy, needed in ((CatchUpPolicy.SKIP, 0), (CatchUpPolicy.RUN_ONCE, 2), (CatchUpPolicy.RUN_ALL, 4)):
        plan = ask(every(60), now=at(60_030), missed_window=policy, max_missed=3)
        assert plan.missed is not None
        assert [each.count for each in plan.missed.ranges] == [999]
        newest = [at(59_940 - 60 * back) for back in range(needed)]
        assert [fire.nominal for fire in plan.missed.newest] == newest[::-1]
        assert plan.upcoming[0].nominal == at(60_000)


def test_what_is_older_than_the_lookback_comes_first_and_apart() -> None:
    """The asker settles it and asks again from where it ended."""
    now = at(40 * 86_400 + 30)
    plan = ask(every(60), now=now)
    assert plan.too_old is not None
    assert (plan.complete, plan.missed, plan.upcoming) == (False, None, ())
    assert [(each.first, each.last, each.count) for each in plan.too_old.ranges] == [
        (at(60), at(10 * 86_400), 10 * 1440)
    ]
    assert plan.too_old.through == now - timedelta(days=30)

    again = ask(every(60), now=now, after=plan.too_old.through)
    assert (again.too_old, again.complete) == (None, True)
    assert again.missed is not None
    assert [each.count for each in again.missed.ranges] == [30 * 1440 - 1]


def test_a_month_of_missed_minutes_is_one_range_and_one_answer() -> None:
    """Neither a line for each, nor many questions."""
    plan = ask(every(60), now=at(30 * 86_400), missed_window=CatchUpPolicy.SKIP)
    assert plan.complete
    assert plan.missed is not None
    assert len(plan.missed.ranges) == 1


def test_where_one_call_cannot_survey_all_the_answer_says_so_and_the_next_goes_on() -> None:
    """Many years of missed hours; joined, the parts are what one long survey would be."""
    schedule = Schedule(rule=CronRule(expression="0 * * * *"), jitter_window_seconds=0)
    start, now = datetime(2020, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 5, tzinfo=UTC)
    state = JobState(
        job_id=JOB,
        definition=JobDefinition(schedule=schedule, lookback=timedelta(days=3_650)),
        high_water=start,
    )
    asked = 0
    while needs_plan(state, now=now):
        request = PlanRequest(
            job_id=JOB,
            definition=state.definition,
            after=start,
            now=now,
            so_far=state.plan.missed if state.plan else None,
        )
        state = with_plan(state, make_plan(request, tuning=Tuning()))
        asked += 1
        assert asked < 100
    assert asked > 1
    assert state.plan is not None
    assert state.plan.missed is not None
    [missed] = state.plan.missed.ranges
    assert (missed.first, missed.last) == (datetime(2020, 1, 1, 1, tzinfo=UTC), datetime(2025, 12, 31, 23, tzinfo=UTC))
    assert missed.count == (missed.last - missed.first) // timedelta(hours=1) + 1
    assert [fire.nominal.hour for fire in state.plan.missed.newest] == [22, 23]
    assert state.plan.upcoming[0].nominal == datetime(2026, 1, 1, tzinfo=UTC)


def test_excluded_fires_are_told_between_the_upcoming_ones() -> None:
    """Up to the last of them, each range with what excludes it."""
    plan = ask(every(30, not_in_minutes="1"), now=NOON, batch=3)
    assert [fire.nominal for fire in plan.upcoming] == [at(30), at(120), at(150)]
    assert [(each.first, each.last, each.count, each.excluded_by) for each in plan.excluded] == [
        (at(60), at(90), 2, "cron 1 * * * *")
    ]


def test_a_schedule_that_ends_is_exhausted_with_its_last_fires() -> None:
    """Excluded ones after the last wanted one are told too: nothing will come to tell them later."""
    ends = at(170)
    plan = ask(every(30, not_in_minutes="2", end_at=ends), now=NOON)
    assert [fire.nominal for fire in plan.upcoming] == [at(30), at(60), at(90)]
    assert [(each.first, each.last) for each in plan.excluded] == [(at(120), at(150))]
    assert plan.exhausted
    assert ask(every(30, end_at=ends), now=NOON).exhausted
    assert ask(Schedule(rule=OneOffRule(at=at(30))), now=NOON).exhausted
    assert not ask(every(30), now=NOON).exhausted


def test_a_full_batch_is_not_taken_for_the_end() -> None:
    """The schedule may end with it; the next question will tell."""
    plan = ask(every(30, end_at=at(90)), now=NOON, batch=3)
    assert len(plan.upcoming) == 3
    assert not plan.exhausted
    assert ask(every(30, end_at=at(90)), now=NOON, after=at(90), batch=3).exhausted


def test_a_job_whose_fires_are_excluded_for_years_still_waits_for_the_next() -> None:
    """Each day but the leap day is excluded: it is not at its end, and asks again before the told exclusions run out."""
    months = "1,3,4,5,6,7,8,9,10,11,12"
    exclude = Exclusions(cron=(f"* * * {months} *", "* * 1-28 2 *"))
    schedule = Schedule(rule=CronRule(expression="0 9 * * *"), exclude=exclude)
    plan = ask(schedule, now=NOON)
    assert plan.upcoming[0].nominal == datetime(2028, 2, 29, 9, tzinfo=UTC)
    assert not plan.exhausted
    assert plan.ask_again_at is not None
    assert NOON < plan.ask_again_at < plan.upcoming[0].target
    assert plan.excluded[-1].last <= plan.ask_again_at

    state = JobState(job_id=JOB, revision=3, high_water=NOON, plan=plan)
    assert not needs_plan(state, now=plan.ask_again_at - timedelta(seconds=1))
    assert needs_plan(state, now=plan.ask_again_at)


def test_a_job_of_which_every_fire_is_excluded_is_not_at_its_end() -> None:
    """Its owner may have meant that; nothing is upcoming, and the exclusions are told as they pass."""
    exclude = Exclusions(cron=("* * * * *",), dates=(date(2026, 6, 9),))
    plan = ask(Schedule(rule=CronRule(expression="0 9 * * *"), exclude=exclude), now=NOON)
    assert (plan.upcoming, plan.exhausted) == ((), False)
    assert plan.ask_again_at is not None
    assert plan.ask_again_at > NOON + timedelta(days=365)


@given(
    seconds=st.sampled_from([30, 60, 600, 3_600]),
    excluded=st.sampled_from([frozenset[int](), frozenset({5}), frozenset({1, 2, 30})]),
    away=st.integers(0, 200_000),
    policy=st.sampled_from(CatchUpPolicy),
    grace=st.sampled_from([None, timedelta(seconds=1), timedelta(hours=3)]),
    lookback=st.sampled_from([timedelta(minutes=10), timedelta(days=30)]),
    batch=st.integers(1, 14),
)
def test_a_plan_and_the_catch_up_policy_together_tell_every_fire_once(
    seconds: int,
    excluded: frozenset[int],
    away: int,
    policy: CatchUpPolicy,
    grace: timedelta | None,
    lookback: timedelta,
    batch: int,
) -> None:
    """From the high-water mark to the last upcoming fire: in one survey, or excluded, or upcoming. The grid is the oracle."""
    minutes = ",".join(map(str, sorted(excluded))) or None
    definition = JobDefinition(
        schedule=every(seconds, not_in_minutes=minutes),
        missed_window=policy,
        max_missed=5,
        max_delay=timedelta(seconds=90),
        misfire_grace=grace,
        lookback=lookback,
    )
    state = JobState(job_id=JOB, definition=definition, high_water=NOON)
    told: dict[datetime, bool] = {}
    grid = Grid(seconds, excluded)

    def tell(first: datetime, last: datetime, count: int, *, is_excluded: bool) -> None:
        fires = grid.fires(first - timedelta(microseconds=1), last)
        mine = [nominal for nominal, wanted in fires if wanted is not is_excluded]
        assert len(mine) == count
        assert not told.keys() & set(mine)
        told.update(dict.fromkeys(mine, not is_excluded))

    while needs_plan(state, now=at(away)):
        request = PlanRequest(job_id=JOB, definition=definition, after=state.high_water, now=at(away))
        plan = make_plan(request, tuning=Tuning(batch_size=batch))
        for each in plan.too_old.ranges if plan.too_old else ():
            tell(each.first, each.last, each.count, is_excluded=each.excluded_by is not None)
        state = with_plan(state, plan)
        if plan.complete:
            break
    assert state.plan is not None
    plan = state.plan
    if plan.missed is not None:
        decision = decide_catch_up(definition, plan.missed, run_id_of_newest="newest")
        for entry in decision.ledger:
            tell(entry.first, entry.last, entry.count, is_excluded=entry.outcome.value == "excluded")
        for fire in decision.run:
            tell(fire.nominal, fire.nominal, 1, is_excluded=False)
    for each in plan.excluded:
        tell(each.first, each.last, each.count, is_excluded=True)
    for fire in plan.upcoming:
        tell(fire.nominal, fire.nominal, 1, is_excluded=False)
    assert told == dict(grid.fires(NOON, plan.upcoming[-1].nominal))
    assert all(fire.target + plan.grace >= at(away) for fire in plan.upcoming)


@pytest.mark.parametrize(("tenant", "weight"), [("payroll", 5.0), ("reports", 0.5), ("default", 1.0)])
def test_a_plan_brings_the_weight_of_its_tenant(tenant: str, weight: float) -> None:
    """``HORARIUM_FAIRNESS_WEIGHTS``; 1 for a tenant that is not named."""
    definition = JobDefinition(schedule=every(60))
    request = PlanRequest(tenant=tenant, job_id=JOB, definition=definition, revision=3, after=NOON, now=at(30))
    plan = Planner(Tuning(), fairness_weights={"payroll": 5, "reports": 0.5}).plan_fires(request)
    assert plan.tuning.fairness_weight == weight


@pytest.mark.parametrize(("tenant", "for_all", "told"), [("a", False, True), ("b", False, False), ("b", True, True)])
def test_a_plan_says_whether_there_is_somebody_to_tell(tenant: str, for_all: bool, told: bool) -> None:
    """``HORARIUM_ALERT_URLS`` of its tenant, or ``HORARIUM_ALERT_URL``."""
    definition = JobDefinition(schedule=every(60))
    request = PlanRequest(tenant=tenant, job_id=JOB, definition=definition, revision=3, after=NOON, now=at(30))
    plan = Planner(Tuning(alerts_for_all=for_all), alerted=["a"]).plan_fires(request)
    assert plan.tuning.alerts_for_all is told
