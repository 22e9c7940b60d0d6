"""States of jobs whose workflow is gone, made from what the mirror knows: to redrive a run, or after the loss of Temporal's data.

Pure. Whatever is made here has a fence above every one that was given out and a version above every one that was written, and
decides nothing again that was decided: what may have been dispatched, and was not recorded, is in doubt and is not run.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from workflows.dispatch import run_for
from workflows.fire_times import jitter_offset, survey_fires
from workflows.hold import is_held, release_time, standstill
from workflows.job import CarriedFire, JobRecord, JobState, LedgerEntry, Lifecycle, MirrorBatch
from workflows.job_state import microseconds
from workflows.outbox import sealed, with_ledger, with_run
from workflows.policies import entries_of_missed, entries_of_standstill, split_newest
from workflows.run import Outcome, Run, RunKind, RunStatus
from workflows.schedule import Fire

CLUSTER_LOST: Final = "cluster_lost"
"""How the reason of every run begins that the loss of Temporal's data ended."""

LOST_RUN: Final = f"{CLUSTER_LOST}: Temporal's data was lost before it ended"
LOST_FIRE: Final = f"{CLUSTER_LOST}: Temporal's data was lost at about this time; it is not known whether it ran"

WORKFLOW_ENDED: Final = "workflow_ended"
"""How the reason of every run begins that somebody ended with its job's workflow, in Temporal."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What a job lost its workflow to, as the runs tell that went with it."""

    of_run: str
    of_fire: str


CLUSTER_LOSS: Final = Loss(of_run=LOST_RUN, of_fire=LOST_FIRE)

WORKFLOW_LOSS: Final = Loss(
    of_run=f"{WORKFLOW_ENDED}: the job's workflow was ended in Temporal before it ended",
    of_fire=f"{WORKFLOW_ENDED}: the job's workflow was ended in Temporal at about this time; it is not known whether it ran",
)

IN_DOUBT_LIMIT: Final = 100
"""Fires in doubt of one job that become dead letters. Of a job that fires every second, older ones are a line in the ledger."""


def revived_state(record: JobRecord, *, last: Run | None, now: datetime) -> JobState:
    """Make the state of a job from its row. ``last`` is the run that ended last."""
    missed_last = record.last_status == Outcome.MISSED.value
    return JobState(
        tenant=record.tenant,
        job_id=record.job_id,
        definition=record.definition,
        revision=record.revision,
        lifecycle=record.lifecycle,
        registered_at=record.registered_at,
        updated_at=record.updated_at,
        version=max(record.version + 1, microseconds(now)),
        fence=max(record.fence + 1, microseconds(now)),
        high_water=record.high_water,
        # Only fires that were used up lie ahead of it.
        before_skip=now if record.high_water > now else None,
        pause=record.pause,
        holds=record.holds,
        counts=record.counts,
        last=last,
        last_success_at=record.last_success_at,
        last_missed_at=now if missed_last else None,
    )


@dataclass(frozen=True, kw_only=True)
class Remains:
    """What is known of a job whose workflow is lost."""

    record: JobRecord
    last: Run | None
    open_runs: tuple[Run, ...]
    """Not final in the mirror."""

    still_running: frozenset[str] = frozenset()
    """Those of them whose own workflow is there."""


@dataclass(frozen=True, kw_only=True)
class Restoration:
    """A job, ready to go on."""

    state: JobState
    rows: MirrorBatch
    """What the mirror must know before it does."""

    lost_runs: int
    in_doubt: int


def restore_job(remains: Remains, *, lost_at: datetime, now: datetime, loss: Loss = CLUSTER_LOSS) -> Restoration:
    """Let a job go on whose workflow was lost at ``lost_at``.

    Runs that were under way end as dead, and so do the fires up to ``lost_at`` of which the mirror has not heard: either may
    have had effects. Both can be redriven. All later fires follow the job's policy for missed ones.
    """
    state = revived_state(remains.record, last=remains.last, now=now)
    kept = tuple(run for run in remains.open_runs if run.run_id in remains.still_running)
    lost = [as_lost(run, now=now, loss=loss) for run in remains.open_runs if run.run_id not in remains.still_running]
    carried = _carried_fire(remains.record)
    is_to_come = carried is not None and carried.fire.target > lost_at
    state = state.model_copy(update={"active": kept, "carried": (carried,) if carried and is_to_come else ()})
    fires, entries = _fires_in_doubt(state, lost_at=lost_at, loss=loss)
    fires = (carried.fire, *fires) if carried and not is_to_come else fires
    in_doubt = [_as_in_doubt(state, fire, now=now, loss=loss) for fire in fires]
    state = _with_dead(state, [*lost, *in_doubt], started=len(in_doubt))
    state = _with_missed(state, entries)
    state = state.model_copy(update={"high_water": _high_water_after(state, fires, entries)})
    state = sealed(state)
    rows, state = state.outbox, state.model_copy(update={"outbox": MirrorBatch()})
    return Restoration(state=state, rows=rows, lost_runs=len(lost), in_doubt=len(in_doubt))


def as_lost(run: Run, *, now: datetime, loss: Loss) -> Run:
    """End a run that was under way."""
    was_dispatched = run.attempt > 0 or run.dispatched_at is not None
    return run.model_copy(
        update={
            "status": RunStatus.DEAD,
            "outcome": Outcome.RAN if was_dispatched else Outcome.FAILED_TO_START,
            "reason": loss.of_run,
            "finished_at": now,
            "next_attempt_at": None,
        }
    )


def _as_in_doubt(state: JobState, fire: Fire, *, now: datetime, loss: Loss) -> Run:
    run = run_for(state, fire, kind=RunKind.SCHEDULED, stands_for=1, now=now, reason=loss.of_fire)
    ended = {"status": RunStatus.DEAD, "outcome": Outcome.FAILED_TO_START, "finished_at": now}
    return run.model_copy(update=ended)


def _carried_fire(record: JobRecord) -> CarriedFire | None:
    """Find the fire that a change has put off to its target time. Its own definition is lost; it is of the present one then."""
    nominal, target = record.next_run_at, record.next_target_at
    if record.lifecycle is not Lifecycle.ACTIVE or nominal is None or target is None or nominal > record.high_water:
        return None
    return CarriedFire(fire=Fire(nominal=nominal, target=target), revision=record.revision)


def _fires_in_doubt(
    state: JobState, *, lost_at: datetime, loss: Loss
) -> tuple[tuple[Fire, ...], tuple[LedgerEntry, ...]]:
    """List the fires that may have been dispatched without a record, and what becomes of others before ``lost_at``."""
    schedule, job_id = state.definition.schedule, state.job_id
    if state.lifecycle is not Lifecycle.ACTIVE:
        return (), ()
    until = lost_at - jitter_offset(schedule, job_id=job_id)
    after = state.high_water
    fires: tuple[Fire, ...] = ()
    entries: list[LedgerEntry] = []
    if is_held(state):
        released_at = release_time(state.holds)
        if released_at is None or released_at >= until:
            return (), ()
        entries += _held_entries(state, until=released_at)
        after = max(after, released_at)
    while after < until:
        survey = survey_fires(schedule, job_id=job_id, after=after, until=until, newest=IN_DOUBT_LIMIT + 1)
        older, newest = split_newest(survey, keep=IN_DOUBT_LIMIT)
        fires = (*fires, *newest)
        entries += entries_of_missed(older, reason=loss.of_fire)
        after = survey.through
    return _within_max_runs(state, fires), tuple(entries)


def _held_entries(state: JobState, *, until: datetime) -> Iterator[LedgerEntry]:
    """List what fell into holds that were over before the loss, of which the mirror had not heard."""
    still, after = standstill(state), state.high_water
    while still is not None and after < until:
        survey = survey_fires(state.definition.schedule, job_id=state.job_id, after=after, until=until, newest=0)
        yield from entries_of_standstill(survey.ranges, outcome=still.outcome, reason=still.reason)
        after = survey.through


def _within_max_runs(state: JobState, fires: tuple[Fire, ...]) -> tuple[Fire, ...]:
    most = state.definition.schedule.max_runs
    return fires if most is None else fires[: max(0, most - state.counts.started)]


def _with_dead(state: JobState, dead: Iterable[Run], *, started: int) -> JobState:
    counts = state.counts
    for run in dead:
        state = with_run(state, run).model_copy(update={"last": run})
        counts = counts.model_copy(update={"dead": counts.dead + 1})
    return state.model_copy(update={"counts": counts.model_copy(update={"started": counts.started + started})})


def _with_missed(state: JobState, entries: tuple[LedgerEntry, ...]) -> JobState:
    missed = sum(entry.count for entry in entries if entry.outcome is Outcome.MISSED)
    counts = state.counts.model_copy(update={"missed": state.counts.missed + missed})
    return with_ledger(state.model_copy(update={"counts": counts}), entries)


def _high_water_after(state: JobState, fires: Iterable[Fire], entries: Iterable[LedgerEntry]) -> datetime:
    decided = [*(fire.nominal for fire in fires), *(entry.last for entry in entries)]
    return max([state.high_water, *decided])
