"""``horarium mirror rebuild``: fills the mirror from the histories that the namespace keeps.

Jobs that are there come first, so that people see them at once, then everything that has ended. Safe while jobs fire, and to be
done again: what is known already is not changed by it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio.client import Client, WorkflowExecution, WorkflowHistory

from activities.backfill_definition import BackfillDefinitions
from activities.database import reading
from activities.job_listing import answering, pages_of
from activities.mirror_writer import MirrorRefused, MirrorWriter
from activities.tables import ATTEMPTS, BACKFILLS, JOBS, LEDGER, RUNS
from workers.projection import PROJECTED, Projection, Projector
from workflows.backfill import BackfillState
from workflows.error import HorariumError, Unavailable

Written = TypeVar("Written")

PAGE: Final = 100
"""Histories that are in memory at once: some megabytes."""

FETCHED_AT_ONCE: Final = 8

TRIES: Final = 5
TRY_AGAIN_AFTER_SECONDS: Final = 2.0

_OF_OURS: Final = f"WorkflowType IN ({', '.join(repr(name) for name in PROJECTED)})"

QUERIES: Final = (f"{_OF_OURS} AND ExecutionStatus = 'Running'", f"{_OF_OURS} AND ExecutionStatus != 'Running'")

FAILURES_TOLD: Final = 20


@dataclass(frozen=True, kw_only=True)
class RebuildReport:
    """How far a rebuild is."""

    total: int
    """Histories that the namespace had when it began."""

    done: int = 0
    failed: int = 0
    """Histories that do not replay, as a workflow that was reset may leave. What such a run began with is in the mirror."""

    failures: tuple[str, ...] = ()
    rows: dict[str, int] = field(default_factory=dict)
    """Rows that the mirror has at the end, by table."""

    added: dict[str, int] = field(default_factory=dict)
    """Rows that it did not have before."""


class Rebuilder:
    """Rebuilds, once."""

    def __init__(
        self,
        client: Client,
        *,
        engine: AsyncEngine,
        writer: MirrorWriter,
        definitions: BackfillDefinitions,
        tell: Callable[[RebuildReport], None] = lambda report: None,
    ) -> None:
        """``tell`` hears how far it is, after each page of histories."""
        self._client = client
        self._engine = engine
        self._writer = writer
        self._definitions = definitions
        self._tell = tell
        self._projector = Projector(client)

    async def rebuild(self) -> RebuildReport:
        """Write everything that the namespace tells. Raises ``Unavailable``."""
        before = await self._count_rows()
        with answering():
            total = (await self._client.count_workflows(_OF_OURS)).count
        report = RebuildReport(total=total)
        for query in QUERIES:
            async for page in pages_of(self._client, query, size=PAGE):
                report = _with_page(report, page, await self._write_page(page))
                self._tell(report)
        rows = await self._count_rows()
        return replace(report, rows=rows, added={name: count - before[name] for name, count in rows.items()})

    async def _write_page(self, page: list[WorkflowExecution]) -> list[Projection]:
        room = asyncio.Semaphore(FETCHED_AT_ONCE)

        async def fetch(execution: WorkflowExecution) -> WorkflowHistory | None:
            async with room:
                return await self._projector.fetch(execution.id, execution.run_id)

        # One that is gone has been deleted in Temporal since it was listed.
        found = [each for each in await asyncio.gather(*map(fetch, page)) if each is not None]
        projections = await self._projector.project(found) if found else []
        batches = [batch for projection in projections for batch in projection.batches]
        await _with_patience(self._writer.write_patiently, batches)
        # Their rows are there now.
        await _with_patience(
            self._keep_definition, [each.backfill for each in projections if each.backfill is not None]
        )
        return projections

    async def _keep_definition(self, state: BackfillState) -> None:
        record = state.record
        await self._definitions.keep_definition(state.definition, tenant=record.tenant, backfill_id=record.backfill_id)

    async def _count_rows(self) -> dict[str, int]:
        async with reading(self._engine) as connection:
            return {
                table.name: int((await connection.execute(select(func.count()).select_from(table))).scalar_one())
                for table in (JOBS, RUNS, ATTEMPTS, LEDGER, BACKFILLS)
            }


async def _with_patience(write: Callable[[Written], Awaitable[None]], found: Iterable[Written]) -> None:
    """Write everything that was found. Raises ``Unavailable``."""
    everything = list(found)
    for attempt in range(1, TRIES + 1):
        answers = await asyncio.gather(*map(write, everything), return_exceptions=True)
        # What the database can never hold is in the log; everything else of it is written.
        errors = [each for each in answers if each is not None and not isinstance(each, MirrorRefused)]
        if not errors:
            return
        if attempt == TRIES or not isinstance(errors[0], HorariumError):
            raise Unavailable(f"the mirror does not take what was found: {errors[0]}") from errors[0]
        await asyncio.sleep(TRY_AGAIN_AFTER_SECONDS)


def _with_page(report: RebuildReport, page: list[WorkflowExecution], projections: list[Projection]) -> RebuildReport:
    failures = [each.failure for each in projections if each.failure]
    return replace(
        report,
        done=report.done + len(page),
        failed=report.failed + len(failures),
        failures=(*report.failures, *failures)[:FAILURES_TOLD],
    )
