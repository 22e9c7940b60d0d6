"""After the loss of Temporal's data: starts the backfills again that were not over.

Promises: a backfill that Temporal knows, open or closed, is left alone; one that goes on runs nothing again that has run,
or may have (``backfill_revival``). Their jobs are to be restored before.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

from activities.backfill_control import BackfillControl
from activities.backfill_definition import BackfillDefinitions
from activities.mirror_writer import MirrorWriter
from activities.queries import Queries
from activities.restore import JobOutcome, RestoreOptions, RestoreReport, TemporalGlance, add_outcomes, with_patience
from workflows.backfill import FireListRequest, is_open, just_before
from workflows.backfill_range import list_fires
from workflows.backfill_record import BackfillRecord
from workflows.backfill_revival import (
    BackfillRemains,
    BackfillRestoration,
    definition_lost,
    definition_of,
    end_backfill,
    reason_to_end,
    restore_backfill,
)
from workflows.contracts import backfill_workflow_id, run_workflow_id
from workflows.error import NotFound
from workflows.job import JobRecord, RunRecord
from workflows.run import FINAL_STATUSES
from workflows.schedule import Schedule

PAGE: Final = 100

LISTED: Final = 500
"""Fires that are asked of the calculator, and looked for in the mirror, at once."""


class BackfillRestorer:
    """Restores backfills, once."""

    def __init__(
        self,
        *,
        glance: TemporalGlance,
        queries: Queries,
        definitions: BackfillDefinitions,
        writer: MirrorWriter,
        control: BackfillControl,
        options: RestoreOptions,
    ) -> None:
        self._glance = glance
        self._queries = queries
        self._definitions = definitions
        self._writer = writer
        self._control = control
        self._options = options

    async def restore(self, report: RestoreReport) -> RestoreReport:
        """Restore every backfill of the mirror, and add to the report. Raises ``Unavailable`` when the mirror cannot be read."""
        async for record in self._unfinished():
            about = f"{record.tenant}/{record.job_id}, backfill {record.backfill_id}"
            restore = partial(self._restore_one, record, lost_at=report.lost_at)
            report = add_outcomes(report, [await with_patience(restore, about=about)])
        return report

    async def _unfinished(self) -> AsyncIterator[BackfillRecord]:
        after: tuple[str, str] | None = None
        while page := await self._queries.read_unfinished_backfills(after=after, limit=PAGE):
            for record in page:
                yield record
            after = (page[-1].tenant, page[-1].backfill_id)

    async def _restore_one(self, record: BackfillRecord, *, lost_at: datetime) -> JobOutcome:
        if await self._glance.knows(_workflow_of(record)):
            return JobOutcome()
        job = await self._queries.get_job(record.tenant, record.job_id)
        if job is None:
            raise NotFound("its job is not in the mirror")
        restoration = await self._make_restoration(record, job, lost_at=lost_at)
        goes_on = is_open(restoration.state)
        done = JobOutcome(
            backfills=int(goes_on),
            ended_backfills=int(not goes_on),
            lost_runs=restoration.lost_runs,
            in_doubt=restoration.in_doubt,
        )
        if self._options.dry_run:
            return done
        # The rows first: begun and then interrupted, it would run what is in doubt.
        await self._writer.write_patiently(restoration.rows)
        if goes_on and not await self._control.begin(restoration.state):
            return replace(done, backfills=0)
        return done

    async def _make_restoration(
        self, record: BackfillRecord, job: JobRecord, *, lost_at: datetime
    ) -> BackfillRestoration:
        kept = await self._definitions.find_definition(tenant=record.tenant, backfill_id=record.backfill_id)
        definition = definition_of(record, job, kept=kept)
        reason = reason_to_end(record, job)
        if definition is None or reason is not None:
            return end_backfill(record, reason=reason or definition_lost(record), now=datetime.now(UTC))
        nominals = await asyncio.to_thread(_fires_of, record, definition.schedule)
        runs: list[RunRecord] = []
        for first in range(0, len(nominals), LISTED):
            some = nominals[first : first + LISTED]
            runs += await self._queries.read_runs_at(record.tenant, record.job_id, some)
        remains = BackfillRemains(
            record=record,
            job=job,
            definition=definition,
            nominals=tuple(nominals),
            runs=tuple(runs),
            still_running=frozenset([each.run.run_id for each in runs if await self._is_running(each)]),
        )
        return restore_backfill(remains, lost_at=lost_at, now=datetime.now(UTC))

    async def _is_running(self, found: RunRecord) -> bool:
        run = found.run
        if run.status in FINAL_STATUSES or run.backfill_id is None:
            return False
        return await self._glance.is_open(run_workflow_id(tenant=found.tenant, run_id=run.run_id))


def _fires_of(record: BackfillRecord, schedule: Schedule) -> list[datetime]:
    """List the fires of a backfill's range that nothing excludes."""
    found: list[datetime] = []
    after = just_before(record.start)
    while after < record.end:
        fires = list_fires(
            FireListRequest(job_id=record.job_id, schedule=schedule, after=after, until=record.end, limit=LISTED)
        )
        found += [fire.nominal for fire in fires.fires]
        after = fires.through
    return found


def _workflow_of(record: BackfillRecord) -> str:
    return backfill_workflow_id(tenant=record.tenant, job_id=record.job_id, backfill_id=record.backfill_id)
