"""What the API is told, as typed dictionaries: their keys are the names of the HTTP contract. The API checks the values.

``None`` is as good as leaving a field out, but for ``payload`` and ``heartbeat_timeout_seconds``; in a patch it brings the
default back.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Required, TypeAlias, TypedDict

from pydantic import JsonValue

Time: TypeAlias = datetime | str
"""An aware datetime, or RFC 3339."""

Day: TypeAlias = date | str
"""A date, or text such as ``2026-12-24``."""

ScheduleBody: TypeAlias = str | Mapping[str, JsonValue | datetime]
"""Such as ``"0 9 * * 1"``, ``"@every 15m"``, ``{"at": "2030-01-01T09:00:00"}``."""


class DstBody(TypedDict, total=False):
    """What a job does in the nights of clock changes."""

    gap: str | None
    """``first_valid``, ``skip`` or ``keep_offset``."""

    fold: str | None
    """``first``, ``second`` or ``both``."""


class ExcludeBody(TypedDict, total=False):
    """When nothing fires."""

    dates: Sequence[Day] | None
    calendars: Sequence[str] | None
    cron: Sequence[str] | None


class OnlyBody(TypedDict, total=False):
    """Days outside of which nothing fires."""

    calendars: Sequence[str] | None


class BusinessDaysBody(TypedDict, total=False):
    """On which days a job may fire, and what becomes of fires on others."""

    calendar: str | None
    roll: str | None
    """``next``, ``previous`` or ``skip``."""


class _ScheduleFields(TypedDict, total=False):
    timezone: str | None
    dst: DstBody | None
    exclude: ExcludeBody | None
    only: OnlyBody | None
    business_days: BusinessDaysBody | None
    start_at: Time | None
    end_at: Time | None
    max_runs: int | None
    jitter_window_seconds: float | None
    time_critical: bool | None


class _JobFields(_ScheduleFields, total=False):
    job_id: str | None
    description: str | None
    owner: str | None
    labels: Mapping[str, str | None] | None
    enabled: bool | None
    if_past: str | None
    target: Mapping[str, JsonValue] | None
    """Such as ``{"kind": "http", "url": "https://bank.example.com/settlements"}``."""

    payload: JsonValue
    idempotency_key_template: str | None
    missed_window: str | None
    max_missed: int | None
    catch_up_rate: int | None
    max_delay_seconds: float | None
    misfire_grace_seconds: float | None
    lookback_seconds: float | None
    overlap: str | None
    max_concurrent: int | None
    max_buffered: int | None
    timeout_seconds: float | None
    heartbeat_timeout_seconds: float | None
    queue_timeout_seconds: float | None
    max_retries: int | None
    max_attempts: int | None
    retry_backoff: str | Mapping[str, JsonValue] | None
    retry_on: Sequence[str] | None
    no_retry_on: Sequence[str] | None
    deadline_seconds: float | None
    downstream: str | None
    isolation: str | None
    alerts: Mapping[str, JsonValue] | None


class JobBody(_JobFields, total=False):
    """A job. Only ``name`` and ``schedule`` are needed."""

    name: Required[str]
    schedule: Required[ScheduleBody]


class JobPatch(_JobFields, total=False):
    """The fields of a job that change (RFC 7396)."""

    name: str
    schedule: ScheduleBody


class CalendarDate(TypedDict, total=False):
    """One day, with its name."""

    date: Required[Day]
    name: str


CalendarPeriod = TypedDict("CalendarPeriod", {"from": Required[Day], "to": Required[Day], "name": str}, total=False)
"""Days from one date to another, both included."""


class HolidaysBody(TypedDict, total=False):
    """Public holidays of a country or a part of it, or the days on which a stock exchange is closed."""

    country: str | None
    subdivision: str | None
    market: str | None
    years: Sequence[int] | None


class CalendarBody(TypedDict, total=False):
    """A named set of days. All parts are put together."""

    description: str | None
    dates: Sequence[Day | CalendarDate] | None
    periods: Sequence[CalendarPeriod] | None
    holidays: HolidaysBody | Sequence[HolidaysBody] | None
    weekend: Sequence[str] | None


class PreviewBody(_ScheduleFields, total=False):
    """A schedule, and which of its fires to show."""

    schedule: Required[ScheduleBody]
    job_id: str | None
    calendars: Mapping[str, CalendarBody] | None
    after: Time | None
    count: int | None
