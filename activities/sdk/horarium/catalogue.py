"""What a worker tells of its activities, so that a payload is checked when a job is registered and not when it first fires.

The catalogue of a task queue is a small workflow beside the scheduler's others. A worker sends it, by signal-with-start, an
*announcement*: a version of its code, and the payload schema of each activity. The catalogue keeps those heard of lately in its
memo, where anybody can read them without a worker being there. Nothing of this is on the way of a fire.

Names and shapes here are wire format, as ``JobRun`` is: new members have defaults, none is ever renamed or reused. Workers in
other languages may announce, and need not.
"""

import base64
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pydantic import JsonValue

from horarium.job_activity import name_of, payload_fit_of
from horarium.payload_fit import JsonSchema, PayloadFit

CATALOGUE_WORKFLOW: Final = "HorariumCatalogue"
CATALOGUE_TASK_QUEUE: Final = "horarium"
"""Where the scheduler's workflows run, whichever queue the catalogue is about."""

ANNOUNCE: Final = "announce"
"""The signal."""

CATALOGUE_MEMO: Final = "catalogue"

RENEW_EVERY: Final = timedelta(minutes=10)
"""How often a worker looks whether its version is still known. That is a read; one signal serves all workers of a version."""

FRESH_FOR: Final = RENEW_EVERY / 2
"""A version heard of so lately needs no renewal."""

HEARD_OF_FOR: Final = RENEW_EVERY * 2.5
"""A version whose workers have not been heard of for so long, while those of another one have, is gone."""

SCHEMA_LIMIT: Final = 32 * 1024
"""Bytes of one schema. An activity whose schema is larger is announced without it, and its payloads are not checked."""

ANNOUNCEMENT_LIMIT: Final = 128 * 1024
"""Bytes of all schemas of a version."""


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """What one version of a worker can run."""

    version: str
    """Any text that changes when ``schemas`` does, and is the same for all workers of one version."""

    schemas: dict[str, JsonSchema | None]
    """JSON Schema of the payload by activity; ``None`` where a worker cannot say."""

    def to_json(self) -> dict[str, JsonValue]:
        """Write it as the signal's argument."""
        return {
            "version": self.version,
            "activities": {name: {"payload_schema": schema} for name, schema in self.schemas.items()},
        }


def catalogue_workflow_id(task_queue: str) -> str:
    """Name the catalogue of a task queue. It has no tenant: a queue serves the jobs of all."""
    return f"catalogue/{task_queue}"


def pack(catalogue: JsonValue) -> str:
    """Write a catalogue as its memo has it: a memo stands in every row of a list of workflows, and schemas shrink to a tenth."""
    return base64.b64encode(zlib.compress(json.dumps(catalogue, separators=(",", ":")).encode(), 9)).decode()


def unpack(memo: str) -> JsonValue:
    """Read a memo. Raises ``ValueError`` for what ``pack`` has not written."""
    try:
        catalogue: JsonValue = json.loads(zlib.decompress(base64.b64decode(memo, validate=True)))
    except zlib.error as error:
        raise ValueError("not a catalogue") from error
    return catalogue


def announce(functions: Iterable[Callable[..., Any]]) -> Announcement:
    """Say what a worker with these activities can run, wrapped already or not."""
    schemas = _bounded(
        {name: _payload_schema_of(function) for function in functions if (name := name_of(function)) is not None}
    )
    text = json.dumps(schemas, sort_keys=True)
    return Announcement(version=hashlib.sha256(text.encode()).hexdigest()[:16], schemas=schemas)


def _payload_schema_of(function: Callable[..., Any]) -> JsonSchema | None:
    try:
        schema = (payload_fit_of(function) or PayloadFit(function)).json_schema()
        json.dumps(schema, allow_nan=False)
    except Exception:
        # Types and hooks are the team's, and may raise anything. The activity may also be one that no job ever runs.
        return None
    return schema


def _bounded(schemas: dict[str, JsonSchema | None]) -> dict[str, JsonSchema | None]:
    """Leave out what is too large, the largest first."""
    kept: dict[str, JsonSchema | None] = dict.fromkeys(sorted(schemas))
    room = ANNOUNCEMENT_LIMIT
    for size, name in sorted((len(json.dumps(schema)), name) for name, schema in schemas.items()):
        if size > min(room, SCHEMA_LIMIT):
            break
        kept[name] = schemas[name]
        room -= size
    return kept
