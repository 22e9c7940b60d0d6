"""One attempt of a run, as a Temporal activity, and what its end means.

The durable part shared by all workflows that carry out runs. Every attempt is one activity that the engine does not retry:
retries are the workflow's, so that each is visible in the history and parking uses up none.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from pydantic import JsonValue
from temporalio import workflow
from temporalio.common import Priority, RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    FailureError,
    TimeoutError,
    TimeoutType,
    is_cancelled_exception,
)

from horarium import AttemptReport, JobRun, parse_attempt_report
from horarium import RunKind as WireRunKind
from workflows.admission import Admission, AdmissionRequest, AttemptNotice, Verdict
from workflows.classification import is_downstreams_fault, is_retryable
from workflows.contracts import ADMIT_ATTEMPT, LOCAL_ACTIVITY_TIMEOUT, NOTE_ATTEMPT
from workflows.job import CatchUpPolicy, JobDefinition, OverlapPolicy
from workflows.resilience import AttemptEnd
from workflows.run import MESSAGE_LIMIT, RESULT_LIMIT, AttemptStatus, Failure, Run, RunKind
from workflows.telemetry import attempt_scope

ONE_ATTEMPT: Final = RetryPolicy(maximum_attempts=1)

PROBE_SLACK: Final = timedelta(seconds=15)
"""After the attempt's own timeout, a probe that has not been heard of is lost."""

CATCH_UP_PRIORITY: Final = 5
"""The lowest of Temporal's default range; live runs have its middle, 3."""

UNKNOWN_ACTIVITY_TYPES: Final = frozenset({"NotFoundError", "ActivityNotRegisteredError"})
"""What the Python and Java SDKs, and the Go SDK, call an activity that the worker does not have."""

UNKNOWN_ACTIVITY_WORDS: Final = ("not registered", "unable to find activitytype")


@dataclass(frozen=True, kw_only=True)
class AttemptOrder:
    """Everything that an attempt needs."""

    tenant: str
    job_id: str
    definition: JobDefinition
    run: Run


def activity_id(run: Run) -> str:
    """Name the activity of the run's current attempt; unique among all that a workflow has pending."""
    return f"{run.run_id}#{run.attempt}.{run.parkings}"


async def perform_attempt(order: AttemptOrder, *, now: datetime) -> AttemptEnd:
    """Make the current attempt of a run, if its downstream allows it, and say how it ended.

    Never raises what the attempt may have done. A job without a downstream is asked nothing.
    """
    if not order.definition.downstream:
        return await _make_attempt(order, now=now)
    try:
        admission = await _ask_admission(order)
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
    end = await _make_attempt(order, now=now)
    return replace(end, verdict=await _note_end(order, end, is_probe=admission.is_probe))


async def _ask_admission(order: AttemptOrder) -> Admission:
    definition, run = order.definition, order.run
    request = AdmissionRequest(
        tenant=order.tenant,
        downstream=definition.downstream,
        run_id=run.run_id,
        is_first=run.attempt == 1,
        was_parked=run.parkings > 0,
        lasts=definition.timeout + PROBE_SLACK,
    )
    try:
        admission: Admission = await workflow.execute_local_activity(
            ADMIT_ATTEMPT,
            request,
            result_type=Admission,
            start_to_close_timeout=LOCAL_ACTIVITY_TIMEOUT,
            retry_policy=ONE_ATTEMPT,
        )
    except FailureError as error:
        if is_cancelled_exception(error):
            raise asyncio.CancelledError from error
        return Admission()
    return admission


async def _note_end(order: AttemptOrder, end: AttemptEnd, *, is_probe: bool) -> Verdict:
    definition, run = order.definition, order.run
    at_fault = end.failure is not None and is_downstreams_fault(end.failure) and not end.not_started
    wants_retry = at_fault and is_retryable(end.failure or Failure(), definition.retry)
    notice = AttemptNotice(
        tenant=order.tenant,
        downstream=definition.downstream,
        run_id=run.run_id,
        is_probe=is_probe,
        ok=not at_fault,
        wants_retry=wants_retry and end.status is not AttemptStatus.CANCELLED,
    )
    try:
        verdict: Verdict = await workflow.execute_local_activity(
            NOTE_ATTEMPT,
            notice,
            result_type=Verdict,
            start_to_close_timeout=LOCAL_ACTIVITY_TIMEOUT,
            retry_policy=ONE_ATTEMPT,
        )
    except (FailureError, asyncio.CancelledError):
        return Verdict()
    return verdict


async def _make_attempt(order: AttemptOrder, *, now: datetime) -> AttemptEnd:
    definition, run = order.definition, order.run
    try:
        with attempt_scope(tenant=order.tenant, run=run):
            activity: workflow.ActivityHandle[JsonValue] = workflow.start_activity(
                definition.target.activity,
                _job_run(order),
                task_queue=definition.target.task_queue,
                activity_id=activity_id(run),
                start_to_close_timeout=definition.timeout,
                schedule_to_start_timeout=_queue_timeout(definition, run, now=now),
                heartbeat_timeout=definition.heartbeat_timeout,
                retry_policy=ONE_ATTEMPT,
                cancellation_type=_cancellation_type(definition),
                priority=_priority(order),
                summary=_summary(definition, run),
            )
        answer = await activity
    except ActivityError as error:
        return _end_of_failure(run, error.cause, task_queue=definition.target.task_queue)
    except asyncio.CancelledError:
        return AttemptEnd(run_id=run.run_id, status=AttemptStatus.CANCELLED)
    report = parse_attempt_report(answer)
    return AttemptEnd(
        run_id=run.run_id,
        status=AttemptStatus.SUCCESS,
        started_at=report.started_at if report else None,
        worker=report.worker if report else None,
        result=_bounded(report.result if report else answer),
    )


def _job_run(order: AttemptOrder) -> JobRun[JsonValue]:
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
        payload=order.definition.payload,
        checkpoint=run.checkpoint,
    )


def _queue_timeout(definition: JobDefinition, run: Run, *, now: datetime) -> timedelta:
    if definition.missed_window is CatchUpPolicy.DEADLINE and definition.max_delay is not None and run.attempt == 1:
        # The deadline is for the actual start, which is when a worker takes it.
        return max(timedelta(seconds=1), min(definition.queue_timeout, run.target_at + definition.max_delay - now))
    return definition.queue_timeout


def _cancellation_type(definition: JobDefinition) -> workflow.ActivityCancellationType:
    # Never ABANDON: a late failure of an abandoned activity makes the workflow task fail for ever.
    if definition.overlap is OverlapPolicy.TERMINATE_OTHER:
        return workflow.ActivityCancellationType.TRY_CANCEL
    return workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED


def _priority(order: AttemptOrder) -> Priority:
    low = order.run.kind in (RunKind.CATCH_UP, RunKind.BACKFILL)
    return Priority(priority_key=CATCH_UP_PRIORITY if low else None, fairness_key=order.tenant[:64])


def _summary(definition: JobDefinition, run: Run) -> str:
    # Shown in the Web UI only: a replay with other zone rules does not compare it.
    local = run.scheduled_at.astimezone(ZoneInfo(definition.schedule.timezone))
    return f"run {local:%Y-%m-%d %H:%M:%S %Z}, attempt {run.attempt}"


def _end_of_failure(run: Run, cause: BaseException | None, *, task_queue: str) -> AttemptEnd:
    match cause:
        case CancelledError():
            return _end(
                run, AttemptStatus.CANCELLED, Failure(type="cancelled", message="cancelled"), _report_in(cause.details)
            )
        case TimeoutError(type=TimeoutType.SCHEDULE_TO_START | TimeoutType.SCHEDULE_TO_CLOSE):
            failure = Failure(type="not_started", message=f"no worker took it from task queue {task_queue} in time")
            return AttemptEnd(run_id=run.run_id, status=AttemptStatus.TIMED_OUT, failure=failure, not_started=True)
        case TimeoutError(type=TimeoutType.HEARTBEAT):
            failure = Failure(type="lost", message="no heartbeat in time: the worker died, hung or was cut off")
            return _end(run, AttemptStatus.LOST, failure, _report_in(cause.last_heartbeat_details))
        case TimeoutError():
            failure = Failure(type="timeout", message="no answer within timeout_seconds")
            return _end(run, AttemptStatus.TIMED_OUT, failure, _report_in(cause.last_heartbeat_details))
        case ApplicationError():
            return _end_of_application_error(run, cause)
        case FailureError():
            return _end(run, AttemptStatus.FAILED, Failure(type=type(cause).__name__, message=_clip(str(cause))), None)
        case _:
            return _end(run, AttemptStatus.FAILED, Failure(type="unknown", message=_clip(str(cause))), None)


def _end_of_application_error(run: Run, error: ApplicationError) -> AttemptEnd:
    report = _report_in(error.details)
    failure = Failure(
        type=error.type or "ApplicationError",
        types=report.error_types if report else (),
        message=_clip(error.message),
        retryable=not error.non_retryable,
        retry_after=error.next_retry_delay,
    )
    if _is_unknown_activity(error):
        return AttemptEnd(run_id=run.run_id, status=AttemptStatus.FAILED, failure=failure, unknown_activity=True)
    return _end(run, AttemptStatus.FAILED, failure, report)


def _is_unknown_activity(error: ApplicationError) -> bool:
    # Job code may raise a NotFoundError of its own; the worker's has no report of an attempt, and says "not registered".
    words = error.message.lower()
    return error.type in UNKNOWN_ACTIVITY_TYPES and any(each in words for each in UNKNOWN_ACTIVITY_WORDS)


def _end(run: Run, status: AttemptStatus, failure: Failure, report: AttemptReport | None) -> AttemptEnd:
    return AttemptEnd(
        run_id=run.run_id,
        status=status,
        started_at=report.started_at if report else None,
        worker=report.worker if report else None,
        failure=failure,
        checkpoint=report.checkpoint if report else None,
    )


def _report_in(details: Sequence[JsonValue]) -> AttemptReport | None:
    return parse_attempt_report(details[0]) if details else None


def _bounded(result: JsonValue) -> JsonValue:
    size = len(workflow.payload_converter().to_payload(result).data)
    return (
        result
        if size <= RESULT_LIMIT
        else {"omitted": f"{size} bytes, more than {RESULT_LIMIT}; see the Temporal history"}
    )


def _clip(text: str) -> str:
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"
