"""The workflow of a backfill: asks for its fires and their runs, and shows how far it is.

Owns the order of things; what is to be done next is decided in ``backfill``. Its runs are workflows of their own, which the job
starts and which report to both. Steered by updates, so that whoever asks is told how it stands then. It never continues as new
while anything that it has asked for is on the way.
"""

import asyncio
from contextlib import suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from workflows.attempt import ONE_ATTEMPT
    from workflows.backfill import (
        AdmitReport,
        AdmitRequest,
        BackfillState,
        FireList,
        SteerBackfill,
        admit_request,
        cancel_backfill,
        dated,
        end_run,
        fires_request,
        is_open,
        next_step_at,
        pause_backfill,
        refuse_steering,
        resume_backfill,
        settle_backfill,
        shown_record,
        take_fires,
        take_report,
        with_fires,
        with_trouble,
    )
    from workflows.backfill_record import BackfillRecord
    from workflows.contracts import (
        ADMIT_FIRES,
        BACKFILL_WORKFLOW,
        LIST_FIRES,
        LOCAL_ACTIVITY_TIMEOUT,
        LOGIC_VERSION,
        RECORD_EVENTS,
        RECORD_HEARTBEAT_TIMEOUT,
        RECORD_TIMEOUT,
        SCHEDULER_TASK_QUEUE,
        SIGNAL_RUN_ENDED,
        UPDATE_CANCEL_BACKFILL,
        UPDATE_PAUSE_BACKFILL,
        UPDATE_RESUME_BACKFILL,
    )
    from workflows.job import MirrorBatch
    from workflows.run import Run

SHOWN_EVERY = timedelta(seconds=1)
"""Between two records: of a backfill of quick runs not every step is written."""

ADMIT_TIMEOUT = timedelta(seconds=30)
"""A worker that dies with the question keeps the backfill waiting so long. What it has asked for is not lost, nor run twice."""

UNTIL_RECORDED = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30))


@workflow.defn(name=BACKFILL_WORKFLOW)
class BackfillWorkflow:
    """One backfill."""

    @workflow.init
    def __init__(self, given: BackfillState) -> None:
        if given.logic_version > LOGIC_VERSION:
            raise RuntimeError(
                f"This worker knows logic version {LOGIC_VERSION}; the backfill is at {given.logic_version}."
            )
        self._state = given
        self._news = True
        self._asking: asyncio.Task[None] | None = None
        """A question to the job that is on the way."""

        self._shown = shown_record(given) if given.mirrored else None
        """The backfill as the mirror has confirmed it."""

    @workflow.run
    async def run(self, given: BackfillState) -> BackfillRecord:
        """Go on until every fire was run or passed over, or the backfill is cancelled, and the mirror says so."""
        recording = asyncio.create_task(self._keep_recorded())
        while is_open(self._state) or not self._is_settled():
            try:
                await self._take_step()
            except asyncio.CancelledError:
                self._take(cancel_backfill(self._state, reason="cancelled in Temporal"))
        recording.cancel()
        return shown_record(self._state)

    async def _take_step(self) -> None:
        self._news = False
        if self._is_long() and is_open(self._state) and self._asking is None:
            await workflow.wait_condition(self._is_settled)
            workflow.continue_as_new(self._state.model_copy(update={"logic_version": LOGIC_VERSION, "mirrored": True}))
        await self._list_fires()
        self._state = take_fires(self._state, now=workflow.now())
        self._ask()
        is_asking = self._asking is not None
        self._state = settle_backfill(self._state, now=workflow.now(), is_asking=is_asking)
        if is_open(self._state):
            await self._wait_for_news()
        else:
            await workflow.wait_condition(self._is_settled)

    @workflow.update(name=UPDATE_PAUSE_BACKFILL)
    async def pause(self, command: SteerBackfill) -> BackfillRecord:
        """Begin no more runs until resumed. Answers the backfill as it then stands."""
        return self._take(pause_backfill(self._state, reason=command.reason))

    @pause.validator
    def _check_pause(self, command: SteerBackfill) -> None:
        self._check()

    @workflow.update(name=UPDATE_RESUME_BACKFILL)
    async def resume(self, command: SteerBackfill) -> BackfillRecord:
        """Go on."""
        return self._take(resume_backfill(self._state, reason=command.reason))

    @resume.validator
    def _check_resume(self, command: SteerBackfill) -> None:
        self._check()

    @workflow.update(name=UPDATE_CANCEL_BACKFILL)
    async def cancel(self, command: SteerBackfill) -> BackfillRecord:
        """Begin no more runs. Those that were begun go on."""
        return self._take(cancel_backfill(self._state, reason=command.reason))

    @workflow.signal(name=SIGNAL_RUN_ENDED)
    def run_ended(self, run: Run) -> None:
        """Take the report of a run."""
        self._take(end_run(self._state, run))

    def _check(self) -> None:
        refusal = refuse_steering(self._state)
        if refusal is not None:
            raise ApplicationError(refusal, type="Conflict", non_retryable=True)

    def _take(self, state: BackfillState) -> BackfillRecord:
        """Take in what somebody has asked for or told."""
        self._state = dated(state, now=workflow.now())
        self._news = True
        return shown_record(self._state)

    def _is_long(self) -> bool:
        info = workflow.info()
        is_full = info.get_current_history_length() >= self._state.history_limit
        return is_full or info.is_continue_as_new_suggested()

    def _is_settled(self) -> bool:
        """Say whether the mirror knows everything, and whoever has asked was answered."""
        return self._is_shown() and self._asking is None and workflow.all_handlers_finished()

    def _is_shown(self) -> bool:
        return self._shown is not None and _undated(self._shown) == _undated(shown_record(self._state))

    async def _list_fires(self) -> None:
        while (request := fires_request(self._state)) is not None:
            if self._state.again_at is not None and workflow.now() < self._state.again_at:
                return
            try:
                found = await workflow.execute_local_activity(
                    LIST_FIRES,
                    request,
                    result_type=FireList,
                    start_to_close_timeout=LOCAL_ACTIVITY_TIMEOUT,
                    retry_policy=ONE_ATTEMPT,
                )
            except FailureError as error:
                if is_cancelled_exception(error):
                    raise asyncio.CancelledError from error
                reason = f"cannot list its fires: {error.cause or error}"
                self._state = with_trouble(self._state, reason, now=workflow.now())
            else:
                self._state = with_fires(self._state, found)

    def _ask(self) -> None:
        if self._asking is not None:
            return
        request = admit_request(self._state, now=workflow.now())
        if request is not None:
            self._asking = asyncio.create_task(self._ask_job(request))

    async def _ask_job(self, request: AdmitRequest) -> None:
        # `pause`, `resume`, `cancel` and `run_ended` may run at this await; the report is taken in beside what they did.
        try:
            report = await workflow.execute_activity(
                ADMIT_FIRES,
                request,
                result_type=AdmitReport,
                task_queue=SCHEDULER_TASK_QUEUE,
                start_to_close_timeout=ADMIT_TIMEOUT,
                retry_policy=ONE_ATTEMPT,
            )
        except FailureError as error:
            report = AdmitReport(trouble=f"its runs could not be asked for: {error.cause or error}")
        self._asking = None
        self._take(take_report(self._state, request, report, now=workflow.now()))

    async def _wait_for_news(self) -> None:
        at = next_step_at(self._state) if self._asking is None else None
        pause = None if at is None else max(timedelta(0), at - workflow.now())
        with suppress(asyncio.TimeoutError):
            await workflow.wait_condition(lambda: self._news or self._has_broken(), timeout=pause)
        if self._asking is not None and self._has_broken():
            # A bug. Raised where it fails the workflow task, which is retried until the code is mended.
            self._asking.result()

    def _has_broken(self) -> bool:
        return self._asking is not None and self._asking.done()

    async def _keep_recorded(self) -> None:
        """Write how the backfill stands, however long that takes."""
        while True:
            await workflow.wait_condition(lambda: not self._is_shown())
            self._state = dated(self._state, now=workflow.now())
            record = shown_record(self._state)
            try:
                await workflow.execute_activity(
                    RECORD_EVENTS,
                    MirrorBatch(backfills=(record,)),
                    task_queue=SCHEDULER_TASK_QUEUE,
                    start_to_close_timeout=RECORD_TIMEOUT,
                    heartbeat_timeout=RECORD_HEARTBEAT_TIMEOUT,
                    retry_policy=UNTIL_RECORDED,
                )
            except FailureError as error:
                workflow.logger.warning(
                    "record_refused", extra={"backfill_id": record.backfill_id, "reason": str(error)}
                )
            self._shown = record
            with suppress(asyncio.TimeoutError):
                await workflow.wait_condition(lambda: not is_open(self._state), timeout=SHOWN_EVERY)


def _undated(record: BackfillRecord) -> BackfillRecord:
    return record.model_copy(update={"version": 0})
