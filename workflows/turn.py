"""One turn of a job: from its state and the time, the next state and what is to be started or ended.

Pure. This is where the calculator's fires, the policies' decisions and the runs' ends meet in the job's state; the workflow
only carries out what a turn says. Invariant: the high-water mark never falls, and a nominal time at or below it has a run
or a ledger entry.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from workflows.contracts import scheduled_run_id
from workflows.dispatch import next_attempt, run_for, wants_workflow, workflow_of
from workflows.hold import is_firing, release_time, standstill
from workflows.job import (
    CarriedFire,
    FirePlan,
    JobState,
    LedgerEntry,
    Lifecycle,
    OverlapPolicy,
    Triggered,
    TriggerOutcome,
)
from workflows.job_state import (
    COUNTED,
    count,
    definition_at,
    definition_of,
    find_run,
    replace_or_end,
    with_active,
    with_entries,
)
from workflows.logic import has_fifth_rules, has_second_rules
from workflows.outbox import with_run
from workflows.policies import (
    OverlapAction,
    OverlapDecision,
    decide_catch_up,
    decide_overlap,
    entries_of_excluded,
    is_blocking,
    is_past_deadline,
    is_used_up,
    may_start_catch_up,
)
from workflows.resilience import (
    AttemptEnd,
    comes_too_late,
    end_before_start,
    end_between_attempts,
    end_too_late,
)
from workflows.run import AttemptStatus, Outcome, Run, RunKind
from workflows.schedule import Fire, FireRange, FireSurvey
from workflows.settlement import cancel_runs, is_between_attempts, settle_attempt
from workflows.visibility import next_fire

SAME_MOMENT = timedelta(milliseconds=200)
"""A fire due at most this long before a run's end is decided after it: the two cross on the way."""

OVERTAKEN = "overlap: a newer fire took its place"

GIVEN_UP = "overlap: given up for a newer fire"


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
    turn.pass_fires_beyond_max_runs()
    turn.release_waiting()
    if has_second_rules(state):
        # A place that came before the fires of this moment is taken before them, as if it had had a timer of its own.
        turn.start_catch_up()
        turn.decide_fires()
        turn.start_retries()
        turn.release_waiting()
        turn.start_catch_up()
    else:
        turn.decide_fires()
        turn.release_waiting()
        turn.start_catch_up()
        turn.start_retries()
    turn.complete()
    return turn.finish()


def decide_due(state: JobState, *, now: datetime) -> Turn:
    """Decide the fires that are due, and nothing else, under a definition that may be about to go."""
    turn = _OpenTurn(state, now=now, detach=False)
    turn.pass_fires_beyond_max_runs()
    turn.decide_fires()
    return turn.finish()


def settle_passed(state: JobState, *, now: datetime) -> JobState:
    """Decide what was missed or excluded up to ``now``, and start nothing."""
    turn = _OpenTurn(state, now=now, detach=False)
    turn.settle_missed()
    turn.settle_excluded(before=now)
    return turn.state


def carry_nominal(state: JobState, *, now: datetime) -> JobState:
    """Put aside the fires whose nominal time has come and whose target time has not: the definition is about to go."""
    turn = _OpenTurn(state, now=now, detach=False)
    turn.carry_nominal()
    return turn.state


def trigger_run(
    state: JobState, run: Run, *, overlap: OverlapPolicy | None, skip_next: bool, now: datetime, detach: bool
) -> tuple[Turn, Triggered]:
    """Start a manual run, let it wait, or let it pass, by the overlap policy. Unless let pass, it may use up the next fire."""
    turn = _OpenTurn(state, now=now, detach=detach)
    outcome = turn.trigger(run, overlap=overlap)
    uses_up = skip_next and outcome is not TriggerOutcome.SKIPPED
    consumed = turn.consume_next(run.run_id) if uses_up else None
    return turn.finish(), Triggered(run_id=run.run_id, outcome=outcome, consumed=consumed)


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

    def decide_fires(self) -> None:
        """Decide what is due: carried fires, missed ones, live ones."""
        self.fire_carried()
        if is_firing(self.state):
            self.settle_missed()
            self.fire_due()
        self.pass_fires_beyond_max_runs()

    def pass_fires_beyond_max_runs(self) -> None:
        """Leave behind what passes while ``max_runs`` is reached: these are no fires, whoever gives its place back later."""
        plan = self.state.plan
        if self.state.lifecycle is not Lifecycle.ACTIVE or not is_used_up(self.state):
            return
        self._pass_through(self._now if plan is None else self._now - plan.offset)

    def settle_missed(self) -> None:
        """Apply the catch-up policy to what the planner found missed."""
        self.pass_fires_beyond_max_runs()
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
                "before_skip": None,
            }
        )

    def fire_carried(self) -> None:
        """Decide the fires that were carried over a change or a resume, and whose target has come."""
        for group in self._due_of_carried():
            left = tuple(each for each in self.state.carried if each not in group)
            self.state = self.state.model_copy(update={"carried": left})
            self._decide_carried(group)

    def _due_of_carried(self) -> list[tuple[CarriedFire, ...]]:
        """List the carried fires whose target has come: missed ones together that belong to one revision, each other alone."""
        due = [each for each in self.state.carried if each.fire.target <= self._now and is_decidable(self.state, each)]
        if not has_fifth_rules(self.state):
            return [(each,) for each in due]
        groups = groupby(due, key=lambda each: (each.revision, None if self._is_missed(each) else each.fire.nominal))
        return [tuple(group) for _, group in groups]

    def _is_missed(self, carried: CarriedFire) -> bool:
        return carried.fire.target + carried.grace < self._now

    def carry_nominal(self) -> None:
        """Put aside what the plan has between nominal and target time."""
        if is_used_up(self.state):
            self._pass_through(self._now)
        plan = self.state.plan
        while (
            plan is not None and plan.upcoming and plan.upcoming[0].nominal <= self._now and not is_used_up(self.state)
        ):
            fire = plan.upcoming[0]
            if is_beyond(plan, fire):
                return
            carried = CarriedFire(fire=fire, revision=self.state.revision, grace=plan.grace)
            self.settle_excluded(before=fire.nominal)
            self._advance(fire)
            self.state = self.state.model_copy(update={"carried": (*self.state.carried, carried)})
            plan = self.state.plan

    def trigger(self, run: Run, *, overlap: OverlapPolicy | None) -> TriggerOutcome:
        """Decide a manual run as a live fire is decided; it is shown at once, whatever becomes of it."""
        definition = self.state.definition
        policy = definition if overlap is None else definition.model_copy(update={"overlap": overlap})
        decision = decide_overlap(policy, active=self.state.active, waiting=waiting_now(self.state))
        self._make_room(decision)
        match decision.action:
            case OverlapAction.START:
                self._dispatch(run)
                self.state = with_run(self.state, self.start[-1])
                return TriggerOutcome.STARTED
            case OverlapAction.WAIT:
                self._wait(run.model_copy(update={"reason": f"waits for run {decision.blocked_by}"}))
                return TriggerOutcome.BUFFERED
            case OverlapAction.SKIP | OverlapAction.DROP:
                reason = f"{decision.reason}: run {decision.blocked_by} is in its way"
                outcome = Outcome.DROPPED if decision.action is OverlapAction.DROP else Outcome.SKIPPED
                ended = end_before_start(run, outcome, now=self._now, reason=reason)
                self.state = with_run(self.state, ended)
                return TriggerOutcome.SKIPPED

    def consume_next(self, run_id: str) -> datetime | None:
        """Use up the next fire; answer its nominal time."""
        fire, revision = next_decidable(self.state), self.state.revision
        if fire is None:
            return None
        if self.state.carried:
            revision, left = self.state.carried[0].revision, self.state.carried[1:]
            self.state = self.state.model_copy(update={"carried": left})
        else:
            before = self.state.before_skip or self.state.high_water
            self.settle_excluded(before=fire.nominal)
            self._advance(fire)
            self.state = self.state.model_copy(update={"before_skip": before})
        entry = LedgerEntry(
            first=fire.nominal, last=fire.nominal, outcome=Outcome.CONSUMED, reason="skip_next", run_id=run_id
        )
        self.state = with_entries(self.state, (entry,), now=self._now, revision=revision)
        return fire.nominal

    def fire_due(self) -> None:
        """Decide every live fire whose target has come, and what is excluded before it."""
        while self.state.plan is not None and not is_used_up(self.state):
            plan = self.state.plan
            fire = plan.upcoming[0] if plan.upcoming else None
            due = fire is not None and fire.target <= self._now and not is_beyond(plan, fire)
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
        while waiting := waiting_now(self.state):
            run = waiting[0]
            if is_past_deadline(definition_of(self.state, run), run, now=self._now):
                self._take_out_waiting(run)
                self._end_unstarted(run, Outcome.MISSED, reason="could not start within max_delay_seconds")
            elif self._is_held_back(run):
                return
            else:
                self._take_out_waiting(run)
                self._dispatch(run)

    def _is_held_back(self, run: Run) -> bool:
        """Say whether a run that waits must go on waiting: where runs may overlap, not for one that came later."""
        definition = self.state.definition
        blocking = [other for other in self.state.active if is_blocking(other)]
        if definition.overlap is not OverlapPolicy.ALLOW or not has_fifth_rules(self.state):
            return bool(blocking)
        is_full = len(blocking) >= definition.max_concurrent
        return is_full or any(other.created_at <= run.created_at for other in blocking)

    def start_catch_up(self) -> None:
        """Start the oldest of the missed fires, if the lane and the rate allow it."""
        state = self.state
        run = next_in_lane(state)
        if run is None:
            return
        place = state.next_catch_up_at
        if place is not None and self._now < place:
            return
        pause = timedelta(minutes=1) / state.definition.catch_up_rate
        self.state = state.model_copy(update={"catch_up": state.catch_up[1:], "next_catch_up_at": self._now + pause})
        self._dispatch(run)

    def start_retries(self) -> None:
        """Dispatch the next attempt of runs whose wait is over."""
        for run in self.state.active:
            if run.next_attempt_at is None or run.next_attempt_at > self._now or run.detached:
                continue
            if comes_too_late(definition_of(self.state, run), run, now=self._now):
                ended = end_too_late(run, now=self._now)
                self.state = with_run(replace_or_end(self.state, ended), ended)
            else:
                self._dispatch(run)

    def complete(self) -> None:
        """Complete a job that has no fire left."""
        state = self.state
        if not is_firing(state) or state.waiting or state.catch_up or state.carried:
            return
        plan = state.plan
        no_fire_left = plan is not None and plan.complete and plan.exhausted and not plan.upcoming
        if no_fire_left or is_used_up(state):
            if plan is not None and no_fire_left:
                self._tell_ahead(plan.excluded)
            self.state = self.state.model_copy(
                update={"lifecycle": Lifecycle.COMPLETED, "plan": None, "updated_at": self._now}
            )

    def _tell_ahead(self, excluded: tuple[FireRange, ...]) -> None:
        """Enter in the ledger the unwanted fires after the last one. They are decided, and not to be told again."""
        if not excluded:
            return
        before = self.state.before_skip or self.state.high_water
        self._add_entries(entries_of_excluded(excluded))
        through = max(self.state.high_water, excluded[-1].last)
        self.state = self.state.model_copy(
            update={"high_water": through, "before_skip": before if through > self._now else None}
        )

    def _pass_through(self, moment: datetime) -> None:
        plan = self.state.plan
        if moment <= self.state.high_water:
            return
        if plan is not None:
            later = tuple(fire for fire in plan.upcoming if fire.nominal > moment)
            unwanted = tuple(each for each in plan.excluded if each.last > moment)
            passed = {"upcoming": later, "excluded": unwanted, "missed": None, "complete": True}
            plan = plan.model_copy(update=passed)
        self.state = self.state.model_copy(update={"plan": plan, "high_water": moment, "before_skip": None})

    def _decide_carried(self, carried: tuple[CarriedFire, ...]) -> None:
        """Decide one carried fire, or several of one revision that were missed."""
        fires, revision = tuple(each.fire for each in carried), carried[0].revision
        still = standstill(self.state)
        if still is not None:
            self._enter(fires, still.outcome, reason=still.reason, revision=revision)
        elif is_used_up(self.state):
            self._enter(fires, Outcome.DROPPED, reason="max_runs is reached", revision=revision)
        elif self._is_missed(carried[0]):
            self._decide_missed(fires, revision=revision)
        else:
            self._decide_live(carried[0].fire, revision=revision)

    def _enter(self, fires: tuple[Fire, ...], outcome: Outcome, *, reason: str, revision: int) -> None:
        entries = tuple(
            LedgerEntry(first=fire.nominal, last=fire.nominal, outcome=outcome, reason=reason) for fire in fires
        )
        self.state = with_entries(self.state, entries, now=self._now, revision=revision)

    def _decide_missed(self, fires: tuple[Fire, ...], *, revision: int) -> None:
        first, last = fires[0].nominal, fires[-1].nominal
        survey = FireSurvey(ranges=(FireRange(first=first, last=last, count=len(fires)),), newest=fires, through=last)
        run_id = scheduled_run_id(job_id=self.state.job_id, nominal=last)
        decision = decide_catch_up(definition_at(self.state, revision), survey, run_id_of_newest=run_id)
        self.state = with_entries(self.state, decision.ledger, now=self._now, revision=revision)
        self._bound_catch_up(coming=len(decision.run))
        for each in decision.run:
            if is_used_up(self.state) and has_fifth_rules(self.state):
                self._enter((each,), Outcome.DROPPED, reason="max_runs is reached", revision=revision)
            else:
                self._queue_catch_up(each, stands_for=decision.stands_for, revision=revision)

    def _decide_live(self, fire: Fire, *, revision: int | None = None) -> None:
        decision = decide_overlap(self.state.definition, active=self.state.active, waiting=self.state.waiting)
        self._make_room(decision)
        match decision.action:
            case OverlapAction.START:
                if self.state.definition.overlap is OverlapPolicy.ALLOW and any(map(is_blocking, self.state.active)):
                    self.state = self.state.model_copy(update={"runs_overlap": True})
                self._dispatch(self._new_run(fire, kind=RunKind.SCHEDULED, revision=revision))
            case OverlapAction.WAIT:
                reason = f"waits for run {decision.blocked_by}"
                self._wait(self._new_run(fire, kind=RunKind.SCHEDULED, reason=reason, revision=revision))
            case OverlapAction.SKIP | OverlapAction.DROP:
                entries = (_overlap_entry(fire, decision),)
                self.state = with_entries(self.state, entries, now=self._now, revision=revision)

    def _wait(self, run: Run) -> None:
        self.state = with_run(self.state.model_copy(update={"waiting": (*self.state.waiting, run)}), run)

    def _make_room(self, decision: OverlapDecision) -> None:
        for run_id in decision.replace:
            run = next(each for each in self.state.waiting if each.run_id == run_id)
            self._take_out_waiting(run)
            self._end_unstarted(run, Outcome.SKIPPED, reason=OVERTAKEN)
        for run in [each for each in self.start if each.run_id in (*decision.cancel, *decision.give_up)]:
            self._take_back(run)
        reason = "overlap: cancelled for a newer fire"
        self.state, cancelled = cancel_runs(self.state, decision.cancel, now=self._now, reason=reason)
        self.cancel += cancelled
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
        if is_between_attempts(run):
            self.state, _ = cancel_runs(self.state, (run_id,), now=self._now, reason=GIVEN_UP)
            return
        if run.detached:
            # Its own workflow writes its rows, and knows its attempts.
            ended = end_between_attempts(run, now=self._now, reason=GIVEN_UP)
            self.state = replace_or_end(self.state, ended)
        else:
            end = AttemptEnd(run_id=run_id, status=AttemptStatus.CANCELLED)
            self.state = with_active(self.state, run.model_copy(update={"reason": GIVEN_UP}))
            self.state = settle_attempt(self.state, end, now=self._now, draw=0.0)
        self.give_up.append(run_id)

    def _new_run(
        self,
        fire: Fire,
        *,
        kind: RunKind,
        stands_for: int = 1,
        reason: str | None = None,
        revision: int | None = None,
    ) -> Run:
        self.state = count(self.state, started=1)
        return run_for(
            self.state, fire, kind=kind, stands_for=stands_for, now=self._now, reason=reason, revision=revision
        )

    def _queue_catch_up(self, fire: Fire, *, stands_for: int, revision: int | None = None) -> None:
        if is_used_up(self.state):
            return
        reason = "waits in the catch-up lane"
        run = self._new_run(fire, kind=RunKind.CATCH_UP, stands_for=stands_for, reason=reason, revision=revision)
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
        started = -1 if run.kind in COUNTED else 0
        self.state = count(self.state, started=started, missed=missed, skipped=skipped)
        if missed:
            self.state = self.state.model_copy(update={"last_missed_at": self._now})
        self.state = with_run(self.state, end_before_start(run, outcome, now=self._now, reason=reason))

    def _dispatch(self, run: Run) -> None:
        state = self.state
        if run.attempt == 0:
            detached = self._detach or state.runs_overlap or wants_workflow(definition_of(state, run))
            run = run.model_copy(
                update={"detached": detached, "workflow_id": workflow_of(state, run, detached=detached)}
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
                "before_skip": None,
            }
        )

    def _take_out_waiting(self, run: Run) -> None:
        left = tuple(each for each in self.state.waiting if each.run_id != run.run_id)
        self.state = self.state.model_copy(update={"waiting": left})

    def _add_entries(self, entries: tuple[LedgerEntry, ...]) -> None:
        self.state = with_entries(self.state, entries, now=self._now)


def is_beyond(plan: FirePlan, fire: Fire) -> bool:
    """Say whether a fire comes after excluded ones that the plan does not tell."""
    return plan.ask_again_at is not None and fire.target > plan.ask_again_at


def is_decidable(state: JobState, carried: CarriedFire) -> bool:
    """Say whether it is certain if the job fires at the target time: a pause or hold that is over may not have ended yet."""
    ends = (None if state.pause is None else state.pause.until, release_time(state.holds))
    return all(end is None or carried.fire.target <= end for end in ends)


def next_decidable(state: JobState) -> Fire | None:
    """Name the next fire, where nothing before it is left to be asked for."""
    fire = next_fire(state)
    if fire is None:
        return None
    if state.carried or state.plan is None:
        return fire
    return None if is_beyond(state.plan, fire) else fire


def waiting_now(state: JobState) -> tuple[Run, ...]:
    """List the runs that wait for nothing but others to end, the next first. Fires wait as long as their job stands still."""
    if standstill(state) is None:
        return state.waiting
    return tuple(run for run in state.waiting if run.kind is RunKind.MANUAL)


def next_in_lane(state: JobState) -> Run | None:
    """Name the run of the catch-up lane that starts as soon as its rate allows. Missed fires wait while the job stands still."""
    return None if waiting_now(state) else first_in_lane(state)


def first_in_lane(state: JobState) -> Run | None:
    """Name the run of the lane that would start next, were no other waiting before it."""
    run = state.catch_up[0] if state.catch_up else None
    if run is None or not may_start_catch_up(state.definition, active=state.active):
        return None
    if standstill(state) is not None and run.kind is not RunKind.REDRIVE:
        return None
    return run


def _overlap_entry(fire: Fire, decision: OverlapDecision) -> LedgerEntry:
    dropped = decision.action is OverlapAction.DROP
    return LedgerEntry(
        first=fire.nominal,
        last=fire.nominal,
        outcome=Outcome.DROPPED if dropped else Outcome.SKIPPED,
        reason=decision.reason,
        run_id=decision.blocked_by,
    )
