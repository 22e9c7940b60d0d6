"""The fires ahead of a job's high-water mark, as the API tells them."""

from datetime import UTC, datetime, timedelta

import pytest

from api.answer import lag_of
from api.next_run import with_next_run
from api.upcoming import undecided_entries, upcoming_fires
from workflows.fire_times import jitter_offset
from workflows.job import Hold, JobCounts, JobDefinition, JobRecord, Lifecycle
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
    record = record_of(HOURLY, next_run_at=late, high_water=late - HOUR)
    assert nominals(record) == [late, late + HOUR, late + 2 * HOUR]
    assert upcoming_fires(record, count=1, now=NOON)[0].local == "2026-06-08T17:00:00+05:45"


def test_what_a_run_blocks_is_not_what_comes_next() -> None:
    """Its fires are decided several at a time; meanwhile the row names one that has passed, and readers are told the next."""
    for minutes, active_runs, is_past in ((5, 1, False), (0.5, 0, False), (5, 0, True), (75, 1, True)):
        due = NOON - timedelta(minutes=minutes)
        record = record_of(HOURLY, next_run_at=due, next_target_at=due, high_water=due - HOUR, active_runs=active_runs)
        shown = with_next_run(record, now=NOON)
        assert shown.next_run_at == (due if is_past else NOON + timedelta(minutes=15))
        assert is_past or nominals(record, count=1) == [shown.next_run_at]
    assert lag_of(record, now=NOON) == timedelta(minutes=75)
    assert lag_of(record.model_copy(update={"next_target_at": NOON - timedelta(minutes=5)}), now=NOON) == timedelta(0)


def test_no_more_fires_are_told_than_runs_are_left() -> None:
    """``max_runs`` counts what was started already."""
    limited = HOURLY.model_copy(update={"max_runs": 5})
    assert len(nominals(record_of(limited, counts=JobCounts(started=3)))) == 2
    assert nominals(record_of(limited, counts=JobCounts(started=5))) == []


def test_a_job_that_does_not_fire_has_no_upcoming_fires() -> None:
    """Paused, completed, deleted."""
    for lifecycle in (Lifecycle.PAUSED, Lifecycle.COMPLETED, Lifecycle.DELETED):
        assert nominals(record_of(HOURLY, lifecycle=lifecycle)) == []
    for lifecycle in (Lifecycle.COMPLETED, Lifecycle.DELETED):
        assert not undecided_entries(record_of(HOURLY, lifecycle=lifecycle), start=NOON, end=NOON + HOUR, now=NOON)


def test_a_fire_that_was_carried_over_a_change_is_upcoming_and_its_schedule_is_not() -> None:
    """Between its nominal and its target time the job was changed: the old fire comes first, then those of the new schedule."""
    carried, changed_at = NOON + timedelta(minutes=15), NOON + timedelta(minutes=15, seconds=10)
    minutely = HOURLY.model_copy(update={"rule": CronRule(expression="* * * * *")})
    record = record_of(
        minutely, next_run_at=carried, next_target_at=carried + timedelta(seconds=33), high_water=changed_at
    )
    fires = upcoming_fires(record, count=2, now=changed_at)
    assert [(fire.nominal, fire.target) for fire in fires] == [
        (carried, carried + timedelta(seconds=33)),
        (carried + timedelta(minutes=1), carried + timedelta(minutes=1)),
    ]


def test_what_falls_into_a_pause_is_told_while_it_lasts() -> None:
    """As paused; a fire whose target is still to come may be in time for a resume."""
    jittered = HOURLY.model_copy(update={"time_critical": False, "jitter_window_seconds": 600.0})
    record = record_of(jittered, lifecycle=Lifecycle.PAUSED)
    offset = jitter_offset(jittered, job_id="j")
    second = NOON + timedelta(hours=1, minutes=15)
    for now, outcome in ((second + offset, Outcome.PAUSED), (second + offset / 2, Outcome.PENDING)):
        entries = undecided_entries(record, start=NOON, end=now, now=now)
        assert sum(entry.count for entry in entries) == 2
        assert (entries[0].first, entries[0].outcome) == (NOON + timedelta(minutes=15), Outcome.PAUSED)
        assert (entries[-1].last, entries[-1].outcome) == (second, outcome)


def test_fires_that_nobody_has_decided_are_pending_in_the_ledger() -> None:
    """While the workers are away, nothing that is due is missing from the ledger; what is excluded is not due."""
    schedule = HOURLY.model_copy(update={"exclude": Exclusions(cron=("0 19 * * *",))})
    entries = undecided_entries(record_of(schedule), start=NOON - HOUR, end=NOON + 3 * HOUR, now=NOON)
    assert [(entry.first, entry.count, entry.outcome) for entry in entries] == [
        (NOON + timedelta(minutes=15), 1, Outcome.PENDING),
        (NOON + timedelta(hours=2, minutes=15), 1, Outcome.PENDING),
    ]


def test_what_is_decided_is_not_told_again() -> None:
    """Fires up to the high-water mark are the mirror's to tell; the range begins inclusively."""
    after = NOON + timedelta(minutes=15)
    assert not undecided_entries(record_of(HOURLY, high_water=after), start=NOON, end=after, now=after)
    assert undecided_entries(record_of(HOURLY), start=after, end=after, now=after)[0].first == after


@pytest.mark.parametrize("lifecycle", [Lifecycle.ACTIVE, Lifecycle.PAUSED])
def test_a_range_may_begin_with_time_itself(lifecycle: Lifecycle) -> None:
    """No moment that can be asked for is too early to be answered."""
    first = datetime.min.replace(tzinfo=UTC)
    record = record_of(HOURLY, lifecycle=lifecycle)
    assert sum(entry.count for entry in undecided_entries(record, start=first, end=NOON + HOUR, now=NOON + HOUR)) == 1
    assert not undecided_entries(record, start=first, end=first, now=NOON)


def test_a_held_job_fires_after_the_hold_or_nobody_knows_when() -> None:
    """What fell into it is told while it lasts; what comes after its end is not decided yet."""
    until = NOON + 3 * HOUR
    hold = Hold(hold_id="h", at=NOON, until=until)
    nominal = NOON + HOUR / 4
    record = record_of(HOURLY, holds=(hold,), next_run_at=nominal + 3 * HOUR)
    assert nominals(record) == [nominal + hours * HOUR for hours in (3, 4, 5)]
    assert nominals(record_of(HOURLY, holds=(hold.model_copy(update={"until": None}),), next_run_at=None)) == []
    entries = undecided_entries(record, start=NOON, end=NOON + 5 * HOUR, now=NOON + 4.5 * HOUR)
    assert [(entry.outcome, entry.count) for entry in entries] == [(Outcome.HELD, 3), (Outcome.PENDING, 2)]
    assert entries[0].reason == "held by h"
