"""The fires of a job that lie ahead of its high-water mark: those to come, and those that nobody has decided yet. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from api.answer import FireAnswer
from api.preview import list_fires
from workflows.fire_times import survey_fires
from workflows.job import JobRecord, LedgerEntry, Lifecycle
from workflows.run import Outcome

_JUST_BEFORE: Final = timedelta(seconds=1)
"""Nominal times are whole seconds."""


def upcoming_fires(record: JobRecord, *, count: int, now: datetime) -> Sequence[FireAnswer]:
    """List the next fires of a job, the one at ``next_run_at`` first; none for a job that does not fire."""
    if record.lifecycle is not Lifecycle.ACTIVE:
        return []
    schedule = record.definition.schedule
    left = count if schedule.max_runs is None else min(count, max(schedule.max_runs - record.counts.started, 0))
    after = record.next_run_at - _JUST_BEFORE if record.next_run_at else max(record.high_water, now)
    return list_fires(schedule, job_id=record.job_id, after=after, count=left)


def undecided_entries(record: JobRecord, *, start: datetime, end: datetime) -> Sequence[LedgerEntry]:
    """List the nominal times up to ``end`` that the job has not decided yet: none while its worker keeps up."""
    after = max(record.high_water, start - _JUST_BEFORE)
    if record.lifecycle is not Lifecycle.ACTIVE or after >= end:
        return []
    survey = survey_fires(record.definition.schedule, job_id=record.job_id, after=after, until=end, newest=0)
    return [
        LedgerEntry(
            first=each.first,
            last=each.last,
            count=each.count,
            outcome=Outcome.PENDING,
            reason="not decided yet",
            revision=record.revision,
        )
        for each in survey.ranges
        if each.excluded_by is None
    ]
