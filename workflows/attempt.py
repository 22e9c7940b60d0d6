"""One attempt of a run, as a Temporal activity, and what its end means.

The durable part shared by all workflows that carry out runs. Every attempt is one activity that the engine does not retry:
retries are the workflow's, so that each is visible in the history and parking uses up none.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import JsonValue
from temporalio import workflow
from temporalio.common import Priority, RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, FailureError, is_cancelled_exception

from horarium import JobRun
from horarium import RunKind as WireRunKind
from workflows.admission import Admission, AdmissionRequest, AttemptNotice, Verdict
from workflows.attempt_end import end_of_failure, end_of_success
from workflows.classification import is_downstreams_fault, is_retryable
from workflows.contracts import ADMISSION_TIMEOUT, ADMIT_ATTEMPT, NOTE_ATTEMPT
from workflows.job import JobDefinition, OverlapPolicy
from workflows.policies import LANE, start_deadline
from workflows.resilience import AttemptEnd, has_attempts_left
from workflows.run import AttemptStatus, Failure, Run
from workflows.target import activity_call
from workflows.telemetry import attempt_scope

ONE_ATTEMPT: Final = RetryPolicy(maximum_attempts=1)

PROBE_SLACK: Final = timedelta(seconds=15)
"""After the attempt's own timeout, a probe that has not been heard of is lost."""

CATCH_UP_PRIORITY: Final = 5
"""The lowest of Temporal's default range; live runs have its middle, 3."""

FAIRNESS_KEY_LIMIT: Final = 64
"""Bytes; the server refuses longer ones."""


@dataclass(frozen=True, kw_only=True)
class AttemptOrder:
    """Everything that an attempt needs."""

    tenant: str
    job_id: str
    definition: JobDefinition
    run: Run
    paces_catch_up: bool = False
    fairness_weight: float = 1.0
    """Both as in ``Tuning``."""


MakeAttempt: TypeAlias = Callable[[AttemptOrder], Awaitable[AttemptEnd]]
"""Makes the current attempt of a run. Never raises what the attempt may have done."""


def activity_id(run: Run) -> str:
    """Name the activity of the run's current attempt; unique among all that a workflow has pending."""
    return f"{run.run_id}#{run.attempt}.{run.parkings}"


async def perform_attempt(order: AttemptOrder, *, make: MakeAttempt | None = None) -> AttemptEnd:
    """Make the current attempt of a run, if its downstream allows it, and say how it ended.

    Never raises what the attempt may have done. Nobody is asked about a live run of a job without a downstream. ``make`` is
    ``call_activity`` unless the attempt is something else.
    """
    make = make or call_activity
    if not order.definition.downstream and not _starts_catch_up(order):
        return await make(order)
    asked_at = workflow.now()
    try:
        admission = await _ask_admission(order, now=asked_at)
        if not admission.admitted:
            failure = Failure(type="parked", message=admission.reason)
            return AttemptEnd(
                run_id=order.run.run_id,
                status=AttemptStatus.FAILED,
                failure=failure,
                parked_until=admission.parked_until,
            )
    except asyncio.CancelledError:
        return AttemptEnd(run_id=order.run.run_id, status=AttemptStatus.CANCELLED)
    end = await make(order)
    if not order.definition.downstream:
        return end
    return replace(end, verdict=await _note_end(order, end, is_probe=admission.is_probe, admitted_at=asked_at))


def _starts_catch_up(order: AttemptOrder) -> bool:
    return order.paces_catch_up and order.run.kind in LANE and order.run.attempt == 1


async def _ask_admission(order: AttemptOrder, *, now: datetime) -> Admission:
    definition, run = order.definition, order.run
    request = AdmissionRequest(
        tenant=order.tenant,
        downstream=definition.downstream,
        run_id=run.run_id,
        is_first=run.attempt == 1,
        is_catch_up=_starts_catch_up(order),
        was_parked=run.parkings > 0,
        lasts=definition.timeout + PROBE_SLACK,
        waits=definition.queue_timeout,
        now=now,
    )
    try:
        admission: Admission = await workflow.execute_local_activity(
            ADMIT_ATTEMPT,
            request,
            result_type=Admission,
            start_to_close_timeout=ADMISSION_TIMEOUT,
            retry_policy=ONE_ATTEMPT,
        )
    except FailureError as error:
        if is_cancelled_exception(error):
            raise asyncio.CancelledError from error
        return Admission()
    return admission


async def _note_end(order: AttemptOrder, end: AttemptEnd, *, is_probe: bool, admitted_at: datetime) -> Verdict:
    definition, run = order.definition, order.run
    at_fault = end.failure is not None and is_downstreams_fault(end.failure) and not end.not_started
    wants_retry = at_fault and is_retryable(end.failure or Failure(), definition.retry)
    notice = AttemptNotice(
        tenant=order.tenant,
        downstream=definition.downstream,
        run_id=run.run_id,
        is_probe=is_probe,
        ok=not at_fault,
        is_void=end.not_started or end.status in (AttemptStatus.CANCELLED, AttemptStatus.LOST),
        wants_retry=wants_retry and run.max_attempts > 1 and end.status is not AttemptStatus.CANCELLED,
        is_last=not has_attempts_left(run),
        admitted_at=admitted_at,
        now=workflow.now(),
    )
    try:
        verdict: Verdict = await workflow.execute_local_activity(
            NOTE_ATTEMPT,
            notice,
            result_type=Verdict,
            start_to_close_timeout=ADMISSION_TIMEOUT,
            retry_policy=ONE_ATTEMPT,
        )
    except (FailureError, asyncio.CancelledError):
        return Verdict()
    return verdict


async def call_activity(order: AttemptOrder) -> AttemptEnd:
    """Make an attempt by the activity that carries out the job's target."""
    definition, run = order.definition, order.run
    call = activity_call(definition.target, payload=definition.payload)
    assert call is not None, "a workflow target is carried out by the workflow of its run"
    try:
        with attempt_scope(tenant=order.tenant, run=run):
            activity: workflow.ActivityHandle[RawValue] = workflow.start_activity(
                call.activity,
                job_run(order, payload=call.payload),
                task_queue=call.task_queue,
                result_type=RawValue,
                activity_id=activity_id(run),
                start_to_close_timeout=definition.timeout,
                schedule_to_start_timeout=queue_timeout(definition, run, now=workflow.now()),
                heartbeat_timeout=definition.heartbeat_timeout,
                retry_policy=ONE_ATTEMPT,
                cancellation_type=_cancellation_type(definition),
                priority=priority_of(order),
                summary=summary_of(definition, run),
            )
        answer = await activity
    except ActivityError as error:
        return end_of_failure(run, error.cause, task_queue=call.task_queue)
    except asyncio.CancelledError:
        return AttemptEnd(run_id=run.run_id, status=AttemptStatus.CANCELLED)
    return end_of_success(run, answer)


def job_run(order: AttemptOrder, *, payload: JsonValue) -> JobRun[JsonValue]:
    """Say what the job's code is told about its run."""
    run = order.run
    return JobRun(
        tenant=order.tenant,
        job_id=order.job_id,
        run_id=run.run_id,
        kind=WireRunKind(run.kind.value),
        scheduled_at=run.scheduled_at,
        target_at=run.target_at,
        attempt=run.attempt,
        max_attempts=run.max_attempts,
        idempotency_key=run.idempotency_key,
        fence=run.fence,
        stands_for=run.stands_for,
        payload=payload,
        checkpoint=run.checkpoint,
    )


def queue_timeout(definition: JobDefinition, run: Run, *, now: datetime) -> timedelta:
    """Say how long an attempt may wait for a worker: not beyond what bounds its start."""
    ends = [now + definition.queue_timeout]
    if definition.deadline is not None:
        ends.append(run.target_at + definition.deadline)
    # The deadline is for the actual start, which is when a worker takes it.
    if run.attempt == 1 and (start := start_deadline(definition, run)) is not None:
        ends.append(start)
    return max(timedelta(seconds=1), min(ends) - now)


def _cancellation_type(definition: JobDefinition) -> workflow.ActivityCancellationType:
    # Never ABANDON: a late failure of an abandoned activity makes the workflow task fail for ever.
    if definition.overlap is OverlapPolicy.TERMINATE_OTHER:
        return workflow.ActivityCancellationType.TRY_CANCEL
    return workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED


def priority_of(order: AttemptOrder) -> Priority:
    """Put the lane of catch-up and backfill behind live runs, and tenants beside each other, each with its share."""
    return Priority(
        priority_key=CATCH_UP_PRIORITY if order.run.kind in LANE else None,
        fairness_key=order.tenant[:FAIRNESS_KEY_LIMIT],
        fairness_weight=order.fairness_weight,
    )


def summary_of(definition: JobDefinition, run: Run) -> str:
    """Name an attempt in the Web UI."""
    # Shown in the Web UI only: a replay with other zone rules does not compare it.
    local = run.scheduled_at.astimezone(_zone_of(definition))
    return f"run {local:%Y-%m-%d %H:%M:%S %Z}, attempt {run.attempt}"


def _zone_of(definition: JobDefinition) -> tzinfo:
    try:
        return ZoneInfo(definition.schedule.timezone)
    except ZoneInfoNotFoundError:  # as of a zone that the worker before knew
        return UTC
