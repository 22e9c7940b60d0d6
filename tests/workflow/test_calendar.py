"""Calendars in a running job, on a server that skips time: what a day removes is explained, what it moves runs once."""

from datetime import datetime, timedelta

from tests.workflow.harness import job, skipping_time
from workflows.job import Lifecycle
from workflows.run import Outcome

DAY = timedelta(days=1)
HOLIDAYS = (2, 3, 6)
"""Days after the first on which there is no business."""


def daily(begin: datetime, **fields: object) -> dict[str, object]:
    """Nine days at the same time, without weekends; the calendar has three of them."""
    days = [(begin + number * DAY).date() for number in HOLIDAYS]
    return {
        "rule": {"kind": "cron", "expression": f"{begin.minute} {begin.hour} * * *"},
        "jitter_window_seconds": 0,
        "start_at": begin,
        "end_at": begin + 8 * DAY,
        "calendars": [{"name": "closed", "spans": [(day, day) for day in days], "weekend": []}],
        **fields,
    }


async def test_days_of_a_calendar_are_in_the_ledger_or_have_moved() -> None:
    """Excluded: an entry each, with the calendar's name. Moved: on the next day's fire, which runs once and stands alone."""
    async with skipping_time() as (environment, harness):
        begin = (await environment.get_current_time()).replace(second=0, microsecond=0) + timedelta(minutes=2)
        excluding = daily(begin, exclude={"calendars": ["closed"]})
        moving = daily(begin, business_days={"calendar": "closed", "roll": "next"})
        jobs = [await harness.register(job(schedule=schedule)) for schedule in (excluding, moving)]
        for job_id in jobs:
            await harness.until_closed(job_id, Lifecycle.COMPLETED, limit=60)
            ran = sorted(run.scheduled_at for run in harness.mirror.runs[job_id].values())
            assert ran == [begin + number * DAY for number in range(9) if number not in HOLIDAYS]
        entries = harness.mirror.ledger[jobs[0]]
        assert sum(entry.count for entry in entries.values()) == len(HOLIDAYS)
        assert {(entry.outcome, entry.reason) for entry in entries.values()} == {(Outcome.EXCLUDED, "calendar closed")}
        assert not harness.mirror.ledger.get(jobs[1])
