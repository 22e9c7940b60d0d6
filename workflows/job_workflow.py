"""The workflow of a job: sleeps until its next fire, and carries out what each turn decides.

Owns the order of things: what is dispatched before what is recorded, when the run continues as new, and on what it sleeps.
Decides nothing about fires itself; that is ``turn``. Controlled by updates only.
"""

import asyncio
from collections.abc import Coroutine
from datetime import datetime, timedelta
from functools import partial
from typing import TypeAlias, TypeVar, assert_never

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, FailureError, WorkflowAlreadyStartedError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from workflows.alarm import Alarm
    from workflows.alert import Alert, late_look, rules_in_force, watch_job, watch_silent_run
    from workflows.alert_delivery import start_alert
    from workflows.attempt import ONE_ATTEMPT, AttemptOrder, activity_id, perform_attempt
    from workflows.backfill_admission import BackfillAnswer, BackfillCommand, admit_fires
    from workflows.change import (
        FIRING,
        change_job,
        choice_at_resume,
        end_by_itself,
        hold_job,
        may_take_payload,
        must_settle,
        must_settle_end,
        must_settle_held,
        next_end,
        pause_job,
        resume_job,
        settle_survey,
        settle_unknown,
        survey_request,
        trigger_job,
    )
    from workflows.command import (
        CancelCommand,
        ChangeCommand,
        DeleteCommand,
        HoldCommand,
        PauseCommand,
        RedriveAnswer,
        RedriveCommand,
        RegisterCommand,
        ReleaseCommand,
        ResumeCommand,
        RunInput,
        ShowCommand,
        TriggerAnswer,
        TriggerCommand,
    )
    from workflows.command_answer import (
        Remembered,
        answer_command,
        answer_key,
        answered_record,
        find_answer,
        is_remembered,
        refuse_at_sight,
        refuse_command,
    )
    from workflows.contracts import (
        BUSY,
        INVALID_SCHEDULE,
        JOB_WORKFLOW,
        LOCAL_ACTIVITY_TIMEOUT,
        LOGIC_VERSION,
        OBSERVE_ATTEMPT,
        OBSERVE_TIMEOUT,
        PLAN_FIRES,
        RUN_WORKFLOW,
        SA_LAST_OUTCOME,
        SA_NEXT_FIRE,
        SA_STATE,
        SCHEDULER_TASK_QUEUE,
        SIGNAL_RUN_ENDED,
        SURVEY_FIRES,
        UPDATE_BACKFILL,
        UPDATE_CANCEL_RUN,
        UPDATE_CHANGE,
        UPDATE_DELETE,
        UPDATE_HOLD,
        UPDATE_PAUSE,
        UPDATE_REDRIVE,
        UPDATE_REGISTER,
        UPDATE_RELEASE,
        UPDATE_RESUME,
        UPDATE_SHOW,
        UPDATE_TRIGGER,
        run_workflow_id,
    )
    from workflows.hold import standstill, with_choice, with_hold, without_hold
    from workflows.job import (
        Answer,
        FirePlan,
        Hold,
        JobInput,
        JobRecord,
        JobState,
        Lifecycle,
        MirrorBatch,
        PausedFires,
        Triggered,
        Tuning,
    )
    from workflows.job_news import JobNews, news_of_job
    from workflows.job_state import (
        date_version,
        definition_of,
        find_run,
        is_drained,
        with_active,
        without_old_answers,
        without_unused_definitions,
    )
    from workflows.lifecycle import begin, delete_job, register_again
    from workflows.observation import Observation, ObserveRequest, needs_no_more_looks, next_look, seen_run
    from workflows.outbox import (
        is_empty,
        rows_of_job,
        rows_of_run,
    )
    from workflows.policies import is_used_up
    from workflows.record_sender import RecordSender
    from workflows.redrive import (
        answer_redrive,
        knows_redrive,
        may_take_redrive,
        take_redrive,
        without_old_redrives,
    )
    from workflows.resilience import AttemptEnd
    from workflows.run import AttemptStatus, Run, RunKind
    from workflows.schedule import FireSurvey
    from workflows.settlement import (
        cancel_run,
        forget_twin,
        settle_attempt,
        settle_detached,
        settle_not_started,
        show_run,
    )
    from workflows.telemetry import is_listening, tell
    from workflows.turn import GIVEN_UP, SAME_MOMENT, Turn, decide_due, take_turn
    from workflows.visibility import job_memo, job_search_attributes, standing_memo
    from workflows.wake import (
        away_from,
        is_held_up,
        is_quiet,
        needs_plan,
        next_wake,
        next_wakes,
        plan_request,
        quiet_limit,
        should_refill,
        was_stalled,
        with_plan,
    )

T = TypeVar("T")

Command: TypeAlias = BackfillCommand | RedriveCommand | Remembered

PAUSE = timedelta(seconds=10)
"""Pause before the planner is asked again after a failure."""

UNPLANNED = Tuning(search_attributes=False)
"""Until a plan says otherwise, nothing may be asked of the namespace that it might not know."""


@workflow.defn(name=JOB_WORKFLOW)
class JobWorkflow:
    """One registered job."""

    @workflow.init
    def __init__(self, given: JobInput) -> None:
        if given.logic_version > LOGIC_VERSION:
            raise RuntimeError(f"This worker knows logic version {LOGIC_VERSION}; the job is at {given.logic_version}.")
        self._state: JobState = given.state
        plan = given.state.plan
        self._tuning = (
            plan.tuning if plan and plan.revision == given.state.revision else given.state.tuning or UNPLANNED
        )
        self._sleep_until = given.sleep_until
        """When this run was to begin, if it was woken before; it sleeps the long way no less far than that."""

        self._has_begun = False
        self._news = True
        self._commands: list[Command] = []
        self._ended: list[AttemptEnd] = []
        self._reports: list[Run] = []
        self._refused: list[tuple[str, str]] = []
        self._twins: list[str] = []
        """Backfilled runs that were handed over before, by id."""

        self._admitted: dict[str, BackfillAnswer] = {}
        """What backfills were answered in this run, by the keys of their commands."""

        self._unremembered: dict[str, Answer] = {}
        """What other commands were answered in this run that the state does not remember, by ``answer_key``."""

        self._observations: list[Observation] = []
        self._broken: list[BaseException] = []

        self._attempts: dict[str, asyncio.Task[None]] = {}
        """Inline attempts that are out, by run id. While there are any, the run cannot continue as new."""

        self._chores: set[asyncio.Task[object]] = set()
        """Ordinary activities and the like that are out; the same holds for them."""

        self._handed_over: dict[str, asyncio.Task[bool]] = {}
        """Whether Temporal started the workflow of a detached run, by run id; of those that this run handed over."""

        self._looks: dict[str, datetime] = {}
        """When to look at runs that have not answered, by run id."""

        self._fire_alarm = Alarm(self._notice, name="until something is due")
        self._house_alarm = Alarm(self._notice, name="look after what is silent or unsent")
        self._plan_again_at: datetime | None = None
        self._sender = RecordSender(
            given, read=lambda: self._state, write=self._set_state, start_chore=self._start_chore
        )
        self._dispatched = False
        """Something was dispatched in this workflow task."""

        self._told: JobState = given.state
        """The job as telemetry knows it."""

    @workflow.run
    async def run(self, given: JobInput) -> None:
        """Work until the job has no fire left, or is deleted, and everything about it is in the mirror."""
        self._begin(given)
        while not self._is_over():
            try:
                await self._take_turn()
            except asyncio.CancelledError:
                self._delete_as_cancelled()
        await workflow.wait_condition(workflow.all_handlers_finished)

    async def _take_turn(self) -> None:
        self._news = False
        self._enter_task()
        self._take_in()
        self._tell_news()
        if self._is_long() and not self._is_busy() and not self._commands:
            await self._continue_as_new(None)
        await self._plan()
        if self._commands or next_end(self._state, now=workflow.now()) is not None:
            await self._end_in_time()
            await self._decide_due()
            await self._carry_out_commands()
            await self._plan()
        self._carry_out(take_turn(self._state, now=workflow.now(), detach=self._is_long()))
        self._tell_news()
        await self._keep_house()
        if not self._news and not self._is_over():
            await self._sleep_long_if_idle()
            await self._shorten_if_quiet()
        self._set_alarms()
        if not self._news and not self._is_over():
            self._show_standing()
            await workflow.wait_condition(lambda: self._news)

    @workflow.update(name=UPDATE_DELETE)
    async def delete(self, command: DeleteCommand) -> JobRecord:
        """Fire no more. Answers the job as it then stands."""
        return await self._obey(command)

    @workflow.update(name=UPDATE_REGISTER)
    async def register(self, command: RegisterCommand) -> JobRecord:
        """Begin a new registration, if the old one was deleted.

        Raises:
            ApplicationError: of type ``Conflict``, when the job is not deleted.
        """
        return await self._obey(command)

    @workflow.update(name=UPDATE_CHANGE)
    async def change(self, command: ChangeCommand) -> JobRecord:
        """Take another definition. Answers the job as it then stands, its next fire included."""
        return await self._obey(command)

    @change.validator
    def _check_change(self, command: ChangeCommand) -> None:
        self._check(command)

    @workflow.update(name=UPDATE_PAUSE)
    async def pause(self, command: PauseCommand) -> JobRecord:
        """Fire no more until resumed."""
        return await self._obey(command)

    @pause.validator
    def _check_pause(self, command: PauseCommand) -> None:
        self._check(command)

    @workflow.update(name=UPDATE_RESUME)
    async def resume(self, command: ResumeCommand) -> JobRecord:
        """Fire again."""
        return await self._obey(command)

    @resume.validator
    def _check_resume(self, command: ResumeCommand) -> None:
        self._check(command)

    @workflow.update(name=UPDATE_HOLD)
    async def hold(self, command: HoldCommand) -> JobRecord:
        """Fire no more until the hold is over."""
        return await self._obey(command)

    @hold.validator
    def _check_hold(self, command: HoldCommand) -> None:
        self._check(command)

    @workflow.update(name=UPDATE_RELEASE)
    async def release(self, command: ReleaseCommand) -> JobRecord:
        """Fire again, unless something else keeps the job from it."""
        return await self._obey(command)

    @workflow.update(name=UPDATE_TRIGGER)
    async def trigger(self, command: TriggerCommand) -> TriggerAnswer:
        """Run now. Answers what became of that, and the run."""
        triggered = (await self._answer(command)).triggered
        assert triggered is not None
        return TriggerAnswer(triggered=triggered, rows=rows_of_run(self._state, triggered.run_id))

    @trigger.validator
    def _check_trigger(self, command: TriggerCommand) -> None:
        queued = tuple(each for each in self._commands if isinstance(each, TriggerCommand))
        if self._find_answer(command) is None and not may_take_payload(self._state, command, queued=queued):
            raise ApplicationError("Payloads of earlier triggers of this job wait already.", type=BUSY)
        self._check(command)

    @workflow.update(name=UPDATE_CANCEL_RUN)
    async def cancel_run(self, command: CancelCommand) -> MirrorBatch:
        """Let a run end, wherever it stands."""
        await self._answer(command)
        return rows_of_run(self._state, command.run_id)

    @workflow.update(name=UPDATE_REDRIVE)
    async def redrive(self, command: RedriveCommand) -> RedriveAnswer:
        """Run a dead run again, in the catch-up lane; whatever the job's lifecycle. Answers the run that does it."""
        if not knows_redrive(self._state, command.run_id):
            self._enqueue(command)
            await workflow.wait_condition(lambda: knows_redrive(self._state, command.run_id))
        return answer_redrive(self._state, command)

    @redrive.validator
    def _refuse_if_full(self, command: RedriveCommand) -> None:
        queued = sum(isinstance(each, RedriveCommand) for each in self._commands)
        if not may_take_redrive(self._state, command, queued=queued):
            raise ApplicationError("Many redrives of this job wait already.", type=BUSY)

    @workflow.update(name=UPDATE_SHOW)
    async def show(self, command: ShowCommand) -> MirrorBatch:
        """Tell how the job stands, in records that are newer than what the mirror has."""
        await workflow.wait_condition(lambda: self._has_begun)
        version = max(self._state.version, command.above) + 1
        self._state = self._state.model_copy(update={"version": version})
        return rows_of_job(self._state)

    @workflow.update(name=UPDATE_BACKFILL)
    async def backfill(self, command: BackfillCommand) -> BackfillAnswer:
        """Run fires of a backfill. Answers which are run, and which need not be."""
        if command.key not in self._admitted:
            self._enqueue(command)
            await workflow.wait_condition(lambda: command.key in self._admitted)
        return self._admitted[command.key]

    @workflow.signal(name=SIGNAL_RUN_ENDED)
    def run_ended(self, run: Run) -> None:
        """Take the report of a detached run."""
        self._reports.append(run)
        self._notice()

    def _enqueue(self, command: Command) -> None:
        if all((type(each), each.key) != (type(command), command.key) for each in self._commands):
            self._commands.append(command)
        self._notice()

    def _check(self, command: Remembered) -> None:
        """Refuse, without a trace in the history, what cannot be carried out; what was before is answered as before."""
        refusal = None if self._find_answer(command) else refuse_at_sight(self._state, command)
        if refusal is not None:
            raise ApplicationError(refusal.reason, type=refusal.type, non_retryable=True)

    async def _obey(self, command: Remembered) -> JobRecord:
        record = (await self._answer(command)).record
        assert record is not None
        return answered_record(self._state, record)

    async def _answer(self, command: Remembered) -> Answer:
        if self._find_answer(command) is None:
            self._enqueue(command)
            await workflow.wait_condition(lambda: self._find_answer(command) is not None)
        answer = self._find_answer(command)
        assert answer is not None
        if answer.refusal:
            raise ApplicationError(answer.refusal, type=answer.refusal_type, non_retryable=True)
        return answer

    def _find_answer(self, command: Remembered) -> Answer | None:
        return self._unremembered.get(answer_key(command)) or find_answer(self._state, command)

    def _notice(self) -> None:
        self._news = True

    def _set_state(self, state: JobState) -> None:
        self._state = state

    def _begin(self, given: JobInput) -> None:
        now = workflow.now()
        if workflow.info().continued_run_id is None and not given.resumed:
            # The time of the start and not of this task: no worker may have been there for hours, and what fell due
            # meanwhile is missed, not lost.
            self._state = begin(self._state, now=workflow.info().workflow_start_time)
            self._tell_registration()
        if self._sleep_until is not None and self._sleep_until <= now:
            self._sleep_until = None
        for run in self._state.active:
            if run.detached:
                self._looks[run.run_id] = next_look(run, now=now)
        self._has_begun = True

    def _enter_task(self) -> None:
        self._sender.enter_task()
        self._state = date_version(self._state, now=workflow.now())

    def _tell_registration(self) -> None:
        state = self._state
        tell(JobNews(tenant=state.tenant, job_id=state.job_id, version=state.version, registered=True))

    def _tell_news(self) -> None:
        """Let telemetry know what has happened, before the mirror confirms it and it leaves the outbox."""
        self._raise_alerts(self._told)
        before, self._told = self._told, self._state
        if before is not self._state and is_listening():
            tell(news_of_job(before, self._state))

    def _raise_alerts(self, before: JobState) -> None:
        rules = rules_in_force(self._state.definition, self._tuning)
        if rules is not None:
            self._state, alerts = watch_job(before, self._state, rules=rules, now=workflow.now())
            self._send_alerts(alerts)

    def _send_alerts(self, alerts: tuple[Alert, ...]) -> None:
        for alert in alerts:
            self._start_chore(start_alert(alert))

    def _take_in(self) -> None:
        """Take in what has happened since the last turn, in the order in which it is to count."""
        if self._broken:
            raise self._broken[0]
        now = workflow.now()
        if self._ended or self._reports:
            # Fires that came while these runs were active are decided while they still are.
            self._carry_out(take_turn(self._state, now=now - SAME_MOMENT))
        for end in _drain(self._ended):
            self._attempts.pop(end.run_id, None)
            self._looks.pop(end.run_id, None)
            self._state = settle_attempt(self._state, end, now=now, draw=workflow.random().random())
        for report in _drain(self._reports):
            self._looks.pop(report.run_id, None)
            self._state = settle_detached(self._state, report)
        for run_id, reason in _drain(self._refused):
            self._looks.pop(run_id, None)
            self._state = settle_not_started(self._state, run_id, now=now, reason=reason)
        for run_id in _drain(self._twins):
            self._looks.pop(run_id, None)
            self._state = forget_twin(self._state, run_id)
        for seen in _drain(self._observations):
            self._take_in_observation(seen)

    def _take_in_observation(self, seen: Observation) -> None:
        run = find_run(self._state, seen.run_id)
        if run is None or run.next_attempt_at is not None:
            self._looks.pop(seen.run_id, None)
            return
        if needs_no_more_looks(run, seen):
            self._looks.pop(seen.run_id, None)
        task_queue = definition_of(self._state, run).target.task_queue
        shown = seen_run(run, seen, task_queue=task_queue, now=workflow.now())
        if shown != run:
            self._state = show_run(self._state, shown, now=workflow.now())
        if (rules := rules_in_force(self._state.definition, self._tuning)) is not None:
            self._state, alerts = watch_silent_run(self._state, seen.run_id, rules=rules, now=workflow.now())
            self._send_alerts(alerts)

    async def _decide_due(self) -> None:
        """Decide, in as many plans as it takes, what was due before a command may change what is to become of it."""
        while True:
            self._carry_out(decide_due(self._state, now=workflow.now()))
            if not needs_plan(self._state, now=workflow.now()) or self._plan_again_at is not None:
                return
            await self._plan()

    async def _end_in_time(self) -> None:
        """End the pause and the holds that were to end by now, as of their times."""
        while (end := next_end(self._state, now=workflow.now())) is not None:
            if must_settle_end(self._state, at=end) and not await self._settle(until=end):
                return
            self._sender.note_decision()
            self._state = end_by_itself(self._state, at=end, now=workflow.now())

    async def _carry_out_commands(self) -> None:
        """Carry out what was asked for. What needs a planner that does not answer is kept, and tried again later."""
        for command in _drain(self._commands):
            if isinstance(command, RedriveCommand):
                # Remembered by its run's name.
                self._sender.note_decision()
                self._state = take_redrive(self._state, command, now=workflow.now())
            elif isinstance(command, BackfillCommand):
                turn, self._admitted[command.key] = admit_fires(self._state, command, now=workflow.now())
                self._sender.note_decision()
                self._carry_out(turn)
            elif not await self._carry_out_command(command):
                self._commands.append(command)

    async def _carry_out_command(self, command: Remembered) -> bool:
        now = workflow.now()
        refusal = refuse_command(self._state, command)
        triggered: Triggered | None = None
        if refusal is None:
            match command:
                case DeleteCommand():
                    if standstill(self._state) is not None:
                        await self._settle(until=now)
                    self._carry_out(delete_job(self._state, now=now, cancel_active=command.cancel_active))
                case RegisterCommand():
                    self._state = register_again(self._state, command.state, now=now)
                    self._plan_again_at = None
                case ChangeCommand():
                    if must_settle(self._state, command) and not await self._settle(until=now):
                        return False
                    await self._take_change(change_job(self._state, command, now=now))
                case PauseCommand():
                    if must_settle_held(self._state) and not await self._settle(until=now):
                        return False
                    await self._take_change(pause_job(self._state, command.pause, now=now))
                case ResumeCommand():
                    if not await self._resume(command, now=now):
                        return False
                case HoldCommand():
                    is_over = command.hold.until is not None and command.hold.until <= now
                    holds = self._state.holds if is_over else with_hold(self._state.holds, command.hold)
                    if not await self._hold(holds, now=now):
                        return False
                case ReleaseCommand():
                    self._state = with_choice(self._state, command.hold_id, command.catch_up)
                    if not await self._hold(without_hold(self._state.holds, command.hold_id), now=now):
                        return False
                case TriggerCommand():
                    turn, triggered = trigger_job(self._state, command, now=now, detach=self._is_long())
                    self._carry_out(turn)
                case CancelCommand():
                    state, cancel = cancel_run(
                        self._state, command.run_id, now=now, reason=command.reason or "cancelled on request"
                    )
                    self._carry_out(Turn(state=state, cancel=cancel))
                case _:
                    assert_never(command)
        self._state, answer = answer_command(self._state, command, now=now, refusal=refusal, triggered=triggered)
        if not is_remembered(command):
            self._unremembered[answer_key(command)] = answer
        return True

    async def _resume(self, command: ResumeCommand, *, now: datetime) -> bool:
        if self._state.lifecycle is not Lifecycle.PAUSED:
            return True
        catch_up = choice_at_resume(self._state, command.catch_up)
        if catch_up is PausedFires.NONE and not await self._settle(until=now):
            return False
        await self._take_change(resume_job(self._state, at=now, catch_up=catch_up, now=now))
        return True

    async def _hold(self, holds: tuple[Hold, ...], *, now: datetime) -> bool:
        if holds == self._state.holds:
            return True
        if must_settle_held(self._state) and not await self._settle(until=now):
            return False
        await self._take_change(hold_job(self._state, holds, at=now, now=now))
        return True

    async def _take_change(self, state: JobState) -> None:
        """Take in a change, and plan at once: whoever asked for it is told the next fire."""
        self._sender.note_decision()
        self._state = state
        self._plan_again_at = None
        await self._plan()

    async def _settle(self, *, until: datetime) -> bool:
        """Enter in the ledger what is nominal up to a moment and not decided; ``False`` when the planner cannot say now."""
        while self._state.high_water < until and not is_used_up(self._state):
            try:
                survey = await workflow.execute_local_activity(
                    SURVEY_FIRES,
                    survey_request(self._state, until=until),
                    result_type=FireSurvey,
                    start_to_close_timeout=LOCAL_ACTIVITY_TIMEOUT,
                    retry_policy=ONE_ATTEMPT,
                )
            except FailureError as error:
                if is_cancelled_exception(error):
                    raise asyncio.CancelledError from error
                cause = error.cause or error
                if not (isinstance(cause, ApplicationError) and cause.type == INVALID_SCHEDULE):
                    self._plan_again_at = workflow.now() + PAUSE
                    return False
                self._state = settle_unknown(self._state, at=until, reason=str(cause))
            else:
                self._state = settle_survey(self._state, survey, at=until)
            self._sender.note_decision()
        return True

    async def _plan(self) -> None:
        """Ask until the answer is complete. A complete one needs a turn before it can be asked for again."""
        while needs_plan(self._state, now=workflow.now()):
            if self._plan_again_at is not None and workflow.now() < self._plan_again_at:
                return
            await self._ask_planner()
            plan = self._state.plan
            if plan is not None and plan.complete and not was_stalled(self._state, now=workflow.now()):
                return

    async def _ask_planner(self) -> None:
        try:
            plan = await workflow.execute_local_activity(
                PLAN_FIRES,
                plan_request(self._state, now=workflow.now()),
                result_type=FirePlan,
                start_to_close_timeout=LOCAL_ACTIVITY_TIMEOUT,
                retry_policy=ONE_ATTEMPT,
            )
        except FailureError as error:
            if is_cancelled_exception(error):
                raise asyncio.CancelledError from error
            cause = error.cause if error.cause is not None else error
            self._state = self._state.model_copy(update={"trouble": f"cannot plan: {cause}"[:500]})
            self._plan_again_at = workflow.now() + PAUSE
            return
        self._plan_again_at = None
        self._tuning = plan.tuning
        planned = with_plan(self._state, plan)
        if planned.outbox is not self._state.outbox:
            self._sender.note_decision()
        self._state = planned

    def _carry_out(self, turn: Turn) -> None:
        if turn.state.outbox is not self._state.outbox:
            self._sender.note_decision()
        self._state = turn.state
        for run_id in (*turn.give_up, *turn.cancel):
            self._end_attempt(run_id)
        for run in turn.start:
            self._dispatch(run)

    def _dispatch(self, run: Run) -> None:
        self._dispatched = True
        now = workflow.now()
        run = run.model_copy(update={"workflow_run_id": "" if run.detached else workflow.info().run_id})
        self._state = with_active(self._state, run)
        self._looks[run.run_id] = now + self._tuning.visible_after
        if run.detached:
            self._handed_over[run.run_id] = self._start_chore(self._start_run_workflow(run))
        else:
            self._attempts[run.run_id] = self._start(self._attempt(run))
            self._attempts[run.run_id].add_done_callback(partial(self._end_untried, run.run_id))

    async def _attempt(self, run: Run) -> None:
        state = self._state
        order = AttemptOrder(
            tenant=state.tenant,
            job_id=state.job_id,
            definition=definition_of(state, run),
            run=run,
            paces_catch_up=self._tuning.paces_catch_up,
            fairness_weight=self._tuning.fairness_weight,
        )
        self._ended.append(await perform_attempt(order))
        self._notice()

    def _end_untried(self, run_id: str, attempt: asyncio.Task[None]) -> None:
        # Cancelled in the same moment in which it was decided: it has dispatched nothing, and could tell nothing.
        if attempt.cancelled():
            self._ended.append(AttemptEnd(run_id=run_id, status=AttemptStatus.CANCELLED))

    async def _start_run_workflow(self, run: Run) -> bool:
        state = self._state
        definition = definition_of(state, run)
        try:
            handle = await workflow.start_child_workflow(
                RUN_WORKFLOW,
                RunInput(
                    tenant=state.tenant,
                    job_id=state.job_id,
                    definition=definition,
                    run=run,
                    alerts=rules_in_force(definition, self._tuning),
                    version=state.version,
                    visible_after=self._tuning.visible_after,
                    history_limit=self._tuning.history_limit,
                    paces_catch_up=self._tuning.paces_catch_up,
                    fairness_weight=self._tuning.fairness_weight,
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

    def _start(self, work: Coroutine[None, None, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        task.add_done_callback(self._end_task)
        return task

    def _start_chore(self, work: Coroutine[None, None, T]) -> asyncio.Task[T]:
        task = self._start(work)
        self._chores.add(task)
        return task

    def _end_task(self, task: asyncio.Task[T]) -> None:
        self._chores.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug. Raised where it fails the workflow task, which is retried until the code is mended.
            self._broken.append(error)
        self._notice()

    def _end_attempt(self, run_id: str) -> None:
        task = self._attempts.get(run_id)
        if task is not None:
            task.cancel()
        else:
            self._start_chore(self._cancel_run_workflow(run_id))

    async def _cancel_run_workflow(self, run_id: str) -> None:
        handed_over = self._handed_over.get(run_id)
        if handed_over is not None and not await handed_over:
            # Whatever has that id is not ours.
            return
        handle = workflow.get_external_workflow_handle(run_workflow_id(tenant=self._state.tenant, run_id=run_id))
        run = find_run(self._state, run_id)
        try:
            await handle.cancel(reason=GIVEN_UP if run is None else run.reason or "")
        except FailureError:
            # It has ended by itself; the look that follows will say so.
            self._looks[run_id] = workflow.now()

    async def _keep_house(self) -> None:
        """Look at silent attempts, refill the plan and send records: whatever must not hold up a dispatch."""
        self._look_at_silent_runs()
        if self._dispatched:
            # The commands of this task leave only when it completes. Records wait for the task of the result.
            self._dispatched = False
            return
        if should_refill(self._state) and (self._plan_again_at is None or self._plan_again_at <= workflow.now()):
            await self._ask_planner()
        self._show_in_list()
        await self._sender.send(outbox_limit=self._tuning.outbox_limit)

    def _show_in_list(self) -> None:
        """Bring the Web UI's list up to date where it misleads: by how the last run ended, above all.

        What is set at continue-as-new belongs to the next run; a run that closes must say how its own fire went.
        """
        if not self._tuning.search_attributes:
            return
        wanted, shown = job_search_attributes(self._state), workflow.info().typed_search_attributes
        fire, now = shown.get(SA_NEXT_FIRE), workflow.now()
        lacks_fire = wanted.get(SA_NEXT_FIRE) is not None and fire is None
        shows_old_fire = fire is not None and fire <= now and is_held_up(self._state, now=now)
        if (
            lacks_fire
            or shows_old_fire
            or any(shown.get(key) != wanted.get(key) for key in (SA_LAST_OUTCOME, SA_STATE))
        ):
            changes = [pair.key.value_set(pair.value) for pair in wanted]
            gone = [SA_NEXT_FIRE.value_unset()] if wanted.get(SA_NEXT_FIRE) is None else []
            workflow.upsert_search_attributes([*changes, *gone])

    def _show_standing(self) -> None:
        """Bring the memo up to date by which the mirror is compared with the job.

        A run that an earlier release has started shows none of it: its history knows no such command.
        """
        wanted, shown = standing_memo(self._state), workflow.memo()
        if wanted.keys() <= shown.keys() and any(shown[name] != value for name, value in wanted.items()):
            workflow.upsert_memo(wanted)

    def _look_at_silent_runs(self) -> None:
        now = workflow.now()
        for run_id, at in list(self._looks.items()):
            run = find_run(self._state, run_id)
            if run is None or run.next_attempt_at is not None:
                del self._looks[run_id]
            elif at <= now and self._can_be_seen(run):
                self._looks[run_id] = self._next_look(run)
                self._start_chore(self._observe(run))

    def _can_be_seen(self, run: Run) -> bool:
        """Say whether a look would find the workflow of a backfilled run; many of them may be on their way at once."""
        # Of other runs, histories of 0.1.0 hold looks that were made sooner.
        handed_over = self._handed_over.get(run.run_id)
        return run.kind is not RunKind.BACKFILL or handed_over is None or handed_over.done()

    def _next_look(self, run: Run) -> datetime:
        """Look no later than the run counts as late, where somebody is to be told of that."""
        now = workflow.now()
        usual, late_at = next_look(run, now=now), late_look(self._state, run.run_id)
        return usual if late_at is None or late_at <= now else min(usual, late_at)

    async def _observe(self, run: Run) -> None:
        request = ObserveRequest(
            workflow_id=run.workflow_id,
            activity_id="" if run.detached else activity_id(run),
            task_queue=definition_of(self._state, run).target.task_queue,
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

    def _set_alarms(self) -> None:
        now = workflow.now()
        wakes = next_wakes(self._state, now=now)
        if needs_plan(self._state, now=now):
            wakes = (*wakes, self._plan_again_at or now)
        if any(wake <= now for wake in wakes):
            self._notice()
        self._fire_alarm.set([wake for wake in wakes if wake > now])
        house = (*self._looks.values(), self._sender.next_try_at(), self._plan_again_at)
        to_come = (at for at in house if at is not None and at > now)
        self._house_alarm.set(sorted(away_from(wakes, to_come))[:1])

    def _is_over(self) -> bool:
        state = self._state
        if state.lifecycle not in (Lifecycle.COMPLETED, Lifecycle.DELETED) or not is_drained(state):
            return False
        if state.expected:
            return False
        return not (self._is_busy() or self._commands or self._sender.has_unsent())

    def _is_busy(self) -> bool:
        return bool(self._attempts or self._chores or self._ended or self._reports or self._refused or self._twins)

    def _is_long(self) -> bool:
        return (
            workflow.info().get_current_history_length() >= self._tuning.history_limit
            or workflow.info().is_continue_as_new_suggested()
        )

    async def _sleep_long_if_idle(self) -> None:
        """Continue as new with a backoff, which Temporal holds for us without a history, where the gap is long enough."""
        state = self._state
        wake = next_wake(state, now=workflow.now())
        if wake is None or state.lifecycle not in FIRING or needs_plan(state, now=workflow.now()):
            return
        if self._commands or self._is_busy() or not is_drained(state):
            return
        if not is_empty(state.outbox) or self._sender.send_again_at is not None:
            return
        # A run that was woken early might be held to its old target by the server, so only a later one is given to it.
        if self._sleep_until is not None and wake < self._sleep_until:
            return
        if wake - workflow.now() >= self._tuning.long_sleep_threshold:
            await self._continue_as_new(wake)

    async def _shorten_if_quiet(self) -> None:
        """Continue as new while nothing is due, long before the history asks for it: then no fire has to wait for that."""
        limit = quiet_limit(self._tuning.history_limit, job_id=self._state.job_id)
        if workflow.info().get_current_history_length() < limit or self._is_busy() or self._commands:
            return
        settled = not self._sender.has_unsent() or self._sender.send_again_at is not None
        if settled and is_quiet(self._state, now=workflow.now()) and not needs_plan(self._state, now=workflow.now()):
            await self._continue_as_new(None)

    async def _continue_as_new(self, wake: datetime | None) -> None:
        """Go on as a new run, now or at ``wake``; come back if something happened while the handlers finished."""
        await workflow.wait_condition(lambda: self._news or workflow.all_handlers_finished())
        if self._news or self._is_busy():
            return
        now = workflow.now()
        state = without_unused_definitions(without_old_redrives(without_old_answers(self._state, now=now), now=now))
        searchable = job_search_attributes(self._state) if self._tuning.search_attributes else None
        workflow.continue_as_new(
            JobInput(
                logic_version=LOGIC_VERSION,
                state=state,
                sleep_until=wake,
                mirrored=not self._sender.has_unsent(),
                send_again_at=self._sender.send_again_at,
            ),
            backoff_start_interval=None if wake is None else wake - now,
            memo=job_memo(self._state),
            search_attributes=searchable,
        )

    def _delete_as_cancelled(self) -> None:
        """Somebody cancelled the workflow in Temporal: the job ends as deleted, and says so in the mirror."""
        self._carry_out(delete_job(self._state, now=workflow.now(), cancel_active=True))


def _id_reuse(run: Run) -> WorkflowIDReusePolicy:
    """Let no backfill run a fire that another one has run already, of which the mirror does not know yet."""
    is_backfilled = run.kind is RunKind.BACKFILL
    return WorkflowIDReusePolicy.REJECT_DUPLICATE if is_backfilled else WorkflowIDReusePolicy.ALLOW_DUPLICATE


def _drain(items: list[T]) -> list[T]:
    taken = list(items)
    items.clear()
    return taken
