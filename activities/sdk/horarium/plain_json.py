"""Turns what job code hands over into plain JSON, or says why that is impossible."""

import json
from typing import Final

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from horarium.error import PermanentError

RESULT_LIMIT: Final = 1024 * 1024
"""Bytes of JSON. Temporal refuses a message above 2 MiB, and a result stays in the history until retention."""

CHECKPOINT_LIMIT: Final = 64 * 1024
"""Bytes of JSON. A checkpoint travels in every heartbeat and in the job's own state: a cursor, not the data."""


def to_plain_json(value: object, *, name: str, limit: int) -> JsonValue:
    """Convert models, dataclasses, dates, enums, sets and the like to what JSON has.

    ``name`` says in messages whose value it is. Raises ``PermanentError`` for NaN and the infinities, for objects that
    have no JSON form, for text that is not Unicode, and above ``limit`` bytes.
    """
    try:
        plain: JsonValue = to_jsonable_python(value)
        text = json.dumps(plain, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        size = len(text.encode())
    except (ValueError, TypeError, RecursionError) as error:
        raise PermanentError(f"{name} cannot be written as JSON: {error}") from error
    if size > limit:
        raise PermanentError(f"{name} is {size:,} bytes of JSON; at most {limit:,} are kept. Store it and name where.")
    # Read back, so that what is shared or mutable stays with the job's code.
    copy: JsonValue = json.loads(text)
    return copy
