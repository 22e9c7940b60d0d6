"""The audit log: who changed what, when, and from what to what.

Part of the store: the truth, to be backed up. An entry is written before its change is asked for, and told the outcome
afterwards, so that no change can happen that has none: without the first write nothing is done, and without the second the entry
says that the outcome is not known. Entries are never changed otherwise, and leave when they are older than the retention.
"""

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from pydantic import JsonValue
from sqlalchemy import ColumnElement, Row, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from activities.database import reading, writing
from activities.deadline import Deadline
from activities.mirror_row import storable
from activities.page import Page, decode_cursor, fingerprint, make_page, page_size
from activities.pruning import forget_older
from activities.tables import AUDIT_ENTRIES as ENTRIES

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class AuditOutcome(StrEnum):
    """What became of a change."""

    BEGUN = "begun"
    """Written first. Stays where the process died, or the database was away, before the outcome was written."""

    APPLIED = "applied"
    """It was carried out."""

    REFUSED = "refused"
    """Nothing was changed."""

    IN_DOUBT = "in_doubt"
    """Temporal did not answer in time: it may be carried out, or not."""


@dataclass(frozen=True, kw_only=True)
class AuditEntry:
    """One change."""

    entry_id: str = field(default_factory=lambda: new_entry_id(datetime.now(UTC)))
    """In the order of time."""

    tenant: str
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    request_id: str
    """As in the answer's ``X-Request-Id``."""

    actor: str
    """Id of the key; ``anonymous`` where there are no keys yet, ``operator`` by the command line on the database itself,
    ``horarium`` for what the service does by itself."""

    actor_name: str = ""
    """Name of the key, or of the operator's account."""

    action: str
    """Such as ``job.create``."""

    job_id: str | None = None
    subject: str | None = None
    """What else it was done to: a run, a key."""

    before: JsonValue = None
    after: JsonValue = None
    outcome: AuditOutcome = AuditOutcome.BEGUN
    detail: str | None = None
    """Why it was refused, or is in doubt."""


@dataclass(frozen=True, kw_only=True)
class AuditFilter:
    """Which entries are listed. All conditions hold together."""

    job_id: str | None = None
    actor: str | None = None
    action: str | None = None
    start: datetime | None = None
    """Inclusive."""

    end: datetime | None = None
    """Inclusive."""


class AuditStore:
    """The log through one engine. Raises ``Unavailable`` when the database does not answer."""

    def __init__(self, engine: AsyncEngine, *, limit: timedelta = timedelta(seconds=5)) -> None:
        self._engine = engine
        self._deadline = Deadline(limit)

    async def close(self) -> None:
        """Wait for work that ran out of time. The engine is the caller's."""
        await self._deadline.close()

    async def begin(self, entry: AuditEntry) -> None:
        """Write an entry; when this returns it is there, whatever happens next."""

        async def write() -> None:
            async with writing(self._engine) as connection:
                await insert_entry(connection, entry)

        await self._deadline.ask(write())

    async def end(
        self, entry: AuditEntry, *, outcome: AuditOutcome, after: JsonValue = None, detail: str | None = None
    ) -> None:
        """Tell an entry what became of its change."""
        told = {"outcome": outcome.value, "after": after, "detail": None if detail is None else storable(detail)}
        is_it = (ENTRIES.c.tenant == entry.tenant, ENTRIES.c.entry_id == entry.entry_id)

        async def write() -> None:
            async with writing(self._engine) as connection:
                await connection.execute(update(ENTRIES).where(*is_it).values(told))

        await self._deadline.ask(write())

    async def list_entries(
        self, tenant: str, chosen: AuditFilter, *, cursor: str | None = None, limit: int = 50
    ) -> Page[AuditEntry]:
        """List entries, the newest first. Raises ``InvalidCursor``."""
        listing = fingerprint("audit", tenant, chosen)
        at = decode_cursor(cursor, listing=listing, key_length=1) if cursor is not None else None
        backwards = at is not None and at.backwards
        size, entry_id = page_size(limit), ENTRIES.c.entry_id
        query = select(ENTRIES).where(ENTRIES.c.tenant == storable(tenant), *_conditions(chosen))
        if at is not None:
            query = query.where(entry_id > at.key[0] if backwards else entry_id < at.key[0])
        query = query.order_by(entry_id if backwards else entry_id.desc()).limit(size + 1)

        async def read() -> list[AuditEntry]:
            async with reading(self._engine) as connection:
                return [_entry_from(row) for row in await connection.execute(query)]

        found = await self._deadline.ask(read())
        return make_page(found, size=size, at=at, listing=listing, key_of=lambda entry: (entry.entry_id,))

    async def prune(self, *, before: datetime) -> int:
        """Forget entries that are older; return how many."""
        return await forget_older(self._engine, self._deadline, ENTRIES.c.at, before=before)


async def insert_entry(connection: AsyncConnection, entry: AuditEntry) -> None:
    """Write an entry within a transaction, together with the change of which it tells."""
    await connection.execute(insert(ENTRIES).values(_row_of(entry)))


def new_entry_id(moment: datetime) -> str:
    """Make an id that sorts by time, to the millisecond."""
    return f"{_milliseconds(moment):012x}{secrets.token_hex(10)}"


def _milliseconds(moment: datetime) -> int:
    return max(0, (moment - _EPOCH) // timedelta(milliseconds=1))


def _conditions(chosen: AuditFilter) -> list[ColumnElement[bool]]:
    named = ((ENTRIES.c.job_id, chosen.job_id), (ENTRIES.c.actor, chosen.actor), (ENTRIES.c.action, chosen.action))
    conditions: list[ColumnElement[bool]] = [column == storable(text) for column, text in named if text is not None]
    if chosen.start is not None:
        conditions.append(ENTRIES.c.entry_id >= f"{_milliseconds(chosen.start):012x}")
    if chosen.end is not None:
        conditions.append(ENTRIES.c.entry_id < f"{_milliseconds(chosen.end) + 1:012x}")
    return conditions


def _row_of(entry: AuditEntry) -> Mapping[str, Any]:
    fields = asdict(entry) | {"outcome": entry.outcome.value}
    texts = {name: storable(value) for name, value in fields.items() if type(value) is str}
    return fields | texts


def _entry_from(row: Row[Any]) -> AuditEntry:
    fields = row._asdict()
    return AuditEntry(**{**fields, "outcome": AuditOutcome(fields["outcome"])})
