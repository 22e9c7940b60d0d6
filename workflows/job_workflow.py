"""The workflow of a job: sleeps until its next fire, and carries out what each turn decides.

Owns the order of things: what is dispatched before what is recorded, when the run continues as new, and on what it sleeps.
Decides nothing about fires itself; that is ``turn``. Controlled by updates only.
"""

import asyncio
from datetime import datetime
from typing import TypeAlias, TypeVar, assert_never

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from workflows.alarm import Alarm
    from workflows.alert import rules_in_force, watch_job
    from workflows.alert_delivery import start_alert
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
        refuse_by_this_worker,
        resume_job,
        trigger_job,
    )
    from workflows.chores import Chores
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
        LOGIC_VERSION,
        SIGNAL_RUN_ENDED,
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
    )
    from workflows.hold import standstill, with_choice, with_hold, without_hold
    from workflows.job import (
        Answer,
        Hold,
        JobInput,
        JobRecord,
        JobState,
        Lifecycle,
        MirrorBatch,
        PausedFires,
        Triggered,
    )
    from workflows.job_news import JobNews, news_of_job
    from workflows.job_state import (
        date_version,
        is_drained,
        without_old_answers,
        without_unused_definitions,
    )
    from workflows.lifecycle import begin, delete_job, register_again
    from workflows.linger import Linger
    from workflows.listing import show_in_list, show_standing
    from workflows.logic import has_fifth_rules, has_fourth_rules, has_third_rules
    from workflows.outbox import is_empty, rows_of_job, rows_of_run
    from workflows.plan_asker import PlanAsker
    from workflows.record_sender import RecordSender
    from workflows.redrive import (
        answer_redrive,
        knows_redrive,
        may_take_redrive,
        take_redrive,
        without_old_redrives,
    )
    from workflows.run import Run
    from workflows.run_carrier import RunCarrier
    from workflows.settlement import cancel_run
    from workflows.telemetry import is_listening, tell
    from workflows.turn import SAME_MOMENT, Turn, decide_due, take_turn
    from workflows.visibility import job_memo, job_search_attributes
    from workflows.wake import (
        house_times,
        is_quiet,
        long_sleep_end,
        needs_plan,
        next_wake,
        next_wakes,
        quiet_limit,
    )

T = TypeVar("T")

Command: TypeAlias = BackfillCommand | RedriveCommand | Remembered


@workflow.defn(name=JOB_WORKFLOW)
class JobWorkflow:
    """One registered job."""

    @workflow.init
    def __init__(self, given: JobInput) -> None:
        if given.logic_version > LOGIC_VERSION:
            raise RuntimeError(f"This worker knows logic version {LOGIC_VERSION}; the job is at {given.logic_version}.")
        self._state: JobState = given.state.model_copy(update={"logic": given.logic_version})
        self._sleep_until = given.sleep_until
        """When this run was to begin, if it was woken before; it sleeps the long way no less far than that."""

        self._ahead_of = given.ahead_of
        """The fire that this run was woken ahead of; the rest is slept on a timer."""

        self._has_begun = False
        self._task_began_at = 0
        """Length of the history when the present workflow task began."""

        self._news = True
        self._commands: list[Command] = []
        self._linger = Linger()
        self._admitted: dict[str, BackfillAnswer] = {}
        """What backfills were answered in this run, by the keys of their commands."""

        self._unremembered: dict[str, Answer] = {}
        """What other commands were answered in this run that the state does not remember, by ``answer_key``."""

        self._fire_alarm = Alarm(self._notice, name="until something is due")
        self._house_alarm = Alarm(self._notice, name="look after what is silent or unsent")
        self._chores = Chores(notice=self._notice)
        self._sender = RecordSender(
            given, read=lambda: self._state, write=self._set_state, start_chore=self._chores.start
        )
        self._planner = PlanAsker(
            given, read=lambda: self._state, write=self._set_state, note_decision=self._sender.note_decision
        )
        self._runs = RunCarrier(
            read=lambda: self._state,
            write=self._set_state,
            tuning=lambda: self._planner.tuning,
            chores=self._chores,
            notice=self._notice,
        )
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
        if self._ahead_of is not None and self._ahead_of <= workflow.now():
            self._linger.note_fire(self._state, self._ahead_of, now=workflow.now())
            self._ahead_of = None
        self._take_in()
        self._tell_news()
        if self._is_long() and not self._is_busy() and not self._commands:
            await self._continue_as_new(None, ahead_of=self._ahead_of)
        await self._planner.plan()
        if self._commands or next_end(self._state, now=workflow.now()) is not None:
            await self._end_in_time()
            await self._decide_due()
            await self._carry_out_commands()
            await self._planner.plan()
        self._carry_out(take_turn(self._state, now=workflow.now(), detach=self._is_long()))
        self._tell_news()
        await self._keep_house()
        if not self._news and not self._is_over():
            await self._sleep_long_if_idle()
            await self._shorten_if_quiet()
        self._set_alarms()
        if not self._news and not self._is_over():
            show_standing(self._state)
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
        if self._find_answer(command) is not None:
            return
        queued = tuple(each for each in self._commands if isinstance(each, TriggerCommand))
        if not may_take_payload(self._state, command, queued=queued):
            raise ApplicationError("Payloads of earlier triggers of this job wait already.", type=BUSY)
        self._check(command)
        if reason := refuse_by_this_worker(self._state, command, now=workflow.now()):
            raise ApplicationError(reason, type=INVALID_SCHEDULE, non_retryable=True)

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
        self._runs.report(run)

    def _enqueue(self, command: Command) -> None:
        if all((type(each), each.key) != (type(command), command.key) for each in self._commands):
            self._commands.append(command)
            self._linger.note_command(self._state, now=workflow.now())
        self._notice()

    def _check(self, command: Remembered) -> None:
        """Refuse, without a trace in the history, what cannot be carried out; what was before is answered as before."""
        now = workflow.now()
        refusal = None if self._find_answer(command) else refuse_at_sight(self._state, command, now=now)
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
        if self._sleep_until is not None:
            self._ahead_of = None
        self._runs.begin()
        self._has_begun = True

    def _enter_task(self) -> None:
        length = workflow.info().get_current_history_length()
        if length != self._task_began_at:
            self._task_began_at = length
            self._sender.enter_task()
            if has_third_rules(self._state):
                self._runs.enter_task()
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
        rules = rules_in_force(self._state.definition, self._planner.tuning)
        self._state, alerts = watch_job(before, self._state, rules=rules, now=workflow.now())
        for alert in alerts:
            self._chores.start(start_alert(alert))

    def _take_in(self) -> None:
        """Take in what has happened since the last turn, in the order in which it is to count."""
        self._chores.raise_if_broken()
        now = workflow.now()
        if self._runs.have_ended():
            # Fires that came while these runs were active are decided while they still are.
            self._carry_out(take_turn(self._state, now=now - SAME_MOMENT))
        self._runs.take_in(now=now)

    async def _decide_due(self) -> None:
        """Decide, in as many plans as it takes, what was due before a command may change what is to become of it."""
        while True:
            self._carry_out(decide_due(self._state, now=workflow.now()))
            if not needs_plan(self._state, now=workflow.now()) or self._planner.again_at is not None:
                return
            await self._planner.plan()

    async def _end_in_time(self) -> None:
        """End the pause and the holds that were to end by now, as of their times."""
        while (end := next_end(self._state, now=workflow.now())) is not None:
            if must_settle_end(self._state, at=end) and not await self._planner.settle(until=end):
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
        refusal = refuse_command(self._state, command, now=now)
        triggered: Triggered | None = None
        if refusal is None:
            match command:
                case DeleteCommand():
                    await self._settle_before_end(now=now)
                    self._carry_out(delete_job(self._state, now=now, cancel_active=command.cancel_active))
                case RegisterCommand():
                    self._state = register_again(self._state, command.state, now=now)
                    self._planner.again_at = None
                case ChangeCommand():
                    if must_settle(self._state, command) and not await self._planner.settle(until=now):
                        return False
                    await self._take_change(change_job(self._state, command, now=now))
                case PauseCommand():
                    if must_settle_held(self._state) and not await self._planner.settle(until=now):
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

    async def _settle_before_end(self, *, now: datetime) -> None:
        """Ask what has passed of a job that is about to be deleted: in a pause or hold, or while its planner did not answer."""
        if standstill(self._state) is not None:
            await self._planner.settle(until=now)
        elif (
            has_fifth_rules(self._state) and needs_plan(self._state, now=now) and await self._planner.settle(until=now)
        ):
            self._state = self._state.model_copy(update={"plan": None})

    async def _resume(self, command: ResumeCommand, *, now: datetime) -> bool:
        if self._state.lifecycle is not Lifecycle.PAUSED:
            return True
        catch_up = choice_at_resume(self._state, command.catch_up)
        if catch_up is PausedFires.NONE and not await self._planner.settle(until=now):
            return False
        await self._take_change(resume_job(self._state, at=now, catch_up=catch_up, now=now))
        return True

    async def _hold(self, holds: tuple[Hold, ...], *, now: datetime) -> bool:
        if holds == self._state.holds:
            return True
        if must_settle_held(self._state) and not await self._planner.settle(until=now):
            return False
        await self._take_change(hold_job(self._state, holds, at=now, now=now))
        return True

    async def _take_change(self, state: JobState) -> None:
        """Take in a change, and plan at once: whoever asked for it is told the next fire."""
        self._sender.note_decision()
        self._state = state
        await self._planner.plan_anew()

    def _carry_out(self, turn: Turn) -> None:
        if turn.state.outbox is not self._state.outbox:
            self._sender.note_decision()
        self._state = turn.state
        for run_id in (*turn.give_up, *turn.cancel):
            self._runs.call_off(run_id)
        for run in turn.start:
            self._runs.dispatch(run)

    async def _keep_house(self) -> None:
        """Look at silent attempts, refill the plan and send records: whatever must not hold up a dispatch."""
        self._runs.look_at_silent()
        if self._runs.has_dispatched() and not self._may_hold_up_dispatch():
            # The commands of this task leave only when it completes. Records wait for the task of the result.
            return
        await self._planner.refill()
        if self._planner.tuning.search_attributes:
            show_in_list(self._state)
        await self._sender.send(outbox_limit=self._planner.tuning.outbox_limit)

    def _may_hold_up_dispatch(self) -> bool:
        """Say whether house is to be kept in a task that dispatches: no result of it will come, or none soon enough."""
        return has_third_rules(self._state) and (not self._is_busy() or self._sender.is_overdue())

    def _set_alarms(self) -> None:
        now = workflow.now()
        wakes = next_wakes(self._state, now=now)
        if needs_plan(self._state, now=now):
            wakes = (*wakes, self._planner.again_at or now)
        if any(wake <= now for wake in wakes):
            self._notice()
        self._fire_alarm.set([wake for wake in wakes if wake > now])
        house = (*self._runs.look_times(), self._sender.next_try_at(), self._planner.again_at, self._linger.look_at)
        to_come = [at for at in house if at is not None and at > now]
        self._house_alarm.set(house_times(self._state, to_come, wakes=wakes)[:1])

    def _is_over(self) -> bool:
        state = self._state
        if state.lifecycle not in (Lifecycle.COMPLETED, Lifecycle.DELETED) or not is_drained(state):
            return False
        if state.expected:
            return False
        return not (self._is_busy() or self._commands or self._sender.has_unsent())

    def _is_busy(self) -> bool:
        return self._runs.is_busy() or bool(self._chores)

    def _is_long(self) -> bool:
        return (
            workflow.info().get_current_history_length() >= self._planner.tuning.history_limit
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
        if has_fourth_rules(state) and self._planner.again_at is not None:
            # Nobody would remember that the planner is to be asked again.
            return
        if wake == self._ahead_of or wake - workflow.now() < self._planner.tuning.long_sleep_threshold:
            return
        until = long_sleep_end(state, wake, now=workflow.now(), tuning=self._planner.tuning)
        if self._sleep_until is not None:
            # A run that was woken early might be held to its old target by the server, so only a later one is given to it.
            if wake < self._sleep_until:
                return
            until = max(until, self._sleep_until)
        if not self._linger.stay_awake(now=workflow.now()):
            await self._continue_as_new(until, ahead_of=None if until == wake else wake)

    async def _shorten_if_quiet(self) -> None:
        """Continue as new while nothing is due, long before the history asks for it: then no fire has to wait for that."""
        limit = quiet_limit(self._planner.tuning.history_limit, job_id=self._state.job_id)
        if workflow.info().get_current_history_length() < limit or self._is_busy() or self._commands:
            return
        settled = not self._sender.has_unsent() or self._sender.send_again_at is not None
        if settled and is_quiet(self._state, now=workflow.now()) and not needs_plan(self._state, now=workflow.now()):
            await self._continue_as_new(None, ahead_of=self._ahead_of)

    async def _continue_as_new(self, until: datetime | None, *, ahead_of: datetime | None) -> None:
        """Go on as a new run, now or after a long sleep; come back if something happened while the handlers finished."""
        await workflow.wait_condition(lambda: self._news or workflow.all_handlers_finished())
        if self._news or self._is_busy():
            return
        now = workflow.now()
        state = without_unused_definitions(without_old_redrives(without_old_answers(self._state, now=now), now=now))
        searchable = job_search_attributes(self._state) if self._planner.tuning.search_attributes else None
        workflow.continue_as_new(
            JobInput(
                logic_version=LOGIC_VERSION,
                state=state,
                sleep_until=until,
                ahead_of=ahead_of,
                mirrored=not self._sender.has_unsent(),
                send_again_at=self._sender.send_again_at,
            ),
            backoff_start_interval=None if until is None else until - now,
            memo=job_memo(self._state),
            search_attributes=searchable,
        )

    def _delete_as_cancelled(self) -> None:
        """Somebody cancelled the workflow in Temporal: the job ends as deleted, and says so in the mirror."""
        self._carry_out(delete_job(self._state, now=workflow.now(), cancel_active=True))


def _drain(items: list[T]) -> list[T]:
    taken = list(items)
    items.clear()
    return taken
