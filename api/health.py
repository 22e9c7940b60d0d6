"""Why a job does not do what it should, as far as the mirror and Temporal tell. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from api.answer import Health, lag_of
from api.temporal_probe import WorkflowLook
from workflows.job import JobRecord, Lifecycle
from workflows.run import Run

OVERDUE_AFTER: Final = timedelta(minutes=1)
"""A fire may be late by a restart of a worker; past this somebody should look."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What is known beside a job's record. ``None`` means that nobody knows, or that nobody looked."""

    polled: bool | None = None
    """Whether any worker polls its task queue."""

    parked: Run | None = None
    """Its newest run that is held without using up an attempt."""

    workflow: WorkflowLook | None = None


def health_of(record: JobRecord, findings: Findings, *, now: datetime) -> Health:
    """Judge a job."""
    reasons = [*_reasons(record, findings, now=now)]
    return Health(ok=not reasons, reasons=reasons)


def _reasons(record: JobRecord, findings: Findings, *, now: datetime) -> Iterator[str]:
    if record.lifecycle is Lifecycle.DELETED:
        return
    if record.trouble:
        yield record.trouble
    lag = lag_of(record, now=now)
    if lag > OVERDUE_AFTER:
        yield f"overdue: the next fire should have started {int(lag.total_seconds())} s ago"
    if findings.parked is not None:
        yield f"run {findings.parked.run_id} is parked: {findings.parked.reason or 'no reason was recorded'}"
    if record.lifecycle is Lifecycle.COMPLETED:
        return
    if findings.polled is False:
        yield f"no worker polls task queue {record.definition.target.task_queue!r}"
    if findings.workflow is not None and not findings.workflow.is_known:
        yield "not scheduled: Temporal does not have its workflow; `horarium restore` starts it again"
    elif findings.workflow is not None and not findings.workflow.is_open:
        yield (
            "not scheduled: its workflow was ended in Temporal; "
            "it is started again within minutes, or at once by `horarium mirror reconcile`"
        )
    if findings.workflow is not None and findings.workflow.problems:
        yield f"its workflow cannot go on: {', '.join(findings.workflow.problems)}"
