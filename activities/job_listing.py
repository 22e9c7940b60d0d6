"""Jobs as Temporal lists them: which there are and how they stand, without a task of any workflow.

The list is a moment behind. What has to be certain is asked of one workflow.
"""

from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.mirror_glance import JobKey
from horarium.encrypted_payload import CannotDecrypt
from workflows.contracts import JOB_WORKFLOW, SA_NEXT_FIRE, SA_STATE, job_workflow_id, named_job
from workflows.error import Unavailable
from workflows.reconciliation import JobSight
from workflows.visibility import REVISION_MEMO, STATE_MEMO, UPDATED_AT_MEMO

PAGE: Final = 500

ASKED_ABOUT: Final = 100
"""Workflows that are named in one query."""

PATIENCE: Final = timedelta(seconds=10)
"""For one page of a list."""

OPEN: Final = f"WorkflowType = '{JOB_WORKFLOW}' AND ExecutionStatus = 'Running'"


@dataclass(frozen=True, kw_only=True)
class WorkflowEnd:
    """How the last run of a job's workflow has ended."""

    run_id: str
    status: WorkflowExecutionStatus
    closed_at: datetime

    @property
    def is_by_itself(self) -> bool:
        """Whether it came to its end; else somebody ended it in Temporal."""
        return self.status is WorkflowExecutionStatus.COMPLETED


class JobListing:
    """Looks at one namespace. Raises ``Unavailable`` when Temporal does not answer."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def pages_of_open(self) -> AsyncIterator[list[JobSight]]:
        """Go through all jobs that have an open workflow."""
        async for page in pages_of(self._client, OPEN, size=PAGE):
            with answering():
                sights = [await _sight(each) for each in page if named_job(each.id) is not None]
            yield sights

    async def find_open(self, keys: Collection[JobKey]) -> set[JobKey]:
        """Find which of these jobs have an open workflow, as far as the list knows."""
        names = {job_workflow_id(tenant=tenant, job_id=job_id): (tenant, job_id) for tenant, job_id in keys}
        found: set[JobKey] = set()
        wanted = list(names)
        for first in range(0, len(wanted), ASKED_ABOUT):
            some = ", ".join(f"'{name}'" for name in wanted[first : first + ASKED_ABOUT])
            async for page in pages_of(self._client, f"{OPEN} AND WorkflowId IN ({some})", size=ASKED_ABOUT):
                found |= {names[each.id] for each in page if each.id in names}
        return found

    async def find_end(self, key: JobKey) -> WorkflowEnd | None:
        """Say how a job's workflow has ended, for certain; ``None`` where it is open.

        Raises ``LookupError`` where Temporal knows none.
        """
        tenant, job_id = key
        handle = self._client.get_workflow_handle(job_workflow_id(tenant=tenant, job_id=job_id))
        try:
            with answering():
                shown = await handle.describe(rpc_timeout=PATIENCE)
        except RPCError as error:
            raise LookupError(f"no workflow of job {job_id}") from error
        if shown.close_time is None or shown.status in (None, WorkflowExecutionStatus.RUNNING):
            return None
        return WorkflowEnd(run_id=shown.run_id, status=shown.status, closed_at=shown.close_time)


async def pages_of(client: Client, query: str, *, size: int) -> AsyncIterator[list[WorkflowExecution]]:
    """Go through a list of workflows. Raises ``Unavailable``."""
    listing = client.list_workflows(query, page_size=size, rpc_timeout=PATIENCE)
    while True:
        with answering():
            await listing.fetch_next_page()
        yield list(listing.current_page or ())
        if listing.next_page_token is None:
            return


@contextmanager
def answering() -> Iterator[None]:
    """Say what Temporal raises when it does not answer in our own terms. That something is not there stays as it is."""
    try:
        yield
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise
        raise Unavailable(f"Temporal does not answer: {error.message}") from error
    except CannotDecrypt as error:
        raise Unavailable(str(error)) from error
    except (RuntimeError, TimeoutError) as error:
        raise Unavailable("Temporal cannot be reached") from error


async def _sight(shown: WorkflowExecution) -> JobSight:
    tenant, job_id = named_job(shown.id) or ("", "")
    memo: dict[str, Any] = dict(await shown.memo())
    updated_at, revision = memo.get(UPDATED_AT_MEMO), memo.get(REVISION_MEMO)
    attributes = shown.typed_search_attributes
    return JobSight(
        tenant=tenant,
        job_id=job_id,
        started_at=shown.start_time,
        revision=None if revision is None else int(revision),
        state=memo.get(STATE_MEMO) or attributes.get(SA_STATE),
        updated_at=None if updated_at is None else datetime.fromisoformat(updated_at),
        next_run_at=attributes.get(SA_NEXT_FIRE),
    )
