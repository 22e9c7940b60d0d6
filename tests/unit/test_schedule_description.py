"""Schedules in words."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.schedules import EXAMPLES, parsed
from workflows.cron_expression import parse_cron
from workflows.error import InvalidSchedule
from workflows.schedule_description import describe_schedule

_NEW_YORK = "America/New_York"


@pytest.mark.parametrize(
    ("schedule", "zone", "expected"),
    [
        ("0 9 * * 1", _NEW_YORK, "At 09:00, only on Monday, New York time"),
        ("0 9,17 * * 1-5", "UTC", "At 09:00 and 17:00, only on Monday through Friday, UTC"),
        ("*/15 * * * *", "UTC", "Every 15 minutes, UTC"),
        ("0,15,30,45 * * * *", "UTC", "Every 15 minutes, UTC"),
        ("*/7 * * * *", "UTC", "Every 7 minutes, starting anew each hour, UTC"),
        ("* * * * *", "UTC", "Every minute, UTC"),
        ("@hourly", "UTC", "Every hour, UTC"),
        ("20 9-17 * * *", "UTC", "Every hour from 09:20 through 17:20, UTC"),
        ("*/5 8,12 * * *", "UTC", "Every 5 minutes, in the hours 08 and 12, UTC"),
        ("0 0 13 * 5", "UTC", "At 00:00, on day 13 of the month or on Friday, UTC"),
        ("0 0 */2 * 1", "UTC", "At 00:00, on every 2nd day of the month from day 1 if it is Monday, UTC"),
        ("0 0 L * *", "UTC", "At 00:00, on the last day of the month, UTC"),
        ("0 0 * * 5L", "UTC", "At 00:00, only on the last Friday of the month, UTC"),
        ("0 0 * * mon#2", "UTC", "At 00:00, only on the second Monday of the month, UTC"),
        ("0 0 * * fri-sun", "UTC", "At 00:00, only on Friday through Sunday, UTC"),
        ("0 0 1 1,3-5 *", "UTC", "At 00:00, on day 1 of the month, only in January and March through May, UTC"),
        ("30 0 9 * * *", "UTC", "At 09:00:30, UTC"),
        ("*/20 * * * * *", "UTC", "Every 20 seconds, UTC"),
        ("0 9 * * *", "Etc/GMT+3", "At 09:00, UTC-3"),
        ("@every 90m", _NEW_YORK, "Every 1 hour 30 minutes of elapsed time"),
        ({"every": 86_400}, _NEW_YORK, "Every 1 day of elapsed time"),
        ("2026-08-01T09:00:00Z", _NEW_YORK, "Once, at 2026-08-01 09:00:00 UTC"),
        ("2026-08-01T09:00", "Asia/Tokyo", "Once, at 2026-08-01 09:00:00, Tokyo time"),
        ({"rrule": "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17"}, "UTC", "Every month, on the last Friday, at 17:00, UTC"),
        (
            {"rrule": "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE;COUNT=5", "dtstart": "2026-06-01T09:30:00"},
            "UTC",
            "Every 2 weeks, on Monday and Wednesday, at 09:30, from 2026-06-01, 5 times, UTC",
        ),
    ],
)
def test_a_schedule_says_what_it_does(schedule: Any, zone: str, expected: str) -> None:
    """Times, days, zone; *or* where the day fields are alternatives."""
    assert describe_schedule(parsed(schedule, zone).schedule) == expected


def test_sb_017_an_interval_never_names_a_time_of_day() -> None:
    """A day of elapsed time is not a local day."""
    words = describe_schedule(parsed({"every": "P1D", "anchor": "2026-01-01T00:00:00"}, _NEW_YORK).schedule)
    assert words == "Every 1 day of elapsed time, counted from 2026-01-01 05:00:00 UTC"
    assert "daily" not in words.lower()


def test_sb_029_alternatives_are_told_as_such() -> None:
    """13th OR Friday."""
    assert "day 13 of the month or on Friday" in describe_schedule(parsed("0 0 13 * 5").schedule)


def test_h_is_told_with_the_job_and_explained_without() -> None:
    """A preview without a job has no time to name."""
    schedule = parsed("H H(0-7) * * *").schedule
    assert "that the job's id decides (H(0-7))" in describe_schedule(schedule)
    expression = parse_cron("H H(0-7) * * *", job_id="job")
    time = f"{min(expression.hour.values):02}:{min(expression.minute.values):02}"
    assert describe_schedule(schedule, job_id="job") == f"At {time}, UTC"


def test_limits_exclusions_and_policies_are_told() -> None:
    """After the rule."""
    schedule = parsed(
        "0 2 * * *",
        "Europe/Berlin",
        dst={"gap": "skip", "fold": "both"},
        exclude={"dates": ["2026-12-25"], "cron": ["* * * * 0,6"]},
        start_at="2026-01-01T00:00:00Z",
        max_runs=5,
    ).schedule
    assert describe_schedule(schedule) == (
        "At 02:00, Berlin time, from 2026-01-01 00:00:00 UTC, at most 5 runs, except on 2026-12-25, "
        "except every minute, only on Saturday and Sunday; times that a clock change skips are left out; "
        "times that come twice run both times"
    )


_ITEM = st.sampled_from(
    ["*", "?", "1", "5", "1-5", "*/2", "*/7", "2/3", "L", "5L", "1#2", "H", "H/3", "H(1-4)", "1,3,5"]
)


@settings(max_examples=EXAMPLES * 5, deadline=None)
@given(st.lists(_ITEM, min_size=5, max_size=6).map(" ".join), st.sampled_from(["", "job"]))
def test_whatever_can_be_parsed_can_be_described(text: str, job_id: str) -> None:
    """One line of words for every schedule that is accepted."""
    try:
        schedule = parsed(text, "Asia/Tokyo", job_id=job_id).schedule
    except InvalidSchedule:
        return
    words = describe_schedule(schedule, job_id=job_id)
    assert words.endswith("Tokyo time")
    assert words[0].isupper()
    assert "\n" not in words
    assert ", ," not in words
