"""One attempt of a run, as a workflow of a team: a child of the run's own workflow, and what its end means.

Each attempt has a workflow id of its own, made from the run's, so that nothing is ever started twice and a retry is a new
workflow. The end of a child is the end of its whole chain: that it continues as new is between Temporal and itself, and its
timeout is for all of it. A cancellation passes on to it. When the run's workflow is over, however that came, so is the child.
"""

import asyncio
from dataclasses import replace

from temporalio import workflow
from temporalio.common import RawValue, WorkflowIDReusePolicy
from temporalio.exceptions import (
    ActivityError,
    CancelledError,
    ChildWorkflowError,
    FailureError,
    TerminatedError,
    TimeoutError,
    WorkflowAlreadyStartedError,
)

from workflows.attempt import AttemptOrder, job_run, priority_of, summary_of
from workflows.attempt_end import clip, end_of_failure, end_of_success
from workflows.contracts import attempt_workflow_id
from workflows.job import JobDefinition, OverlapPolicy
from workflows.resilience import AttemptEnd
from workflows.run import AttemptStatus, Failure, Run
from workflows.target import WorkflowArgument, WorkflowTarget
from workflows.telemetry import attempt_scope


def child_id(order: AttemptOrder) -> str:
    """Name the workflow of the current attempt."""
    return attempt_workflow_id(tenant=order.tenant, run_id=order.run.run_id, attempt=order.run.attempt)


async def run_child(order: AttemptOrder, *, in_vain: asyncio.Event) -> AttemptEnd:
    """Make an attempt by starting the target's workflow, and wait for its end.

    ``in_vain`` is set by whoever sees that no worker takes it: then it is not waited for any longer, and since no other attempt
    follows, the end of the run's workflow terminates it.
    """
    child = asyncio.create_task(_run_to_end(order))
    waiting = asyncio.create_task(in_vain.wait())
    try:
        await workflow.wait([child, waiting], return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        # Cancelled only once; from now on the child is waited for, or given up when no worker has ever had it.
        child.cancel()
        await workflow.wait([child, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if child.done():
        return (
            AttemptEnd(run_id=order.run.run_id, status=AttemptStatus.CANCELLED) if child.cancelled() else child.result()
        )
    child.cancel()
    failure = Failure(
        type="not_started",
        message=f"no worker took it from task queue {order.definition.target.task_queue} in time",
    )
    return AttemptEnd(run_id=order.run.run_id, status=AttemptStatus.TIMED_OUT, failure=failure, not_started=True)


async def _run_to_end(order: AttemptOrder) -> AttemptEnd:
    run = order.run
    try:
        with attempt_scope(tenant=order.tenant, run=run):
            starting = asyncio.create_task(_start(order))
        child = await starting
        return end_of_success(run, await child)
    except WorkflowAlreadyStartedError:
        message = f"Temporal has a workflow {child_id(order)} already, which is none of this attempt's"
        return _failed(run, Failure(type="workflow_id_conflict", message=message, retryable=False))
    except ChildWorkflowError as error:
        return _end_of_child(run, error.cause, task_queue=order.definition.target.task_queue)
    except FailureError as error:
        return end_of_failure(run, error, task_queue=order.definition.target.task_queue)
    except asyncio.CancelledError:
        return AttemptEnd(run_id=run.run_id, status=AttemptStatus.CANCELLED)


async def _start(order: AttemptOrder) -> workflow.ChildWorkflowHandle[object, RawValue]:
    definition, run, target = order.definition, order.run, order.definition.target
    assert isinstance(target, WorkflowTarget)
    values = {
        WorkflowArgument.RUN: job_run(order, payload=definition.payload),
        WorkflowArgument.PAYLOAD: definition.payload,
    }
    return await workflow.start_child_workflow(
        target.workflow,
        args=[values[each] for each in target.args],
        id=child_id(order),
        task_queue=target.task_queue,
        result_type=RawValue,
        execution_timeout=definition.timeout,
        id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        parent_close_policy=workflow.ParentClosePolicy.TERMINATE,
        cancellation_type=_cancellation_type(definition),
        memo=_memo(order),
        priority=priority_of(order),
        static_summary=summary_of(definition, run),
    )


def _memo(order: AttemptOrder) -> dict[str, str | int]:
    """Say whose attempt it is, in the Web UI and to workflows that are given their payload alone."""
    run = order.run
    return {
        "horarium_job": order.job_id,
        "horarium_run": run.run_id,
        "horarium_attempt": run.attempt,
        "horarium_idempotency_key": run.idempotency_key,
        "horarium_fence": run.fence,
    }


def _cancellation_type(definition: JobDefinition) -> workflow.ChildWorkflowCancellationType:
    if definition.overlap is OverlapPolicy.TERMINATE_OTHER:
        return workflow.ChildWorkflowCancellationType.TRY_CANCEL
    return workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED


def _end_of_child(run: Run, cause: BaseException | None, *, task_queue: str) -> AttemptEnd:
    match cause:
        case TerminatedError():
            failure = Failure(type="terminated", message="its workflow was terminated in Temporal", retryable=False)
            return _failed(run, failure)
        case CancelledError():
            failure = Failure(type="cancelled", message="its workflow was cancelled in Temporal")
            return AttemptEnd(run_id=run.run_id, status=AttemptStatus.CANCELLED, failure=failure)
        case ActivityError() | ChildWorkflowError():
            return _failed(run, _failure_inside(run, cause, task_queue=task_queue))
        case _:
            end = end_of_failure(run, cause, task_queue=task_queue)
            return replace(end, unknown_activity=False, cannot_decrypt=False)


def _failure_inside(run: Run, error: ActivityError | ChildWorkflowError, *, task_queue: str) -> Failure:
    """Say what the workflow itself failed of: the first cause, and not that "an activity failed"."""
    step = error.activity_type if isinstance(error, ActivityError) else error.workflow_type
    match error.cause:
        case ActivityError() | ChildWorkflowError() as deeper:
            return _failure_inside(run, deeper, task_queue=task_queue)
        case TimeoutError():
            return Failure(type="timeout", message=f"{step} inside the workflow did not answer in time")
        case TerminatedError() | CancelledError() as ended:
            return Failure(type=type(ended).__name__, message=clip(f"{step} inside the workflow: {ended}"))
        case cause:
            return end_of_failure(run, cause, task_queue=task_queue).failure or Failure()


def _failed(run: Run, failure: Failure) -> AttemptEnd:
    return AttemptEnd(run_id=run.run_id, status=AttemptStatus.FAILED, failure=failure)
