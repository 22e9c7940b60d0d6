"""When a job has something to do next, and when the planner must be asked before it can be done.

Pure.
"""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import assert_never

from workflows.alert import next_unmet
from workflows.hold import is_firing, is_held, release_time
from workflows.job import CatchUpPolicy, FirePlan, JobState, Lifecycle, OverlapPolicy, PlanRequest, Tuning
from workflows.job_state import definition_of, with_entries
from workflows.logic import has_fifth_rules, has_fourth_rules, has_second_rules, has_third_rules
from workflows.policies import entries_of_missed, is_blocking, is_used_up, start_deadline
from workflows.resilience import ENGINE_FLOOR, QUIET
from workflows.run import Run
from workflows.schedule import Fire
from workflows.spread import share_of
from workflows.turn import first_in_lane, is_beyond, is_decidable, next_in_lane, waiting_now

EVERY_FIRE_FOR = timedelta(seconds=8)
"""So long after its dispatch, a run that blocks others lets the job wake up for each of their fires."""

RECHECK_BEFORE = timedelta(days=1)
"""A plan older than this is asked for again a day before its fire, so that changed zone rules reach it."""

STALE_BEFORE = 2 * RECHECK_BEFORE
"""A fire planned longer ago than this is not decided before the plan is asked for again, where zone rules have a say in it."""

ASK_AGAIN_AFTER = timedelta(days=7)
"""Where they have none, a plan older than this is asked for again all the same, for what workers have been set to since: when
nothing is due, and a day before a fire that is further away."""

LEAST_AHEAD = 0.25
"""Of ``wake_ahead``: nobody is woken so shortly before a fire that it might come late for it."""

STALLED_FOR = timedelta(seconds=5)
"""Fires that come together, the first of them later than this, were held up by nothing but an absence of workers."""


def needs_plan(state: JobState, *, now: datetime) -> bool:
    """Say whether the planner must be asked before a turn can be taken."""
    if state.lifecycle is not Lifecycle.ACTIVE or is_used_up(state):
        return False
    if is_held(state) and release_time(state.holds) is None:
        return False
    plan = state.plan
    if plan is None or plan.revision != state.revision or not plan.complete:
        return True
    if plan.ask_again_at is not None and plan.ask_again_at <= now:
        return True
    if not plan.upcoming:
        return not plan.exhausted and plan.ask_again_at is None
    if plan.upcoming[0].target + plan.grace < now:
        # Missed, and perhaps not alone: only the planner sees where the missed ones end.
        return True
    if was_stalled(state, now=now):
        return True
    recheck_at = _recheck_at(state, plan)
    if recheck_at is None or recheck_at > now:
        return False
    if not has_third_rules(state):
        return True
    too_old = STALE_BEFORE + (ASK_AGAIN_AFTER if plan.is_lasting and has_fourth_rules(state) else timedelta(0))
    return plan.planned_at < plan.upcoming[0].target - too_old


def was_stalled(state: JobState, *, now: datetime) -> bool:
    """Say whether several fires have come due while nobody decided them, and the overlap policy would let but one of them run.

    They are within the grace, but what the owner wants of fires that come late and together is in the catch-up policy.
    """
    definition, plan = state.definition, state.plan
    if plan is None or len(plan.upcoming) < 2 or state.waiting or any(map(is_blocking, state.active)):
        return False
    if definition.missed_window not in (CatchUpPolicy.RUN_ONCE, CatchUpPolicy.RUN_ALL):
        return False
    if definition.overlap in (OverlapPolicy.ALLOW, OverlapPolicy.BUFFER_ALL):
        return False
    first, second = plan.upcoming[:2]
    return first.target + STALLED_FOR < now and second.target < now


def should_refill(state: JobState, *, now: datetime) -> bool:
    """Say whether a moment without a fire should be used to ask for more of them, or whether they are still the same."""
    plan = state.plan
    if not is_firing(state) or (is_used_up(state) and has_second_rules(state)):
        return False
    if plan is None or not plan.complete:
        return False
    if plan.exhausted and not has_fourth_rules(state):
        return False
    if has_third_rules(state):
        recheck_at = _recheck_at(state, plan)
        if recheck_at is not None and recheck_at <= now:
            return True
    if plan.exhausted:
        return False
    if has_third_rules(state) and now - plan.planned_at >= ASK_AGAIN_AFTER:
        return True
    return len(plan.upcoming) <= 1 and plan.ask_again_at is None


def plan_request(state: JobState, *, now: datetime) -> PlanRequest:
    """Word the question to the planner."""
    unfinished = (
        state.plan if state.plan and state.plan.revision == state.revision and not state.plan.complete else None
    )
    released_at = release_time(state.holds)
    return PlanRequest(
        tenant=state.tenant,
        job_id=state.job_id,
        definition=state.definition.model_copy(update={"payload": None}),
        revision=state.revision,
        # What falls into a hold is no plan's business; people are told what comes after it.
        after=state.high_water if released_at is None else max(state.high_water, released_at),
        now=now,
        stalled=was_stalled(state, now=now) or (unfinished is not None and unfinished.stalled),
        missed_until=state.missed_until,
        so_far=unfinished.missed if unfinished else None,
    )


def with_plan(state: JobState, plan: FirePlan) -> JobState:
    """Take in the planner's answer; fires older than the lookback go to the ledger at once."""
    state = state.model_copy(update={"plan": plan, "trouble": None})
    if plan.too_old is None:
        return state
    reason = f"older than lookback_seconds ({int(state.definition.lookback.total_seconds())})"
    state = with_entries(state, entries_of_missed(plan.too_old.ranges, reason=reason), now=plan.planned_at)
    return state.model_copy(update={"plan": None, "high_water": max(state.high_water, plan.too_old.through)})


def next_wake(state: JobState, *, now: datetime) -> datetime | None:
    """Say when something is due next; ``None`` when only a command or a result can move the job."""
    times: list[datetime] = []
    # One that has come and is not decided waits for the planner, without which a pause does not end.
    fires = [
        carried.fire.target
        for carried in state.carried
        if carried.fire.target > now or is_decidable(state, carried) or not has_fifth_rules(state)
    ]
    if is_firing(state) and state.plan is not None and not is_used_up(state):
        times += _times_of_plan(state, state.plan, now=now)
        fires += _times_of_fires(state, state.plan, now=now)
    times += fires
    if state.pause is not None and state.pause.until is not None and state.pause.until > now:
        times.append(state.pause.until)
    times += [hold.until for hold in state.holds if hold.until is not None and hold.until > now]
    in_no_haste = [run.next_attempt_at for run in state.active if not run.detached]
    in_no_haste += [_place_in_lane(state, now=now), next_unmet(state)]
    in_haste = [] if _lasting_blocker(state) or not has_second_rules(state) else fires
    times += [_with_fire(at, in_haste, now=now) for at in in_no_haste if at is not None]
    for run in waiting_now(state)[:1]:
        deadline = start_deadline(definition_of(state, run), run)
        times += [] if deadline is None else [deadline + timedelta(milliseconds=1)]
    return min(times, default=None)


def next_wakes(state: JobState, *, now: datetime) -> tuple[datetime, ...]:
    """Name the times to set timers for now: the next wake, and the fire after it where the next is nearer than a timer can be.

    The engine's timers take a second at least. Armed one at a time, those of a job of every second would each be late by
    as much as the first one was.
    """
    wake = next_wake(state, now=now)
    if wake is None or wake - now >= ENGINE_FLOOR or state.plan is None:
        return () if wake is None else (wake,)
    after = next((fire.target for fire in state.plan.upcoming if fire.target >= now + ENGINE_FLOOR), None)
    return (wake,) if after is None or _lasting_blocker(state) else (wake, after)


def house_times(state: JobState, times: Collection[datetime], *, wakes: Collection[datetime]) -> list[datetime]:
    """Say which times need a timer beside those of wakes, in order.

    None needs one that comes after a wake, whose turn will set it if it is still needed: most are for runs that end before. Nor
    one shortly before a wake, whose turn sees to what it is for, and would come late for its timer.
    """
    if not has_second_rules(state):
        return sorted(times)
    if has_third_rules(state) and wakes:
        times = [at for at in times if at <= min(wakes)]
    return sorted(at for at in times if not any(timedelta(0) <= wake - at < QUIET for wake in wakes))


def is_held_up(state: JobState, *, now: datetime) -> bool:
    """Say whether a run has kept live fires from starting for so long that they are decided several at a time."""
    blocker = _lasting_blocker(state)
    since = None if blocker is None else blocker.dispatched_at
    return since is not None and now - since >= EVERY_FIRE_FOR


def quiet_limit(history_limit: int, *, job_id: str) -> int:
    """Say from how many events on a quiet moment is used to continue as new, so that no fire has to wait for it later.

    Between six and nine tenths of the bound, by a hash of the job's id: jobs registered together do not all do so at once.
    """
    return int(history_limit * (0.6 + 0.3 * share_of(job_id)))


def long_sleep_end(state: JobState, wake: datetime, *, now: datetime, tuning: Tuning) -> datetime:
    """Say until when to sleep the long way: until the next wake, or ahead of it where that is a fire that is due to the second.

    To be woken from a long sleep costs more than a timer, and those due at one instant would wait for each other. So they are
    woken before, each at a time of its own, by a hash of its id, where what is left to sleep is still long. Those with
    jitter are left to it.
    """
    fire = first_planned(state)
    if fire is None or fire.target != wake or fire.target != fire.nominal:
        return wake
    end = wake - tuning.wake_ahead * (LEAST_AHEAD + (1 - LEAST_AHEAD) * share_of(state.job_id))
    return end if end - now >= tuning.long_sleep_threshold else wake


def is_quiet(state: JobState, *, now: datetime) -> bool:
    """Say whether nothing of the job is under way, and a new run could set its timers before anything is due."""
    wake = next_wake(state, now=now)
    return not state.active and (wake is None or wake - now >= QUIET)


def first_planned(state: JobState) -> Fire | None:
    """Name the fire that the plan has next."""
    return next(iter(state.plan.upcoming), None) if state.plan is not None else None


def _times_of_plan(state: JobState, plan: FirePlan, *, now: datetime) -> list[datetime]:
    # What has come is left to `needs_plan`: no turn, only the planner can go on from there.
    return [at for at in (plan.ask_again_at, _recheck_at(state, plan)) if at is not None and at > now]


def _times_of_fires(state: JobState, plan: FirePlan, *, now: datetime) -> list[datetime]:
    # One that is missed is left to `needs_plan` too, and what only another plan can decide.
    live = [fire for fire in plan.upcoming[:1] if fire.target + plan.grace >= now]
    decisions = [(fire, _next_decision(fire, plan, blocker=_lasting_blocker(state), now=now)) for fire in live]
    return [at for fire, at in decisions if at > now or not is_beyond(plan, fire)]


def _place_in_lane(state: JobState, *, now: datetime) -> datetime | None:
    place = state.next_catch_up_at
    if next_in_lane(state):
        return place
    # Runs of the first logic version have a timer for it behind a run that waits, too.
    is_timed = place is not None and place > now and not has_second_rules(state)
    return place if is_timed and first_in_lane(state) else None


def _with_fire(at: datetime, fires: Collection[datetime], *, now: datetime) -> datetime:
    """Put off to a fire what would come so shortly before it that its timer would make the fire late."""
    rings_at = max(at, now + ENGINE_FLOOR)
    return next((fire for fire in sorted(fires) if now < at < fire < rings_at + QUIET), at)


def _lasting_blocker(state: JobState) -> Run | None:
    """Find the run that keeps every live fire from starting until it ends, where the policy has such a run."""
    blocking = [run for run in state.active if is_blocking(run)]
    match state.definition.overlap:
        case OverlapPolicy.SKIP | OverlapPolicy.BUFFER_ONE | OverlapPolicy.BUFFER_ALL:
            return blocking[0] if blocking else None
        case OverlapPolicy.ALLOW:
            return blocking[0] if len(blocking) >= state.definition.max_concurrent else None
        case OverlapPolicy.CANCEL_OTHER | OverlapPolicy.TERMINATE_OTHER:
            return None
        case _:
            assert_never(state.definition.overlap)


def _next_decision(fire: Fire, plan: FirePlan, *, blocker: Run | None, now: datetime) -> datetime:
    """Say when to decide a fire: at its target, or later where it cannot start anyway.

    Such a fire needs no wake-up of its own: a job of every second behind a run of ten minutes would otherwise write thousands
    of events. They are decided together, after as long as the run has taken so far, and at the latest when it ends; but
    always while they are live, for else they would be missed and not skipped, and before the plan knows no more of them.
    """
    if blocker is None:
        return fire.target
    since = blocker.dispatched_at or now
    pause = EVERY_FIRE_FOR
    while since + pause <= now:
        pause *= 2
    glance = since + pause if pause > EVERY_FIRE_FOR else now
    return max(fire.target, min(glance, fire.target + plan.grace / 2, plan.upcoming[-1].target))


def _recheck_at(state: JobState, plan: FirePlan) -> datetime | None:
    """Say when the plan is to be asked for again before its next fire; ``None`` if it need not be."""
    is_lasting = plan.is_lasting and has_third_rules(state)
    if not plan.upcoming or (is_lasting and not has_fourth_rules(state)):
        return None
    at = plan.upcoming[0].target - RECHECK_BEFORE
    oldest = at - ASK_AGAIN_AFTER if is_lasting else at
    return at if plan.planned_at < oldest else None
