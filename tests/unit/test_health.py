"""Why a job does not do what it should."""

from datetime import UTC, datetime, timedelta

import pytest

from api.health import Findings, health_of
from api.temporal_probe import WorkflowLook
from workflows.job import JobDefinition, JobRecord, Lifecycle
from workflows.run import Run, RunStatus
from workflows.target import ActivityTarget

NOW = datetime(2026, 6, 8, 12, tzinfo=UTC)
DEFINITION = JobDefinition(target=ActivityTarget(activity="send_report", task_queue="reports"))
PARKED = Run(
    run_id="j:1",
    scheduled_at=NOW,
    target_at=NOW,
    created_at=NOW,
    status=RunStatus.PARKED,
    reason="no worker knows activity send_report",
)


def reasons(
    *,
    polled: bool | None = True,
    parked: Run | None = None,
    workflow: WorkflowLook | None = None,
    **changes: object,
) -> list[str]:
    record = JobRecord(job_id="j", registered_at=NOW, updated_at=NOW, high_water=NOW, definition=DEFINITION)
    findings = Findings(polled=polled, parked=parked, workflow=workflow)
    health = health_of(record.model_copy(update=changes), findings, now=NOW)
    assert health.ok == (not health.reasons)
    return health.reasons


def test_a_job_that_waits_for_its_next_fire_is_healthy() -> None:
    """Nothing to say; not knowing about pollers is no accusation, nor is a fire that is a little late."""
    assert reasons(next_target_at=NOW + timedelta(hours=1)) == []
    assert reasons(polled=None) == []
    assert reasons(next_target_at=NOW - timedelta(seconds=60)) == []


def test_an_overdue_fire_is_told() -> None:
    """Workers are away: the next fire lies more than a minute in the past (SB-095)."""
    assert reasons(next_target_at=NOW - timedelta(seconds=61)) == [
        "overdue: the next fire should have started 61 s ago"
    ]


@pytest.mark.parametrize(
    ("lifecycle", "told"),
    [(Lifecycle.ACTIVE, True), (Lifecycle.PAUSED, True), (Lifecycle.COMPLETED, False), (Lifecycle.DELETED, False)],
)
def test_a_queue_that_nobody_polls_is_told_while_it_matters(lifecycle: Lifecycle, told: bool) -> None:
    """A job that will never run again needs no worker."""
    assert reasons(polled=False, lifecycle=lifecycle) == (["no worker polls task queue 'reports'"] if told else [])


def test_a_parked_run_and_the_jobs_own_trouble_are_told() -> None:
    """What the workflow says, and what its runs say."""
    assert reasons(parked=PARKED, trouble="cannot plan: no zone") == [
        "cannot plan: no zone",
        "run j:1 is parked: no worker knows activity send_report",
    ]


def test_a_workflow_that_is_gone_or_stuck_is_told() -> None:
    """SB-163: somebody ended it in Temporal, or its tasks fail; a completed job needs none."""
    gone = WorkflowLook(is_open=False)
    [told] = reasons(workflow=gone)
    assert told.startswith("not scheduled: its workflow was ended in Temporal")
    assert "`horarium mirror reconcile`" in told
    assert reasons(workflow=WorkflowLook(is_open=False, is_known=False)) == [
        "not scheduled: Temporal does not have its workflow; `horarium restore` starts it again"
    ]
    assert reasons(workflow=gone, lifecycle=Lifecycle.COMPLETED) == []
    assert reasons(workflow=WorkflowLook(is_open=True)) == []
    stuck = WorkflowLook(is_open=True, problems=("category=WorkflowTaskFailed",))
    assert reasons(workflow=stuck) == ["its workflow cannot go on: category=WorkflowTaskFailed"]
