"""Changes, pauses and triggers of a job, one at a time: what was due before, and what comes next. The clock is explicit."""

from datetime import timedelta

import pytest

from tests.unit.job_driver import Grid, JobDriver, at, every, run_id
from workflows.change import change_job, may_take_payload, must_settle, refuse_by_this_worker, settle_unknown
from workflows.command import ChangeCommand, TriggerCommand
from workflows.job import JobDefinition, JobState, Lifecycle, PausedFires, TriggerOutcome
from workflows.job_state import EARLIER_LIMIT, definition_of
from workflows.outbox import job_record
from workflows.resilience import AttemptEnd
from workflows.run import AttemptStatus, Failure, Outcome, PayloadOverride, RunKind, RunStatus
from workflows.schedule import OneOffRule, Schedule
from workflows.settlement import settle_attempt
from workflows.turn import decide_due, take_turn
from workflows.visibility import next_fire
from workflows.wake import next_wake

SECOND = timedelta(seconds=1)


def drive(seconds: int, **fields: object) -> JobDriver:
    """A job on a grid, registered at noon."""
    definition = JobDefinition.model_validate({"schedule": every(seconds)} | fields)
    driver = JobDriver(definition, grid=Grid(seconds))
    driver.wake()
    return driver


def reschedule(driver: JobDriver, seconds: int) -> None:
    """Change the grid of a job."""
    definition = driver.definition.model_copy(update={"schedule": every(seconds)})
    driver.change(definition, grid=Grid(seconds))


def jittered(**fields: object) -> JobDriver:
    """A minutely job whose target is some seconds after its nominal time."""
    driver = drive(60, schedule=every(60, jitter_window_seconds=50.0), **fields)
    assert driver.state.plan is not None
    assert driver.state.plan.offset > 2 * SECOND
    return driver


class TestChange:
    """Another definition."""

    @pytest.mark.parametrize("policy", ["RUN_ONCE", "RUN_ALL", "SKIP"])
    def test_another_schedule_neither_runs_now_nor_counts_what_was_before_it(self, policy: str) -> None:
        """SB-072: nothing runs at the change, nothing of the past is missed under the new schedule."""
        driver = drive(3600, missed_window=policy)
        driver.go_to(at(5000))
        driver.end(run_id(3600))
        reschedule(driver, 60)
        assert driver.out == {}
        assert job_record(driver.state).next_run_at == at(5040)
        driver.go_to(at(5039))
        assert driver.started() == [3600]
        driver.go_to(at(5040))
        assert driver.started() == [3600, 5040]
        assert driver.state.counts.missed == 0

    def test_a_fire_that_is_put_off_comes_once_at_its_new_time(self) -> None:
        """SB-073: due in two seconds, and moved; nothing at the old time, one run under the new revision."""
        driver = drive(60)
        driver.go_to(at(58))
        reschedule(driver, 90)
        driver.go_to(at(89))
        assert driver.started() == []
        driver.go_to(at(90))
        assert driver.started() == [90]
        assert driver.dispatched[0].revision == 2
        assert driver.outcomes() == {90: Outcome.RAN}

    def test_between_nominal_and_target_time_the_old_fire_still_comes_under_its_own_definition(self) -> None:
        """SB-078: neither lost nor doubled, at its own target, whatever the new definition says."""
        for changes in ({"payload": 2}, {"schedule": every(7200)}, {"retry": {"max_attempts": 1}}):
            driver = jittered(payload=1)
            [fire, *_] = driver.state.plan.upcoming if driver.state.plan else ()
            driver.go_to(at(61))
            changed = JobDefinition.model_validate({**driver.definition.model_dump(), **changes})
            driver.change(changed, grid=Grid(7200) if "schedule" in changes else None)
            assert next_fire(driver.state) == fire
            driver.go_to(fire.target - SECOND)
            assert driver.started() == []
            driver.go_to(fire.target)
            assert driver.started() == [60]
            [run] = driver.dispatched
            assert (run.revision, definition_of(driver.state, run).payload) == (1, 1)

    def test_a_fire_of_before_a_change_that_is_seen_too_late_is_caught_up(self) -> None:
        """Nobody was there at its target: its own catch-up policy holds."""
        for policy, outcome in (("RUN_ONCE", Outcome.RAN), ("SKIP", Outcome.MISSED)):
            driver = jittered(missed_window=policy)
            driver.go_to(at(61))
            reschedule(driver, 7200)
            driver.be_away(timedelta(minutes=30))
            assert driver.outcomes()[60] is outcome
            assert [run.kind for run in driver.dispatched] == [RunKind.CATCH_UP] * (policy == "RUN_ONCE")

    @pytest.mark.parametrize("changes", [{"payload": 2}, {"schedule": every(10)}])
    def test_a_fire_in_the_very_moment_of_a_change_is_of_before_it(self, changes: dict[str, object]) -> None:
        """It is decided once, under the definition that goes, though nobody has seen it come."""
        driver = drive(10, schedule=every(10, max_runs=9), overlap="allow")
        driver.now = at(20)
        driver.change(driver.definition.model_copy(update=changes))
        assert [(run.scheduled_at, run.revision) for run in driver.dispatched] == [(at(10), 1), (at(20), 1)]
        driver.go_to(at(30))
        assert driver.dispatched[-1].revision == 2

    def test_a_time_that_was_no_fire_before_a_change_is_none_after_it(self) -> None:
        """All places of ``max_runs`` were taken at its moment; one that becomes free a moment later is for what comes then."""
        driver = drive(10, schedule=every(10, max_runs=2), overlap="buffer_one")
        driver.go_to(at(25))
        driver.now = at(30)
        driver.change(driver.definition.model_copy(update={"payload": 2}))
        driver.cancel(run_id(20))
        driver.end(run_id(10))
        driver.go_to(at(39))
        assert driver.started() == [10]
        driver.go_to(at(40))
        assert driver.started() == [10, 40]

    def test_what_nobody_could_plan_before_a_change_is_asked_for_with_it(self) -> None:
        """A planner that was away must not let fires of before the change become fires of the new definition."""
        driver = drive(60)
        unplanned = driver.state.model_copy(update={"plan": None})
        changed = ChangeCommand(definition=driver.definition.model_copy(update={"payload": 2}))
        assert must_settle(unplanned, changed)
        assert not must_settle(driver.state, changed)
        assert not must_settle(unplanned, ChangeCommand(definition=driver.definition))

    def test_what_was_told_ahead_is_not_told_again(self) -> None:
        """A job with nothing but unwanted fires left is over, and those are told. A change that keeps them tells nothing new."""
        grid = Grid(30, frozenset({2, 3}), end_at=at(210))
        driver = JobDriver(JobDefinition(schedule=every(30, not_in_minutes="2,3", end_at=at(210))), grid=grid)
        driver.wake()
        for second in (30, 60, 90):
            driver.go_to(at(second))
            driver.end(run_id(second))
        assert driver.state.lifecycle is Lifecycle.COMPLETED
        told = driver.outcomes()
        assert [told[second] for second in (120, 150, 180, 210)] == [Outcome.EXCLUDED] * 4

        driver.change(driver.definition.model_copy(update={"payload": 2}))
        driver.go_to(at(300))
        assert driver.state.lifecycle is Lifecycle.COMPLETED
        assert driver.outcomes() == told

    def test_what_was_told_ahead_does_not_hold_up_another_schedule(self) -> None:
        """The times of the old one are still to come; the new one knows nothing of them."""
        grid = Grid(30, frozenset({2, 3}), end_at=at(210))
        driver = JobDriver(JobDefinition(schedule=every(30, not_in_minutes="2,3", end_at=at(210))), grid=grid)
        driver.wake()
        for second in (30, 60, 90):
            driver.go_to(at(second))
            driver.end(run_id(second))
        reschedule(driver, 50)
        driver.go_to(at(100))
        assert driver.started() == [30, 60, 90, 100]

    def test_a_change_of_the_payload_moves_no_fire_and_asks_nobody(self) -> None:
        """The plan is kept, the counts go on, and the next run has it."""
        driver = drive(60, payload=1)
        driver.go_to(at(60))
        driver.end(run_id(60))
        plan = driver.state.plan
        driver.change(driver.definition.model_copy(update={"payload": 2}))
        assert driver.state.plan is not None
        assert driver.state.plan.model_copy(update={"revision": 1}) == plan
        assert driver.state.counts.started == 1
        driver.go_to(at(120))
        [run] = driver.state.active
        assert definition_of(driver.state, run).payload == 2

    def test_the_same_definition_is_no_change(self) -> None:
        """No revision, no plan, no record."""
        driver = drive(60)
        before = driver.state
        driver.change(driver.definition)
        assert driver.state.model_copy(update={"version": before.version}) == before

    def test_a_run_keeps_its_definition_for_all_its_attempts(self) -> None:
        """An effect is not tried first with one payload and then with another; when the run is over, it is forgotten."""
        driver = drive(60, payload="old", retry={"max_attempts": 3})
        driver.go_to(at(60))
        driver.change(driver.definition.model_copy(update={"payload": "new"}))
        driver.end(run_id(60), AttemptStatus.FAILED, failure=Failure())
        driver.go_to(at(65))
        [retried] = driver.out.values()
        assert (retried.attempt, retried.revision) == (2, 1)
        assert definition_of(driver.state, retried).payload == "old"
        driver.end(run_id(60))
        driver.change(driver.definition.model_copy(update={"payload": "newer"}))
        assert driver.state.earlier == ()

    def test_earlier_definitions_are_bounded(self) -> None:
        """A job crosses every continue-as-new; a run of a definition that is too large goes on under the present one."""
        driver = drive(60, payload="x" * EARLIER_LIMIT)
        driver.go_to(at(60))
        driver.change(driver.definition.model_copy(update={"payload": "small"}))
        [run] = driver.state.active
        assert definition_of(driver.state, run).payload == "small"

    def test_a_buffered_fire_runs_whatever_is_changed(self) -> None:
        """SB-081: it was decided, under its own definition."""
        for seconds in (2, 3600):
            driver = drive(2, overlap="buffer_one", payload="old")
            driver.go_to(at(5))
            assert [run.run_id for run in driver.state.waiting] == [run_id(4)]
            changed = driver.definition.model_copy(update={"schedule": every(seconds), "payload": "new"})
            driver.change(changed, grid=Grid(seconds))
            driver.end(run_id(2))
            [run] = driver.state.active
            assert (run.run_id, definition_of(driver.state, run).payload) == (run_id(4), "old")

    def test_what_fell_due_while_nobody_was_there_is_decided_under_the_old_definition(self) -> None:
        """The first thing after an outage is a change."""
        driver = drive(60, missed_window="SKIP")
        driver.now = at(601)
        reschedule(driver, 3600)
        missed = [second for second, outcome in driver.outcomes().items() if outcome is Outcome.MISSED]
        assert missed == list(range(60, 600, 60))
        assert driver.started() == [600]
        assert {entry.revision for entry in driver.mirror.entries} == {1}

    def test_a_completed_job_begins_again_with_another_time_and_only_then(self) -> None:
        """A one-off that has run; its counts go on."""
        driver = JobDriver(JobDefinition(schedule=Schedule(rule=OneOffRule(at=at(5)))), grid=Grid(5, end_at=at(5)))
        driver.wake()
        driver.go_to(at(5))
        driver.end(run_id(5))
        assert driver.state.lifecycle is Lifecycle.COMPLETED
        described = driver.definition.model_copy(update={"description": "done"})
        driver.change(described)
        assert driver.state.lifecycle is Lifecycle.COMPLETED
        later = described.model_copy(update={"schedule": Schedule(rule=OneOffRule(at=at(20)))})
        driver.change(later, grid=Grid(20, end_at=at(20)))
        assert job_record(driver.state).next_run_at == at(20)
        driver.go_to(at(20))
        assert driver.started() == [5, 20]

    def test_a_schedule_that_no_worker_can_read_can_be_replaced(self) -> None:
        """What lies before is told as unknown, from when to when; later fires count."""
        driver = drive(60)
        driver.go_to(at(60))
        state = settle_unknown(driver.state, at=at(200), reason="no such zone")
        entry = state.outbox.ledger[-1].entry
        assert (entry.first, entry.last, entry.count, entry.outcome) == (at(61), at(200), 0, Outcome.MISSED)
        assert state.high_water == at(200)


class TestPause:
    """And resume."""

    @pytest.mark.parametrize("policy", ["RUN_ONCE", "RUN_ALL", "SKIP", "DEADLINE"])
    def test_what_fell_into_a_pause_is_not_replayed(self, policy: str) -> None:
        """SB-045: whatever the catch-up policy; the ledger tells it in one line, and the grid goes on."""
        driver = drive(5, missed_window=policy, max_delay=timedelta(seconds=30))
        driver.go_to(at(12))
        driver.end(run_id(5))
        for run in list(driver.out):
            driver.end(run)
        started = driver.started()
        driver.pause()
        driver.go_to(at(32))
        assert job_record(driver.state).next_run_at is None
        driver.resume()
        assert driver.started() == started
        assert next_fire(driver.state) is not None
        assert job_record(driver.state).next_run_at == at(35)
        paused = [entry for entry in driver.mirror.entries if entry.outcome is Outcome.PAUSED]
        assert [(entry.first, entry.last, entry.count) for entry in paused] == [(at(15), at(30), 4)]
        assert driver.state.counts.missed == 0

    @pytest.mark.parametrize("seconds", [5, 60, 3600])
    def test_a_resume_that_asks_for_it_catches_up_exactly_once(self, seconds: int) -> None:
        """SB-047: ten periods, of whatever length, under RUN_ONCE: one run that stands for all of them."""
        driver = drive(seconds, missed_window="RUN_ONCE")
        driver.pause()
        driver.go_to(at(10 * seconds + 1))
        driver.resume(catch_up=PausedFires.APPLY)
        [run] = driver.dispatched
        assert (run.kind, run.stands_for, run.run_id) == (RunKind.CATCH_UP, 10, run_id(10 * seconds))

    def test_a_month_of_paused_minutes_is_a_line(self) -> None:
        """The work of a resume is bounded, and no wake is spent on what does not run."""
        driver = drive(60)
        driver.pause()
        wakes = driver.wakes
        driver.go_to(at(31 * 86_400 + 1))
        assert driver.wakes == wakes
        driver.resume()
        assert [(entry.count, entry.outcome) for entry in driver.mirror.entries] == [(31 * 1440, Outcome.PAUSED)]

    def test_the_ledger_says_why_the_job_was_paused(self) -> None:
        """By the reason that was given last; without one it says no more than that. A line of the ledger has its bounds."""
        for reasons, told in (
            (["incident 7"], "the job was paused: incident 7"),
            (["incident 7", "the bank migrates"], "the job was paused: the bank migrates"),
            ([""], "the job was paused"),
            (["x" * 500], f"the job was paused: {'x' * 480}"),
        ):
            driver = drive(10)
            for reason in reasons:
                driver.pause(reason=reason)
                driver.go_to(driver.now + 15 * SECOND)
            driver.resume()
            assert {entry.reason for entry in driver.mirror.entries} == {told}

    def test_who_disables_a_job_is_told_so(self) -> None:
        """As the reason of its pause."""
        driver = drive(10)
        driver.change(driver.definition, enabled=False)
        driver.go_to(at(25))
        driver.change(driver.definition, enabled=True)
        assert [(entry.count, entry.reason) for entry in driver.mirror.entries] == [
            (2, "the job was paused: enabled is false")
        ]

    def test_a_pause_and_a_resume_before_the_target_time_change_nothing(self) -> None:
        """SB-078: the run happens once, at its target."""
        driver = jittered()
        [fire, *_] = driver.state.plan.upcoming if driver.state.plan else ()
        driver.go_to(at(61))
        driver.pause()
        driver.resume()
        assert next_fire(driver.state) == fire
        driver.go_to(fire.target)
        assert driver.started() == [60]
        assert driver.outcomes() == {60: Outcome.RAN}

    def test_a_pause_over_the_target_time_means_no_fire(self) -> None:
        """SB-147: whoever was answered before has stopped it, though its nominal time had come."""
        driver = jittered()
        driver.go_to(at(61))
        driver.pause()
        driver.go_to(at(115))
        driver.resume()
        assert driver.started() == []
        assert driver.outcomes() == {60: Outcome.PAUSED}

    def test_a_pause_ends_by_itself_as_of_its_time(self) -> None:
        """Also when nobody is there at that time: what comes after it is late or missed, and not paused."""
        driver = drive(10)
        driver.pause(until=at(35))
        driver.go_to(at(40))
        assert driver.started() == [40]
        assert [second for second, outcome in driver.outcomes().items() if outcome is Outcome.PAUSED] == [10, 20, 30]

        driver = drive(600, missed_window="SKIP")
        driver.pause(until=at(1300))
        driver.now = at(3000)
        driver.wake()
        assert driver.outcomes() == {
            600: Outcome.PAUSED,
            1200: Outcome.PAUSED,
            1800: Outcome.MISSED,
            2400: Outcome.MISSED,
            3000: Outcome.RAN,
        }

    def test_what_has_begun_goes_on_and_what_waits_is_held(self) -> None:
        """Retries are made; a buffered fire starts when the job is resumed."""
        driver = drive(2, overlap="buffer_one", retry={"max_attempts": 2})
        driver.go_to(at(5))
        driver.pause()
        driver.end(run_id(2), AttemptStatus.FAILED, failure=Failure())
        driver.go_to(at(20))
        assert [run.attempt for run in driver.out.values()] == [2]
        driver.end(run_id(2))
        assert driver.out == {}
        driver.resume()
        assert list(driver.out) == [run_id(4)]

    def test_a_paused_one_off_whose_time_has_passed_is_over_when_it_is_resumed(self) -> None:
        """SB-129: told as paused, completed, and never "scheduled" with no time; caught up only if that is asked for."""
        for catch_up, outcome in ((PausedFires.NONE, Outcome.PAUSED), (PausedFires.APPLY, Outcome.RAN)):
            driver = JobDriver(JobDefinition(schedule=Schedule(rule=OneOffRule(at=at(5)))), grid=Grid(5, end_at=at(5)))
            driver.wake()
            driver.pause()
            driver.go_to(at(1000))
            driver.resume(catch_up=catch_up)
            for run in list(driver.out):
                driver.end(run)
            assert driver.outcomes() == {5: outcome}
            assert driver.state.lifecycle is Lifecycle.COMPLETED

    def test_a_change_while_paused_tells_what_fell_into_the_pause_so_far(self) -> None:
        """Under the old schedule; the rest of the pause is the new one's."""
        driver = drive(10)
        driver.pause()
        driver.go_to(at(25))
        reschedule(driver, 100)
        driver.go_to(at(250))
        driver.resume()
        assert driver.outcomes() == dict.fromkeys((10, 20, 100, 200), Outcome.PAUSED)
        assert driver.started() == []


class TestTrigger:
    """Run now."""

    def test_a_manual_run_is_in_the_way_of_a_fire_as_any_run(self) -> None:
        """SB-065, SB-143: never two at once; what it blocks is skipped, and says by what."""
        driver = drive(2)
        told = driver.trigger("a")
        driver.go_to(at(5))
        assert len(driver.live()) == 1
        assert driver.outcomes() == {2: Outcome.SKIPPED, 4: Outcome.SKIPPED}
        assert {entry.run_id for entry in driver.mirror.entries} == {told.run_id}
        again = driver.trigger("b")
        assert again.outcome is TriggerOutcome.SKIPPED
        _, row = driver.mirror.runs[again.run_id]
        assert (row.status, row.outcome) == (RunStatus.CANCELLED, Outcome.SKIPPED)
        assert told.run_id in (row.reason or "")

    def test_a_trigger_before_a_fire_and_the_fire_both_run_where_that_is_allowed(self) -> None:
        """SB-144: two runs of different kinds."""
        driver = drive(60, overlap="allow")
        driver.go_to(at(40))
        driver.trigger("a")
        driver.go_to(at(60))
        assert [run.kind for run in driver.dispatched] == [RunKind.MANUAL, RunKind.SCHEDULED]
        assert driver.state.counts.started == 1

    def test_the_next_fire_is_used_up_and_the_one_after_it_comes(self) -> None:
        """SB-085: told at once, by name; a trigger that is skipped uses up nothing."""
        driver = drive(60)
        told = driver.trigger("a", skip_next=True)
        assert told.consumed == at(60)
        skipped = driver.trigger("b", skip_next=True)
        assert (skipped.outcome, skipped.consumed) == (TriggerOutcome.SKIPPED, None)
        driver.end(told.run_id)
        driver.go_to(at(120))
        assert driver.started()[1:] == [120]
        assert driver.outcomes() == {60: Outcome.CONSUMED, 120: Outcome.RAN}

    def test_a_used_up_fire_of_an_old_schedule_takes_nothing_from_the_new_one(self) -> None:
        """The next Monday is skipped; then the job is made hourly."""
        driver = drive(7200)
        driver.trigger("a", skip_next=True)
        reschedule(driver, 60)
        assert job_record(driver.state).next_run_at == at(60)

    def test_a_payload_of_its_own_is_the_runs_for_all_its_attempts(self) -> None:
        """Whatever the job is changed to meanwhile."""
        driver = drive(3600, payload="usual", retry={"max_attempts": 2})
        told = driver.trigger("a", override=PayloadOverride(payload="special"))
        driver.change(driver.definition.model_copy(update={"payload": "newer"}))
        driver.end(told.run_id, AttemptStatus.FAILED, failure=Failure())
        driver.go_to(at(5))
        [run] = driver.state.active
        assert (run.attempt, definition_of(driver.state, run).payload) == (2, "special")

    def test_payloads_that_wait_are_bounded(self) -> None:
        """One always fits; what comes then has to wait outside."""
        driver = drive(3600, overlap="buffer_all")
        large = PayloadOverride(payload="x" * 200_000)
        driver.trigger("a", override=large)
        command = TriggerCommand(request_id="b", override=large)
        assert not may_take_payload(driver.state, command, queued=())
        assert may_take_payload(driver.state, TriggerCommand(request_id="c"), queued=(command,))


class TestCancel:
    """Wherever a run stands."""

    def test_a_run_that_waits_ends_at_once_and_gives_its_place_back(self) -> None:
        """Buffered, or in the catch-up lane; ``max_runs`` counts it no more."""
        driver = drive(2, overlap="buffer_one")
        driver.go_to(at(5))
        driver.cancel(run_id(4))
        assert driver.state.waiting == ()
        assert driver.outcomes()[4] is Outcome.CANCELLED
        assert driver.state.counts.started == 1

    def test_a_run_between_two_attempts_ends_at_once(self) -> None:
        """It is asked for no answer; again, nothing changes."""
        driver = drive(60, retry={"max_attempts": 3})
        driver.go_to(at(60))
        driver.end(run_id(60), AttemptStatus.FAILED, failure=Failure())
        for _ in range(2):
            driver.cancel(run_id(60))
            assert driver.state.active == ()
        _, row = driver.mirror.runs[run_id(60)]
        assert (row.status, row.reason) == (RunStatus.CANCELLED, "on request")

    def test_a_run_that_succeeds_all_the_same_is_a_success(self) -> None:
        """SB-147: one end, and what was done is not denied."""
        driver = drive(60)
        driver.go_to(at(60))
        driver.cancel(run_id(60))
        assert driver.cancelled == [run_id(60)]
        driver.end(run_id(60))
        _, row = driver.mirror.runs[run_id(60)]
        assert row.status is RunStatus.SUCCESS


def test_fires_put_aside_that_were_missed_together_are_caught_up_together() -> None:
    """The planner did not answer when the job was changed, ten hours late."""
    driver = drive(3_600)
    driver.now = at(37_200)
    driver._carry_out(decide_due(driver.state, now=driver.now))
    command = ChangeCommand(definition=driver.definition.model_copy(update={"description": "another"}))
    driver.state = change_job(driver.state, command, now=driver.now)
    driver.grids[2] = driver.grids[1]
    driver.wake()
    assert [(run.scheduled_at, run.stands_for) for run in driver.held()] == [(at(36_000), 10)]


def test_a_range_of_undecided_fires_ends_before_those_that_are_put_aside() -> None:
    """More fires than a survey names: the ledger has each once."""
    driver = drive(1)
    driver.state = driver.state.model_copy(update={"plan": None})
    driver.now = at(15.5)
    driver._settle(driver.now)
    driver.wake()
    assert set(driver.outcomes()) == set(range(1, 16))


def test_a_trigger_that_waits_is_not_overtaken_for_ever_where_runs_may_overlap() -> None:
    """It waits for the run that is there, and not for those that begin meanwhile."""
    driver = drive(60, overlap="allow", max_concurrent=10)
    driver.go_to(at(60))
    triggered = driver.trigger("now", overlap="buffer_one")
    assert triggered.outcome is TriggerOutcome.BUFFERED
    driver.go_to(at(130))
    assert [run.run_id for run in driver.state.waiting] == [triggered.run_id]
    driver.end(run_id(60))
    assert driver.state.waiting == ()
    assert triggered.run_id in driver.out


def test_runs_that_may_overlap_stay_within_their_bound_when_one_has_waited() -> None:
    """A fire has taken the place of the run that it waited for."""
    driver = drive(60, overlap="allow", max_concurrent=2)
    driver.go_to(at(60))
    triggered = driver.trigger("now", overlap="buffer_one")
    driver.go_to(at(120))
    driver.now = at(180)
    first = driver.out.pop(run_id(60))
    driver.state = settle_attempt(
        driver.state, AttemptEnd(run_id=first.run_id, status=AttemptStatus.SUCCESS), now=driver.now, draw=0.5
    )
    driver._carry_out(decide_due(driver.state, now=driver.now))
    driver.wake()
    assert len(driver.live()) == 2
    driver.end(run_id(120))
    assert triggered.run_id in driver.out


def test_fires_put_aside_beyond_max_runs_are_told() -> None:
    """Four were missed together, and two may still run."""
    driver = drive(3_600, missed_window="RUN_ALL", max_missed=10, schedule=every(3_600, max_runs=2))
    driver.now = at(4 * 3_600 + 1_200)
    driver._carry_out(decide_due(driver.state, now=driver.now))
    command = ChangeCommand(definition=driver.definition.model_copy(update={"description": "another"}))
    driver.state = change_job(driver.state, command, now=driver.now)
    driver.grids[2] = driver.grids[1]
    assert len(driver.state.carried) == 4
    driver.wake()
    told = [outcome for second, outcome in driver.outcomes().items() if outcome is Outcome.DROPPED]
    assert (len(driver.held()), len(told)) == (2, 2)


def test_a_fire_that_no_pause_lets_be_decided_keeps_nobody_awake() -> None:
    """The pause is over, but cannot be ended while the planner does not answer."""
    driver = drive(3_600, schedule=every(3_600, jitter_window_seconds=600.0))
    driver.go_to(at(3_605))
    driver.change(driver.definition.model_copy(update={"description": "another"}))
    driver.pause(until=at(3_700))
    [carried] = driver.state.carried
    assert carried.fire.target > at(3_700)
    driver.now = carried.fire.target + SECOND
    turn = take_turn(driver.state, now=driver.now)
    wake = next_wake(turn.state, now=driver.now)
    assert wake is None or wake > driver.now


def test_a_trigger_whose_key_needs_a_zone_that_this_worker_does_not_know_is_refused_by_it() -> None:
    """Another worker may know it, so that nothing of this is recorded."""
    schedule = every(60).model_copy(update={"timezone": "Mars/Olympus"})
    state = JobState(job_id="j", definition=JobDefinition(schedule=schedule))
    assert "Mars/Olympus" in refuse_by_this_worker(state, TriggerCommand(key="k", request_id="r"), now=at(0))
    known = state.model_copy(update={"definition": JobDefinition(schedule=every(60))})
    assert refuse_by_this_worker(known, TriggerCommand(key="k", request_id="r"), now=at(0)) == ""
