"""When schedules fire: the public tables, the nights of clock changes, the edges of time."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import thread_time, tzset
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.unit.schedules import at, cron, next_nominals, nominals, parsed
from workflows.error import InvalidSchedule
from workflows.fire_times import fires_between, jitter_offset, next_fires, shortest_gap, survey_fires
from workflows.schedule import CronRule, Exclusions, FireRange, FoldPolicy, GapPolicy, RRuleRule, Schedule
from workflows.schedule_parser import check_fires

_DATA = Path(__file__).parents[1] / "data"
_FIRES = [row for line in (_DATA / "fires.jsonl").open() if (row := json.loads(line))["kind"] == "fires"]
_CALENDAR = [json.loads(line) for line in (_DATA / "calendar.jsonl").open()]
_SPAN = 0.1
"""Seconds that a call of the calculator may take."""


def test_every_row_of_the_public_tables() -> None:
    """A dozen implementations' tables and a brute-force walk, through the parser and the calculator."""
    wrong = [row["id"] for row in _FIRES if _fires_of(row) != [at(text) for text in row["expect"]]]
    assert wrong == []
    assert len(_FIRES) > 1_000


def _fires_of(row: dict[str, Any]) -> list[datetime]:
    schedule = parsed(row["expr"], row["tz"], job_id="").schedule
    count = max(len(row["expect"]), 1)
    return [fire.nominal for fire in next_fires(schedule, job_id="", after=at(row["after"]), count=count)]


@pytest.mark.parametrize("row", _CALENDAR, ids=lambda row: str(row["schedule"]))
def test_schedules_follow_the_public_calendar(row: dict[str, Any]) -> None:
    """``L``, last and numbered weekdays, nicknames, intervals, one-offs and rules; see each row's derivation."""
    schedule = parsed(row["schedule"], row["timezone"]).schedule
    fires = next_fires(schedule, job_id="job", after=at(row["after"]), count=len(row["expect"]))
    assert [fire.nominal for fire in fires] == [at(text) for text in row["expect"]]


# --- daylight saving -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", ["2026-03-08T06:59:50Z", "2026-03-08T06:59:59Z", "2026-03-07T12:00:00Z"])
@pytest.mark.parametrize(("expression", "day_after"), [("0 2 * * *", "06:00"), ("30 2 * * *", "06:30")])
def test_sb_001_and_sb_005_a_missing_time_fires_once_at_the_end_of_the_gap(
    expression: str, day_after: str, after: str
) -> None:
    """One run at 07:00Z, whatever the start, and the next on the following day."""
    expected = ["2026-03-08T07:00Z", f"2026-03-09T{day_after}Z", f"2026-03-10T{day_after}Z"]
    assert next_nominals(cron(expression, "America/New_York"), after, 3) == expected


def test_sb_001_answers_fed_back_never_stand_still() -> None:
    """Asked one by one, each answer is later than the last."""
    moment, schedule = at("2026-03-08T06:59:50Z"), cron("30 2 * * *", "America/New_York")
    for _ in range(5):
        (fire,) = next_fires(schedule, job_id="job", after=moment, count=1)
        assert fire.nominal > moment
        moment = fire.nominal
    assert moment == at("2026-03-12T06:30Z")


@pytest.mark.parametrize(("expression", "step"), [("*/30 * * * * *", 30), ("* * * * *", 60)])
@pytest.mark.parametrize(
    ("zone", "start"), [("America/New_York", "2026-03-08T06:59Z"), ("Europe/Vienna", "2026-10-25T00:59Z")]
)
def test_sb_002_real_time_schedules_do_not_notice_a_change(expression: str, step: int, zone: str, start: str) -> None:
    """Two hundred fires at even spacing through the change."""
    fires = next_fires(cron(expression, zone), job_id="job", after=at(start), count=200)
    assert [fire.nominal for fire in fires] == [at(start) + timedelta(seconds=step * n) for n in range(1, 201)]


def test_sb_004_every_five_minutes_loses_nothing_in_the_second_pass() -> None:
    """27 fires through Sydney's repeated hour, five minutes apart."""
    schedule = cron("*/5 * * * *", "Australia/Sydney")
    fires = fires_between(schedule, at("2026-04-04T14:54:59Z"), at("2026-04-04T17:05Z"), job_id="job", limit=100)
    assert [fire.nominal for fire in fires] == [at("2026-04-04T14:55Z") + timedelta(minutes=5 * n) for n in range(27)]


def test_sb_007_the_morning_after_the_change_is_on_the_new_clock() -> None:
    """09:00 in Toronto is 13:00Z from 8 March 2026 on."""
    after = "2026-03-07T22:00Z"
    assert next_nominals(cron("0 9 * * *", "America/Toronto"), after, 1) == ["2026-03-08T13:00Z"]
    assert next_nominals(cron("4 16 * * *", "America/Toronto"), after, 1) == ["2026-03-08T20:04Z"]


def test_sb_008_a_repeated_hour_runs_a_fixed_time_once_and_leaves_utc_alone() -> None:
    """The Paris job runs once; the UTC job keeps its 18 runs."""
    start, end = at("2026-10-24T23:59:59Z"), at("2026-10-25T02:59:59Z")
    paris = fires_between(cron("20 2 * * *", "Europe/Paris"), start, end, job_id="job", limit=100)
    assert nominals(paris) == ["2026-10-25T00:20Z"]
    assert len(fires_between(cron("*/10 * * * *"), start, end, job_id="job", limit=100)) == 18


def test_sb_010_nothing_runs_again_in_the_second_pass() -> None:
    """Asked at 02:30 of the first pass, the next weekly run is a week later."""
    assert next_nominals(cron("0 2 * * 0", "Europe/Berlin"), "2026-10-25T00:30Z", 1) == ["2026-11-01T01:00Z"]


@pytest.mark.parametrize("after", ["2026-03-28T02:00:00Z", "2026-03-29T00:58:55Z", "2026-03-29T00:59:55Z"])
def test_sb_011_every_start_before_the_gap_gives_the_same_answer(after: str) -> None:
    """01:00Z, the end of Berlin's gap; and the day after from there on."""
    schedule = cron("1 2 * * *", "Europe/Berlin")
    assert next_nominals(schedule, after, 1) == ["2026-03-29T01:00Z"]
    assert next_nominals(schedule, "2026-03-29T01:00:00Z", 1) == ["2026-03-30T00:01Z"]


def test_sb_013_a_missing_midnight_still_runs_what_was_due_in_the_hour() -> None:
    """Santiago skips the hour from midnight on 6 September 2026, Sao Paulo the one of 4 November 2018."""
    assert next_nominals(cron("0 1 6 9 *", "America/Santiago"), "2026-09-05T12:00Z", 1) == ["2026-09-06T04:00Z"]
    assert next_nominals(cron("0 0 6 9 *", "America/Santiago"), "2026-09-05T12:00Z", 1) == ["2026-09-06T04:00Z"]
    assert next_nominals(cron("0 1 4 11 *", "America/Sao_Paulo"), "2018-11-04T02:00Z", 1) == ["2018-11-04T03:00Z"]


def test_sb_014_half_an_hour_of_daylight_saving() -> None:
    """Lord Howe repeats 01:30-02:00 in April and skips 02:00-02:30 in October."""
    autumn = next_nominals(cron("45 1 * * *", "Australia/Lord_Howe"), "2026-04-04T02:00Z", 2)
    assert autumn == ["2026-04-04T14:45Z", "2026-04-05T15:15Z"]
    spring = next_nominals(cron("15 2 * * *", "Australia/Lord_Howe"), "2026-10-03T02:00Z", 2)
    assert spring == ["2026-10-03T15:30Z", "2026-10-04T15:15Z"]


@pytest.fixture(params=["UTC", "Europe/London", "Asia/Kathmandu"])
def host_zone(request: pytest.FixtureRequest) -> Iterator[str]:
    """The process's own time zone, as a host's TZ sets it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        tzset()
        yield request.param
    tzset()


@pytest.mark.usefixtures("host_zone")
def test_sb_016_the_hosts_zone_changes_nothing() -> None:
    """A UTC job at 01:30 runs once in London's long night, whatever TZ says."""
    assert next_nominals(cron("30 1 * * *"), "2026-10-25T00:00Z", 2) == ["2026-10-25T01:30Z", "2026-10-26T01:30Z"]
    assert next_nominals(cron("0 9 31 12 *"), "2026-10-25T00:00Z", 1) == ["2026-12-31T09:00Z"]


def test_sb_017_an_interval_is_elapsed_time_and_says_so() -> None:
    """A day of 86,400 s drifts to 23:00 local after 1 November; the answer warns."""
    answer = parsed({"every": 86_400, "anchor": "2026-10-30T00:00:00"}, "America/Los_Angeles")
    assert next_nominals(answer.schedule, "2026-10-31T12:00Z", 2) == ["2026-11-01T07:00Z", "2026-11-02T07:00Z"]
    assert "elapsed time" in answer.warnings[0]


def test_sb_019_the_list_read_before_a_change_is_the_one_read_after() -> None:
    """London's midnights, asked on 20 October and after the change."""
    schedule = cron("0 0 * * *", "Europe/London")
    before = next_nominals(schedule, "2026-10-20T12:00Z", 10)
    assert before == next_nominals(schedule, "2026-10-20T12:00Z", 5) + next_nominals(schedule, "2026-10-25T12:00Z", 5)
    assert before[4:7] == ["2026-10-24T23:00Z", "2026-10-26T00:00Z", "2026-10-27T00:00Z"]


def test_sb_020_four_jobs_run_once_each_in_the_long_night() -> None:
    """02:05 to 02:20 in Berlin, once each, in the first pass."""
    for minute in (5, 10, 15, 20):
        schedule = cron(f"{minute} 2 * * *", "Europe/Berlin")
        fires = fires_between(schedule, at("2026-10-25T00:00Z"), at("2026-10-25T01:30Z"), job_id="job", limit=9)
        assert nominals(fires) == [f"2026-10-25T00:{minute:02}Z"]


@pytest.mark.parametrize(
    ("expression", "zone", "weekday", "day"),
    [
        ("0 1 * * 3", "Asia/Tokyo", 3, None),
        ("30 0 1 * *", "Pacific/Auckland", None, 1),
        ("0 23 * * 6", "Pacific/Honolulu", 6, None),
        ("15 3 * * 1", "Asia/Kathmandu", 1, None),
    ],
)
def test_sb_022_days_are_matched_on_the_local_clock(
    expression: str, zone: str, weekday: int | None, day: int | None
) -> None:
    """The weekday or day is the zone's own, whatever it is in UTC."""
    for fire in next_fires(cron(expression, zone), job_id="job", after=at("2026-06-01T00:00Z"), count=4):
        local = fire.nominal.astimezone(ZoneInfo(zone))
        assert weekday in (None, local.isoweekday())
        assert day in (None, local.day)


def test_sb_023_summer_time_moves_the_instant_not_the_definition() -> None:
    """08:30 in London is 08:30Z in January and 07:30Z in July."""
    schedule = Schedule.model_validate_json(cron("30 8 * * *", "Europe/London").model_dump_json())
    assert next_nominals(schedule, "2026-01-15T00:00Z", 1) == ["2026-01-15T08:30Z"]
    assert next_nominals(schedule, "2026-07-15T00:00Z", 1) == ["2026-07-15T07:30Z"]


def test_sb_025_an_hourly_job_keeps_its_hour_through_the_long_night() -> None:
    """Four fires an hour apart, and a shortest gap of an hour."""
    schedule = cron("0 * * * *", "America/New_York")
    expected = ["2026-11-01T05:00Z", "2026-11-01T06:00Z", "2026-11-01T07:00Z", "2026-11-01T08:00Z"]
    assert next_nominals(schedule, "2026-11-01T04:30Z", 4) == expected
    assert shortest_gap(schedule, job_id="job") == timedelta(hours=1)


def test_sb_158_a_day_that_never_was_fires_as_the_next_one_begins() -> None:
    """Apia had no 30 December 2011: what was due on it fires at 10:00Z, and no instant comes twice."""
    started = thread_time()
    assert next_nominals(cron("0 9 30 12 *", "Pacific/Apia"), "2011-12-01T00:00Z", 2) == [
        "2011-12-30T10:00Z",
        "2012-12-29T19:00Z",
    ]
    daily = next_nominals(cron("0 9 * * *", "Pacific/Apia"), "2011-12-28T12:00Z", 4)
    assert daily == ["2011-12-28T19:00Z", "2011-12-29T19:00Z", "2011-12-30T10:00Z", "2011-12-30T19:00Z"]
    assert thread_time() - started < 2 * _SPAN


@pytest.mark.parametrize(
    ("gap", "expected"),
    [
        (GapPolicy.FIRST_VALID, ["2026-03-07T07:30Z", "2026-03-08T07:00Z", "2026-03-09T06:30Z"]),
        (GapPolicy.SKIP, ["2026-03-07T07:30Z", "2026-03-09T06:30Z", "2026-03-10T06:30Z"]),
        (GapPolicy.KEEP_OFFSET, ["2026-03-07T07:30Z", "2026-03-08T07:30Z", "2026-03-09T06:30Z"]),
    ],
)
def test_the_gap_policy_is_the_jobs_to_choose(gap: GapPolicy, expected: list[str]) -> None:
    """02:30 in New York on 8 March 2026 does not exist."""
    assert next_nominals(cron("30 2 * * *", "America/New_York", gap=gap), "2026-03-07T00:00Z", 3) == expected


@pytest.mark.parametrize(
    ("fold", "expected"),
    [
        (FoldPolicy.FIRST, ["2026-11-01T05:30Z", "2026-11-02T06:30Z"]),
        (FoldPolicy.SECOND, ["2026-11-01T06:30Z", "2026-11-02T06:30Z"]),
        (FoldPolicy.BOTH, ["2026-11-01T05:30Z", "2026-11-01T06:30Z"]),
    ],
)
def test_the_fold_policy_is_the_jobs_to_choose(fold: FoldPolicy, expected: list[str]) -> None:
    """01:30 in New York on 1 November 2026 comes twice, as a cron, a one-off and a rule alike."""
    assert next_nominals(cron("30 1 * * *", "America/New_York", fold=fold), "2026-11-01T00:00Z", 2) == expected
    rule = {"rrule": "FREQ=DAILY", "dtstart": "2026-11-01T01:30:00"}
    schedule = parsed(rule, "America/New_York", dst={"fold": fold.value.upper()}).schedule
    assert next_nominals(schedule, "2026-11-01T00:00Z", 2) == expected
    once = parsed("2026-11-01T01:30", "America/New_York", dst={"fold": fold}).schedule
    twice = fold is FoldPolicy.BOTH
    assert next_nominals(once, "2026-11-01T00:00Z", 2) == expected[: 1 + twice]


def test_a_gap_merges_with_a_regular_fire_at_its_end() -> None:
    """02:00, 02:30 and 03:00 make one fire on the night of the change."""
    schedule = cron("0,30 2,3 * * *", "America/New_York")
    assert next_nominals(schedule, "2026-03-08T06:00Z", 3) == [
        "2026-03-08T07:00Z",
        "2026-03-08T07:30Z",
        "2026-03-09T06:00Z",
    ]


# --- leap days, months, days -----------------------------------------------------------------------------------------


def test_sb_029_the_day_fields_are_alternatives_unless_one_begins_with_a_star() -> None:
    """61 fires of ``0 0 13 * 5`` in 2026; with a star both must hold."""
    year = (at("2025-12-31T23:59:59Z"), at("2026-12-31T23:59:59Z"))
    assert len(fires_between(cron("0 0 13 * 5"), *year, job_id="job", limit=100)) == 61
    odd_mondays = fires_between(cron("0 0 */2 * 1"), *year, job_id="job", limit=100)
    assert all(fire.nominal.weekday() == 0 and fire.nominal.day % 2 for fire in odd_mondays)
    assert next_nominals(cron("0 11 1-7 * FRI"), "2026-06-05T12:00Z", 4) == [
        "2026-06-06T11:00Z",
        "2026-06-07T11:00Z",
        "2026-06-12T11:00Z",
        "2026-06-19T11:00Z",
    ]


def test_sb_034_a_leap_day_job_waits_for_its_year() -> None:
    """From one 29 February to the next, and over 2100."""
    assert next_nominals(cron("0 9 29 2 *"), "2024-02-29T09:00Z", 1) == ["2028-02-29T09:00Z"]
    assert next_nominals(cron("0 9 29 2 *"), "2096-02-29T09:00Z", 1) == ["2104-02-29T09:00Z"]


def test_sb_035_a_leap_day_is_a_weekday_like_others() -> None:
    """29 February 2028 is a Tuesday."""
    assert next_nominals(cron("0 * * * 1-5"), "2028-02-29T11:00Z", 1) == ["2028-02-29T12:00Z"]


def test_sb_037_months_without_the_day_are_passed_over() -> None:
    """The 31st is not clamped."""
    expected = ["2026-03-31T00:00Z", "2026-05-31T00:00Z", "2026-07-31T00:00Z", "2026-08-31T00:00Z"]
    assert next_nominals(cron("0 0 31 * *"), "2026-01-31T00:00Z", 4) == expected


def test_a_leap_day_on_a_given_weekday_is_found_forty_years_away() -> None:
    """29 February falls on a Sunday in 2088 and, because of 2100, next in 2128."""
    started = thread_time()
    assert next_nominals(cron("0 0 29 2 */7"), "2088-03-01T00:00Z", 2) == ["2128-02-29T00:00Z", "2156-02-29T00:00Z"]
    assert thread_time() - started < _SPAN


# --- what is asked, and how ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "first"),
    [
        ("2026-01-01T08:59:59.999Z", "2026-01-01T09:00Z"),
        ("2026-01-01T09:00:00Z", "2026-01-02T09:00Z"),
        ("2026-01-01T09:00:00.001Z", "2026-01-02T09:00Z"),
    ],
)
def test_sb_063_after_is_exclusive_to_the_millisecond(after: str, first: str) -> None:
    """A millisecond before, on, and after a fire."""
    assert next_nominals(cron("0 9 * * *"), after, 1) == [first]


def test_sb_063_a_thousand_seconds_have_a_thousand_fires() -> None:
    """An interval of one second, asked from a fraction."""
    schedule = parsed("@every 1s").schedule
    fires = next_fires(schedule, job_id="job", after=at("2026-01-01T00:00:00.5Z"), count=1_000)
    assert [fire.nominal for fire in fires] == [at("2026-01-01T00:00Z") + timedelta(seconds=n) for n in range(1, 1_001)]


def test_start_and_end_are_inclusive_bounds() -> None:
    """A fire exactly at either counts."""
    schedule = parsed("0 9 * * *", start_at="2026-01-05T09:00:00Z", end_at="2026-01-06T09:00:00Z").schedule
    assert next_nominals(schedule, "2026-01-01T00:00Z", 5) == ["2026-01-05T09:00Z", "2026-01-06T09:00Z"]
    late = schedule.model_copy(update={"start_at": at("2026-01-05T09:00:00.001Z")})
    assert next_nominals(late, "2026-01-01T00:00Z", 5) == ["2026-01-06T09:00Z"]


def test_max_runs_is_the_jobs_to_count() -> None:
    """The calculator does not know how many runs there were."""
    assert len(next_nominals(parsed("0 9 * * *", max_runs=1).schedule, "2026-01-01T00:00Z", 3)) == 3


@pytest.mark.parametrize("zone", ["Pacific/Auckland", "Pacific/Honolulu"])
@pytest.mark.parametrize(
    "rule",
    [
        "* * * * *",
        "0 0 29 2 */7",
        "@every 1s",
        "@every 700d",
        {"rrule": "FREQ=YEARLY"},
        {"rrule": "FREQ=WEEKLY;WKST=SU"},
    ],
)
def test_sb_134_the_ends_of_time_are_quiet(zone: str, rule: Any) -> None:
    """Year 1 and year 9999 give lists, and no exception."""
    schedule = parsed(rule, zone).schedule
    far, near = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)
    assert next_fires(schedule, job_id="job", after=at("9999-12-31T23:59Z"), count=3) == []
    assert next_fires(schedule, job_id="job", after=far, count=3) == []
    assert fires_between(schedule, at("9999-12-31T00:00Z"), far, job_id="job", limit=3) == []
    assert survey_fires(schedule, job_id="job", after=far, until=far, newest=3).ranges == ()
    assert len(next_fires(schedule, job_id="job", after=near, count=3)) == 3
    assert len(next_fires(schedule, job_id="job", after=at("9999-12-27T00:00Z"), count=3)) in (0, 3)


@pytest.mark.parametrize("zone", ["Pacific/Auckland", "Pacific/Honolulu"])
def test_sb_134_bounds_may_be_the_first_and_last_moment_of_a_zone(zone: str) -> None:
    """start_at and end_at at the ends of ``datetime``, in zones far from UTC, and as callers write them."""
    tz = ZoneInfo(zone)
    bounds = {"start_at": datetime.min.replace(tzinfo=tz), "end_at": datetime.max.replace(tzinfo=tz)}
    schedule = cron("0 9 * * *", zone).model_copy(update=bounds)
    assert len(next_nominals(schedule, "2026-01-01T00:00Z", 2)) == 2
    written = parsed("0 9 * * *", zone, start_at="0001-01-01T00:00:00", end_at="9999-12-31T23:59:59").schedule
    assert len(next_nominals(written, "2026-01-01T00:00Z", 2)) == 2


# --- exclusions ------------------------------------------------------------------------------------------------------


def test_excluded_fires_are_listed_with_their_reason() -> None:
    """By local date and by cron; only the wanted ones count for ``next_fires``."""
    exclude = {"dates": ["2026-12-25"], "cron": ["* * * * 0,6"]}
    schedule = parsed("0 9 * * *", "Asia/Tokyo", exclude=exclude).schedule
    after, until = at("2026-12-24T00:00Z"), at("2026-12-28T12:00Z")
    listed = fires_between(schedule, after, until, job_id="job", limit=9)
    assert [fire.excluded_by for fire in listed] == ["date 2026-12-25", "cron * * * * 0,6", "cron * * * * 0,6", None]
    assert nominals(next_fires(schedule, job_id="job", after=after, count=1)) == ["2026-12-28T00:00Z"]
    assert next_fires(schedule, job_id="job", after=after, count=1, excluded=True) == listed


def test_an_exclusion_of_five_fields_excludes_whole_minutes_and_of_six_seconds() -> None:
    """Fires every 20 s; 09:00 as minute, and 09:00:20 alone."""
    by_minute = parsed("*/20 * * * * *", exclude={"cron": ["0 9 * * *"]}).schedule
    assert next_nominals(by_minute, "2026-01-01T08:59:40Z", 1) == ["2026-01-01T09:01Z"]
    by_second = parsed("*/20 * * * * *", exclude={"cron": ["20 0 9 * * *"]}).schedule
    expected = ["2026-01-01T09:00Z", "2026-01-01T09:00:40Z"]
    assert next_nominals(by_second, "2026-01-01T08:59:40Z", 2) == expected


def test_exclusions_hold_for_intervals_and_rules_on_the_local_clock() -> None:
    """An hourly interval leaves out Christmas Day as it is in Auckland."""
    schedule = parsed("@every 1h", "Pacific/Auckland", exclude={"dates": ["2026-12-25"]}).schedule
    assert next_nominals(schedule, "2026-12-24T10:00Z", 1) == ["2026-12-25T11:00Z"]
    rule = parsed({"rrule": "FREQ=DAILY;BYHOUR=9"}, exclude={"dates": ["2026-12-25"]}).schedule
    assert next_nominals(rule, "2026-12-24T10:00Z", 1) == ["2026-12-26T09:00Z"]


def test_a_fire_moved_out_of_a_gap_is_excluded_by_where_it_lands() -> None:
    """02:30 becomes 03:00 in the night of the change, and 03:00 is what an exclusion sees."""
    schedule = parsed("30 2 * * *", "America/New_York", exclude={"cron": ["0 3 * * *"]}).schedule
    assert next_nominals(schedule, "2026-03-08T00:00Z", 1) == ["2026-03-09T06:30Z"]


# --- surveys ---------------------------------------------------------------------------------------------------------


def test_a_month_of_minutes_is_one_range() -> None:
    """43,200 fires, in one line, with the newest beside it."""
    survey = survey_fires(
        cron("* * * * *"), job_id="job", after=at("2026-06-01T00:00Z"), until=at("2026-07-01T00:00Z"), newest=3
    )
    first, last = at("2026-06-01T00:01Z"), at("2026-07-01T00:00Z")
    assert survey.ranges == (FireRange(first=first, last=last, count=43_200),)
    assert nominals(list(survey.newest)) == ["2026-06-30T23:58Z", "2026-06-30T23:59Z", "2026-07-01T00:00Z"]
    assert survey.through == last


def test_an_excluded_fire_starts_a_range_of_its_own() -> None:
    """Working days and weekends take turns."""
    schedule = parsed("0 9 * * *", exclude={"cron": ["* * * * 0,6"]}).schedule
    after, until = at("2026-06-04T12:00Z"), at("2026-06-09T12:00Z")
    survey = survey_fires(schedule, job_id="job", after=after, until=until, newest=1)
    assert [(entry.count, entry.excluded_by) for entry in survey.ranges] == [
        (1, None),
        (2, "cron * * * * 0,6"),
        (2, None),
    ]


def test_a_survey_that_is_too_much_for_one_call_is_continued() -> None:
    """Alternating exclusions make a range a minute; the parts join to the whole."""
    schedule = parsed("* * * * *", exclude={"cron": ["*/2 * * * *"]}).schedule
    after, until = at("2026-06-01T00:00Z"), at("2026-06-03T00:00Z")
    count = calls = 0
    while after < until:
        survey = survey_fires(schedule, job_id="job", after=after, until=until, newest=0)
        count += sum(entry.count for entry in survey.ranges)
        assert survey.through > after
        after, calls = survey.through, calls + 1
    assert count == 2 * 1_440
    assert 2 <= calls <= 4


# --- jitter and gaps -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("* * * * * *", timedelta(seconds=1)),
        ("*/7 * * * *", timedelta(minutes=4)),
        ("0 9 * * *", timedelta(hours=23)),
        ("0 9 * * 1", timedelta(days=6, hours=23)),
        ("30 2 * * *", timedelta(hours=23, minutes=30)),
        ("30 2,3 * * *", timedelta(minutes=30)),
        ("0 0 1 1 *", timedelta(days=364, hours=23)),
        ("@every 90s", timedelta(seconds=90)),
        ({"rrule": "FREQ=MINUTELY;INTERVAL=15"}, timedelta(minutes=15)),
        ({"rrule": "FREQ=DAILY;BYHOUR=1,3"}, timedelta(hours=1)),
        ({"rrule": "FREQ=DAILY;COUNT=1"}, None),
        ("2026-08-01T09:00:00Z", None),
    ],
)
def test_the_shortest_gap_knows_the_nights_of_changes(schedule: Any, expected: timedelta | None) -> None:
    """In New York, where 02:00-03:00 is missing once and 01:00-02:00 comes twice; rules take the first pass."""
    assert shortest_gap(parsed(schedule, "America/New_York").schedule, job_id="job") == expected


def test_bounds_that_leave_one_fire_leave_no_gap() -> None:
    """A daily job from Monday to Monday noon fires once."""
    schedule = parsed("0 9 * * *", start_at="2026-06-01T00:00:00Z", end_at="2026-06-01T12:00:00Z").schedule
    assert shortest_gap(schedule, job_id="job") is None


def test_jitter_is_a_hash_of_the_job_within_its_window() -> None:
    """Spread over the window, the same each time, in milliseconds; a value is written down for all releases."""
    schedule = parsed("0 9 * * *").schedule
    offsets = {jitter_offset(schedule, job_id=f"job-{number}") for number in range(500)}
    assert len(offsets) > 450
    assert timedelta() <= min(offsets) < timedelta(seconds=3)
    assert timedelta(seconds=57) < max(offsets) < timedelta(seconds=60)
    assert jitter_offset(schedule, job_id="send-weekly-report") == timedelta(seconds=36, milliseconds=959)


@pytest.mark.parametrize(
    ("schedule", "fields", "below"),
    [
        ("* * * * *", {}, 6.0),
        ("* * * * * *", {}, 0.1),
        ("*/10 * * * *", {}, 60.0),
        ("* * * * *", {"jitter_window_seconds": 3_600}, 60.0),
        ("0 9 * * *", {"jitter_window_seconds": 7_200}, 7_200.0),
        ("0 9 * * *", {"jitter_window_seconds": 0}, 0.001),
        ("0 9 * * *", {"time_critical": True}, 0.001),
        ("2030-01-01T09:00:00Z", {}, 0.001),
    ],
)
def test_the_jitter_window_stays_below_the_shortest_gap(schedule: str, fields: dict[str, Any], below: float) -> None:
    """60 s or a tenth of the gap by default; never as long as the gap; none for one-offs and critical jobs."""
    read = parsed(schedule, **fields).schedule
    offsets = [jitter_offset(read, job_id=f"job-{number}").total_seconds() for number in range(60)]
    assert below * 0.8 <= max(offsets) + 0.0009 if below > 0.001 else max(offsets) == 0
    assert max(offsets) < below


def test_a_preview_without_a_job_has_no_jitter() -> None:
    """Target is nominal."""
    (fire,) = next_fires(parsed("0 9 * * *", job_id="").schedule, job_id="", after=at("2026-01-01T00:00Z"), count=1)
    assert fire.target == fire.nominal


# --- time ------------------------------------------------------------------------------------------------------------

_DEMANDING: list[tuple[Any, str, dict[str, Any]]] = [
    ("* * * * * *", "America/New_York", {}),
    ("0 0 29 2 */7", "Antarctica/Troll", {}),
    ("0 0 30 2 *", "Pacific/Apia", {}),
    ("59 59 23 31 12 *", "Pacific/Apia", {}),
    ("* * * * * *", "Pacific/Apia", {"dst": {"gap": "keep_offset", "fold": "both"}}),
    ("* * * * * *", "Europe/Dublin", {"exclude": {"cron": ["* * * * *"]}}),
    ("* * * * * *", "Europe/Dublin", {"exclude": {"cron": [f"{n} * * * *" for n in range(20)]}}),
    ("* * * * *", "Africa/Monrovia", {"exclude": {"cron": ["*/2 * * * *"]}}),
    ("H/7 H(1-20)/3 L,13 * 5L,1#2", "Australia/Lord_Howe", {}),
    ("@every 1s", "UTC", {"exclude": {"cron": ["* * * * * 0-4"]}}),
    ("@every 36000d", "UTC", {}),
    ({"rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO"}, "UTC", {}),
    ({"rrule": "FREQ=SECONDLY"}, "Antarctica/Troll", {}),
    ({"rrule": "FREQ=SECONDLY;INTERVAL=7;BYHOUR=3"}, "Antarctica/Troll", {}),
    ({"rrule": "FREQ=YEARLY;BYDAY=MO,TU,WE,TH,FR,SA,SU;BYSETPOS=365"}, "UTC", {}),
    ({"rrule": "FREQ=MINUTELY;INTERVAL=177;BYHOUR=9;BYMINUTE=0"}, "Pacific/Apia", {}),
    ({"rrule": "FREQ=WEEKLY;INTERVAL=52;BYMONTH=2;BYDAY=MO"}, "UTC", {}),
    ({"rrule": "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30"}, "UTC", {}),
    ({"rrule": "FREQ=DAILY;COUNT=4000"}, "UTC", {}),
]


@pytest.mark.parametrize(("schedule", "zone", "fields"), _DEMANDING, ids=lambda value: str(value)[:60])
def test_no_call_takes_a_tenth_of_a_second(schedule: Any, zone: str, fields: dict[str, Any]) -> None:
    """Dense, rare, impossible and much excluded schedules, near and far, at the best of three tries."""
    read = parsed(schedule, zone, **fields).schedule
    far = at("9999-12-31T00:00Z")
    for after in (at("2011-12-29T00:00Z"), at("0001-01-01T00:00Z")):
        end = after + timedelta(days=31)
        _require_quick(next_fires, read, job_id="job", after=after, count=14)
        _require_quick(fires_between, read, after, end, job_id="job", limit=1_000)
        _require_quick(survey_fires, read, job_id="job", after=after, until=far, newest=100)
    _require_quick(shortest_gap, read, job_id="job")


def _require_quick(call: Any, *args: Any, **options: Any) -> None:
    """Time the quickest of a few calls: what the code costs, not what else the machine does."""
    spans = []
    for _ in range(4):
        started = thread_time()
        call(*args, **options)
        spans.append(thread_time() - started)
        if spans[-1] < _SPAN:
            break
    assert min(spans) < _SPAN


def test_an_unreadable_schedule_is_refused_by_the_calculator_too() -> None:
    """Stored schedules are read again at each call: an error of the caller's kind, not a crash."""
    bad = [
        Schedule(rule=CronRule(expression="60 * * * *")),
        Schedule(rule=RRuleRule(rrule="FREQ=OFTEN")),
        Schedule(timezone="Mars/Base"),
        Schedule(rule=CronRule(expression="* * * * *"), exclude=Exclusions(cron=("bad",))),
    ]
    for schedule in bad:
        with pytest.raises(InvalidSchedule):
            next_fires(schedule, job_id="job", after=at("2026-01-01T00:00Z"), count=1)


@pytest.mark.parametrize("text", ["0 0 30 2 *", "0 0 31 4 *", "0 0 31 2,4,6 *"])
def test_sb_026_impossible_dates_are_refused_by_the_check(text: str) -> None:
    """On create and update: never fires, within a hundred milliseconds; the calculator lists nothing."""
    started = thread_time()
    with pytest.raises(InvalidSchedule, match="never fires"):
        check_fires(parsed(text), job_id="job", after=at("2026-01-01T00:00Z"))
    assert next_nominals(cron(text), "2026-01-01T00:00Z", 1) == []
    assert thread_time() - started < _SPAN
