"""Backfills that go on from what the mirror knows: what has run, or may have, is not run again. Pure."""

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.job_driver import JOB, NOON, at, every, run_id
from workflows.backfill import BackfillState, fires_request, is_open, settle_backfill
from workflows.backfill_record import BackfillRecord, BackfillStatus, ExistingRuns
from workflows.backfill_revival import (
    BackfillRemains,
    BackfillRestoration,
    definition_lost,
    definition_of,
    end_backfill,
    reason_to_end,
    restore_backfill,
)
from workflows.job import JobDefinition, JobRecord, Lifecycle, RunRecord
from workflows.revival import CLUSTER_LOST
from workflows.run import Outcome, Run, RunKind, RunStatus

ASKED_AT = at(7200)
LOST_AT = at(7260)
NOW = at(7300)

NOMINALS = tuple(at(60 * n) for n in range(1, 11))
"""Ten fires, a minute apart."""


def job(**fields: Any) -> JobRecord:
    """A job of every minute."""
    values = {"job_id": JOB, "definition": JobDefinition(schedule=every(60)), "registered_at": NOON, "revision": 3}
    return JobRecord.model_validate(values | {"updated_at": NOON, "high_water": ASKED_AT} | fields)


def record(**fields: Any) -> BackfillRecord:
    """A backfill of the ten, two at a time."""
    values = {"job_id": JOB, "backfill_id": "b", "revision": 3, "start": NOMINALS[0], "end": NOMINALS[-1], "total": 10}
    return BackfillRecord.model_validate(values | {"max_concurrent": 2, "requested_at": ASKED_AT} | fields)


def own(number: int, status: RunStatus = RunStatus.SUCCESS, **fields: Any) -> Run:
    """The backfill's run of one of the ten, counted from 1."""
    nominal = NOMINALS[number - 1]
    values = {"run_id": f"{JOB}:{number}", "kind": RunKind.BACKFILL, "backfill_id": "b", "scheduled_at": nominal}
    return Run.model_validate(values | {"target_at": ASKED_AT, "created_at": ASKED_AT, "status": status} | fields)


def other(number: int) -> Run:
    """The fire's own run of one of the ten."""
    times = dict.fromkeys(("scheduled_at", "target_at", "created_at"), NOMINALS[number - 1])
    return Run.model_validate({"run_id": run_id(60 * number), "status": RunStatus.SUCCESS} | times)


def restore(asked: BackfillRecord, *runs: Run, **fields: Any) -> BackfillRestoration:
    """Restore a backfill of which the mirror knows these runs."""
    rows = tuple(RunRecord(job_id=JOB, version=9, run=run) for run in runs)
    values: dict[str, Any] = {"job": job(), "definition": job().definition} | fields
    remains = BackfillRemains(record=asked, nominals=NOMINALS, runs=rows, **values)
    return restore_backfill(remains, lost_at=LOST_AT, now=NOW)


def new_dead(restoration: BackfillRestoration) -> list[int]:
    """Number the fires that the restoration made dead letters of."""
    assert all(row.run.status is RunStatus.DEAD for row in restoration.rows.runs)
    assert all((row.run.reason or "").startswith(CLUSTER_LOST) for row in restoration.rows.runs)
    return [NOMINALS.index(row.run.scheduled_at) + 1 for row in restoration.rows.runs]


def counts(state: BackfillState) -> tuple[int, int, int, int]:
    """Say what the backfill has counted."""
    shown = state.record
    return shown.succeeded, shown.dead, shown.cancelled, shown.skipped


def left(state: BackfillState) -> list[int]:
    """Number the fires that the backfill has still to take."""
    request = fires_request(state)
    return [] if request is None else [n for n, at in enumerate(NOMINALS, 1) if request.after < at <= request.until]


def test_it_goes_on_behind_what_it_has_taken() -> None:
    """What was under way is a dead letter of its own; what has ended is counted by its runs, which know more than its row."""
    restoration = restore(
        record(through=NOMINALS[3], succeeded=1, running=(f"{JOB}:4",), trouble="waits"),
        *(own(1), own(2, RunStatus.DEAD), own(3, RunStatus.CANCELLED)),
        *(own(4, RunStatus.RUNNING), own(5, RunStatus.RUNNING, detached=True)),
    )
    assert new_dead(restoration) == [4, 5]
    assert (restoration.lost_runs, restoration.in_doubt) == (2, 0)
    assert counts(restoration.state) == (1, 3, 1, 0)
    assert left(restoration.state) == [6, 7, 8, 9, 10]
    [row] = restoration.rows.backfills
    assert row == restoration.state.record
    assert (row.status, row.running, row.trouble) == (BackfillStatus.RUNNING, (), None)
    assert row.version >= int(NOW.timestamp()) * 1_000_000


def test_what_it_may_have_begun_unrecorded_is_in_doubt_and_is_not_run() -> None:
    """As many as it may run at once: those that it is known to have taken, and the next ones that have no run."""
    restoration = restore(record(through=NOMINALS[2]), own(1), own(2))
    assert new_dead(restoration) == [3, 4]
    assert (restoration.lost_runs, restoration.in_doubt) == (0, 2)
    assert {row.run.outcome for row in restoration.rows.runs} == {Outcome.FAILED_TO_START}
    assert counts(restoration.state) == (2, 2, 0, 0)
    assert left(restoration.state) == [5, 6, 7, 8, 9, 10]
    assert new_dead(restore(record(through=NOMINALS[2]), own(1), own(2), own(3, RunStatus.RUNNING))) == [3, 4]
    assert new_dead(restore(record())) == [1, 2]


def test_fires_in_doubt_have_the_names_and_keys_of_the_runs_that_they_would_have_had() -> None:
    """So that none can have a second run, and a redrive repeats no effect."""
    skipping = [row.run for row in restore(record()).rows.runs]
    assert [run.run_id for run in skipping] == [f"{JOB}:backfill-20260608T12{minute}00Z" for minute in ("01", "02")]
    assert [run.idempotency_key for run in skipping] == [f"{JOB}:{int(at.timestamp())}" for at in NOMINALS[:2]]
    again = restore(record(existing=ExistingRuns.RUN_AGAIN)).rows.runs[0].run
    assert again.run_id == f"{JOB}:backfill-b-20260608T120100Z"
    assert again.idempotency_key.endswith(":b")
    assert (again.backfill_id, again.kind, again.revision) == ("b", RunKind.BACKFILL, 3)


def test_a_paused_one_stays_paused_and_only_what_it_has_taken_is_in_doubt() -> None:
    """It was beginning nothing."""
    paused = record(status=BackfillStatus.PAUSED, through=NOMINALS[2], reason="quiet hours")
    restoration = restore(paused, own(1), own(3))
    assert new_dead(restoration) == [2]
    assert (restoration.state.record.status, restoration.state.record.reason) == (BackfillStatus.PAUSED, "quiet hours")
    assert counts(restoration.state) == (2, 1, 0, 0)
    assert restoration.state.listed_through == NOMINALS[2]


def test_times_with_other_runs_are_passed_over_or_run_again_as_was_asked() -> None:
    """Nothing is in doubt of a time that the backfill would have passed over."""
    skipping = restore(record(through=NOMINALS[2]), own(1), other(2), other(3), other(4))
    assert counts(skipping.state) == (1, 2, 0, 3)
    assert new_dead(skipping) == [5, 6]
    again = restore(record(through=NOMINALS[0], existing=ExistingRuns.RUN_AGAIN), own(1), other(2))
    assert new_dead(again) == [2, 3]


def test_doing_it_again_puts_nothing_more_in_doubt() -> None:
    """It may be interrupted between the rows and the start."""
    first = restore(record(through=NOMINALS[2]), own(1), own(2), own(3, RunStatus.RUNNING))
    rows = [row.run for row in first.rows.runs]
    again = restore(first.state.record, own(1), own(2), *rows)
    assert new_dead(again) == []
    assert (counts(again.state), left(again.state)) == (counts(first.state), left(first.state))


def test_a_run_whose_own_workflow_is_there_is_waited_for() -> None:
    """It is neither dead nor begun anew."""
    restoration = restore(
        record(through=NOMINALS[1], max_concurrent=1),
        own(1),
        own(2, RunStatus.RUNNING),
        still_running=frozenset({f"{JOB}:2"}),
    )
    assert new_dead(restoration) == []
    assert [each.run_id for each in restoration.state.taken] == [f"{JOB}:2"]
    assert restoration.state.record.running == (f"{JOB}:2",)
    assert counts(restoration.state) == (1, 0, 0, 0)


def test_of_runs_that_are_forgotten_the_record_tells() -> None:
    """They are not run again, and are counted as they were."""
    asked = record(through=NOMINALS[7], succeeded=7, max_concurrent=1)
    restoration = restore(asked, own(6), own(7), own(8, RunStatus.RUNNING))
    assert new_dead(restoration) == [8]
    assert counts(restoration.state) == (7, 1, 0, 0)
    assert left(restoration.state) == [9, 10]


def test_one_that_had_begun_all_or_was_cancelled_ends() -> None:
    """As it would have."""
    full = restore(record(through=NOMINALS[-1]), *map(own, range(1, 11)))
    done = settle_backfill(full.state.model_copy(update={"listed_through": NOMINALS[-1]}), now=NOW, is_asking=False)
    assert (done.record.status, counts(done)) == (BackfillStatus.DONE, (10, 0, 0, 0))
    cancelling = restore(record(status=BackfillStatus.CANCELLING, through=NOMINALS[0]), own(1, RunStatus.RUNNING))
    ended = settle_backfill(cancelling.state, now=NOW, is_asking=False)
    assert (ended.record.status, counts(ended)) == (BackfillStatus.CANCELLED, (0, 1, 0, 0))


@pytest.mark.parametrize(
    ("revision", "kept", "found"),
    [(3, None, "present"), (3, "then", "present"), (4, "then", "then"), (2, "then", "then"), (4, None, None)],
)
def test_the_definition_is_the_one_of_when_it_was_asked_for(revision: int, kept: str | None, found: str | None) -> None:
    """The job's own where it is the same still; where the job has another by now, or the mirror is behind, what was kept."""
    definition = definition_of(
        record(),
        job(revision=revision, definition=JobDefinition(name="present")),
        kept=None if kept is None else JobDefinition(name=kept),
    )
    assert (definition and definition.name) == found


def test_it_goes_on_under_the_definition_of_when_it_was_asked_for() -> None:
    """Whatever the job is now: the runs that it makes, and those that it may have made."""
    then = JobDefinition(schedule=every(60), payload="then", idempotency_key_template="then-{{scheduled_at_unix}}")
    changed = job(revision=4, definition=JobDefinition(schedule=every(300), payload="now"))
    restoration = restore(record(through=NOMINALS[2]), own(1), own(2), job=changed, definition=then)
    assert restoration.state.definition == then
    assert restoration.state.record.revision == 3
    assert left(restoration.state) == [5, 6, 7, 8, 9, 10]
    doubtful = [row.run for row in restoration.rows.runs]
    assert [run.revision for run in doubtful] == [3, 3]
    assert [run.idempotency_key for run in doubtful] == [f"then-{int(at.timestamp())}" for at in NOMINALS[2:4]]


def test_one_whose_definition_is_lost_says_of_which_revision_it_was() -> None:
    """It ends rather than go on under another, and its counts stay."""
    reason = definition_lost(record())
    assert reason.startswith(CLUSTER_LOST)
    assert "revision 3 of the job" in reason


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, None),
        ({"revision": 4}, None),
        ({"lifecycle": Lifecycle.DELETED}, "the job was deleted"),
        ({"registered_at": ASKED_AT + timedelta(seconds=1)}, "registered again"),
        ({"lifecycle": Lifecycle.COMPLETED}, None),
        ({"lifecycle": Lifecycle.PAUSED}, None),
    ],
)
def test_one_whose_job_is_gone_ends_and_says_why(fields: dict[str, Any], reason: str | None) -> None:
    """Its counts stay. A job that was changed, is over or paused is there."""
    found = reason_to_end(record(), job(**fields))
    assert (found is None) == (reason is None)
    if found is not None:
        assert (reason or "") in found
        ended = end_backfill(record(through=NOMINALS[4], succeeded=5), reason=found, now=NOW)
        assert not is_open(ended.state)
        [row] = ended.rows.backfills
        assert (row.status, row.reason, row.succeeded) == (BackfillStatus.CANCELLED, found, 5)
        assert row.finished_at == NOW
