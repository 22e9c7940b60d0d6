"""The API keys of all tenants.

Part of the store: the truth, to be backed up. Keys are made and revoked by whoever may write the database, which is how the first
one comes into being; the API only reads them. Every change is written together with its entry of the audit log.
"""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Row, Update, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.api_key import ApiKey, Scope
from activities.audit_store import AuditEntry, insert_entry
from activities.database import reading, writing
from activities.deadline import Deadline
from activities.tables import API_KEYS

USE_GRAIN: Final = timedelta(minutes=10)
"""A key in use is noted as used this often."""

KEYS_LIMIT: Final = 100_000
"""Of all tenants together, revoked ones included: each API process has them in memory."""


class KeyStore:
    """Keys through one engine. Raises ``Unavailable`` when the database does not answer."""

    def __init__(self, engine: AsyncEngine, *, limit: timedelta = timedelta(seconds=5)) -> None:
        self._engine = engine
        self._deadline = Deadline(limit)

    async def close(self) -> None:
        """Wait for work that ran out of time. The engine is the caller's."""
        await self._deadline.close()

    async def read_keys(self, tenant: str | None = None) -> list[ApiKey]:
        """Read the keys of a tenant, or of all, revoked ones included; the oldest first."""
        query = select(API_KEYS).order_by(API_KEYS.c.created_at, API_KEYS.c.key_id).limit(KEYS_LIMIT)
        if tenant is not None:
            query = query.where(API_KEYS.c.tenant == tenant)

        async def read() -> list[ApiKey]:
            async with reading(self._engine) as connection:
                return [_key_from(row) for row in await connection.execute(query)]

        return await self._deadline.ask(read())

    async def add(self, key: ApiKey, *, entry: AuditEntry) -> None:
        """Keep a new key."""

        async def add() -> None:
            async with writing(self._engine) as connection:
                await connection.execute(insert(API_KEYS).values(asdict(key)))
                await insert_entry(connection, entry)

        await self._deadline.ask(add())

    async def revoke(self, key_id: str, *, now: datetime, entry: AuditEntry) -> bool:
        """Revoke a key. False when it was revoked before, or is not there."""
        change = update(API_KEYS).where(API_KEYS.c.key_id == key_id, API_KEYS.c.revoked_at.is_(None))

        async def revoke() -> bool:
            async with writing(self._engine) as connection:
                changed = (await connection.execute(change.values(revoked_at=now))).rowcount == 1
                if changed:
                    await insert_entry(connection, entry)
                return changed

        return await self._deadline.ask(revoke())

    async def note_use(self, used: Mapping[str, datetime]) -> None:
        """Note when keys were used last, by id."""

        async def note() -> None:
            async with writing(self._engine) as connection:
                for key_id, moment in sorted(used.items()):
                    await connection.execute(_note(key_id, moment))

        if used:
            await self._deadline.ask(note())


def _note(key_id: str, moment: datetime) -> Update:
    last = API_KEYS.c.last_used_at
    # Most find that it was noted a moment ago, by this process or by another, and write nothing.
    is_due = or_(last.is_(None), last < moment - USE_GRAIN)
    return update(API_KEYS).where(API_KEYS.c.key_id == key_id, is_due).values(last_used_at=moment)


def _key_from(row: Row[Any]) -> ApiKey:
    fields = row._asdict()
    return ApiKey(**{**fields, "scope": Scope(fields["scope"])})
