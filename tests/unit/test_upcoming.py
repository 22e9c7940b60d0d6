"""The fires ahead of a job's high-water mark, as the API tells them."""

from datetime import UTC, datetime, timedelta

from api.upcoming import undecided_entries, upcoming_fires
from workflows.job import JobCounts, JobDefinition, JobRecord, Lifecycle
from workflows.run import Outcome
from workflows.schedule import CronRule, Exclusions, Schedule

NOON = datetime(2026, 6, 8, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def record_of(schedule: Schedule, **changes: object) -> JobRecord:
    record = JobRecord(
        job_id="j",
        registered_at=NOON,
        updated_at=NOON,
        high_water=NOON,
        next_run_at=NOON + HOUR,
        definition=JobDefinition(schedule=schedule),
    )
    return record.model_copy(update=changes)


HOURLY = Schedule(rule=CronRule(expression="0 * * * *"), time_critical=True, timezone="Asia/Kathmandu")


def nominals(record: JobRecord, *, count: int = 3) -> list[datetime]:
    return [fire.nominal for fire in upcoming_fires(record, count=count, now=NOON)]


def test_the_first_upcoming_fire_is_next_run_at() -> None:
    """One answer everywhere, also when that fire is overdue."""
    late = NOON - timedelta(minutes=45)
    record = record_of(HOURLY, next_run_at=late)
    assert nominals(record) == [late, late + HOUR, late + 2 * HOUR]
    assert upcoming_fires(record, count=1, now=NOON)[0].local == "2026-06-08T17:00:00+05:45"


def test_no_more_fires_are_told_than_runs_are_left() -> None:
    """``max_runs`` counts what was started already."""
    limited = HOURLY.model_copy(update={"max_runs": 5})
    assert len(nominals(record_of(limited, counts=JobCounts(started=3)))) == 2
    assert nominals(record_of(limited, counts=JobCounts(started=5))) == []


def test_a_job_that_does_not_fire_has_no_upcoming_fires() -> None:
    """Paused, completed, deleted."""
    for lifecycle in (Lifecycle.PAUSED, Lifecycle.COMPLETED, Lifecycle.DELETED):
        assert nominals(record_of(HOURLY, lifecycle=lifecycle)) == []
        assert not undecided_entries(record_of(HOURLY, lifecycle=lifecycle), start=NOON, end=NOON + HOUR)


def test_fires_that_nobody_has_decided_are_pending_in_the_ledger() -> None:
    """While the workers are away, nothing that is due is missing from the ledger; what is excluded is not due."""
    schedule = HOURLY.model_copy(update={"exclude": Exclusions(cron=("0 19 * * *",))})
    entries = undecided_entries(record_of(schedule), start=NOON - HOUR, end=NOON + 3 * HOUR)
    assert [(entry.first, entry.count, entry.outcome) for entry in entries] == [
        (NOON + timedelta(minutes=15), 1, Outcome.PENDING),
        (NOON + timedelta(hours=2, minutes=15), 1, Outcome.PENDING),
    ]


def test_what_is_decided_is_not_told_again() -> None:
    """Fires up to the high-water mark are the mirror's to tell; the range begins inclusively."""
    after = NOON + timedelta(minutes=15)
    assert not undecided_entries(record_of(HOURLY, high_water=after), start=NOON, end=after)
    assert undecided_entries(record_of(HOURLY), start=after, end=after)[0].first == after
