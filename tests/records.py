"""Records for tests of the mirror: a job every minute, made up from a number."""

from datetime import UTC, datetime, timedelta
from typing import Any

from workflows.contracts import requested_run_id, scheduled_run_id
from workflows.job import AttemptRecord, JobDefinition, JobRecord, LedgerEntry, LedgerRecord, RunRecord
from workflows.run import Attempt, Outcome, Run, RunKind

NOON = datetime(2026, 6, 8, 12, tzinfo=UTC)
"""Minute 0 of every job here."""


def minute(number: int) -> datetime:
    """Nominal time of a fire."""
    return NOON + timedelta(minutes=number)


def job_record(
    job_id: str = "report", *, version: int = 1, definition: JobDefinition | None = None, **fields: Any
) -> JobRecord:
    """A job's record."""
    times = {"registered_at": NOON, "updated_at": NOON, "high_water": NOON} | fields
    return JobRecord(job_id=job_id, version=version, definition=definition or JobDefinition(name=job_id), **times)


def run_record(
    job_id: str = "report", *, at: datetime = NOON, version: int = 1, tenant: str = "default", **fields: Any
) -> RunRecord:
    """A run's record; named by its nominal time, or by ``request_id``."""
    kind = fields.pop("kind", RunKind.SCHEDULED)
    request_id = fields.pop("request_id", None)
    scheduled = scheduled_run_id(job_id=job_id, nominal=at)
    run_id = scheduled if request_id is None else requested_run_id(job_id=job_id, kind=kind, request_id=request_id)
    values = {"run_id": run_id, "target_at": at, "created_at": at} | fields
    return RunRecord(tenant=tenant, job_id=job_id, version=version, run=Run(kind=kind, scheduled_at=at, **values))


def attempt_record(run: RunRecord, *, number: int = 1, version: int = 1, **fields: Any) -> AttemptRecord:
    """An attempt's record."""
    attempt = Attempt(
        run_id=run.run.run_id,
        scheduled_at=run.run.scheduled_at,
        number=number,
        dispatched_at=run.run.scheduled_at,
        **fields,
    )
    return AttemptRecord(tenant=run.tenant, job_id=run.job_id, version=version, attempt=attempt)


def ledger_record(
    job_id: str = "report",
    *,
    first: int,
    last: int | None = None,
    version: int = 1,
    outcome: Outcome = Outcome.MISSED,
    **fields: Any,
) -> LedgerRecord:
    """A ledger entry's record, for the minutes from ``first`` to ``last``."""
    last = first if last is None else last
    entry = LedgerEntry(first=minute(first), last=minute(last), count=last - first + 1, outcome=outcome, **fields)
    return LedgerRecord(job_id=job_id, version=version, entry=entry)
