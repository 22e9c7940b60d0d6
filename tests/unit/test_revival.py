"""Jobs that go on from what the mirror knows: nothing that was decided is decided again, nothing in doubt is run. Pure."""

from datetime import timedelta
from typing import Any

from tests.unit.job_driver import JOB, NOON, at, every, run_id
from workflows.change import change_job
from workflows.command import ChangeCommand
from workflows.job import JobCounts, JobDefinition, JobRecord, Lifecycle, Pause, Tuning
from workflows.planner import make_plan
from workflows.revival import (
    CLUSTER_LOST,
    IN_DOUBT_LIMIT,
    WORKFLOW_ENDED,
    WORKFLOW_LOSS,
    Remains,
    Restoration,
    restore_job,
    revived_state,
)
from workflows.run import Outcome, Run, RunKind, RunStatus
from workflows.turn import take_turn
from workflows.wake import plan_request, with_plan

NOW = at(3600)
MICROSECONDS = int(NOW.timestamp()) * 1_000_000


def record(*, seconds: int = 60, schedule: dict[str, Any] | None = None, **fields: Any) -> JobRecord:
    """A job of every minute that has decided its fire of 12:02."""
    definition = JobDefinition(schedule=every(seconds, **(schedule or {})))
    values = {
        "job_id": JOB,
        "version": 41,
        "revision": 3,
        "definition": definition,
        "registered_at": NOON,
        "updated_at": NOON,
        "high_water": at(120),
        "fence": 17,
        "counts": JobCounts(started=2, succeeded=2),
    }
    return JobRecord.model_validate(values | fields)


def active_run(second: int, **fields: Any) -> Run:
    """A run of a fire that has not ended as far as the mirror knows."""
    times = {name: at(second) for name in ("scheduled_at", "target_at", "created_at")}
    values = {"run_id": run_id(second), "status": RunStatus.RUNNING, "attempt": 1, "outcome": Outcome.RAN}
    return Run.model_validate(times | values | fields)


def restore(*open_runs: Run, lost_at: float, still_running: frozenset[str] = frozenset(), **fields: Any) -> Restoration:
    """Restore that job an hour after noon."""
    remains = Remains(record=record(**fields), last=None, open_runs=open_runs, still_running=still_running)
    return restore_job(remains, lost_at=at(lost_at), now=NOW)


def test_a_job_goes_on_with_its_mark_its_revision_and_its_counts() -> None:
    """Its fence and its version are above all that were given out, whatever clock gave them."""
    state = revived_state(record(), last=None, now=NOW)
    assert (state.high_water, state.revision, state.counts.started) == (at(120), 3, 2)
    assert (state.registered_at, state.lifecycle) == (NOON, Lifecycle.ACTIVE)
    assert state.fence >= MICROSECONDS
    assert state.version >= MICROSECONDS
    ahead = revived_state(record(fence=MICROSECONDS * 2, version=MICROSECONDS * 2), last=None, now=NOW)
    assert ahead.fence > MICROSECONDS * 2
    assert ahead.version > MICROSECONDS * 2


def test_what_was_under_way_is_dead_and_can_be_redriven() -> None:
    """With its checkpoint, and a row above every one that was written of it."""
    restoration = restore(active_run(120, checkpoint={"item": 5}), lost_at=130)
    [row] = restoration.rows.runs
    assert (row.run.status, row.run.outcome, row.run.checkpoint) == (RunStatus.DEAD, Outcome.RAN, {"item": 5})
    assert (row.run.reason or "").startswith(CLUSTER_LOST)
    assert row.version > MICROSECONDS
    assert (restoration.lost_runs, restoration.in_doubt) == (1, 0)
    assert restoration.rows.job is not None
    assert restoration.rows.job.counts.dead == 1
    assert (restoration.rows.job.last_status, restoration.state.last) == ("dead", row.run)


def test_what_was_never_dispatched_says_so() -> None:
    """A fire that waited, in the buffer or in the lane."""
    restoration = restore(
        active_run(120, status=RunStatus.PENDING, attempt=0, outcome=Outcome.PENDING, kind=RunKind.CATCH_UP),
        lost_at=130,
    )
    [row] = restoration.rows.runs
    assert (row.run.status, row.run.outcome) == (RunStatus.DEAD, Outcome.FAILED_TO_START)


def test_a_fire_of_about_the_loss_is_in_doubt_and_is_not_run() -> None:
    """It was due before the loss, and the mirror has not heard of it: it may have run. Later ones follow the policy."""
    restoration = restore(lost_at=185)
    [row] = restoration.rows.runs
    assert (row.run.run_id, row.run.status, row.run.outcome) == (
        run_id(180),
        RunStatus.DEAD,
        Outcome.FAILED_TO_START,
    )
    assert restoration.state.high_water == at(180)
    assert restoration.in_doubt == 1
    state = restoration.state
    state = with_plan(state, make_plan(plan_request(state, now=NOW), tuning=Tuning()))
    turn = take_turn(state, now=NOW)
    assert run_id(180) not in {run.run_id for run in (*turn.start, *turn.state.catch_up)}
    assert turn.state.high_water > at(180)


def test_jitter_counts_a_fire_is_in_doubt_by_its_target() -> None:
    """Nominal before the loss, but due after it: it was not dispatched."""
    plain = restore(lost_at=181)
    assert plain.in_doubt == 1
    jittered = restore(lost_at=180.0001, schedule={"jitter_window_seconds": 30.0})
    assert jittered.in_doubt == 0


def test_a_paused_job_has_no_fire_in_doubt() -> None:
    """It dispatched none."""
    restoration = restore(lost_at=1000, lifecycle=Lifecycle.PAUSED)
    assert (restoration.in_doubt, restoration.state.lifecycle) == (0, Lifecycle.PAUSED)


def test_of_many_fires_in_doubt_the_newest_are_letters_and_the_others_a_line() -> None:
    """Each has one outcome all the same; excluded ones stay excluded."""
    restoration = restore(seconds=1, lost_at=120 + 250)
    assert restoration.in_doubt == IN_DOUBT_LIMIT
    [line] = restoration.rows.ledger
    assert (line.entry.outcome, line.entry.count) == (Outcome.MISSED, 150)
    assert (line.entry.first, line.entry.last) == (at(121), at(270))
    assert restoration.state.high_water == at(370)
    assert restoration.state.counts.missed == 150

    excluding = restore(seconds=20, lost_at=300, schedule={"not_in_minutes": "3"})
    outcomes = [(each.entry.outcome, each.entry.count) for each in excluding.rows.ledger]
    assert outcomes == [(Outcome.EXCLUDED, 3)]
    assert excluding.in_doubt == 6


def test_a_detached_run_that_is_there_goes_on_and_is_not_dead() -> None:
    """Only the job's workflow was gone."""
    run = active_run(120, detached=True)
    restoration = restore(run, lost_at=130, still_running=frozenset({run.run_id}))
    assert restoration.state.active == (run,)
    assert restoration.rows.runs == ()


def test_max_runs_bounds_what_is_in_doubt() -> None:
    """A job whose runs are used up had no fire there."""
    assert restore(lost_at=1000, schedule={"max_runs": 2}).in_doubt == 0
    assert restore(lost_at=1000, schedule={"max_runs": 3}).in_doubt == 1


def test_doing_it_again_changes_nothing_that_was_written() -> None:
    """From the rows of the first, the second finds nothing lost and nothing in doubt."""
    first = restore(active_run(120), lost_at=185)
    assert first.rows.job is not None
    again = restore_job(
        Remains(record=first.rows.job, last=None, open_runs=()), lost_at=at(185), now=NOW + timedelta(seconds=5)
    )
    assert (again.lost_runs, again.in_doubt, again.rows.runs) == (0, 0, ())
    assert again.state.fence > first.state.fence


def test_a_fire_that_a_change_has_put_off_comes_or_is_in_doubt() -> None:
    """Below the mark, and not decided: after the loss it is still to come, before it nobody knows whether it ran."""
    put_off: dict[str, Any] = {"high_water": at(130), "next_run_at": at(120), "next_target_at": at(155)}
    to_come = restore(lost_at=150, **put_off).state
    assert [(each.fire.nominal, each.fire.target) for each in to_come.carried] == [(at(120), at(155))]
    in_doubt = restore(lost_at=160, **put_off)
    assert in_doubt.state.carried == ()
    assert [row.run.run_id for row in in_doubt.rows.runs] == [run_id(120)]


def test_a_paused_job_is_paused_again_and_one_whose_fires_were_used_up_can_be_changed() -> None:
    """With its reason; and the mark goes back when the schedule does."""
    pause = Pause(at=NOON, reason="incident")
    assert restore(lost_at=150, lifecycle=Lifecycle.PAUSED, pause=pause).state.pause == pause
    skipped = revived_state(record(high_water=at(7200)), last=None, now=NOW)
    changed = change_job(skipped, ChangeCommand(definition=JobDefinition(schedule=every(30))), now=NOW)
    assert changed.high_water == NOW


def test_runs_tell_what_their_job_lost_its_workflow_to() -> None:
    """One that somebody ended in Temporal is not a cluster that was lost; everything else is as after that."""
    remains = Remains(record=record(), last=None, open_runs=(active_run(120),))
    restoration = restore_job(remains, lost_at=at(190), now=NOW, loss=WORKFLOW_LOSS)
    assert [(row.run.reason or "").split(":")[0] for row in restoration.rows.runs] == [WORKFLOW_ENDED] * 2
    assert (restoration.lost_runs, restoration.in_doubt) == (1, 1)
    assert restoration.state.high_water == at(180)
