"""How the runs of a job are carried out: dispatched, called off, looked at while they do not answer, and taken in when they end.

The durable part of ``dispatch`` and ``settlement``. Most runs are attempts of the job's own workflow; a detached one has a
workflow of its own, which reports.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import TypeVar

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import FailureError, WorkflowAlreadyStartedError

from workflows.alert import late_due, late_look, rules_in_force, watch_silent_run
from workflows.alert_delivery import start_alert
from workflows.attempt import ONE_ATTEMPT, AttemptOrder, activity_id, perform_attempt
from workflows.chores import Chores
from workflows.command import RunInput
from workflows.contracts import OBSERVE_ATTEMPT, OBSERVE_TIMEOUT, RUN_WORKFLOW, SCHEDULER_TASK_QUEUE, run_workflow_id
from workflows.job import JobState, Tuning
from workflows.job_state import definition_of, find_run, with_active
from workflows.logic import has_fourth_rules, has_third_rules
from workflows.observation import Observation, ObserveRequest, first_look, needs_no_more_looks, next_look, seen_run
from workflows.resilience import AttemptEnd
from workflows.run import AttemptStatus, Run, RunKind
from workflows.settlement import forget_twin, settle_attempt, settle_detached, settle_not_started, show_run
from workflows.turn import GIVEN_UP

T = TypeVar("T")


class RunCarrier:
    """Carries out the runs of one job. ``read`` and ``write`` are for the job's state, which names those that are active."""

    def __init__(
        self,
        *,
        read: Callable[[], JobState],
        write: Callable[[JobState], None],
        tuning: Callable[[], Tuning],
        chores: Chores,
        notice: Callable[[], None],
    ) -> None:
        self._read = read
        self._write = write
        self._tuning = tuning
        self._chores = chores
        self._notice = notice
        self._ended: list[AttemptEnd] = []
        self._reports: list[Run] = []
        self._refused: list[tuple[str, str]] = []
        self._twins: list[str] = []
        """Backfilled runs that were handed over before, by id."""

        self._observations: list[Observation] = []
        self._attempts: dict[str, asyncio.Task[None]] = {}
        """Inline attempts that are out, by run id. While there are any, the workflow's run cannot continue as new."""

        self._handed_over: dict[str, asyncio.Task[bool]] = {}
        """Whether Temporal started the workflow of a detached run, by run id; of those that this one handed over."""

        self._looks: dict[str, datetime] = {}
        """When to look at runs that have not answered, by run id."""

        self._has_dispatched = False

    def enter_task(self) -> None:
        """Mark the first turn of a workflow task, before which nothing that it dispatches has been."""
        self._has_dispatched = False

    def begin(self) -> None:
        """Look at the detached runs that an earlier run of the workflow has handed over."""
        for run in self._read().active:
            if run.detached:
                self._looks[run.run_id] = next_look(run, now=workflow.now())

    def is_busy(self) -> bool:
        """Say whether attempts are out, or something has ended that was not taken in."""
        return bool(self._attempts or self._ended or self._reports or self._refused or self._twins)

    def have_ended(self) -> bool:
        """Say whether runs have ended that were not taken in."""
        return bool(self._ended or self._reports)

    def has_dispatched(self) -> bool:
        """Say whether something was dispatched by the present workflow task, or, before the third rules, by this turn."""
        dispatched = self._has_dispatched
        if not has_third_rules(self._read()):
            self._has_dispatched = False
        return dispatched

    def look_times(self) -> Iterable[datetime]:
        """Say when runs are to be looked at."""
        return self._looks.values()

    def report(self, run: Run) -> None:
        """Take the report of a detached run."""
        self._reports.append(run)
        self._notice()

    def take_in(self, *, now: datetime) -> None:
        """Take in what has become of runs since the last turn, in the order in which it is to count."""
        for end in _drain(self._ended):
            self._attempts.pop(end.run_id, None)
            self._looks.pop(end.run_id, None)
            self._write(settle_attempt(self._read(), end, now=now, draw=workflow.random().random()))
        for report in _drain(self._reports):
            self._looks.pop(report.run_id, None)
            self._write(settle_detached(self._read(), report))
        for run_id, reason in _drain(self._refused):
            self._looks.pop(run_id, None)
            self._write(settle_not_started(self._read(), run_id, now=now, reason=reason))
        for run_id in _drain(self._twins):
            self._looks.pop(run_id, None)
            self._write(forget_twin(self._read(), run_id))
        for seen in _drain(self._observations):
            self._take_in_observation(seen, now=now)

    def dispatch(self, run: Run) -> None:
        """Let the current attempt of a run be made."""
        self._has_dispatched = True
        run = run.model_copy(update={"workflow_run_id": "" if run.detached else workflow.info().run_id})
        self._write(with_active(self._read(), run))
        self._looks[run.run_id] = self._first_look(run)
        if run.detached:
            self._handed_over[run.run_id] = self._chores.start(self._start_workflow(run))
        else:
            self._attempts[run.run_id] = self._chores.start_task(self._attempt(run))
            self._attempts[run.run_id].add_done_callback(partial(self._end_untried, run.run_id))

    def call_off(self, run_id: str) -> None:
        """Let the attempt of a run be cancelled."""
        task = self._attempts.get(run_id)
        if task is not None:
            task.cancel()
        else:
            self._chores.start(self._cancel_workflow(run_id))

    def look_at_silent(self) -> None:
        """Ask Temporal about the runs that it is time to look at."""
        now = workflow.now()
        for run_id, at in list(self._looks.items()):
            run = find_run(self._read(), run_id)
            if run is None or run.next_attempt_at is not None:
                del self._looks[run_id]
            elif at <= now and self._can_be_seen(run):
                self._looks[run_id] = self._next_look(run)
                self._chores.start(self._observe(run))

    def _take_in_observation(self, seen: Observation, *, now: datetime) -> None:
        state = self._read()
        run = find_run(state, seen.run_id)
        if run is None or run.next_attempt_at is not None:
            self._looks.pop(seen.run_id, None)
            return
        if needs_no_more_looks(run, seen):
            self._looks.pop(seen.run_id, None)
        task_queue = definition_of(state, run).target.task_queue
        shown = seen_run(run, seen, task_queue=task_queue, now=now)
        if shown != run:
            state = show_run(state, shown, now=now)
        if (rules := rules_in_force(state.definition, self._tuning())) is not None:
            state, alerts = watch_silent_run(state, seen.run_id, rules=rules, now=now)
            for alert in alerts:
                self._chores.start(start_alert(alert))
        self._write(state)

    async def _attempt(self, run: Run) -> None:
        state, tuning = self._read(), self._tuning()
        order = AttemptOrder(
            tenant=state.tenant,
            job_id=state.job_id,
            definition=definition_of(state, run),
            run=run,
            paces_catch_up=tuning.paces_catch_up,
            fairness_weight=tuning.fairness_weight,
        )
        self._ended.append(await perform_attempt(order))
        self._notice()

    def _end_untried(self, run_id: str, attempt: asyncio.Task[None]) -> None:
        # Cancelled in the same moment in which it was decided: it has dispatched nothing, and could tell nothing.
        if attempt.cancelled():
            self._ended.append(AttemptEnd(run_id=run_id, status=AttemptStatus.CANCELLED))

    async def _start_workflow(self, run: Run) -> bool:
        state, tuning = self._read(), self._tuning()
        definition = definition_of(state, run)
        try:
            handle = await workflow.start_child_workflow(
                RUN_WORKFLOW,
                RunInput(
                    tenant=state.tenant,
                    job_id=state.job_id,
                    definition=definition,
                    run=run,
                    alerts=rules_in_force(definition, tuning),
                    version=state.version,
                    visible_after=tuning.visible_after,
                    history_limit=tuning.history_limit,
                    paces_catch_up=tuning.paces_catch_up,
                    fairness_weight=tuning.fairness_weight,
                ),
                id=run_workflow_id(tenant=state.tenant, run_id=run.run_id),
                id_reuse_policy=_id_reuse(run),
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                static_summary=f"{definition.name[:100]}: run {run.run_id}",
            )
        except WorkflowAlreadyStartedError:
            if run.kind is RunKind.BACKFILL:
                self._twins.append(run.run_id)
                return False
            self._refused.append((run.run_id, "Temporal has a workflow of this run's id already"))
            return False
        except FailureError as error:
            self._refused.append((run.run_id, f"Temporal refused to start the run: {error}"))
            return False
        handle.add_done_callback(partial(self._look_if_broken, run.run_id))
        return True

    def _look_if_broken(self, run_id: str, handle: asyncio.Task[Run]) -> None:
        # A run that ends by itself has reported. This one was ended in Temporal, and only a look brings that to light.
        if not handle.cancelled() and handle.exception() is not None:
            self._looks[run_id] = workflow.now()
            self._notice()

    async def _cancel_workflow(self, run_id: str) -> None:
        handed_over = self._handed_over.get(run_id)
        if handed_over is not None and not await handed_over:
            # Whatever has that id is not ours.
            return
        handle = workflow.get_external_workflow_handle(run_workflow_id(tenant=self._read().tenant, run_id=run_id))
        run = find_run(self._read(), run_id)
        try:
            await handle.cancel(reason=GIVEN_UP if run is None else run.reason or "")
        except FailureError:
            # It has ended by itself; the look that follows will say so.
            self._looks[run_id] = workflow.now()

    def _can_be_seen(self, run: Run) -> bool:
        """Say whether a look would find the workflow of a backfilled run; many of them may be on their way at once."""
        # Of other runs, histories of 0.1.0 hold looks that were made sooner.
        handed_over = self._handed_over.get(run.run_id)
        return run.kind is not RunKind.BACKFILL or handed_over is None or handed_over.done()

    def _first_look(self, run: Run) -> datetime:
        state, tuning = self._read(), self._tuning()
        soonest = workflow.now() + tuning.visible_after
        if not has_third_rules(state):
            return soonest
        at = first_look(run, visible_after=tuning.visible_after, now=workflow.now())
        if not has_fourth_rules(state):
            return at
        late_at = late_due(run, rules=rules_in_force(definition_of(state, run), tuning))
        return at if late_at is None or run.detached else min(at, max(late_at, soonest))

    def _next_look(self, run: Run) -> datetime:
        """Look no later than the run counts as late, where somebody is to be told of that."""
        now = workflow.now()
        usual, late_at = next_look(run, now=now), late_look(self._read(), run.run_id)
        return usual if late_at is None or late_at <= now else min(usual, late_at)

    async def _observe(self, run: Run) -> None:
        request = ObserveRequest(
            workflow_id=run.workflow_id,
            activity_id="" if run.detached else activity_id(run),
            task_queue=definition_of(self._read(), run).target.task_queue,
        )
        try:
            seen = await workflow.execute_activity(
                OBSERVE_ATTEMPT,
                request,
                result_type=Observation,
                task_queue=SCHEDULER_TASK_QUEUE,
                schedule_to_close_timeout=OBSERVE_TIMEOUT,
                retry_policy=ONE_ATTEMPT,
            )
        except FailureError:
            return
        self._observations.append(seen.model_copy(update={"run_id": run.run_id}))
        self._notice()


def _id_reuse(run: Run) -> WorkflowIDReusePolicy:
    """Let no backfill run a fire that another one has run already, of which the mirror does not know yet."""
    is_backfilled = run.kind is RunKind.BACKFILL
    return WorkflowIDReusePolicy.REJECT_DUPLICATE if is_backfilled else WorkflowIDReusePolicy.ALLOW_DUPLICATE


def _drain(items: list[T]) -> list[T]:
    taken = list(items)
    items.clear()
    return taken
