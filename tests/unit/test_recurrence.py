"""Recurrence rules: the RFC's own examples, dateutil as a second opinion, refusals."""

import json
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from pathlib import Path
from time import thread_time
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from dateutil.rrule import rrulestr
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.schedules import EXAMPLES, at, next_nominals, parsed
from workflows.error import InvalidSchedule
from workflows.fire_times import fires_between, next_fires
from workflows.recurrence_text import parse_recurrence
from workflows.schedule import RRuleRule, Schedule
from workflows.schedule_parser import check_fires

_EXAMPLES = [json.loads(line) for line in (Path(__file__).parents[1] / "data" / "rrule.jsonl").open()]


@pytest.mark.parametrize("row", _EXAMPLES, ids=lambda row: row["rule"])
def test_the_examples_of_rfc_5545(row: dict[str, Any]) -> None:
    """As printed in section 3.8.5.3, New York time; rules with an end fire no more after it."""
    schedule = parsed({"rrule": row["rule"], "dtstart": row["dtstart"]}, row["timezone"]).schedule
    fires = next_fires(schedule, job_id="job", after=at("1996-01-01T00:00Z"), count=len(row["local"]) + 1)
    zone = ZoneInfo(row["timezone"])
    shown = [fire.nominal.astimezone(zone).replace(tzinfo=None).isoformat() for fire in fires]
    assert shown[: len(row["local"])] == row["local"]
    assert len(shown) == len(row["local"]) + (not any(end in row["rule"] for end in ("COUNT", "UNTIL")))


_WEEKDAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]


def _numbers(name: str, low: int, high: int, *, signed: bool = False) -> st.SearchStrategy[str]:
    one = st.integers(low, high)
    either = one | one.map(lambda number: -number) if signed else one
    listed = st.lists(either, min_size=1, max_size=3).map(lambda numbers: f";{name}={','.join(map(str, numbers))}")
    return st.just("") | listed


@st.composite
def _rules(draw: st.DrawFn) -> str:
    """Rules that dateutil reads as the RFC has them: it joins plain and numbered weekdays otherwise than we do, counts
    a first week by its rest, and takes all days of a numbered week."""
    frequency = draw(st.sampled_from(["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY"]))
    text = f"FREQ={frequency};INTERVAL={draw(st.integers(1, 7))}" + draw(_numbers("BYMONTH", 1, 12))
    if frequency != "WEEKLY":
        text += draw(_numbers("BYMONTHDAY", 1, 31, signed=True))
    if frequency == "YEARLY" and draw(st.booleans()):
        text += draw(_numbers("BYWEEKNO", 1, 53, signed=True))
        text += f";BYDAY={draw(st.sampled_from(_WEEKDAYS))}"
    elif frequency in ("YEARLY", "MONTHLY") and draw(st.booleans()):
        nth = st.tuples(st.sampled_from([1, 2, 4, 5, -1, -2]), st.sampled_from(_WEEKDAYS))
        text += ";BYDAY=" + ",".join(f"{number}{day}" for number, day in draw(st.lists(nth, min_size=1, max_size=2)))
    elif draw(st.booleans()):
        text += ";BYDAY=" + ",".join(draw(st.lists(st.sampled_from(_WEEKDAYS), min_size=1, max_size=4)))
    if frequency in ("YEARLY", "MONTHLY") and text.count("BY") and draw(st.booleans()):
        text += draw(_numbers("BYSETPOS", 1, 4, signed=True))
    elif frequency in ("DAILY", "WEEKLY", "MONTHLY"):
        text += draw(_numbers("BYHOUR", 0, 23)) + draw(_numbers("BYMINUTE", 0, 59))
    text += draw(st.just("") | st.sampled_from(_WEEKDAYS).map(lambda day: f";WKST={day}"))
    return text + draw(st.just("") | st.integers(1, 30).map(lambda count: f";COUNT={count}"))


@settings(max_examples=EXAMPLES, deadline=None)
@given(_rules(), st.datetimes(datetime(9920, 1, 1), datetime(9980, 1, 1)))  # noqa: DTZ001 - local times
def test_dateutil_has_the_same_opinion(text: str, start: datetime) -> None:
    """The first fires of ten years, for all kinds of rules and starts.

    Near the end of the calendar, because dateutil looks for the first fire of a rule that has none until the year 9999.
    """
    start = start.replace(microsecond=0)
    end = start + timedelta(days=3_650)
    theirs = list(islice(takewhile(lambda moment: moment < end, rrulestr(f"RRULE:{text}", dtstart=start)), 12))
    schedule = Schedule(rule=RRuleRule(rrule=text, dtstart=start), time_critical=True)
    ours = fires_between(schedule, _utc(start) - timedelta(days=1), _utc(end), job_id="job", limit=12)
    assert [fire.nominal.replace(tzinfo=None) for fire in ours if fire.nominal < _utc(end)] == theirs


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "needs FREQ"),
        ("INTERVAL=2", "needs FREQ"),
        ("FREQ=OFTEN", "must be one of"),
        ("FREQ=DAILY;FREQ=DAILY", "stands twice"),
        ("FREQ=DAILY;BYEASTER=0", "not a part"),
        ("FREQ=DAILY;INTERVAL=0", "from 1 to"),
        ("FREQ=DAILY;INTERVAL=99999999", "from 1 to"),
        ("FREQ=DAILY;COUNT=-1", "from 1 to"),
        ("FREQ=DAILY;COUNT=3;UNTIL=20260101", "exclude each other"),
        ("FREQ=DAILY;UNTIL=tomorrow", "must be a date or time"),
        ("FREQ=DAILY;UNTIL=20260230", "must be a date or time"),
        ("FREQ=DAILY;BYHOUR=24", "not a number from 0 to 23"),
        ("FREQ=DAILY;BYSECOND=60", "not a number from 0 to 59"),
        ("FREQ=MONTHLY;BYMONTHDAY=0", "not a number from 1 to 31"),
        ("FREQ=WEEKLY;BYMONTHDAY=1", "does not go with FREQ=WEEKLY"),
        ("FREQ=WEEKLY;BYDAY=1MO", "goes only with FREQ=MONTHLY"),
        ("FREQ=MONTHLY;BYWEEKNO=1", "goes only with FREQ=YEARLY"),
        ("FREQ=MONTHLY;BYDAY=6MO", "more than five"),
        ("FREQ=DAILY;BYYEARDAY=1", "does not go with FREQ=DAILY"),
        ("FREQ=DAILY;BYHOUR=1,2;BYSETPOS=1", "supported with FREQ=WEEKLY"),
        ("FREQ=MONTHLY;BYSETPOS=1", "there is none"),
        ("FREQ=DAILY;WKST=XX", "weekday such as MO"),
        ("FREQ=DAILY;" + "BYHOUR=1;" * 200, "longer than"),
        ("FREQ=DAILY\nEXDATE:20260101", "must be one of"),
    ],
)
def test_what_the_rfc_forbids_is_refused_in_words(text: str, says: str) -> None:
    """With a position within the text."""
    with pytest.raises(InvalidSchedule) as caught:
        parse_recurrence(text)
    assert says in caught.value.reason
    assert caught.value.position is not None


@pytest.mark.parametrize(
    "text",
    [
        "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=HOURLY;INTERVAL=24;BYHOUR=9",
        "FREQ=YEARLY;BYWEEKNO=53;BYMONTH=6",
        "FREQ=MONTHLY;INTERVAL=12;BYMONTH=5",
        "FREQ=WEEKLY;BYDAY=MO;BYSETPOS=2",
        "FREQ=DAILY;UNTIL=19690101",
    ],
)
def test_a_rule_that_never_fires_is_refused_soon(text: str) -> None:
    """Within a tenth of a second, however its search would go on."""
    read = parsed({"rrule": text})
    started = thread_time()
    with pytest.raises(InvalidSchedule, match="never fires"):
        check_fires(read, job_id="job", after=at("2026-01-01T00:00Z"))
    assert thread_time() - started < 0.1


@pytest.mark.parametrize("text", ["FREQ=MINUTELY;INTERVAL=1441;BYHOUR=9", "FREQ=DAILY;COUNT=900000"])
def test_rules_without_a_bounded_answer_are_refused_with_a_way_out(text: str) -> None:
    """A grid that hardly ever meets its filters; a count that nobody will live to see."""
    with pytest.raises(InvalidSchedule, match=r"; use (FREQ=DAILY|UNTIL)") as caught:
        parsed({"rrule": text})
    assert caught.value.pointer == "/schedule/rrule"


def test_intervals_count_from_dtstart_however_far_away() -> None:
    """Every third day from 1 January 1970; asked a century later."""
    schedule = parsed({"rrule": "FREQ=DAILY;INTERVAL=3"}).schedule
    # 1 January 2070 is day 36525 = 3 * 12175.
    assert next_nominals(schedule, "2069-12-31T00:00Z", 2) == ["2070-01-01T00:00Z", "2070-01-04T00:00Z"]


def test_until_is_an_instant_in_utc_and_a_clock_time_without_z() -> None:
    """In New York 09:00 is 13:00Z; a date includes its whole day."""
    for until, count in (("20260603T130000Z", 3), ("20260603T125959Z", 2), ("20260603T090000", 3), ("20260603", 3)):
        rule = {"rrule": f"FREQ=DAILY;UNTIL={until}", "dtstart": "2026-06-01T09:00:00"}
        assert len(next_nominals(parsed(rule, "America/New_York").schedule, "2026-01-01T00:00Z", 9)) == count


def test_plain_and_numbered_weekdays_are_alternatives() -> None:
    """Every Monday, and the second Friday."""
    rule = {"rrule": "FREQ=MONTHLY;BYDAY=MO,2FR", "dtstart": "2026-06-01T09:00:00"}
    expected = ["2026-06-01T09:00Z", "2026-06-08T09:00Z", "2026-06-12T09:00Z", "2026-06-15T09:00Z"]
    assert next_nominals(parsed(rule).schedule, "2026-05-01T00:00Z", 4) == expected
