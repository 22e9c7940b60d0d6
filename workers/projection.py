"""Makes rows of the mirror out of histories: the workflows are replayed, and what they record is caught on its way.

A history is the log and the mirror a view of it: replayed, a workflow sends the very records, with the very versions, that it
sent when it ran, so writing them again changes nothing where they are known. No workflow is asked, and no worker is needed.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter, WorkflowSerializationContext
from temporalio.service import RPCError
from temporalio.worker import (
    Interceptor,
    Replayer,
    StartActivityInput,
    StartChildWorkflowInput,
    StartLocalActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from activities.job_listing import answering
from horarium.encrypted_payload import CannotDecrypt
from workers.workflow_runner import plain_runner
from workflows.backfill import BackfillState
from workflows.backfill_workflow import BackfillWorkflow
from workflows.contracts import BACKFILL_WORKFLOW, JOB_WORKFLOW, RECORD_EVENTS, RECORDS_WORKFLOW, RUN_WORKFLOW
from workflows.error import Unavailable
from workflows.job import JobInput, MirrorBatch
from workflows.job_workflow import JobWorkflow
from workflows.outbox import rows_of_job
from workflows.records_workflow import RecordsWorkflow
from workflows.run_workflow import RunWorkflow

PROJECTED: Final = (JOB_WORKFLOW, RUN_WORKFLOW, BACKFILL_WORKFLOW, RECORDS_WORKFLOW)
"""Types of the workflows that record."""

RECORDING: Final = (JobWorkflow, RunWorkflow, BackfillWorkflow, RecordsWorkflow)
"""Their classes."""

GIVEN: Final = {JOB_WORKFLOW: JobInput, BACKFILL_WORKFLOW: BackfillState}
"""Input of those that begin with more than they record."""

THREADS: Final = 2
"""For replays: they wait for nothing, and Python runs one at a time."""

TAKE_RECORDS: Final = "horarium_take_records"
"""External function of the sandbox: takes the id of a run and what it records."""


@dataclass(frozen=True, kw_only=True)
class Projection:
    """What a history tells."""

    batches: list[MirrorBatch]
    backfill: BackfillState | None = None
    """What the run of a backfill began with: its definition is in no record."""

    failure: str = ""
    """Why it could not be replayed to its end. What its workflow began with is told all the same."""


class Projector:
    """Reads the histories of one namespace."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._converter: DataConverter = client.data_converter
        self._threads = ThreadPoolExecutor(THREADS, "projection")

    async def fetch(self, workflow_id: str, run_id: str) -> WorkflowHistory | None:
        """Fetch a history; ``None`` where it is gone by now. Raises ``Unavailable``."""
        try:
            with answering():
                return await self._client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
        except RPCError:
            return None

    async def project_run(self, workflow_id: str, run_id: str) -> list[MirrorBatch]:
        """Make the rows of one run of a workflow. Raises ``Unavailable`` where its history cannot be had or does not replay."""
        history = await self.fetch(workflow_id, run_id)
        if history is None:
            raise Unavailable("its history is gone")
        [projection] = await self.project([history])
        if projection.failure:
            raise Unavailable(f"its history does not replay: {projection.failure}")
        return projection.batches

    async def project(self, histories: Sequence[WorkflowHistory]) -> list[Projection]:
        """Make the rows of some runs, in their order."""
        collector = _Collector()
        replayer = Replayer(
            workflows=RECORDING,
            workflow_task_executor=self._threads,
            data_converter=self._converter,
            workflow_runner=plain_runner(),
            interceptors=[collector],
        )
        replayable = [history for history in histories if _has_decided(history)]
        result = await replayer.replay_workflows(_each(replayable), raise_on_replay_failure=False)
        failures = result.replay_failures
        return [
            await self._projection(history, collector.taken[history.run_id], failure=failures.get(history.run_id))
            for history in histories
        ]

    async def _projection(
        self, history: WorkflowHistory, taken: list[MirrorBatch], *, failure: Exception | None
    ) -> Projection:
        try:
            given = await self._beginning_of(history)
        except CannotDecrypt as error:
            return Projection(batches=taken, failure=str(error))
        told = "" if failure is None else str(failure)[:500]
        match given:
            case JobInput():
                return Projection(batches=[rows_of_job(given.state), *taken], failure=told)
            case BackfillState() | None:
                return Projection(batches=taken, backfill=given, failure=told)

    async def _beginning_of(self, history: WorkflowHistory) -> JobInput | BackfillState | None:
        """Read what a run began with: of a job that is all of its state, and all there is of one that sleeps."""
        began = history.events[0].workflow_execution_started_event_attributes
        kind = GIVEN.get(began.workflow_type.name)
        if kind is None:
            return None
        given: JobInput | BackfillState
        context = WorkflowSerializationContext(namespace=self._client.namespace, workflow_id=history.workflow_id)
        [given] = await self._converter.with_context(context).decode(began.input.payloads, [kind])
        return given


def _has_decided(history: WorkflowHistory) -> bool:
    """Say whether there is anything to replay. A job that sleeps has decided nothing in its present run."""
    return any(event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED for event in history.events)


async def _each(histories: Sequence[WorkflowHistory]) -> AsyncIterator[WorkflowHistory]:
    for history in histories:
        yield history


class _Collector(Interceptor):
    """Keeps what workflows record, by the run that does."""

    def __init__(self) -> None:
        self.taken: dict[str, list[MirrorBatch]] = defaultdict(list)

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        """Stand between workflows and their activities."""
        input.unsafe_extern_functions[TAKE_RECORDS] = self._take
        return _Inbound

    def _take(self, run_id: str, batch: MirrorBatch) -> None:
        self.taken[run_id].append(batch)


class _Inbound(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound))


class _Outbound(WorkflowOutboundInterceptor):
    """Looks at what is sent to the mirror: by an activity of either kind, or by the workflow that retries for ever."""

    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        _look_at(input.activity, input.args)
        return super().start_activity(input)

    def start_local_activity(self, input: StartLocalActivityInput) -> workflow.ActivityHandle[Any]:
        _look_at(input.activity, input.args)
        return super().start_local_activity(input)

    async def start_child_workflow(self, input: StartChildWorkflowInput) -> workflow.ChildWorkflowHandle[Any, Any]:
        _look_at(input.workflow, input.args)
        return await super().start_child_workflow(input)


def _look_at(name: str, arguments: Sequence[Any]) -> None:
    if name in (RECORD_EVENTS, RECORDS_WORKFLOW):
        workflow.extern_functions()[TAKE_RECORDS](workflow.info().run_id, arguments[0])
