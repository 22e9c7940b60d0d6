"""A job that is changed, paused, resumed, held, released or triggered while it goes on.

Pure. Whatever is nominal up to the moment of a change belongs to what held until then: it is decided before, entered in the
ledger, or carried over to its target time. So no change makes a fire that has passed, and none takes one away.
"""

from datetime import datetime, timedelta

from pydantic import JsonValue

from workflows.command import ChangeCommand, TriggerCommand
from workflows.dispatch import manual_run
from workflows.error import InvalidSchedule
from workflows.hold import is_caught_up, is_firing, is_held, standstill
from workflows.job import (
    CarriedFire,
    EarlierDefinition,
    Hold,
    JobDefinition,
    JobState,
    LedgerEntry,
    Lifecycle,
    Pause,
    PausedFires,
    SurveyRequest,
    Triggered,
)
from workflows.job_state import with_entries, without_unused_definitions
from workflows.logic import has_fifth_rules, has_second_rules
from workflows.policies import SHORTEST_GRACE, entries_of_missed, entries_of_standstill, split_newest
from workflows.run import Outcome, Run
from workflows.schedule import FireSurvey
from workflows.turn import Turn, carry_nominal, next_decidable, trigger_run

FIRING = frozenset({Lifecycle.ACTIVE, Lifecycle.PAUSED})
"""Lifecycles in which nominal times count."""

NOT_ENABLED = "enabled is false"
"""Why a job is paused whose definition says so."""

UNDECIDED = "not decided before the job was changed"

PAYLOADS_LIMIT = 262_144
"""Bytes of JSON of the payloads that triggers have brought and whose runs are not over: they cross every continue-as-new."""

NO_NEXT_FIRE = "The job has no next fire that could be skipped."

HELD_SKIPS_NOTHING = "The job is held: it has no next fire yet that could be skipped."


def is_same_definition(one: JobDefinition, other: JobDefinition) -> bool:
    """Say whether two definitions mean the same: neither the order of members nor 60 for 60.0 makes a difference."""
    return one == other and _is_same_json(one.model_dump(mode="json"), other.model_dump(mode="json"))


def _is_same_json(one: JsonValue, other: JsonValue) -> bool:
    # Python takes True for 1.
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same_json(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same_json, one, other))
    return one == other


def must_settle(state: JobState, command: ChangeCommand) -> bool:
    """Say whether the fires up to a change must be asked for: those of a schedule, a pause or a hold that is about to end.

    Or of a job that nobody could plan: those of its schedule up to now are still of the definition that goes.
    """
    if state.lifecycle is Lifecycle.PAUSED and command.enabled:
        return True
    is_held_otherwise = command.enabled is False or command.holds not in (None, state.holds)
    if is_held_otherwise and must_settle_held(state):
        return True
    if is_firing(state) and not _is_planned(state) and has_second_rules(state):
        return not is_same_definition(state.definition, command.definition)
    return state.lifecycle in FIRING and state.definition.schedule != command.definition.schedule


def _is_planned(state: JobState) -> bool:
    return state.plan is not None and state.plan.revision == state.revision and state.plan.complete


def survey_request(state: JobState, *, until: datetime) -> SurveyRequest:
    """Ask for what is nominal after the high-water mark and up to a moment."""
    return SurveyRequest(job_id=state.job_id, schedule=state.definition.schedule, after=state.high_water, until=until)


def settle_survey(state: JobState, survey: FireSurvey, *, at: datetime) -> JobState:
    """Take in what lies before ``at``, of a job that is changed, resumed or released then.

    A fire whose target is still to come is carried. What passed while the job was paused or held, and what is excluded, goes to
    the ledger. A job that fired has decided all that was due; what it had not the time for is carried, and decided next.
    """
    still = standstill(state)
    fires = [fire for fire in survey.newest if still is None or fire.target > at]
    wanted = sum(each.count for each in survey.ranges if each.excluded_by is None)
    if has_fifth_rules(state) and len(fires) == len(survey.newest) < wanted:
        # Where those end that are not named cannot be told without one that is.
        fires = fires[1:]
    passed, _ = split_newest(survey, keep=len(fires))
    if still is None:
        entries = entries_of_missed(passed, reason=UNDECIDED)
    else:
        entries = entries_of_standstill(passed, outcome=still.outcome, reason=still.reason)
    state = with_entries(state, entries, now=at)
    carried = tuple(CarriedFire(fire=fire, revision=state.revision, grace=_grace(state)) for fire in fires)
    return state.model_copy(
        update={"carried": (*state.carried, *carried), "high_water": max(state.high_water, survey.through)}
    )


def settle_unknown(state: JobState, *, at: datetime, reason: str) -> JobState:
    """Give up asking what lies before ``at``, of a schedule that no worker can read; the ledger says from when to when."""
    still = standstill(state)
    outcome = Outcome.MISSED if still is None else still.outcome
    first = min(state.high_water.replace(microsecond=0) + timedelta(seconds=1), at)
    entry = LedgerEntry(first=first, last=at, count=0, outcome=outcome, reason=f"how many is not known: {reason}"[:500])
    state = with_entries(state, (entry,), now=at)
    return state.model_copy(update={"high_water": max(state.high_water, at)})


def change_job(state: JobState, command: ChangeCommand, *, now: datetime) -> JobState:
    """Give a job another definition, and pause or resume it, as it is asked; what is the same changes nothing.

    What ``must_settle`` names has been settled. Fires to come that were used up are those of their schedule: another one
    knows nothing of them.
    """
    if not is_same_definition(state.definition, command.definition):
        state = _redefine(state, command.definition, now=now)
    if command.holds is not None:
        state = hold_job(state, command.holds, at=now, now=now)
    if command.enabled is False and state.lifecycle is Lifecycle.ACTIVE:
        return pause_job(state, Pause(at=now, reason=NOT_ENABLED), now=now)
    if command.enabled and state.lifecycle is Lifecycle.PAUSED:
        return resume_job(state, at=now, catch_up=PausedFires.NONE, now=now)
    return state


def pause_job(state: JobState, pause: Pause, *, now: datetime) -> JobState:
    """Let a job fire no more. Of one that is paused, the reason and the expiry are replaced."""
    since = state.pause.at if state.pause is not None else now
    return state.model_copy(
        update={
            "lifecycle": Lifecycle.PAUSED,
            "pause": pause.model_copy(update={"at": since}),
            "plan": None,
            "tuning": state.tuning if state.plan is None else state.plan.tuning,
            "trouble": None,
            "updated_at": now,
        }
    )


def resume_job(state: JobState, *, at: datetime, catch_up: PausedFires, now: datetime) -> JobState:
    """Let a paused job fire again from ``at`` on.

    Without a catch-up, what fell into the pause has been settled; with one it is left to the planner, as missed up to ``at``.
    """
    state = _go_on(state, at=at, catch_up=catch_up, now=now)
    return state.model_copy(update={"lifecycle": Lifecycle.ACTIVE, "pause": None, "updated_at": now})


def choice_at_resume(state: JobState, asked: PausedFires) -> PausedFires:
    """Say what becomes of the fires that fell into a pause. Holds that are over the job as well must say the same."""
    return asked if is_caught_up(state.holds) else PausedFires.NONE


def hold_job(state: JobState, holds: tuple[Hold, ...], *, at: datetime, now: datetime) -> JobState:
    """Let these holds, and no others, keep a job from firing from ``at`` on. What ``must_settle_held`` names has been settled.

    When the last is gone, the job fires again, unless it is paused. What fell into them is left to the planner, as missed up to
    ``at``, or has been settled.
    """
    if holds == state.holds:
        return state
    if state.lifecycle is not Lifecycle.ACTIVE:
        return state.model_copy(update={"holds": holds})
    if state.holds and not holds:
        catch_up = PausedFires.APPLY if is_caught_up(state.holds) else PausedFires.NONE
        return _go_on(state, at=at, catch_up=catch_up, now=now).model_copy(update={"holds": ()})
    tuning = state.tuning if state.plan is None else state.plan.tuning
    return state.model_copy(update={"holds": holds, "plan": None, "tuning": tuning, "trouble": None})


def must_settle_held(state: JobState) -> bool:
    """Say whether the fires that fell into the present holds must be asked for before these change, or the job is paused."""
    return is_held(state) and not is_caught_up(state.holds)


def next_end(state: JobState, *, now: datetime) -> datetime | None:
    """Say when the pause or a hold of a job ended by itself that the job has not yet taken in; the earliest first."""
    pause = state.pause if state.lifecycle is Lifecycle.PAUSED else None
    ends = [None if pause is None else pause.until, *(hold.until for hold in state.holds)]
    return min((end for end in ends if end is not None and end <= now), default=None)


def must_settle_end(state: JobState, *, at: datetime) -> bool:
    """Say whether the fires up to ``at`` must be asked for before what ends then by itself has ended."""
    pause = _pause_ending(state, at=at)
    return must_settle_held(state) if pause is None else choice_at_resume(state, pause.catch_up) is PausedFires.NONE


def end_by_itself(state: JobState, *, at: datetime, now: datetime) -> JobState:
    """End the pause, or else the holds, that were to end by themselves at ``at``: see ``next_end``."""
    pause = _pause_ending(state, at=at)
    if pause is not None:
        return resume_job(state, at=at, catch_up=choice_at_resume(state, pause.catch_up), now=now)
    left = tuple(hold for hold in state.holds if hold.until is None or hold.until > at)
    return hold_job(state, left, at=at, now=now)


def _pause_ending(state: JobState, *, at: datetime) -> Pause | None:
    pause = state.pause if state.lifecycle is Lifecycle.PAUSED else None
    return pause if pause is not None and pause.until is not None and pause.until <= at else None


def refuse_trigger(state: JobState, command: TriggerCommand) -> str:
    """Say why a trigger finds nothing to do; empty when it does."""
    if command.skip_next and is_held(state):
        return HELD_SKIPS_NOTHING
    if command.skip_next and next_decidable(state) is None:
        return NO_NEXT_FIRE
    return ""


def refuse_by_this_worker(state: JobState, command: TriggerCommand, *, now: datetime) -> str:
    """Say why this worker cannot make the run of a trigger: its key needs a zone that only others know. Empty when it can.

    For validators alone, which leave nothing in a history: another worker that reads it knows other zones.
    """
    try:
        manual_run(state, request_id=command.request_id, override=None, now=now)
    except InvalidSchedule as error:
        return str(error)
    return ""


def may_take_payload(state: JobState, command: TriggerCommand, *, queued: tuple[TriggerCommand, ...]) -> bool:
    """Say whether there is room for the payload of a trigger, those of ``queued`` being about to be taken. One always fits."""
    if command.override is None:
        return True
    held: list[Run | TriggerCommand] = [*state.active, *state.waiting, *state.catch_up, *queued]
    payloads = [each.override for each in held if each.override is not None]
    sizes = [len(each.model_dump_json()) for each in (*payloads, command.override)]
    return not payloads or sum(sizes) <= PAYLOADS_LIMIT


def trigger_job(
    state: JobState, command: TriggerCommand, *, now: datetime, detach: bool = False
) -> tuple[Turn, Triggered]:
    """Run a job now, whatever its lifecycle but deleted. ``refuse_trigger`` has nothing against it."""
    run = manual_run(state, request_id=command.request_id, override=command.override, now=now)
    return trigger_run(state, run, overlap=command.overlap, skip_next=command.skip_next, now=now, detach=detach)


def _go_on(state: JobState, *, at: datetime, catch_up: PausedFires, now: datetime) -> JobState:
    """Let a job that stood still go on from ``at``: enter what was put aside and has passed, and plan anew."""
    still = standstill(state)
    assert still is not None
    passed = tuple(carried for carried in state.carried if carried.fire.target <= at)
    for each in passed:
        nominal = each.fire.nominal
        entry = LedgerEntry(first=nominal, last=nominal, outcome=still.outcome, reason=still.reason)
        state = with_entries(state, (entry,), now=now, revision=each.revision)
    left = tuple(each for each in state.carried if each not in passed)
    state = state.model_copy(update={"carried": left, "plan": None})
    if catch_up is PausedFires.APPLY:
        return state.model_copy(update={"missed_until": at})
    return state.model_copy(update={"high_water": max(state.high_water, at)})


def _redefine(state: JobState, definition: JobDefinition, *, now: datetime) -> JobState:
    before = state.definition
    keeps_schedule = before.schedule == definition.schedule
    if keeps_schedule and not is_held(state):
        state = carry_nominal(state, now=now)
    revision = state.revision + 1
    earlier = EarlierDefinition(revision=state.revision, definition=before)
    plan = state.plan if keeps_schedule and _plans_alike(before, definition) else None
    if plan is not None:
        plan = plan.model_copy(update={"revision": revision})
    changed = state.model_copy(
        update={
            "definition": definition,
            "revision": revision,
            "earlier": (*state.earlier, earlier),
            "lifecycle": Lifecycle.ACTIVE if state.lifecycle is Lifecycle.COMPLETED else state.lifecycle,
            "plan": plan,
            "trouble": None,
            "high_water": state.high_water if keeps_schedule else max(state.before_skip or state.high_water, now),
            "before_skip": state.before_skip if keeps_schedule else None,
            "updated_at": now,
        }
    )
    return without_unused_definitions(changed)


def _plans_alike(one: JobDefinition, other: JobDefinition) -> bool:
    """Say whether a plan for one definition of a schedule holds for the other."""
    return (one.missed_window, one.max_delay, one.misfire_grace, one.lookback, one.max_missed) == (
        other.missed_window,
        other.max_delay,
        other.misfire_grace,
        other.lookback,
        other.max_missed,
    )


def _grace(state: JobState) -> timedelta:
    return SHORTEST_GRACE if state.plan is None else state.plan.grace
