"""After the loss of Temporal's data, or of one workflow: starts the jobs of the mirror in a Temporal that does not have them.

Promises: a job whose workflow is open is left alone, so doing it again, or in a cluster that has lost nothing, changes nothing;
what may have had effects is not run again (``revival``); starts have a rate, because every job that starts asks for its plan.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.job_control import JobControl
from activities.mirror_writer import MirrorRefused, MirrorWriter
from activities.queries import Queries
from workflows.contracts import job_workflow_id, run_workflow_id
from workflows.error import HorariumError, NotFound, Unavailable
from workflows.job import JobRecord, Lifecycle
from workflows.revival import CLUSTER_LOSS, Loss, Remains, restore_job
from workflows.run import Run

PAGE: Final = 100

AT_ONCE: Final = 8
"""Jobs that are being restored at a time: as many as keep a rate of some hundreds a second."""

TRIES: Final = 5
TRY_AGAIN_AFTER: Final = timedelta(seconds=2)

UNRECORDED: Final = timedelta(seconds=3)
"""What happens in Temporal is in the mirror so much later, at most, while the database is well: the look at a run that does not
answer, and the write."""


@dataclass(frozen=True, kw_only=True)
class RestoreOptions:
    """What is to be done, and how fast."""

    lost_at: datetime | None = None
    """When Temporal was lost. ``None``: soon after the last thing that the mirror knows of."""

    rate: float = 20
    """Jobs started a second."""

    dry_run: bool = False


@dataclass(frozen=True, kw_only=True)
class RestoreReport:
    """What was done so far; in a dry run, what would be."""

    lost_at: datetime
    started: int = 0
    untouched: int = 0
    """Their workflows are open."""

    tidied: int = 0
    """Completed and deleted jobs whose last runs were lost; these jobs are over, and are not started."""

    lost_runs: int = 0
    """Runs that were under way. They are dead now, and can be redriven."""

    in_doubt: int = 0
    """Fires of about the time of the loss; the same holds for them."""

    backfills: int = 0
    """Backfills that were not over, and go on."""

    ended_backfills: int = 0
    """Backfills that were not over and cannot go on. They are cancelled, and say why."""

    failed: tuple[str, ...] = ()
    """Jobs and backfills that could not be restored, each with the reason. Another restore tries them again."""


class Restorer:
    """Restores jobs, once."""

    def __init__(
        self,
        client: Client,
        *,
        queries: Queries,
        writer: MirrorWriter,
        control: JobControl,
        options: RestoreOptions,
        tell: Callable[[RestoreReport], None] = lambda report: None,
    ) -> None:
        """``tell`` hears how far it is, after each page of jobs."""
        self._glance = TemporalGlance(client)
        self._queries = queries
        self._writer = writer
        self._control = control
        self._options = options
        self._tell = tell
        self._next_start_at = 0.0

    async def restore(self, *, now: datetime) -> RestoreReport:
        """Restore every job of the mirror. Raises ``Unavailable`` when the mirror cannot be read."""
        lost_at = self._options.lost_at
        if lost_at is None:
            last = await self._queries.last_news_at()
            lost_at = now if last is None else last + UNRECORDED
        report = RestoreReport(lost_at=min(lost_at, now))
        async for page in self._pages():
            outcomes = await self._restore_page(page, lost_at=report.lost_at)
            report = add_outcomes(report, outcomes)
            self._tell(report)
        return report

    async def _pages(self) -> AsyncIterator[list[JobRecord]]:
        after: tuple[str, str] | None = None
        while page := await self._queries.read_all_jobs(after=after, limit=PAGE):
            yield page
            after = (page[-1].tenant, page[-1].job_id)

    async def _restore_page(self, page: Iterable[JobRecord], *, lost_at: datetime) -> "list[JobOutcome]":
        room = asyncio.Semaphore(AT_ONCE)

        async def restore(record: JobRecord) -> JobOutcome:
            async with room:
                return await with_patience(
                    lambda: self.restore_one(record, lost_at=lost_at), about=f"{record.tenant}/{record.job_id}"
                )

        return list(await asyncio.gather(*map(restore, filter(needs_a_look, page))))

    async def restore_one(self, record: JobRecord, *, lost_at: datetime, loss: Loss = CLUSTER_LOSS) -> "JobOutcome":
        """Let one job go on that lost its workflow at ``lost_at``. Raises ``HorariumError``, and may be done again then."""
        if await self._glance.is_open(job_workflow_id(tenant=record.tenant, job_id=record.job_id)):
            return JobOutcome(untouched=1)
        is_over = record.lifecycle in (Lifecycle.COMPLETED, Lifecycle.DELETED)
        remains = await self._find_remains(record)
        restoration = restore_job(remains, lost_at=lost_at, now=datetime.now(UTC), loss=loss)
        done = JobOutcome(lost_runs=restoration.lost_runs, in_doubt=restoration.in_doubt)
        if self._options.dry_run:
            return replace(done, tidied=int(is_over), started=int(not is_over))
        await self._pace()
        # The rows first: started and then interrupted, the job would never come back to them.
        await self._writer.write_patiently(restoration.rows)
        if is_over:
            return replace(done, tidied=1)
        was_started = await self._control.resume(restoration.state)
        return replace(done, started=1) if was_started else JobOutcome(untouched=1)

    async def _find_remains(self, record: JobRecord) -> Remains:
        tenant = record.tenant
        found = await self._queries.read_open_runs(tenant, record.job_id)
        open_runs = tuple(each.run for each in found)
        return Remains(
            record=record,
            last=await self._queries.get_last_run(record),
            open_runs=open_runs,
            still_running=frozenset([run.run_id for run in open_runs if await self._is_running(run, tenant=tenant)]),
        )

    async def _is_running(self, run: Run, *, tenant: str) -> bool:
        return run.detached and await self._glance.is_open(run_workflow_id(tenant=tenant, run_id=run.run_id))

    async def _pace(self) -> None:
        """Wait for this job's turn."""
        now = asyncio.get_running_loop().time()
        at = max(now, self._next_start_at)
        self._next_start_at = at + 1 / self._options.rate
        await asyncio.sleep(at - now)


class TemporalGlance:
    """Which workflows there are. Every look raises ``Unavailable`` when Temporal does not answer."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def is_open(self, workflow_id: str) -> bool:
        """Say whether a workflow goes on."""
        return await self._status_of(workflow_id) is WorkflowExecutionStatus.RUNNING

    async def knows(self, workflow_id: str) -> bool:
        """Say whether there is, or not long ago was, a workflow of this id."""
        return await self._status_of(workflow_id) is not None

    async def _status_of(self, workflow_id: str) -> WorkflowExecutionStatus | None:
        try:
            described = await self._client.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise Unavailable(f"Temporal does not answer: {error.message}") from error
        return described.status


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """What became of one job, or of one backfill, to be added up."""

    started: int = 0
    untouched: int = 0
    tidied: int = 0
    lost_runs: int = 0
    in_doubt: int = 0
    backfills: int = 0
    ended_backfills: int = 0
    failure: str | None = None


async def with_patience(restore: Callable[[], Awaitable[JobOutcome]], *, about: str) -> JobOutcome:
    """Try a few times, and say what failed where it is in vain."""
    for attempt in range(1, TRIES + 1):
        try:
            return await restore()
        except (HorariumError, RPCError) as error:
            if attempt == TRIES or isinstance(error, MirrorRefused | NotFound):
                return JobOutcome(failure=f"{about}: {error}")
            await asyncio.sleep(TRY_AGAIN_AFTER.total_seconds())
    raise AssertionError("the last try has returned")


def add_outcomes(report: RestoreReport, outcomes: Iterable[JobOutcome]) -> RestoreReport:
    """Add what became of some jobs to a report."""
    found = list(outcomes)
    return replace(
        report,
        started=report.started + sum(each.started for each in found),
        untouched=report.untouched + sum(each.untouched for each in found),
        tidied=report.tidied + sum(each.tidied for each in found),
        lost_runs=report.lost_runs + sum(each.lost_runs for each in found),
        in_doubt=report.in_doubt + sum(each.in_doubt for each in found),
        backfills=report.backfills + sum(each.backfills for each in found),
        ended_backfills=report.ended_backfills + sum(each.ended_backfills for each in found),
        failed=(*report.failed, *(each.failure for each in found if each.failure is not None)),
    )


def needs_a_look(record: JobRecord) -> bool:
    """Say whether a job should have a workflow, or had one that drained."""
    is_over = record.lifecycle in (Lifecycle.COMPLETED, Lifecycle.DELETED)
    return not is_over or record.active_runs > 0 or record.waiting_runs > 0
