"""Records on their way to the mirror.

Pure. The outbox of a job holds what the mirror has not confirmed: of each run and attempt only the newest record, of the
ledger every entry. The row of the job itself is made when the outbox is sent, from the state of that moment.
"""

from datetime import timedelta

from workflows.job import (
    AttemptRecord,
    JobRecord,
    JobState,
    LedgerEntry,
    LedgerRecord,
    Lifecycle,
    MirrorBatch,
    RunRecord,
)
from workflows.logic import has_second_rules
from workflows.run import Attempt, Run
from workflows.spread import share_of
from workflows.visibility import last_outcome, next_fire

FIRST_PAUSE = timedelta(seconds=10)
LATER_PAUSE = timedelta(seconds=20)
"""After a failure of the mirror. Everything is there within a minute of its return."""

IF_LOST = 1
"""Version of a record that replaces none: all others are microseconds since the epoch."""


def with_run(state: JobState, run: Run) -> JobState:
    """Add a run's present state."""
    version = state.version + 1
    record = RunRecord(tenant=state.tenant, job_id=state.job_id, version=version, run=run)
    outbox = with_records(state.outbox, MirrorBatch(runs=(record,)))
    return state.model_copy(update={"version": version, "outbox": outbox})


def with_attempt(state: JobState, attempt: Attempt) -> JobState:
    """Add an attempt's present state."""
    version = state.version + 1
    record = AttemptRecord(tenant=state.tenant, job_id=state.job_id, version=version, attempt=attempt)
    outbox = with_records(state.outbox, MirrorBatch(attempts=(record,)))
    return state.model_copy(update={"version": version, "outbox": outbox})


def with_ledger(state: JobState, entries: tuple[LedgerEntry, ...]) -> JobState:
    """Add ledger entries."""
    if not entries:
        return state
    version = state.version + 1
    records = tuple(
        LedgerRecord(tenant=state.tenant, job_id=state.job_id, version=version, entry=entry) for entry in entries
    )
    outbox = with_records(state.outbox, MirrorBatch(ledger=records))
    return state.model_copy(update={"version": version, "outbox": outbox})


def with_records(outbox: MirrorBatch, newer: MirrorBatch) -> MirrorBatch:
    """Put newer records to those of an outbox, in the place of what they replace."""
    runs = {each.run.run_id for each in newer.runs}
    attempts = {_attempt_key(each) for each in newer.attempts}
    return MirrorBatch(
        job=newer.job or outbox.job,
        runs=(*(each for each in outbox.runs if each.run.run_id not in runs), *newer.runs),
        attempts=(*(each for each in outbox.attempts if _attempt_key(each) not in attempts), *newer.attempts),
        ledger=(*outbox.ledger, *newer.ledger),
    )


def _attempt_key(record: AttemptRecord) -> tuple[str, int]:
    return record.attempt.run_id, record.attempt.number


def sealed(state: JobState) -> JobState:
    """Put the job's own record on top of what is to be sent."""
    state = state.model_copy(update={"version": state.version + 1})
    return state.model_copy(update={"outbox": state.outbox.model_copy(update={"job": job_record(state)})})


def without(outbox: MirrorBatch, sent: MirrorBatch) -> MirrorBatch:
    """Take out what the mirror has confirmed. Records made since stay."""
    through = max(_versions(sent), default=0)
    return MirrorBatch(
        job=None if outbox.job is None or outbox.job.version <= through else outbox.job,
        runs=tuple(each for each in outbox.runs if each.version > through),
        attempts=tuple(each for each in outbox.attempts if each.version > through),
        ledger=tuple(each for each in outbox.ledger if each.version > through),
    )


def record_count(outbox: MirrorBatch) -> int:
    """Count the records of an outbox."""
    return len(_versions(outbox))


def up_to(outbox: MirrorBatch, version: int) -> MirrorBatch:
    """Take the records up to a version, without the job's own."""
    return MirrorBatch(
        runs=tuple(each for each in outbox.runs if each.version <= version),
        attempts=tuple(each for each in outbox.attempts if each.version <= version),
        ledger=tuple(each for each in outbox.ledger if each.version <= version),
    )


def oldest(outbox: MirrorBatch, count: int) -> MirrorBatch:
    """Take about ``count`` of the oldest records, without the job's own."""
    versions = sorted(_versions(outbox.model_copy(update={"job": None})))
    return up_to(outbox, versions[min(count, len(versions)) - 1]) if versions else MirrorBatch()


def mirror_pause(state: JobState, *, is_first: bool) -> timedelta:
    """Say how long a mirror that has taken nothing is left alone: about ten seconds at first, then about twenty.

    A hash of the job's id makes it up to a third less or more. All jobs of a process fail in the same moment, and would try
    again in the same moment. Runs that the first logic version began always wait for ten seconds.
    """
    if not has_second_rules(state):
        return FIRST_PAUSE
    return (FIRST_PAUSE if is_first else LATER_PAUSE) * (0.7 + 0.6 * share_of(state.job_id))


def is_empty(outbox: MirrorBatch) -> bool:
    """Say whether no run, attempt or ledger entry is unsent. The job's own row can be made again at any time."""
    return not (outbox.runs or outbox.attempts or outbox.ledger)


def highest_version(outbox: MirrorBatch) -> int:
    """Name the version of the newest record; 0 for an empty outbox."""
    return max(_versions(outbox), default=0)


def rows_of_run(state: JobState, run_id: str) -> MirrorBatch:
    """Show a job, and one of its runs where the mirror may not have its present state."""
    runs = tuple(record for record in state.outbox.runs if record.run.run_id == run_id)
    return MirrorBatch(job=job_record(state), runs=runs)


def rows_of_job(state: JobState) -> MirrorBatch:
    """Show a job with all that its state knows of runs.

    Records that are unsent are as they were made. What else is known of runs was recorded before, and counts only where the
    mirror has lost it.
    """
    held = (*state.active, *state.waiting, *state.catch_up, *((state.last,) if state.last else ()))
    known = tuple(RunRecord(tenant=state.tenant, job_id=state.job_id, version=IF_LOST, run=run) for run in held)
    rows = with_records(MirrorBatch(runs=known), state.outbox)
    return rows.model_copy(update={"job": job_record(state)})


def _versions(batch: MirrorBatch) -> list[int]:
    job = [batch.job.version] if batch.job is not None else []
    others: tuple[RunRecord | AttemptRecord | LedgerRecord, ...] = (*batch.runs, *batch.attempts, *batch.ledger)
    return [*job, *(each.version for each in others)]


def job_record(state: JobState) -> JobRecord:
    """Show a job as the mirror, and the answer to a control update, show it."""
    fire = next_fire(state)
    last = state.last
    return JobRecord(
        tenant=state.tenant,
        job_id=state.job_id,
        version=state.version,
        revision=state.revision,
        lifecycle=state.lifecycle,
        definition=state.definition,
        registered_at=state.registered_at,
        updated_at=state.updated_at,
        next_run_at=fire.nominal if fire and state.lifecycle is Lifecycle.ACTIVE else None,
        next_target_at=fire.target if fire and state.lifecycle is Lifecycle.ACTIVE else None,
        high_water=state.high_water,
        fence=state.fence,
        counts=state.counts,
        active_runs=sum(not run.superseded for run in state.active),
        waiting_runs=len(state.waiting) + len(state.catch_up),
        last_run_id=last.run_id if last else None,
        last_status=last_outcome(state),
        last_finished_at=last.finished_at if last else None,
        last_success_at=state.last_success_at,
        last_error=f"{last.failure.type}: {last.failure.message}" if last and last.failure else None,
        trouble=state.trouble,
        pause=state.pause,
        holds=state.holds if state.lifecycle in (Lifecycle.ACTIVE, Lifecycle.PAUSED) else (),
    )
