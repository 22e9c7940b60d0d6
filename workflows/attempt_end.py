"""How an attempt ended: what Temporal answers, read as an ``AttemptEnd``.

Workers may be in any language and of any team. Whatever they answer is taken in or left out; none of it may keep the job's
workflow from going on.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from pydantic import JsonValue
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, CancelledError, FailureError, TimeoutError, TimeoutType

from horarium import AttemptReport, parse_attempt_report
from horarium.encrypted_payload import CANNOT_DECRYPT, ENCODING
from workflows.resilience import AttemptEnd
from workflows.run import MESSAGE_LIMIT, RESULT_LIMIT, AttemptStatus, Failure, Run

CHECKPOINT_LIMIT: Final = 131_072
"""Bytes of JSON. Twice what our SDK saves, which counts without spaces."""

UNKNOWN_ACTIVITY_TYPES: Final = frozenset({"NotFoundError", "ActivityNotRegisteredError"})
"""What the Python and Java SDKs, and the Go SDK, call an activity that the worker does not have."""

UNKNOWN_ACTIVITY_WORDS: Final = ("not registered", "unable to find activitytype")

KEYLESS: Final = "the worker that took it cannot read encrypted payloads: give it the encryption keys"

CAUSES_READ: Final = 10
"""Of a failure. Decoding fails one or two causes deep."""

SILENT: Final = "no heartbeat in time: the worker died, hung or was cut off"

NEVER_HEARD: Final = (
    "no heartbeat at all: the worker died, hung or was cut off, or it is one that never heartbeats: then set "
    "heartbeat_timeout_seconds to null"
)
"""Our SDK heartbeats for the author; workers in other languages may not."""


def end_of_success(run: Run, answer: RawValue) -> AttemptEnd:
    """Read what an activity or a workflow answered: an ``AttemptReport``, or a bare result."""
    value = _read_json(answer.payload)
    report = parse_attempt_report(value)
    return AttemptEnd(
        run_id=run.run_id,
        status=AttemptStatus.SUCCESS,
        started_at=report.started_at if report else None,
        worker=report.worker if report else None,
        result=_bounded(report.result if report else value),
    )


def end_of_failure(run: Run, cause: BaseException | None, *, task_queue: str) -> AttemptEnd:
    """Read what an activity or a workflow failed with."""
    match cause:
        case CancelledError():
            return _end(
                run, AttemptStatus.CANCELLED, Failure(type="cancelled", message="cancelled"), _report_in(cause.details)
            )
        case TimeoutError(type=TimeoutType.SCHEDULE_TO_START | TimeoutType.SCHEDULE_TO_CLOSE):
            failure = Failure(type="not_started", message=f"no worker took it from task queue {task_queue} in time")
            return AttemptEnd(run_id=run.run_id, status=AttemptStatus.TIMED_OUT, failure=failure, not_started=True)
        case TimeoutError(type=TimeoutType.HEARTBEAT):
            failure = Failure(type="lost", message=SILENT if cause.last_heartbeat_details else NEVER_HEARD)
            return _end(run, AttemptStatus.LOST, failure, _report_in(cause.last_heartbeat_details))
        case TimeoutError():
            failure = Failure(type="timeout", message="no answer within timeout_seconds")
            return _end(run, AttemptStatus.TIMED_OUT, failure, _report_in(cause.last_heartbeat_details))
        case ApplicationError():
            return _end_of_application_error(run, cause)
        case FailureError():
            return _end(run, AttemptStatus.FAILED, Failure(type=type(cause).__name__, message=clip(str(cause))), None)
        case _:
            return _end(run, AttemptStatus.FAILED, Failure(type="unknown", message=clip(str(cause))), None)


def _end_of_application_error(run: Run, error: ApplicationError) -> AttemptEnd:
    report = _report_in(error.details)
    failure = Failure(
        type=error.type or "ApplicationError",
        types=report.error_types if report else (),
        http_status=report.http_status if report else None,
        message=clip(error.message),
        retryable=not error.non_retryable,
        retry_after=error.next_retry_delay,
    )
    if _is_unknown_activity(error):
        return AttemptEnd(run_id=run.run_id, status=AttemptStatus.FAILED, failure=failure, unknown_activity=True)
    if (missing := _missing_key(error)) is not None and report is None:
        failure = Failure(type=CANNOT_DECRYPT, message=clip(missing))
        return AttemptEnd(run_id=run.run_id, status=AttemptStatus.FAILED, failure=failure, cannot_decrypt=True)
    return _end(run, AttemptStatus.FAILED, failure, report)


def _is_unknown_activity(error: ApplicationError) -> bool:
    # Job code may raise a NotFoundError of its own; the worker's has no report of an attempt, and says "not registered".
    words = error.message.lower()
    return error.type in UNKNOWN_ACTIVITY_TYPES and any(each in words for each in UNKNOWN_ACTIVITY_WORDS)


def _missing_key(error: ApplicationError) -> str | None:
    """Say what a worker lacks that could not decrypt what it was given; ``None`` where that is not why it failed."""
    for each in islice(_with_causes(error), CAUSES_READ):
        if each.type == CANNOT_DECRYPT:
            return f"the worker that took it cannot decrypt what it was given: {each.message}"
        if ENCODING in each.message:
            # A worker without our codec, in whatever words of its SDK.
            return KEYLESS
    return None


def _with_causes(error: BaseException | None) -> Iterator[ApplicationError]:
    while isinstance(error, ApplicationError):
        yield error
        error = error.cause


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
    report = parse_attempt_report(details[0]) if details else None
    if report is None or _is_keepable(report.checkpoint):
        return report
    return replace(report, checkpoint=None)


def _is_keepable(checkpoint: JsonValue) -> bool:
    """Say whether a checkpoint can stay in the job's state. Our SDK saves no other; whoever writes their own might."""
    try:
        text = json.dumps(checkpoint, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, TypeError, RecursionError):
        return False
    return len(text) <= CHECKPOINT_LIMIT


def _bounded(result: JsonValue) -> JsonValue:
    size = len(workflow.payload_converter().to_payload(result).data)
    return result if size <= RESULT_LIMIT else _omitted(f"{size} bytes, more than {RESULT_LIMIT}")


def _omitted(why: str) -> JsonValue:
    return {"omitted": f"{why}; see the Temporal history"}


def _read_json(payload: Payload) -> JsonValue:
    """Read an answer as JSON, whatever it is. The strictest reader of a result is a SQL database: it takes no NaN."""
    encoding = payload.metadata.get("encoding", b"").decode(errors="replace")
    if encoding == "binary/null":
        return None
    if encoding != "json/plain":
        return _omitted(f"{len(payload.data)} bytes of {encoding or 'an unknown encoding'}")
    try:
        value: JsonValue = json.loads(payload.data)
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return _omitted(f"{len(payload.data)} bytes that are no plain JSON")
    return value


def clip(text: str) -> str:
    """Cut a message to what is kept of it."""
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"
