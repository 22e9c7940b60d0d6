"""Attempts that have not answered: when to look at them, and what is to be said of them.

Pure. The looking itself is the activity ``observe_attempt``.
"""

from datetime import datetime, timedelta

from workflows.run import Outcome, Run, RunKind, RunStatus
from workflows.value import Value

LONGEST_PAUSE = timedelta(minutes=10)
"""Between two looks at a detached run, whose workflow somebody may have terminated."""

SHORTEST_PAUSE = timedelta(seconds=8)

PATIENCE_WHEN_LATE = 4
"""Times as long as the fire was late: about what 500 fires of one second take from the first dispatch to the last answer."""

LONGEST_PATIENCE = timedelta(seconds=20)


class ObserveRequest(Value):
    """Which attempt is meant."""

    workflow_id: str = ""
    activity_id: str = ""
    """Empty for a detached run, whose workflow as a whole is meant."""

    child_id: str = ""
    """The workflow that is the attempt, where it is one."""

    task_queue: str = ""


class Observation(Value):
    """What was seen."""

    run_id: str = ""
    """Filled in by the workflow that asked."""

    started_at: datetime | None = None
    """When a worker took it; ``None`` while none has."""

    worker: str | None = None
    polled: bool = True
    """Whether any worker polls the task queue."""

    ended: bool = False
    """The workflow of a detached run has closed, or never existed."""

    trouble: str | None = None
    """What keeps an attempt that is a workflow from going on, as Temporal reports it."""


def first_look(run: Run, *, visible_after: timedelta, now: datetime) -> datetime:
    """Say when to look at an attempt that is dispatched now and may not answer.

    Where live fires come late there is more to do than can be done, and the answer will be late as well: a look would only add
    to that. ``visible_after`` is for those that are on time.
    """
    is_live = run.kind is RunKind.SCHEDULED and run.attempt == 1
    late_by = max(timedelta(0), now - run.target_at) if is_live else timedelta(0)
    return now + visible_after + min(PATIENCE_WHEN_LATE * late_by, LONGEST_PATIENCE)


def next_look(run: Run, *, now: datetime) -> datetime:
    """Say when to look again: after as long as it has taken so far, so that a day of waiting costs a dozen looks."""
    waited = now - (run.dispatched_at or now)
    pause = max(SHORTEST_PAUSE, waited)
    return now + (min(pause, LONGEST_PAUSE) if run.detached else pause)


def needs_no_more_looks(run: Run, seen: Observation) -> bool:
    """Say whether what was seen lasts until the attempt ends; Temporal itself watches over an attempt that has begun."""
    return seen.ended or (seen.started_at is not None and not run.detached)


def seen_run(run: Run, seen: Observation, *, task_queue: str, now: datetime) -> Run:
    """Say of a run what was seen of its attempt."""
    if run.detached:
        if not seen.ended:
            return run
        reason = "its workflow closed without a report"
        return run.model_copy(update={"status": RunStatus.DEAD, "reason": reason, "finished_at": now})
    if seen.ended:
        return run
    if seen.started_at is not None:
        started_at = run.started_at or seen.started_at
        return run.model_copy(
            update={
                "status": RunStatus.RUNNING,
                "outcome": Outcome.RAN,
                "reason": seen.trouble,
                "started_at": started_at,
                "worker": seen.worker,
            }
        )
    waits = "waits for a worker of" if seen.polled else "no worker polls"
    outcome = Outcome.PENDING if run.started_at is None else run.outcome
    reason = f"{waits} task queue {task_queue}"
    return run.model_copy(update={"status": RunStatus.PENDING, "outcome": outcome, "reason": reason})
