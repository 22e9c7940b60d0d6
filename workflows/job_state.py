"""What every part of the kernel does with a job's state: finds and replaces runs, counts, enters fires in the ledger.

Pure. Nothing here decides anything.
"""

from datetime import datetime, timedelta

from workflows.alert import without_met
from workflows.job import JobCounts, JobDefinition, JobState, LedgerEntry
from workflows.outbox import with_ledger
from workflows.run import FINAL_STATUSES, Outcome, Run, RunKind, RunStatus

COUNTED = frozenset({RunKind.SCHEDULED, RunKind.CATCH_UP})
"""Kinds of runs that ``JobCounts.started`` counts, and ``max_runs`` bounds."""


def microseconds(moment: datetime) -> int:
    """Count since the epoch: what fences and versions begin with."""
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


def date_version(state: JobState, *, now: datetime) -> JobState:
    """Let the records of a workflow task be newer than all that an earlier try of the same task may have sent.

    A task that is lost after its records were written is carried out again, later, and may decide otherwise.
    """
    return state.model_copy(update={"version": max(state.version, microseconds(now))})


def find_run(state: JobState, run_id: str) -> Run | None:
    """Find an active run."""
    return next((run for run in state.active if run.run_id == run_id), None)


def with_active(state: JobState, run: Run) -> JobState:
    """Put a newer value of an active run in its place."""
    active = tuple(run if each.run_id == run.run_id else each for each in state.active)
    return state.model_copy(update={"active": active})


def replace_or_end(state: JobState, run: Run) -> JobState:
    """Put a run back among the active ones, or, when it is final, take it out and count it."""
    if run.status not in FINAL_STATUSES:
        return with_active(state, run)
    state = state.model_copy(
        update={
            "active": tuple(each for each in state.active if each.run_id != run.run_id),
            "cancelling": tuple(each for each in state.cancelling if each != run.run_id),
            "expected": without_met(state.expected, run),
        }
    )
    if run.superseded:
        return state
    succeeded = run.status is RunStatus.SUCCESS
    state = count(state, succeeded=int(succeeded), dead=int(run.status is RunStatus.DEAD))
    if run.outcome is Outcome.MISSED:
        state = count(state, missed=1).model_copy(update={"last_missed_at": run.finished_at})
    return state.model_copy(
        update={"last": run, "last_success_at": run.finished_at if succeeded else state.last_success_at}
    )


def count(
    state: JobState, *, started: int = 0, succeeded: int = 0, dead: int = 0, missed: int = 0, skipped: int = 0
) -> JobState:
    counts = state.counts
    return state.model_copy(
        update={
            "counts": JobCounts(
                started=counts.started + started,
                succeeded=counts.succeeded + succeeded,
                dead=counts.dead + dead,
                missed=counts.missed + missed,
                skipped=counts.skipped + skipped,
            )
        }
    )


def with_entries(
    state: JobState, entries: tuple[LedgerEntry, ...], *, now: datetime, revision: int | None = None
) -> JobState:
    """Enter fires in the ledger and count them; decided under ``revision``, by default the present one."""
    missed = sum(entry.count for entry in entries if entry.outcome in (Outcome.MISSED, Outcome.DROPPED))
    skipped = sum(entry.count for entry in entries if entry.outcome is Outcome.SKIPPED)
    state = count(state, missed=missed, skipped=skipped)
    if missed:
        state = state.model_copy(update={"last_missed_at": now})
    revised = tuple(entry.model_copy(update={"revision": revision or state.revision}) for entry in entries)
    return with_ledger(state, revised)


def is_drained(state: JobState) -> bool:
    """Say whether nothing of the job is under way or waits."""
    return not state.active and not state.waiting and not state.catch_up


def definition_of(state: JobState, run: Run) -> JobDefinition:
    """Find what a run was decided under, and is carried out by, all its attempts included."""
    definition = definition_at(state, run.revision)
    return definition if run.override is None else definition.model_copy(update={"payload": run.override.payload})


def definition_at(state: JobState, revision: int) -> JobDefinition:
    """Find the definition of a revision; the present one, where the state no longer holds it."""
    return next((each.definition for each in state.earlier if each.revision == revision), state.definition)


EARLIER_LIMIT = 262_144
"""Bytes of JSON of the earlier definitions that a job holds. Runs of those beyond it go on under the present one."""


def without_unused_definitions(state: JobState) -> JobState:
    """Forget the earlier definitions that no run is left of, and the oldest of them where they are too large together."""
    held = (*state.active, *state.waiting, *state.catch_up)
    used = {run.revision for run in held} | {carried.revision for carried in state.carried}
    kept, size = [], 0
    for each in reversed([each for each in state.earlier if each.revision in used]):
        size += len(each.definition.model_dump_json())
        if size > EARLIER_LIMIT:
            break
        kept.append(each)
    earlier = tuple(reversed(kept))
    return state if earlier == state.earlier else state.model_copy(update={"earlier": earlier})


ANSWERS_LAST = timedelta(days=1)
"""As long as the API remembers an idempotency key."""


def without_old_answers(state: JobState, *, now: datetime) -> JobState:
    """Forget the answers of updates that nobody can be repeating any more."""
    kept = tuple(answer for answer in state.answers if answer.at > now - ANSWERS_LAST)
    return state if kept == state.answers else state.model_copy(update={"answers": kept})
