"""How a run is made of a fire, and how each of its attempts is numbered, fenced and placed.

Pure. Invariant: fences of a job rise with every attempt, and are never below the time in microseconds.
"""

from datetime import datetime, timedelta

from workflows.contracts import job_workflow_id, requested_run_id, run_workflow_id, scheduled_run_id
from workflows.idempotency_key import render_idempotency_key
from workflows.job import Isolation, JobDefinition, JobState
from workflows.job_state import definition_at, microseconds
from workflows.run import Outcome, PayloadOverride, Run, RunKind, RunStatus
from workflows.schedule import Fire
from workflows.target import WorkflowTarget

DETACH_AFTER = timedelta(minutes=10)
"""A longer attempt would keep its job from continuing as new for too long."""


def run_for(
    state: JobState,
    fire: Fire,
    *,
    kind: RunKind,
    stands_for: int,
    now: datetime,
    reason: str | None,
    revision: int | None = None,
) -> Run:
    """Make the run of a fire; under ``revision``, by default the present one."""
    revision = revision or state.revision
    definition = definition_at(state, revision)
    return Run(
        run_id=scheduled_run_id(job_id=state.job_id, nominal=fire.nominal),
        kind=kind,
        scheduled_at=fire.nominal,
        target_at=fire.target,
        created_at=now,
        reason=reason,
        stands_for=stands_for,
        revision=revision,
        max_attempts=definition.retry.max_attempts,
        idempotency_key=_key_of(state, definition, scheduled_at=fire.nominal, request_id=None),
    )


def manual_run(state: JobState, *, request_id: str, override: PayloadOverride | None, now: datetime) -> Run:
    """Make the run of a trigger. Its time is that of the trigger."""
    definition = state.definition
    return Run(
        run_id=requested_run_id(job_id=state.job_id, kind=RunKind.MANUAL, request_id=request_id),
        kind=RunKind.MANUAL,
        scheduled_at=now,
        target_at=now,
        created_at=now,
        revision=state.revision,
        max_attempts=definition.retry.max_attempts,
        idempotency_key=_key_of(state, definition, scheduled_at=now, request_id=request_id),
        override=override,
    )


def backfilled_run(
    state: JobState,
    definition: JobDefinition,
    *,
    run_id: str,
    backfill_id: str,
    nominal: datetime,
    revision: int,
    again: bool,
    now: datetime,
) -> Run:
    """Make the run of a fire that is backfilled; with ``again``, under an idempotency key that its fire has not had."""
    request_id = backfill_id if again else None
    return Run(
        run_id=run_id,
        kind=RunKind.BACKFILL,
        scheduled_at=nominal,
        # Its deadlines count from now: its own target is long past.
        target_at=now,
        created_at=now,
        revision=revision,
        max_attempts=definition.retry.max_attempts,
        idempotency_key=_key_of(state, definition, scheduled_at=nominal, request_id=request_id),
        backfill_id=backfill_id,
        detached=True,
        workflow_id=run_workflow_id(tenant=state.tenant, run_id=run_id),
    )


def _key_of(state: JobState, definition: JobDefinition, *, scheduled_at: datetime, request_id: str | None) -> str:
    return render_idempotency_key(
        definition.idempotency_key_template,
        tenant=state.tenant,
        job_id=state.job_id,
        scheduled_at=scheduled_at,
        timezone=definition.schedule.timezone,
        request_id=request_id,
    )


def next_attempt(run: Run, *, now: datetime, last_fence: int) -> Run:
    """Number and fence the next attempt of a run. The fence is above ``last_fence`` and above every earlier microsecond."""
    return run.model_copy(
        update={
            "status": RunStatus.RUNNING,
            "outcome": Outcome.RAN,
            "reason": None,
            "attempt": run.attempt + 1,
            "fence": max(last_fence + 1, microseconds(now)),
            "dispatched_at": now,
            "next_attempt_at": None,
        }
    )


def wants_workflow(definition: JobDefinition) -> bool:
    is_workflow = isinstance(definition.target, WorkflowTarget)
    return is_workflow or definition.isolation is Isolation.WORKFLOW or definition.timeout > DETACH_AFTER


def workflow_of(state: JobState, run: Run, *, detached: bool) -> str:
    if detached:
        return run_workflow_id(tenant=state.tenant, run_id=run.run_id)
    return job_workflow_id(tenant=state.tenant, job_id=state.job_id)
