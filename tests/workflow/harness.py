"""Jobs on a real server and real workers, with a mirror in memory: what the workflows do, without SQL.

Workers are built as production builds them. Only the mirror is played, and the planner's bounds may differ from job to job.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any, Final, TypeVar

import pytest
from temporalio import activity
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHandle, WorkflowHistory, WorkflowUpdateFailedError
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Interceptor

from activities.admission import Admissions
from activities.backfill import BackfillAdmitter
from activities.backfill_control import BackfillControl
from activities.job_control import JobControl
from activities.observation import Observer
from horarium import JobRun, PermanentError, checkpoint, current_run
from tests.eventually import LIMIT, eventually
from tests.temporal_servers import connect_to, unique
from workers.connection import register_search_attributes
from workers.devserver import DevServer, find_test_server_binary
from workers.settings import Settings
from workers.worker import OwnActivities, build_workers
from workflows.alert import Alert
from workflows.backfill import BackfillState, FireList, FireListRequest, first_record
from workflows.backfill_range import count_fires, list_fires
from workflows.backfill_record import BackfillRecord
from workflows.backfill_workflow import BackfillWorkflow
from workflows.breaker import BreakerPolicy
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
from workflows.contracts import (
    JOB_WORKFLOW,
    LIST_FIRES,
    MIRROR_REFUSED,
    MIRROR_UNAVAILABLE,
    PLAN_FIRES,
    RECORD_EVENTS,
    SEND_ALERT,
    SURVEY_FIRES,
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
    WORKFLOW_TASK_TIMEOUT,
    backfill_workflow_id,
    job_workflow_id,
)
from workflows.job import (
    FirePlan,
    Hold,
    JobDefinition,
    JobInput,
    JobRecord,
    JobState,
    LedgerEntry,
    Lifecycle,
    MirrorBatch,
    Pause,
    PausedFires,
    PlanRequest,
    RunRecord,
    SurveyRequest,
    Tuning,
)
from workflows.planner import make_plan, make_survey
from workflows.redrive import redrive_run_id
from workflows.revival import revived_state
from workflows.run import Attempt, Outcome, Run, RunKind, RunStatus
from workflows.schedule import FireSurvey, IntervalRule, Schedule
from workflows.target import ActivityTarget
from workflows.visibility import job_memo

_NO_BUGS: Final = (
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND,
)
"""Something came while a task was being completed, and the server has it made again; or the test terminated the workflow."""

QUICK: Final = Tuning(visible_after=timedelta(seconds=1))
"""Timers, no long sleep for gaps of seconds; looks soon at what does not answer."""

SLEEPY: Final = Tuning(long_sleep_threshold=timedelta(milliseconds=1500), visible_after=timedelta(seconds=1))
"""Every gap of two seconds is slept the long way."""

TOUCHY: Final = BreakerPolicy(failures_to_open=3, open_for=timedelta(seconds=1), budget_floor=1)
"""One retry is allowed, the third failure opens the breaker, and soon there is a probe."""


def every(seconds: float, **fields: Any) -> Schedule:
    """A grid of fires, without jitter."""
    rule = IntervalRule(every=timedelta(seconds=seconds))
    return Schedule.model_validate({"rule": rule, "jitter_window_seconds": 0.0} | fields)


class MemoryMirror:
    """Tables as the SQL mirror keeps them: guarded by version, one run for a nominal time."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobRecord] = {}
        self.runs: dict[str, dict[str, Run]] = {}
        self.attempts: dict[str, dict[tuple[str, int], Attempt]] = {}
        self.ledger: dict[str, dict[datetime, LedgerEntry]] = {}
        self.backfills: dict[str, BackfillRecord] = {}
        self.definitions: dict[str, JobDefinition] = {}
        """Of backfills, by id."""

        self.trouble = ""
        """``down``: every write is refused; ``hung``: none is answered."""

        self.trouble_of: dict[str, str] = {}
        """The same for single jobs."""

        self.poison = ""
        """A run whose record the database can never hold."""

        self.conflicts: list[str] = []
        self.refusals = 0
        self._versions: dict[tuple[str, ...], int] = {}

    @activity.defn(name=RECORD_EVENTS)
    async def record_events(self, batch: MirrorBatch) -> None:
        """Write a batch, or do not, as the test wants it."""
        trouble = self.trouble or self.trouble_of.get(_job_of(batch), "")
        self.refusals += bool(trouble)
        if trouble == "hung":
            await asyncio.sleep(3600)
        if trouble:
            raise ApplicationError("the database is away", type=MIRROR_UNAVAILABLE)
        self._write(batch)
        if self.poison in {record.run.run_id for record in batch.runs}:
            raise ApplicationError("never", type=MIRROR_REFUSED, non_retryable=True)

    async def get_job(self, tenant: str, job_id: str) -> JobRecord | None:
        """Find a job."""
        return self.jobs.get(job_id)

    async def get_last_run(self, job: JobRecord) -> Run | None:
        """Find the run of a job that ended last."""
        return self.runs.get(job.job_id, {}).get(job.last_run_id or "")

    async def read_runs_at(self, tenant: str, job_id: str, nominals: Sequence[datetime]) -> list[RunRecord]:
        """Read the runs of nominal times."""
        rows = self.runs.get(job_id, {}).values()
        return [RunRecord(job_id=job_id, run=run) for run in rows if run.scheduled_at in nominals]

    async def keep_definition(self, definition: JobDefinition, *, tenant: str, backfill_id: str) -> None:
        """Keep the definition of a backfill."""
        self.definitions.setdefault(backfill_id, definition)

    def outcomes(self, job_id: str) -> list[tuple[datetime, Outcome]]:
        """Tell each fire of the ledger and the runs, in order; entries of several neighbours by their first."""
        entries = [(entry.first, entry.outcome) for entry in self.ledger.get(job_id, {}).values()]
        runs = [(run.scheduled_at, run.outcome) for run in self.runs.get(job_id, {}).values()]
        return sorted(entries + runs)

    def statuses(self, job_id: str) -> Counter[RunStatus]:
        """Count the runs of a job by status."""
        return Counter(run.status for run in self.runs.get(job_id, {}).values())

    def _write(self, batch: MirrorBatch) -> None:
        if batch.job is not None and self._is_newer(batch.job.version, "job", batch.job.job_id):
            self.jobs[batch.job.job_id] = batch.job
        for record in batch.runs:
            if record.run.run_id != self.poison:
                self._write_run(record.job_id, record.version, record.run)
        for made in batch.attempts:
            key = (made.attempt.run_id, made.attempt.number)
            if self._is_newer(made.version, "attempt", made.job_id, key[0], str(key[1])):
                self.attempts.setdefault(made.job_id, {})[key] = made.attempt
        for entry in batch.ledger:
            if self._is_newer(entry.version, "ledger", entry.job_id, entry.entry.first.isoformat()):
                self.ledger.setdefault(entry.job_id, {})[entry.entry.first] = entry.entry
        for backfill in batch.backfills:
            if self._is_newer(backfill.version, "backfill", backfill.backfill_id):
                self.backfills[backfill.backfill_id] = backfill

    def _write_run(self, job_id: str, version: int, run: Run) -> None:
        rows = self.runs.setdefault(job_id, {})
        fires = [each for each in (run, *rows.values()) if each.kind in (RunKind.SCHEDULED, RunKind.CATCH_UP)]
        if run in fires and any(
            other.scheduled_at == run.scheduled_at and other.run_id != run.run_id for other in fires
        ):
            self.conflicts.append(run.run_id)
        elif self._is_newer(version, "run", run.run_id):
            rows[run.run_id] = run

    def _is_newer(self, version: int, *key: str) -> bool:
        if version <= self._versions.get(key, -1):
            return False
        self._versions[key] = version
        return True


def _job_of(batch: MirrorBatch) -> str:
    """Say whose records a batch has; it is of one job."""
    owners = [batch.job, *batch.runs, *batch.attempts, *batch.ledger, *batch.backfills]
    return next(each.job_id for each in owners if each is not None)


class Planner:
    """The planner, with bounds of its own for each job, and trouble on request."""

    def __init__(self, default: Tuning) -> None:
        self.default = default
        self.tunings: dict[str, Tuning] = {}
        self.broken: set[str] = set()
        """Jobs that are not answered."""

        self.asked = Counter[str]()

    @activity.defn(name=PLAN_FIRES)
    def plan_fires(self, request: PlanRequest) -> FirePlan:
        """Answer as the real one does."""
        self.asked[request.job_id] += 1
        if request.job_id in self.broken:
            raise RuntimeError("no such zone")
        return make_plan(request, tuning=self.tunings.get(request.job_id, self.default))

    @activity.defn(name=SURVEY_FIRES)
    def survey_fires(self, request: SurveyRequest) -> FireSurvey:
        """Answer as the real one does."""
        if request.job_id in self.broken:
            raise RuntimeError("no such zone")
        return make_survey(request)

    @activity.defn(name=LIST_FIRES)
    def list_fires(self, request: FireListRequest) -> FireList:
        """Answer as the real one does."""
        return list_fires(request)


@dataclass
class Call:
    """One call of job code."""

    run: JobRun[Any]
    began: datetime
    ended: datetime | None = None
    how: str = ""


class AlertReceiver:
    """Whoever is told of alerts."""

    def __init__(self) -> None:
        self.taken: list[Alert] = []
        self.is_away = False

    @activity.defn(name=SEND_ALERT)
    async def send_alert(self, alert: Alert) -> None:
        """Take an alert, if somebody is there."""
        if self.is_away:
            raise ApplicationError("nobody is there", type="AlertNotTaken")
        self.taken.append(alert)


class JobCode:
    """Activities whose payload says what they do; they remember their calls."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.is_downstream_down = False
        self.sent: list[tuple[str, int]] = []
        """Items that ``send`` has sent, each with the idempotency key of its run."""

    def of(self, job_id: str) -> list[Call]:
        """The calls of a job, in the order of their beginning."""
        return [call for call in self.calls if call.run.job_id == job_id]

    @activity.defn
    async def noop(self) -> None:
        """Do nothing."""
        with self._called():
            return

    @activity.defn
    async def take(self, seconds: float) -> str:
        """Take a while, and answer."""
        with self._called():
            await asyncio.sleep(seconds)
            return f"took {seconds}"

    @activity.defn
    async def ignore_cancel(self, seconds: float) -> None:
        """Take a while, whatever anybody asks."""
        with self._called():
            end = asyncio.get_running_loop().time() + seconds
            while (left := end - asyncio.get_running_loop().time()) > 0:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(left)

    @activity.defn
    async def fail(self, times: int) -> str:
        """Fail in the first attempts."""
        with self._called():
            if current_run().attempt <= times:
                raise ValueError(f"attempt {current_run().attempt}")
            return "at last"

    @activity.defn
    async def send(self, items: int, fails_at: int) -> str:
        """Send items one by one, from the checkpoint on; the first attempt fails at one of them."""
        with self._called():
            run = current_run()
            begin = run.checkpoint["sent"] if isinstance(run.checkpoint, dict) else 0
            for item in range(begin, items):
                if run.attempt == 1 and item == fails_at:
                    raise ConnectionError("it hung up")
                self.sent.append((run.idempotency_key, item))
                checkpoint({"sent": item + 1})
            return f"from {begin}"

    @activity.defn
    async def fail_for_good(self) -> None:
        """Say that trying again is of no use."""
        with self._called():
            raise PermanentError("no such customer")

    @activity.defn
    async def call_out(self) -> str:
        """Call a downstream, which may be down."""
        with self._called():
            if self.is_downstream_down:
                raise ConnectionError("it hung up")
            return "answered"

    def activities(self) -> list[Callable[..., Any]]:
        """All of them."""
        return [
            self.noop,
            self.take,
            self.ignore_cancel,
            self.fail,
            self.send,
            self.fail_for_good,
            self.call_out,
        ]

    def _called(self) -> "_Called":
        call = Call(run=current_run(), began=datetime.now(UTC))
        self.calls.append(call)
        return _Called(call)


@dataclass
class _Called:
    call: Call

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.call.ended = datetime.now(UTC)
        self.call.how = "answered" if kind is None else kind.__name__


@dataclass
class Harness:
    """A server, workers, and the jobs of one test."""

    client: Client
    planner: Planner
    mirror: MemoryMirror = field(default_factory=MemoryMirror)
    code: JobCode = field(default_factory=JobCode)
    alerts: AlertReceiver = field(default_factory=AlertReceiver)
    settings: Settings = field(
        default_factory=lambda: Settings(
            local_activity_slots=20, job_slots=50, graceful_shutdown=timedelta(0), workflow_sandbox=True
        )
    )
    clock: Callable[[], Awaitable[datetime]] | None = None
    """The server's, where it is not this machine's."""

    interceptors: Sequence[Interceptor] = ()
    jobs: list[str] = field(default_factory=list)
    backfills: list[BackfillRecord] = field(default_factory=list)
    """As they were asked for."""

    named: dict[str, str] = field(default_factory=dict)
    """Job ids by the names that a module of tests gives them."""

    started: dict[str, WorkflowHandle[Any, Any]] = field(default_factory=dict)
    """As a server that skips time knows them: it does so while the result of one is waited for."""

    breaker: BreakerPolicy = TOUCHY
    catch_up_per_second: float = 0
    """Starts of the catch-up lane; only of jobs whose tuning says that it is paced."""

    may_fail_tasks: bool = False
    """Whether workflow tasks that failed are part of the test."""

    _running: AsyncExitStack | None = None

    async def now(self) -> datetime:
        """What time it is for the server."""
        return datetime.now(UTC) if self.clock is None else await self.clock()

    async def start_workers(self) -> None:
        """Start the workers of one process."""
        observer = Observer(self.client)
        admissions = Admissions(self.client, self.breaker, catch_up_per_second=self.catch_up_per_second)
        control = JobControl(self.client, find_search_attributes=partial(register_search_attributes, self.client))
        mirror: Any = self.mirror
        backfills = BackfillAdmitter(queries=mirror, definitions=mirror, control=control)
        own = OwnActivities(
            local=[
                self.planner.plan_fires,
                self.planner.survey_fires,
                self.planner.list_fires,
                self.mirror.record_events,
                admissions.admit_attempt,
                admissions.note_attempt,
            ],
            remote=[
                self.mirror.record_events,
                observer.observe_attempt,
                backfills.admit_fires,
                self.alerts.send_alert,
            ],
        )
        workers = build_workers(
            self.settings, self.client, jobs=self.code.activities(), own=own, interceptors=self.interceptors
        )
        self._running = AsyncExitStack()
        for worker in workers:
            await self._running.enter_async_context(worker)

    async def stop_workers(self) -> None:
        """Stop them; jobs stay where they are."""
        if self._running is not None:
            await self._running.aclose()
            self._running = None

    async def register(
        self,
        definition: JobDefinition,
        *,
        job_id: str | None = None,
        tuning: Tuning | None = None,
        registered_at: datetime | None = None,
    ) -> str:
        """Start a job, as the API does; answers its id."""
        job_id = job_id or unique("job")
        self.jobs.append(job_id)
        if tuning is not None:
            self.planner.tunings[job_id] = tuning
        state = await self.state(definition, job_id=job_id, registered_at=registered_at)
        await self.start(JobInput(state=state))
        return job_id

    async def restore(self, job_id: str) -> None:
        """End a job's workflow, as the loss of Temporal's data would, and start it again from what the mirror knows."""
        await self.handle(job_id).terminate()
        record = self.mirror.jobs[job_id]
        state = revived_state(record, last=self.mirror.runs[job_id].get(record.last_run_id or ""), now=await self.now())
        await self.start(JobInput(state=state, resumed=True))

    async def start(self, given: JobInput) -> None:
        """Start a job's workflow."""
        job_id = given.state.job_id
        self.started[job_id] = await self.client.start_workflow(
            JOB_WORKFLOW,
            given,
            id=job_workflow_id(tenant="default", job_id=job_id),
            task_queue="horarium",
            task_timeout=WORKFLOW_TASK_TIMEOUT,
            memo=job_memo(given.state),
        )

    async def state(self, definition: JobDefinition, *, job_id: str, registered_at: datetime | None = None) -> JobState:
        """What a job begins with."""
        now = registered_at or await self.now()
        return JobState(
            job_id=job_id,
            definition=definition,
            registered_at=now,
            updated_at=now,
            high_water=now,
            version=int(now.timestamp() * 1_000_000),
        )

    async def delete(self, job_id: str, *, cancel_active: bool = False, key: str | None = None) -> JobRecord:
        """Delete a job."""
        command = DeleteCommand(key=key or unique("key"), cancel_active=cancel_active)
        record: JobRecord = await self.handle(job_id).execute_update(UPDATE_DELETE, command, result_type=JobRecord)
        return record

    async def register_again(self, definition: JobDefinition, *, job_id: str, key: str | None = None) -> JobRecord:
        """Register a job in the workflow that drains the deleted one of the same id."""
        command = RegisterCommand(key=key or unique("key"), state=await self.state(definition, job_id=job_id))
        record: JobRecord = await self.handle(job_id).execute_update(UPDATE_REGISTER, command, result_type=JobRecord)
        return record

    async def show(self, job_id: str, *, above: int = 0) -> MirrorBatch:
        """Ask a job how it stands."""
        rows: MirrorBatch = await self.handle(job_id).execute_update(
            UPDATE_SHOW, ShowCommand(above=above), result_type=MirrorBatch
        )
        return rows

    async def change(self, job_id: str, definition: JobDefinition, **fields: Any) -> JobRecord:
        """Give a job another definition."""
        command = ChangeCommand.model_validate({"key": unique("key"), "definition": definition} | fields)
        record: JobRecord = await self.handle(job_id).execute_update(UPDATE_CHANGE, command, result_type=JobRecord)
        return record

    async def pause(self, job_id: str, **fields: Any) -> JobRecord:
        """Pause a job."""
        command = PauseCommand(key=unique("key"), pause=Pause(at=await self.now(), **fields))
        record: JobRecord = await self.handle(job_id).execute_update(UPDATE_PAUSE, command, result_type=JobRecord)
        return record

    async def resume(self, job_id: str, *, catch_up: PausedFires = PausedFires.NONE) -> JobRecord:
        """Resume a job."""
        command = ResumeCommand(key=unique("key"), catch_up=catch_up)
        record: JobRecord = await self.handle(job_id).execute_update(UPDATE_RESUME, command, result_type=JobRecord)
        return record

    def a_hold(self, hold_id: str, **fields: Any) -> Hold:
        """What a job carries of a hold that begins now."""
        return Hold.model_validate({"hold_id": hold_id, "at": datetime.now(UTC)} | fields)

    async def hold(self, job_id: str, hold_id: str, **fields: Any) -> JobRecord:
        """Hold a job."""
        command = HoldCommand(key=unique("key"), hold=self.a_hold(hold_id, **fields))
        record: JobRecord = await self.handle(job_id).execute_update(UPDATE_HOLD, command, result_type=JobRecord)
        return record

    async def release(self, job_id: str, hold_id: str, *, catch_up: PausedFires = PausedFires.NONE) -> JobRecord:
        """Release a job."""
        command = ReleaseCommand(key=unique("key"), hold_id=hold_id, catch_up=catch_up)
        record: JobRecord = await self.handle(job_id).execute_update(UPDATE_RELEASE, command, result_type=JobRecord)
        return record

    async def trigger(self, job_id: str, **fields: Any) -> TriggerAnswer:
        """Trigger a job."""
        key = unique("key")
        command = TriggerCommand.model_validate({"key": key, "request_id": key} | fields)
        answer: TriggerAnswer = await self.handle(job_id).execute_update(
            UPDATE_TRIGGER, command, result_type=TriggerAnswer
        )
        return answer

    async def cancel_run(self, job_id: str, run_id: str) -> None:
        """Cancel a run."""
        command = CancelCommand(key=unique("key"), run_id=run_id, reason="on request")
        await self.handle(job_id).execute_update(UPDATE_CANCEL_RUN, command, result_type=MirrorBatch)

    async def redrive(self, dead: Run, *, job_id: str) -> RedriveAnswer:
        """Run a dead run again."""
        name = redrive_run_id(dead.run_id, job_id=job_id)
        command = RedriveCommand(key=name, run_id=name, dead=dead)
        answer: RedriveAnswer = await self.handle(job_id).execute_update(
            UPDATE_REDRIVE, command, result_type=RedriveAnswer
        )
        return answer

    async def backfill(
        self, job_id: str, *, start: datetime, end: datetime, history_limit: int = 400, **fields: Any
    ) -> BackfillRecord:
        """Ask for a backfill, as the API does, under the definition that the mirror shows."""
        record = self.mirror.jobs[job_id]
        about = {"job_id": job_id, "backfill_id": unique("backfill"), "revision": record.revision, "tenant": "default"}
        total = count_fires(record.definition.schedule, job_id=job_id, start=start, end=end).total
        times = {"start": start, "end": end, "requested_at": await self.now(), "total": total}
        asked = first_record(BackfillRecord.model_validate(about | times | fields))
        self.backfills.append(asked)
        state = BackfillState(record=asked, definition=record.definition, history_limit=history_limit)
        await BackfillControl(self.client).begin(state)
        return asked

    def backfill_handle(self, record: BackfillRecord) -> WorkflowHandle[Any, Any]:
        """The workflow of a backfill."""
        name = backfill_workflow_id(tenant=record.tenant, job_id=record.job_id, backfill_id=record.backfill_id)
        return self.client.get_workflow_handle_for(BackfillWorkflow.run, name)

    async def until_backfilled(self, asked: BackfillRecord, *, limit: timedelta = LIMIT) -> BackfillRecord:
        """Wait until a backfill is over; answers what the mirror says then."""
        async with asyncio.timeout(limit.total_seconds()):
            await self.backfill_handle(asked).result()
        return self.mirror.backfills[asked.backfill_id]

    def handle(self, job_id: str) -> WorkflowHandle[Any, Any]:
        """The workflow of a job, whichever run is the present one."""
        return self.client.get_workflow_handle(job_workflow_id(tenant="default", job_id=job_id))

    async def histories(self, job_id: str) -> list[WorkflowHistory]:
        """Fetch the histories of all runs of a job's workflow, the present one included, oldest first."""
        return await chain_of(self.client, job_workflow_id(tenant="default", job_id=job_id))

    async def until_runs(self, job_id: str, count: int, *, limit: timedelta = LIMIT) -> list[Run]:
        """Wait until so many runs of a job are final in the mirror; answers those, in the order of their fires."""

        def look() -> list[Run]:
            rows = self.mirror.runs.get(job_id, {}).values()
            final = sorted((run for run in rows if run.finished_at), key=lambda run: run.scheduled_at)
            assert len(final) >= count, f"{len(final)} of {count} runs have ended: {self.mirror.outcomes(job_id)}"
            return final

        return await eventually(look, limit=limit)

    async def until_decided(
        self,
        job_id: str,
        count: int,
        *,
        step: timedelta = timedelta(seconds=1),
        limit: timedelta = timedelta(seconds=40),
    ) -> list[Outcome]:
        """Wait until so many fires have an outcome in the mirror; each has one, and none of the grid is left out."""

        def look() -> list[Outcome]:
            outcomes = self.mirror.outcomes(job_id)
            assert len(outcomes) >= count, outcomes
            assert is_gapless([nominal for nominal, _ in outcomes], step), outcomes
            return [outcome for _, outcome in outcomes]

        return await eventually(look, limit=limit)

    async def until_closed(
        self, job_id: str, lifecycle: Lifecycle, *, limit: float = LIMIT.total_seconds()
    ) -> JobRecord:
        """Wait until the workflow of a job has ended; answers what the mirror says then."""
        async with asyncio.timeout(limit):
            await self.started[job_id].result()
        record = self.mirror.jobs[job_id]
        assert record.lifecycle is lifecycle
        return record

    async def clear(self) -> list[WorkflowHistory]:
        """End the jobs, and all that they have started, which else the workers of the next test would go on with.

        Answers what has happened in the jobs' workflows.
        """
        found: list[WorkflowHistory] = []
        for asked in self.backfills:
            with suppress(RPCError):
                await self.backfill_handle(asked).terminate()
            name = backfill_workflow_id(tenant=asked.tenant, job_id=asked.job_id, backfill_id=asked.backfill_id)
            found += await chain_of(self.client, name)
        for job_id in self.jobs:
            with suppress(RPCError):
                await self.handle(job_id).terminate()
            with suppress(RPCError):
                found += await self.histories(job_id)
        for name in children_in(found):
            with suppress(RPCError):
                await self.client.get_workflow_handle(name).terminate()
        return found

    def check(self, histories: Sequence[WorkflowHistory]) -> None:
        """See that no workflow task of the jobs has failed, and that no fire had two runs."""
        if self.may_fail_tasks:
            return
        assert self.mirror.conflicts == []
        failed = [event for history in histories for event in history.events if is_bug(event)]
        assert not failed, failed


AnyHarness = TypeVar("AnyHarness", bound=Harness)


@asynccontextmanager
async def running(client: Client, *, tuning: Tuning = QUICK, **fields: Any) -> AsyncIterator[Harness]:
    """Run workers for the length of a test."""
    async with working(Harness(client, Planner(tuning), **fields)) as harness:
        yield harness


@asynccontextmanager
async def working(harness: AnyHarness) -> AsyncIterator[AnyHarness]:
    """Run the workers of a harness for the length of a test."""
    try:
        await harness.start_workers()
        yield harness
    finally:
        histories = await harness.clear()
        await harness.stop_workers()
    harness.check(histories)


@asynccontextmanager
async def side_by_side(
    server: DevServer, jobs: Mapping[str, JobDefinition], *, tuning: Tuning = QUICK, **tunings: Tuning
) -> AsyncIterator[Harness]:
    """Run all jobs of a module at the same time, each test looks at its own. ``tunings`` are by the names of jobs."""
    async with running(await connect_to(server), tuning=tuning) as harness:
        for name, definition in jobs.items():
            harness.named[name] = await harness.register(definition, tuning=tunings.get(name))
        yield harness


@asynccontextmanager
async def skipping_time(*, tuning: Tuning = QUICK, **fields: Any) -> AsyncIterator[tuple[WorkflowEnvironment, Harness]]:
    """Run workers on a server whose clock jumps over sleeps. While a workflow waits for a worker, its clock is the real one."""
    async with await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=str(find_test_server_binary()), data_converter=pydantic_data_converter
    ) as environment:
        known = await register_search_attributes(environment.client)
        here = tuning.model_copy(update={"search_attributes": known})
        async with running(environment.client, tuning=here, clock=environment.get_current_time, **fields) as harness:
            yield environment, harness


def job(activity: str = "noop", *, every_seconds: float = 1, payload: Any = None, **fields: Any) -> JobDefinition:
    """A definition with a short name."""
    values = {
        "name": activity,
        "schedule": every(every_seconds),
        "target": ActivityTarget(activity=activity),
        "payload": payload,
    }
    return JobDefinition.model_validate(values | fields)


async def chain_of(client: Client, workflow_id: str) -> list[WorkflowHistory]:
    """Follow a workflow through its continuations, from its first run to its last."""
    latest = await client.get_workflow_handle(workflow_id).fetch_history()
    run_id = latest.events[0].workflow_execution_started_event_attributes.first_execution_run_id
    chain = []
    while run_id:
        history = await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
        chain.append(history)
        run_id = history.events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return chain


def kinds_of(history: WorkflowHistory) -> list[str]:
    """Name the types of a history's events."""
    return [EventType.Name(event.event_type).removeprefix("EVENT_TYPE_").lower() for event in history.events]


def count_kind(histories: Sequence[WorkflowHistory], kind: str) -> int:
    """Count events of a type in all runs."""
    return sum(kinds_of(history).count(kind) for history in histories)


def children_in(histories: Sequence[WorkflowHistory]) -> list[str]:
    """Name the workflows that a job has started, by their ids."""
    return [
        event.start_child_workflow_execution_initiated_event_attributes.workflow_id
        for history in histories
        for event in history.events
        if event.HasField("start_child_workflow_execution_initiated_event_attributes")
    ]


def is_long_sleep(history: WorkflowHistory) -> bool:
    """Whether a run began with a backoff, which is the long sleep."""
    started = history.events[0].workflow_execution_started_event_attributes
    return started.first_workflow_task_backoff.ToTimedelta() > timedelta(seconds=1, milliseconds=200)


def is_gapless(times: Sequence[datetime], step: timedelta) -> bool:
    """Whether times lie on a grid, one on each of its points."""
    return all(later - earlier == step for earlier, later in pairwise(times))


def lateness(run: Run) -> timedelta:
    """How long after its target a run was dispatched."""
    assert run.dispatched_at is not None
    return run.dispatched_at - run.target_at


async def refusal_of(call: Awaitable[object]) -> str:
    """Await an update that must be refused; answers the type of its refusal."""
    with pytest.raises(WorkflowUpdateFailedError) as caught:
        await call
    assert isinstance(caught.value.cause, ApplicationError)
    return str(caught.value.cause.type)


def is_bug(event: HistoryEvent) -> bool:
    """Whether a workflow task failed for a reason that code is to blame for."""
    failed = event.workflow_task_failed_event_attributes
    if event.event_type != EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
        return False
    return failed.cause not in _NO_BUGS
