"""Which alerts a job raises, each once, and that a job without alerts carries nothing of them. Pure."""

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.job_driver import JOB, Grid, JobDriver, at, every, run_id
from workflows.alert import (
    EXPECTED_LIMIT,
    Alert,
    alert_body,
    alert_of_late_run,
    alerts_of_run,
    late_due,
    late_look,
    next_unmet,
    rules_in_force,
    watch_job,
    watch_silent_run,
)
from workflows.alert_rule import AlertKind, AlertRules
from workflows.command import RedriveCommand
from workflows.job import JobDefinition, JobState, OverlapPolicy, Tuning
from workflows.job_news import RunNews
from workflows.observation import Observation, seen_run
from workflows.redrive import redrive_run_id, take_redrive
from workflows.run import AttemptStatus, Failure, Run, RunStatus
from workflows.settlement import show_run
from workflows.wake import next_wake

EVERYTHING = AlertRules(
    on=tuple(AlertKind), late_after=timedelta(seconds=10), finish_within=timedelta(seconds=50), url="https://x.example"
)
PERMANENT = Failure(type="ValueError", message="broken", retryable=False)


class WatchedDriver(JobDriver):
    """A job that is watched as its workflow watches it: after each change, before the mirror confirms it."""

    alerts: list[Alert]
    rules: AlertRules | None
    """``None``: they were taken away."""

    def __init__(self, rules: AlertRules, seconds: int = 60, **fields: Any) -> None:
        self.rules, self.alerts = rules, []
        definition = JobDefinition.model_validate({"schedule": every(seconds), "alerts": rules} | fields)
        super().__init__(definition, grid=Grid(seconds, frozenset()))
        self.told = self.state
        self.wake()

    def _carry_out(self, turn: Any) -> None:
        super()._carry_out(turn)
        self.watch()

    def watch(self) -> None:
        """Take in what has happened."""
        self.state, raised = watch_job(self.told, self.state, rules=self.rules, now=self.now)
        self.alerts += raised
        self.told = self.state

    def told_of(self, kind: AlertKind) -> list[str]:
        """Ids of the alerts of a kind."""
        return [alert.alert_id for alert in self.alerts if alert.kind is kind]


def test_a_dead_run_is_told_once_and_a_success_is_not() -> None:
    """Named by the run; without its checkpoint and result, which are nobody else's business."""
    driver = WatchedDriver(EVERYTHING)
    driver.go_to(at(60))
    driver.end(run_id(60))
    driver.go_to(at(120))
    driver.end(run_id(120), AttemptStatus.FAILED, failure=PERMANENT, checkpoint={"secret": 1})
    assert driver.told_of(AlertKind.DEAD) == [f"default:dead:{run_id(120)}"]
    [alert] = [each for each in driver.alerts if each.kind is AlertKind.DEAD]
    assert alert.run is not None
    assert (alert.run.status, alert.run.checkpoint) == (RunStatus.DEAD, None)
    body = alert_body(alert)
    assert isinstance(body, dict)
    assert (body["kind"], body["alert_id"]) == ("dead", alert.alert_id)


def test_a_redrive_is_no_new_death() -> None:
    """What is written of the dead run again is that it was redriven."""
    driver = WatchedDriver(EVERYTHING)
    driver.go_to(at(60))
    driver.end(run_id(60), AttemptStatus.FAILED, failure=PERMANENT)
    _, dead = driver.mirror.runs[run_id(60)]
    name = redrive_run_id(dead.run_id, job_id=JOB)
    driver.state = take_redrive(driver.state, RedriveCommand(key=name, run_id=name, dead=dead), now=driver.now)
    driver.wake()
    assert driver.told_of(AlertKind.DEAD) == [f"default:dead:{run_id(60)}"]


@pytest.mark.parametrize(("threshold", "alerts"), [(0, 1), (3, 1), (4, 0)])
def test_missed_fires_are_told_together_above_the_threshold(threshold: int, alerts: int) -> None:
    """Four of them in one outage."""
    rules = AlertRules(on=(AlertKind.MISSED,), missed_more_than=threshold)
    driver = WatchedDriver(rules, missed_window="SKIP")
    driver.be_away(timedelta(minutes=5, seconds=30))
    assert len(driver.told_of(AlertKind.MISSED)) == alerts
    if alerts:
        assert sum(entry.count for entry in driver.alerts[0].missed) == 4


def test_an_alert_of_dropped_fires_names_the_command_that_runs_them() -> None:
    """From the first of them to the last; the fires that are caught up are none of these."""
    driver = WatchedDriver(AlertRules(on=(AlertKind.MISSED,)), missed_window="RUN_ALL", max_missed=3)
    driver.be_away(timedelta(minutes=10) + timedelta(seconds=30))
    [alert] = driver.alerts
    dropped = sum(entry.count for entry in alert.missed)
    assert alert.summary.endswith(
        f"; {dropped} of them will not be caught up, unless by: "
        f"horarium backfill {JOB} --from 2026-06-08T12:01:00Z --to {at(60 * dropped):%Y-%m-%dT%H:%M:%SZ}"
    )
    driver = WatchedDriver(AlertRules(on=(AlertKind.MISSED,)), missed_window="SKIP")
    driver.be_away(timedelta(minutes=10))
    assert "backfill" not in driver.alerts[0].summary


@pytest.mark.parametrize("missed_window", ["RUN_ONCE", "RUN_ALL"])
@pytest.mark.parametrize(("threshold", "alerts"), [(3, 1), (5, 0)])
def test_a_large_catch_up_is_told_once_however_it_is_done(missed_window: str, threshold: int, alerts: int) -> None:
    """Four or five fires, by one run for all or by one for each; whoever depends on the job hears that it is behind."""
    rules = AlertRules(on=(AlertKind.CATCH_UP,), catch_up_more_than=threshold)
    driver = WatchedDriver(rules, missed_window=missed_window)
    driver.be_away(timedelta(minutes=5, seconds=30))
    assert len(driver.told_of(AlertKind.CATCH_UP)) == alerts
    driver.go_to(at(600))
    assert len(driver.told_of(AlertKind.CATCH_UP)) == alerts


def test_a_detached_run_that_has_not_begun_is_told_under_the_name_that_its_late_start_would_have() -> None:
    """So that it is told once, by whom ever it is noticed first."""
    run = Run(run_id="r", scheduled_at=at(0), target_at=at(5), created_at=at(5), detached=True)
    due_at = late_due(run, rules=EVERYTHING)
    assert due_at == at(15)
    about = {"tenant": "t", "job_id": JOB, "definition": JobDefinition(), "rules": EVERYTHING, "now": at(15)}
    alert = alert_of_late_run(run, due_at=due_at, **about)  # type: ignore[arg-type]
    assert (alert.alert_id, alert.run, alert.due_at) == ("t:late:r", run, at(15))
    begun = run.model_copy(update={"started_at": at(16)})
    [again] = alerts_of_run(RunNews(run=begun, begun=True), **about)  # type: ignore[arg-type]
    assert again.alert_id == alert.alert_id


@pytest.mark.parametrize(
    ("rules", "fields"),
    [
        (None, {}),
        (AlertRules(late_after=timedelta(seconds=1)), {}),
        (AlertRules(on=(AlertKind.LATE,)), {}),
        (EVERYTHING, {"started_at": at(1)}),
        (EVERYTHING, {"kind": "catch_up"}),
    ],
)
def test_nobody_waits_for_a_start_that_nobody_is_told_of(rules: AlertRules | None, fields: dict[str, Any]) -> None:
    """Nor for that of a run that is late by nature, or has begun."""
    run = Run.model_validate({"run_id": "r", "scheduled_at": at(0), "target_at": at(0), "created_at": at(0)} | fields)
    assert late_due(run, rules=rules) is None


def test_a_fire_that_has_not_succeeded_in_time_is_told_whatever_became_of_it() -> None:
    """Dead, still running, or blocked by another run: each nominal time once, and at its time."""
    rules = AlertRules(on=(AlertKind.NOT_FINISHED,), finish_within=timedelta(seconds=50))
    driver = WatchedDriver(rules, overlap=OverlapPolicy.SKIP)
    driver.go_to(at(60))
    assert next_unmet(driver.state) == at(110)
    assert next_wake(driver.state, now=driver.now) == at(110)
    driver.go_to(at(109))
    assert driver.alerts == []
    driver.go_to(at(300))
    told = driver.told_of(AlertKind.NOT_FINISHED)
    # The fires behind it are decided together, and told when they are; all are told but those not yet decided.
    assert told[0] == f"default:not_finished_by:{JOB}:{at(60):%Y%m%dT%H%M%SZ}"
    assert len(told) == len(set(told))
    driver.end(run_id(60))
    driver.go_to(at(400))
    told = driver.told_of(AlertKind.NOT_FINISHED)
    assert len(told) == len(set(told))


def test_what_finishes_in_time_is_forgotten() -> None:
    """By whichever run: a redrive answers for the nominal time of its dead run."""
    driver = WatchedDriver(EVERYTHING)
    driver.go_to(at(60))
    driver.end(run_id(60), AttemptStatus.FAILED, failure=PERMANENT)
    assert next_unmet(driver.state) == at(110)
    _, dead = driver.mirror.runs[run_id(60)]
    name = redrive_run_id(dead.run_id, job_id=JOB)
    driver.state = take_redrive(driver.state, RedriveCommand(key=name, run_id=name, dead=dead), now=driver.now)
    driver.wake()
    driver.end(name)
    assert driver.state.expected == ()
    driver.go_to(at(119))
    assert driver.told_of(AlertKind.NOT_FINISHED) == []


def test_a_detached_run_that_finishes_in_time_is_forgotten_too() -> None:
    """Its own workflow tells the news of it; the job hears only its report."""
    driver = WatchedDriver(EVERYTHING, isolation="workflow")
    driver.go_to(at(60))
    run = driver.out[run_id(60)]
    driver.report(run.model_copy(update={"status": RunStatus.SUCCESS, "finished_at": driver.now}))
    assert driver.state.expected == ()


def test_a_run_is_late_when_a_look_says_so_and_not_before() -> None:
    """A run that was dispatched may have begun without anybody knowing."""
    rules = AlertRules(on=(AlertKind.LATE,), late_after=timedelta(seconds=10))
    driver = WatchedDriver(rules)
    driver.go_to(at(60))
    assert late_look(driver.state, run_id(60)) == at(70)
    driver.now = at(75)
    driver.watch()
    assert driver.alerts == []
    assert next_unmet(driver.state) is None
    pending = seen_run(driver.state.active[0], Observation(polled=False), task_queue="q", now=driver.now)
    driver.state = show_run(driver.state, pending, now=driver.now)
    driver.state, alerts = watch_silent_run(driver.state, run_id(60), rules=rules, now=driver.now)
    assert [alert.alert_id for alert in alerts] == [f"default:late:{run_id(60)}"]
    _, again = watch_silent_run(driver.state, run_id(60), rules=rules, now=driver.now)
    assert again == ()


@pytest.mark.parametrize(("begun", "late"), [(69, False), (71, True)])
def test_a_run_that_began_late_is_told_when_that_is_known(begun: int, late: bool) -> None:
    """By its result, or by a look."""
    driver = WatchedDriver(EVERYTHING)
    driver.go_to(at(60))
    driver.now = at(72)
    driver.end(run_id(60), started_at=at(begun))
    assert driver.told_of(AlertKind.LATE) == ([f"default:late:{run_id(60)}"] if late else [])


def test_a_fire_that_waits_is_late_without_any_look() -> None:
    """Nobody but the job has it."""
    driver = WatchedDriver(EVERYTHING, overlap=OverlapPolicy.BUFFER_ONE)
    driver.go_to(at(140))
    assert f"default:late:{run_id(120)}" in driver.told_of(AlertKind.LATE)


def test_deleting_a_job_ends_what_was_expected() -> None:
    """Nobody waits for it any more."""
    driver = WatchedDriver(EVERYTHING)
    driver.go_to(at(60))
    driver.delete()
    assert driver.state.expected == ()


@pytest.mark.parametrize("logic", [4, 5])
def test_a_job_whose_alerts_are_taken_away_expects_nothing_that_would_come(logic: int) -> None:
    """It would wake for that again and again, and do nothing else. Runs that began under the fourth version keep their timer."""
    driver = WatchedDriver(AlertRules(on=(AlertKind.NOT_FINISHED,), finish_within=timedelta(seconds=90)), 60)
    driver.state = driver.state.model_copy(update={"logic": logic})
    driver.go_to(at(60))
    assert driver.state.expected
    driver.rules = None
    driver.change(driver.definition.model_copy(update={"alerts": None}))
    assert bool(driver.state.expected) is (logic == 4)
    driver.go_to(at(300))
    assert driver.state.expected == ()
    assert driver.alerts == []
    driver.delete(cancel_active=True)
    wake = next_wake(driver.state, now=driver.now)
    assert wake is None or wake > driver.now


def test_what_is_expected_is_bounded() -> None:
    """A job that fires every second and never finishes."""
    driver = WatchedDriver(
        AlertRules(on=(AlertKind.NOT_FINISHED,), finish_within=timedelta(hours=1)), seconds=1, overlap="allow"
    )
    driver.go_to(at(300))
    assert len(driver.state.expected) <= EXPECTED_LIMIT


def test_a_job_without_alerts_carries_nothing() -> None:
    """Neither in its state nor in its decisions, unless the installation tells of all jobs."""
    assert rules_in_force(JobDefinition(), Tuning()) is None
    assert rules_in_force(JobDefinition(), Tuning(alerts_for_all=True)) == AlertRules()
    assert rules_in_force(JobDefinition(alerts=EVERYTHING), Tuning(alerts_for_all=True)) == EVERYTHING
    assert next_unmet(JobState()) is None


def test_the_workflow_of_a_detached_run_tells_of_its_own_end_under_the_same_name() -> None:
    """So that the job, which may tell of it too, tells nothing new."""
    run = Run(run_id="r", scheduled_at=at(0), target_at=at(0), created_at=at(0), status=RunStatus.DEAD, detached=True)
    news = RunNews(run=run, ended=True)
    alerts = alerts_of_run(news, tenant="t", job_id=JOB, definition=JobDefinition(), rules=EVERYTHING, now=at(9))
    assert [alert.alert_id for alert in alerts] == ["t:dead:r"]
