"""What a calendar's body means, and what is refused in it."""

from datetime import UTC, date, datetime
from typing import Any

import pytest

from api.calendar_body import describe_calendar, named_calendars, read_calendar
from api.preview import preview
from api.problem import InvalidRequest
from workflows.calendar import CalendarUse

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def spans(**body: Any) -> list[tuple[str, str]]:
    days = read_calendar("c", body, now=NOW).days().spans
    return [(first.isoformat(), last.isoformat()) for first, last in days]


def test_dates_periods_and_holidays_are_one_set_of_days() -> None:
    """In order, touching days joined; each keeps its name for people."""
    body: dict[str, Any] = {
        "description": "Munich",
        "dates": ["2026-12-24", {"date": "2026-12-31", "name": "New Year's Eve"}],
        "periods": [{"from": "2026-12-28", "to": "2026-12-30", "name": "closed"}],
        "holidays": {"country": "de", "subdivision": "BY", "years": [2026]},
    }
    assert spans(**body)[-2:] == [("2026-12-24", "2026-12-26"), ("2026-12-28", "2026-12-31")]
    calendar = read_calendar("c", body, now=NOW)
    answer = describe_calendar(calendar, CalendarUse(count=0, job_ids=()))
    named = {day.from_.isoformat(): day.name for day in answer.days}
    assert named["2026-01-06"] == "Epiphany"
    assert named["2026-12-31"] == "New Year's Eve"
    assert named["2026-12-28"] == "closed"
    assert (answer.first, answer.last, answer.weekend) == (
        date(2026, 1, 1),
        date(2026, 12, 31),
        ["saturday", "sunday"],
    )


def test_a_stock_exchange_is_closed_on_the_days_that_it_has_published() -> None:
    """New York, 2026, from the exchange's own table."""
    closed = ["01-01", "01-19", "02-16", "04-03", "05-25", "06-19", "07-03", "09-07", "11-26", "12-25"]
    found = spans(holidays={"market": "XNYS", "years": [2026]})
    assert [first for first, _ in found] == [f"2026-{day}" for day in closed]


def test_without_years_holidays_reach_five_years_and_weekends_are_the_countrys() -> None:
    """What was meant is kept: the days are looked up when the calendar is written. Israel rests on Friday and Saturday."""
    calendar = read_calendar("c", {"holidays": {"country": "IL"}}, now=NOW)
    assert calendar.weekend == (4, 5)
    assert {entry.first.year for entry in calendar.entries} == {2026, 2027, 2028, 2029, 2030}
    assert read_calendar("c", {"weekend": ["Fri", "saturday"]}, now=NOW).weekend == (4, 5)
    assert read_calendar("c", {"weekend": []}, now=NOW).weekend == ()
    both: Any = {"holidays": [{"country": "IL", "years": [2026]}, {"country": "US", "years": [2026]}]}
    assert read_calendar("c", both, now=NOW).weekend == (4, 5, 6)


@pytest.mark.parametrize(
    ("body", "pointer", "words"),
    [
        ([], "", "object"),
        ({"days": []}, "/days", "no such field"),
        ({"dates": ["2026-02-29"]}, "/dates/0", "not a date"),
        ({"dates": ["2026-01-01", "20260102"]}, "/dates/1", "must look like"),
        ({"dates": [{"name": "x"}]}, "/dates/0/date", "required"),
        ({"periods": [{"from": "2026-02-02", "to": "2026-02-01"}]}, "/periods/0/to", "before from"),
        ({"periods": [{"to": "2026-02-01"}]}, "/periods/0/from", "required"),
        ({"holidays": {}}, "/holidays/0", "a country or a market"),
        ({"holidays": {"country": "SAT"}}, "/holidays/0/country", "not a country"),
        ({"holidays": {"country": ""}}, "/holidays/0/country", "not a country"),
        ({"holidays": {"market": "DE"}}, "/holidays/0/market", "XNYS"),
        ({"holidays": {"country": "XX"}}, "/holidays/0/country", "not a country"),
        ({"holidays": {"country": "DE", "subdivision": "Moon"}}, "/holidays/0/subdivision", "one of BB, BE"),
        ({"holidays": {"market": "XNYS", "subdivision": "NY"}}, "/holidays/0/subdivision", "with country only"),
        ({"holidays": {"market": "MOON"}}, "/holidays/0/market", "XNYS"),
        ({"holidays": {"country": "DE", "years": [99999999999]}}, "/holidays/0/years/0", "outside 1900 to 2100"),
        ({"weekend": ["caturday"]}, "/weekend/0", "not one of monday"),
        ({"dates": [f"{year}-01-01" for year in range(2000, 3001)]}, "", "more than 1000 separate"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(body: Any, pointer: str, words: str) -> None:
    """A country, a weekday, a date that is none."""
    with pytest.raises(InvalidRequest) as refused:
        read_calendar("c", body, now=NOW)
    [error] = refused.value.errors
    assert error.pointer == pointer
    assert words in error.detail


def test_all_that_is_wrong_is_told_at_once() -> None:
    """Whatever part it is in."""
    with pytest.raises(InvalidRequest) as refused:
        read_calendar("c", {"dates": ["x", "y"], "weekend": ["z"], "holidays": {}}, now=NOW)
    assert [error.pointer for error in refused.value.errors] == ["/dates/0", "/dates/1", "/holidays/0", "/weekend/0"]


@pytest.mark.parametrize("name", ["", "a b", "a/b", "-a", "x" * 64, "ä"])
def test_a_name_is_fit_for_a_path(name: str) -> None:
    """The same letters as a job's id."""
    with pytest.raises(InvalidRequest) as refused:
        read_calendar(name, {}, now=NOW)
    assert refused.value.errors[0].parameter == "name"


def test_the_names_in_a_body_are_found_whatever_else_is_wrong_with_it() -> None:
    """They are looked up before the body is read."""
    body: Any = {"exclude": {"calendars": ["a", 5]}, "only": {"calendars": "x"}, "business_days": {"calendar": "b"}}
    assert named_calendars(body) == {"a", "b"}
    strange: list[Any] = [5, [], {"exclude": 5, "only": [], "business_days": None}, {"business_days": {"calendar": {}}}]
    assert [named_calendars(each) for each in strange] == [frozenset()] * 4


class TestPreview:
    """A calendar is tried out before it is kept."""

    def test_what_a_calendar_removes_is_told_with_its_reason(self) -> None:
        """Beside the fires that stay, as far as these reach."""
        answer = preview(
            {
                "schedule": "0 9 * * *",
                "timezone": "Europe/Berlin",
                "after": "2026-12-23T00:00:00Z",
                "count": 2,
                "exclude": {"calendars": ["xmas"]},
                "calendars": {"xmas": {"periods": [{"from": "2026-12-24", "to": "2026-12-26"}]}},
            },
            now=NOW,
        )
        assert [fire.local[:10] for fire in answer.fires] == ["2026-12-23", "2026-12-27"]
        assert [(fire.local, fire.reason) for fire in answer.removed] == [
            ("2026-12-24T09:00:00+01:00", "calendar xmas"),
            ("2026-12-25T09:00:00+01:00", "calendar xmas"),
            ("2026-12-26T09:00:00+01:00", "calendar xmas"),
        ]

    def test_what_moves_is_told_where_it_was(self) -> None:
        """The 1st of February 2026 is a Sunday, and the 2nd is in the calendar."""
        answer = preview(
            {
                "schedule": "0 9 1 * *",
                "after": "2026-01-15T00:00:00Z",
                "count": 1,
                "business_days": {"calendar": "c", "roll": "next"},
                "calendars": {"c": {"dates": ["2026-02-02"]}},
            },
            now=NOW,
        )
        assert [fire.local for fire in answer.fires] == ["2026-02-03T09:00:00+00:00"]
        [moved] = answer.removed
        assert (moved.local, moved.reason) == ("2026-02-01T09:00:00+00:00", "no business day: moves to the next one")

    def test_without_calendars_nothing_is_removed(self) -> None:
        """The answer has the field all the same."""
        assert preview({"schedule": "@daily"}, now=NOW).removed == []

    def test_an_error_in_a_calendar_is_named_inside_the_body(self) -> None:
        """With the calendar's own place in front."""
        with pytest.raises(InvalidRequest) as refused:
            preview({"schedule": "@daily", "calendars": {"c": {"dates": ["soon"]}}}, now=NOW)
        assert [error.pointer for error in refused.value.errors] == ["/calendars/c/dates/0"]
