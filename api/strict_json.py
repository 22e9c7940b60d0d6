"""JSON as Horarium accepts it: what Temporal, SQL and job code in any language read back alike.

Python's own reader takes ``NaN``, reads ``1e400`` as infinity, keeps the last of two equal keys and lets half a surrogate
pair through. All of these are refused here, with a pointer to the place. Pure.
"""

import json
import math
from collections.abc import Iterator
from itertools import islice
from typing import Final

from pydantic import JsonValue

from api.problem import FieldError, InvalidRequest

DEPTH_LIMIT: Final = 64
"""Levels of nesting. Readers on the way stop between 100 and 255."""

SMALLEST_INTEGER: Final = -(2**63)
LARGEST_INTEGER: Final = 2**64 - 1
"""Integers outside lose digits, or fail, in most languages."""

_LONGEST_INTEGER: Final = 20
"""Characters that an integer within the bounds can have."""

_ERRORS_SHOWN: Final = 20

_TOO_DEEP: Final = f"nested more than {DEPTH_LIMIT} levels deep"


class _DuplicateKeys(dict[str, JsonValue]):
    """An object in which a key occurred twice."""

    def __init__(self, pairs: list[tuple[str, JsonValue]], *, duplicate: str) -> None:
        super().__init__(pairs)
        self.duplicate = duplicate


def parse_json(text: bytes) -> JsonValue:
    """Read one JSON text in UTF-8. What it holds may still be unfit: see ``require_fit``.

    Raises:
        InvalidRequest: it is no JSON.
    """
    try:
        value: JsonValue = json.loads(text.decode("utf-8-sig"), parse_int=_read_integer, object_pairs_hook=_read_object)
    except UnicodeDecodeError as error:
        raise InvalidRequest(FieldError(detail="not UTF-8", position=error.start)) from error
    except json.JSONDecodeError as error:
        reason = f"not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        raise InvalidRequest(FieldError(detail=reason, position=error.pos)) from error
    except RecursionError as error:
        raise InvalidRequest(FieldError(detail=_TOO_DEEP)) from error
    return value


def require_fit(value: JsonValue) -> JsonValue:
    """Return a value that would survive its way unchanged.

    Raises:
        InvalidRequest: it would not; the first places where it is unfit are named.
    """
    errors = [FieldError(pointer=pointer, detail=reason) for pointer, reason in islice(_unfit(value), _ERRORS_SHOWN)]
    if errors:
        raise InvalidRequest(*errors)
    return value


def compact_size(value: JsonValue) -> int:
    """Count the bytes of a value as compact JSON in UTF-8."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def _read_integer(digits: str) -> int | float:
    # Infinity stands for "out of range" until the walk that refuses both: Python refuses to read very long integers,
    # and here nobody knows where in the text this one is.
    return int(digits) if len(digits) <= _LONGEST_INTEGER else math.inf


def _read_object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    seen: set[str] = set()
    duplicate = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return _DuplicateKeys(pairs, duplicate=duplicate)


def _unfit(value: JsonValue) -> Iterator[tuple[str, str]]:
    """Name the places, as JSON pointers, that hold what cannot be kept unchanged, with the reason."""
    open_values: list[tuple[str, int, JsonValue]] = [("", 0, value)]
    while open_values:
        pointer, depth, current = open_values.pop()
        if reason := _unfit_reason(current):
            yield pointer, reason
        if isinstance(current, dict | list) and depth == DEPTH_LIMIT:
            yield pointer, _TOO_DEEP
        elif isinstance(current, dict):
            open_values += [
                (f"{pointer}/{escape_pointer(str(key))}", depth + 1, inner) for key, inner in current.items()
            ]
        elif isinstance(current, list):
            open_values += [(f"{pointer}/{index}", depth + 1, inner) for index, inner in enumerate(current)]


def _unfit_reason(value: object) -> str | None:
    match value:
        case bool() | None:
            return None
        case str():
            return _unfit_text(value)
        case int():
            return None if SMALLEST_INTEGER <= value <= LARGEST_INTEGER else "the number is out of range"
        case float():
            return None if math.isfinite(value) else "the number is not finite, or out of range"
        case _DuplicateKeys():
            return f"the key {value.duplicate[:100]!r} occurs twice"
        case dict():
            return next((reason for key in value if (reason := _unfit_key(key))), None)
        case list():
            return None
        case _:
            return "JSON has no such value"


def _unfit_key(key: object) -> str | None:
    return _unfit_text(key) if isinstance(key, str) else "the keys of an object are strings"


def _unfit_text(text: str) -> str | None:
    if "\x00" in text:
        return "NUL characters cannot be kept"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "half a surrogate pair is no character"
    return None


def escape_pointer(key: str) -> str:
    """Write one key as a token of a JSON pointer, fit to be printed."""
    return key[:100].encode(errors="replace").decode().replace("~", "~0").replace("/", "~1")
