"""What a cron expression may say, what it means on dates, and how it is refused."""

import json
from datetime import date, datetime, time, timedelta
from pathlib import Path
from time import thread_time

import pytest
from croniter import CroniterBadDateError, croniter
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.schedules import EXAMPLES
from workflows.cron_expression import CronExpression, parse_cron, refuse_impossible_dates
from workflows.error import InvalidSchedule

_ROWS = [json.loads(line) for line in (Path(__file__).parents[1] / "data" / "fires.jsonl").read_text().splitlines()]


def _parse(text: str, job_id: str = "job") -> CronExpression:
    return parse_cron(text, job_id=job_id)


def _refusal(text: str) -> InvalidSchedule:
    with pytest.raises(InvalidSchedule) as caught:
        _parse(text)
    return caught.value


def test_expressions_that_other_implementations_accept_are_accepted() -> None:
    """The table's valid rows can be read."""
    rows = [row for row in _ROWS if row["kind"] == "valid"]
    assert [_parse(row["expr"]).text for row in rows] == [row["expr"].strip() for row in rows]
    assert rows


def test_expressions_that_are_wrong_are_refused_with_a_position() -> None:
    """The table's invalid rows are refused, each with a reason that points into the text."""
    rows = [row for row in _ROWS if row["kind"] == "invalid"]
    refusals = [(row["expr"], _refusal(row["expr"])) for row in rows]
    assert all(refusal.reason for _, refusal in refusals)
    assert all(0 <= (-1 if error.position is None else error.position) <= len(text) for text, error in refusals)
    assert rows


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("60 * * * *", 0, "minute 60 is outside 0-59"),
        ("* * 32 * *", 4, "day of month 32 is outside 1-31"),
        ("*/0 * * * *", 2, "at least 1"),
        ("0 0 * * fri-mon", 8, "runs backwards"),
        ("0 22-6 * * *", 2, "runs backwards"),
        ("0 0 * jan-fab *", 10, "'fab' is not a month"),
        ("R R * * *", 0, "R (random)"),
        ("5 R(0-7) * * *", 2, "R (random)"),
        ("0 0 15W * *", 4, "nearest weekday"),
        ("0 0 ?,5 * *", 4, "? stands alone"),
        ("? 0 * * *", 0, "only in the day fields"),
        ("1,,2 * * * *", 2, "empty item"),
        ("0 0 * * mon#6", 12, "1 to 5"),
        ("0 0 * *", 7, "not 4"),
        ("0 0 0 1 1 * 2026", 12, "year field"),
        ("0 0 * * 2026", 8, "a year field is not supported"),
        ("0 5-1 * * *", 2, "of the hour field runs backwards"),
        ("*/x * * * *", 2, "in the minute field must be a whole number, not 'x'"),
        ("0 x * * *", 2, "'x' is not an hour"),
        ("0 0 L-3 * *", 4, "L, the last day of a month, stands alone"),
        ("0 0 * * 5L/2", 8, "5L, without a range or a step"),
        ("0 0 * * MON-FRI#1", 12, "without a range or a step"),
        ("H-5 * * * *", 0, "H stands alone"),
        ("*-5 * * * *", 0, "* stands alone, or before a step"),
        ("1-2-3 * * * *", 2, "two values with a hyphen"),
        (f"{'x' * 900} * * * *", 0, f"'{'x' * 40}...' is not a minute"),
        ("@daily x", 0, "stands alone"),
        ("cron(0 12 * * ? *)", 0, "the fields stand alone"),
        ("CRON_TZ=UTC 0 0 * * *", 0, "the zone is given as timezone"),
        ("", 0, "empty"),
        ("  \t ", 0, "empty"),
        ("@reboot", 0, "names no time"),
        ("@fortnightly", 0, "unknown nickname"),
        ("0 0 * * *\n* * * * *", 9, "line break"),
        ("\uff10 0 * * *", 0, "cannot stand"),
        ("0 0\u00a0* * *", 3, "cannot stand"),
        ("0 \x00 * * *", 2, "cannot stand"),
        ("\ud800 * * * *", 0, "cannot stand"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_where(text: str, position: int, says: str) -> None:
    """Each kind of mistake has its own words and the index of its first character."""
    error = _refusal(text)
    assert says in error.reason
    assert error.position == position


@pytest.mark.parametrize("text", ["1," * 15_000 + "1 * * * *", "*" * 30_000, "* " * 15_000, "9" * 30_000, "@" * 30_000])
def test_sb_033_thirty_kilobytes_are_refused_at_once(text: str) -> None:
    """No length of an expression costs more than a hundred milliseconds."""
    started = thread_time()
    assert "longer than" in _refusal(text).reason
    assert thread_time() - started < 0.1


def test_sb_033_one_grammar_reads_the_forms_that_libraries_disagree_on() -> None:
    """Six fields have seconds first; ``?`` is a star; nicknames and names are read in any case."""
    assert _parse("0 0 12 * * *").hour.values == {12}
    assert _parse("0 0 12 * * ?").names_every_date
    assert _parse("@DAILY").hour.values == {0}
    assert _parse("0 0 * JAN-mar SuN,mOn").month.values == {1, 2, 3}


@pytest.mark.parametrize(
    ("text", "weekdays"),
    [
        ("7", {0}),
        ("0", {0}),
        ("5-7", {5, 6, 0}),
        ("fri-sun", {5, 6, 0}),
        ("1-5", {1, 2, 3, 4, 5}),
        ("MON-FRI", {1, 2, 3, 4, 5}),
        ("0/2", {0, 2, 4, 6}),
        ("7/2", {0, 2, 4, 6}),
        ("sun-tue", {0, 1, 2}),
        ("5-5", {5}),
        ("sun-sun", {0}),
        ("0-7", {0, 1, 2, 3, 4, 5, 6}),
        ("Mon/2", {1, 3, 5}),
    ],
)
def test_sb_030_weekdays_have_one_reading(text: str, weekdays: set[int]) -> None:
    """7 is 0 is Sunday, also at the end of a range; ``a/n`` runs to Saturday."""
    assert _parse(f"0 0 * * {text}").day_of_week.values == weekdays


def test_a_step_longer_than_its_range_is_accepted_with_a_warning() -> None:
    """Cron takes it and leaves the first value; the writer should know."""
    expression = _parse("*/90 * * * *")
    assert expression.minute.values == {0}
    assert "only the first value" in expression.warnings[0]
    assert not _parse("*/59 * * * *").warnings


@pytest.mark.parametrize("text", ["0 0 30 2 *", "0 0 31 4 *", "0 0 31 2,4,6 *", "0 0 30 2 ?", "0 0 */31 * 5#3"])
def test_sb_026_dates_that_no_year_has_never_fire(text: str) -> None:
    """They are refused within a hundred milliseconds, with the position of the day field."""
    started = thread_time()
    with pytest.raises(InvalidSchedule, match="never fires") as caught:
        refuse_impossible_dates(_parse(text))
    assert thread_time() - started < 0.1
    assert caught.value.position == 4


@pytest.mark.parametrize(
    "text", ["0 0 31 4,5 *", "0 0 30 2 1", "0 0 29 2 *", "0 0 29 2 */7", "0 0 L 2 *", "0 0 * * 5#5"]
)
def test_sb_026_dates_that_some_year_has_are_accepted(text: str) -> None:
    """30 February *or* Monday does fire; so does a leap day on a given weekday."""
    refuse_impossible_dates(_parse(text))


@pytest.mark.parametrize(
    ("text", "named", "fixed"),
    [
        ("30 2 * * *", True, True),
        ("*/5 2 * * *", True, False),
        ("30 * * * *", False, False),
        ("30 */2 * * *", False, False),
        ("30 0/2 * * *", True, True),
        ("0 30 2 * * *", True, True),
        ("* 30 2 * * *", True, True),
        ("H H * * *", True, True),
        ("@hourly", False, False),
    ],
)
def test_the_two_questions_of_daylight_saving(text: str, named: bool, fixed: bool) -> None:
    """Hours are named unless their field begins with a star; fixed-time asks it of the minute as well."""
    expression = _parse(text)
    assert (expression.names_hours, expression.is_fixed_time) == (named, fixed)


def test_h_stays_in_its_range_and_spreads_jobs() -> None:
    """``H`` is within bounds, the same at every look, and different for different jobs; days stay within 1-28."""
    minutes: set[int] = set()
    hours: set[int] = set()
    days: set[int] = set()
    for number in range(300):
        expression = _parse("H H(0-7) H * *", f"job-{number}")
        minutes |= expression.minute.values
        hours |= expression.hour.values
        days |= expression.day_of_month.values
    assert len(minutes) > 50
    assert hours == set(range(8))
    assert days == set(range(1, 29))


def test_h_with_a_step_starts_within_the_step() -> None:
    """``H/15`` fires four times an hour, fifteen minutes apart, from a minute below fifteen."""
    starts = set()
    for number in range(200):
        values = sorted(_parse("H/15 * * * *", f"job-{number}").minute.values)
        assert [later - values[0] for later in values] == [0, 15, 30, 45]
        starts.add(values[0])
    assert starts == set(range(15))


def test_h_is_the_same_in_every_process_and_release() -> None:
    """Values written down once: whoever changes the hash moves every ``H`` job."""
    expression = _parse("H H H H H", "send-weekly-report")
    fields = (expression.minute, expression.hour, expression.day_of_month, expression.month, expression.day_of_week)
    assert [sorted(field.values) for field in fields] == [[20], [4], [15], [5], [2]]


_DAY_FIELDS = st.sampled_from(["*", "1", "13", "29,30,31", "*/2", "*/10", "1-7", "L", "1,L", "15/5", "31"])
_MONTH_FIELDS = st.sampled_from(["*", "2", "1-6", "4,6,9,11", "*/5"])
_WEEKDAY_FIELDS = st.sampled_from(["*", "1", "5", "1-5", "*/2", "5L", "1#1", "5#5", "1,5#2", "2#1,2#3,6L", "7"])


@settings(max_examples=EXAMPLES, deadline=None)
@given(_DAY_FIELDS, _MONTH_FIELDS, _WEEKDAY_FIELDS, st.dates(date(1990, 1, 1), date(2090, 1, 1)))
def test_croniter_is_told_the_same_dates_that_we_match(day: str, month: str, weekday: str, start: date) -> None:
    """The spelling for croniter and our own matching of dates are two ways to one answer."""
    expression = _parse(f"0 0 {day} {month} {weekday}")
    days = (start + timedelta(days=number) for number in range(1, 5 * 366))
    ours = next((day for day in days if expression.matches_date(day)), None)
    theirs = min((_ask_croniter(text, start) for text in expression.for_croniter()), default=date.max)
    assert theirs == ours if ours else theirs > start + timedelta(days=5 * 365)


def _ask_croniter(text: str, after: date) -> date:
    start = datetime.combine(after, time())
    try:
        return croniter(text, start, ret_type=datetime, day_or=False).get_next(datetime).date()
    except CroniterBadDateError:
        return date.max
