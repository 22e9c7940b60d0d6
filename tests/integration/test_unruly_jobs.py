"""Job code that does what it must not: each run fails clearly and alone, and whatever runs beside it ends well."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from activities.database import open_database
from activities.queries import Queries, RecordedRun, RunFilter
from tests.chaos.stack import Stack, register
from tests.eventually import eventually
from workflows.job import Backoff, JobDefinition, RetryPolicy
from workflows.run import AttemptStatus, RunStatus
from workflows.schedule import OneOffRule, Schedule
from workflows.target import ActivityTarget

pytestmark = pytest.mark.asyncio(loop_scope="module")

JOB_CODE = '''
"""Jobs as nobody should write them, and well-behaved ones beside them."""

import asyncio
import os
import time

from temporalio import activity

from horarium import current_run

RAISED = {"SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt, "GeneratorExit": GeneratorExit}


@activity.defn
async def give_back(what: str) -> object:
    """Return what cannot be kept."""
    return float("nan") if what == "nan" else "x" * 3_000_000


@activity.defn
async def leave(how: str) -> None:
    """Raise what is no error."""
    raise RAISED[how]("by the job")


@activity.defn
def leave_thread(how: str) -> None:
    """The same, in a thread."""
    raise RAISED[how]("by the job")


@activity.defn
async def block(seconds: float) -> None:
    """Hold up everything that shares the event loop."""
    time.sleep(seconds)


@activity.defn
async def exit_process() -> int:
    """End the worker at the first attempt, without a word."""
    if current_run().attempt == 1:
        os._exit(3)
    return os.getpid()


@activity.defn
async def behave(seconds: float) -> int:
    """Take a while."""
    await asyncio.sleep(seconds)
    return os.getpid()
'''

FIRST = timedelta(seconds=3)
"""When most jobs run: all are registered by then."""

SECOND = timedelta(seconds=10)
"""When a worker ends: the others are through."""

BLOCKED_SECONDS = 4
HEARTBEAT_TIMEOUT = timedelta(seconds=2)
"""Of what is noticed by its missing heartbeats."""

NEIGHBOURS = 4
ONE_ATTEMPT = RetryPolicy(max_attempts=1)
AGAIN = RetryPolicy(max_attempts=3, backoff=Backoff.FIXED, base=timedelta(milliseconds=1))
ENDED_WITHIN = timedelta(seconds=40)


def once(activity: str, *, after: timedelta = FIRST, **fields: Any) -> JobDefinition:
    """A job that runs once."""
    at = datetime.now(UTC).replace(microsecond=0) + after
    values = {
        "name": activity,
        "schedule": Schedule(rule=OneOffRule(at=at), jitter_window_seconds=0),
        "target": ActivityTarget(activity=activity),
        "retry": ONE_ATTEMPT,
    }
    return JobDefinition.model_validate(values | fields)


def all_jobs() -> dict[str, JobDefinition]:
    """By the names that the tests use."""
    jobs = {f"returns-{what}": once("give_back", payload=what, retry=AGAIN) for what in ("nan", "megabytes")}
    for how in ("SystemExit", "KeyboardInterrupt", "GeneratorExit"):
        jobs |= {f"{name}-{how}": once(name, payload=how) for name in ("leave", "leave_thread")}
    jobs["blocks"] = once("block", payload=BLOCKED_SECONDS, heartbeat_timeout=HEARTBEAT_TIMEOUT)
    jobs["exits"] = once("exit_process", after=SECOND, heartbeat_timeout=HEARTBEAT_TIMEOUT, retry=AGAIN)
    for number in range(NEIGHBOURS):
        jobs[f"beside-blocked-{number}"] = once("behave", payload=2)
        early = SECOND - timedelta(seconds=1)
        fields = {"payload": 4, "heartbeat_timeout": HEARTBEAT_TIMEOUT, "retry": AGAIN}
        jobs[f"beside-exited-{number}"] = once("behave", after=early, **fields)
    return jobs


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> AsyncIterator[Stack]:
    """A scheduler worker and two job workers, with all jobs registered."""
    folder = tmp_path_factory.mktemp("unruly")
    database = shutil.copy(sqlite_template, folder / "horarium.sqlite")
    stack = Stack(folder, database_url=f"sqlite:///{database}", activities="unruly_jobs")
    try:
        for name in ("scheduler", "job-1", "job-2"):
            (folder / name).mkdir()
            (folder / name / "unruly_jobs.py").write_text(JOB_CODE)
        roles = {"scheduler": "scheduler", "job-1": "job", "job-2": "job"}
        await asyncio.gather(*(stack.start_worker(name, role=role) for name, role in roles.items()))
        client = await stack.connect()
        for job_id, definition in all_jobs().items():
            await register(client, job_id, definition)
        yield stack
    finally:
        stack.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def ended(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator["Ended"]:
    """Reads of what became of the runs."""
    engine = open_database(stack.database_url)
    queries = Queries(engine)
    yield Ended(queries)
    await queries.close()
    await engine.dispose()


class Ended:
    """Looks runs up when they have ended."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

    async def run_of(self, job_id: str) -> RecordedRun:
        """Wait for the end of a job's only run."""

        async def look() -> RecordedRun:
            page = await self._queries.list_runs("default", job_id, RunFilter(), limit=10, include_attempts=True)
            [found] = page.items or [None]
            assert found is not None, f"{job_id} has not run"
            assert found.record.run.finished_at is not None, found
            return found

        return await eventually(look, limit=ENDED_WITHIN)

    async def runs_of(self, job_ids: Iterable[str]) -> list[RecordedRun]:
        """Wait for several."""
        return [await self.run_of(job_id) for job_id in job_ids]


@pytest.mark.parametrize(
    ("what", "message"), [("nan", "cannot be written as JSON"), ("megabytes", "at most 1,048,576")]
)
async def test_a_result_that_cannot_be_kept_fails_its_run_for_good(ended: Ended, what: str, message: str) -> None:
    """3 MB, or NaN: it would be the same again, so there is one attempt and the reason."""
    found = await ended.run_of(f"returns-{what}")
    run = found.record.run
    assert (run.status, len(found.attempts)) == (RunStatus.DEAD, 1)
    assert run.failure is not None
    assert run.failure.type == "PermanentError"
    assert message in run.failure.message


@pytest.mark.parametrize("function", ["leave", "leave_thread"])
@pytest.mark.parametrize("how", ["SystemExit", "KeyboardInterrupt", "GeneratorExit"])
async def test_an_exception_that_is_no_error_fails_its_run(stack: Stack, ended: Ended, function: str, how: str) -> None:
    """It ends the attempt, at once and with its name, and not the worker."""
    run = (await ended.run_of(f"{function}-{how}")).record.run
    assert (run.status, run.failure and run.failure.type) == (RunStatus.DEAD, how)
    assert run.finished_at is not None
    assert run.finished_at - run.target_at < timedelta(seconds=8), "nothing had to time out"


async def test_code_that_blocks_the_event_loop_loses_its_own_attempt_only(ended: Ended) -> None:
    """It sends no heartbeats meanwhile, and is taken for lost; what runs beside it waits, and ends in its first attempt."""
    found = await ended.run_of("blocks")
    assert found.record.run.status is RunStatus.DEAD
    assert [attempt.status for attempt in found.attempts] == [AttemptStatus.LOST]
    for beside in await ended.runs_of(f"beside-blocked-{number}" for number in range(NEIGHBOURS)):
        assert (beside.record.run.status, len(beside.attempts)) == (RunStatus.SUCCESS, 1)


async def test_code_that_ends_its_process_is_tried_again_elsewhere_and_so_is_what_ran_beside_it(
    stack: Stack, ended: Ended
) -> None:
    """SB-098, ``os._exit``: the missing heartbeats of all its attempts are noticed, and the other worker makes the next ones."""
    found = await ended.run_of("exits")
    assert [attempt.status for attempt in found.attempts] == [AttemptStatus.LOST, AttemptStatus.SUCCESS]
    survivor = found.record.run.result
    [died] = [name for name in ("job-1", "job-2") if stack.worker(name).process.poll() is not None]
    assert stack.worker(died).process.returncode == 3
    assert stack.worker(died).process.pid != survivor
    for beside in await ended.runs_of(f"beside-exited-{number}" for number in range(NEIGHBOURS)):
        [*lost, last] = [attempt.status for attempt in beside.attempts]
        assert (set(lost) <= {AttemptStatus.LOST}, last) == (True, AttemptStatus.SUCCESS)
        assert beside.record.run.result == survivor
