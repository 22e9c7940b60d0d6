"""One field of a cron expression: its grammar, its values, its refusals.

Owns what may stand between two blanks: ``*``, names, lists, ranges, steps, ``a/n``, ``?``, ``L``, ``5L``, ``5#2`` and
Jenkins' ``H``. Every refusal says what is wrong in words and where, as an index into the whole expression. What the
fields mean together (days of month *or* of week, seconds first) is ``cron_expression``'s.
"""

import hashlib
import re
from dataclasses import dataclass

from workflows.error import InvalidSchedule


@dataclass(frozen=True, slots=True)
class FieldKind:
    """What one of the six fields accepts."""

    name: str
    lowest: int
    highest: int
    names: tuple[str, ...] = ()
    """Names of the values from ``lowest`` on."""

    highest_hashed: int | None = None
    """Highest value that ``H`` picks, where that is less than ``highest``."""

    @property
    def is_month_day(self) -> bool:
        return self is DAY_OF_MONTH

    @property
    def is_week_day(self) -> bool:
        return self is DAY_OF_WEEK


SECOND = FieldKind("second", 0, 59)
MINUTE = FieldKind("minute", 0, 59)
HOUR = FieldKind("hour", 0, 23)
# Jenkins never hashes a day above the 28th, so that an H job runs in every month.
DAY_OF_MONTH = FieldKind("day of month", 1, 31, highest_hashed=28)
MONTH = FieldKind("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"))
DAY_OF_WEEK = FieldKind("day of week", 0, 6, ("sun", "mon", "tue", "wed", "thu", "fri", "sat"))

_SUNDAY_AT_THE_END = 7

_MAX_SHOWN = 40
"""Characters of what is refused that are said again."""


@dataclass(frozen=True, slots=True)
class CronField:
    """The values that one field names."""

    kind: FieldKind
    text: str
    position: int
    """Index of the field's first character in the expression."""

    values: frozenset[int]
    """Plain values; Sunday is 0."""

    last_day: bool = False
    """``L`` in the day of month: the last day of each month."""

    nth_weekdays: frozenset[tuple[int, int]] = frozenset()
    """``5#2``: (weekday, which one in the month)."""

    last_weekdays: frozenset[int] = frozenset()
    """``5L``: the last such weekday of each month."""

    warnings: tuple[str, ...] = ()

    @property
    def is_starred(self) -> bool:
        """Whether the field begins with ``*`` (or is ``?``), which is what cron's rules for days and DST ask."""
        return self.text[0] in "*?"

    @property
    def is_plain_star(self) -> bool:
        return self.text in ("*", "?")


def parse_field(kind: FieldKind, text: str, *, position: int, job_id: str) -> CronField:
    """Read one field. ``position`` is where it starts in the expression.

    Raises InvalidSchedule with the reason and the index of the offending character.
    """
    reading = _FieldReading(kind, text, job_id)
    at = position
    for item in text.split(","):
        reading.read_item(item, at)
        at += len(item) + 1
    return CronField(
        kind,
        text,
        position,
        frozenset(reading.values),
        reading.last_day,
        frozenset(reading.nth_weekdays),
        frozenset(reading.last_weekdays),
        tuple(reading.warnings),
    )


_HASHED = re.compile(r"[hH](?:\(([0-9]+)-([0-9]+)\))?(?:/([0-9]+))?", re.ASCII)
_RANDOM = re.compile(r"[rR](?:[(/].*)?", re.ASCII)
_NTH = re.compile(r"([0-9]+|[a-zA-Z]+)#(.*)", re.ASCII)
_LAST_WEEKDAY = re.compile(r"([0-9]+|[a-zA-Z]{3})[lL]", re.ASCII)
_YEAR = re.compile("[12][0-9]{3}", re.ASCII)
_NEAREST_WEEKDAY = re.compile(r"(?:[0-9]+|[lL])?[wW]", re.ASCII)


class _FieldReading:
    """The growing result of reading one field's items."""

    def __init__(self, kind: FieldKind, text: str, job_id: str) -> None:
        self.kind = kind
        self.text = text
        self.job_id = job_id
        self.values: set[int] = set()
        self.last_day = False
        self.nth_weekdays: set[tuple[int, int]] = set()
        self.last_weekdays: set[int] = set()
        self.warnings: list[str] = []

    def read_item(self, item: str, at: int) -> None:
        """Add what one item of the list names. ``at`` is where it starts in the expression."""
        if not item:
            raise _refusal(f"the {self.kind.name} field has an empty item in its list", at)
        if item == "?":
            self._read_question_mark(at)
        elif _RANDOM.fullmatch(item):
            reason = f"R (random) in the {self.kind.name} field would be another at every look; use H, fixed for a job"
            raise _refusal(reason, at)
        elif match := _HASHED.fullmatch(item):
            self._read_hashed(match, at)
        elif self.kind.is_month_day and item in ("l", "L"):
            self.last_day = True
        elif self.kind.is_week_day and self._read_special_weekday(item, at):
            pass
        elif _NEAREST_WEEKDAY.fullmatch(item):
            raise _refusal(f"W (nearest weekday) in the {self.kind.name} field is not supported", at)
        else:
            self._read_range(item, at)

    def _read_question_mark(self, at: int) -> None:
        if not (self.kind.is_month_day or self.kind.is_week_day):
            raise _refusal(f"? stands only in the day fields, not in the {self.kind.name} field", at)
        if self.text != "?":
            raise _refusal(f"? stands alone in the {self.kind.name} field, not in a list", at)
        self.values.update(range(self.kind.lowest, self.kind.highest + 1))

    def _read_special_weekday(self, item: str, at: int) -> bool:
        """Take ``5#2`` or ``5L``; answer whether the item was one of them."""
        if match := _NTH.fullmatch(item):
            weekday = self._value(match[1], at) % _SUNDAY_AT_THE_END
            if match[2] not in ("1", "2", "3", "4", "5"):
                reason = f"after # in the {self.kind.name} field stands a number from 1 to 5: fri#2 is a second Friday"
                raise _refusal(reason, at + match.start(2) if match[2] else at + len(item) - 1)
            self.nth_weekdays.add((weekday, int(match[2])))
            return True
        if match := _LAST_WEEKDAY.fullmatch(item):
            self.last_weekdays.add(self._value(match[1], at) % _SUNDAY_AT_THE_END)
            return True
        return False

    def _read_hashed(self, match: re.Match[str], at: int) -> None:
        kind = self.kind
        low, high = kind.lowest, kind.highest_hashed or kind.highest
        if match[1]:
            low, high = self._bounds(match[1], at + match.start(1), match[2], at + match.start(2))
        span = high - low + 1
        step = self._step(match[3], at + match.start(3), span - 1) if match[3] else span
        first = low + _hash_of(self.job_id, kind.name) % min(step, span)
        self.values.update(range(first, high + 1, step))

    def _read_range(self, item: str, at: int) -> None:
        """``*``, a value or a range, each with or without a step."""
        base, slash, step_text = item.partition("/")
        step_at = at + len(base) + 1
        if not base:
            raise _refusal(f"nothing stands before / in the {self.kind.name} field", at)
        low, high = self._range(base, at, open_ended=bool(slash))
        step = self._step(step_text, step_at, high - low) if slash else 1
        top = _SUNDAY_AT_THE_END if self.kind.is_week_day else None
        self.values.update(0 if value == top else value for value in range(low, high + 1, step))

    def _range(self, base: str, at: int, *, open_ended: bool) -> tuple[int, int]:
        if base == "*":
            return self.kind.lowest, self.kind.highest
        if "-" in base[1:]:
            low_text, _, high_text = base.partition("-")
            return self._bounds(low_text, at, high_text, at + len(low_text) + 1)
        value = self._value(base, at)
        if not open_ended:
            return value, value
        return value % _SUNDAY_AT_THE_END if self.kind.is_week_day else value, self.kind.highest

    def _bounds(self, low_text: str, low_at: int, high_text: str, high_at: int) -> tuple[int, int]:
        low, high = self._value(low_text, low_at), self._value(high_text, high_at)
        backwards = f"the range {low_text}-{high_text} of the {self.kind.name} field runs backwards"
        if self.kind.is_week_day and high == 0 and low > 0:
            high = _SUNDAY_AT_THE_END
            if not high_text.isalpha():
                raise _refusal(f"{backwards}; Sunday at its end is 7", low_at)
        if low > high:
            raise _refusal(f"{backwards}; write it as two ranges", low_at)
        return low, high

    def _value(self, text: str, at: int) -> int:
        kind = self.kind
        if not text:
            raise _refusal(f"a value is missing in the {kind.name} field", at)
        if text.isdecimal():
            return self._number(text, at)
        if text.lower() in kind.names:
            return kind.lowest + kind.names.index(text.lower())
        article = "an" if kind is HOUR else "a"
        raise _refusal(f"{_shown(text)} is not {article} {kind.name}{_hint(kind, text)}", at)

    def _number(self, text: str, at: int) -> int:
        highest = _SUNDAY_AT_THE_END if self.kind.is_week_day else self.kind.highest
        value = int(text)
        if not self.kind.lowest <= value <= highest:
            year = (
                "; a year field is not supported, use start_at and end_at"
                if self.kind.is_week_day and _YEAR.fullmatch(text)
                else ""
            )
            raise _refusal(f"{self.kind.name} {_shown(text)} is outside {self.kind.lowest}-{highest}{year}", at)
        return value

    def _step(self, text: str, at: int, span: int) -> int:
        """Read a step; one longer than ``span`` leaves only the first value, as in cron, and earns a warning."""
        if not text.isdecimal():
            raise _refusal(
                f"the step after / in the {self.kind.name} field must be a whole number, not {_shown(text)}", at
            )
        step = int(text)
        if step == 0:
            raise _refusal(f"the step after / in the {self.kind.name} field must be at least 1", at)
        if step > max(span, 1):
            self.warnings.append(
                f"step {_clipped(text)} in the {self.kind.name} field is longer than its range: only the first value is left"
            )
        return step


def _hint(kind: FieldKind, text: str) -> str:
    """Say how a sign is used that ``text`` has in a wrong place."""
    if "#" in text:
        return "; fri#2, the second Friday of a month, stands in the day of week field, without a range or a step"
    if kind.is_month_day and text[0] in "lL":
        return "; L, the last day of a month, stands alone"
    if kind.is_week_day and text[-1] in "lL":
        return "; the last Friday of a month is 5L, without a range or a step"
    if text[0] in "hH":
        return "; H stands alone, or as H/15 or H(0-29)"
    if text[0] in "*?":
        return f"; {text[0]} stands alone" + (", or before a step" if text[0] == "*" else "")
    if "-" in text:
        return "; a range is two values with a hyphen between them"
    return ""


def _shown(text: str) -> str:
    return repr(_clipped(text)) if not text.isdecimal() else _clipped(text)


def _clipped(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _hash_of(job_id: str, field_name: str) -> int:
    digest = hashlib.sha256(f"{job_id}\0{field_name}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")


def _refusal(reason: str, position: int) -> InvalidSchedule:
    return InvalidSchedule(reason, position=position)
