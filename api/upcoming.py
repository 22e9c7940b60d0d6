"""The fires of a job that lie ahead of its high-water mark: those to come, and those that nobody has decided yet. Pure."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from api.answer import FireAnswer
from api.next_run import with_next_run
from api.preview import list_fires
from workflows.change import FIRING
from workflows.fire_times import jitter_offset, survey_fires
from workflows.hold import is_held, release_time, standstill
from workflows.job import JobRecord, LedgerEntry, Lifecycle
from workflows.run import Outcome
from workflows.schedule import Fire

_JUST_BEFORE: Final = timedelta(seconds=1)
"""Nominal times are whole seconds."""

UNDECIDED: Final = "not decided yet"


def upcoming_fires(record: JobRecord, *, count: int, now: datetime) -> Sequence[FireAnswer]:
    """List the next fires of a job, the one at ``next_run_at`` first; none for a job that does not fire.

    Those of a held job begin after the hold; there are none where its end is not known.
    """
    if record.lifecycle is not Lifecycle.ACTIVE or (record.holds and record.next_run_at is None):
        return []
    record = with_next_run(record, now=now)
    schedule = record.definition.schedule
    left = count if schedule.max_runs is None else min(count, max(schedule.max_runs - record.counts.started, 0))
    carried = _carried_fire(record)[:left]
    after = record.next_run_at - _JUST_BEFORE if record.next_run_at and not carried else now
    after = max(after, record.high_water)
    return [*carried, *list_fires(schedule, job_id=record.job_id, after=after, count=left - len(carried))]


def _carried_fire(record: JobRecord) -> list[FireAnswer]:
    """Tell a fire that a change of the job found between its nominal and its target time: its schedule may be gone."""
    nominal, target = record.next_run_at, record.next_target_at
    if nominal is None or target is None or nominal > record.high_water or record.holds:
        return []
    return [FireAnswer.of(Fire(nominal=nominal, target=target), timezone=record.definition.schedule.timezone)]


def undecided_entries(record: JobRecord, *, start: datetime, end: datetime, now: datetime) -> Sequence[LedgerEntry]:
    """List the nominal times up to ``end`` that the job has not entered yet.

    While its worker keeps up these are those between nominal and target time; of a paused or held job, all that fell into that.
    """
    earliest = datetime.min.replace(tzinfo=UTC) + _JUST_BEFORE
    after = max(record.high_water, max(start, earliest) - _JUST_BEFORE)
    if record.lifecycle not in FIRING or after >= end:
        return []
    still = standstill(record)
    if still is None:
        return [*_entries(record, after=after, until=end, outcome=Outcome.PENDING, reason=UNDECIDED)]
    passed = now if not is_held(record) else min(now, release_time(record.holds) or now)
    passed -= jitter_offset(record.definition.schedule, job_id=record.job_id)
    still_until = min(max(after, passed), end)
    return [
        *_entries(record, after=after, until=still_until, outcome=still.outcome, reason=still.reason),
        *_entries(record, after=still_until, until=end, outcome=Outcome.PENDING, reason=UNDECIDED),
    ]


def _entries(
    record: JobRecord, *, after: datetime, until: datetime, outcome: Outcome, reason: str
) -> Iterator[LedgerEntry]:
    survey = survey_fires(record.definition.schedule, job_id=record.job_id, after=after, until=until, newest=0)
    for each in survey.ranges:
        if each.excluded_by is None:
            yield LedgerEntry(
                first=each.first,
                last=each.last,
                count=each.count,
                outcome=outcome,
                reason=reason,
                revision=record.revision,
            )
