"""What is told of fires and runs: everything once, whoever tells it and however often a turn is taken."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.job_driver import JobDriver, at, run_id
from tests.unit.test_turn import drive
from workflows.job import JobState
from workflows.job_news import JobNews, news_of_job, news_of_run
from workflows.run import AttemptStatus, Failure, Outcome, Run, RunStatus
from workflows.turn import Turn


class ToldDriver(JobDriver):
    """A job whose workflow tells its news."""

    told: JobState | None = None

    def __init__(self, seconds: int, *, not_in_minutes: str | None = None, **fields: object) -> None:
        other = drive(seconds, not_in_minutes=not_in_minutes, **fields)
        self.news: list[JobNews] = []
        super().__init__(other.definition, grid=other.grid)
        self.told = self.state
        self.wake()

    def report(self, ended: Run) -> None:
        """Let the workflow of a detached run tell what it has seen, and report."""
        news = news_of_run(self.out[ended.run_id], ended, None)
        self.news.append(JobNews(tenant="default", job_id="grid", version=1, runs=(news,)))
        super().report(ended)

    def answer(self, run: Run, status: RunStatus, **fields: object) -> None:
        """End a run, wherever it is carried out."""
        if run.detached:
            self.report(run.model_copy(update={"status": status, "finished_at": self.now, **fields}))
        else:
            success = status is RunStatus.SUCCESS
            self.end(run.run_id, AttemptStatus.SUCCESS if success else AttemptStatus.CANCELLED, **fields)

    def _carry_out(self, turn: Turn) -> None:
        super()._carry_out(turn)
        assert self.told is not None
        news = news_of_job(self.told, self.state)
        self.told = self.state
        if news is not None:
            self.news.append(news)

    def fires(self) -> Counter[Outcome]:
        """Count the fires that were told, by outcome, as the metrics do."""
        counts = Counter[Outcome]()
        for news in self.news:
            for entry in news.ledger:
                counts[entry.outcome] += entry.count
            for told in news.runs:
                if told.settled:
                    counts[Outcome.RAN if told.begun else told.run.outcome] += 1
        return counts

    def ended(self) -> Counter[RunStatus]:
        """Count the runs that were told to have ended."""
        return Counter(told.run.status for news in self.news for told in news.runs if told.ended)

    def attempts(self) -> Counter[AttemptStatus]:
        """Count the attempts that were told to have ended."""
        return Counter(told.attempt.status for news in self.news for told in news.runs if told.attempt is not None)


def test_a_run_is_told_when_it_has_begun_and_when_it_has_ended() -> None:
    """A run that answers at once: all in one."""
    driver = ToldDriver(60)
    driver.go_to(at(60))
    assert driver.news == []
    driver.now = at(61)
    driver.end(run_id(60), started_at=at(60.5))
    [news] = driver.news
    [told] = news.runs
    assert (told.begun, told.settled, told.ended, told.run.started_at) == (True, True, True, at(60.5))
    assert told.attempt is not None
    assert told.attempt.number == 1
    assert (driver.fires(), driver.ended()) == (Counter({Outcome.RAN: 1}), Counter({RunStatus.SUCCESS: 1}))


def test_retries_are_attempts_and_neither_fires_nor_runs() -> None:
    """A run of three attempts that dies is one fire that ran, and one dead run."""
    driver = ToldDriver(3600, retry={"max_attempts": 3})
    driver.go_to(at(3600))
    for _ in range(3):
        driver.end(run_id(3600), AttemptStatus.FAILED, failure=Failure(type="ValueError"), started_at=driver.now)
        driver.go_to(driver.now + timedelta(seconds=30))
    assert driver.attempts() == Counter({AttemptStatus.FAILED: 3})
    assert driver.fires() == Counter({Outcome.RAN: 1})
    assert driver.ended() == Counter({RunStatus.DEAD: 1})


def test_a_run_that_no_worker_took_ends_with_its_outcome() -> None:
    """It never began, and its fire is not lost from the sum."""
    driver = ToldDriver(60)
    driver.go_to(at(60))
    driver.end(run_id(60), AttemptStatus.TIMED_OUT, not_started=True, failure=Failure(type="not_started"))
    assert driver.fires() == Counter({Outcome.FAILED_TO_START: 1})
    assert driver.ended() == Counter({RunStatus.DEAD: 1})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"missed_window": "SKIP"}, {Outcome.MISSED: 9}),
        ({"missed_window": "RUN_ONCE"}, {Outcome.COALESCED: 9}),
        ({"missed_window": "RUN_ALL", "max_missed": 4}, {Outcome.DROPPED: 5}),
    ],
)
def test_missed_fires_are_told_by_what_became_of_them(fields: dict[str, Any], expected: dict[Outcome, int]) -> None:
    """SB-041: ten minutes away, with a grace of one; those that get a run are told with their run."""
    driver = ToldDriver(60, **fields)
    driver.be_away(timedelta(seconds=60 * 10 + 30))
    assert driver.fires() == Counter(expected)


@pytest.mark.parametrize("overlap", ["skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other", "allow"])
def test_what_is_told_is_what_the_ledger_and_the_runs_say(overlap: str) -> None:
    """SB-165: due = ran + skipped + missed + ..., each fire once: through an outage, overlaps, a failure and the job's end."""
    driver = ToldDriver(60, not_in_minutes="7", overlap=overlap, retry={"max_attempts": 2}, missed_window="RUN_ALL")
    driver.go_to(at(70))
    [first] = driver.live()
    driver.end(first.run_id, AttemptStatus.FAILED, failure=Failure(type="ValueError"))
    driver.go_to(at(200))
    driver.be_away(timedelta(minutes=20))
    for second in range(1500, 2400, 40):
        driver.go_to(at(second))
        for active in [run for run in driver.live() if run.run_id in driver.out]:
            driver.answer(active, RunStatus.SUCCESS, started_at=driver.now)
    driver.delete(cancel_active=True)
    for active in [*driver.out.values()]:
        driver.answer(active, RunStatus.CANCELLED)
    assert driver.state.active == ()
    assert driver.fires() == Counter(driver.outcomes().values())
    assert driver.ended() == Counter(run.status for _, run in driver.mirror.runs.values())
    assert driver.attempts().total() == len(driver.mirror.attempts)


def test_the_job_leaves_the_telling_of_a_detached_run_to_its_workflow() -> None:
    """Nothing of it is told twice."""
    driver = ToldDriver(60, isolation="workflow")
    driver.go_to(at(60))
    [run] = driver.state.active
    assert run.detached
    ended = run.model_copy(update={"status": RunStatus.SUCCESS, "started_at": at(60), "finished_at": at(61)})
    driver.now = at(61)
    JobDriver.report(driver, ended)
    assert driver.news == []


def test_the_workflow_of_a_run_tells_each_thing_once() -> None:
    """Seen to run after two seconds, failed, tried again, succeeded."""
    waiting = Run(run_id="j:1", scheduled_at=at(0), target_at=at(0), created_at=at(0), attempt=1)
    running = waiting.model_copy(update={"status": RunStatus.RUNNING, "started_at": at(1)})
    retrying = running.model_copy(update={"status": RunStatus.RETRYING})
    done = retrying.model_copy(update={"status": RunStatus.SUCCESS, "finished_at": at(9)})
    told = [
        news_of_run(before, after, None)
        for before, after in ((waiting, running), (running, retrying), (retrying, done))
    ]
    assert [(news.begun, news.settled, news.ended) for news in told] == [
        (True, True, False),
        (False, False, False),
        (False, False, True),
    ]


def test_nothing_is_told_when_nothing_has_happened() -> None:
    """A job that only plans and sleeps has no news."""
    driver = ToldDriver(3600)
    driver.go_to(at(3599))
    assert driver.news == []
    assert news_of_job(driver.state, driver.state) is None
