"""What a time without schedulers has to leave behind: an outcome for each fire of it, by the policy of its job."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from activities.queries import Queries, RunFilter
from tests.chaos.test_kill_nine import nominal_times
from workflows.job import CatchUpPolicy, JobDefinition, LedgerEntry
from workflows.run import FINAL_STATUSES, Outcome, Run, RunKind


def aligned(moment: datetime, period: timedelta) -> datetime:
    """The last nominal time before."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return epoch + (moment - epoch) // period * period


async def all_told(
    queries: Queries, job_id: str, until: datetime, period: timedelta
) -> tuple[list[Run], list[LedgerEntry]]:
    """Runs and ledger of a job, once every fire up to a time has ended in them."""
    runs = [each.record.run for each in (await queries.list_runs("default", job_id, RunFilter(), limit=1000)).items]
    entries: list[LedgerEntry] = list((await queries.list_ledger("default", job_id, limit=1000)).items)
    assert entries, f"{job_id}: nothing is told yet"
    assert max(entry.last for entry in entries) >= aligned(until, period) - period, f"{job_id}: {entries[-1]}"
    still = [run for run in runs if run.status not in FINAL_STATUSES and (run.target_at <= until)]
    assert not still, f"{job_id}: {len(still)} runs have not ended, such as {still[0]}"
    return [run for run in runs if run.status in FINAL_STATUSES], entries


def check_counts(
    definition: JobDefinition,
    runs: list[Run],
    entries: list[LedgerEntry],
    *,
    period: timedelta,
    after: datetime,
    until: datetime,
    missed: int,
) -> None:
    """Every nominal time after ``after`` has one outcome, and those that were missed, so many at least, that of the policy."""
    told = Counter(nominal_times(entries, period))
    assert max(told.values()) == 1, "one outcome each"
    expected = {after + period * n for n in range(1, (aligned(until, period) - after) // period)}
    assert expected <= set(told)
    assert min(told) == after + period, "nothing was decided again"
    outcomes = count_outcomes(entries)
    caught_up = [run for run in runs if run.kind is RunKind.CATCH_UP]
    match definition.missed_window:
        case CatchUpPolicy.SKIP | CatchUpPolicy.DEADLINE:
            assert outcomes[Outcome.MISSED] >= missed
            assert caught_up == []
        case CatchUpPolicy.RUN_ONCE:
            assert max(run.stands_for for run in caught_up) >= missed
            assert outcomes[Outcome.COALESCED] == sum(run.stands_for - 1 for run in caught_up)
        case CatchUpPolicy.RUN_ALL:
            assert len(caught_up) >= definition.max_missed
            assert outcomes[Outcome.DROPPED] >= missed - definition.max_missed
    assert {run.scheduled_at for run in runs if run.outcome is Outcome.RAN} <= set(told)


def count_outcomes(entries: list[LedgerEntry]) -> Counter[Outcome]:
    """Count the fires that the entries tell, by their outcome."""
    outcomes = Counter[Outcome]()
    for entry in entries:
        outcomes[entry.outcome] += entry.count
    return outcomes


def check_rate_of_job(caught_up: list[Run], *, per_minute: int) -> None:
    """It starts its catch-up runs no faster than it may."""
    starts = sorted(run.dispatched_at for run in caught_up if run.dispatched_at)
    shortest = timedelta(minutes=1) / per_minute
    assert all(later - earlier >= 0.9 * shortest for earlier, later in pairwise(starts)), starts
