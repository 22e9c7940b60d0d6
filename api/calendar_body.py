"""The body of a calendar as callers write it, the days that it stands for, and what the API says of calendars. Pure.

Holidays are looked up when a calendar is written, and its days are kept: another release of the library changes no job.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, Field, JsonValue

from api.body import Body, Integer, read_body
from api.problem import FieldError, InvalidRequest
from workflows.calendar import Calendar, CalendarEntry, CalendarUse
from workflows.calendar_day import join_spans
from workflows.schedule import CalendarDays
from workflows.wording import WEEKDAYS, join_words

CALENDAR_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"

SPANS_LIMIT: Final = 1_000
"""Stretches of days of one calendar: what a job carries of it is kept in the state of its workflow."""

YEARS_AHEAD: Final = 5
"""For how many years holidays are looked up when nobody says for which: this one and the next four."""

_YEARS: Final = range(1900, 2101)

_LANGUAGE: Final = "en_US"
"""Of the names of holidays. Without one, the library takes that of the host."""


class DateBody(Body):
    """One day, with its name."""

    date: str
    name: str = Field(default="", max_length=200)


def _read_date_body(value: object) -> object:
    return {"date": value} if isinstance(value, str) else value


class PeriodBody(Body):
    """Days from one date to another, both included."""

    from_: str = Field(alias="from")
    to: str
    name: str = Field(default="", max_length=200)


class HolidaysBody(Body):
    """Public holidays of a country or a part of it, or the days on which a stock exchange is closed."""

    country: str | None = Field(default=None, max_length=10, description="ISO 3166 code, such as DE.")
    subdivision: str | None = Field(default=None, max_length=60, description="Of the country, such as BY.")
    market: str | None = Field(
        default=None, max_length=10, description="Instead of a country: an exchange, such as XNYS."
    )
    years: tuple[Integer, ...] = Field(
        default=(), strict=False, max_length=60, description="Default: this year and the next four."
    )


def _read_one_or_many(value: object) -> object:
    return [value] if isinstance(value, dict) else value


class CalendarBody(Body):
    """A named set of days. All parts are put together."""

    description: str = Field(default="", max_length=2_000)
    dates: tuple[Annotated[DateBody, BeforeValidator(_read_date_body, json_schema_input_type=str | DateBody)], ...] = (
        Field(default=(), strict=False, max_length=4_000, description="Days such as 2026-12-25.")
    )
    periods: tuple[PeriodBody, ...] = Field(default=(), strict=False, max_length=1_000)
    holidays: Annotated[
        tuple[HolidaysBody, ...],
        Field(strict=False, max_length=20, description="One, or a list of them."),
        BeforeValidator(_read_one_or_many, json_schema_input_type=HolidaysBody | list[HolidaysBody]),
    ] = ()
    weekend: tuple[str, ...] | None = Field(
        default=None,
        strict=False,
        max_length=6,
        description="Weekdays that are no business days, though not in the calendar. Default: those of the country of "
        "its holidays, else Saturday and Sunday.",
    )


class EntryAnswer(BaseModel):
    """Days of a calendar, from one date to another, both included."""

    from_: date = Field(alias="from", serialization_alias="from")
    to: date
    name: str


class CalendarSummary(BaseModel):
    """A calendar as lists show it."""

    name: str
    description: str
    count: int = Field(description="Days in it.")
    first: date | None
    last: date | None = Field(description="After this day nothing is in it: time to write it again.")
    weekend: list[str]
    version: int
    created_at: datetime
    updated_at: datetime


class CalendarAnswer(CalendarSummary):
    """A calendar with all its days, and who uses it."""

    definition: JsonValue = Field(description="What was written.")
    days: list[EntryAnswer] = Field(description="What that means.")
    jobs: int = Field(description="Jobs that use it and are not completed or deleted.")
    job_ids: list[str] = Field(description="The first hundred of them.")
    jobs_behind: int = Field(
        default=0, description="Jobs that have not taken on its present days yet; they are told within a minute."
    )


def read_calendar(name: str, value: JsonValue, *, now: datetime) -> Calendar:
    """Read a calendar, and look up its holidays.

    Raises:
        InvalidRequest: with every field that is wrong.
    """
    if not re.fullmatch(CALENDAR_NAME, name):
        raise InvalidRequest(FieldError(parameter="name", detail=f"a calendar is named by {CALENDAR_NAME}"))
    body = read_body(CalendarBody, value)
    reader = _Reader(body, now=now)
    entries = sorted(reader.entries(), key=lambda entry: (entry.first, entry.last, entry.name))
    weekend = reader.weekend()
    if len(join_spans((entry.first, entry.last) for entry in entries)) > SPANS_LIMIT:
        reader.errors.append(FieldError(pointer="", detail=f"more than {SPANS_LIMIT} separate stretches of days"))
    if reader.errors:
        raise InvalidRequest(*reader.errors)
    assert isinstance(value, dict)
    definition: dict[str, JsonValue] = {key: inner for key, inner in value.items() if inner is not None}
    return Calendar(
        name=name, definition=definition, entries=tuple(entries), weekend=weekend, created_at=now, updated_at=now
    )


def read_inline_calendars(value: JsonValue, *, now: datetime) -> dict[str, CalendarDays]:
    """Read calendars that are given by name and not kept, under ``calendars`` of a body.

    Raises:
        InvalidRequest: one of them is wrong.
    """
    given = value if isinstance(value, dict) else {}
    found: dict[str, CalendarDays] = {}
    for name, body in given.items():
        try:
            found[name] = read_calendar(name, body, now=now).days()
        except InvalidRequest as error:
            raise InvalidRequest(*(_inside(each, f"/calendars/{name}") for each in error.errors)) from error
    return found


def named_calendars(value: JsonValue) -> frozenset[str]:
    """Find the calendars that the body of a job or a preview names, whatever else is wrong with it."""
    named: list[JsonValue] = []
    body = value if isinstance(value, dict) else {}
    for field in ("exclude", "only"):
        part = body.get(field)
        listed = part.get("calendars") if isinstance(part, dict) else None
        named += listed if isinstance(listed, list) else []
    rule = body.get("business_days")
    named += [rule.get("calendar")] if isinstance(rule, dict) else []
    return frozenset(name for name in named if isinstance(name, str))


def summarise_calendar(calendar: Calendar) -> CalendarSummary:
    """Say what a calendar is, without its days."""
    return CalendarSummary(**_summary(calendar))


def describe_calendar(calendar: Calendar, use: CalendarUse, *, behind: int = 0) -> CalendarAnswer:
    """Say all of a calendar."""
    days = [
        EntryAnswer.model_validate({"from": entry.first, "to": entry.last, "name": entry.name})
        for entry in calendar.entries
    ]
    return CalendarAnswer(
        **_summary(calendar),
        definition=calendar.definition,
        days=days,
        jobs=use.count,
        job_ids=list(use.job_ids),
        jobs_behind=behind,
    )


def _summary(calendar: Calendar) -> dict[str, JsonValue | datetime | date]:
    spans = calendar.days().spans
    return {
        "name": calendar.name,
        "description": str(calendar.definition.get("description", "")),
        "count": sum((last - first).days + 1 for first, last in spans),
        "first": spans[0][0] if spans else None,
        "last": spans[-1][1] if spans else None,
        "weekend": [WEEKDAYS[weekday].lower() for weekday in calendar.weekend],
        "version": calendar.version,
        "created_at": calendar.created_at,
        "updated_at": calendar.updated_at,
    }


def _inside(error: FieldError, pointer: str) -> FieldError:
    if error.parameter is not None:
        return FieldError(pointer=pointer, detail=error.detail)
    return error.model_copy(update={"pointer": f"{pointer}{error.pointer or ''}"})


class _Reader:
    """Reads the parts of a body one by one, and keeps what is wrong with each."""

    def __init__(self, body: CalendarBody, *, now: datetime) -> None:
        self._body = body
        self._now = now
        self._weekends: list[int] = []
        self.errors: list[FieldError] = []

    def entries(self) -> Iterator[CalendarEntry]:
        """Yield the days of all parts that can be read."""
        for index, each in enumerate(self._body.dates):
            day = self._read_date(each.date, f"/dates/{index}")
            if day is not None:
                yield CalendarEntry(first=day, last=day, name=each.name)
        for index, period in enumerate(self._body.periods):
            first = self._read_date(period.from_, f"/periods/{index}/from")
            last = self._read_date(period.to, f"/periods/{index}/to")
            if first is not None and last is not None:
                if last < first:
                    self._refuse(f"/periods/{index}/to", "before from")
                else:
                    yield CalendarEntry(first=first, last=last, name=period.name)
        for index, holidays in enumerate(self._body.holidays):
            yield from self._look_up(holidays, f"/holidays/{index}")

    def weekend(self) -> tuple[int, ...]:
        """Say what a weekend is. Asked after ``entries``, which meet the countries."""
        if self._body.weekend is None:
            return tuple(sorted(set(self._weekends))) if self._body.holidays else (5, 6)
        numbers = {self._read_weekday(name, f"/weekend/{index}") for index, name in enumerate(self._body.weekend)}
        return tuple(sorted(number for number in numbers if number is not None))

    def _look_up(self, asked: HolidaysBody, pointer: str) -> Iterator[CalendarEntry]:
        if (asked.country is None) == (asked.market is None):
            return self._refuse(pointer, "give a country or a market")
        if asked.market is not None and asked.subdivision is not None:
            return self._refuse(f"{pointer}/subdivision", "goes with country only")
        years = asked.years or tuple(range(self._now.year, self._now.year + YEARS_AHEAD))
        for index, year in enumerate(asked.years):
            if year not in _YEARS:
                return self._refuse(f"{pointer}/years/{index}", f"outside {_YEARS[0]} to {_YEARS[-1]}")
        yield from self._entries_of_library(asked, years, pointer)

    def _entries_of_library(self, asked: HolidaysBody, years: Iterable[int], pointer: str) -> Iterator[CalendarEntry]:
        # Only who looks up holidays pays for loading the tables of the world.
        import holidays

        if not _is_known(asked):
            return self._refuse(*_unknown_place(asked, pointer))
        try:
            if asked.country is not None:
                found = holidays.country_holidays(
                    asked.country.upper(), subdiv=asked.subdivision, years=years, expand=False, language=_LANGUAGE
                )
            else:
                market = str(asked.market).upper()
                found = holidays.financial_holidays(market, years=years, expand=False, language=_LANGUAGE)
        except NotImplementedError:
            return self._refuse(*_unknown_place(asked, pointer))
        self._weekends += [int(day) for day in found.weekend]
        for day, name in found.items():
            yield CalendarEntry(first=day, last=day, name=name[:200])

    def _read_date(self, text: str, pointer: str) -> date | None:
        try:
            if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text, re.ASCII):
                raise ValueError("it must look like 2026-12-25")
            return date.fromisoformat(text)
        except ValueError as error:
            self._refuse(pointer, f"{text[:40]!r} is not a date: {error}")
            return None

    def _read_weekday(self, name: str, pointer: str) -> int | None:
        known = [day.lower() for day in WEEKDAYS]
        wanted = name.strip().lower()
        found = [number for number, day in enumerate(known) if wanted in (day, day[:3])]
        if not found:
            self._refuse(pointer, f"{name[:40]!r} is not one of {join_words(known, last='or')}")
        return found[0] if found else None

    def _refuse(self, pointer: str, reason: str) -> None:
        self.errors.append(FieldError(pointer=pointer, detail=reason))


def _is_known(asked: HolidaysBody) -> bool:
    """Say whether the library has a table for a code. It would take any name of its own for one."""
    from holidays.registry import COUNTRIES, FINANCIAL

    tables, code = (FINANCIAL, asked.market) if asked.country is None else (COUNTRIES, asked.country)
    return any(str(code).upper() in names[1:] for names in tables.values())


def _unknown_place(asked: HolidaysBody, pointer: str) -> tuple[str, str]:
    """Say which of the names is not known."""
    from holidays.utils import list_supported_countries, list_supported_financial

    if asked.market is not None:
        return f"{pointer}/market", f"{asked.market!r} is not one of {', '.join(sorted(list_supported_financial()))}"
    parts = list_supported_countries().get(str(asked.country).upper())
    if parts is None:
        return f"{pointer}/country", f"{asked.country!r} is not a country whose holidays are known, by ISO 3166 code"
    known = f"one of {', '.join(parts)}" if parts else "known: this country has none"
    return f"{pointer}/subdivision", f"{asked.subdivision!r} is not {known}"
