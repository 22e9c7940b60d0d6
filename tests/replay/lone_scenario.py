"""What is recorded of the workflows beside those of jobs: each is started by itself, with activities that are played.

A scenario takes a client, and answers the id of the workflow to be recorded. All are played side by side.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from horarium.catalogue import ANNOUNCE, CATALOGUE_WORKFLOW, catalogue_workflow_id
from tests.eventually import eventually
from tests.temporal_servers import unique
from workers.worker import WORKFLOWS
from workers.workflow_runner import strict_runner
from workflows.admission import DownstreamInput, ProbeReport, ProbeRequest
from workflows.alert import Alert
from workflows.alert_rule import AlertKind
from workflows.backfill import (
    AdmitReport,
    AdmitRequest,
    BackfillState,
    FireList,
    FireListRequest,
    StartedFire,
    SteerBackfill,
    first_record,
)
from workflows.backfill_range import list_fires
from workflows.backfill_record import BackfillRecord
from workflows.breaker import BreakerPolicy, ProbeAnswer, open_breaker
from workflows.catalogue import AnnouncedActivity, Announcement
from workflows.catalogue_workflow import ANNOUNCEMENTS_A_RUN
from workflows.contracts import (
    ADMIT_FIRES,
    ALERT_WORKFLOW,
    BACKFILL_WORKFLOW,
    BULK_REDRIVE_WORKFLOW,
    DOWNSTREAM_WORKFLOW,
    HOLD_WORKFLOW,
    LIST_FIRES,
    PURGE_MIRROR,
    RECONCILE_MIRROR,
    RECORD_EVENTS,
    REDRIVE_MANY,
    SCHEDULER_TASK_QUEUE,
    SEND_ALERT,
    SIGNAL_RUN_ENDED,
    SIGNAL_SPREAD,
    SPREAD_HOLD,
    UPDATE_ASK_PROBE,
    UPDATE_CANCEL_BACKFILL,
    UPDATE_END_PROBE,
    UPDATE_PAUSE_BACKFILL,
    UPDATE_RESET_BREAKER,
    UPDATE_RESUME_BACKFILL,
    UPKEEP_WORKFLOW,
    UPKEEP_WORKFLOW_ID,
    alert_workflow_id,
    backfill_workflow_id,
    bulk_redrive_workflow_id,
    downstream_workflow_id,
    hold_workflow_id,
)
from workflows.dead_letter import BulkProgress, BulkRequest, LetterPlace
from workflows.hold import HoldOrder, HoldProgress
from workflows.job import JobDefinition, MirrorBatch
from workflows.reconciliation import PurgeReport, ReconcileReport
from workflows.run import Run, RunKind, RunStatus
from workflows.schedule import IntervalRule, Schedule
from workflows.target import DEFAULT_TASK_QUEUE
from workflows.upkeep import UpkeepInput

NOON = datetime(2026, 6, 8, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)

Play = Callable[[Client], Awaitable[str]]

IN_ROUNDS = (
    BulkProgress(redriven=2, deferred=1, place=LetterPlace(finished_at=NOON, run_id="j:20260608T120000Z")),
    BulkProgress(redriven=2, deferred=1, trouble="the database is away"),
    BulkProgress(redriven=2, rounds=1),
    BulkProgress(redriven=3, rounds=2, is_done=True),
)
"""How far a bulk redrive is, chunk by chunk; of a longer one the first stands for all but the last."""

SPREAD = (
    HoldProgress(after="j-200", told=200),
    HoldProgress(told=399, trouble="job j-300: Temporal did not answer in time"),
    HoldProgress(told=400, is_done=True),
)
"""How far a hold is, chunk by chunk."""

QUICK = BreakerPolicy(open_for=SECOND, longest_open=2 * SECOND)


@activity.defn(name=SEND_ALERT)
async def send_alert(alert: Alert) -> None:
    """Take an alert at the second try, or never."""
    if alert.kind is AlertKind.LATE:
        raise ApplicationError("AddressRefused", type="AlertRefused", non_retryable=True)
    if activity.info().attempt == 1:
        raise ApplicationError("the receiver answered 503", type="AlertNotTaken")


@activity.defn(name=SPREAD_HOLD)
async def spread_hold(order: HoldOrder) -> HoldProgress:
    """Be a little further than before."""
    before = order.progress or HoldProgress()
    if order.hold_id == "h_rounds":
        return SPREAD[0 if before == HoldProgress() else SPREAD.index(before) + 1]
    return HoldProgress(after=f"job-{before.told}", told=before.told + 1, is_done=before.told >= 51)


@activity.defn(name=REDRIVE_MANY)
async def redrive_many(request: BulkRequest) -> BulkProgress:
    """Be a little further than before."""
    before = request.progress
    if request.limit <= len(IN_ROUNDS):
        return IN_ROUNDS[0 if before == BulkProgress() else IN_ROUNDS.index(before) + 1]
    redriven = before.redriven + 1
    return BulkProgress(redriven=redriven, is_done=redriven >= request.limit)


@activity.defn(name=RECONCILE_MIRROR)
async def reconcile_mirror() -> ReconcileReport:
    """Find nothing."""
    return ReconcileReport(jobs=1, rows=1, again_in=SECOND)


@activity.defn(name=PURGE_MIRROR)
async def purge_mirror() -> PurgeReport:
    """Fail, as without a database."""
    raise ApplicationError("the database is away")


BACKFILLED: dict[str, list[datetime]] = {}
"""Fires that were admitted, by backfill, and whose runs have not ended."""


@activity.defn(name=LIST_FIRES)
def list_fires_for(request: FireListRequest) -> FireList:
    """Answer as the real one does."""
    return list_fires(request)


@activity.defn(name=ADMIT_FIRES)
async def admit_fires(request: AdmitRequest) -> AdmitReport:
    """Run every fire but those of minute 3; of the first ones nobody hears at once."""
    backfill_id = request.backfill_id
    if backfill_id not in BACKFILLED:
        BACKFILLED[backfill_id] = []
        return AdmitReport(trouble="the database is away")
    wanted = [nominal for nominal in request.nominals if nominal.minute != 3]
    BACKFILLED[backfill_id] += wanted
    started = tuple(StartedFire(nominal=nominal, run_id=f"j:{nominal}") for nominal in wanted)
    skipped = tuple(nominal for nominal in request.nominals if nominal.minute == 3)
    return AdmitReport(started=started, skipped=skipped, registered_at=NOON)


@activity.defn(name=RECORD_EVENTS)
async def record_events(batch: MirrorBatch) -> None:
    """Take what is told."""


ACTIVITIES: Sequence[Callable[..., Any]] = (
    send_alert,
    redrive_many,
    spread_hold,
    reconcile_mirror,
    purge_mirror,
    admit_fires,
    record_events,
)


async def backfill_and_pause(client: Client) -> str:
    """So many fires that it continues as new; after the first it is paused for a moment."""
    handle, backfill_id = await _backfill(client, total=12)
    await _end_backfilled(handle, backfill_id, 1)
    command = SteerBackfill(reason="the bank is busy")
    await handle.execute_update(UPDATE_PAUSE_BACKFILL, command, result_type=BackfillRecord)
    await handle.execute_update(UPDATE_RESUME_BACKFILL, SteerBackfill(), result_type=BackfillRecord)
    await _end_backfilled(handle, backfill_id, 10)
    await handle.result()
    return handle.id


async def backfill_and_cancel(client: Client) -> str:
    """With a run under way, which it waits for."""
    handle, backfill_id = await _backfill(client, total=12)
    await eventually(lambda: bool(BACKFILLED.get(backfill_id)))
    await handle.execute_update(UPDATE_CANCEL_BACKFILL, SteerBackfill(reason="enough"), result_type=BackfillRecord)
    await _end_backfilled(handle, backfill_id, len(BACKFILLED[backfill_id]))
    await handle.result()
    return handle.id


async def _backfill(client: Client, *, total: int) -> tuple[WorkflowHandle[Any, Any], str]:
    backfill_id = unique("backfill")
    times = {"start": NOON, "end": NOON + (total - 1) * 60 * SECOND, "requested_at": datetime.now(UTC)}
    about = {"tenant": "default", "job_id": "j", "backfill_id": backfill_id, "total": total, "max_concurrent": 2}
    record = first_record(BackfillRecord.model_validate(about | times))
    every_minute = Schedule(rule=IntervalRule(every=60 * SECOND), jitter_window_seconds=0)
    state = BackfillState(record=record, definition=JobDefinition(schedule=every_minute), history_limit=50)
    name = backfill_workflow_id(tenant="default", job_id="j", backfill_id=backfill_id)
    handle: WorkflowHandle[Any, Any] = await client.start_workflow(
        BACKFILL_WORKFLOW, state, id=name, task_queue=DEFAULT_TASK_QUEUE
    )
    return client.get_workflow_handle(handle.id), backfill_id


async def _end_backfilled(handle: WorkflowHandle[Any, Any], backfill_id: str, count: int) -> None:
    for _ in range(count):
        await eventually(lambda: bool(BACKFILLED.get(backfill_id)), limit=60 * SECOND)
        nominal = BACKFILLED[backfill_id].pop(0)
        times = {"scheduled_at": nominal, "target_at": nominal, "created_at": nominal}
        kind = {"kind": RunKind.BACKFILL, "backfill_id": backfill_id, "status": RunStatus.SUCCESS}
        await handle.signal(SIGNAL_RUN_ENDED, Run.model_validate(times | kind))


async def deliver_alert(client: Client) -> str:
    """To a receiver that was away."""
    return (await _alert(client, AlertKind.DEAD)).id


async def refuse_alert(client: Client) -> str:
    """To an address that is never reached."""
    handle = await _alert(client, AlertKind.LATE, wait=False)
    try:
        await handle.result()
    except WorkflowFailureError:
        return handle.id
    raise AssertionError("the alert was taken")


async def redrive_in_rounds(client: Client) -> str:
    """With a busy job, and a database that is away for a moment."""
    return await _bulk_redrive(client, limit=len(IN_ROUNDS))


async def redrive_beyond_one_run(client: Client) -> str:
    """So many chunks that it continues as new."""
    return await _bulk_redrive(client, limit=52)


async def spread_hold_in_rounds(client: Client) -> str:
    """With jobs that did not answer at first, and a signal that has it look once more."""
    return await _spread_hold(client, "h_rounds")


async def spread_hold_beyond_one_run(client: Client) -> str:
    """So many chunks that it continues as new."""
    return await _spread_hold(client, "h_many")


async def fill_catalogue(client: Client) -> str:
    """By so many announcements that it continues as new, and one more."""
    name = catalogue_workflow_id(unique("queue"))
    for number in range(ANNOUNCEMENTS_A_RUN + 1):
        schema = AnnouncedActivity(payload_schema={"type": "integer", "minimum": number})
        await client.start_workflow(
            CATALOGUE_WORKFLOW,
            id=name,
            task_queue=DEFAULT_TASK_QUEUE,
            start_signal=ANNOUNCE,
            start_signal_args=[Announcement(version=f"v{number}", activities={"charge": schema})],
        )

    async def is_further() -> bool:
        described = await client.get_workflow_handle(name).describe()
        return described.history_length > 3 and described.raw_info.first_run_id != described.run_id

    await eventually(is_further)
    return name


async def probe_downstream(client: Client) -> str:
    """A probe that fails, and one that closes the breaker."""
    handle = await _open(client)
    assert not (await _ask(handle, "j:1")).granted
    await _until_granted(handle, "j:1")
    assert (await _ask(handle, "j:1")).granted, "asked again after an answer that was lost"
    assert not (await _ask(handle, "j:2")).granted
    assert not (await _end(handle, "j:1", ok=False)).closed
    await _until_granted(handle, "j:2")
    assert (await _end(handle, "j:2", ok=True)).closed
    assert await handle.result() == "closed"
    return handle.id


async def lose_probe(client: Client) -> str:
    """One that is never heard of again; then an operator closes the breaker."""
    handle = await _open(client)
    await _until_granted(handle, "j:1", lasts=SECOND)

    async def has_reopened() -> bool:
        memo = await (await handle.describe()).memo()
        return memo.get("openings") == "2"

    await eventually(has_reopened)
    await handle.execute_update(UPDATE_RESET_BREAKER, result_type=ProbeAnswer)
    await handle.result()
    return handle.id


async def go_on_with_open_breaker(client: Client) -> str:
    """As it was before it continued as new."""
    breaker = open_breaker(tenant="default", downstream="bank", policy=QUICK, now=datetime.now(UTC) - 2 * SECOND)
    handle = await _open(client, breaker=breaker)
    await _until_granted(handle, "j:1")
    assert (await _end(handle, "j:1", ok=True)).closed
    await handle.result()
    return handle.id


async def look_after_mirror(client: Client) -> str:
    """So many rounds that it continues as new; some of its steps fail."""
    name = unique(UPKEEP_WORKFLOW_ID)
    handle = await client.start_workflow(UPKEEP_WORKFLOW, UpkeepInput(), id=name, task_queue=DEFAULT_TASK_QUEUE)

    async def is_further() -> bool:
        described = await client.get_workflow_handle(name).describe()
        return described.history_length > 10 and described.raw_info.first_run_id != described.run_id

    await eventually(is_further, limit=timedelta(seconds=90))
    await client.get_workflow_handle(handle.id).cancel()
    return name


LONE: Mapping[str, Play] = {
    "alert": deliver_alert,
    "alert-refused": refuse_alert,
    "backfill": backfill_and_pause,
    "backfill-cancelled": backfill_and_cancel,
    "bulk-redrive": redrive_in_rounds,
    "bulk-redrive-continued": redrive_beyond_one_run,
    "hold": spread_hold_in_rounds,
    "hold-continued": spread_hold_beyond_one_run,
    "catalogue": fill_catalogue,
    "downstream": probe_downstream,
    "downstream-probe-lost": lose_probe,
    "downstream-continued": go_on_with_open_breaker,
    "upkeep": look_after_mirror,
}


@asynccontextmanager
async def lone_workers(client: Client) -> AsyncIterator[None]:
    """Run what these workflows need."""
    workflows = Worker(
        client,
        task_queue=DEFAULT_TASK_QUEUE,
        workflows=WORKFLOWS,
        activities=[list_fires_for],
        activity_executor=ThreadPoolExecutor(4),
        workflow_runner=strict_runner(),
    )
    activities = Worker(client, task_queue=SCHEDULER_TASK_QUEUE, activities=ACTIVITIES)
    async with workflows, activities:
        yield


async def _alert(client: Client, kind: AlertKind, *, wait: bool = True) -> WorkflowHandle[Any, Any]:
    alert_id = unique(f"default:{kind.value}")
    alert = Alert(alert_id=alert_id, kind=kind, tenant="default", job_id="j", raised_at=NOON, summary="it is dead")
    name = alert_workflow_id(tenant="default", alert_id=alert_id)
    handle = await client.start_workflow(ALERT_WORKFLOW, alert, id=name, task_queue=DEFAULT_TASK_QUEUE)
    if wait:
        await handle.result()
    return handle


async def _bulk_redrive(client: Client, *, limit: int) -> str:
    name = bulk_redrive_workflow_id(tenant="default", redrive_id=unique("redrive"))
    request = BulkRequest(tenant="default", limit=limit, requested_at=NOON)
    await client.execute_workflow(BULK_REDRIVE_WORKFLOW, request, id=name, task_queue=DEFAULT_TASK_QUEUE)
    return name


async def _spread_hold(client: Client, hold_id: str) -> str:
    name = hold_workflow_id(tenant=unique("tenant"), hold_id=hold_id)
    order = HoldOrder(tenant="default", hold_id=hold_id)
    handle = await client.start_workflow(
        HOLD_WORKFLOW, order, id=name, task_queue=DEFAULT_TASK_QUEUE, start_signal=SIGNAL_SPREAD
    )
    await handle.result()
    return name


async def _open(client: Client, **fields: Any) -> WorkflowHandle[Any, Any]:
    downstream = unique("bank")
    given = DownstreamInput(tenant="default", downstream=downstream, policy=QUICK, **fields)
    name = downstream_workflow_id(tenant="default", downstream=downstream)
    return await client.start_workflow(DOWNSTREAM_WORKFLOW, given, id=name, task_queue=DEFAULT_TASK_QUEUE)


async def _ask(handle: WorkflowHandle[Any, Any], run_id: str, *, lasts: timedelta = 60 * SECOND) -> ProbeAnswer:
    request = ProbeRequest(run_id=run_id, lasts=lasts)
    answer: ProbeAnswer = await handle.execute_update(UPDATE_ASK_PROBE, request, result_type=ProbeAnswer)
    return answer


async def _until_granted(handle: WorkflowHandle[Any, Any], run_id: str, *, lasts: timedelta = 60 * SECOND) -> None:
    await eventually(lambda: _is_granted(handle, run_id, lasts), every=SECOND / 2)


async def _is_granted(handle: WorkflowHandle[Any, Any], run_id: str, lasts: timedelta) -> bool:
    return (await _ask(handle, run_id, lasts=lasts)).granted


async def _end(handle: WorkflowHandle[Any, Any], run_id: str, *, ok: bool) -> ProbeAnswer:
    report = ProbeReport(run_id=run_id, ok=ok)
    answer: ProbeAnswer = await handle.execute_update(UPDATE_END_PROBE, report, result_type=ProbeAnswer)
    return answer


async def play_all(client: Client, names: list[str]) -> dict[str, str]:
    """Play the scenarios named, or all; the ids of their workflows."""
    wanted = [name for name in LONE if not names or name in names]
    async with lone_workers(client):
        return dict(zip(wanted, await asyncio.gather(*(LONE[name](client) for name in wanted)), strict=True))
