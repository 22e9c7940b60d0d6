"""The text of an RFC 5545 recurrence rule: its grammar and its refusals."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time
from enum import IntEnum

from workflows.error import InvalidSchedule

MAX_LENGTH = 1_000
MAX_INTERVAL = 100_000
WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")


class Frequency(IntEnum):
    """The period of a rule, longest first."""

    YEARLY = 0
    MONTHLY = 1
    WEEKLY = 2
    DAILY = 3
    HOURLY = 4
    MINUTELY = 5
    SECONDLY = 6


@dataclass(frozen=True, slots=True)
class RecurrenceParts:
    """The parts of a rule, as written. An empty tuple is a part that was not given."""

    frequency: Frequency
    interval: int = 1
    count: int | None = None
    until: datetime | None = None
    """Inclusive. Aware where the text says UTC, else naive local."""

    by_second: tuple[int, ...] = ()
    by_minute: tuple[int, ...] = ()
    by_hour: tuple[int, ...] = ()
    by_month_day: tuple[int, ...] = ()
    by_year_day: tuple[int, ...] = ()
    by_week_number: tuple[int, ...] = ()
    by_month: tuple[int, ...] = ()
    by_set_position: tuple[int, ...] = ()
    by_day: tuple[tuple[int, int], ...] = ()
    """(weekday from Monday = 0, which one of the period): ``-1FR`` is (4, -1), a plain ``MO`` is (0, 0)."""
    week_start: int = 0


@dataclass(frozen=True, slots=True)
class _Part:
    """One ``NAME=value`` of the text."""

    name: str
    value: str
    position: int
    """Index of the value's first character."""

    def refuse(self, reason: str) -> InvalidSchedule:
        return InvalidSchedule(f"{self.name}: {reason}", position=self.position)


_BY_DAY = re.compile(r"([+-]?[0-9]{1,2})?(MO|TU|WE|TH|FR|SA|SU)", re.ASCII)
_UNTIL = re.compile(r"([0-9]{8})(?:T([0-9]{6})(Z?))?", re.ASCII)
_NUMBER = re.compile(r"[+-]?[0-9]{1,6}", re.ASCII)


def parse_recurrence(text: str) -> RecurrenceParts:
    """Read the value of an RRULE, such as ``FREQ=MONTHLY;BYDAY=-1FR``.

    Raises InvalidSchedule with the reason and the zero-based position for anything that RFC 5545 forbids.
    """
    if len(text) > MAX_LENGTH:
        raise InvalidSchedule(f"the rule is longer than {MAX_LENGTH} characters", position=MAX_LENGTH)
    parts = _split(text)
    if "FREQ" not in parts:
        raise InvalidSchedule("a recurrence rule needs FREQ, such as FREQ=DAILY", position=0)
    read = RecurrenceParts(
        frequency=_read_frequency(parts["FREQ"]),
        interval=_read_count(parts.get("INTERVAL"), MAX_INTERVAL) or 1,
        count=_read_count(parts.get("COUNT"), 999_999),
        until=_read_until(parts.get("UNTIL")),
        by_second=_read_list(parts.get("BYSECOND"), 0, 59),
        by_minute=_read_list(parts.get("BYMINUTE"), 0, 59),
        by_hour=_read_list(parts.get("BYHOUR"), 0, 23),
        by_month_day=_read_list(parts.get("BYMONTHDAY"), 1, 31, from_end=True),
        by_year_day=_read_list(parts.get("BYYEARDAY"), 1, 366, from_end=True),
        by_week_number=_read_list(parts.get("BYWEEKNO"), 1, 53, from_end=True),
        by_month=_read_list(parts.get("BYMONTH"), 1, 12),
        by_set_position=_read_list(parts.get("BYSETPOS"), 1, 366, from_end=True),
        by_day=_read_weekdays(parts.get("BYDAY")),
        week_start=_read_week_start(parts.get("WKST")),
    )
    _refuse_odd_combination(read, parts)
    return read


_LISTS = frozenset(
    ("BYSECOND", "BYMINUTE", "BYHOUR", "BYDAY", "BYMONTHDAY", "BYYEARDAY", "BYWEEKNO", "BYMONTH", "BYSETPOS")
)
_KNOWN = _LISTS | {"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST"}


def _split(text: str) -> dict[str, _Part]:
    parts: dict[str, _Part] = {}
    for position, word in _words(text):
        if not text.strip():
            break
        name, equals, value = word.partition("=")
        name = name.upper()
        if name not in _KNOWN or not equals:
            raise InvalidSchedule(f"{word[:40]!r} is not a part of a recurrence rule", position=position)
        if name in parts:
            raise InvalidSchedule(f"{name} stands twice", position=position)
        parts[name] = _Part(name, value.upper(), position + len(name) + 1)
    return parts


def _words(text: str) -> Iterator[tuple[int, str]]:
    position = 0
    for word in text.rstrip(" ;\t\r\n").split(";"):
        yield position, word.strip(" \t")
        position += len(word) + 1


def _read_frequency(part: _Part) -> Frequency:
    if part.value not in Frequency.__members__:
        raise part.refuse(f"must be one of {', '.join(Frequency.__members__)}")
    return Frequency[part.value]


def _read_count(part: _Part | None, most: int) -> int | None:
    if part is None:
        return None
    if not _NUMBER.fullmatch(part.value) or not 1 <= int(part.value) <= most:
        raise part.refuse(f"must be a whole number from 1 to {most}")
    return int(part.value)


def _read_list(part: _Part | None, least: int, most: int, *, from_end: bool = False) -> tuple[int, ...]:
    if part is None:
        return ()
    numbers = []
    for item in part.value.split(","):
        number = int(item) if _NUMBER.fullmatch(item) else None
        if number is None or not (least <= number <= most or (from_end and least <= -number <= most)):
            either = f"{least} to {most}" + (f" or -{most} to -{least}" if from_end else "")
            raise part.refuse(f"{item[:20]!r} is not a number from {either}")
        numbers.append(number)
    return tuple(sorted(set(numbers)))


def _read_weekdays(part: _Part | None) -> tuple[tuple[int, int], ...]:
    if part is None:
        return ()
    days = set()
    for item in part.value.split(","):
        match = _BY_DAY.fullmatch(item)
        nth = int(match[1] or 0) if match else 0
        if match is None or (match[1] and not 1 <= abs(nth) <= 53):
            raise part.refuse(f"{item[:20]!r} is not a weekday such as MO or -1FR")
        days.add((WEEKDAYS.index(match[2]), nth))
    return tuple(sorted(days))


def _read_week_start(part: _Part | None) -> int:
    if part is None:
        return 0
    if part.value not in WEEKDAYS:
        raise part.refuse("must be a weekday such as MO")
    return WEEKDAYS.index(part.value)


def _read_until(part: _Part | None) -> datetime | None:
    if part is None:
        return None
    match = _UNTIL.fullmatch(part.value)
    try:
        if match is None:
            raise ValueError(part.value)
        if not match[2]:
            return datetime.combine(datetime.strptime(match[1], "%Y%m%d"), time(23, 59, 59))  # noqa: DTZ007
        moment = datetime.strptime(match[1] + match[2], "%Y%m%d%H%M%S")  # noqa: DTZ007
    except ValueError as error:
        raise part.refuse("must be a date or time such as 20261231 or 20261231T090000Z") from error
    return moment.replace(tzinfo=UTC) if match[3] else moment


def _refuse_odd_combination(read: RecurrenceParts, parts: dict[str, _Part]) -> None:
    """Refuse what RFC 5545 section 3.3.10 forbids, and the few things that would have no bounded answer."""
    frequency = read.frequency
    if read.count is not None and read.until is not None:
        raise parts["UNTIL"].refuse("COUNT and UNTIL exclude each other")
    if read.by_week_number and frequency is not Frequency.YEARLY:
        raise parts["BYWEEKNO"].refuse("goes only with FREQ=YEARLY")
    if read.by_year_day and frequency in (Frequency.DAILY, Frequency.WEEKLY, Frequency.MONTHLY):
        raise parts["BYYEARDAY"].refuse(f"does not go with FREQ={frequency.name}")
    if read.by_month_day and frequency is Frequency.WEEKLY:
        raise parts["BYMONTHDAY"].refuse("does not go with FREQ=WEEKLY")
    _refuse_odd_weekdays(read, parts)
    _refuse_odd_positions(read, parts)


def _refuse_odd_weekdays(read: RecurrenceParts, parts: dict[str, _Part]) -> None:
    if not any(nth for _, nth in read.by_day):
        return
    if read.frequency > Frequency.MONTHLY:
        raise parts["BYDAY"].refuse("a numbered weekday goes only with FREQ=MONTHLY or FREQ=YEARLY")
    if read.by_week_number:
        raise parts["BYDAY"].refuse("a numbered weekday does not go with BYWEEKNO")
    if read.frequency is Frequency.MONTHLY and any(abs(nth) > 5 for _, nth in read.by_day):
        raise parts["BYDAY"].refuse("no month has more than five of a weekday")


def _refuse_odd_positions(read: RecurrenceParts, parts: dict[str, _Part]) -> None:
    if not read.by_set_position:
        return
    if read.frequency > Frequency.WEEKLY:
        raise parts["BYSETPOS"].refuse("is supported with FREQ=WEEKLY, MONTHLY and YEARLY")
    if not (read.by_day or read.by_month_day or read.by_year_day or read.by_week_number or read.by_month):
        raise parts["BYSETPOS"].refuse("picks from BYDAY, BYMONTHDAY or the like, and there is none")
    if max(len(read.by_hour), 1) * max(len(read.by_minute), 1) * max(len(read.by_second), 1) > 1:
        raise parts["BYSETPOS"].refuse("is supported with one time of day")
