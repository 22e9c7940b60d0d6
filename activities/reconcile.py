"""Makes SQL equal to Temporal: one pass over all jobs, in both directions.

Costs a sleeping job nothing: the list of workflows says what is compared, and only a job whose row seems to differ is asked. Safe
at any time, several at once included: rows change to higher versions only, and a workflow that is open is not started.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from temporalio.service import RPCError

from activities.audit_store import AuditEntry, AuditOutcome, AuditStore
from activities.job_control import JobControl, JobIsGone
from activities.job_listing import JobListing, WorkflowEnd
from activities.mirror_glance import JobKey, MirrorGlances
from activities.mirror_row import job_from, job_row
from activities.mirror_writer import MirrorWriter
from activities.queries import Queries
from activities.restore import Restorer, needs_a_look
from workflows.command import ShowCommand
from workflows.contracts import job_workflow_id
from workflows.error import HorariumError, Unavailable
from workflows.job import JobRecord, MirrorBatch
from workflows.reconciliation import (
    Difference,
    DifferenceKind,
    JobGlance,
    JobSight,
    ReconcileReport,
    describe_difference,
    is_same_job,
    may_differ,
    most_restored,
    with_differences,
)
from workflows.revival import WORKFLOW_LOSS

logger = logging.getLogger(__name__)

ASKED_AT_MOST: Final = 1_000
"""Jobs that one pass wakes by asking them. Others are asked in the next."""

AT_ONCE: Final = 8

PAUSE: Final = timedelta(milliseconds=20)
"""Between two jobs that are asked, for each of those that are asked at once: some hundreds a second."""

FALSE_ALARMS_KEPT: Final = 10_000

ACTOR: Final = "horarium"
"""How the audit log calls what the service does by itself."""

Project: TypeAlias = Callable[[str, str], Awaitable[list[MirrorBatch]]]
"""Makes the rows that a closed workflow has recorded, from its id and that of its run."""


@dataclass(frozen=True, kw_only=True)
class ReconcileOptions:
    """What a pass does."""

    mend: bool = True
    """Or only report."""

    settling: timedelta = timedelta(seconds=10)
    """What has changed just now is left alone: the list and the mirror are both a moment behind."""

    restore_all: bool = False
    """Start again however many jobs were ended in Temporal."""


class Reconciler:
    """Compares and mends, pass by pass."""

    def __init__(
        self,
        *,
        listing: JobListing,
        glances: MirrorGlances,
        queries: Queries,
        writer: MirrorWriter,
        control: JobControl,
        restorer: Restorer,
        audit: AuditStore,
        project: Project,
    ) -> None:
        self._listing = listing
        self._glances = glances
        self._queries = queries
        self._writer = writer
        self._control = control
        self._restorer = restorer
        self._audit = audit
        self._project = project
        self._false_alarms: dict[JobKey, tuple[JobSight, int]] = {}
        """Jobs that were asked for nothing, as they and the versions of their rows were seen then."""

    async def reconcile(self, options: ReconcileOptions) -> ReconcileReport:
        """Make one pass. What cannot be asked ends it, and the report says so."""
        if len(self._false_alarms) > FALSE_ALARMS_KEPT:
            self._false_alarms.clear()
        work = _Pass(options=options, settled_before=datetime.now(UTC) - options.settling)
        try:
            await self._look_at_workflows(work)
            await self._look_at_rows(work)
        except Unavailable as error:
            work.report = work.report.model_copy(update={"trouble": str(error)})
        _log(work.report)
        return work.report

    async def _look_at_workflows(self, work: "_Pass") -> None:
        """Find jobs of Temporal that the mirror shows otherwise, or not at all."""
        async for page in self._listing.pages_of_open():
            rows = await self._glances.find([(each.tenant, each.job_id) for each in page])
            pairs = [(sight, rows.get((sight.tenant, sight.job_id))) for sight in page]
            work.report = work.report.model_copy(update={"jobs": work.report.jobs + len(page)})
            await self._ask_each(work, [pair for pair in pairs if self._is_suspect(*pair, work=work)])

    def _is_suspect(self, sight: JobSight, glance: JobGlance | None, *, work: "_Pass") -> bool:
        if may_differ(sight, glance, settled_before=work.settled_before) is None:
            self._false_alarms.pop((sight.tenant, sight.job_id), None)
            return False
        seen = (sight, 0 if glance is None else glance.version)
        return self._false_alarms.get((sight.tenant, sight.job_id)) != seen

    async def _ask_each(self, work: "_Pass", suspects: Sequence[tuple[JobSight, JobGlance | None]]) -> None:
        asked = suspects[: max(0, ASKED_AT_MOST - work.asked)]
        work.asked += len(asked)
        postponed = work.report.postponed + len(suspects) - len(asked)
        work.report = work.report.model_copy(update={"postponed": postponed})
        room = asyncio.Semaphore(AT_ONCE)

        async def ask(sight: JobSight, glance: JobGlance | None) -> Difference | None:
            async with room:
                difference = await self._ask(sight, glance, mend=work.options.mend)
                await asyncio.sleep(PAUSE.total_seconds())
                return difference

        work.add(await asyncio.gather(*(ask(*each) for each in asked)))

    async def _ask(self, sight: JobSight, glance: JobGlance | None, *, mend: bool) -> Difference | None:
        """Ask a job how it stands, and hold its row against that. Wakes it."""
        kind = DifferenceKind.MISSING if glance is None else DifferenceKind.OUTDATED
        difference = Difference(tenant=sight.tenant, job_id=sight.job_id, kind=kind)
        key = (sight.tenant, sight.job_id)
        command = ShowCommand(above=0 if glance is None else glance.version)
        try:
            rows = await self._control.show(command, tenant=sight.tenant, job_id=sight.job_id)
            row = await self._queries.get_job(*key)
            told = _as_kept(rows)
            if is_same_job(row, told):
                self._false_alarms[key] = (sight, 0 if row is None else row.version)
                return None
            difference = difference.model_copy(update={"detail": describe_difference(row, told)})
            if mend:
                await self._writer.write_patiently(rows)
        except JobIsGone:
            # It has ended since it was listed.
            return None
        except HorariumError as error:
            return difference.model_copy(update={"failure": str(error)})
        return difference.model_copy(update={"mended": mend})

    async def _look_at_rows(self, work: "_Pass") -> None:
        """Find rows of jobs whose workflow is not there."""
        ended: list[tuple[JobKey, WorkflowEnd]] = []
        async for page in self._glances.pages_with_workflow():
            keys = [(each.tenant, each.job_id) for each in page]
            work.report = work.report.model_copy(update={"rows": work.report.rows + len(page)})
            is_open = await self._listing.find_open(keys)
            for key in keys:
                if key not in is_open:
                    ended += await self._look_at_end(key, work)
        await self._restore_each(work, ended)

    async def _look_at_end(self, key: JobKey, work: "_Pass") -> list[tuple[JobKey, WorkflowEnd]]:
        """Find out why a job has no workflow; answers it where somebody ended that."""
        tenant, job_id = key
        try:
            end = await self._listing.find_end(key)
        except LookupError:
            if await self._still_needs_a_workflow(key) is not None:
                work.add([Difference(tenant=tenant, job_id=job_id, kind=DifferenceKind.UNKNOWN_TO_TEMPORAL)])
            return []
        # What has just ended may be about to be recorded.
        if end is None or end.closed_at >= work.settled_before:
            return []
        if not end.is_by_itself:
            return [(key, end)]
        work.add([await self._record_end(key, end, mend=work.options.mend)])
        return []

    async def _record_end(self, key: JobKey, end: WorkflowEnd, *, mend: bool) -> Difference | None:
        """Write what a workflow recorded that has come to its end."""
        row = await self._still_needs_a_workflow(key)
        if row is None:
            return None
        tenant, job_id = key
        difference = Difference(tenant=tenant, job_id=job_id, kind=DifferenceKind.UNRECORDED_END)
        try:
            batches = await self._project(job_workflow_id(tenant=tenant, job_id=job_id), end.run_id)
            last = next((batch.job for batch in reversed(batches) if batch.job is not None), None)
            if last is None:
                return difference.model_copy(update={"failure": "its history does not tell how it ended"})
            difference = difference.model_copy(update={"detail": describe_difference(row, last)})
            if mend:
                await self._write_all(batches)
                # Nobody else writes of a workflow that is closed, so this is the last word on it.
                final = last.model_copy(update={"version": max(last.version, row.version + 1)})
                await self._writer.write_patiently(MirrorBatch(job=final))
        except HorariumError as error:
            return difference.model_copy(update={"failure": str(error)})
        return difference.model_copy(update={"mended": mend})

    async def _restore_each(self, work: "_Pass", ended: list[tuple[JobKey, WorkflowEnd]]) -> None:
        """Start jobs again whose workflow somebody ended, unless they are too many."""
        most = most_restored(work.report.rows)
        is_too_many = len(ended) > most and not work.options.restore_all
        if is_too_many:
            reason = (
                f"{len(ended)} jobs were ended in Temporal, more than the {most} that are started again without being asked: "
                "see why, and then use `horarium mirror reconcile --restore-all`"
            )
            work.report = work.report.model_copy(update={"stopped": reason})
        for key, end in ended:
            work.add([await self._restore(key, end, mend=work.options.mend and not is_too_many)])

    async def _restore(self, key: JobKey, end: WorkflowEnd, *, mend: bool) -> Difference | None:
        row = await self._still_needs_a_workflow(key)
        if row is None:
            return None
        tenant, job_id = key
        detail = f"{end.status.name.lower()} at {end.closed_at.isoformat(timespec='seconds')}"
        difference = Difference(tenant=tenant, job_id=job_id, kind=DifferenceKind.ENDED_IN_TEMPORAL, detail=detail)
        if not mend:
            return difference
        entry = AuditEntry(
            tenant=tenant,
            request_id="",
            actor=ACTOR,
            action="job.restore",
            job_id=job_id,
            detail=f"its workflow was {detail}",
        )
        try:
            # What it had decided and not recorded, so that nothing of it is decided again.
            await self._write_all(await self._project(job_workflow_id(tenant=tenant, job_id=job_id), end.run_id))
            record = await self._queries.get_job(tenant, job_id) or row
            await self._audit.begin(entry)
            await self._restorer.restore_one(record, lost_at=end.closed_at, loss=WORKFLOW_LOSS)
            await self._audit.end(entry, outcome=AuditOutcome.APPLIED, detail=entry.detail)
        except (HorariumError, RPCError) as error:
            return difference.model_copy(update={"failure": str(error)})
        return difference.model_copy(update={"mended": True})

    async def _write_all(self, batches: Iterable[MirrorBatch]) -> None:
        await asyncio.gather(*map(self._writer.write_patiently, batches))

    async def _still_needs_a_workflow(self, key: JobKey) -> JobRecord | None:
        """Read a row again: its job may have ended, and said so, since it was listed."""
        row = await self._queries.get_job(*key)
        return row if row is not None and needs_a_look(row) else None


@dataclass(kw_only=True)
class _Pass:
    options: ReconcileOptions
    settled_before: datetime
    report: ReconcileReport = field(default_factory=ReconcileReport)
    asked: int = 0

    def add(self, found: Iterable[Difference | None]) -> None:
        self.report = with_differences(self.report, [each for each in found if each is not None])


def _as_kept(rows: MirrorBatch) -> JobRecord:
    """Read a record as it would come back from SQL, which cannot hold every text."""
    assert rows.job is not None
    return job_from(job_row(rows.job))


def _log(report: ReconcileReport) -> None:
    for each in report.differences:
        fields = {"tenant": each.tenant, "job_id": each.job_id, "difference": each.kind.value, "detail": each.detail}
        level = logging.INFO if each.mended else logging.WARNING
        logger.log(
            level, "the mirror differed from a job", extra={**fields, "mended": each.mended, "error": each.failure}
        )
    if report.stopped:
        logger.error("jobs are not started again", extra={"reason": report.stopped})
    if report.trouble:
        logger.warning("the mirror could not be compared", extra={"reason": report.trouble})
