"""Backfills that go on after Temporal's data was lost, from what the mirror knows of them and of the fires of their ranges.

Pure. A restored backfill goes on behind the last fire that it is known to have taken, and counts what came of those before it by
their runs. What it may have begun without the mirror's knowledge is in doubt, and is not run: at any moment there are as many
fires under way as it may run at once, and their runs are recorded when they end.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from workflows.backfill import (
    AdmitRequest,
    BackfillState,
    TakenFire,
    answers_for,
    backfill_run_id,
    cancelled_record,
)
from workflows.backfill_record import BackfillRecord, BackfillStatus, ExistingRuns
from workflows.dispatch import backfilled_run
from workflows.job import JobDefinition, JobRecord, Lifecycle, MirrorBatch, RunRecord
from workflows.job_state import microseconds
from workflows.revival import CLUSTER_LOSS, CLUSTER_LOST, as_lost, revived_state
from workflows.run import FINAL_STATUSES, Outcome, Run, RunKind, RunStatus

COUNTED_AS: Final = {RunStatus.SUCCESS: "succeeded", RunStatus.DEAD: "dead", RunStatus.CANCELLED: "cancelled"}


@dataclass(frozen=True, kw_only=True)
class BackfillRemains:
    """What is known of a backfill whose workflow is lost."""

    record: BackfillRecord
    job: JobRecord
    definition: JobDefinition
    """The job's, when the backfill was asked for."""

    nominals: tuple[datetime, ...]
    """The fires of its range that nothing excludes, oldest first."""

    runs: tuple[RunRecord, ...]
    """All runs of these times, of any kind."""

    still_running: frozenset[str] = frozenset()
    """Those of them whose own workflow is there."""


@dataclass(frozen=True, kw_only=True)
class BackfillRestoration:
    """A backfill, ready to go on; or ended, where it cannot."""

    state: BackfillState
    rows: MirrorBatch
    """What the mirror must know before it does."""

    lost_runs: int
    in_doubt: int


def reason_to_end(record: BackfillRecord, job: JobRecord) -> str | None:
    """Say why a backfill cannot go on, whatever is known of its definition; ``None`` where it can."""
    if job.lifecycle is Lifecycle.DELETED:
        return "the job was deleted"
    if job.registered_at > record.requested_at:
        return "the job was deleted and registered again"
    return None


def definition_of(record: BackfillRecord, job: JobRecord, *, kept: JobDefinition | None) -> JobDefinition | None:
    """Find the definition under which a backfill makes its runs: the job's, where that is the same still, else what was kept."""
    return job.definition if job.revision == record.revision else kept


def definition_lost(record: BackfillRecord) -> str:
    """Say why a backfill cannot go on whose definition was in its workflow alone."""
    lost = f"revision {record.revision} of the job, under which it was asked for, is lost"
    return f"{CLUSTER_LOST}: {lost}; ask again for what it has not run"


def end_backfill(record: BackfillRecord, *, reason: str, now: datetime) -> BackfillRestoration:
    """End a backfill that cannot go on."""
    ended = cancelled_record(record, reason=reason, now=now)
    return BackfillRestoration(
        state=BackfillState(record=ended), rows=MirrorBatch(backfills=(ended,)), lost_runs=0, in_doubt=0
    )


def restore_backfill(remains: BackfillRemains, *, lost_at: datetime, now: datetime) -> BackfillRestoration:
    """Let a backfill go on whose workflow was lost at ``lost_at``, as running or as paused as it was.

    Done twice it is done once: what the first time took for lost or in doubt has its row, and is counted.
    """
    record = remains.record
    own = _own_runs(remains)
    lost = {
        nominal: as_lost(run, now=now, loss=CLUSTER_LOSS)
        for nominal, run in own.items()
        if run.status not in FINAL_STATUSES and run.run_id not in remains.still_running
    }
    before = max([at for at in (record.through, *own) if at is not None], default=None)
    own |= lost
    doubtful = _times_in_doubt(remains, own, before=before, lost_at=lost_at)
    in_doubt = {nominal: _as_in_doubt(remains, nominal, now=now) for nominal in doubtful}
    own |= in_doubt
    taken = tuple(
        TakenFire(nominal=nominal, taken_at=run.dispatched_at or now, run_id=run.run_id)
        for nominal, run in sorted(own.items())
        if run.status not in FINAL_STATUSES
    )
    through = max([at for at in (before, *doubtful) if at is not None], default=None)
    record = record.model_copy(
        update={
            **_counts(remains, own, through=through),
            "version": max(record.version + 1, microseconds(now)),
            "running": tuple(each.run_id for each in taken),
            "through": through,
            "trouble": None,
        }
    )
    state = BackfillState(
        record=record,
        definition=remains.definition,
        registered_at=remains.job.registered_at,
        listed_through=through,
        taken=taken,
        mirrored=True,
    )
    rows = MirrorBatch(runs=_rows(remains, [*lost.values(), *in_doubt.values()], now=now), backfills=(record,))
    return BackfillRestoration(state=state, rows=rows, lost_runs=len(lost), in_doubt=len(in_doubt))


def _own_runs(remains: BackfillRemains) -> dict[datetime, Run]:
    """Find the backfill's own run of each time; a second one follows a first that was cancelled."""
    runs = [each.run for each in remains.runs]
    own = [run for run in runs if run.kind is RunKind.BACKFILL and run.backfill_id == remains.record.backfill_id]
    return {run.scheduled_at: run for run in sorted(own, key=lambda run: run.created_at)}


def _times_in_doubt(
    remains: BackfillRemains, own: dict[datetime, Run], *, before: datetime | None, lost_at: datetime
) -> list[datetime]:
    """List the times that may have a run of which the mirror has not heard: taken ones, and the next ones unless it is paused."""
    room = remains.record.max_concurrent - sum(_was_under_way(run, lost_at=lost_at) for run in own.values())
    if room <= 0:
        return []
    others = _answered(remains)
    unknown = [nominal for nominal in remains.nominals if nominal not in own and nominal not in others]
    # Of more than can have been under way the runs are forgotten.
    taken = [nominal for nominal in unknown if before is not None and nominal <= before][-room:]
    if remains.record.status is not BackfillStatus.RUNNING:
        return taken
    following = [nominal for nominal in unknown if before is None or nominal > before]
    return [*taken, *following[: room - len(taken)]]


def _was_under_way(run: Run, *, lost_at: datetime) -> bool:
    """Say whether a run had not ended when Temporal was lost; it may have been taken for lost since."""
    if run.status not in FINAL_STATUSES:
        return True
    is_lost = run.status is RunStatus.DEAD and (run.reason or "").startswith(CLUSTER_LOST)
    return is_lost and run.finished_at is not None and run.finished_at >= lost_at


def _answered(remains: BackfillRemains) -> frozenset[datetime]:
    """List the times that the backfill passes over, because they have another run."""
    if remains.record.existing is ExistingRuns.RUN_AGAIN:
        return frozenset()
    runs = [each.run for each in remains.runs]
    return frozenset(run.scheduled_at for run in runs if answers_for(run, run.scheduled_at))


def _as_in_doubt(remains: BackfillRemains, nominal: datetime, *, now: datetime) -> Run:
    record, job = remains.record, remains.job
    request = AdmitRequest(job_id=job.job_id, backfill_id=record.backfill_id, existing=record.existing)
    run = backfilled_run(
        revived_state(job, last=None, now=now),
        remains.definition,
        run_id=backfill_run_id(request, nominal, known=tuple(each.run for each in remains.runs)),
        backfill_id=record.backfill_id,
        nominal=nominal,
        revision=record.revision,
        again=record.existing is ExistingRuns.RUN_AGAIN,
        now=now,
    )
    ended = {"status": RunStatus.DEAD, "outcome": Outcome.FAILED_TO_START, "finished_at": now}
    return run.model_copy(update={**ended, "reason": CLUSTER_LOSS.of_fire})


def _counts(remains: BackfillRemains, own: dict[datetime, Run], *, through: datetime | None) -> dict[str, int]:
    """Count what came of the fires that were taken, by their runs; of forgotten runs the record alone knows."""
    record, others = remains.record, _answered(remains)
    counted = Counter(COUNTED_AS[run.status] for run in own.values() if run.status in COUNTED_AS)
    taken = [nominal for nominal in remains.nominals if through is not None and nominal <= through]
    counted["skipped"] = sum(nominal in others and nominal not in own for nominal in taken)
    names = ("succeeded", "dead", "cancelled", "skipped")
    if all(nominal in own or nominal in others for nominal in taken):
        return {name: counted[name] for name in names}
    return {name: max(counted[name], getattr(record, name)) for name in names}


def _rows(remains: BackfillRemains, runs: list[Run], *, now: datetime) -> tuple[RunRecord, ...]:
    versions = {each.run.run_id: each.version for each in remains.runs}
    about = {"tenant": remains.job.tenant, "job_id": remains.job.job_id}
    return tuple(
        RunRecord(**about, version=max(versions.get(run.run_id, 0) + 1, microseconds(now)), run=run) for run in runs
    )
