"""What has happened to a job's fires and runs since the last look, for whoever counts and traces. Pure.

News are read off what the workflows make for the mirror anyway, so nothing is told that SQL does not show later, and a
workflow of a run and that of its job never tell the same thing.
"""

from dataclasses import dataclass

from workflows.job import JobState, LedgerEntry
from workflows.run import FINAL_STATUSES, Attempt, AttemptStatus, Outcome, Run, RunStatus


@dataclass(frozen=True, kw_only=True)
class RunNews:
    """What has happened to one run."""

    run: Run
    """As it stands now."""

    begun: bool = False
    """Its first attempt is known to have begun, since just now."""

    settled: bool = False
    """The outcome of its fire is certain, since just now."""

    ended: bool = False
    """It is final, since just now."""

    attempt: Attempt | None = None
    """The attempt that has ended."""


@dataclass(frozen=True, kw_only=True)
class JobNews:
    """What has happened to a job, or to one detached run of it."""

    tenant: str
    job_id: str
    version: int
    """Of the newest record."""

    registered: bool = False
    """It has just been registered."""

    runs: tuple[RunNews, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()
    """What became of fires that have no run."""


def news_of_job(before: JobState, after: JobState) -> JobNews | None:
    """Compare two states of a job; ``None`` when nothing has happened that is to be told."""
    ledger = tuple(each.entry for each in after.outbox.ledger if each.version > before.version)
    known = {run.run_id: run for run in (*before.active, *before.waiting, *before.catch_up)}
    attempts = {each.attempt.run_id: each.attempt for each in after.outbox.attempts if each.version > before.version}
    runs = tuple(
        _news_of_known_run(known.get(each.run.run_id), each.run, attempts.get(each.run.run_id))
        for each in after.outbox.runs
        # What is new of a redriven run is that somebody has redriven it; its end was told when it came.
        if each.version > before.version and each.run.redriven_by is None
    )
    if not ledger and not runs:
        return None
    return JobNews(tenant=after.tenant, job_id=after.job_id, version=after.version, runs=runs, ledger=ledger)


def news_of_run(before: Run, after: Run, attempt: Attempt | None) -> RunNews:
    """Compare two states of a run, in the workflow that carries it out. ``attempt`` has ended in between."""
    begun = before.started_at is None and after.started_at is not None
    ended = before.status not in FINAL_STATUSES and after.status in FINAL_STATUSES
    return RunNews(
        run=after,
        begun=begun,
        # A run that was dispatched and never began ends with its outcome all the same.
        settled=begun or (ended and after.started_at is None),
        ended=ended,
        attempt=None if attempt is None or attempt.status is AttemptStatus.RUNNING else attempt,
    )


def _news_of_known_run(before: Run | None, after: Run, attempt: Attempt | None) -> RunNews:
    """Compare what a job knew of a run with what it knows now; of a detached one, most is told by its own workflow."""
    new = after.model_copy(update={"status": RunStatus.PENDING, "started_at": None})
    news = news_of_run(before or new, after, attempt)
    if after.detached and (after.outcome is Outcome.RAN or after.workflow_run_id):
        return RunNews(run=news.run, ended=news.ended)
    return news
