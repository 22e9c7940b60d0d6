"""What callers send, and how what is wrong with it is said."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.unit.schedules import EXAMPLES, at, parsed
from workflows.error import InvalidSchedule
from workflows.schedule import CronRule, GapPolicy, IntervalRule, OneOffRule, RRuleRule
from workflows.schedule_parser import check_fires


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ("0 9 * * 1", CronRule(expression="0 9 * * 1")),
        ("@daily", CronRule(expression="@daily")),
        ({"cron": "0 9 * * 1"}, CronRule(expression="0 9 * * 1")),
        ("@every 15m", IntervalRule(every=timedelta(minutes=15))),
        ("@every 1h30m", IntervalRule(every=timedelta(minutes=90))),
        ("@Every 1d12h", IntervalRule(every=timedelta(hours=36))),
        ({"every": "PT6H"}, IntervalRule(every=timedelta(hours=6))),
        ({"every": "P1DT12H"}, IntervalRule(every=timedelta(hours=36))),
        ({"every": "PT1.5H"}, IntervalRule(every=timedelta(minutes=90))),
        ({"every": "P2W"}, IntervalRule(every=timedelta(weeks=2))),
        ({"every": 90}, IntervalRule(every=timedelta(seconds=90))),
        ({"every": 90.0}, IntervalRule(every=timedelta(seconds=90))),
        (
            {"every": "PT6H", "anchor": "2026-01-01T01:00:00+01:00"},
            IntervalRule(every=timedelta(hours=6), anchor=datetime(2026, 1, 1, tzinfo=UTC)),
        ),
        ("2026-08-01T09:00:00Z", OneOffRule(at=datetime(2026, 8, 1, 9, tzinfo=UTC))),
        ("2026-08-01t09:00z", OneOffRule(at=datetime(2026, 8, 1, 9, tzinfo=UTC))),
        ("2026-08-01 09:00:00.000", OneOffRule(local=datetime(2026, 8, 1, 9))),  # noqa: DTZ001 - local
        ({"at": "2026-08-01T09:00:00+02:00"}, OneOffRule(at=datetime(2026, 8, 1, 7, tzinfo=UTC))),
        (
            {"rrule": "RRULE:FREQ=DAILY", "dtstart": "2026-01-01T00:00:00Z"},
            RRuleRule(rrule="FREQ=DAILY", dtstart=datetime(2026, 1, 1)),  # noqa: DTZ001 - local
        ),
        ({"rrule": "FREQ=DAILY"}, RRuleRule(rrule="FREQ=DAILY", dtstart=datetime(1970, 1, 1))),  # noqa: DTZ001 - local
    ],
)
def test_each_spelling_of_a_schedule_is_read(given: Any, rule: Any) -> None:
    """Strings and objects."""
    assert parsed(given).schedule.rule == rule


@pytest.mark.parametrize(
    "value",
    [0, -1, 0.0001, 0.5, 1.5, 2**63, 2.0**40, "60", float("nan"), float("inf"), True, "", "PT0S", "P1M", "1y", "-5m"],
)
def test_sb_133_intervals_outside_of_the_limits_are_refused(value: Any) -> None:
    """Whole seconds from one second to a hundred years; a number in quotes has no unit."""
    with pytest.raises(InvalidSchedule) as caught:
        parsed({"every": value})
    assert caught.value.pointer == "/schedule/every"


@pytest.mark.parametrize("value", [1, 60, 1e9, 2**31])
def test_sb_133_long_intervals_work(value: Any) -> None:
    """Up to a hundred years."""
    check_fires(parsed({"every": value}), job_id="job", after=at("2026-01-01T00:00Z"))


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"schedule": "60 * * * *"}, "/schedule"),
        ({"schedule": {"cron": "60 * * * *"}}, "/schedule/cron"),
        ({"schedule": ""}, "/schedule"),
        ({"schedule": "@every"}, "/schedule"),
        ({"schedule": "@every 5 minutes"}, "/schedule"),
        ({"schedule": "2026-13-01T00:00:00Z"}, "/schedule"),
        ({"schedule": "2026-08-01"}, "/schedule"),
        ({"schedule": "2026-08-01T09:00:00.5Z"}, "/schedule"),
        ({"schedule": "2026-08-01T24:01:00Z"}, "/schedule"),
        ({"schedule": "FREQ=DAILY"}, "/schedule"),
        ({"schedule": {}}, "/schedule"),
        ({"schedule": {"every": "1h", "cron": "* * * * *"}}, "/schedule"),
        ({"schedule": {"at": "0001-01-01T00:00:00+05:00"}}, "/schedule/at"),
        ({"schedule": {"every": "1h", "anchor": "noon"}}, "/schedule/anchor"),
        ({"schedule": {"cron": "* * * * *", "anchor": "2026-01-01T00:00:00Z"}}, "/schedule/anchor"),
        ({"schedule": {"rrule": "FREQ=NEVER"}}, "/schedule/rrule"),
        ({"schedule": {"rrule": "FREQ=DAILY", "dtstart": "soon"}}, "/schedule/dtstart"),
        ({"schedule": {"rrule": "FREQ=DAILY", "dtstart": "0001-01-01T00:00:00"}}, "/schedule/rrule"),
        ({"schedule": {"rrule": "RRULE:FREQ=DAILY\nEXDATE:20260101T000000"}}, "/schedule/rrule"),
        ({"schedule": {"rrule": "DTSTART;TZID=Mars/Base:20260101T000000\nRRULE:FREQ=DAILY"}}, "/schedule/rrule"),
        ({"schedule": {"at": "2026-01-01T00:00:00Z", "dtstart": "2026-01-01T00:00:00Z"}}, "/schedule/dtstart"),
        ({"schedule": "* * * * *", "timezone": "Mars/Base"}, "/timezone"),
        ({"schedule": "* * * * *", "timezone": ""}, "/timezone"),
        ({"schedule": "* * * * *", "dst": {"gap": "jump"}}, "/dst/gap"),
        ({"schedule": "* * * * *", "dst": {"fold": "none"}}, "/dst/fold"),
        ({"schedule": "* * * * *", "exclude": {"dates": ["2026-12-25", "25.12."]}}, "/exclude/dates/1"),
        ({"schedule": "* * * * *", "exclude": {"dates": ["2026-02-30"]}}, "/exclude/dates/0"),
        ({"schedule": "* * * * *", "exclude": {"dates": ["2026-01-01"] * 1_001}}, "/exclude/dates"),
        ({"schedule": "* * * * *", "exclude": {"cron": ["* * * * *", "bad"]}}, "/exclude/cron/1"),
        ({"schedule": "* * * * *", "exclude": {"cron": ["* * * * *"] * 21}}, "/exclude/cron"),
        ({"schedule": "* * * * *", "start_at": "yesterday"}, "/start_at"),
        ({"schedule": "* * * * *", "end_at": "2026-02-30T00:00:00Z"}, "/end_at"),
        ({"schedule": "* * * * *", "max_runs": 0}, "/max_runs"),
        ({"schedule": "* * * * *", "jitter_window_seconds": -1}, "/jitter_window_seconds"),
        ({"schedule": "* * * * *", "jitter_window_seconds": float("nan")}, "/jitter_window_seconds"),
        ({"schedule": "* * * * *", "jitter_window_seconds": float("inf")}, "/jitter_window_seconds"),
    ],
)
def test_a_refusal_points_to_its_field(body: dict[str, Any], pointer: str) -> None:
    """A JSON pointer into the body that was sent, and words."""
    with pytest.raises(InvalidSchedule) as caught:
        parsed(body.pop("schedule"), body.pop("timezone", None), **body)
    assert caught.value.pointer == pointer
    assert caught.value.reason


@pytest.mark.parametrize("body", [{"schedule": 5}, {"schedule": None}, {"schedule": {"every": None, "hourly": True}}])
def test_what_is_no_schedule_at_all_is_for_the_body_to_refuse(body: dict[str, Any]) -> None:
    """Wrong JSON types and unknown fields."""
    with pytest.raises((ValidationError, InvalidSchedule)):
        parsed(**body)


def test_a_position_counts_in_the_text_that_was_sent() -> None:
    """Blanks in front included."""
    with pytest.raises(InvalidSchedule) as caught:
        parsed("  61 * * * *")
    assert caught.value.position == 2


def test_policies_are_read_in_any_case() -> None:
    """As all enum values."""
    assert parsed("* * * * *", dst={"gap": "First_Valid"}).schedule.dst.gap is GapPolicy.FIRST_VALID


def test_times_without_an_offset_are_local() -> None:
    """start_at and end_at in the job's zone; with an offset they are instants."""
    schedule = parsed("* * * * *", "Asia/Tokyo", start_at="2026-01-01T09:00:00", end_at="2026-01-02T00:00:00Z").schedule
    assert (schedule.start_at, schedule.end_at) == (at("2026-01-01T00:00Z"), at("2026-01-02T00:00Z"))


def test_the_zone_may_come_with_dtstart_but_must_not_contradict() -> None:
    """TZID names the zone where the body does not."""
    text = "DTSTART;TZID=Europe/Berlin:20260601T090000\nRRULE:FREQ=DAILY"
    assert parsed({"rrule": text}).schedule.timezone == "Europe/Berlin"
    assert parsed({"rrule": text}, "Europe/Berlin").schedule.timezone == "Europe/Berlin"
    with pytest.raises(InvalidSchedule, match="TZID"):
        parsed({"rrule": text}, "Europe/Paris")


@pytest.mark.parametrize(
    ("body", "job_id", "says"),
    [
        ({"schedule": "*/90 * * * *"}, "job", "step 90 in the minute field is longer"),
        ({"schedule": "H * * * *"}, "", "H depends on the job's id"),
        ({"schedule": "@every 1d", "timezone": "Europe/Berlin"}, "job", "elapsed time, not local days"),
        ({"schedule": "0 9 * * *", "timezone": "Etc/GMT+3"}, "job", "Etc/GMT+3 is UTC-3"),
        ({"schedule": "* * * * *", "jitter_window_seconds": 90}, "job", "longer than the shortest gap"),
        ({"schedule": "* * * * *", "exclude": {"cron": ["0 0 30 2 *"]}}, "job", "never matches a date"),
    ],
)
def test_what_a_sender_may_not_expect_is_said(body: dict[str, Any], job_id: str, says: str) -> None:
    """As warnings beside the schedule."""
    answer = parsed(body.pop("schedule"), body.pop("timezone", None), job_id=job_id, **body)
    assert any(says in warning for warning in answer.warnings)


def test_what_is_plain_has_no_warnings() -> None:
    """Most schedules."""
    assert parsed("0 9 * * 1", "America/New_York").warnings == ()
    assert parsed("H * * * *").warnings == ()
    assert parsed("@every 15m").warnings == ()


@pytest.mark.parametrize(
    ("body", "pointer", "says"),
    [
        ({"schedule": {"cron": "0 0 30 2 *"}}, "/schedule/cron", "no date has day of month '30' and month '2'"),
        ({"schedule": "2020-01-01T00:00:00Z"}, "/schedule", "its time has passed"),
        ({"schedule": "9999-12-31T23:59:59Z"}, "/schedule", "its time is outside of the calendar"),
        ({"schedule": "0 9 * * *", "end_at": "2020-01-01T00:00:00Z"}, "/end_at", "before the first fire"),
        (
            {"schedule": "0 9 * * *", "start_at": "2027-01-02T00:00:00Z", "end_at": "2027-01-01T00:00:00Z"},
            "/end_at",
            "before start_at",
        ),
        ({"schedule": "0 9 * * *", "exclude": {"cron": ["* 9 * * *"]}}, "/exclude", "every fire is excluded"),
        ({"schedule": {"rrule": "FREQ=DAILY;UNTIL=20200101"}}, "/schedule/rrule", "no date and time match"),
    ],
)
def test_sb_027_a_schedule_without_a_fire_ahead_is_refused_by_the_check(
    body: dict[str, Any], pointer: str, says: str
) -> None:
    """The field to blame is named."""
    read = parsed(body.pop("schedule"), **body)
    with pytest.raises(InvalidSchedule) as caught:
        check_fires(read, job_id="job", after=at("2026-01-01T00:00Z"))
    assert caught.value.pointer == pointer
    assert says in caught.value.reason


def test_the_check_passes_whatever_fires_at_all() -> None:
    """However far ahead, asked from the first moment there is."""
    for schedule in (
        "0 0 29 2 */7",
        "2026-08-01T09:00:00Z",
        {"rrule": "FREQ=YEARLY", "dtstart": "2300-01-01T00:00:00"},
    ):
        check_fires(parsed(schedule), job_id="job", after=datetime.min.replace(tzinfo=UTC))


_TEXT = st.text(max_size=40) | st.text("0123456789*/,-?LlHh#@:TZPDM ", max_size=30)


@settings(max_examples=EXAMPLES * 3, deadline=None)
@given(
    _TEXT
    | st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("cron", "at", "rrule"), _TEXT) | {"every": _TEXT | st.floats()}
    ),
    st.none() | _TEXT,
    st.fixed_dictionaries(
        {},
        optional={
            "start_at": _TEXT | st.datetimes(),
            "end_at": _TEXT | st.datetimes(timezones=st.timezones()),
            "exclude": st.fixed_dictionaries(
                {}, optional={"dates": st.lists(_TEXT | st.dates()), "cron": st.lists(_TEXT)}
            ),
            "jitter_window_seconds": st.floats() | st.integers(),
            "max_runs": st.integers(),
        },
    ),
)
def test_nothing_that_can_be_sent_raises_anything_else(schedule: Any, zone: str | None, fields: dict[str, Any]) -> None:
    """A schedule that works, or InvalidSchedule with a pointer."""
    refusal = _try_everything(schedule, zone, fields)
    assert refusal is None or (refusal.pointer.startswith("/") and refusal.reason)


def _try_everything(schedule: Any, zone: str | None, fields: dict[str, Any]) -> InvalidSchedule | None:
    try:
        check_fires(parsed(schedule, zone, **fields), job_id="job", after=at("2026-01-01T00:00Z"))
    except InvalidSchedule as error:
        return error
    return None


def test_dates_may_come_as_dates() -> None:
    """From callers in Python."""
    assert parsed("* * * * *", exclude={"dates": [date(2026, 12, 25)]}).schedule.exclude.dates == (date(2026, 12, 25),)
