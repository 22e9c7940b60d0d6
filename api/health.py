"""Why a job does not do what it should, as far as the mirror and Temporal tell. Pure."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from api.answer import Health, lag_of
from workflows.job import JobRecord, Lifecycle
from workflows.run import Run

OVERDUE_AFTER: Final = timedelta(minutes=1)
"""A fire may be late by a restart of a worker; past this somebody should look."""


def health_of(record: JobRecord, *, polled: bool | None, parked: Run | None, now: datetime) -> Health:
    """Judge a job.

    ``polled`` says whether any worker polls its task queue, ``None`` that nobody knows. ``parked`` is its newest run
    that is held without using up an attempt.
    """
    reasons = [*_reasons(record, polled=polled, parked=parked, now=now)]
    return Health(ok=not reasons, reasons=reasons)


def _reasons(record: JobRecord, *, polled: bool | None, parked: Run | None, now: datetime) -> Iterator[str]:
    if record.lifecycle is Lifecycle.DELETED:
        return
    if record.trouble:
        yield record.trouble
    lag = lag_of(record, now=now)
    if lag > OVERDUE_AFTER:
        yield f"overdue: the next fire should have started {int(lag.total_seconds())} s ago"
    if polled is False and record.lifecycle is not Lifecycle.COMPLETED:
        yield f"no worker polls task queue {record.definition.target.task_queue!r}"
    if parked is not None:
        yield f"run {parked.run_id} is parked: {parked.reason or 'no reason was recorded'}"
