"""A job driven through whatever may happen to it, in any order: the promises hold at every step.

Hypothesis chooses the definition, lets time pass with and without workers, ends attempts well and badly, deletes and registers
again. What must be true is said here alone, against a grid of fires that is plain arithmetic.
"""

from datetime import datetime, timedelta
from itertools import pairwise

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.job_driver import NOON, Grid, JobDriver, every
from workflows.job import (
    Backoff,
    CatchUpPolicy,
    Isolation,
    JobDefinition,
    Lifecycle,
    OverlapPolicy,
    RetryPolicy,
    Tuning,
)
from workflows.observation import Observation, seen_run
from workflows.run import AttemptStatus, Failure, Outcome, Run, RunKind, RunStatus
from workflows.settlement import show_run

SPANS = st.sampled_from([0.05, 0.5, 1, 3, 10, 61, 200, 900]).map(lambda seconds: timedelta(seconds=seconds))

GRIDS = st.builds(
    Grid,
    seconds=st.sampled_from([2, 10, 60, 900]),
    excluded_minutes=st.sampled_from([frozenset[int](), frozenset({1, 2, 15}), frozenset({30})]),
    end_at=st.sampled_from([None, None, NOON + timedelta(minutes=20)]),
)


@st.composite
def definitions(draw: st.DrawFn, grid: Grid) -> JobDefinition:
    """Any definition that fires on the grid."""
    minutes = ",".join(map(str, sorted(grid.excluded_minutes))) or None
    schedule = every(
        grid.seconds,
        not_in_minutes=minutes,
        end_at=grid.end_at,
        max_runs=draw(st.sampled_from([None, None, 3])),
        jitter_window_seconds=draw(st.sampled_from([0.0, 1.5])),
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


class JobMachine(RuleBasedStateMachine):
    """One job."""

    driver: JobDriver
    begun: datetime
    """Since when fires count; from the present registration."""

    seen: int = 0
    """Dispatches that were checked."""

    high_water: datetime
    version: int = 0

    @initialize(data=st.data(), grid=GRIDS, batch=st.sampled_from([1, 3, 14]))
    def register(self, data: st.DataObject, grid: Grid, batch: int) -> None:
        """Register the job."""
        definition = data.draw(definitions(grid))
        self.driver = JobDriver(definition, grid=grid, tuning=Tuning(batch_size=batch))
        self.begun = self.high_water = self.driver.now
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
        self.driver.delete(cancel_active=cancel_active)
        told = self.driver.outcomes()
        due = self._due(through=self.driver.now)
        assert {nominal for nominal, wanted in due if wanted} <= told.keys() or self._was_used_up()
        assert {nominal for nominal, _ in due} - told.keys() <= straddling or self._was_used_up()

    @precondition(lambda self: self.driver.state.lifecycle is Lifecycle.DELETED)
    @rule(data=st.data(), grid=GRIDS)
    def register_again(self, data: st.DataObject, grid: Grid) -> None:
        """While runs of before may still be active."""
        self.driver.register(data.draw(definitions(grid)), grid=grid)
        self.begun = self.driver.state.registered_at

    @invariant()
    def every_fire_has_one_outcome(self) -> None:
        """Promise 1: what is due is told once, unless it is blocked and about to be told together with others."""
        driver = self.driver
        if driver.state.lifecycle is not Lifecycle.ACTIVE:
            driver.outcomes()
            return
        told = driver.outcomes()
        decided = {nominal for nominal, _ in self._due(through=driver.state.high_water)}
        counted = {second for second in told if second > _second(self.begun)}
        assert counted <= decided
        assert decided - counted <= self._beyond_max_runs(decided)
        plan = driver.state.plan
        if plan is not None and driver.is_firing():
            due = {nominal for nominal, wanted in self._due(through=driver.now - plan.offset) if wanted}
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
    def overlap_keeps_its_bound(self) -> None:
        """One live run, or as many as ``allow`` allows; waiting ones within the buffer."""
        definition, state = self.driver.definition, self.driver.state
        allowed = definition.max_concurrent if definition.overlap is OverlapPolicy.ALLOW else 1
        assert len(self.driver.live()) <= allowed
        buffered = {OverlapPolicy.BUFFER_ONE: 1, OverlapPolicy.CANCEL_OTHER: 1}
        buffered[OverlapPolicy.BUFFER_ALL] = definition.max_buffered
        assert len(state.waiting) <= buffered.get(definition.overlap, 0)

    @invariant()
    def catch_up_takes_turns(self) -> None:
        """One at a time, at the rate, within the bound; and only policies that run anything have any."""
        definition, state = self.driver.definition, self.driver.state
        assert sum(run.kind is RunKind.CATCH_UP and not run.superseded for run in state.active) <= 1
        assert len(state.catch_up) <= definition.max_missed
        starts = [
            run.dispatched_at
            for run in self.driver.dispatched
            if run.kind is RunKind.CATCH_UP and run.attempt == 1 and not run.parkings and run.created_at >= self.begun
        ]
        pause = timedelta(minutes=1) / definition.catch_up_rate
        for earlier, later in pairwise(starts):
            assert earlier is not None
            assert later is not None
            assert later - earlier >= pause

    @invariant()
    def max_runs_is_kept(self) -> None:
        """And every count is what happened."""
        state = self.driver.state
        bound = state.definition.schedule.max_runs
        assert bound is None or state.counts.started <= bound
        assert min(dict(state.counts).values()) >= 0

    def _pick(self, data: st.DataObject, *, detached: bool | None = None) -> Run:
        runs = [run for run in self.driver.out.values() if detached is None or run.detached is detached]
        return data.draw(st.sampled_from(runs))

    def _due(self, *, through: datetime) -> list[tuple[int, bool]]:
        return [(_second(nominal), wanted) for nominal, wanted in self.driver.grid.fires(self.begun, through)]

    def _excluded_not_told(self) -> set[int]:
        return {nominal for nominal, wanted in self._due(through=self.driver.now) if not wanted}

    def _was_used_up(self) -> bool:
        return self.driver.definition.schedule.max_runs is not None

    def _beyond_max_runs(self, decided: set[int]) -> set[int]:
        """Fires after the last run that ``max_runs`` allows are none."""
        return decided if self._was_used_up() else set()


def _second(moment: datetime) -> int:
    return int((moment - NOON).total_seconds() // 1)


JobMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
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
