"""A backfill: fires of the past, run on request. What it is told, what it asks for, and what it does next.

Pure. A backfill goes through the fires of its range, the oldest first, under the definition that its job had when it was asked
for. It asks the job for each run and is told by the run's own workflow how that ended; a job that does not answer, or a run that
is silent, is asked about again. Invariant: a nominal time of the range is taken once, and counted once when it is settled.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from workflows.backfill_record import OPEN_STATUSES, BackfillRecord, BackfillStatus, ExistingRuns
from workflows.contracts import LOGIC_VERSION, requested_run_id
from workflows.job import JobDefinition
from workflows.job_state import microseconds
from workflows.resilience import ENGINE_FLOOR
from workflows.run import FINAL_STATUSES, Run, RunKind, RunStatus
from workflows.schedule import Fire, Schedule
from workflows.value import Value

LISTED: Final = 50
"""Fires that are asked of the calculator at once."""

JUST_BEFORE: Final = timedelta(microseconds=1)
EARLIEST: Final = datetime.min.replace(tzinfo=UTC)

AGAIN_AFTER: Final = timedelta(seconds=10)
"""Pause after trouble: a job or a database that does not answer."""

FIRST_LOOK: Final = timedelta(seconds=3)
"""A run that has told nothing for so long is looked at, and then again after as long as it has taken so far."""

LAST_LOOK: Final = timedelta(minutes=5)

LOST_AFTER: Final = timedelta(minutes=2)
"""A run that the mirror does not know by then was never begun. Its own workflow writes its row after two seconds."""


class FireListRequest(Value):
    """Which fires are asked for: those with ``after < nominal <= until``, at most ``limit``, the excluded ones included."""

    job_id: str = ""
    schedule: Schedule = Schedule()
    after: datetime
    until: datetime
    limit: int = LISTED


class FireList(Value):
    """The next fires of a backfill."""

    fires: tuple[Fire, ...] = ()
    """Those that nothing excludes."""

    through: datetime
    """Nothing else is left up to here."""


class SteerBackfill(Value):
    """Argument of the updates that steer a backfill, answered by a ``BackfillRecord``."""

    reason: str = ""


class TakenFire(Value):
    """A fire that a backfill has taken on and not settled."""

    nominal: datetime
    taken_at: datetime
    run_id: str = ""
    """Empty while the job has not been heard to run it."""


class AdmitRequest(Value):
    """What ``ADMIT_FIRES`` is to do."""

    tenant: str = ""
    job_id: str = ""
    backfill_id: str = ""
    registered_at: datetime | None = None
    """Of the job's registration, as it answered at first; ``None``: not known yet."""

    revision: int = 1
    definition: JobDefinition = JobDefinition()
    existing: ExistingRuns = ExistingRuns.SKIP
    nominals: tuple[datetime, ...] = ()
    """Fires to be run."""

    watched: tuple[TakenFire, ...] = ()
    """Runs to be looked at."""


class StartedFire(Value):
    """A fire and its run."""

    nominal: datetime
    run_id: str = ""


class EndedFire(Value):
    """A fire whose run has ended."""

    nominal: datetime
    status: RunStatus = RunStatus.SUCCESS


class AdmitReport(Value):
    """What came of an ``AdmitRequest``. A fire that is not named is to be asked for again."""

    started: tuple[StartedFire, ...] = ()
    ended: tuple[EndedFire, ...] = ()
    skipped: tuple[datetime, ...] = ()
    """Fires that have another run."""

    unknown: tuple[datetime, ...] = ()
    """Watched ones of whose runs the mirror knows nothing."""

    registered_at: datetime | None = None
    gone: str = ""
    """Why there can be no more runs: the job was deleted."""

    trouble: str = ""
    """Why some were not asked for."""


class BackfillState(Value):
    """Everything that a backfill's workflow knows: its input, and what crosses a continue-as-new."""

    logic_version: int = LOGIC_VERSION
    record: BackfillRecord = BackfillRecord()
    definition: JobDefinition = JobDefinition()
    """The job's, when the backfill was asked for."""

    registered_at: datetime | None = None
    """As in ``AdmitRequest``."""

    listed_through: datetime | None = None
    """Up to here the calculator was asked; ``None`` before the first time."""

    ahead: tuple[datetime, ...] = ()
    """Fires that it has told and that were not taken, oldest first."""

    taken: tuple[TakenFire, ...] = ()
    next_at: datetime | None = None
    """No fire is taken sooner: the rate."""

    again_at: datetime | None = None
    """Nobody is asked anything sooner, after trouble."""

    looked_at: datetime | None = None
    """When the runs that it has begun were looked at last."""

    mirrored: bool = False
    """The mirror has confirmed ``record``."""

    history_limit: int = 400


def just_before(start: datetime) -> datetime:
    """Say after what moment the fires of a range come that begins at ``start``, inclusive."""
    return start - JUST_BEFORE if start - EARLIEST >= JUST_BEFORE else start


def first_record(record: BackfillRecord) -> BackfillRecord:
    """Give a new backfill its version, and end it at once where there is nothing to do."""
    record = record.model_copy(update={"version": microseconds(record.requested_at)})
    if record.total:
        return record
    return record.model_copy(update={"status": BackfillStatus.DONE, "finished_at": record.requested_at})


def cancelled_record(record: BackfillRecord, *, reason: str, now: datetime) -> BackfillRecord:
    """End a backfill whose workflow was ended in Temporal, and tells nothing more."""
    version = max(record.version + 1, microseconds(now))
    ended = {"version": version, "status": BackfillStatus.CANCELLED, "finished_at": now, "trouble": None, "running": ()}
    return record.model_copy(update={**ended, "reason": reason or record.reason})


def is_open(state: BackfillState) -> bool:
    """Say whether anything is left to do or to wait for."""
    return state.record.status in OPEN_STATUSES


def fires_request(state: BackfillState) -> FireListRequest | None:
    """Ask for the next fires, where some are needed."""
    record = state.record
    after = state.listed_through or just_before(record.start)
    if record.status is not BackfillStatus.RUNNING or state.ahead or after >= record.end:
        return None
    # The payload is of no use for that, and may be large.
    return FireListRequest(job_id=record.job_id, schedule=state.definition.schedule, after=after, until=record.end)


def with_fires(state: BackfillState, found: FireList) -> BackfillState:
    """Take in what the calculator has told."""
    nominals = tuple(fire.nominal for fire in found.fires)
    return state.model_copy(update={"ahead": (*state.ahead, *nominals), "listed_through": found.through})


def take_fires(state: BackfillState, *, now: datetime) -> BackfillState:
    """Take the next fires on, as many as may be under way at once and as the rate allows."""
    while _may_take(state, now=now):
        nominal, *ahead = state.ahead
        taken = TakenFire(nominal=nominal, taken_at=now)
        state = state.model_copy(
            update={
                "ahead": tuple(ahead),
                "taken": (*state.taken, taken),
                "next_at": _next_at(state, now=now),
                "record": state.record.model_copy(update={"through": nominal}),
            }
        )
    return state


def _may_take(state: BackfillState, *, now: datetime) -> bool:
    record = state.record
    if record.status is not BackfillStatus.RUNNING or not state.ahead or len(state.taken) >= record.max_concurrent:
        return False
    return state.next_at is None or state.next_at <= now


def _next_at(state: BackfillState, *, now: datetime) -> datetime | None:
    rate = state.record.rate_per_minute
    if rate is None:
        return None
    pause = timedelta(minutes=1) / rate
    # The engine's timers are late by as much as their floor. What is more is not made up for.
    return max(state.next_at or now, now - ENGINE_FLOOR) + pause


def admit_request(state: BackfillState, *, now: datetime) -> AdmitRequest | None:
    """Ask the job for runs, and about those that are silent; ``None`` where there is nothing to ask now."""
    if state.again_at is not None and now < state.again_at:
        return None
    is_running = state.record.status is BackfillStatus.RUNNING
    nominals = tuple(each.nominal for each in state.taken if not each.run_id) if is_running else ()
    look_at = next_look(state)
    watched = _begun(state) if look_at is not None and look_at <= now else ()
    if not nominals and not watched:
        return None
    record = state.record
    return AdmitRequest(
        tenant=record.tenant,
        job_id=record.job_id,
        backfill_id=record.backfill_id,
        registered_at=state.registered_at,
        revision=record.revision,
        definition=state.definition,
        existing=record.existing,
        nominals=nominals,
        watched=watched,
    )


def next_look(state: BackfillState) -> datetime | None:
    """Say when the runs that were begun are to be looked at; ``None`` where there are none."""
    begun = _begun(state)
    if not begun:
        return None
    oldest = min(each.taken_at for each in begun)
    before = max(oldest, state.looked_at or oldest)
    return before + min(max(before - oldest, FIRST_LOOK), LAST_LOOK)


def take_report(state: BackfillState, request: AdmitRequest, report: AdmitReport, *, now: datetime) -> BackfillState:
    """Take in what came of a request. Fires that were settled meanwhile stay so."""
    for ended in report.ended:
        state = _settle(state, ended.nominal, ended.status)
    for nominal in report.skipped:
        state = _settle(state, nominal, None)
    run_ids = {each.nominal: each.run_id for each in report.started}
    run_ids |= {nominal: "" for nominal in report.unknown if _is_lost(state, nominal, now=now)}
    taken = tuple(each.model_copy(update={"run_id": run_ids.get(each.nominal, each.run_id)}) for each in state.taken)
    asked = set(request.nominals)
    is_short = any(each.nominal in asked and not each.run_id for each in taken)
    trouble = report.trouble or ("waits: the job has as many backfilled runs as it takes" if is_short else "")
    state = state.model_copy(
        update={
            "taken": taken,
            "registered_at": state.registered_at or report.registered_at,
            "again_at": now + AGAIN_AFTER if trouble else None,
            "looked_at": now if request.watched else state.looked_at,
            "record": state.record.model_copy(update={"trouble": trouble[:500] or None}),
        }
    )
    return cancel_backfill(state, reason=report.gone) if report.gone else state


def with_trouble(state: BackfillState, reason: str, *, now: datetime) -> BackfillState:
    """Note that somebody did not answer, and is asked again later."""
    record = state.record.model_copy(update={"trouble": reason[:500]})
    return state.model_copy(update={"record": record, "again_at": now + AGAIN_AFTER})


def end_run(state: BackfillState, run: Run) -> BackfillState:
    """Take in the report of a run; of one that is not, or not any more, on the way it changes nothing."""
    return _settle(state, run.scheduled_at, run.status) if run.backfill_id == state.record.backfill_id else state


def _is_lost(state: BackfillState, nominal: datetime, *, now: datetime) -> bool:
    return any(each.nominal == nominal and each.taken_at + LOST_AFTER < now for each in state.taken)


def _begun(state: BackfillState) -> tuple[TakenFire, ...]:
    return tuple(each for each in state.taken if each.run_id)


def _settle(state: BackfillState, nominal: datetime, status: RunStatus | None) -> BackfillState:
    """Count a fire that is on the way, once; ``None`` is one that has another run."""
    taken = tuple(each for each in state.taken if each.nominal != nominal)
    if taken == state.taken:
        return state
    record = state.record
    match status:
        case None:
            counted = {"skipped": record.skipped + 1}
        case RunStatus.SUCCESS:
            counted = {"succeeded": record.succeeded + 1}
        case RunStatus.DEAD:
            counted = {"dead": record.dead + 1}
        case _:
            counted = {"cancelled": record.cancelled + 1}
    return state.model_copy(update={"taken": taken, "record": record.model_copy(update=counted)})


def pause_backfill(state: BackfillState, *, reason: str) -> BackfillState:
    """Begin no more runs until resumed."""
    return _with_status(state, BackfillStatus.PAUSED, reason=reason)


def resume_backfill(state: BackfillState, *, reason: str) -> BackfillState:
    """Go on."""
    if state.record.status is not BackfillStatus.PAUSED:
        return state
    return _with_status(state, BackfillStatus.RUNNING, reason=reason).model_copy(update={"again_at": None})


def cancel_backfill(state: BackfillState, *, reason: str) -> BackfillState:
    """Begin no more runs. Those that were begun go on."""
    if not is_open(state):
        return state
    return _with_status(state, BackfillStatus.CANCELLING, reason=reason)


def refuse_steering(state: BackfillState) -> str | None:
    """Say why a backfill can be neither paused nor resumed."""
    status = state.record.status
    can_go_on = status in (BackfillStatus.RUNNING, BackfillStatus.PAUSED)
    return None if can_go_on else f"the backfill is {status.value}; it begins no more runs"


def _with_status(state: BackfillState, status: BackfillStatus, *, reason: str) -> BackfillState:
    told = {"status": status, "reason": reason or state.record.reason, "trouble": None}
    return state.model_copy(update={"record": state.record.model_copy(update=told)})


def settle_backfill(state: BackfillState, *, now: datetime, is_asking: bool) -> BackfillState:
    """End a backfill that has nothing left. While it ``is_asking``, a run may be begun of which it has not heard."""
    record = state.record
    if record.status is BackfillStatus.CANCELLING and not is_asking:
        state = state.model_copy(update={"taken": _begun(state), "ahead": ()})
    if state.taken or is_asking:
        return state
    match record.status:
        case BackfillStatus.CANCELLING:
            return _ended(state, BackfillStatus.CANCELLED, now=now)
        case BackfillStatus.RUNNING if not state.ahead and fires_request(state) is None:
            return _ended(state, BackfillStatus.DONE, now=now)
        case _:
            return state


def _ended(state: BackfillState, status: BackfillStatus, *, now: datetime) -> BackfillState:
    ended = {"status": status, "finished_at": now, "trouble": None}
    return state.model_copy(update={"record": state.record.model_copy(update=ended)})


def next_step_at(state: BackfillState) -> datetime | None:
    """Say when there is something to do without news; ``None`` when only news can move the backfill."""
    record = state.record
    times = [next_look(state)]
    if record.status is BackfillStatus.RUNNING and any(not each.run_id for each in state.taken):
        times.append(state.again_at)
    if record.status is BackfillStatus.RUNNING and not state.ahead and fires_request(state) is not None:
        times.append(state.again_at)
    if record.status is BackfillStatus.RUNNING and state.ahead and len(state.taken) < record.max_concurrent:
        times.append(state.next_at)
    due = min((at for at in times if at is not None), default=None)
    return due if due is None or state.again_at is None else max(due, state.again_at)


def shown_record(state: BackfillState) -> BackfillRecord:
    """Say how the backfill stands."""
    return state.record.model_copy(update={"running": tuple(each.run_id for each in _begun(state))})


def dated(state: BackfillState, *, now: datetime) -> BackfillState:
    """Let the next record be newer than all before, of a workflow task that was lost too."""
    version = max(state.record.version + 1, microseconds(now))
    return state.model_copy(update={"record": state.record.model_copy(update={"version": version})})


def answers_for(run: Run, nominal: datetime) -> bool:
    """Say whether a run is one of this nominal time: a fire's own, a backfilled or redriven one, that was not cancelled."""
    return run.scheduled_at == nominal and run.kind is not RunKind.MANUAL and run.status is not RunStatus.CANCELLED


def backfill_run_id(request: AdmitRequest, nominal: datetime, *, known: tuple[Run, ...]) -> str:
    """Name the run of a fire. Where existing runs are skipped it is named by its time, so that no two backfills can run both.

    A run of that name that was cancelled is followed by a second one: ``job:backfill-2-...``.
    """
    moment = f"{nominal.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    if request.existing is ExistingRuns.RUN_AGAIN:
        moment = f"{request.backfill_id}-{moment}"
    cancelled = {run.run_id for run in known if run.status is RunStatus.CANCELLED}
    number = 1
    while (name := _name(request.job_id, moment, number)) in cancelled:
        number += 1
    return name


def _name(job_id: str, moment: str, number: int) -> str:
    request_id = moment if number == 1 else f"{number}-{moment}"
    return requested_run_id(job_id=job_id, kind=RunKind.BACKFILL, request_id=request_id)


def judge_fires(request: AdmitRequest, known: tuple[Run, ...]) -> tuple[AdmitReport, tuple[StartedFire, ...]]:
    """Say of each fire what the runs that the mirror knows mean; and which are to be asked for, under which names."""
    started: list[StartedFire] = []
    ended: list[EndedFire] = []
    skipped: list[datetime] = []
    wanted: list[StartedFire] = []
    for nominal in request.nominals:
        own = next((run for run in known if _is_own(request, run, nominal)), None)
        if own is not None and own.status in FINAL_STATUSES:
            ended.append(EndedFire(nominal=nominal, status=own.status))
        elif own is not None:
            started.append(StartedFire(nominal=nominal, run_id=own.run_id))
        elif request.existing is ExistingRuns.SKIP and any(answers_for(run, nominal) for run in known):
            skipped.append(nominal)
        else:
            wanted.append(StartedFire(nominal=nominal, run_id=backfill_run_id(request, nominal, known=known)))
    report = AdmitReport(started=tuple(started), ended=tuple(ended), skipped=tuple(skipped))
    return _with_watched(report, request, known), tuple(wanted)


def _is_own(request: AdmitRequest, run: Run, nominal: datetime) -> bool:
    return run.scheduled_at == nominal and run.backfill_id == request.backfill_id


def _with_watched(report: AdmitReport, request: AdmitRequest, known: tuple[Run, ...]) -> AdmitReport:
    by_id = {run.run_id: run for run in known}
    for fire in request.watched:
        run = by_id.get(fire.run_id)
        if run is None:
            report = report.model_copy(update={"unknown": (*report.unknown, fire.nominal)})
        elif run.backfill_id != request.backfill_id:
            # Another backfill had it before; this one's was refused by Temporal.
            report = report.model_copy(update={"skipped": (*report.skipped, fire.nominal)})
        elif run.status in FINAL_STATUSES:
            ended = EndedFire(nominal=fire.nominal, status=run.status)
            report = report.model_copy(update={"ended": (*report.ended, ended)})
    return report
