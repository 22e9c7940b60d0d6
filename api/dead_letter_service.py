"""What the routes of dead letters promise: they are listed, and redriven once, by one or many."""

import base64
import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import JsonValue

from activities.bulk_control import BulkControl, BulkStanding
from activities.page import Page
from activities.queries import Queries
from activities.redrive import Redriver
from api.answer import RunAnswer
from api.audit import Audit
from api.dead_letter_body import (
    BulkRedriveAnswer,
    DeadLetterAnswer,
    describe_dead_letter,
    describe_progress,
    read_bulk_request,
)
from api.registration import new_command_key
from api.service import JobService
from api.temporal_link import TemporalLinks
from workflows.dead_letter import DeadLetterFilter
from workflows.error import NotFound


@dataclass(frozen=True, kw_only=True)
class RedriveAnswer:
    """The run that repeats a dead one."""

    run: RunAnswer
    is_new: bool


class DeadLetterService:
    """Everything that the API does with dead letters, on behalf of one tenant a call."""

    def __init__(
        self,
        *,
        jobs: JobService,
        queries: Queries,
        redriver: Redriver,
        bulk: BulkControl,
        links: TemporalLinks,
        audit: Audit,
    ) -> None:
        self._jobs = jobs
        self._audit = audit
        self._queries = queries
        self._redriver = redriver
        self._bulk = bulk
        self._links = links

    async def list_dead_letters(
        self, chosen: DeadLetterFilter, *, tenant: str, cursor: str | None, limit: int
    ) -> Page[DeadLetterAnswer]:
        """List dead letters, those that ended last first. Raises ``InvalidCursor``."""
        page = await self._queries.list_dead_letters(tenant, chosen, cursor=cursor, limit=limit)
        answers = (
            describe_dead_letter(found, temporal_url=self._links.to_run(found.record.run)) for found in page.items
        )
        return Page(tuple(answers), next=page.next, previous=page.previous)

    async def redrive(self, run_id: str, *, tenant: str) -> RedriveAnswer:
        """Run a dead run again; the redrive is readable when this returns. Asked again, it is the same run.

        Raises as ``Redriver.redrive`` does.
        """
        await self._jobs.require_temporal()
        run = await self._jobs.get_run(run_id, tenant=tenant)
        async with self._audit.recording("run.redrive", tenant=tenant, job_id=run.job_id, subject=run_id) as note:
            redrive = await self._redriver.redrive(run_id, tenant=tenant)
            note.after = {"run_id": redrive.run_id, "is_new": redrive.is_new}
        return RedriveAnswer(run=await self._jobs.get_run(redrive.run_id, tenant=tenant), is_new=redrive.is_new)

    async def begin_bulk_redrive(self, body: JsonValue, *, tenant: str, key: str | None) -> BulkRedriveAnswer:
        """Redrive many, in the background. Repeated with its key, it is the same one.

        Raises:
            InvalidRequest: the body is wrong.
            Unavailable: it may have begun all the same.
        """
        request = read_bulk_request(body, tenant=tenant, now=datetime.now(UTC))
        await self._jobs.require_temporal()
        redrive_id = new_redrive_id(tenant=tenant, key=key)
        async with self._audit.recording("run.redrive_many", tenant=tenant, subject=redrive_id) as note:
            await self._bulk.begin(request, redrive_id=redrive_id)
            note.after = body
        return await self.get_bulk_redrive(redrive_id, tenant=tenant)

    async def get_bulk_redrive(self, redrive_id: str, *, tenant: str) -> BulkRedriveAnswer:
        """Say how far a bulk redrive is. Raises ``NotFound``, also when it was long ago, and ``Unavailable``."""
        standing: BulkStanding | None = await self._bulk.look_at(redrive_id, tenant=tenant)
        if standing is None:
            raise NotFound("there is no such bulk redrive, or it was long ago")
        return describe_progress(standing.progress, redrive_id=redrive_id, status=standing.status)

    async def cancel_bulk_redrive(self, redrive_id: str, *, tenant: str) -> BulkRedriveAnswer:
        """Let a bulk redrive begin no more. One that is over stays as it is. Raises ``NotFound`` and ``Unavailable``."""
        await self._jobs.require_temporal()
        await self.get_bulk_redrive(redrive_id, tenant=tenant)
        async with self._audit.recording("run.cancel_redrives", tenant=tenant, subject=redrive_id):
            await self._bulk.cancel(redrive_id, tenant=tenant)
        return await self.get_bulk_redrive(redrive_id, tenant=tenant)


def new_redrive_id(*, tenant: str, key: str | None) -> str:
    """Make an id. From an idempotency key it is always the same."""
    seed = f"{tenant}\0{key or new_command_key()}"
    return base64.b32encode(hashlib.sha256(seed.encode()).digest()[:15]).decode().lower()
