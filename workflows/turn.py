"""One turn of a job: from its state and the time, the next state and what is to be started or ended.

Pure. This is where the calculator's fires, the policies' decisions and the runs' ends meet in the job's state; the workflow
only carries out what a turn says. Invariant: the high-water mark never falls, and a nominal time at or below it has a run
or a ledger entry.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from workflows.alert import next_unmet, without_met
from workflows.contracts import job_workflow_id, run_workflow_id, scheduled_run_id
from workflows.idempotency_key import render_idempotency_key
from workflows.job import (
    FirePlan,
    Isolation,
    JobCounts,
    JobDefinition,
    JobState,
    LedgerEntry,
    Lifecycle,
    OverlapPolicy,
    PlanRequest,
)
from workflows.outbox import with_attempt, with_ledger, with_run
from workflows.policies import (
    OverlapAction,
    OverlapDecision,
    decide_catch_up,
    decide_overlap,
    entries_of_excluded,
    entries_of_missed,
    is_blocking,
    is_past_deadline,
    may_start_catch_up,
    start_deadline,
)
from workflows.resilience import (
    ENGINE_FLOOR,
    AttemptEnd,
    as_cancelled,
    comes_too_late,
    decide_after_attempt,
    end_before_start,
    end_between_attempts,
    end_too_late,
)
from workflows.run import FINAL_STATUSES, AttemptStatus, Outcome, Run, RunKind, RunStatus
from workflows.schedule import Fire
from workflows.target import WorkflowTarget

DETACH_AFTER = timedelta(minutes=10)
"""A longer attempt would keep its job from continuing as new for too long."""

EVERY_FIRE_FOR = timedelta(seconds=8)
"""So long after its dispatch, a run that blocks others lets the job wake up for each of their fires."""

SAME_MOMENT = timedelta(milliseconds=200)
"""A fire due at most this long before a run's end is decided after it: the two cross on the way."""

CLOCK_TOLERANCE = timedelta(seconds=5)
"""Between the request for a registration and its workflow's first task, by two clocks."""

ANSWERS_LAST = timedelta(days=1)
"""As long as the API remembers an idempotency key."""

OVERTAKEN = "overlap: a newer fire took its place"
GIVEN_UP = "overlap: given up for a newer fire"
REGISTERED_AGAIN = "the job was deleted and registered again"

RECHECK_BEFORE = timedelta(days=1)
"""A plan older than this is asked for again a day before its fire, so that changed zone rules reach it."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """The outcome of a turn."""

    state: JobState
    start: tuple[Run, ...] = ()
    """Runs whose next attempt is dispatched now; they stand in ``state.active``."""

    cancel: tuple[str, ...] = ()
    """Runs to be asked to end, by id."""

    give_up: tuple[str, ...] = ()
    """Runs that are over for the job, whatever they still do."""


def take_turn(state: JobState, *, now: datetime, detach: bool = False) -> Turn:
    """Decide everything that is due at ``now``.

    ``detach`` puts new runs into workflows of their own: the job's history is long and its inline runs never drain.
    """
    turn = _OpenTurn(state, now=now, detach=detach)
    turn.release_waiting()
    if state.lifecycle is Lifecycle.ACTIVE:
        turn.settle_missed()
        turn.fire_due()
    turn.release_waiting()
    turn.start_catch_up()
    turn.start_retries()
    turn.complete()
    return turn.finish()


def decide_due(state: JobState, *, now: datetime) -> Turn:
    """Decide the fires that are due, and nothing else, under a definition that may be about to go."""
    turn = _OpenTurn(state, now=now, detach=False)
    if state.lifecycle is Lifecycle.ACTIVE:
        turn.settle_missed()
        turn.fire_due()
    return turn.finish()


def needs_plan(state: JobState, *, now: datetime) -> bool:
    """Say whether the planner must be asked before a turn can be taken."""
    if state.lifecycle is not Lifecycle.ACTIVE or is_used_up(state):
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
    recheck_at = _recheck_at(plan)
    return recheck_at is not None and recheck_at <= now


def should_refill(state: JobState) -> bool:
    """Say whether a moment without a fire should be used to ask for more of them."""
    plan = state.plan
    if state.lifecycle is not Lifecycle.ACTIVE or plan is None or not plan.complete or plan.exhausted:
        return False
    return len(plan.upcoming) <= 1 and plan.ask_again_at is None


def plan_request(state: JobState, *, now: datetime) -> PlanRequest:
    """Word the question to the planner."""
    unfinished = (
        state.plan if state.plan and state.plan.revision == state.revision and not state.plan.complete else None
    )
    return PlanRequest(
        job_id=state.job_id,
        definition=state.definition.model_copy(update={"payload": None}),
        revision=state.revision,
        after=state.high_water,
        now=now,
        so_far=unfinished.missed if unfinished else None,
    )


def with_plan(state: JobState, plan: FirePlan) -> JobState:
    """Take in the planner's answer; fires older than the lookback go to the ledger at once."""
    state = state.model_copy(update={"plan": plan, "trouble": None})
    if plan.too_old is None:
        return state
    reason = f"older than lookback_seconds ({int(state.definition.lookback.total_seconds())})"
    state = _with_entries(state, entries_of_missed(plan.too_old.ranges, reason=reason), now=plan.planned_at)
    return state.model_copy(update={"plan": None, "high_water": max(state.high_water, plan.too_old.through)})


def next_wake(state: JobState, *, now: datetime) -> datetime | None:
    """Say when something is due next; ``None`` when only a command or a result can move the job."""
    times = [run.next_attempt_at for run in state.active if run.next_attempt_at is not None and not run.detached]
    if state.lifecycle is Lifecycle.ACTIVE and state.plan is not None and not is_used_up(state):
        times += _times_of_plan(state, state.plan, now=now)
    if state.catch_up and state.next_catch_up_at and may_start_catch_up(state.definition, active=state.active):
        times.append(state.next_catch_up_at)
    unmet = next_unmet(state)
    times += [] if unmet is None else [unmet]
    for run in state.waiting[:1]:
        deadline = start_deadline(state.definition, run)
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


def _times_of_plan(state: JobState, plan: FirePlan, *, now: datetime) -> list[datetime]:
    # What has come is left to `needs_plan`: no turn, only the planner can go on from there.
    times = [at for at in (plan.ask_again_at, _recheck_at(plan)) if at is not None and at > now]
    live = [fire for fire in plan.upcoming[:1] if fire.target + plan.grace >= now]
    return times + [_next_decision(fire, plan, blocker=_lasting_blocker(state), now=now) for fire in live]


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


def is_used_up(state: JobState) -> bool:
    """Say whether ``max_runs`` is reached."""
    return state.definition.schedule.max_runs is not None and state.counts.started >= state.definition.schedule.max_runs


def without_old_answers(state: JobState, *, now: datetime) -> JobState:
    """Forget the answers of updates that nobody can be repeating any more."""
    kept = tuple(answer for answer in state.answers if answer.at > now - ANSWERS_LAST)
    return state if kept == state.answers else state.model_copy(update={"answers": kept})


def is_drained(state: JobState) -> bool:
    """Say whether nothing of the job is under way or waits."""
    return not state.active and not state.waiting and not state.catch_up


def settle_attempt(state: JobState, end: AttemptEnd, *, now: datetime, draw: float) -> JobState:
    """Take in how an attempt ended. One of a run that was given up changes nothing."""
    run = find_run(state, end.run_id)
    if run is None:
        return state
    if run.run_id in state.cancelling and end.status is not AttemptStatus.SUCCESS:
        end = as_cancelled(end)
    settlement = decide_after_attempt(run, end, definition=state.definition, now=now, draw=draw)
    settled = settlement.run
    if settled.superseded and settled.next_attempt_at is not None:
        # Its definition is gone, and with it what another attempt would have to do.
        settled = end_between_attempts(settled, now=now, reason=REGISTERED_AGAIN)
    if settlement.attempt is not None:
        state = with_attempt(state, settlement.attempt)
    return with_run(_replace_or_end(state, settled), settled)


def settle_detached(state: JobState, ended: Run) -> JobState:
    """Take in the end of a run that a workflow of its own carried out. That workflow has written its rows."""
    run = find_run(state, ended.run_id)
    if run is None:
        return state
    state = state.model_copy(update={"fence": max(state.fence, ended.fence)})
    # Only here is it known that the job was registered again meanwhile.
    return _replace_or_end(state, ended.model_copy(update={"superseded": run.superseded}))


def settle_not_started(state: JobState, run_id: str, *, now: datetime, reason: str) -> JobState:
    """End a run that Temporal refused to start."""
    run = find_run(state, run_id)
    if run is None:
        return state
    ended = end_before_start(run, Outcome.FAILED_TO_START, now=now, reason=reason)
    return with_run(_replace_or_end(state, ended), ended)


def show_run(state: JobState, run: Run, *, now: datetime) -> JobState:
    """Take in what was seen of an active run, and show it."""
    known = find_run(state, run.run_id)
    if known is None:
        return state
    if run.run_id in state.cancelling and run.status not in FINAL_STATUSES:
        # Why it is to end is of more use than how it stands.
        run = run.model_copy(update={"reason": known.reason})
    # Above every version that a detached run's own workflow can have given.
    state = state.model_copy(update={"version": max(state.version, microseconds(now))})
    return with_run(_replace_or_end(state, run), run)


def delete_job(state: JobState, *, now: datetime, cancel_active: bool) -> Turn:
    """Let a job fire no more. What is nominal up to ``now`` and has not been decided is cancelled."""
    if state.lifecycle is Lifecycle.DELETED:
        return Turn(state=state)
    turn = _OpenTurn(state, now=now, detach=False)
    if state.lifecycle is Lifecycle.ACTIVE:
        turn.settle_missed()
        turn.settle_excluded(before=now)
    state = turn.state
    due = tuple(fire for fire in state.plan.upcoming if fire.nominal <= now) if state.plan else ()
    entries = [
        LedgerEntry(first=fire.nominal, last=fire.nominal, outcome=Outcome.CANCELLED, reason="the job was deleted")
        for fire in due
    ]
    state = with_ledger(state, tuple(entries))
    for run in (*state.waiting, *state.catch_up):
        state = with_run(state, end_before_start(run, Outcome.CANCELLED, now=now, reason="the job was deleted"))
    state = state.model_copy(
        update={
            "lifecycle": Lifecycle.DELETED,
            "plan": None,
            "waiting": (),
            "catch_up": (),
            "updated_at": now,
            "high_water": max(state.high_water, now),
        }
    )
    if not cancel_active:
        return Turn(state=state)
    return cancel_runs(state, tuple(run.run_id for run in state.active), now=now, reason="the job was deleted")


def begin(state: JobState, *, now: datetime) -> JobState:
    """Fix the moment from which a new job's fires count.

    It is the time of the request, but never later than the engine's own clock says and hardly earlier: the clock of a
    front door may be minutes off, and what it promised for the next second must still be kept.
    """
    begun = min(max(state.registered_at, now - CLOCK_TOLERANCE), now)
    high_water = max(begun, min(state.high_water, now))
    return state.model_copy(update={"registered_at": begun, "updated_at": begun, "high_water": high_water})


def register_again(state: JobState, registration: JobState, *, now: datetime) -> JobState:
    """Begin a new registration in the workflow of a deleted job. Runs of the old one end by themselves, in nobody's way."""
    registration = begin(registration, now=now)
    between = tuple(run.run_id for run in state.active if _is_between_attempts(run))
    state = cancel_runs(state, between, now=now, reason=REGISTERED_AGAIN).state
    return registration.model_copy(
        update={
            "version": max(state.version + 1, registration.version),
            "fence": max(state.fence, registration.fence),
            "high_water": max(state.high_water, registration.high_water),
            "active": tuple(run.model_copy(update={"superseded": True}) for run in state.active),
            # Redrives that were asked for since it was deleted.
            "catch_up": state.catch_up,
            "redriven": state.redriven,
            "cancelling": state.cancelling,
            "outbox": state.outbox,
            "answers": state.answers,
        }
    )


def cancel_runs(state: JobState, run_ids: tuple[str, ...], *, now: datetime, reason: str) -> Turn:
    """Ask runs to end, ``reason`` being told in their rows. Those between two attempts end at once."""
    cancel: list[str] = []
    for run_id in run_ids:
        run = find_run(state, run_id)
        if run is None or run_id in state.cancelling:
            continue
        run = run.model_copy(update={"reason": reason})
        state = with_active(state, run)
        if _is_between_attempts(run):
            ended = end_between_attempts(run, now=now, reason=reason)
            state = with_run(_replace_or_end(state, ended), ended)
            continue
        state = state.model_copy(update={"cancelling": (*state.cancelling, run_id)})
        cancel.append(run_id)
    return Turn(state=state, cancel=tuple(cancel))


def _is_between_attempts(run: Run) -> bool:
    # Of a detached run only its own workflow knows.
    return run.next_attempt_at is not None and not run.detached


def next_attempt(run: Run, *, now: datetime, last_fence: int) -> Run:
    """Number and fence the next attempt of a run. The fence is above ``last_fence`` and above every earlier microsecond."""
    return run.model_copy(
        update={
            "status": RunStatus.RUNNING,
            "outcome": Outcome.RAN,
            "reason": None,
            "attempt": run.attempt + 1,
            "fence": max(last_fence + 1, microseconds(now)),
            "dispatched_at": now,
            "next_attempt_at": None,
        }
    )


def find_run(state: JobState, run_id: str) -> Run | None:
    """Find an active run."""
    return next((run for run in state.active if run.run_id == run_id), None)


def with_active(state: JobState, run: Run) -> JobState:
    """Put a newer value of an active run in its place."""
    active = tuple(run if each.run_id == run.run_id else each for each in state.active)
    return state.model_copy(update={"active": active})


class _OpenTurn:
    """A turn while it is taken. Its steps are called in the order of ``take_turn``."""

    def __init__(self, state: JobState, *, now: datetime, detach: bool) -> None:
        self.state = state
        self.start: list[Run] = []
        self.cancel: list[str] = []
        self.give_up: list[str] = []
        self._now = now
        self._detach = detach

    def finish(self) -> Turn:
        """Say what was decided."""
        return Turn(state=self.state, start=tuple(self.start), cancel=tuple(self.cancel), give_up=tuple(self.give_up))

    def settle_missed(self) -> None:
        """Apply the catch-up policy to what the planner found missed."""
        plan = self.state.plan
        if plan is None or not plan.complete or plan.missed is None:
            return
        survey = plan.missed
        definition = self.state.definition
        newest = survey.newest[-1].nominal if survey.newest else survey.through
        run_id = scheduled_run_id(job_id=self.state.job_id, nominal=newest)
        decision = decide_catch_up(definition, survey, run_id_of_newest=run_id)
        self._add_entries(decision.ledger)
        self._bound_catch_up(coming=len(decision.run))
        for fire in decision.run:
            self._queue_catch_up(fire, stands_for=decision.stands_for)
        self.state = self.state.model_copy(
            update={
                "plan": plan.model_copy(update={"missed": None}),
                "high_water": max(self.state.high_water, survey.through),
            }
        )

    def fire_due(self) -> None:
        """Decide every live fire whose target has come, and what is excluded before it."""
        while self.state.plan is not None and not is_used_up(self.state):
            plan = self.state.plan
            fire = plan.upcoming[0] if plan.upcoming else None
            due = fire is not None and fire.target <= self._now and not _is_beyond(plan, fire)
            self.settle_excluded(before=fire.nominal if fire and due else self._now - plan.offset)
            if fire is None or not due or fire.target + plan.grace < self._now:
                return
            self._advance(fire)
            self._decide_live(fire)

    def settle_excluded(self, *, before: datetime) -> None:
        """Enter in the ledger the unwanted fires that have passed. Only whole ranges: how much of one has passed is not known."""
        plan = self.state.plan
        if plan is None or not plan.excluded or plan.excluded[0].last > before:
            return
        passed = tuple(each for each in plan.excluded if each.last <= before)
        self._add_entries(entries_of_excluded(passed))
        self.state = self.state.model_copy(
            update={
                "plan": plan.model_copy(update={"excluded": plan.excluded[len(passed) :]}),
                "high_water": max(self.state.high_water, passed[-1].last),
            }
        )

    def release_waiting(self) -> None:
        """Start fires that waited, where nothing is in their way any more."""
        while self.state.waiting:
            run = self.state.waiting[0]
            if is_past_deadline(self.state.definition, run, now=self._now):
                self._take_out_waiting(run)
                self._end_unstarted(run, Outcome.MISSED, reason="could not start within max_delay_seconds")
            elif any(is_blocking(other) for other in self.state.active):
                return
            else:
                self._take_out_waiting(run)
                self._dispatch(run)

    def start_catch_up(self) -> None:
        """Start the oldest of the missed fires, if the lane and the rate allow it."""
        state = self.state
        if not state.catch_up or not may_start_catch_up(state.definition, active=state.active) or state.waiting:
            return
        if state.next_catch_up_at is not None and self._now < state.next_catch_up_at:
            return
        pause = timedelta(minutes=1) / state.definition.catch_up_rate
        self.state = state.model_copy(update={"catch_up": state.catch_up[1:], "next_catch_up_at": self._now + pause})
        self._dispatch(state.catch_up[0])

    def start_retries(self) -> None:
        """Dispatch the next attempt of runs whose wait is over."""
        for run in self.state.active:
            if run.next_attempt_at is None or run.next_attempt_at > self._now or run.detached:
                continue
            if comes_too_late(self.state.definition, run, now=self._now):
                ended = end_too_late(run, now=self._now)
                self.state = with_run(_replace_or_end(self.state, ended), ended)
            else:
                self._dispatch(run)

    def complete(self) -> None:
        """Complete a job that has no fire left."""
        state = self.state
        if state.lifecycle is not Lifecycle.ACTIVE or state.waiting or state.catch_up:
            return
        plan = state.plan
        no_fire_left = plan is not None and plan.complete and plan.exhausted and not plan.upcoming
        if no_fire_left or is_used_up(state):
            if plan is not None and no_fire_left:
                self._add_entries(entries_of_excluded(plan.excluded))
            self.state = self.state.model_copy(
                update={"lifecycle": Lifecycle.COMPLETED, "plan": None, "updated_at": self._now}
            )

    def _decide_live(self, fire: Fire) -> None:
        decision = decide_overlap(self.state.definition, active=self.state.active, waiting=self.state.waiting)
        self._make_room(decision)
        match decision.action:
            case OverlapAction.START:
                if self.state.definition.overlap is OverlapPolicy.ALLOW and any(map(is_blocking, self.state.active)):
                    self.state = self.state.model_copy(update={"runs_overlap": True})
                self._dispatch(self._new_run(fire, kind=RunKind.SCHEDULED))
            case OverlapAction.WAIT:
                run = self._new_run(fire, kind=RunKind.SCHEDULED, reason=f"waits for run {decision.blocked_by}")
                self.state = with_run(self.state.model_copy(update={"waiting": (*self.state.waiting, run)}), run)
            case OverlapAction.SKIP | OverlapAction.DROP:
                self._add_entries((_overlap_entry(fire, decision, revision=self.state.revision),))

    def _make_room(self, decision: OverlapDecision) -> None:
        for run_id in decision.replace:
            run = next(each for each in self.state.waiting if each.run_id == run_id)
            self._take_out_waiting(run)
            self._end_unstarted(run, Outcome.SKIPPED, reason=OVERTAKEN)
        for run in [each for each in self.start if each.run_id in (*decision.cancel, *decision.give_up)]:
            self._take_back(run)
        cancelled = cancel_runs(
            self.state, decision.cancel, now=self._now, reason="overlap: cancelled for a newer fire"
        )
        self.state = cancelled.state
        self.cancel += cancelled.cancel
        for run_id in decision.give_up:
            self._give_up(run_id)

    def _take_back(self, run: Run) -> None:
        """Undo a dispatch of this very turn: several fires were due at once, and the newest is the one that runs."""
        self.start.remove(run)
        active = tuple(each for each in self.state.active if each.run_id != run.run_id)
        self.state = self.state.model_copy(update={"active": active})
        undispatched = run.model_copy(update={"attempt": 0, "fence": 0, "dispatched_at": None})
        self._end_unstarted(undispatched, Outcome.SKIPPED, reason=OVERTAKEN)

    def _give_up(self, run_id: str) -> None:
        run = find_run(self.state, run_id)
        if run is None:
            return
        if _is_between_attempts(run):
            self.state = cancel_runs(self.state, (run_id,), now=self._now, reason=GIVEN_UP).state
            return
        if run.detached:
            # Its own workflow writes its rows, and knows its attempts.
            ended = end_between_attempts(run, now=self._now, reason=GIVEN_UP)
            self.state = _replace_or_end(self.state, ended)
        else:
            end = AttemptEnd(run_id=run_id, status=AttemptStatus.CANCELLED)
            self.state = with_active(self.state, run.model_copy(update={"reason": GIVEN_UP}))
            self.state = settle_attempt(self.state, end, now=self._now, draw=0.0)
        self.give_up.append(run_id)

    def _new_run(self, fire: Fire, *, kind: RunKind, stands_for: int = 1, reason: str | None = None) -> Run:
        self.state = _count(self.state, started=1)
        return run_for(self.state, fire, kind=kind, stands_for=stands_for, now=self._now, reason=reason)

    def _queue_catch_up(self, fire: Fire, *, stands_for: int) -> None:
        if is_used_up(self.state):
            return
        run = self._new_run(fire, kind=RunKind.CATCH_UP, stands_for=stands_for, reason="waits in the catch-up lane")
        self.state = with_run(self.state.model_copy(update={"catch_up": (*self.state.catch_up, run)}), run)

    def _bound_catch_up(self, *, coming: int) -> None:
        # A second outage while the first is still being caught up. The old ones give up their place before the new ones
        # take one, so that all are held against `max_runs` by the same count.
        bound = self.state.definition.max_missed
        missed = [run for run in self.state.catch_up if run.kind is RunKind.CATCH_UP]
        surplus = missed[: max(0, len(missed) + coming - bound)]
        kept = tuple(run for run in self.state.catch_up if run not in surplus)
        self.state = self.state.model_copy(update={"catch_up": kept})
        for run in surplus:
            self._end_unstarted(run, Outcome.DROPPED, reason=f"more than max_missed ({bound}) fires were missed")

    def _end_unstarted(self, run: Run, outcome: Outcome, *, reason: str) -> None:
        missed = 1 if outcome in (Outcome.MISSED, Outcome.DROPPED) else 0
        skipped = 1 if outcome is Outcome.SKIPPED else 0
        self.state = _count(self.state, started=-1, missed=missed, skipped=skipped)
        if missed:
            self.state = self.state.model_copy(update={"last_missed_at": self._now})
        self.state = with_run(self.state, end_before_start(run, outcome, now=self._now, reason=reason))

    def _dispatch(self, run: Run) -> None:
        state = self.state
        if run.attempt == 0:
            detached = self._detach or state.runs_overlap or _wants_workflow(state.definition)
            run = run.model_copy(
                update={"detached": detached, "workflow_id": _workflow_of(state, run, detached=detached)}
            )
        run = next_attempt(run, now=self._now, last_fence=state.fence)
        others = tuple(each for each in state.active if each.run_id != run.run_id)
        self.state = state.model_copy(update={"active": (*others, run), "fence": run.fence})
        self.start.append(run)

    def _advance(self, fire: Fire) -> None:
        plan = self.state.plan
        assert plan is not None
        self.state = self.state.model_copy(
            update={
                "plan": plan.model_copy(update={"upcoming": plan.upcoming[1:]}),
                "high_water": max(self.state.high_water, fire.nominal),
            }
        )

    def _take_out_waiting(self, run: Run) -> None:
        left = tuple(each for each in self.state.waiting if each.run_id != run.run_id)
        self.state = self.state.model_copy(update={"waiting": left})

    def _add_entries(self, entries: tuple[LedgerEntry, ...]) -> None:
        self.state = _with_entries(self.state, entries, now=self._now)


def _is_beyond(plan: FirePlan, fire: Fire) -> bool:
    """Say whether a fire comes after excluded ones that the plan does not tell."""
    return plan.ask_again_at is not None and fire.target > plan.ask_again_at


def _recheck_at(plan: FirePlan) -> datetime | None:
    if not plan.upcoming:
        return None
    at = plan.upcoming[0].target - RECHECK_BEFORE
    return at if plan.planned_at < at else None


def run_for(state: JobState, fire: Fire, *, kind: RunKind, stands_for: int, now: datetime, reason: str | None) -> Run:
    """Make the run of a fire."""
    definition = state.definition
    return Run(
        run_id=scheduled_run_id(job_id=state.job_id, nominal=fire.nominal),
        kind=kind,
        scheduled_at=fire.nominal,
        target_at=fire.target,
        created_at=now,
        reason=reason,
        stands_for=stands_for,
        revision=state.revision,
        max_attempts=definition.retry.max_attempts,
        idempotency_key=render_idempotency_key(
            definition.idempotency_key_template,
            tenant=state.tenant,
            job_id=state.job_id,
            scheduled_at=fire.nominal,
            timezone=definition.schedule.timezone,
            request_id=None,
        ),
    )


def _wants_workflow(definition: JobDefinition) -> bool:
    is_workflow = isinstance(definition.target, WorkflowTarget)
    return is_workflow or definition.isolation is Isolation.WORKFLOW or definition.timeout > DETACH_AFTER


def _workflow_of(state: JobState, run: Run, *, detached: bool) -> str:
    if detached:
        return run_workflow_id(tenant=state.tenant, run_id=run.run_id)
    return job_workflow_id(tenant=state.tenant, job_id=state.job_id)


def _overlap_entry(fire: Fire, decision: OverlapDecision, *, revision: int) -> LedgerEntry:
    dropped = decision.action is OverlapAction.DROP
    return LedgerEntry(
        first=fire.nominal,
        last=fire.nominal,
        outcome=Outcome.DROPPED if dropped else Outcome.SKIPPED,
        reason=decision.reason,
        run_id=decision.blocked_by,
        revision=revision,
    )


def _with_entries(state: JobState, entries: tuple[LedgerEntry, ...], *, now: datetime) -> JobState:
    missed = sum(entry.count for entry in entries if entry.outcome in (Outcome.MISSED, Outcome.DROPPED))
    skipped = sum(entry.count for entry in entries if entry.outcome is Outcome.SKIPPED)
    state = _count(state, missed=missed, skipped=skipped)
    if missed:
        state = state.model_copy(update={"last_missed_at": now})
    revised = tuple(entry.model_copy(update={"revision": state.revision}) for entry in entries)
    return with_ledger(state, revised)


def _replace_or_end(state: JobState, run: Run) -> JobState:
    """Put a run back among the active ones, or, when it is final, take it out and count it."""
    if run.status not in FINAL_STATUSES:
        return with_active(state, run)
    state = state.model_copy(
        update={
            "active": tuple(each for each in state.active if each.run_id != run.run_id),
            "cancelling": tuple(each for each in state.cancelling if each != run.run_id),
            "expected": without_met(state.expected, run),
        }
    )
    if run.superseded:
        return state
    succeeded = run.status is RunStatus.SUCCESS
    state = _count(state, succeeded=int(succeeded), dead=int(run.status is RunStatus.DEAD))
    if run.outcome is Outcome.MISSED:
        state = _count(state, missed=1).model_copy(update={"last_missed_at": run.finished_at})
    return state.model_copy(
        update={"last": run, "last_success_at": run.finished_at if succeeded else state.last_success_at}
    )


def _count(
    state: JobState, *, started: int = 0, succeeded: int = 0, dead: int = 0, missed: int = 0, skipped: int = 0
) -> JobState:
    counts = state.counts
    return state.model_copy(
        update={
            "counts": JobCounts(
                started=counts.started + started,
                succeeded=counts.succeeded + succeeded,
                dead=counts.dead + dead,
                missed=counts.missed + missed,
                skipped=counts.skipped + skipped,
            )
        }
    )


def date_version(state: JobState, *, now: datetime) -> JobState:
    """Let the records of a workflow task be newer than all that an earlier try of the same task may have sent.

    A task that is lost after its records were written is carried out again, later, and may decide otherwise.
    """
    return state.model_copy(update={"version": max(state.version, microseconds(now))})


def microseconds(moment: datetime) -> int:
    """Count since the epoch: what fences and versions begin with."""
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond
