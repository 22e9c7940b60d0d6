"""The workflow of a detached run: one run whose attempts take too long for its job's own workflow.

Owns the run from its first attempt to its end, writes its rows, and reports to the job by signal, because the job may have
continued as new many times meanwhile. The mirror is written beside all that: no attempt and no report waits for it.
"""

import asyncio
from contextlib import suppress
from datetime import timedelta
from functools import partial

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from workflows.alert import alert_of_late_run, alerts_of_run, late_due
    from workflows.alert_delivery import start_alert
    from workflows.attempt import (
        ONE_ATTEMPT,
        AttemptOrder,
        MakeAttempt,
        activity_id,
        call_activity,
        perform_attempt,
        queue_timeout,
    )
    from workflows.command import RunInput
    from workflows.contracts import (
        LOGIC_VERSION,
        OBSERVE_ATTEMPT,
        OBSERVE_TIMEOUT,
        RECORD_EVENTS,
        RECORD_HEARTBEAT_TIMEOUT,
        RECORD_TIMEOUT,
        RUN_WORKFLOW,
        SCHEDULER_TASK_QUEUE,
        SIGNAL_RUN_ENDED,
        backfill_workflow_id,
        job_workflow_id,
    )
    from workflows.dispatch import next_attempt
    from workflows.job import AttemptRecord, MirrorBatch, RunRecord
    from workflows.job_news import JobNews, RunNews, news_of_run
    from workflows.observation import (
        SHORTEST_PAUSE,
        Observation,
        ObserveRequest,
        needs_no_more_looks,
        next_look,
        seen_run,
    )
    from workflows.outbox import is_empty, with_records, without
    from workflows.resilience import (
        AttemptEnd,
        as_cancelled,
        comes_too_late,
        decide_after_attempt,
        end_between_attempts,
        end_too_late,
    )
    from workflows.run import FINAL_STATUSES, Attempt, AttemptStatus, Run
    from workflows.target import WorkflowTarget
    from workflows.telemetry import tell
    from workflows.workflow_attempt import child_id, run_child

CANCELLED_BY_WORKFLOW = "Cancel requested by workflow with run id "

UNTIL_RECORDED = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30))


@workflow.defn(name=RUN_WORKFLOW)
class RunWorkflow:
    """One detached run."""

    @workflow.init
    def __init__(self, given: RunInput) -> None:
        if given.logic_version > LOGIC_VERSION:
            raise RuntimeError(f"This worker knows logic version {LOGIC_VERSION}; the run is at {given.logic_version}.")
        self._given = given
        self._run: Run = given.run.model_copy(update={"workflow_run_id": workflow.info().run_id})
        self._version = given.version
        self._unsent: MirrorBatch = given.unsent
        self._alerting: list[asyncio.Task[None]] = []
        """Alerts that are being handed over."""

        self._told_late = given.told_late

    @workflow.run
    async def run(self, given: RunInput) -> Run:
        """Make attempts until the run is final, then report it, and see it recorded."""
        recording = asyncio.create_task(self._keep_recorded())
        waiting = asyncio.create_task(self._tell_when_late())
        while self._run.status not in FINAL_STATUSES:
            await self._make_attempt()
        waiting.cancel()
        finishing = asyncio.create_task(self._finish())
        try:
            await asyncio.shield(finishing)
        except asyncio.CancelledError:
            # The run has ended; there is nothing left to cancel. A workflow is cancelled only once.
            await finishing
        recording.cancel()
        return self._run

    async def _make_attempt(self) -> None:
        """Wait for the time of the next attempt, make it, and take in how it ended."""
        try:
            await self._wait_for_attempt()
            if self._run.status not in FINAL_STATUSES:
                self._settle(await self._attempt())
        except asyncio.CancelledError:
            self._note(end_between_attempts(self._run, now=workflow.now(), reason=_cancellation_reason()))

    async def _wait_for_attempt(self) -> None:
        at = self._run.next_attempt_at
        if at is None:
            return
        if workflow.info().get_current_history_length() >= self._given.history_limit:
            now_known = {"run": self._run, "version": self._version, "unsent": self._unsent}
            now_known["told_late"] = self._told_late
            workflow.continue_as_new(self._given.model_copy(update={**now_known, "logic_version": LOGIC_VERSION}))
        await workflow.sleep(max(0.0, (at - workflow.now()).total_seconds()))
        now = workflow.now()
        if comes_too_late(self._given.definition, self._run, now=now):
            self._note(end_too_late(self._run, now=now))
        else:
            self._run = next_attempt(self._run, now=now, last_fence=self._run.fence)

    def _order(self) -> AttemptOrder:
        given = self._given
        return AttemptOrder(
            tenant=given.tenant,
            job_id=given.job_id,
            definition=given.definition,
            run=self._run,
            paces_catch_up=given.paces_catch_up,
            fairness_weight=given.fairness_weight,
        )

    async def _attempt(self) -> AttemptEnd:
        order = self._order()
        in_vain = asyncio.Event()
        beside = [asyncio.create_task(self._watch(order))]
        if self._runs_workflow():
            beside.append(asyncio.create_task(self._end_untaken(order, in_vain)))
        end = await perform_attempt(order, make=self._maker(in_vain))
        for task in beside:
            task.cancel()
        if _is_cancelled() and end.status is not AttemptStatus.SUCCESS:
            self._run = self._run.model_copy(update={"reason": _cancellation_reason()})
            return as_cancelled(end)
        if end.status is AttemptStatus.CANCELLED:
            self._run = self._run.model_copy(update={"reason": "its attempt was cancelled in Temporal"})
        return end

    def _maker(self, in_vain: asyncio.Event) -> MakeAttempt:
        return partial(run_child, in_vain=in_vain) if self._runs_workflow() else call_activity

    def _runs_workflow(self) -> bool:
        return isinstance(self._given.definition.target, WorkflowTarget)

    async def _watch(self, order: AttemptOrder) -> None:
        """Show a run that does not answer, as running or as waiting for a worker, until that is settled."""
        at = workflow.now() + self._given.visible_after
        while True:
            await workflow.sleep(max(0.0, (at - workflow.now()).total_seconds()))
            seen = await self._observe(order)
            # The attempt is in this workflow's own history, as that of an inline run is in its job's.
            inline = self._run.model_copy(update={"detached": False})
            if seen is not None:
                shown = seen_run(inline, seen, task_queue=order.definition.target.task_queue, now=workflow.now())
                self._note(shown.model_copy(update={"detached": True}))
                if needs_no_more_looks(inline, seen) and not self._runs_workflow():
                    return
            at = next_look(inline, now=workflow.now())

    async def _tell_when_late(self) -> None:
        """Raise an alert where the run has not begun in time, whether it waits for a worker or is parked."""
        given = self._given
        due_at = late_due(self._run, rules=given.alerts)
        if due_at is None or given.alerts is None or self._told_late:
            return
        await workflow.sleep(max(0.0, (due_at - workflow.now()).total_seconds()))
        if await self._has_begun():
            return
        self._told_late = True
        about = {"tenant": given.tenant, "job_id": given.job_id}
        now = workflow.now()
        alert = alert_of_late_run(
            self._run, due_at=due_at, **about, definition=given.definition, rules=given.alerts, now=now
        )
        self._alerting.append(asyncio.create_task(start_alert(alert)))

    async def _has_begun(self) -> bool:
        """Say whether job code has begun; what is parked before its first attempt has not."""
        while self._run.started_at is None and self._run.next_attempt_at is None:
            seen = await self._observe(self._order())
            if seen is not None:
                return seen.started_at is not None or self._run.started_at is not None
            await workflow.sleep(SHORTEST_PAUSE)
        return self._run.started_at is not None

    async def _end_untaken(self, order: AttemptOrder, in_vain: asyncio.Event) -> None:
        """Give up a workflow that no worker takes in time, or has taken when it is cancelled.

        Temporal does so itself with an activity; a workflow that waits for a worker would wait on, and take no cancellation.
        """
        patience = queue_timeout(order.definition, order.run, now=workflow.now())
        with suppress(asyncio.TimeoutError):
            await workflow.wait_condition(_is_cancelled, timeout=patience)
        while (seen := await self._observe(order)) is None:
            await workflow.sleep(SHORTEST_PAUSE)
        if seen.started_at is None:
            in_vain.set()

    async def _observe(self, order: AttemptOrder) -> Observation | None:
        request = ObserveRequest(
            workflow_id=workflow.info().workflow_id,
            activity_id=activity_id(order.run),
            child_id=child_id(order) if self._runs_workflow() else "",
            task_queue=order.definition.target.task_queue,
        )
        try:
            seen: Observation = await workflow.execute_activity(
                OBSERVE_ATTEMPT,
                request,
                result_type=Observation,
                task_queue=SCHEDULER_TASK_QUEUE,
                schedule_to_close_timeout=OBSERVE_TIMEOUT,
                retry_policy=ONE_ATTEMPT,
            )
        except FailureError as error:
            if is_cancelled_exception(error):
                raise asyncio.CancelledError from error
            return None
        return seen

    def _settle(self, end: AttemptEnd) -> None:
        settlement = decide_after_attempt(
            self._run,
            end,
            definition=self._given.definition,
            now=workflow.now(),
            draw=workflow.random().random(),
        )
        self._note(settlement.run, settlement.attempt)

    def _note(self, run: Run, attempt: Attempt | None = None) -> None:
        """Take in how the run stands now, to be recorded."""
        before, self._run = self._run, run
        self._version += 1
        given, version = self._given, self._version
        news = news_of_run(before, run, attempt)
        tell(JobNews(tenant=given.tenant, job_id=given.job_id, version=version, runs=(news,)))
        self._raise_alerts(news)
        row = RunRecord(tenant=given.tenant, job_id=given.job_id, version=version, run=run)
        made = [] if attempt is None else [attempt]
        attempts = tuple(
            AttemptRecord(tenant=given.tenant, job_id=given.job_id, version=version, attempt=each) for each in made
        )
        self._unsent = with_records(self._unsent, MirrorBatch(runs=(row,), attempts=attempts))

    def _raise_alerts(self, news: RunNews) -> None:
        given = self._given
        if given.alerts is None:
            return
        about = {"tenant": given.tenant, "job_id": given.job_id}
        now = workflow.now()
        alerts = alerts_of_run(news, **about, definition=given.definition, rules=given.alerts, now=now)
        self._alerting += [asyncio.create_task(start_alert(alert)) for alert in alerts]

    async def _keep_recorded(self) -> None:
        """Write what is noted, however long that takes."""
        while True:
            await workflow.wait_condition(lambda: not is_empty(self._unsent))
            sent = self._unsent
            try:
                await workflow.execute_activity(
                    RECORD_EVENTS,
                    sent,
                    task_queue=SCHEDULER_TASK_QUEUE,
                    start_to_close_timeout=RECORD_TIMEOUT,
                    heartbeat_timeout=RECORD_HEARTBEAT_TIMEOUT,
                    retry_policy=UNTIL_RECORDED,
                )
            except FailureError as error:
                # Not even the last of many tries could write one of the records; the others are written.
                workflow.logger.warning("record_refused", extra={"run_id": self._run.run_id, "reason": str(error)})
            self._unsent = without(self._unsent, sent)

    async def _finish(self) -> None:
        await self._report()
        await workflow.wait_condition(lambda: is_empty(self._unsent))
        await asyncio.gather(*self._alerting)

    async def _report(self) -> None:
        given, backfill_id = self._given, self._run.backfill_id
        about = {"tenant": given.tenant, "job_id": given.job_id}
        await self._report_to(job_workflow_id(**about))
        if backfill_id is not None:
            await self._report_to(backfill_workflow_id(**about, backfill_id=backfill_id))

    async def _report_to(self, workflow_id: str) -> None:
        try:
            await workflow.get_external_workflow_handle(workflow_id).signal(SIGNAL_RUN_ENDED, self._run)
        except FailureError:
            # The job was deleted and its workflow has closed. The run's rows are written all the same.
            workflow.logger.info("nobody_to_report_to", extra={"run_id": self._run.run_id, "workflow_id": workflow_id})


def _is_cancelled() -> bool:
    return workflow.cancellation_reason() is not None


def _cancellation_reason() -> str:
    given = workflow.cancellation_reason() or "cancelled in Temporal"
    # What a workflow gives as its reason is wrapped: "Cancel requested by workflow with run id ... with reason: ...".
    return given.partition(" with reason: ")[2] if given.startswith(CANCELLED_BY_WORKFLOW) else given
