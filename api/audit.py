"""The audit log: each change is noted before it is asked for, and its outcome afterwards.

Wrap what changes something, where everything that can be refused without asking Temporal has been refused:

    async with self._audit.recording("job.pause", tenant=tenant, job_id=job_id, before=job_facts(found)) as note:
        record = await self._control.pause(...)
        note.after = job_facts(record)

Who asks, and in which request, is known from the request's context.
"""

import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pydantic import BaseModel, Field, JsonValue

from activities.audit_store import AuditEntry, AuditFilter, AuditOutcome, AuditStore
from activities.page import Page
from api.caller import CALLER, REQUEST_ID
from api.strict_json import compact_size
from workflows.error import Busy, HorariumError, Unavailable
from workflows.job import JobRecord

logger = logging.getLogger(__name__)

PAYLOAD_KEPT: Final = 8_192
"""Bytes of a payload that an entry holds; of a larger one it has the size and the SHA-256."""


@dataclass
class Note:
    """What an entry is told while its change is made."""

    after: JsonValue = None


class AuditAnswer(BaseModel):
    """A change, and who made it."""

    entry_id: str
    at: datetime
    request_id: str = Field(
        description="As the answer's X-Request-Id; empty for changes by command line on the database."
    )
    actor: str = Field(
        description="Id of the API key; `anonymous` before there were keys, `operator` on the database, `horarium` by itself."
    )
    actor_name: str
    action: str = Field(description="Such as `job.create`.")
    job_id: str | None
    subject: str | None = Field(description="What else was changed: a run, a key, a tenant.")
    before: JsonValue
    after: JsonValue
    outcome: AuditOutcome = Field(
        description="`begun`, when the service ended before it could tell; `in_doubt`, when Temporal did not answer in time."
    )
    detail: str | None = Field(description="Why it was refused, or is in doubt.")


class Audit:
    """The log of all tenants."""

    def __init__(self, store: AuditStore) -> None:
        self._store = store

    @asynccontextmanager
    async def recording(
        self,
        action: str,
        *,
        tenant: str,
        job_id: str | None = None,
        subject: str | None = None,
        before: JsonValue = None,
    ) -> AsyncIterator[Note]:
        """Note the change that is made within the block. Raises ``Unavailable``, and then nothing is changed."""
        caller, note = CALLER.get(), Note()
        entry = AuditEntry(
            tenant=tenant,
            request_id=REQUEST_ID.get(),
            actor=caller.actor,
            actor_name=caller.name,
            action=action,
            job_id=job_id,
            subject=subject,
            before=before,
        )
        await self._store.begin(entry)
        try:
            yield note
        except HorariumError as error:
            is_open = isinstance(error, Unavailable) and not isinstance(error, Busy)
            outcome = AuditOutcome.IN_DOUBT if is_open else AuditOutcome.REFUSED
            await self._end(entry, outcome=outcome, detail=str(error))
            raise
        except Exception as error:
            # Only its kind: its text may hold what was sent.
            await self._end(entry, outcome=AuditOutcome.IN_DOUBT, detail=type(error).__name__)
            raise
        await self._end(entry, outcome=AuditOutcome.APPLIED, after=note.after)

    async def list_entries(
        self, chosen: AuditFilter, *, tenant: str, cursor: str | None, limit: int
    ) -> Page[AuditAnswer]:
        """List the changes of a tenant, the newest first. Raises ``InvalidCursor``."""
        page = await self._store.list_entries(tenant, chosen, cursor=cursor, limit=limit)
        return Page(tuple(map(_describe, page.items)), next=page.next, previous=page.previous)

    async def _end(
        self, entry: AuditEntry, *, outcome: AuditOutcome, after: JsonValue = None, detail: str | None = None
    ) -> None:
        try:
            await self._store.end(entry, outcome=outcome, after=after, detail=detail)
        except Unavailable:
            # The entry stays as begun, which says just that.
            logger.warning("the outcome of a change is not in the audit log", extra={"audit_entry": entry.entry_id})


def job_facts(record: JobRecord | None) -> JsonValue:
    """Say of a job what a change can change; ``None`` where there is none."""
    if record is None:
        return None
    definition = record.definition.model_dump(mode="json")
    if (size := compact_size(definition["payload"])) > PAYLOAD_KEPT:
        digest = hashlib.sha256(record.definition.model_dump_json(include={"payload"}).encode()).hexdigest()
        definition["payload"] = {"bytes": size, "sha256": digest}
    return {"revision": record.revision, "state": record.lifecycle.value, "definition": definition}


def _describe(entry: AuditEntry) -> AuditAnswer:
    return AuditAnswer(
        entry_id=entry.entry_id,
        at=entry.at,
        request_id=entry.request_id,
        actor=entry.actor,
        actor_name=entry.actor_name,
        action=entry.action,
        job_id=entry.job_id,
        subject=entry.subject,
        before=entry.before,
        after=entry.after,
        outcome=entry.outcome,
        detail=entry.detail,
    )
