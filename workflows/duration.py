"""Lengths of elapsed time as people write them."""

import math
import re
from datetime import timedelta

from workflows.error import InvalidSchedule

LONGEST = timedelta(days=36_600)
"""A hundred years. Longer intervals are refused: nobody would see their second fire."""

_UNITS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_SHORT = re.compile(r"(?:([0-9]{1,12})w)?(?:([0-9]{1,12})d)?(?:([0-9]{1,12})h)?(?:([0-9]{1,12})m)?(?:([0-9]{1,12})s)?")
_NUMBER = r"([0-9]{1,12}(?:[.,][0-9]{1,9})?)"
_ISO = re.compile(
    rf"P(?:{_NUMBER}W)?(?:{_NUMBER}D)?(?:T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?", re.IGNORECASE
)
_CALENDAR_UNITS = re.compile(r"P(?:[0-9.,]+[YM])", re.IGNORECASE)


def parse_duration(value: str | float | bool, *, pointer: str) -> timedelta:
    """Read seconds, ``15m``, ``1h30m`` or ISO 8601 such as ``PT6H``: whole seconds from one second to a hundred years.

    Raises InvalidSchedule with ``pointer``.
    """
    seconds = _parse_text(value, pointer) if isinstance(value, str) else _parse_number(value, pointer)
    if not seconds >= 1:
        raise InvalidSchedule("the interval must be at least one second", pointer=pointer)
    if seconds > LONGEST.total_seconds():
        raise InvalidSchedule(f"the interval must be at most {LONGEST.days} days", pointer=pointer)
    if seconds != int(seconds):
        raise InvalidSchedule("the interval must be whole seconds", pointer=pointer)
    return timedelta(seconds=int(seconds))


def describe_duration(length: timedelta) -> str:
    """Write a length as ``1 hour 30 minutes``."""
    seconds = length // timedelta(seconds=1)
    words = []
    for name, size in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            words.append(f"{count} {name}" + ("s" if count > 1 else ""))
    return " ".join(words) or "0 seconds"


def _parse_number(value: float | bool, pointer: str) -> float:
    if isinstance(value, bool) or not math.isfinite(value):
        raise InvalidSchedule("the interval must be a number of seconds", pointer=pointer)
    return value


def _parse_text(text: str, pointer: str) -> float:
    words = text.strip()
    short = _SHORT.fullmatch(words.lower())
    iso = _ISO.fullmatch(words)
    match = short if short and short.lastindex else iso if iso and iso.lastindex else None
    if match is not None:
        parts = zip(match.groups(), _UNITS.values(), strict=True)
        return sum(float(part.replace(",", ".")) * unit for part, unit in parts if part)
    raise InvalidSchedule(_what_is_wrong(words), pointer=pointer)


def _what_is_wrong(words: str) -> str:
    shown = f"{words[:40]!r} is not a length of time"
    if words.isascii() and words.isdigit():
        return f"{shown}: its unit is missing, write {words[:12]}s or a number"
    if _CALENDAR_UNITS.match(words):
        return f"{shown}: months and years differ in length, use cron or rrule for them"
    return f"{shown}: write 15m, 1h30m or PT6H"
