"""A calendar as its owner keeps it, by name: days, what they are called, and what counts as a weekend."""

from dataclasses import dataclass
from datetime import date, datetime

from pydantic import JsonValue

from workflows.calendar_day import join_spans
from workflows.schedule import CalendarDays


@dataclass(frozen=True, kw_only=True)
class CalendarEntry:
    """Days of a calendar, from ``first`` to ``last``."""

    first: date
    last: date
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Calendar:
    """A calendar as it is kept."""

    name: str
    definition: dict[str, JsonValue]
    entries: tuple[CalendarEntry, ...]
    weekend: tuple[int, ...]
    version: int = 0
    created_at: datetime
    updated_at: datetime

    def is_same(self, other: "Calendar") -> bool:
        """Say whether another one was written alike and means the same days."""
        return (self.definition, self.entries, self.weekend) == (other.definition, other.entries, other.weekend)

    def days(self) -> CalendarDays:
        """What a job needs of it."""
        spans = join_spans((entry.first, entry.last) for entry in self.entries)
        return CalendarDays(name=self.name, version=self.version, spans=spans, weekend=self.weekend)


@dataclass(frozen=True, kw_only=True)
class CalendarUse:
    """The jobs that are to fire, now or when they are resumed, and carry a calendar."""

    count: int
    job_ids: tuple[str, ...]
    """The first of them, by id."""
