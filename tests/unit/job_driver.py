"""Carries a job's state through time by hand, as its workflow would, with the mirror and the workers played here too.

The clock is explicit, the planner is the real one, and an oracle that knows nothing of it lists the fires: every schedule here is
a grid of seconds from which whole minutes are excluded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from workflows.backfill_admission import BackfillAnswer, BackfillCommand, admit_fires
from workflows.change import (
    change_job,
    choice_at_resume,
    end_by_itself,
    hold_job,
    must_settle,
    must_settle_end,
    must_settle_held,
    next_end,
    pause_job,
    refuse_trigger,
    resume_job,
    settle_survey,
    survey_request,
    trigger_job,
)
from workflows.command import ChangeCommand, TriggerCommand
from workflows.contracts import scheduled_run_id
from workflows.hold import is_firing, standstill, with_choice, with_hold, without_hold
from workflows.job import Hold, JobDefinition, JobState, LedgerEntry, Pause, PausedFires, Triggered, Tuning
from workflows.job_state import find_run
from workflows.lifecycle import begin, delete_job, register_again
from workflows.outbox import sealed, without
from workflows.planner import make_plan, make_survey
from workflows.policies import is_blocking, is_used_up
from workflows.resilience import AttemptEnd
from workflows.run import FINAL_STATUSES, AttemptStatus, Outcome, Run, RunKind, RunStatus
from workflows.schedule import Exclusions, IntervalRule, Schedule
from workflows.settlement import cancel_run, settle_attempt, settle_detached, settle_not_started
from workflows.turn import SAME_MOMENT, Turn, decide_due, take_turn
from workflows.wake import needs_plan, next_wake, plan_request, should_refill, was_stalled, with_plan

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOON = datetime(2026, 6, 8, 12, tzinfo=UTC)

TICK = timedelta(microseconds=1)

JOB = "grid"


def every(seconds: int, *, not_in_minutes: str | None = None, **fields: object) -> Schedule:
    """A grid of fires; ``not_in_minutes`` is the minute field of an exclusion."""
    exclude = Exclusions(cron=(f"{not_in_minutes} * * * *",) if not_in_minutes else ())
    values = {"rule": IntervalRule(every=timedelta(seconds=seconds)), "exclude": exclude, "jitter_window_seconds": 0.0}
    return Schedule.model_validate(values | fields)


def at(second: float) -> datetime:
    """A moment, in seconds after noon."""
    return NOON + timedelta(seconds=second)


def run_id(second: int) -> str:
    """Name of the run of a fire."""
    return scheduled_run_id(job_id=JOB, nominal=at(second))


@dataclass(frozen=True)
class Grid:
    """What the schedule means, by arithmetic alone."""

    seconds: int
    excluded_minutes: frozenset[int] = frozenset()
    end_at: datetime | None = None

    def fires(self, after: datetime, through: datetime) -> list[tuple[datetime, bool]]:
        """List the fires with ``after < nominal <= through``, and whether each is wanted."""
        last = through if self.end_at is None else min(through, self.end_at)
        index = (after - EPOCH) // timedelta(seconds=self.seconds) + 1
        found = []
        while (nominal := EPOCH + timedelta(seconds=index * self.seconds)) <= last:
            found.append((nominal, nominal.minute not in self.excluded_minutes))
            index += 1
        return found


@dataclass
class Mirror:
    """Tables that keep what the job sends, and refuse what must never come."""

    runs: dict[str, tuple[int, Run]] = field(default_factory=dict)
    attempts: dict[tuple[str, int], int] = field(default_factory=dict)
    entries: list[LedgerEntry] = field(default_factory=list)
    ledger: dict[datetime, LedgerEntry] = field(default_factory=dict)
    """Each fire's entry, by its nominal time."""

    job_version: int = 0

    def take(self, state: JobState, *, grids: Mapping[int, Grid]) -> JobState:
        """Write what the state has not sent; versions only rise. ``grids`` are by the revision that has them."""
        state = sealed(state)
        sent = state.outbox
        assert sent.job is not None
        assert sent.job.version > self.job_version
        self.job_version = sent.job.version
        for run in sent.runs:
            assert run.version > self.runs.get(run.run.run_id, (0, None))[0]
            self.runs[run.run.run_id] = (run.version, run.run)
        for attempt in sent.attempts:
            key = (attempt.attempt.run_id, attempt.attempt.number)
            assert attempt.version > self.attempts.get(key, 0)
            self.attempts[key] = attempt.version
        for record in sent.ledger:
            self._enter(record.entry, grids[record.entry.revision])
        return state.model_copy(update={"outbox": without(state.outbox, sent)})

    def _enter(self, entry: LedgerEntry, grid: Grid) -> None:
        wants = entry.outcome is not Outcome.EXCLUDED
        fires = [nominal for nominal, wanted in grid.fires(entry.first - TICK, entry.last) if wanted is wants]
        assert len(fires) == entry.count, entry
        for nominal in fires:
            assert nominal not in self.ledger, f"{nominal} has two entries"
            self.ledger[nominal] = entry
        self.entries.append(entry)


class JobDriver:
    """One job and everything around it."""

    def __init__(
        self, definition: JobDefinition, *, grid: Grid, now: datetime = NOON, tuning: Tuning | None = None
    ) -> None:
        self.now = now
        self.grids = {1: grid}
        """By the revision that has them."""

        self.tuning = tuning or Tuning()
        registered = JobState(job_id=JOB, definition=definition, registered_at=now, high_water=now, version=1)
        self.state = begin(registered, now=now)
        self.mirror = Mirror()
        self.out: dict[str, Run] = {}
        """Attempts that workers have, by run id; of detached runs, the runs."""

        self.dispatched: list[Run] = []
        """Everything dispatched, in order."""

        self.cancelled: list[str] = []
        """Runs that were asked to end, or given up."""

        self.started_paused: list[Run] = []
        """First attempts that were dispatched while the job was paused or held."""

        self.wakes = 0

    @property
    def definition(self) -> JobDefinition:
        """The definition in force."""
        return self.state.definition

    @property
    def grid(self) -> Grid:
        """The grid in force."""
        return self.grids[self.state.revision]

    def wake(self, *, detach: bool = False) -> None:
        """Take turns at this moment until nothing is left to do."""
        self.wakes += 1
        dispatched = len(self.dispatched)
        for _ in range(500):
            self._end_in_time()
            self._plan()
            self._carry_out(take_turn(self.state, now=self.now, detach=detach))
            if len(self.dispatched) == dispatched and should_refill(self.state, now=self.now):
                self._ask_planner()
            self.state = self.mirror.take(self.state, grids=self.grids)
            wake_at = next_wake(self.state, now=self.now)
            if not needs_plan(self.state, now=self.now) and (wake_at is None or wake_at > self.now):
                return
        raise AssertionError("the job goes round in circles")

    def go_to(self, moment: datetime) -> None:
        """Let time pass, waking whenever the job asks for it."""
        while (wake_at := next_wake(self.state, now=self.now)) is not None and wake_at <= moment:
            assert wake_at > self.now
            self.now = wake_at
            self.wake()
        self.now = moment

    def be_away(self, span: timedelta) -> None:
        """Let time pass with no worker of workflows anywhere, and then wake."""
        self.now += span
        self.wake()

    def end(self, run_id: str, status: AttemptStatus = AttemptStatus.SUCCESS, **fields: Any) -> None:
        """Let a worker answer, or the engine answer for it."""
        run = self.out.pop(run_id)
        self._carry_out(take_turn(self.state, now=self.now - SAME_MOMENT))
        self.state = settle_attempt(
            self.state, replace(AttemptEnd(run_id=run.run_id, status=status), **fields), now=self.now, draw=0.5
        )
        self.wake()

    def report(self, ended: Run) -> None:
        """Let the workflow of a detached run report."""
        assert ended.status in FINAL_STATUSES
        self.out.pop(ended.run_id)
        self._carry_out(take_turn(self.state, now=self.now - SAME_MOMENT))
        self.state = settle_detached(self.state, ended)
        self.mirror.runs[ended.run_id] = (1, ended)
        self.wake()

    def refuse(self, run_id: str) -> None:
        """Let Temporal refuse to start a detached run."""
        self.out.pop(run_id)
        self.state = settle_not_started(self.state, run_id, now=self.now, reason="refused")
        self.wake()

    def delete(self, *, cancel_active: bool = False) -> None:
        """Delete the job, as its workflow does: planned first."""
        self.decide_due_now()
        if standstill(self.state) is not None:
            self._settle(self.now)
        self._carry_out(delete_job(self.state, now=self.now, cancel_active=cancel_active))
        self.wake()

    def register(self, definition: JobDefinition, *, grid: Grid) -> None:
        """Register the deleted job again, in the same workflow."""
        registration = JobState(
            job_id=JOB,
            definition=definition,
            registered_at=self.now,
            high_water=self.now,
            revision=self.state.revision + 1,
        )
        self.state = register_again(self.state, registration, now=self.now)
        self.grids[self.state.revision] = grid
        self._forget_what_was_told_ahead()
        self.wake()

    def change(
        self,
        definition: JobDefinition,
        *,
        grid: Grid | None = None,
        enabled: bool | None = None,
        holds: tuple[Hold, ...] | None = None,
    ) -> None:
        """Change the job, as its workflow does."""
        self.decide_due_now()
        command = ChangeCommand(definition=definition, enabled=enabled, holds=holds)
        if must_settle(self.state, command):
            self._settle(self.now)
        grid = grid or self.grid
        if definition.schedule != self.definition.schedule:
            self.state = self.mirror.take(self.state, grids=self.grids)
            self._forget_what_was_told_ahead()
        self.state = change_job(self.state, command, now=self.now)
        self.grids[self.state.revision] = grid
        self.wake()

    def pause(
        self, *, until: datetime | None = None, catch_up: PausedFires = PausedFires.NONE, reason: str = ""
    ) -> None:
        """Pause the job, as its workflow does."""
        self.decide_due_now()
        pause = Pause(at=self.now, until=until, catch_up=catch_up, reason=reason)
        if must_settle_held(self.state):
            self._settle(self.now)
        self.state = pause_job(self.state, pause, now=self.now)
        self.wake()

    def resume(self, *, catch_up: PausedFires = PausedFires.NONE) -> None:
        """Resume the paused job, as its workflow does."""
        self.decide_due_now()
        catch_up = choice_at_resume(self.state, catch_up)
        if catch_up is PausedFires.NONE:
            self._settle(self.now)
        self.state = resume_job(self.state, at=self.now, catch_up=catch_up, now=self.now)
        self.wake()

    def hold(
        self, hold_id: str, *, until: datetime | None = None, catch_up: PausedFires = PausedFires.NONE, reason: str = ""
    ) -> None:
        """Hold the job, as its workflow does."""
        self.decide_due_now()
        hold = Hold(hold_id=hold_id, at=self.now, until=until, catch_up=catch_up, reason=reason)
        self._hold(with_hold(self.state.holds, hold))

    def release(self, hold_id: str, *, catch_up: PausedFires = PausedFires.NONE) -> None:
        """End a hold of the job, as its workflow does."""
        self.decide_due_now()
        self.state = with_choice(self.state, hold_id, catch_up)
        self._hold(without_hold(self.state.holds, hold_id))

    def _hold(self, holds: tuple[Hold, ...]) -> None:
        if holds != self.state.holds:
            if must_settle_held(self.state):
                self._settle(self.now)
            self.state = hold_job(self.state, holds, at=self.now, now=self.now)
        self.wake()

    def trigger(self, request_id: str, **fields: Any) -> Triggered:
        """Trigger the job, as its workflow does."""
        self.decide_due_now()
        command = TriggerCommand(request_id=request_id, **fields)
        assert not refuse_trigger(self.state, command)
        turn, triggered = trigger_job(self.state, command, now=self.now)
        self._carry_out(turn)
        self.wake()
        return triggered

    def backfill(self, command: BackfillCommand) -> BackfillAnswer:
        """Run fires of a backfill, as the job's workflow does."""
        self.decide_due_now()
        turn, answer = admit_fires(self.state, command, now=self.now)
        self._carry_out(turn)
        self.wake()
        return answer

    def cancel(self, run_id: str) -> None:
        """Cancel a run, as the job's workflow does."""
        self.decide_due_now()
        state, cancel = cancel_run(self.state, run_id, now=self.now, reason="on request")
        self._carry_out(Turn(state=state, cancel=cancel))
        self.wake()

    def live(self) -> list[Run]:
        """List the active runs that are in the way of live fires."""
        return [run for run in self.state.active if is_blocking(run)]

    def held(self) -> list[Run]:
        """List the runs that are not final."""
        return [*self.state.active, *self.state.waiting, *self.state.catch_up]

    def started(self) -> list[int]:
        """List the fires that were dispatched for the first time, in seconds after noon, in that order."""
        firsts = [run for run in self.dispatched if run.attempt == 1 and not run.parkings]
        return [int((run.scheduled_at - NOON).total_seconds()) for run in firsts]

    def outcomes(self) -> dict[int, Outcome]:
        """Tell the outcome of every fire decided so far, by its second after noon. Each has one, or this raises."""
        known = [*(run for _, run in self.mirror.runs.values()), *self.state.active]
        runs = {run.run_id: run for run in known if run.kind not in (RunKind.MANUAL, RunKind.BACKFILL)}
        told = {nominal: entry.outcome for nominal, entry in self.mirror.ledger.items()}
        for run in runs.values():
            assert run.scheduled_at not in told, f"{run.scheduled_at} has a run and a ledger entry"
            told[run.scheduled_at] = run.outcome
        return {int((nominal - NOON).total_seconds()): outcome for nominal, outcome in sorted(told.items())}

    def is_firing(self) -> bool:
        """Whether further fires count."""
        return is_firing(self.state) and not is_used_up(self.state)

    def decide_due_now(self) -> None:
        """Decide what is due and was left for later behind a run that blocks it, as the workflow does before a command."""
        self._end_in_time()
        self._plan()
        while True:
            self._carry_out(decide_due(self.state, now=self.now))
            if not needs_plan(self.state, now=self.now):
                return
            self._plan()

    def _settle(self, until: datetime) -> None:
        while self.state.high_water < until and not is_used_up(self.state):
            survey = make_survey(survey_request(self.state, until=until))
            self.state = settle_survey(self.state, survey, at=until)

    def _end_in_time(self) -> None:
        while (end := next_end(self.state, now=self.now)) is not None:
            if must_settle_end(self.state, at=end):
                self._settle(end)
            self.state = end_by_itself(self.state, at=end, now=self.now)

    def _forget_what_was_told_ahead(self) -> None:
        # Fires that were used up, and those of a job that had only excluded ones left, are told ahead.
        self.mirror.ledger = {nominal: entry for nominal, entry in self.mirror.ledger.items() if nominal <= self.now}

    def _plan(self) -> None:
        for _ in range(100):
            if not needs_plan(self.state, now=self.now):
                return
            self._ask_planner()
            plan = self.state.plan
            if plan is not None and plan.complete and not was_stalled(self.state, now=self.now):
                return
        raise AssertionError("planning does not end")

    def _ask_planner(self) -> None:
        self.state = with_plan(self.state, make_plan(plan_request(self.state, now=self.now), tuning=self.tuning))

    def _carry_out(self, turn: Turn) -> None:
        self.state = turn.state
        for run in turn.start:
            assert find_run(self.state, run.run_id) == run
            assert run.run_id not in self.out, "two attempts of one run at once"
            self.out[run.run_id] = run
            self.dispatched.append(run)
            if standstill(self.state) is not None and run.attempt == 1 and not run.parkings:
                self.started_paused.append(run)
        for run in map(self.out.pop, turn.give_up):
            if run.detached:
                # Its workflow is cancelled, and says so.
                self.mirror.runs[run.run_id] = (1, run.model_copy(update={"status": RunStatus.CANCELLED}))
        self.cancelled += [*turn.cancel, *turn.give_up]
