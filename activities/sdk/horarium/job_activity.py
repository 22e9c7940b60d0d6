"""Makes an activity function answer the scheduler.

A wrapped activity keeps its name and its options. Called by a Horarium workflow it gets its run in the form that it
asks for, is heartbeated, and answers with an ``AttemptReport``. Called by any other workflow it behaves as if it were
not wrapped.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import update_wrapper
from typing import Any, Final, cast

from pydantic import TypeAdapter, ValidationError
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from horarium.attempt import Attempt, entered
from horarium.attempt_failure import cause_of, passes_through, to_application_error
from horarium.clock import now
from horarium.effect_desk import EffectDesk
from horarium.encrypted_payload import CannotDecrypt, is_encrypted, key_id_of
from horarium.encryption_keys import VARIABLE
from horarium.error import PermanentError
from horarium.heartbeat import heartbeating, heartbeating_from_thread
from horarium.job_run import JobRun
from horarium.payload_fit import PayloadFit
from horarium.trace import traced

JOB_WORKFLOW: Final = "HorariumJob"

JOB_WORKFLOW_TYPES: Final = frozenset({JOB_WORKFLOW, "HorariumRun"})
"""The workflows whose one argument is a ``JobRun``."""

ActivityFunction = Callable[..., Any]

_MARK: Final = "__horarium_payload_fit__"
"""Where a wrapped activity keeps its ``PayloadFit``."""

_DEFINITION: Final = "__temporal_activity_definition"
"""Where ``activity.defn`` leaves what it knows. Temporal has no public way to read it back."""

_JOB_RUN: TypeAdapter[JobRun[Any]] = TypeAdapter(JobRun[Any])


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Host:
    """Where attempts are made."""

    worker: str
    effects: EffectDesk | None


def wrap_activity(function: ActivityFunction, *, worker: str, effects: EffectDesk | None = None) -> ActivityFunction:
    """Wrap an ``@activity.defn`` function, method or callable object; ``worker`` is the identity to report.

    Without ``effects`` the function cannot use ``once``. The desk is the caller's, who closes it when the worker has ended.

    Wrapping twice is wrapping once. Dynamic activities are left alone: they take raw arguments by definition. For
    workers that cannot use ``HorariumPlugin``, which does this for every activity of a worker.
    """
    definition = activity._Definition.must_from_callable(function)
    if definition.name is None or hasattr(function, _MARK):
        return function
    fit = PayloadFit(function)
    wrap = _wrap_async if definition.is_async else _wrap_sync
    wrapper = wrap(function, definition.arg_types, fit, _Host(worker=worker, effects=effects))
    update_wrapper(wrapper, function, updated=())
    # As many raw arguments as the function has parameters: Temporal heeds the types only where the numbers agree, which
    # for calls by other workflows is when the function's own types count, and where they do not, decodes without any.
    raw = None if definition.arg_types is None else [RawValue] * len(definition.arg_types)
    setattr(wrapper, _DEFINITION, dataclasses.replace(definition, fn=wrapper, arg_types=cast("list[type]", raw)))
    setattr(wrapper, _MARK, fit)
    return wrapper


def name_of(function: ActivityFunction) -> str | None:
    """Say under which name a job asks for an activity; ``None`` for a dynamic one."""
    return activity._Definition.must_from_callable(function).name


def payload_fit_of(function: ActivityFunction) -> PayloadFit | None:
    """Get how a wrapped activity wants its run; ``None`` for one that is not wrapped."""
    fit: PayloadFit | None = getattr(function, _MARK, None)
    return fit


def _wrap_async(
    function: ActivityFunction, hints: Sequence[Any] | None, fit: PayloadFit, host: _Host
) -> ActivityFunction:
    async def run_attempt(*arguments: Any) -> Any:
        if not _is_called_by_job():
            return await function(*_decode(arguments, hints))
        attempt = _begin(arguments, host)
        with entered(attempt), _reporting_failures(attempt), traced(attempt.run):
            attempt.resolve_secrets()
            async with heartbeating(attempt):
                returned = await function(*fit.arguments(attempt.run))
            return attempt.report_success(returned).to_json()

    return run_attempt


def _wrap_sync(
    function: ActivityFunction, hints: Sequence[Any] | None, fit: PayloadFit, host: _Host
) -> ActivityFunction:
    def run_attempt(*arguments: Any) -> Any:
        if not _is_called_by_job():
            return function(*_decode(arguments, hints))
        attempt = _begin(arguments, host)
        with entered(attempt), _reporting_failures(attempt), traced(attempt.run):
            attempt.resolve_secrets()
            with heartbeating_from_thread(attempt):
                returned = function(*fit.arguments(attempt.run))
            return attempt.report_success(returned).to_json()

    return run_attempt


def _is_called_by_job() -> bool:
    return activity.info().workflow_type in JOB_WORKFLOW_TYPES


def _begin(arguments: Sequence[Any], host: _Host) -> Attempt:
    started_at = now()
    try:
        [argument] = arguments
        run = _JOB_RUN.validate_json(_document(argument))
    except (ValueError, ValidationError) as error:
        message = f"the worker's horarium package cannot read this run: {error}"
        raise ApplicationError(message, type=PermanentError.__name__, non_retryable=True) from error
    return Attempt(run=run, worker=host.worker, started_at=started_at, effects=host.effects)


def _document(argument: Any) -> str | bytes:
    """Get the JSON text of an argument, raw or already decoded by whatever converter the worker has."""
    if isinstance(argument, RawValue):
        if argument.payload.metadata.get("encoding") == b"json/plain":
            return argument.payload.data
        if is_encrypted(argument.payload):
            raise _keyless(argument.payload)
        argument = activity.payload_converter().from_payload(argument.payload)
    return json.dumps(argument)


def _keyless(payload: Payload) -> CannotDecrypt:
    return CannotDecrypt(
        f"the run is encrypted with key {key_id_of(payload)!r}, and this worker has no keys: "
        f"set {VARIABLE}, and give HorariumPlugin to the client"
    )


def _decode(arguments: Sequence[Any], hints: Sequence[Any] | None) -> list[Any]:
    """Decode the arguments of a call by another workflow as the bare function would have them decoded."""
    if hints is None or len(hints) != len(arguments):
        return list(arguments)
    payloads = [argument.payload for argument in arguments]
    try:
        return activity.payload_converter().from_payloads(payloads, list(hints))
    except Exception as error:
        raise ApplicationError("Failed decoding arguments") from error


@contextmanager
def _reporting_failures(attempt: Attempt) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if passes_through(error):
            raise
        failure = to_application_error(error, attempt.report(), secrets=attempt.secrets)
        raise failure from cause_of(error, secrets=attempt.secrets)
