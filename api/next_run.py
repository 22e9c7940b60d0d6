"""The next fire of a job at the moment of reading. Pure.

Its row is as of the job's last turn. Fires that a run blocks are decided several at a time, and that of this moment is recorded
when its run answers: until then the row names a time that has passed.
"""

from datetime import datetime

from activities.mirror_survey import BUSY_FOR, OVERDUE_AFTER
from workflows.fire_times import jitter_offset, next_fires
from workflows.job import JobRecord, Lifecycle


def is_held_up(record: JobRecord, *, now: datetime) -> bool:
    """Say whether the next fire is past because a run of the job is under way, and not because nobody decides it."""
    return record.next_target_at is not None and record.active_runs > 0 and now - record.next_target_at <= BUSY_FOR


def with_next_run(record: JobRecord, *, now: datetime) -> JobRecord:
    """Let a row name the first fire that is still to come. One that is long overdue stays: that is what an operator must see."""
    target = record.next_target_at
    if record.lifecycle is not Lifecycle.ACTIVE or target is None or target > now:
        return record
    if not is_held_up(record, now=now) and now - target > OVERDUE_AFTER:
        return record
    schedule, job_id = record.definition.schedule, record.job_id
    after = max(now - jitter_offset(schedule, job_id=job_id), record.high_water)
    fires = next_fires(schedule, job_id=job_id, after=after, count=1)
    if not fires:
        return record
    return record.model_copy(update={"next_run_at": fires[0].nominal, "next_target_at": fires[0].target})
