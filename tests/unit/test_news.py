"""Who hears news hears each fact once, however often a workflow task is carried out."""

from datetime import UTC, datetime, timedelta

from workers.news import NewsMemory
from workflows.job import LedgerEntry
from workflows.job_news import JobNews, RunNews
from workflows.run import Attempt, AttemptStatus, Outcome, Run, RunStatus

NOON = datetime(2026, 6, 8, 12, tzinfo=UTC)


def told(number: int = 0, **fields: object) -> RunNews:
    """What is told of the run of a minute."""
    at = NOON + timedelta(minutes=number)
    run = Run(run_id=f"j:{number}", scheduled_at=at, target_at=at, created_at=at, status=RunStatus.SUCCESS)
    attempt = Attempt(scheduled_at=at, dispatched_at=at, status=AttemptStatus.SUCCESS)
    whole = RunNews(run=run, begun=True, settled=True, ended=True, attempt=attempt)
    return RunNews(**(vars(whole) | fields))


def news(*runs: RunNews, ledger: tuple[LedgerEntry, ...] = (), job_id: str = "j", registered: bool = False) -> JobNews:
    """News of a job."""
    return JobNews(tenant="t", job_id=job_id, version=1, runs=runs, ledger=ledger, registered=registered)


def entry(*, count: int = 1, outcome: Outcome = Outcome.SKIPPED) -> LedgerEntry:
    """A range of fires from noon on."""
    return LedgerEntry(first=NOON, last=NOON + timedelta(minutes=count - 1), count=count, outcome=outcome)


def test_what_is_told_twice_is_heard_once() -> None:
    """A workflow task that was lost after it had told everything."""
    memory = NewsMemory()
    first = news(told(), ledger=(entry(),), registered=True)
    assert memory.keep_new(first) == JobNews(
        tenant="t", job_id="j", version=1, registered=True, ledger=(entry(),), runs=(told(settled=False),)
    )
    again = memory.keep_new(first)
    assert (again.registered, again.ledger) == (False, ())
    assert again.runs == (told(begun=False, settled=False, ended=False, attempt=None),)


def test_other_runs_jobs_and_attempts_are_other_news() -> None:
    """Nothing of them is taken for what was heard."""
    memory = NewsMemory()
    memory.keep_new(news(told()))
    assert memory.keep_new(news(told(1))).runs == (told(1),)
    assert memory.keep_new(news(told(), job_id="k")).runs == (told(),)
    second = Attempt(scheduled_at=NOON, dispatched_at=NOON, status=AttemptStatus.LOST, number=2)
    assert memory.keep_new(news(told(attempt=second))).runs[0].attempt == second


def test_a_range_that_has_grown_counts_what_it_has_grown_by() -> None:
    """The task was carried out again later, and more was missed by then."""
    memory = NewsMemory()
    memory.keep_new(news(ledger=(entry(count=3, outcome=Outcome.MISSED),)))
    [grown] = memory.keep_new(news(ledger=(entry(count=5, outcome=Outcome.MISSED),))).ledger
    assert grown.count == 2


def test_a_fire_has_one_outcome_even_if_another_was_told_first() -> None:
    """Skipped in the task that was lost, run in the one that counts: one fire all the same."""
    memory = NewsMemory()
    memory.keep_new(news(ledger=(entry(),)))
    [run] = memory.keep_new(news(told())).runs
    assert (run.settled, run.begun, run.ended) == (False, True, True)


def test_the_memory_is_bounded() -> None:
    """Facts of long ago are forgotten, and the newest are not."""
    memory = NewsMemory(most=8)
    for number in range(10):
        memory.keep_new(news(told(number)))
    assert memory.keep_new(news(told(9))).runs[0].ended is False
    assert memory.keep_new(news(told(0))).runs[0].ended is True
