"""Calendars and business days, compared with looking at every minute, and by hand."""

import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.brute_force import Matches, PlainCron, list_fires, package_zone
from tests.unit.schedules import EXAMPLES, at, nominals, parsed
from workflows.calendar_day import join_spans
from workflows.error import InvalidSchedule
from workflows.fire_times import fires_between, next_fires, survey_fires
from workflows.schedule import BusinessDays, CalendarDays, CronRule, Exclusions, OnlyOn, Roll, Schedule
from workflows.schedule_description import describe_schedule
from workflows.schedule_parser import check_fires

_CHANGES = [
    ("America/New_York", date(2026, 3, 8)),
    ("Europe/Berlin", date(2026, 10, 25)),
    ("Antarctica/Troll", date(2026, 3, 29)),
    ("Pacific/Apia", date(2011, 12, 30)),
    ("UTC", date(2026, 2, 28)),
]
_WINDOW = timedelta(days=6)
_ONE_DAY = timedelta(days=1)


@st.composite
def _plain_crons(draw: st.DrawFn) -> PlainCron:
    minute = draw(st.sampled_from([(0,), (30,), (0, 20, 40)]))
    hour = draw(st.sampled_from([(0,), (2,), (3,), (9, 17)]))
    day = draw(st.sampled_from(["*", "1", "8", "25", "28", "1-15"]))
    weekday = draw(st.sampled_from(["*", "0", "6", "1-5"]))
    spread = {"1-15": range(1, 16), "1-5": range(1, 6)}
    days = frozenset(range(1, 32) if day == "*" else spread.get(day, [int(day[:2].strip("-"))]))
    weekdays = frozenset(range(7) if weekday == "*" else spread.get(weekday, [int(weekday[0])]))
    minutes, hours = ",".join(map(str, minute)), ",".join(map(str, hour))
    return PlainCron(
        text=f"{minutes} {hours} {day} * {weekday}",
        seconds=frozenset((0,)),
        minutes=frozenset(minute),
        hours=frozenset(hour),
        days=days,
        months=frozenset(range(1, 13)),
        weekdays=weekdays,
        starred=frozenset(name for name, text in (("day", day), ("weekday", weekday)) if text == "*"),
    )


def _moved(plain: PlainCron, holidays: frozenset[date], weekend: tuple[int, ...], roll: Roll) -> Matches:
    """What a writer of the rule means: a time is named if its own day names it, or a day without business next to it."""

    def is_business(day: date) -> bool:
        return day not in holidays and day.weekday() not in weekend

    def matches(local: datetime) -> bool:
        if not is_business(local.date()):
            return False
        source, step = local, -_ONE_DAY if roll is Roll.NEXT else _ONE_DAY
        while True:
            if plain.matches(source):
                return True
            source += step
            if is_business(source.date()):
                return False

    return matches


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    _plain_crons(),
    st.sampled_from(_CHANGES),
    st.frozensets(st.integers(-9, 9), max_size=12),
    st.sampled_from([(5, 6), (4, 5), (), (0, 1, 2, 3, 5, 6)]),
    st.sampled_from([Roll.NEXT, Roll.PREVIOUS]),
)
def test_moved_fires_are_those_that_a_walk_over_every_minute_finds(
    plain: PlainCron, change: tuple[str, date], away: frozenset[int], weekend: tuple[int, ...], roll: Roll
) -> None:
    """Around clock changes: nothing is lost or doubled, each fire keeps its local time, and those that meet are one."""
    zone, middle = change
    holidays = frozenset(middle + timedelta(days=days) for days in away)
    start = datetime(middle.year, middle.month, middle.day, tzinfo=UTC) - _WINDOW
    end = start + 2 * _WINDOW
    matches = _moved(plain, holidays, weekend, roll)
    expected = list_fires(matches, zone, start, end, timedelta(minutes=1), gap="first_valid", fold="first")
    calendar = CalendarDays(name="c", spans=join_spans((day, day) for day in holidays), weekend=weekend)
    schedule = Schedule(
        rule=CronRule(expression=plain.text),
        timezone=zone,
        time_critical=True,
        calendars=(calendar,),
        business_days=BusinessDays(calendar="c", roll=roll),
    )
    assert [fire.nominal for fire in fires_between(schedule, start, end, job_id="job", limit=10_000)] == expected


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    _plain_crons(), st.sampled_from(_CHANGES), st.frozensets(st.integers(-9, 9), max_size=12), st.sampled_from(range(3))
)
def test_excluded_fires_are_those_on_the_days_of_the_calendar(
    plain: PlainCron, change: tuple[str, date], away: frozenset[int], use: int
) -> None:
    """Excluded, only on, and skipped where there is no business: all fires are told, and the reason names the calendar."""
    zone, middle = change
    holidays = frozenset(middle + timedelta(days=days) for days in away)
    start = datetime(middle.year, middle.month, middle.day, tzinfo=UTC) - _WINDOW
    choices: list[dict[str, Any]] = [
        {"exclude": Exclusions(calendars=("c",))},
        {"only": OnlyOn(calendars=("c",))},
        {"business_days": BusinessDays(calendar="c", roll=Roll.SKIP)},
    ]
    fields = choices[use]
    why = ["calendar c", "not in calendar c", "no business day of calendar c"][use]

    def is_wanted(day: date) -> bool:
        return [day not in holidays, day in holidays, day not in holidays and day.weekday() < 5][use]

    plain_schedule = Schedule(rule=CronRule(expression=plain.text), timezone=zone, time_critical=True)
    calendar = CalendarDays(name="c", spans=join_spans((day, day) for day in holidays))
    schedule = plain_schedule.model_copy(update={**fields, "calendars": (calendar,)})
    everything = fires_between(plain_schedule, start, start + 2 * _WINDOW, job_id="job", limit=10_000)
    told = fires_between(schedule, start, start + 2 * _WINDOW, job_id="job", limit=10_000)
    assert [fire.nominal for fire in told] == [fire.nominal for fire in everything]
    for fire in told:
        day = fire.nominal.astimezone(package_zone(zone)).date()
        assert fire.excluded_by == (None if is_wanted(day) else why)


_CLOSED = """
2026-01-01 2026-01-19 2026-02-16 2026-04-03 2026-05-25
2026-06-19 2026-07-03 2026-09-07 2026-11-26 2026-12-25
"""
NEW_YORK_2026 = CalendarDays(
    name="nyse", spans=join_spans((day, day) for day in map(date.fromisoformat, _CLOSED.split()))
)
"""Holidays that the New York Stock Exchange has published for 2026."""

CALENDARS = {
    "nyse": NEW_YORK_2026,
    "always": CalendarDays(name="always", spans=((date(1, 1, 1), date(9999, 12, 31)),)),
}


def _next(text: object, after: str, count: int, **fields: Any) -> list[str]:
    schedule = parsed(text, "America/New_York", calendars=CALENDARS, **fields).schedule
    return nominals(next_fires(schedule, job_id="job", after=at(after), count=count))


def test_months_end_is_paid_on_the_business_day_before() -> None:
    """The last day of a month, or the business day before it: 31 January 2026 is a Saturday, 31 May a Sunday."""
    rule = {"calendar": "nyse", "roll": "previous"}
    assert _next("0 9 L * *", "2026-01-01T00:00:00Z", 5, business_days=rule) == [
        "2026-01-30T14:00Z",
        "2026-02-27T14:00Z",
        "2026-03-31T13:00Z",
        "2026-04-30T13:00Z",
        "2026-05-29T13:00Z",
    ]


def test_a_daily_job_on_business_days_fires_once_on_the_day_after_a_long_weekend() -> None:
    """Good Friday 2026: Friday, Saturday and Sunday merge into Monday."""
    rule = {"calendar": "nyse", "roll": "next"}
    assert _next("0 9 * * *", "2026-04-01T12:00:00Z", 4, business_days=rule) == [
        "2026-04-01T13:00Z",
        "2026-04-02T13:00Z",
        "2026-04-06T13:00Z",
        "2026-04-07T13:00Z",
    ]


def test_a_weekly_recurrence_moves_and_its_end_counts_for_what_the_rule_names() -> None:
    """Labor Day, Monday 7 September: Tuesday instead, though UNTIL has passed by then."""
    rule = {"calendar": "nyse", "roll": "next"}
    rrule = "FREQ=WEEKLY;BYDAY=MO;BYHOUR=9;BYMINUTE=0;BYSECOND=0;UNTIL=20260907T130000Z"
    found = _next({"rrule": rrule}, "2026-08-30T00:00:00Z", 5, business_days=rule)
    assert found == ["2026-08-31T13:00Z", "2026-09-08T13:00Z"]
    friday = {"calendar": "nyse", "roll": "previous"}
    assert _next({"rrule": rrule}, "2026-08-31T14:00:00Z", 5, business_days=friday) == ["2026-09-04T13:00Z"]


def test_without_a_calendar_only_the_weekend_counts() -> None:
    """New Year 2026 is a Thursday."""
    rule = {"roll": "next"}
    found = _next("0 9 1 * *", "2025-12-31T23:00:00Z", 3, business_days=rule)
    assert found == ["2026-01-01T14:00Z", "2026-02-02T14:00Z", "2026-03-02T14:00Z"]


def test_what_has_moved_is_excluded_where_it_comes_to_lie() -> None:
    """An exclusion looks at the day on which a fire really happens."""
    fields: dict[str, Any] = {"business_days": {"roll": "next"}, "exclude": {"dates": ["2026-02-02"]}}
    assert _next("0 9 1 * *", "2026-01-02T00:00:00Z", 1, **fields) == ["2026-03-02T14:00Z"]


@pytest.mark.parametrize(
    ("fields", "pointer", "words"),
    [
        ({"exclude": {"calendars": ["nyse", "moon"]}}, "/exclude/calendars/1", "no calendar 'moon'"),
        ({"only": {"calendars": ["moon"]}}, "/only/calendars/0", "no calendar 'moon'"),
        ({"only": {}}, "/only/calendars", "at least one"),
        ({"exclude": {"calendars": [str(number) for number in range(11)]}}, "/exclude/calendars", "at most 10"),
        ({"business_days": {"calendar": "moon", "roll": "next"}}, "/business_days/calendar", "no calendar 'moon'"),
        ({"business_days": {"roll": "sideways"}}, "/business_days/roll", "not one of next, previous, skip"),
        ({"business_days": {"roll": "next"}, "schedule": "@every 7h"}, "/business_days/roll", "roll can be skip"),
        ({"business_days": {"roll": "previous"}, "schedule": "2030-01-01T09:00:00"}, "/business_days/roll", "skip"),
        (
            {"business_days": {"roll": "next"}, "schedule": {"rrule": "FREQ=HOURLY;INTERVAL=5"}},
            "/business_days/roll",
            "skip",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_at_its_place(fields: dict[str, Any], pointer: str, words: str) -> None:
    """With the field and the reason."""
    with pytest.raises(InvalidSchedule) as refused:
        parsed(**{"schedule": "@daily", "calendars": CALENDARS, **fields})
    assert refused.value.pointer == pointer
    assert words in refused.value.reason


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"exclude": {"calendars": ["always"]}}, "/exclude"),
        ({"business_days": {"calendar": "always", "roll": "skip"}}, "/business_days"),
        ({"business_days": {"calendar": "always", "roll": "next"}}, "/schedule"),
        ({"only": {"calendars": ["nyse"]}, "start_at": "2027-01-01T00:00:00Z"}, "/only"),
    ],
)
def test_a_schedule_that_its_calendar_leaves_nothing_of_is_refused(fields: dict[str, Any], pointer: str) -> None:
    """And soon, however long the calendar is."""
    started = time.process_time()
    with pytest.raises(InvalidSchedule) as refused:
        check_fires(parsed("@daily", calendars=CALENDARS, **fields), job_id="job", after=at("2026-06-01T00:00:00Z"))
    assert refused.value.pointer == pointer
    assert time.process_time() - started < 0.2


@pytest.mark.parametrize("expression", ["0 9 * * *", "* * * * * *", "0 0 29 2 1", "0 9 L * *"])
@pytest.mark.parametrize("roll", list(Roll))
def test_the_worst_calendar_is_walked_in_bounded_time(expression: str, roll: Roll) -> None:
    """A thousand stretches that leave no business day for twenty years: each question takes a tenth of a second at most."""
    monday = date(2026, 6, 1)
    spans = tuple((monday + timedelta(days=7 * week), monday + timedelta(days=7 * week + 4)) for week in range(1_000))
    schedule = Schedule(
        rule=CronRule(expression=expression),
        timezone="America/New_York",
        time_critical=True,
        calendars=(CalendarDays(name="c", spans=spans),),
        business_days=BusinessDays(calendar="c", roll=roll),
    )
    after = at("2026-06-01T00:00:00Z")
    assert _least_time(lambda: next_fires(schedule, job_id="job", after=after, count=14)) < 0.1
    until = after + timedelta(days=366)
    assert _least_time(lambda: survey_fires(schedule, job_id="job", after=after, until=until, newest=0)) < 0.1
    if roll is Roll.NEXT:
        [first] = next_fires(schedule, job_id="job", after=after, count=1)
        assert first.nominal > at("2045-07-01T00:00:00Z")


def _least_time(ask: Callable[[], object]) -> float:
    """Of three times: seconds of this process, whatever else the machine does."""

    def measure() -> float:
        started = time.process_time()
        ask()
        return time.process_time() - started

    return min(measure() for _ in range(3))


def test_the_words_say_what_the_calendar_does() -> None:
    """For people who check that they wrote what they meant."""
    fields: dict[str, Any] = {
        "exclude": {"calendars": ["nyse"]},
        "only": {"calendars": ["nyse", "always"]},
        "business_days": {"calendar": "nyse", "roll": "previous"},
    }
    assert describe_schedule(parsed("0 9 * * *", calendars=CALENDARS, **fields).schedule) == (
        "At 09:00, UTC, moved to the last of the business days of nyse before, except on days of nyse, "
        "only on days of nyse or always"
    )


def test_stretches_that_touch_or_overlap_are_one() -> None:
    """Whatever their order, to the end of time."""
    days = [date(2026, 1, number) for number in range(1, 9)]
    assert join_spans([(days[4], days[5]), (days[0], days[1]), (days[2], days[2])]) == (
        (days[0], days[2]),
        (days[4], days[5]),
    )
    assert join_spans([(days[0], date.max), (days[3], days[3])]) == ((days[0], date.max),)
