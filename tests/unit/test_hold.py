"""Jobs held by label, one at a time: what the ledger says of their fires, and when they fire again. The clock is explicit."""

from datetime import datetime, timedelta

import pytest

from tests.unit.job_driver import Grid, JobDriver, at, every, run_id
from workflows.change import HELD_SKIPS_NOTHING, refuse_trigger
from workflows.command import TriggerCommand
from workflows.hold import chooses, describe_holds, release_time
from workflows.job import Hold, JobDefinition, Lifecycle, PausedFires, TriggerOutcome
from workflows.outbox import job_record
from workflows.revival import revived_state
from workflows.run import Outcome, RunKind

HELD, PAUSED, RAN, MISSED = Outcome.HELD, Outcome.PAUSED, Outcome.RAN, Outcome.MISSED


def drive(seconds: int, **fields: object) -> JobDriver:
    """A job on a grid, registered at noon, whose runs end at once where a test ends them."""
    definition = JobDefinition.model_validate({"schedule": every(seconds)} | fields)
    driver = JobDriver(definition, grid=Grid(seconds))
    driver.wake()
    return driver


def work_until(driver: JobDriver, moment: datetime) -> None:
    """Let time pass, with workers that answer at once."""
    while driver.now < moment:
        driver.go_to(min(moment, driver.now + timedelta(seconds=1)))
        for run in list(driver.out):
            driver.end(run)


def told(driver: JobDriver, outcome: Outcome) -> list[int]:
    """The seconds whose fires came to this."""
    return [second for second, found in driver.outcomes().items() if found is outcome]


class TestHold:
    """One hold."""

    def test_fires_are_held_and_say_by_what_until_it_ends_by_itself(self) -> None:
        """One line of the ledger with the hold's id and reason; the first fire after the end runs, on its grid and in time."""
        driver = drive(10)
        work_until(driver, at(15))
        driver.hold("h_bank", until=at(55), reason="the bank migrates")
        work_until(driver, at(70))
        assert driver.outcomes() == {10: RAN, 20: HELD, 30: HELD, 40: HELD, 50: HELD, 60: RAN, 70: RAN}
        [entry] = driver.mirror.entries
        assert (entry.first, entry.last, entry.count) == (at(20), at(50), 4)
        assert entry.reason == "held by h_bank (the bank migrates)"
        assert (driver.state.counts.missed, driver.state.counts.skipped) == (0, 0)

    def test_the_job_needs_no_wake_for_what_is_held(self) -> None:
        """A month of minutes is one line, and one wake at its end."""
        driver = drive(60)
        driver.hold("h_month", until=at(31 * 86_400 + 1))
        wakes = driver.wakes
        driver.go_to(at(31 * 86_400 + 2))
        assert driver.wakes == wakes + 1
        assert [(entry.count, entry.outcome) for entry in driver.mirror.entries] == [(31 * 1440, HELD)]

    def test_the_next_fire_is_the_first_after_a_known_end_and_unknown_without_one(self) -> None:
        """What people are told, and what the Web UI filters by."""
        driver = drive(10)
        driver.hold("h_known", until=at(55))
        record = job_record(driver.state)
        assert (record.next_run_at, record.next_target_at) == (at(60), at(60))
        assert [hold.hold_id for hold in record.holds] == ["h_known"]
        assert record.lifecycle is Lifecycle.ACTIVE
        driver.hold("h_open")
        assert job_record(driver.state).next_run_at is None
        driver.release("h_open")
        assert job_record(driver.state).next_run_at == at(60)
        driver.release("h_known")
        assert job_record(driver.state).next_run_at == at(10)
        assert job_record(driver.state).holds == ()

    def test_its_end_counts_also_when_nobody_was_there(self) -> None:
        """What comes after it is late or missed, and not held."""
        driver = drive(600, missed_window="SKIP")
        driver.hold("h_night", until=at(1300))
        driver.now = at(3000)
        driver.wake()
        assert driver.outcomes() == {600: HELD, 1200: HELD, 1800: MISSED, 2400: MISSED, 3000: RAN}

    @pytest.mark.parametrize("seconds", [5, 60, 3600])
    def test_a_hold_that_asks_for_it_is_caught_up_exactly_once(self, seconds: int) -> None:
        """As a pause is: under RUN_ONCE, one run that stands for all that fell into it."""
        for is_released in (False, True):
            driver = drive(seconds, missed_window="RUN_ONCE")
            end = at(10 * seconds + 1)
            driver.hold("h_soft", until=None if is_released else end, catch_up=PausedFires.APPLY)
            driver.go_to(end)
            if is_released:
                driver.release("h_soft", catch_up=PausedFires.APPLY)
            [run] = driver.dispatched
            assert (run.kind, run.stands_for, run.run_id) == (RunKind.CATCH_UP, 10, run_id(10 * seconds))
            assert told(driver, HELD) == []

    def test_a_release_may_choose_otherwise(self) -> None:
        """Whoever ends it early says what becomes of the fires."""
        for asked, count in ((PausedFires.APPLY, 0), (PausedFires.NONE, 1)):
            driver = drive(60)
            other = PausedFires.NONE if asked is PausedFires.APPLY else PausedFires.APPLY
            driver.hold("h", until=at(3600), catch_up=other)
            driver.go_to(at(70))
            driver.release("h", catch_up=asked)
            assert len(told(driver, HELD)) == count
            assert len(driver.dispatched) == 1 - count

    def test_a_fire_between_nominal_and_target_time_is_held_if_the_hold_lasts_over_its_target(self) -> None:
        """And runs once, at its target, if the hold is gone before."""
        for released_before in (True, False):
            driver = drive(60, schedule=every(60, jitter_window_seconds=50.0))
            assert driver.state.plan is not None
            target = driver.state.plan.upcoming[0].target
            assert target - at(60) > timedelta(seconds=2)
            driver.go_to(at(61))
            driver.hold("h")
            if not released_before:
                driver.go_to(at(115))
            driver.release("h")
            driver.go_to(at(115))
            assert driver.started() == [60] * released_before
            assert driver.outcomes() == {60: RAN if released_before else HELD}

    def test_an_old_or_repeated_hold_changes_nothing(self) -> None:
        """Told twice, in any order of the messages, it is the same hold."""
        driver = drive(60)
        driver.hold("h", until=at(600), reason="first")
        before = driver.state
        driver.hold("h", until=at(900), reason="again")
        assert driver.state.holds == before.holds
        driver.release("unknown")
        assert driver.state.holds == before.holds

    def test_what_has_begun_goes_on_and_what_waits_is_kept(self) -> None:
        """A buffered fire starts when the job is released."""
        driver = drive(2, overlap="buffer_one")
        driver.go_to(at(5))
        driver.hold("h")
        driver.end(run_id(2))
        assert driver.out == {}
        driver.release("h")
        assert list(driver.out) == [run_id(4)]

    def test_a_held_one_off_whose_time_has_passed_is_over_when_it_is_released(self) -> None:
        """It is not completed before: what becomes of its fire is not decided until then."""
        driver = JobDriver(JobDefinition(schedule=every(5, end_at=at(5))), grid=Grid(5, end_at=at(5)))
        driver.wake()
        driver.hold("h", until=at(1000))
        assert job_record(driver.state).next_run_at is None
        driver.go_to(at(999))
        assert driver.state.lifecycle is Lifecycle.ACTIVE
        driver.go_to(at(1000))
        assert driver.outcomes() == {5: HELD}
        assert job_record(driver.state).lifecycle is Lifecycle.COMPLETED

    def test_deleting_a_held_job_tells_what_fell_into_the_hold(self) -> None:
        """Nothing is lost with it."""
        driver = drive(10)
        driver.hold("h")
        driver.go_to(at(25))
        driver.delete()
        assert driver.outcomes() == {10: HELD, 20: HELD}
        assert driver.state.holds == ()

    def test_a_job_that_is_revived_is_held_still(self) -> None:
        """After the loss of Temporal's data: the mirror knows of the hold."""
        driver = drive(10)
        driver.hold("h", until=at(600), reason="r")
        revived = revived_state(job_record(driver.state), last=None, now=at(5))
        assert revived.holds == driver.state.holds


class TestSeveral:
    """Holds over one job, and a pause beside them."""

    def test_a_job_is_held_until_the_last_is_gone(self) -> None:
        """Each of its fires says by which."""
        driver = drive(10)
        driver.hold("h_a", until=at(35))
        driver.go_to(at(15))
        driver.hold("h_b", until=at(55))
        driver.go_to(at(60))
        assert told(driver, HELD) == [10, 20, 30, 40, 50]
        assert driver.started() == [60]
        reasons = [(entry.first, entry.count, entry.reason) for entry in driver.mirror.entries]
        assert reasons == [
            (at(10), 1, "held by h_a"),
            (at(20), 2, "held by h_a, h_b"),
            (at(40), 2, "held by h_b"),
        ]

    def test_what_fell_into_several_is_caught_up_only_if_all_say_so(self) -> None:
        """One that says no is about those fires, too."""
        for second, held in ((PausedFires.APPLY, []), (PausedFires.NONE, [10, 20, 30])):
            driver = drive(10, missed_window="RUN_ONCE")
            driver.hold("h_a", until=at(35), catch_up=PausedFires.APPLY)
            driver.go_to(at(15))
            driver.hold("h_b", until=at(25), catch_up=second)
            driver.go_to(at(35))
            assert told(driver, HELD) == held[: 2 if held else 0]
            [run] = driver.dispatched
            assert (run.run_id, run.stands_for) == (run_id(30), 1 if held else 3)

    def test_a_paused_job_that_is_released_stays_paused_and_the_other_way_round(self) -> None:
        """A pause and a hold know nothing of each other."""
        driver = drive(10)
        driver.pause()
        driver.hold("h")
        driver.go_to(at(15))
        driver.release("h")
        driver.go_to(at(25))
        assert (driver.state.lifecycle, driver.started()) == (Lifecycle.PAUSED, [])
        driver.hold("h")
        driver.resume()
        driver.go_to(at(45))
        assert (driver.state.lifecycle, driver.started()) == (Lifecycle.ACTIVE, [])
        driver.release("h")
        driver.go_to(at(50))
        assert driver.outcomes() == {10: PAUSED, 20: PAUSED, 30: HELD, 40: HELD, 50: RAN}

    def test_a_held_job_that_is_paused_tells_first_what_was_held(self) -> None:
        """Each outcome is that of its own time."""
        driver = drive(10)
        driver.hold("h")
        driver.go_to(at(25))
        driver.pause()
        driver.go_to(at(45))
        driver.release("h")
        driver.resume()
        assert driver.outcomes() == {10: HELD, 20: HELD, 30: PAUSED, 40: PAUSED}

    def test_a_pause_and_a_hold_that_ended_while_nobody_was_there_end_in_their_order(self) -> None:
        """As if somebody had been."""
        driver = drive(600, missed_window="SKIP")
        driver.pause(until=at(1000))
        driver.hold("h", until=at(2000))
        driver.now = at(3000)
        driver.wake()
        assert driver.outcomes() == {600: PAUSED, 1200: HELD, 1800: HELD, 2400: MISSED, 3000: RAN}


class TestChange:
    """Of a held job, or into one."""

    def test_another_label_brings_a_hold_or_takes_it(self) -> None:
        """With the change itself: no fire slips in between."""
        driver = drive(10)
        hold = Hold(hold_id="h", at=at(0))
        driver.change(driver.definition.model_copy(update={"labels": {"team": "finance"}}), holds=(hold,))
        driver.go_to(at(25))
        assert driver.started() == []
        driver.change(driver.definition.model_copy(update={"labels": {}}), holds=())
        driver.go_to(at(30))
        assert driver.outcomes() == {10: HELD, 20: HELD, 30: RAN}

    def test_another_schedule_is_told_what_the_old_one_had_held(self) -> None:
        """And the rest of the hold is the new one's."""
        driver = drive(10)
        driver.hold("h")
        driver.go_to(at(25))
        driver.change(driver.definition.model_copy(update={"schedule": every(100)}), grid=Grid(100))
        driver.go_to(at(250))
        driver.release("h")
        assert driver.outcomes() == dict.fromkeys((10, 20, 100, 200), HELD)

    def test_disabling_a_held_job_pauses_it(self) -> None:
        """What was held until then is told as that."""
        driver = drive(10)
        driver.hold("h")
        driver.go_to(at(15))
        driver.change(driver.definition, enabled=False)
        driver.go_to(at(25))
        driver.release("h")
        driver.resume()
        assert driver.outcomes() == {10: HELD, 20: PAUSED}


class TestTrigger:
    """By hand, as with a pause: who asks for a run gets it."""

    def test_a_held_job_runs_when_it_is_told_to(self) -> None:
        """The hold is over its fires."""
        driver = drive(60)
        driver.hold("h")
        assert driver.trigger("a").outcome is TriggerOutcome.STARTED
        assert [run.kind for run in driver.dispatched] == [RunKind.MANUAL]

    def test_it_cannot_use_up_a_fire_that_is_held(self) -> None:
        """Which one that would be is not known before the hold is over."""
        driver = drive(60)
        driver.hold("h", until=at(600))
        assert refuse_trigger(driver.state, TriggerCommand(skip_next=True)) == HELD_SKIPS_NOTHING


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        ({}, {}, True),
        ({}, {"team": "finance"}, True),
        ({"team": "finance"}, {"team": "finance", "env": "prod"}, True),
        ({"team": "finance"}, {"team": "Finance"}, False),
        ({"team": "finance"}, {}, False),
        ({"env": "prod", "tier": "2"}, {"env": "prod"}, False),
        ({"env": "prod", "tier": "2"}, {"env": "prod", "tier": "2"}, True),
    ],
)
def test_a_selector_wants_all_of_its_labels(selector: dict[str, str], labels: dict[str, str], expected: bool) -> None:
    """One without any is over every job."""
    assert chooses(selector, labels) is expected


def test_holds_are_named_within_bounds() -> None:
    """A ledger entry is a line, however many hold the job."""
    many = tuple(Hold(hold_id=f"h_{number}", at=at(0), reason="x" * 100) for number in range(50))
    assert len(describe_holds(many)) == 500
    assert release_time(()) is None
