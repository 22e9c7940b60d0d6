"""Example jobs: what job code looks like. Plain Temporal activities; the worker's plugin does the rest.

Loaded by every worker unless ``HORARIUM_EXAMPLES=false``.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, Field
from temporalio import activity

from horarium import JobRun, current_run

FAILING_ATTEMPTS: Final = 2


@activity.defn
async def noop() -> None:
    """Do nothing: for trying schedules out, and for measuring what a fire costs."""


@dataclass(frozen=True)
class Tick:
    """What ``tick`` answers."""

    scheduled_at: str
    late_by_ms: int
    """From the target time until this code ran."""


@activity.defn
async def tick(run: JobRun[Any]) -> Tick:
    """Say how late we are: a job that wants to know all about its run asks for a ``JobRun``."""
    late = activity.info().started_time - run.target_at
    return Tick(scheduled_at=run.scheduled_at.isoformat(), late_by_ms=round(late.total_seconds() * 1000))


class ReportRequest(BaseModel):
    """Payload of ``send_report``."""

    report_type: str = Field(min_length=1)
    recipients: list[str] = []


@activity.defn
async def send_report(request: ReportRequest) -> dict[str, str | int]:
    """Send a report, once: a job with a payload of its own asks for that, and for the rest where it needs it.

    Give ``idempotency_key`` to whatever sends: it is the same in every attempt, so a retry sends no second report.
    """
    key = current_run().idempotency_key
    activity.logger.info("report sent", extra={"report_type": request.report_type, "idempotency_key": key})
    return {"report_type": request.report_type, "recipients": len(request.recipients), "idempotency_key": key}


@activity.defn
async def flaky(run: JobRun[Any]) -> str:
    """Fail twice, then succeed: what a job looks like whose downstream hiccups."""
    await asyncio.sleep(0.05)
    if run.attempt <= FAILING_ATTEMPTS:
        raise ConnectionError(f"attempt {run.attempt}: the downstream hung up")
    return f"attempt {run.attempt} went through"
