"""What a cron expression means, before any zone.

Owns our dialect: five fields, or six with seconds first, or a nickname; which local dates and times of day match; and
the two questions that daylight saving asks (are the hours named, is the expression fixed-time). Refuses everything
else with a reason and a position. Knows nothing of zones, of the present time or of croniter; ``for_croniter`` only
spells the day fields so that croniter reads them as we do.
"""

import re
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

from workflows.cron_field import (
    DAY_OF_MONTH,
    DAY_OF_WEEK,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    CronField,
    parse_field,
)
from workflows.error import InvalidSchedule

MAX_LENGTH = 1_000
"""Longest accepted expression. Every field written out value by value needs less than half of it."""

NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_DAYS_IN_MONTH = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FIVE_FIELDS = (MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK)
_SIX_FIELDS = (SECOND, *_FIVE_FIELDS)
_IMPLIED_SECOND = CronField(SECOND, "0", 0, frozenset((0,)))
_FIELD = re.compile(r"[^ \t]+")
_FOREIGN_PREFIX = re.compile(r"cron\(|(?:CRON_)?TZ=", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CronExpression:
    """A parsed expression: the values of its fields and what they mean together."""

    text: str
    """As written, outer blanks removed."""

    second: CronField
    minute: CronField
    hour: CronField
    day_of_month: CronField
    month: CronField
    day_of_week: CronField
    has_seconds: bool = False
    """Whether six fields were given."""

    warnings: tuple[str, ...] = ()

    @property
    def names_hours(self) -> bool:
        """Whether the hours are named, so that none of them may be lost to a gap."""
        return not self.hour.is_starred

    @property
    def is_fixed_time(self) -> bool:
        """Whether minute and hour are both named, so that a repeated hour must not repeat the fire."""
        return not self.minute.is_starred and not self.hour.is_starred

    @property
    def needs_both_day_fields(self) -> bool:
        """Cron's star rule: the day fields are alternatives only where neither begins with ``*``."""
        return self.day_of_month.is_starred or self.day_of_week.is_starred

    @property
    def names_every_date(self) -> bool:
        return self.day_of_month.is_plain_star and self.day_of_week.is_plain_star and len(self.month.values) == 12

    @property
    def is_hashed(self) -> bool:
        """Whether an ``H`` makes the answer depend on the job's id."""
        fields = (self.second, self.minute, self.hour, self.day_of_month, self.month, self.day_of_week)
        return any(item[0] in "hH" for field in fields for item in field.text.split(","))

    def matches_date(self, day: date) -> bool:
        """Whether the expression names this local date."""
        if day.month not in self.month.values:
            return False
        by_month = self._matches_day_of_month(day)
        if self.needs_both_day_fields:
            return by_month and self._matches_day_of_week(day)
        return by_month or self._matches_day_of_week(day)

    def _matches_day_of_month(self, day: date) -> bool:
        field = self.day_of_month
        return day.day in field.values or (field.last_day and day.day == days_in_month(day.year, day.month))

    def _matches_day_of_week(self, day: date) -> bool:
        field, weekday = self.day_of_week, day.isoweekday() % 7
        if weekday in field.values:
            return True
        if field.nth_weekdays and (weekday, (day.day + 6) // 7) in field.nth_weekdays:
            return True
        return weekday in field.last_weekdays and day.day + 7 > days_in_month(day.year, day.month)

    def names_any_date(self) -> bool:
        """Whether any date at all matches. False for 30 February alone."""
        # 28 years without a skipped leap day hold every combination of leap year and weekday of 1 January.
        first = date(2000, 1, 1)
        return self.names_every_date or any(
            self.matches_date(first + timedelta(days=number)) for number in range(28 * 365 + 7)
        )

    def for_croniter(self) -> tuple[str, ...]:
        """Spell the dates as croniter expressions for midnight; a date matches if it matches any of them.

        Each of them joins its two day fields by *and* (croniter's ``day_or=False``), so that none of croniter's own
        rules about stars, ``L`` and ``#`` in combination is relied on.
        """
        month = _spell(self.month.values, 12)
        by_month, by_week = _spell_days_of_month(self.day_of_month), _spell_days_of_week(self.day_of_week)
        if self.needs_both_day_fields:
            return tuple(f"0 0 {days} {month} {weekdays}" for days in by_month for weekdays in by_week)
        return (*(f"0 0 {days} {month} *" for days in by_month), *(f"0 0 * {month} {days}" for days in by_week))


@lru_cache(maxsize=1024)
def parse_cron(text: str, *, job_id: str, pointer: str = "/schedule") -> CronExpression:
    """Read one expression of our dialect. ``H`` is hashed by ``job_id``, which may be empty for a preview.

    Raises InvalidSchedule with ``pointer``, the reason and the zero-based position of the offending character. An
    expression that only names impossible dates is read all the same; ``refuse_impossible_dates`` refuses it.
    """
    try:
        return _parse(text, job_id)
    except InvalidSchedule as error:
        raise InvalidSchedule(error.reason, pointer=pointer, position=error.position) from None


def refuse_impossible_dates(expression: CronExpression, *, pointer: str = "/schedule") -> None:
    """Raise InvalidSchedule for an expression that no date matches, such as ``0 0 30 2 *``."""
    if expression.names_any_date():
        return
    day, month, weekday = expression.day_of_month, expression.month, expression.day_of_week
    reason = f"never fires: no date has day of month {day.text!r} and month {month.text!r}"
    if not weekday.is_plain_star:
        reason += f" and day of week {weekday.text!r}"
    raise InvalidSchedule(reason, pointer=pointer, position=day.position)


def days_in_month(year: int, month: int) -> int:
    """Length of a month of the proleptic Gregorian calendar."""
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return _DAYS_IN_MONTH[month - 1] + leap


def _parse(text: str, job_id: str) -> CronExpression:
    stripped = text.strip(" \t\r\n")
    start = text.find(stripped) if stripped else 0
    _refuse_odd_text(text, stripped, start)
    if stripped.startswith("@"):
        nickname = _nickname(stripped, start)
        return _parse_fields(stripped, [(start, word) for word in nickname.split(" ")], job_id)
    words = [(match.start() + start, match[0]) for match in _FIELD.finditer(stripped)]
    return _parse_fields(stripped, words, job_id)


def _refuse_odd_text(text: str, stripped: str, start: int) -> None:
    if not stripped:
        raise InvalidSchedule("the cron expression is empty", position=0)
    if len(text) > MAX_LENGTH:
        raise InvalidSchedule(f"the cron expression is longer than {MAX_LENGTH} characters", position=MAX_LENGTH)
    if match := _FOREIGN_PREFIX.match(stripped):
        instead = "the fields stand alone" if match[0].endswith("(") else "the zone is given as timezone"
        raise InvalidSchedule(f"{match[0]} does not begin a cron expression: {instead}", position=start)
    for index, character in enumerate(stripped, start):
        if character in "\r\n":
            raise InvalidSchedule("one expression a schedule: there is a line break inside", position=index)
        if not (" " <= character <= "~" or character == "\t"):
            raise InvalidSchedule(f"{character!r} cannot stand in a cron expression", position=index)


def _nickname(stripped: str, start: int) -> str:
    name = stripped.lower()
    if name in NICKNAMES:
        return NICKNAMES[name]
    if name == "@reboot":
        raise InvalidSchedule("@reboot names no time: a job here outlives every reboot", position=start)
    if name.startswith("@every"):
        raise InvalidSchedule("@every is an interval and cannot stand where a cron expression is asked", position=start)
    if name.split()[0] in NICKNAMES:
        raise InvalidSchedule("a nickname such as @daily stands alone", position=start)
    raise InvalidSchedule(f"unknown nickname; known are {', '.join(NICKNAMES)} and @every", position=start)


def _parse_fields(stripped: str, words: list[tuple[int, str]], job_id: str) -> CronExpression:
    if len(words) not in (5, 6):
        raise _wrong_field_count(words)
    kinds = _FIVE_FIELDS if len(words) == 5 else _SIX_FIELDS
    fields = [
        parse_field(kind, word, position=position, job_id=job_id)
        for kind, (position, word) in zip(kinds, words, strict=True)
    ]
    has_seconds = len(fields) == 6
    second, minute, hour, day_of_month, month, day_of_week = fields if has_seconds else [_IMPLIED_SECOND, *fields]
    warnings = tuple(warning for field in fields for warning in field.warnings)
    return CronExpression(
        stripped, second, minute, hour, day_of_month, month, day_of_week, has_seconds=has_seconds, warnings=warnings
    )


def _wrong_field_count(words: list[tuple[int, str]]) -> InvalidSchedule:
    reason = f"a cron expression has five fields, or six with seconds first, not {len(words)}"
    if len(words) == 7:
        reason += "; a year field is not supported, use start_at and end_at"
    position = words[6][0] if len(words) > 6 else words[-1][0] + len(words[-1][1])
    return InvalidSchedule(reason, position=position)


def _spell(values: frozenset[int], count: int) -> str:
    return "*" if len(values) == count else ",".join(str(value) for value in sorted(values))


def _spell_days_of_month(field: CronField) -> tuple[str, ...]:
    plain = (_spell(field.values, 31),) if field.values else ()
    return (*plain, "l") if field.last_day else plain


def _spell_days_of_week(field: CronField) -> tuple[str, ...]:
    plain = (_spell(field.values, 7),) if field.values else ()
    special = [f"{weekday}#{nth}" for weekday, nth in sorted(field.nth_weekdays)]
    special += [f"l{weekday}" for weekday in sorted(field.last_weekdays)]
    return (*plain, ",".join(special)) if special else plain
