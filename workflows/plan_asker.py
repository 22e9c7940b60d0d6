"""When the planner is asked, and what becomes of its answers.

Fire times are computed by local activities, because only a worker has rules of time zones and calendars at hand. While the
planner does not answer, the job goes on with the plan that it has.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception

from workflows.attempt import ONE_ATTEMPT
from workflows.change import settle_survey, settle_unknown, survey_request
from workflows.contracts import INVALID_SCHEDULE, LOCAL_ACTIVITY_TIMEOUT, PLAN_FIRES, SURVEY_FIRES
from workflows.job import FirePlan, JobInput, JobState, Tuning
from workflows.policies import is_used_up
from workflows.schedule import FireSurvey
from workflows.wake import needs_plan, plan_request, should_refill, was_stalled, with_plan

PAUSE = timedelta(seconds=10)
"""Pause before the planner is asked again after a failure."""

UNPLANNED = Tuning(search_attributes=False)
"""Until a plan says otherwise, nothing may be asked of the namespace that it might not know."""


class PlanAsker:
    """Asks the planner for one job. ``read`` and ``write`` are for the job's state."""

    def __init__(
        self,
        given: JobInput,
        *,
        read: Callable[[], JobState],
        write: Callable[[JobState], None],
        note_decision: Callable[[], None],
    ) -> None:
        self._read = read
        self._write = write
        self._note_decision = note_decision
        plan, state = given.state.plan, given.state
        self.tuning = plan.tuning if plan and plan.revision == state.revision else state.tuning or UNPLANNED
        """What the worker that answered last has been set to."""

        self.again_at: datetime | None = None
        """Set while the planner does not answer."""

    async def plan(self) -> None:
        """Ask until the answer is complete. A complete one needs a turn before it can be asked for again."""
        while needs_plan(self._read(), now=workflow.now()):
            if self.again_at is not None and workflow.now() < self.again_at:
                return
            await self._ask()
            plan = self._read().plan
            if plan is not None and plan.complete and not was_stalled(self._read(), now=workflow.now()):
                return

    async def plan_anew(self) -> None:
        """Plan at once after a change: whoever asked for it is told the next fire."""
        self.again_at = None
        await self.plan()

    async def refill(self) -> None:
        """Ask for more before the plan is used up, and again when it has grown old."""
        if should_refill(self._read(), now=workflow.now()) and (
            self.again_at is None or self.again_at <= workflow.now()
        ):
            await self._ask()

    async def settle(self, *, until: datetime) -> bool:
        """Enter in the ledger what is nominal up to a moment and not decided; ``False`` when the planner cannot say now."""
        while self._read().high_water < until and not is_used_up(self._read()):
            try:
                survey = await workflow.execute_local_activity(
                    SURVEY_FIRES,
                    survey_request(self._read(), until=until),
                    result_type=FireSurvey,
                    start_to_close_timeout=LOCAL_ACTIVITY_TIMEOUT,
                    retry_policy=ONE_ATTEMPT,
                )
            except FailureError as error:
                if is_cancelled_exception(error):
                    raise asyncio.CancelledError from error
                cause = error.cause or error
                if not (isinstance(cause, ApplicationError) and cause.type == INVALID_SCHEDULE):
                    self.again_at = workflow.now() + PAUSE
                    return False
                self._write(settle_unknown(self._read(), at=until, reason=str(cause)))
            else:
                self._write(settle_survey(self._read(), survey, at=until))
            self._note_decision()
        return True

    async def _ask(self) -> None:
        try:
            plan = await workflow.execute_local_activity(
                PLAN_FIRES,
                plan_request(self._read(), now=workflow.now()),
                result_type=FirePlan,
                start_to_close_timeout=LOCAL_ACTIVITY_TIMEOUT,
                retry_policy=ONE_ATTEMPT,
            )
        except FailureError as error:
            if is_cancelled_exception(error):
                raise asyncio.CancelledError from error
            cause = error.cause if error.cause is not None else error
            self._write(self._read().model_copy(update={"trouble": f"cannot plan: {cause}"[:500]}))
            self.again_at = workflow.now() + PAUSE
            return
        self.again_at = None
        self.tuning = plan.tuning
        planned = with_plan(self._read(), plan)
        if planned.outbox is not self._read().outbox:
            self._note_decision()
        self._write(planned)
