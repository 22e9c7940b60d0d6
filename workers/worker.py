"""Builds the Temporal workers of a process from its role, and runs them until it is told to stop.

Three kinds of queue are polled. The default queue has the jobs' workflows with their local activities, and, where the same
process runs job code, the job activities beside them, because then an attempt starts without another round through the
server. The scheduler queue has our own ordinary activities. Every other queue has job activities alone.
"""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Interceptor, PollerBehaviorAutoscaling, PollerBehaviorSimpleMaximum, Worker

from activities.admission import Admissions
from activities.alert import Alerter
from activities.backfill import BackfillAdmitter
from activities.backfill_definition import BackfillDefinitions
from activities.database import InvalidDatabaseUrl, Limits, open_database
from activities.deadline import end_task
from activities.downstream_store import DownstreamStore, reporting
from activities.hold_spread import HoldSpreader
from activities.hold_store import HoldStore
from activities.http_target import HttpSender
from activities.job_control import JobControl
from activities.mirror_writer import MirrorWriter
from activities.observation import Observer
from activities.planning import Planner
from activities.queries import Queries
from activities.redrive import BulkRedriver, Redriver
from activities.schema import migrate_when_possible
from activities.trouble import Trouble
from activities.upkeep import Upkeep, begin_upkeep
from horarium import wrap_activity
from horarium.announcing import announcing
from horarium.effect_desk import EffectDesk
from workers.activity_module import load_job_activities
from workers.connection import Namespace, enter_namespace, register_search_attributes
from workers.effects import open_effects
from workers.loading import keep_what_is_loaded
from workers.mirror import open_parts
from workers.settings import InvalidSettings, Role, Settings, variable_of
from workers.telemetry import open_telemetry
from workers.workflow_runner import plain_runner, strict_runner
from workflows.alert_workflow import AlertWorkflow
from workflows.backfill_workflow import BackfillWorkflow
from workflows.bulk_redrive_workflow import BulkRedriveWorkflow
from workflows.catalogue_workflow import CatalogueWorkflow
from workflows.contracts import SCHEDULER_TASK_QUEUE
from workflows.downstream_workflow import DownstreamWorkflow
from workflows.hold_workflow import HoldWorkflow
from workflows.job_workflow import JobWorkflow
from workflows.records_workflow import RecordsWorkflow
from workflows.run_workflow import RunWorkflow
from workflows.target import DEFAULT_TASK_QUEUE
from workflows.upkeep_workflow import UpkeepWorkflow

logger = logging.getLogger(__name__)

WORKFLOWS: Final = (
    JobWorkflow,
    RunWorkflow,
    RecordsWorkflow,
    CatalogueWorkflow,
    DownstreamWorkflow,
    BulkRedriveWorkflow,
    AlertWorkflow,
    UpkeepWorkflow,
    HoldWorkflow,
    BackfillWorkflow,
)

READING_CONNECTIONS: Final = 2
"""For redrives, backfills and holds, and for reports on downstreams."""

HEARTBEAT_THROTTLE: Final = timedelta(seconds=1)
"""How old a checkpoint may be when its worker dies; Temporal's default is 0.8 of the heartbeat timeout."""

STICKY_TIMEOUT: Final = timedelta(seconds=3)
"""How long a decision waits for the worker that has the job in its cache, which may be dead. Temporal's default of 10 s
would be the lateness of a fire after each ``kill -9``."""

WORKFLOW_POLLERS: Final = PollerBehaviorSimpleMaximum(10)
"""Four in five ask for the jobs that this worker has in its cache. Pollers that scale with the load keep too many of its slots
for jobs that it has not."""

OWN_SLOTS: Final = 1000
"""For our own ordinary activities, which hold nothing while they wait: many records for a slow database must not keep alerts
waiting."""

READY_WITHIN: Final = timedelta(seconds=30)

ActivityFunction = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class OwnActivities:
    """Our own activities, bound to what they need. One set a process."""

    local: Sequence[ActivityFunction]
    """Called by workflows as local activities: must be where the workflows are."""

    remote: Sequence[ActivityFunction]
    """Called through the scheduler queue."""

    admissions: Admissions | None = None
    """Of them, whoever knows the downstreams; for metrics."""

    upkeep: Upkeep | None = None
    """Of them, whoever looks after the mirror; for metrics."""


async def serve(settings: Settings, *, stop: asyncio.Event) -> None:
    """Be a worker until ``stop`` is set and running attempts have ended or their grace is over.

    Waits for Temporal as long as it takes. Raises ``InvalidSettings``, ``ServerTooOld``, and what makes a worker fail
    beyond repair.
    """
    jobs = _load_jobs(settings) if _runs_jobs(settings) else []
    name = f"horarium-{settings.role}"
    async with (
        open_telemetry(settings, service=name) as telemetry,
        _mirror(settings) as writer,
        open_effects(settings) as effects,
    ):
        namespace = await _unless_stopped(enter_namespace(settings, name=name), stop)
        if namespace is not None:
            client, interceptors = namespace.client, telemetry.interceptors()
            async with (
                _own_activities(settings, namespace, writer) as own,
                telemetry.watching(
                    database_url=settings.database_url,
                    writer=writer,
                    client=client,
                    admissions=None if own is None else own.admissions,
                    upkeep=None if own is None else own.upkeep,
                ),
                _upkept(client, own),
                _announced(settings, client, jobs),
            ):
                workers = build_workers(
                    settings, client, jobs=jobs, own=own, interceptors=interceptors, effects=effects
                )
                await _run_until(workers, stop, ready_file=settings.ready_file)


def build_workers(
    settings: Settings,
    client: Client,
    *,
    jobs: Sequence[ActivityFunction],
    own: OwnActivities | None,
    interceptors: Sequence[Interceptor] = (),
    effects: EffectDesk | None = None,
) -> list[Worker]:
    """Make the workers of a process; ``own`` is ``None`` for one that runs job code alone."""
    jobs = [wrap_activity(function, worker=client.identity, effects=effects) for function in jobs]
    queues = set(settings.task_queues) if _runs_jobs(settings) else set[str]()
    workers = []
    if own is not None:
        beside = jobs if DEFAULT_TASK_QUEUE in queues else []
        workers.append(_workflow_worker(settings, client, local=own.local, jobs=beside, interceptors=interceptors))
        workers.append(_activity_worker(settings, client, SCHEDULER_TASK_QUEUE, own.remote, slots=OWN_SLOTS))
        queues.discard(DEFAULT_TASK_QUEUE)
    slots = settings.job_slots
    return workers + [_activity_worker(settings, client, queue, jobs, slots=slots) for queue in sorted(queues)]


@asynccontextmanager
async def _upkept(client: Client, own: OwnActivities | None) -> AsyncIterator[None]:
    """See to it that somebody looks after the mirror."""
    if own is None:
        yield
        return
    beginning = asyncio.create_task(begin_upkeep(client))
    try:
        yield
    finally:
        beginning.cancel()


@asynccontextmanager
async def _announced(settings: Settings, client: Client, jobs: Sequence[ActivityFunction]) -> AsyncIterator[None]:
    """Tell the catalogue of each queue what this process runs there."""
    async with AsyncExitStack() as stack:
        for queue in settings.task_queues if _runs_jobs(settings) else ():
            await stack.enter_async_context(announcing(client, task_queue=queue, functions=jobs))
        yield


def _load_jobs(settings: Settings) -> list[ActivityFunction]:
    """Collect the job activities: those of the teams, and ours that carries out ``http`` targets."""
    sender = HttpSender(allowance=settings.http_allowance())
    return [*load_job_activities(settings.activities, examples=settings.examples), sender.http_request]


def _runs_jobs(settings: Settings) -> bool:
    return settings.role is not Role.SCHEDULER


def _workflow_worker(
    settings: Settings,
    client: Client,
    *,
    local: Sequence[ActivityFunction],
    jobs: Sequence[ActivityFunction],
    interceptors: Sequence[Interceptor],
) -> Worker:
    """Make the worker of the default queue. Without jobs it leaves the queue's activities to others."""
    return Worker(
        client,
        task_queue=DEFAULT_TASK_QUEUE,
        workflows=WORKFLOWS,
        activities=[*local, *jobs],
        no_remote_activities=not jobs,
        workflow_runner=strict_runner() if settings.workflow_sandbox else plain_runner(),
        interceptors=interceptors,
        # Plans wait for no job: there is a thread for each slot of both.
        activity_executor=ThreadPoolExecutor(settings.job_slots + settings.local_activity_slots, "activity"),
        max_cached_workflows=settings.max_cached_workflows,
        max_concurrent_workflow_tasks=settings.workflow_task_slots,
        max_concurrent_activities=settings.job_slots,
        max_concurrent_local_activities=settings.local_activity_slots,
        workflow_task_poller_behavior=WORKFLOW_POLLERS,
        activity_task_poller_behavior=PollerBehaviorAutoscaling(),
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        # There is no such storage. With more, the SDK makes a task of each value.
        max_workflow_task_external_storage_concurrency=1,
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        graceful_shutdown_timeout=settings.graceful_shutdown,
    )


def _activity_worker(
    settings: Settings, client: Client, task_queue: str, functions: Sequence[ActivityFunction], *, slots: int
) -> Worker:
    return Worker(
        client,
        task_queue=task_queue,
        activities=functions,
        activity_executor=ThreadPoolExecutor(slots, "activity"),
        max_concurrent_activities=slots,
        activity_task_poller_behavior=PollerBehaviorAutoscaling(),
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        graceful_shutdown_timeout=settings.graceful_shutdown,
    )


@asynccontextmanager
async def _own_activities(
    settings: Settings, namespace: Namespace, writer: MirrorWriter | None
) -> AsyncIterator[OwnActivities | None]:
    """Bind our own activities to what they need; ``None`` for a process without a mirror."""
    if writer is None:
        yield None
        return
    engine = open_database(settings.database_url, limits=Limits(connections=READING_CONNECTIONS))
    queries, downstreams, holds = Queries(engine), DownstreamStore(engine), HoldStore(engine)
    definitions = BackfillDefinitions(engine)
    admissions = Admissions(
        namespace.client, settings.breaker_policy(), catch_up_per_second=settings.catch_up_per_second
    )
    try:
        async with (
            reporting(downstreams, lambda now: admissions.reports(now=now)),
            open_parts(settings.database_url, namespace.client, writer=writer) as parts,
        ):
            upkeep = Upkeep(
                reconciler=parts.reconciler,
                purger=parts.purger,
                every=settings.reconcile_every,
                kept=settings.run_retention,
            )
            yield _bind_own_activities(
                settings,
                namespace,
                admissions,
                upkeep,
                writer=writer,
                queries=queries,
                definitions=definitions,
                holds=holds,
            )
    finally:
        await holds.close()
        await definitions.close()
        await downstreams.close()
        await queries.close()
        await engine.dispose()


def _bind_own_activities(
    settings: Settings,
    namespace: Namespace,
    admissions: Admissions,
    upkeep: Upkeep,
    *,
    writer: MirrorWriter,
    queries: Queries,
    definitions: BackfillDefinitions,
    holds: HoldStore,
) -> OwnActivities:
    client = namespace.client
    tuning = settings.tuning(search_attributes=namespace.has_search_attributes)
    planner = Planner(tuning, fairness_weights=settings.fairness_weights, alerted=settings.alert_urls.keys())
    observer = Observer(client)
    control = JobControl(client, find_search_attributes=partial(register_search_attributes, client))
    sender = HttpSender(allowance=settings.http_allowance())
    alerter = Alerter(sender, url_for_all=settings.alert_url, urls=settings.alert_urls)
    backfills = BackfillAdmitter(queries=queries, definitions=definitions, control=control)
    redrives = BulkRedriver(queries=queries, redriver=Redriver(queries=queries, control=control))
    spreader = HoldSpreader(store=holds, control=control, writer=writer)
    return OwnActivities(
        local=[
            planner.plan_fires,
            planner.survey_fires,
            planner.list_fires,
            writer.record_events,
            admissions.admit_attempt,
            admissions.note_attempt,
        ],
        remote=[
            writer.record_events,
            observer.observe_attempt,
            redrives.redrive_many,
            spreader.spread_hold,
            backfills.admit_fires,
            alerter.send_alert,
            upkeep.reconcile_mirror,
            upkeep.purge_mirror,
        ],
        admissions=admissions,
        upkeep=upkeep,
    )


@asynccontextmanager
async def _mirror(settings: Settings) -> AsyncIterator[MirrorWriter | None]:
    """Open the mirror, which may be away; ``None`` for a process that runs job code alone, which needs no database."""
    if settings.role is Role.JOB:
        yield None
        return
    try:
        writer = MirrorWriter(settings.database_url)
    except InvalidDatabaseUrl as error:
        raise InvalidSettings(f"{variable_of('database_url')}: {error}") from error
    preparing = asyncio.create_task(_prepare(writer, url=settings.database_url))
    try:
        yield writer
    finally:
        await end_task(preparing)
        await writer.close()


async def _prepare(writer: MirrorWriter, *, url: str) -> None:
    """Bring the database up to date, now or when it is back, and the writer to it. Firing does not wait for it."""
    await migrate_when_possible(url)
    await writer.prepare(now=datetime.now(UTC))


async def _unless_stopped(entering: Coroutine[None, None, Namespace], stop: asyncio.Event) -> Namespace | None:
    """Wait for the namespace; ``None`` when the process is to stop before it is there."""
    task = asyncio.create_task(entering)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if task.done():
        return task.result()
    task.cancel()
    return None


async def _run_until(workers: Sequence[Worker], stop: asyncio.Event, *, ready_file: Path | None) -> None:
    """Run the workers. When one fails the others are stopped as well, and its error is raised."""
    _mark(ready_file, ready=False)  # a process that was killed has left its own
    running = [asyncio.create_task(worker.run()) for worker in workers]
    stopping = asyncio.create_task(stop.wait())
    telling = asyncio.create_task(_tell_when_ready(workers, ready_file))
    await asyncio.wait({*running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    logger.info("worker stops")
    telling.cancel()
    stopping.cancel()
    _mark(ready_file, ready=False)
    await asyncio.gather(*(worker.shutdown() for worker in workers))
    await asyncio.gather(*running)


async def _tell_when_ready(workers: Sequence[Worker], ready_file: Path | None) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(READY_WITHIN.total_seconds()):
            await asyncio.gather(*(_wait_until_polling(worker) for worker in workers))
    gc.collect()
    keep_what_is_loaded()
    logger.info("worker is ready", extra={"task_queues": ",".join(worker.task_queue for worker in workers)})
    with Trouble(logger, expected=OSError).survived("the file that says so cannot be written"):
        _mark(ready_file, ready=True)


async def _wait_until_polling(worker: Worker) -> None:
    """Wait until the server knows that this process polls a queue."""
    has_workflows = bool(worker.config()["workflows"])
    kind = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW if has_workflows else TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    client = worker.client
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=worker.task_queue), task_queue_type=kind
    )
    while True:
        with suppress(RPCError):
            answer = await client.workflow_service.describe_task_queue(request)
            if any(poller.identity == client.identity for poller in answer.pollers):
                return
        await asyncio.sleep(0.1)


def _mark(ready_file: Path | None, *, ready: bool) -> None:
    if ready_file is None:
        return
    if ready:
        ready_file.touch()
    else:
        ready_file.unlink(missing_ok=True)
