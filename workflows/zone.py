"""Time zones: which names exist, and where a zone's clock changes.

Owns the mapping between instants and local times as stretches of constant offset. Always reads the ``tzdata`` package,
never the host's files, so that every host gives the same answer. Counts in whole seconds: an instant is seconds since
1970-01-01T00:00Z, a local time is seconds since 1970-01-01T00:00 on the zone's own clock.
"""

from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo

from workflows.error import InvalidSchedule

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()

DAY = 86_400
"""Seconds in a day of the clock."""

FIRST_INSTANT = (datetime(1, 1, 3, tzinfo=UTC) - EPOCH) // _SECOND
LAST_INSTANT = (datetime(9999, 12, 29, tzinfo=UTC) - EPOCH) // _SECOND
"""Nothing fires outside of these, so that every instant also has a local time that ``datetime`` can hold."""

# No two changes of a zone are closer than 6.9 days (the least in tzdata 2026f: 6.96, Boa Vista 2000), so that
# a look every six days misses none. A test compares this with the tables themselves.
_LOOK_EVERY = 6 * DAY

# In tzdata for technical reasons: neither is a place or a standard.
_NOT_FOR_JOBS = frozenset(("Factory", "localtime", "posixrules"))


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive instants at which a zone's clock has one offset."""

    start: int
    """First instant. May be a mere limit of looking, with ``before`` equal to ``offset``."""

    end: int
    """First instant after the stretch. May be a mere limit of looking, too."""

    offset: int
    """Local time minus UTC, in seconds."""

    before: int
    """Offset of the stretch before."""

    after: int
    """Offset of the stretch after."""


@dataclass(frozen=True, slots=True)
class _Change:
    instant: int
    before: int
    after: int


def to_instant(moment: datetime) -> int:
    """Whole seconds since the epoch, rounded down. ``moment`` is aware."""
    return (moment - EPOCH) // _SECOND


def to_instant_rounded_up(moment: datetime) -> int:
    """Whole seconds since the epoch, rounded up. ``moment`` is aware."""
    return -((EPOCH - moment) // _SECOND)


def to_datetime(instant: int) -> datetime:
    """The aware UTC datetime of an instant."""
    return EPOCH + timedelta(seconds=instant)


def to_local(moment: datetime) -> int:
    """Whole seconds of a naive local time since 1970-01-01T00:00 local."""
    return to_instant(moment.replace(tzinfo=UTC))


def to_date(day: int) -> date:
    """The date of a local day counted from 1970-01-01."""
    return date.fromordinal(_EPOCH_ORDINAL + day)


def to_day(day: date) -> int:
    """Days of a date since 1970-01-01."""
    return day.toordinal() - _EPOCH_ORDINAL


def require_zone(name: str, *, pointer: str = "/timezone") -> None:
    """Raise InvalidSchedule unless ``name`` is an IANA zone name, spelled exactly."""
    if name in _known_names():
        return
    shown = name if len(name) <= 60 else f"{name[:60]}..."
    meant = _names_by_lower_case().get(name.strip().lower())
    hint = f"; did you mean {meant!r}?" if meant else "; use a name such as 'Europe/Berlin' or 'UTC'"
    raise InvalidSchedule(f"{shown!r} is not a known time zone{hint}", pointer=pointer)


def load_zone(name: str) -> ZoneInfo:
    """Return the zone's rules. Raises InvalidSchedule for an unknown name."""
    require_zone(name)
    return _load(name)


def stretch_at(name: str, instant: int) -> Stretch:
    """Find the stretch of constant offset around ``instant``.

    Sees changes at least a year before and after; past that, the stretch ends without a change.
    """
    year = to_datetime(min(max(instant, FIRST_INSTANT), LAST_INSTANT)).year
    changes = _changes(name, year - 1) + _changes(name, year) + _changes(name, year + 1)
    index = bisect_right(changes, instant, key=lambda change: change.instant)
    start, end = _year_start(year - 1), _year_start(year + 2)
    earlier = changes[index - 1] if index else None
    later = changes[index] if index < len(changes) else None
    offset = earlier.after if earlier else later.before if later else _offset(_load(name), start)
    return Stretch(
        start=earlier.instant if earlier else start,
        end=later.instant if later else end,
        offset=offset,
        before=earlier.before if earlier else offset,
        after=later.after if later else offset,
    )


def list_changes(name: str, first_year: int, last_year: int) -> list[Stretch]:
    """List the changes of the clock in whole years, each as the stretch that it begins."""
    years = range(first_year, last_year + 1)
    return [stretch_at(name, change.instant) for year in years for change in _changes(name, year)]


@lru_cache(maxsize=4096)
def _changes(name: str, year: int) -> tuple[_Change, ...]:
    """Changes of the clock within one UTC year, in order."""
    zone, looks = _load(name), _looks(year)
    offsets = [look.astimezone(zone).utcoffset() for look in looks]
    return tuple(
        _find_change(zone, to_instant(looks[i - 1]), to_instant(looks[i]))
        for i in range(1, len(looks))
        if offsets[i - 1] != offsets[i]
    )


@lru_cache(maxsize=256)
def _looks(year: int) -> tuple[datetime, ...]:
    """From the last second before a year to its own last second."""
    first, last = _year_start(year) - 1, _year_start(year + 1) - 1
    looks = [*range(first, last, _LOOK_EVERY), last]
    return tuple(to_datetime(min(max(look, FIRST_INSTANT), LAST_INSTANT)) for look in looks)


def _find_change(zone: ZoneInfo, low: int, high: int) -> _Change:
    """Halve towards the one change after ``low`` and at or before ``high``."""
    before, after = _offset(zone, low), _offset(zone, high)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(zone, middle) == before:
            low = middle
        else:
            high = middle
    return _Change(high, before, after)


def _offset(zone: ZoneInfo, instant: int) -> int:
    inside = min(max(instant, FIRST_INSTANT), LAST_INSTANT)
    offset = to_datetime(inside).astimezone(zone).utcoffset()
    assert offset is not None  # a ZoneInfo always has one
    return offset // _SECOND


def _year_start(year: int) -> int:
    if year < 1:
        return FIRST_INSTANT - DAY
    if year > 9999:
        return LAST_INSTANT + DAY
    return to_instant(datetime(year, 1, 1, tzinfo=UTC))


@lru_cache(maxsize=1)
def _known_names() -> frozenset[str]:
    return frozenset(files("tzdata").joinpath("zones").read_text("utf-8").split()) - _NOT_FOR_JOBS


@lru_cache(maxsize=1)
def _names_by_lower_case() -> dict[str, str]:
    return {name.lower(): name for name in _known_names()}


@lru_cache(maxsize=1024)
def _load(name: str) -> ZoneInfo:
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as table:
        return ZoneInfo.from_file(table, key=name)
