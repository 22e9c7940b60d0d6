"""A job driven through whatever may happen to it, in any order: the promises hold at every step.

Hypothesis chooses the definition, lets time pass with and without workers, ends attempts well and badly, deletes and registers
again. What must be true is said here alone, against a grid of fires that is plain arithmetic.
"""

import os
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.job_driver import JOB, NOON, Grid, JobDriver, every
from workflows.backfill import StartedFire
from workflows.backfill_admission import BackfillCommand
from workflows.hold import is_held, release_time, standstill
from workflows.job import (
    Backoff,
    CatchUpPolicy,
    Isolation,
    JobDefinition,
    Lifecycle,
    OverlapPolicy,
    PausedFires,
    RetryPolicy,
    TriggerOutcome,
    Tuning,
)
from workflows.observation import Observation, seen_run
from workflows.run import AttemptStatus, Failure, Outcome, Run, RunKind, RunStatus
from workflows.settlement import show_run
from workflows.turn import next_decidable
from workflows.visibility import next_fire

pytestmark = pytest.mark.timeout(600)
"""It takes seconds; but an example that fails is made small before it is shown, and that takes minutes."""

LONG = os.environ.get("HORARIUM_CHAOS") == "long"

SPANS = st.sampled_from([0.05, 0.5, 1, 3, 10, 61, 200, 900]).map(lambda seconds: timedelta(seconds=seconds))

GRIDS = st.builds(
    Grid,
    seconds=st.sampled_from([2, 10, 60, 900]),
    excluded_minutes=st.sampled_from([frozenset[int](), frozenset({1, 2, 15}), frozenset({30})]),
    end_at=st.sampled_from([None, None, NOON + timedelta(minutes=20)]),
)


CATCH_UPS = st.sampled_from(PausedFires)

HOLD_IDS = st.sampled_from(["h_one", "h_two"])

HOURS = timedelta(hours=2)
"""Within which every grid has a fire that is wanted."""


@st.composite
def definitions(draw: st.DrawFn, grid: Grid) -> JobDefinition:
    """Any definition that fires on the grid."""
    minutes = ",".join(map(str, sorted(grid.excluded_minutes))) or None
    schedule = every(
        grid.seconds,
        not_in_minutes=minutes,
        end_at=grid.end_at,
        max_runs=draw(st.sampled_from([None, None, 3])),
        jitter_window_seconds=draw(st.sampled_from([0.0, 1.5, 50.0])),
    )
    catch_up = draw(st.sampled_from(CatchUpPolicy))
    return JobDefinition(
        schedule=schedule,
        missed_window=catch_up,
        max_delay=timedelta(seconds=5) if catch_up is CatchUpPolicy.DEADLINE else None,
        max_missed=draw(st.integers(1, 4)),
        catch_up_rate=draw(st.sampled_from([1, 60, 6000])),
        misfire_grace=draw(st.sampled_from([None, timedelta(seconds=1)])),
        lookback=draw(st.sampled_from([timedelta(days=30), timedelta(minutes=5)])),
        overlap=draw(st.sampled_from(OverlapPolicy)),
        max_concurrent=draw(st.integers(1, 3)),
        max_buffered=draw(st.integers(1, 3)),
        retry=RetryPolicy(max_attempts=draw(st.integers(1, 3)), backoff=draw(st.sampled_from(Backoff))),
        isolation=draw(st.sampled_from(Isolation)),
    )


@dataclass(frozen=True)
class Era:
    """A time with one definition: of the fires after its beginning."""

    begun: datetime
    revision: int
    grid: Grid
    definition: JobDefinition


class JobMachine(RuleBasedStateMachine):
    """One job."""

    driver: JobDriver
    begun: datetime
    """Since when fires count; from the present registration."""

    eras: list[Era]
    """What was in force when, since the present registration."""

    seen: int = 0
    """Dispatches that were checked."""

    triggers: int = 0
    backfilled: int = 0

    high_water: datetime
    version: int = 0

    @initialize(data=st.data(), grid=GRIDS, batch=st.sampled_from([1, 3, 14]))
    def register(self, data: st.DataObject, grid: Grid, batch: int) -> None:
        """Register the job."""
        definition = data.draw(definitions(grid))
        self.driver = JobDriver(definition, grid=grid, tuning=Tuning(batch_size=batch))
        self.begun = self.high_water = self.driver.now
        self.eras = [Era(self.begun, 1, grid, definition)]
        self.driver.wake()

    @rule(span=SPANS)
    def let_time_pass(self, span: timedelta) -> None:
        """With workers."""
        self.driver.go_to(self.driver.now + span)

    @rule(span=SPANS)
    def be_away(self, span: timedelta) -> None:
        """Without workers."""
        self.driver.be_away(span)

    @rule(detach=st.booleans())
    def wake_for_nothing(self, detach: bool) -> None:
        """As a result, a look or a query may."""
        self.driver.wake(detach=detach)

    @precondition(lambda self: any(not run.detached for run in self.driver.out.values()))
    @rule(
        data=st.data(),
        status=st.sampled_from(
            [AttemptStatus.SUCCESS, AttemptStatus.FAILED, AttemptStatus.TIMED_OUT, AttemptStatus.LOST]
        ),
        retryable=st.booleans(),
        odd=st.sampled_from(["", "", "", "unknown_activity", "not_started"]),
    )
    def end_attempt(self, data: st.DataObject, status: AttemptStatus, retryable: bool, odd: str) -> None:
        """However it went."""
        run = self._pick(data, detached=False)
        fields: dict[str, object] = {"failure": Failure(retryable=retryable)}
        if odd:
            status, fields[odd] = AttemptStatus.FAILED, True
        if run.run_id in self.driver.state.cancelling and data.draw(st.booleans()):
            status = AttemptStatus.CANCELLED
        self.driver.end(run.run_id, status, **fields)

    @precondition(lambda self: any(run.detached for run in self.driver.out.values()))
    @rule(data=st.data(), status=st.sampled_from([RunStatus.SUCCESS, RunStatus.DEAD, RunStatus.CANCELLED]))
    def end_detached(self, data: st.DataObject, status: RunStatus) -> None:
        """By its report, after as many attempts as it took."""
        run = self._pick(data, detached=True)
        ended = {"status": status, "finished_at": self.driver.now, "attempt": 2, "fence": run.fence + 5}
        self.driver.report(run.model_copy(update=ended))

    @precondition(lambda self: any(run.detached for run in self.driver.out.values()))
    @rule(data=st.data())
    def refuse_detached(self, data: st.DataObject) -> None:
        """Something has its id."""
        self.driver.refuse(self._pick(data, detached=True).run_id)

    @precondition(lambda self: bool(self.driver.out))
    @rule(data=st.data(), ended=st.booleans())
    def look_at_run(self, data: st.DataObject, ended: bool) -> None:
        """And see it run, or closed without a report."""
        run = self._pick(data)
        if run.detached and ended:
            self.driver.out.pop(run.run_id)
        active = next(each for each in self.driver.state.active if each.run_id == run.run_id)
        shown = seen_run(active, Observation(ended=ended), task_queue="q", now=self.driver.now)
        self.driver.state = show_run(self.driver.state, shown, now=self.driver.now)
        self.driver.wake()

    @precondition(lambda self: self.driver.state.lifecycle is not Lifecycle.DELETED)
    @rule(cancel_active=st.booleans(), late=SPANS)
    def delete(self, cancel_active: bool, late: timedelta) -> None:
        """Perhaps as the first thing after an outage."""
        self.driver.now += late
        straddling = self._excluded_not_told()
        self.high_water = min(self.high_water, self.driver.now)
        self.driver.delete(cancel_active=cancel_active)
        told = self.driver.outcomes()
        due = self._due(through=self.driver.now)
        assert {nominal for nominal, wanted in due if wanted} <= told.keys() or self._was_used_up()
        assert {nominal for nominal, _ in due} - told.keys() <= straddling or self._was_used_up()

    @precondition(lambda self: self.driver.state.lifecycle is Lifecycle.DELETED)
    @rule(data=st.data(), grid=GRIDS)
    def register_again(self, data: st.DataObject, grid: Grid) -> None:
        """While runs of before may still be active."""
        definition = data.draw(definitions(grid))
        self.driver.register(definition, grid=grid)
        self.begun = self.driver.state.registered_at
        self.eras = [Era(self.begun, self.driver.state.revision, grid, definition)]
        self.triggers = 0

    @precondition(lambda self: self.driver.state.lifecycle is not Lifecycle.DELETED)
    @rule(data=st.data(), grid=GRIDS, late=SPANS, enabled=st.sampled_from([None, None, True, False]))
    def change(self, data: st.DataObject, grid: Grid, late: timedelta, enabled: bool | None) -> None:
        """To another schedule and other policies, perhaps as the first thing after an outage."""
        self.driver.now += late
        self._note_change(data.draw(definitions(grid)), grid)
        self.high_water = min(self.high_water, self.driver.now)
        self.driver.change(self.eras[-1].definition, grid=grid, enabled=enabled)

    @precondition(lambda self: self.driver.state.lifecycle is not Lifecycle.DELETED)
    @rule(number=st.integers(0, 2), late=SPANS)
    def change_payload(self, number: int, late: timedelta) -> None:
        """No fire moves, and one that has not come is never started by it."""
        self.driver.now += late
        self.driver.wake()
        self.driver.decide_due_now()
        state = self.driver.state
        before, expected = len(self.driver.dispatched), next_fire(state)
        definition = self.driver.definition.model_copy(update={"payload": number})
        self._note_change(definition, self.driver.grid)
        self.driver.change(definition)
        assert len(self.driver.dispatched) == before
        assert next_fire(self.driver.state) == expected
        assert self.driver.state.counts.started == state.counts.started

    @precondition(lambda self: self.driver.state.lifecycle in (Lifecycle.ACTIVE, Lifecycle.PAUSED))
    @rule(late=SPANS, until=st.sampled_from([None, None, *map(timedelta, [0, 0, 0], [1, 70, 900])]), catch_up=CATCH_UPS)
    def pause(self, late: timedelta, until: timedelta | None, catch_up: PausedFires) -> None:
        """For a while, or until somebody resumes it; again, too."""
        self.driver.now += late
        self.driver.wake()
        if self.driver.state.lifecycle in (Lifecycle.ACTIVE, Lifecycle.PAUSED):
            self.driver.pause(until=None if until is None else self.driver.now + until, catch_up=catch_up)

    @precondition(lambda self: self.driver.state.lifecycle is Lifecycle.PAUSED)
    @rule(late=SPANS, catch_up=CATCH_UPS)
    def resume(self, late: timedelta, catch_up: PausedFires) -> None:
        """What fell into the pause is told, and runs only if that was asked for."""
        self.driver.now += late
        self.driver.wake()
        if self.driver.state.lifecycle is Lifecycle.PAUSED:
            self.driver.resume(catch_up=catch_up)

    @precondition(lambda self: self.driver.state.lifecycle in (Lifecycle.ACTIVE, Lifecycle.PAUSED))
    @rule(
        late=SPANS,
        hold_id=HOLD_IDS,
        until=st.sampled_from([None, None, *map(timedelta, [0, 0, 0], [1, 70, 900])]),
        catch_up=CATCH_UPS,
    )
    def hold(self, late: timedelta, hold_id: str, until: timedelta | None, catch_up: PausedFires) -> None:
        """By one label or another, for a while or until it is released; paused jobs, too."""
        self.driver.now += late
        self.driver.wake()
        if self.driver.state.lifecycle in (Lifecycle.ACTIVE, Lifecycle.PAUSED):
            self.driver.hold(hold_id, until=None if until is None else self.driver.now + until, catch_up=catch_up)
            assert standstill(self.driver.state) is not None

    @precondition(lambda self: bool(self.driver.state.holds))
    @rule(late=SPANS, hold_id=HOLD_IDS, catch_up=CATCH_UPS)
    def release(self, late: timedelta, hold_id: str, catch_up: PausedFires) -> None:
        """Others, and a pause, go on."""
        self.driver.now += late
        self.driver.wake()
        was_paused = self.driver.state.lifecycle is Lifecycle.PAUSED
        others = {hold.hold_id for hold in self.driver.state.holds} - {hold_id}
        self.driver.release(hold_id, catch_up=catch_up)
        assert {hold.hold_id for hold in self.driver.state.holds} == others
        assert (self.driver.state.lifecycle is Lifecycle.PAUSED) is was_paused

    @precondition(lambda self: self.driver.state.lifecycle is not Lifecycle.DELETED)
    @rule(late=SPANS, overlap=st.sampled_from([None, None, *OverlapPolicy]), skip_next=st.booleans())
    def trigger(self, late: timedelta, overlap: OverlapPolicy | None, skip_next: bool) -> None:
        """It says what became of it, and may use up the next fire."""
        self.driver.now += late
        self.driver.wake()
        self.driver.decide_due_now()
        self.triggers += 1
        coming = next_fire(self.driver.state)
        skip_next = skip_next and not self.driver.state.holds and next_decidable(self.driver.state) is not None
        told = self.driver.trigger(
            f"{self.driver.state.revision}-{self.triggers}", overlap=overlap, skip_next=skip_next
        )
        run = self._find(told.run_id)
        assert run.kind is RunKind.MANUAL
        if told.outcome is TriggerOutcome.SKIPPED:
            assert (run.status, told.consumed) == (RunStatus.CANCELLED, None)
        elif skip_next:
            assert coming is not None
            assert told.consumed == coming.nominal
            assert self.driver.outcomes()[_second(coming.nominal)] is Outcome.CONSUMED

    @precondition(lambda self: self.driver.state.lifecycle is not Lifecycle.DELETED)
    @rule(late=SPANS, count=st.integers(1, 3))
    def backfill(self, late: timedelta, count: int) -> None:
        """Fires of before the job was there: they run at once, whatever the job does, and nothing waits for them."""
        self.driver.now += late
        self.driver.wake()
        numbers = range(self.backfilled + 1, self.backfilled + 1 + count)
        self.backfilled += count
        fires = tuple(
            StartedFire(nominal=NOON - timedelta(minutes=number), run_id=f"{JOB}:backfill-{number}")
            for number in numbers
        )
        state = self.driver.state
        command = BackfillCommand(revision=state.revision, definition=state.definition, fires=fires)
        assert self.driver.backfill(command).started == fires
        assert {self._find(fire.run_id).kind for fire in fires} == {RunKind.BACKFILL}

    @precondition(lambda self: bool(self.driver.held()))
    @rule(data=st.data())
    def cancel_run(self, data: st.DataObject) -> None:
        """Wherever it stands: it ends at once, or is asked to."""
        run = data.draw(st.sampled_from(self.driver.held()))
        self.driver.cancel(run.run_id)
        assert run.run_id in self.driver.state.cancelling or self._find(run.run_id).status is RunStatus.CANCELLED

    @invariant()
    def every_fire_has_one_outcome(self) -> None:
        """Promise 1: what is due is told once, unless it is blocked and about to be told together with others."""
        driver = self.driver
        if driver.state.lifecycle not in (Lifecycle.ACTIVE, Lifecycle.PAUSED):
            driver.outcomes()
            return
        told = driver.outcomes()
        decided = {nominal for nominal, _ in self._due(through=driver.state.high_water)}
        counted = {second for second in told if second > _second(self.begun)}
        carried = {_second(each.fire.nominal) for each in driver.state.carried}
        assert counted <= decided
        assert not carried & counted
        assert decided - counted - carried <= self._beyond_max_runs(decided)
        if standstill(driver.state) is not None:
            return
        plan = driver.state.plan
        if plan is not None and driver.is_firing():
            due = {nominal for nominal, wanted in self._due(through=driver.now - plan.offset) if wanted}
            due -= {nominal for nominal in due if nominal <= _second(driver.state.high_water)}
            planned = {_second(fire.nominal) for fire in plan.upcoming}
            assert due - decided <= planned
            assert due <= decided or driver.live()

    @invariant()
    def nothing_goes_backwards(self) -> None:
        """High water and versions only rise."""
        state = self.driver.state
        assert state.high_water >= self.high_water
        assert state.version >= self.version
        self.high_water, self.version = state.high_water, state.version

    @invariant()
    def no_run_is_dispatched_twice_and_fences_rise(self) -> None:
        """Promises 2 and 3."""
        dispatched = self.driver.dispatched
        fences = [run.fence for run in dispatched[max(0, self.seen - 1) :]]
        assert fences == sorted(set(fences))
        self.seen = len(dispatched)
        attempts = [(run.run_id, run.attempt, run.parkings) for run in dispatched]
        assert len(set(attempts)) == len(attempts)

    @invariant()
    def the_next_fire_is_the_models(self) -> None:
        """As it is shown: what is carried, or else the first wanted fire after all that is decided, and after all holds.

        And it is still to come.
        """
        state = self.driver.state
        shown = next_fire(state)
        assert shown is None or shown.target > self.driver.now or self.driver.live()
        if shown is None or (state.carried and not state.holds):
            return
        released_at = release_time(state.holds)
        assert (released_at is not None) is is_held(state)
        after = state.high_water if released_at is None else max(released_at, state.high_water)
        wanted = [nominal for nominal, is_wanted in self.driver.grid.fires(after, after + HOURS) if is_wanted]
        assert shown.nominal == wanted[0]

    @invariant()
    def a_job_that_stands_still_starts_only_what_it_is_told_to(self) -> None:
        """And what has begun goes on."""
        assert {run.kind for run in self.driver.started_paused} <= {RunKind.MANUAL, RunKind.BACKFILL}

    @invariant()
    def a_fire_runs_under_the_definition_of_its_time(self) -> None:
        """Unless a pause or a hold put its decision off."""
        if self._stood_still():
            return
        for run in self.driver.dispatched:
            if run.kind is RunKind.SCHEDULED and run.created_at >= self.begun and run.scheduled_at > self.begun:
                era = next(each for each in reversed(self.eras) if each.begun < run.scheduled_at)
                assert run.revision == era.revision, (run, self.eras)

    @invariant()
    def overlap_keeps_its_bound(self) -> None:
        """One live run, or as many as ``allow`` allows; waiting ones within the buffer."""
        definition, state = self.driver.definition, self.driver.state
        if len(self.eras) > 1 or self.triggers:
            # Runs that began or wait under another policy, or one of their own.
            return
        allowed = definition.max_concurrent if definition.overlap is OverlapPolicy.ALLOW else 1
        assert len(self.driver.live()) <= allowed
        buffered = {OverlapPolicy.BUFFER_ONE: 1, OverlapPolicy.CANCEL_OTHER: 1}
        buffered[OverlapPolicy.BUFFER_ALL] = definition.max_buffered
        assert len(state.waiting) <= buffered.get(definition.overlap, 0)

    @invariant()
    def catch_up_takes_turns(self) -> None:
        """One at a time, at the rate, within the bound; and only policies that run anything have any."""
        state = self.driver.state
        assert sum(run.kind is RunKind.CATCH_UP and not run.superseded for run in state.active) <= 1
        assert len(state.catch_up) <= max(era.definition.max_missed for era in self.eras)
        starts = [
            run.dispatched_at
            for run in self.driver.dispatched
            if run.kind is RunKind.CATCH_UP and run.attempt == 1 and not run.parkings and run.created_at >= self.begun
        ]
        pause = timedelta(minutes=1) / max(era.definition.catch_up_rate for era in self.eras)
        place = NOON
        for start in starts:
            assert start is not None
            assert start >= place
            place = start + pause

    @invariant()
    def max_runs_is_kept(self) -> None:
        """And every count is what happened."""
        state = self.driver.state
        bounds = [era.definition.schedule.max_runs for era in self.eras]
        assert None in bounds or state.counts.started <= max(bound for bound in bounds if bound is not None)
        assert min(dict(state.counts).values()) >= 0

    def _pick(self, data: st.DataObject, *, detached: bool | None = None) -> Run:
        runs = [run for run in self.driver.out.values() if detached is None or run.detached is detached]
        return data.draw(st.sampled_from(runs))

    def _due(self, *, through: datetime) -> list[tuple[int, bool]]:
        ends = [era.begun for era in self.eras[1:]] + [through]
        return [
            (_second(nominal), wanted)
            for era, end in zip(self.eras, ends, strict=True)
            for nominal, wanted in era.grid.fires(era.begun, min(end, through))
        ]

    def _find(self, run_id: str) -> Run:
        active = [run for run in self.driver.held() if run.run_id == run_id]
        return active[0] if active else self.driver.mirror.runs[run_id][1]

    def _note_change(self, definition: JobDefinition, grid: Grid) -> None:
        if definition != self.driver.definition:
            self.eras.append(Era(self.driver.now, self.driver.state.revision + 1, grid, definition))

    def _stood_still(self) -> bool:
        told = {entry.outcome for entry in self.driver.mirror.entries}
        state = self.driver.state
        return bool(told & {Outcome.PAUSED, Outcome.HELD}) or (
            standstill(state) is not None or state.missed_until is not None
        )

    def _excluded_not_told(self) -> set[int]:
        return {nominal for nominal, wanted in self._due(through=self.driver.now) if not wanted}

    def _was_used_up(self) -> bool:
        return any(era.definition.schedule.max_runs is not None for era in self.eras)

    def _beyond_max_runs(self, decided: set[int]) -> set[int]:
        """Fires after the last run that ``max_runs`` allows are none."""
        return decided if self._was_used_up() else set()


def _second(moment: datetime) -> int:
    return int((moment - NOON).total_seconds() // 1)


JobMachine.TestCase.settings = settings(
    max_examples=100 if LONG else 40,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

test_the_promises_hold_whatever_happens = JobMachine.TestCase


def test_the_outcomes_are_those_of_the_ledger() -> None:
    """The driver's own books are kept rightly: a skipped fire is told by an entry, a run by its row."""
    grid = Grid(10)
    driver = JobDriver(JobDefinition(schedule=every(10)), grid=grid)
    driver.wake()
    driver.go_to(NOON + timedelta(seconds=25))
    driver.end(next(iter(driver.out)))
    assert driver.outcomes() == {10: Outcome.RAN, 20: Outcome.SKIPPED}
