"""Records as rows, and rows as the values that they show.

Pure. A run's row has the fields of ``Run``, an attempt's those of ``Attempt``, a ledger row those of ``LedgerEntry``; a job's
row adds to the record what people search by.
"""

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from operator import itemgetter
from typing import Any, Final, TypeAlias, TypeVar

from pydantic import JsonValue, ValidationError

from workflows.backfill_record import BackfillRecord
from workflows.error import Unavailable
from workflows.job import AttemptRecord, Hold, JobDefinition, JobRecord, LedgerEntry, LedgerRecord, RunRecord
from workflows.run import Attempt, Run
from workflows.target import target_name
from workflows.value import Value

SqlValue: TypeAlias = str | int | float | bytes | bool | datetime | JsonValue | None
Row: TypeAlias = dict[str, SqlValue]
AnyValue = TypeVar("AnyValue", bound=Value)

UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
"""PostgreSQL's text holds no NUL, and UTF-8 no half of a surrogate pair."""

DOCUMENTS: Final = frozenset({"checkpoint", "result"})
"""Columns whose text is JSON, which is written in ASCII and therefore holds anything."""

NUL_SIGN: Final = "\u2400"
REPLACEMENT_SIGN: Final = "\ufffd"


class JsonText(str):
    """JSON as a database has it: read with its row, where somebody has the time for what may be long."""

    __slots__ = ()


def storable(value: str) -> str:
    """Replace what a database cannot hold by a sign that people see."""
    return UNSTORABLE.sub(lambda found: NUL_SIGN if found[0] == "\x00" else REPLACEMENT_SIGN, value)


def job_row(record: JobRecord) -> Row:
    """Lay out a job's record."""
    definition = record.definition
    kept = record.model_dump(exclude={"lifecycle", "definition", "counts"})
    return _storable_row(
        {
            **kept,
            "state": record.lifecycle.value,
            "definition": definition.model_dump(mode="json"),
            "counts": record.counts.model_dump(mode="json"),
            "pause": None if record.pause is None else record.pause.model_dump(mode="json"),
            "holds": {each.hold_id: each.model_dump(mode="json") for each in record.holds} or None,
            "name": definition.name,
            "owner": definition.owner,
            "labels": {storable(name): storable(value) for name, value in definition.labels.items()},
            "target": target_name(definition.target),
            "task_queue": definition.target.task_queue,
            "downstream": definition.downstream,
            "search_text": search_text(record.job_id, definition),
            "calendars": {each.name: each.version for each in definition.schedule.calendars} or None,
        }
    )


def search_text(job_id: str, definition: JobDefinition) -> str:
    """Put together what a search looks in. Parts are on lines of their own, so that no match spans two."""
    parts = (job_id, definition.name, definition.description, definition.owner, target_name(definition.target))
    return "\n".join(parts).casefold()


def run_row(record: RunRecord) -> Row:
    """Lay out a run's record."""
    run = record.run
    return _storable_row({**_about(record), **run.model_dump(), "failure": _document(run)})


def attempt_row(record: AttemptRecord) -> Row:
    """Lay out an attempt's record."""
    attempt = record.attempt
    return _storable_row({**_about(record), **attempt.model_dump(), "failure": _document(attempt)})


def ledger_row(record: LedgerRecord) -> Row:
    """Lay out a ledger entry's record."""
    return _storable_row({**_about(record), **record.entry.model_dump()})


def backfill_row(record: BackfillRecord) -> Row:
    """Lay out a backfill's record."""
    return _storable_row({**record.model_dump(), "running": list(record.running)})


def _about(record: RunRecord | AttemptRecord | LedgerRecord) -> Row:
    return {"tenant": record.tenant, "job_id": record.job_id, "version": record.version}


def _document(value: Run | Attempt) -> JsonValue:
    return None if value.failure is None else value.failure.model_dump(mode="json")


def _storable_row(row: Row) -> Row:
    return {
        name: storable(value) if isinstance(value, str) and name not in DOCUMENTS else value
        for name, value in row.items()
    }


def newest(rows: Iterable[Row], *, key: tuple[str, ...]) -> list[Row]:
    """Keep the newest row of each key, in the order of the keys.

    All writers lock rows in this order, so that two of them never wait for each other.
    """
    kept: dict[tuple[Any, ...], Row] = {}
    for row in sorted(rows, key=itemgetter("version")):
        kept[tuple(row[name] for name in key)] = row
    return [kept[identity] for identity in sorted(kept)]


def job_from(row: Mapping[str, SqlValue], *, with_payload: bool = True) -> JobRecord:
    """Read a row of ``jobs``. A payload may be long, and takes most of the time."""
    row = _with_documents(row)
    if not with_payload and isinstance(definition := row["definition"], dict):
        row = {**row, "definition": {**definition, "payload": None}}
    holds = row.get("holds")
    found = list(holds.values()) if isinstance(holds, dict) else []
    # In the order in which they came: PostgreSQL keeps none.
    ordered = sorted((_read(Hold, each) for each in found), key=lambda hold: (hold.at, hold.hold_id))
    return _read(JobRecord, {**row, "lifecycle": row["state"], "holds": ordered})


def run_from(row: Mapping[str, SqlValue]) -> RunRecord:
    """Read a row of ``runs``."""
    row = _with_documents(row)
    return _read(RunRecord, {**_identity(row), "run": dict(row)})


def attempt_from(row: Mapping[str, SqlValue]) -> Attempt:
    """Read a row of ``attempts``."""
    return _read(Attempt, _with_documents(row))


def entry_from(row: Mapping[str, SqlValue]) -> LedgerEntry:
    """Read a row of ``ledger``."""
    return _read(LedgerEntry, dict(row))


def backfill_from(row: Mapping[str, SqlValue]) -> BackfillRecord:
    """Read a row of ``backfills``."""
    return _read(BackfillRecord, dict(row))


def _with_documents(row: Mapping[str, SqlValue]) -> Row:
    return {name: json.loads(value) if isinstance(value, JsonText) else value for name, value in row.items()}


def _read(model: type[AnyValue], found: object) -> AnyValue:
    """Raise ``Unavailable`` for what a later release has written, beside this one or before it was taken back."""
    try:
        return model.model_validate(found)
    except ValidationError as error:
        first, *_ = error.errors(include_url=False)
        field = ".".join(map(str, first["loc"]))
        raise Unavailable(
            f"the database has a {model.__name__} that this release cannot read, one of a later release probably: "
            f"{field}: {first['msg']}, and not {first['input']!r:.100}"
        ) from error


def _identity(row: Mapping[str, SqlValue]) -> Row:
    return {name: row[name] for name in ("tenant", "job_id", "version")}
