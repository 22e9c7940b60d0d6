"""Temporal's data is lost: every job goes on from SQL, nothing runs twice, and what was missed follows its policy."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

from activities.backfill_control import BackfillControl
from activities.job_control import JobControl
from activities.queries import Queries, RunFilter
from activities.redrive import Redriver
from tests.chaos.stack import STOP_AT_ONCE, Stack, register
from tests.chaos.test_kill_nine import grid, nominal_times
from tests.eventually import eventually
from tests.worker_process import environment
from workers.devserver import DevServer
from workflows.backfill import BackfillState, first_record
from workflows.backfill_record import BackfillRecord, BackfillStatus
from workflows.command import ChangeCommand
from workflows.contracts import job_workflow_id
from workflows.job import CatchUpPolicy, JobDefinition, LedgerEntry, RetryPolicy
from workflows.revival import CLUSTER_LOST
from workflows.run import FINAL_STATUSES, Outcome, Run, RunStatus
from workflows.schedule import IntervalRule, OneOffRule, Rule, Schedule
from workflows.target import ActivityTarget

pytestmark = pytest.mark.slow

CODE = Path(__file__).parents[1] / "integration" / "failing_jobs.py"

SECOND = timedelta(seconds=1)

FAST, CATCHING_UP, SLEEPER, LONG_RUN = "fast", "catching-up", "sleeper", "long-run"

BACKFILLED = "backfilled"
NIGHT = datetime(2026, 6, 1, tzinfo=UTC)
HOURS = 15
"""Fires of the backfill: one in two seconds, so that the loss falls into it."""


def job(rule: Rule, log: Path, *, how: str = "fine", **fields: Any) -> JobDefinition:
    """A job whose calls are counted in a file; whatever fails it is not tried again."""
    return JobDefinition.model_validate(
        {
            "name": "break_down",
            "schedule": Schedule(rule=rule, jitter_window_seconds=0),
            "target": ActivityTarget(activity="break_down"),
            "payload": {"log": str(log), "how": how},
            "retry": RetryPolicy(max_attempts=1),
            "heartbeat_timeout": timedelta(seconds=5),
        }
        | fields
    )


def calls_in(log: Path) -> Counter[str]:
    """How often each run was really called."""
    return Counter(json.loads(line)["run_id"] for line in log.read_text().splitlines())


@pytest.fixture
async def stack(tmp_path: Path, postgresql_url: str) -> AsyncIterator[Stack]:
    """A scheduler worker and a job worker, whose code counts its calls."""
    stack = Stack(tmp_path, database_url=postgresql_url, long_sleep_threshold="5", activities="team_jobs")
    try:
        for name, role in (("scheduler", "scheduler"), ("job", "job")):
            (tmp_path / name).mkdir()
            shutil.copy(CODE, tmp_path / name / "team_jobs.py")
            await stack.start_worker(name, role=role)
        yield stack
    finally:
        stack.stop()


@pytest.mark.timeout(240)
async def test_every_job_is_restored_and_nothing_runs_twice(
    stack: Stack, queries: Queries, tmp_path: Path, postgresql_url: str
) -> None:
    """Jobs on timers, asleep, amid a run and amid a backfill of what the job was before; the server dies with its disk, and comes
    back empty 8 s later."""
    log = tmp_path / "calls.jsonl"
    log.touch()
    client = await stack.connect()
    started = datetime.now(UTC)
    policies: dict[CatchUpPolicy, dict[str, Any]] = {
        policy: {"missed_window": policy, "misfire_grace": SECOND, "catch_up_rate": 600} for policy in CatchUpPolicy
    }
    await register(client, FAST, job(IntervalRule(every=SECOND), log, **policies[CatchUpPolicy.SKIP]))
    await register(client, CATCHING_UP, job(IntervalRule(every=2 * SECOND), log, **policies[CatchUpPolicy.RUN_ALL]))
    await register(client, SLEEPER, job(IntervalRule(every=15 * SECOND), log))
    at = started.replace(microsecond=0) + 2 * SECOND
    await register(client, LONG_RUN, job(OneOffRule(at=at), log, how="timeout", timeout=timedelta(minutes=2)))
    await register(client, BACKFILLED, job(IntervalRule(every=timedelta(hours=1)), log))
    asked = await begin_backfill(client, job(IntervalRule(every=timedelta(hours=1)), log))
    await eventually(lambda: is_running(queries, LONG_RUN))
    await eventually(lambda: successes(queries, FAST, at_least=6))
    await eventually(lambda: successes(queries, BACKFILLED, at_least=2))
    await change(client, BACKFILLED, job(IntervalRule(every=timedelta(hours=2)), log, how="permanent"))
    await eventually(lambda: has_revision(queries, BACKFILLED, 2))

    lost_at = await lose_temporal(stack)
    await asyncio.sleep(8)
    await start_empty(stack)
    client = await stack.connect()

    dry = await restore(stack, postgresql_url, lost_at, "--dry-run")
    assert (dry["started"], dry["untouched"], dry["tidied"], dry["backfills"]) == (4, 0, 1, 1)
    assert not await is_open(client, FAST)
    restoring = datetime.now(UTC)
    report = await restore(stack, postgresql_url, lost_at)
    assert (report["started"], report["untouched"], report["tidied"], report["failed"]) == (4, 0, 1, [])
    assert (report["backfills"], report["ended_backfills"]) == (1, 0)
    assert report["lost_runs"] >= 1
    again = await restore(stack, postgresql_url, lost_at)
    assert (again["started"], again["untouched"], again["lost_runs"], again["in_doubt"]) == (0, 4, 0, 0)
    assert again["backfills"] == 0

    restored = datetime.now(UTC)
    for job_id, period in ((FAST, SECOND), (CATCHING_UP, 2 * SECOND), (SLEEPER, 15 * SECOND)):
        expected = grid(started + timedelta(seconds=3), restored + timedelta(seconds=5), period)
        entries = await eventually(
            lambda job_id=job_id, expected=expected: all_decided(queries, job_id, expected),  # type: ignore[misc]
            limit=timedelta(seconds=60),
        )
        times = nominal_times(entries, period)
        assert len(times) == len(set(times)), "one outcome each"
        assert set(expected) <= set(times), stack.logs()
    await check_policies(queries, lost_at=lost_at, restoring=restoring)
    await check_counts(queries, log)
    await check_backfill(queries, asked, log)

    [long_run] = await runs_of(queries, LONG_RUN)
    assert (long_run.status, long_run.outcome) == (RunStatus.DEAD, Outcome.RAN)
    assert (long_run.reason or "").startswith(CLUSTER_LOST)
    log.with_name("mended").touch()
    redriver = Redriver(queries=queries, control=JobControl(client, find_search_attributes=all_known))
    redrive = await redriver.redrive(long_run.run_id, tenant="default")
    await eventually(lambda: successes(queries, LONG_RUN, at_least=1))
    calls = calls_in(log)
    assert (calls[long_run.run_id], calls[redrive.run_id]) == (1, 1)
    print(
        f"\n{(restoring - lost_at).total_seconds():.0f} s without Temporal: {report['started']} jobs and {report['backfills']} "
        f"backfill restored, {report['lost_runs']} runs lost, {report['in_doubt']} in doubt; {len(calls)} runs called, once each"
    )


async def begin_backfill(client: Client, definition: JobDefinition) -> BackfillRecord:
    """Ask for a backfill, as the API does."""
    times = {"start": NIGHT, "end": NIGHT + (HOURS - 1) * timedelta(hours=1), "requested_at": datetime.now(UTC)}
    about = {"tenant": "default", "job_id": BACKFILLED, "backfill_id": "night", "total": HOURS, "rate_per_minute": 30}
    record = first_record(BackfillRecord.model_validate(about | times))
    await BackfillControl(client).begin(BackfillState(record=record, definition=definition))
    return record


async def change(client: Client, job_id: str, definition: JobDefinition) -> None:
    """Give a job another definition, as the API does."""
    control = JobControl(client, find_search_attributes=all_known)
    await control.change(ChangeCommand(key="change", definition=definition), tenant="default", job_id=job_id)


async def has_revision(queries: Queries, job_id: str, revision: int) -> bool:
    """Whether the mirror knows of a change."""
    record = await queries.get_job("default", job_id)
    return record is not None and record.revision == revision


async def check_backfill(queries: Queries, asked: BackfillRecord, log: Path) -> None:
    """It comes to its end: every fire has one run, which was called once, or is a dead letter of the loss. None ran as the job
    is now, which would have failed it, and has half of the fires."""

    async def is_done() -> BackfillRecord:
        found = await queries.get_backfill("default", asked.backfill_id)
        assert found is not None
        assert found.status is BackfillStatus.DONE, found
        return found

    done = await eventually(is_done, limit=timedelta(seconds=90))
    runs = await runs_of(queries, BACKFILLED)
    assert Counter(run.scheduled_at for run in runs) == Counter(NIGHT + n * timedelta(hours=1) for n in range(HOURS))
    dead = [run for run in runs if run.status is RunStatus.DEAD]
    assert all((run.reason or "").startswith(CLUSTER_LOST) for run in dead), dead
    # One at a time: what was under way, or may have been.
    assert len(dead) <= 1
    assert (done.succeeded, done.dead, done.skipped) == (HOURS - len(dead), len(dead), 0)
    calls = calls_in(log)
    assert {calls[run.run_id] for run in runs if run.status is RunStatus.SUCCESS} == {1}


async def all_known() -> bool:
    """The server was started with our search attributes."""
    return True


async def check_policies(queries: Queries, *, lost_at: datetime, restoring: datetime) -> None:
    """What fell due while there was no Temporal was caught up by the one job, and missed by the other."""
    gap = set(grid(lost_at + SECOND, restoring - 2 * SECOND, 2 * SECOND))
    assert len(gap) >= 3
    caught_up = {run.scheduled_at for run in await runs_of(queries, CATCHING_UP) if run.status is RunStatus.SUCCESS}
    assert gap <= caught_up
    entries = (await queries.list_ledger("default", FAST, limit=1000)).items
    missed: list[LedgerEntry] = [entry for entry in entries if entry.outcome is Outcome.MISSED]
    assert gap <= set(nominal_times(missed, SECOND))


async def check_counts(queries: Queries, log: Path) -> None:
    """No run was called twice; what succeeded was called once, and its fence is above all before it."""
    calls = calls_in(log)
    assert max(calls.values()) == 1, calls.most_common(3)
    for job_id in (FAST, CATCHING_UP, SLEEPER):
        runs = await runs_of(queries, job_id)
        assert {run.run_id for run in runs if run.status is RunStatus.SUCCESS} <= set(calls)
        dispatched = sorted((run for run in runs if run.fence), key=when_dispatched)
        fences = [run.fence for run in dispatched]
        assert fences == sorted(set(fences))
        dead = [run for run in runs if run.status is RunStatus.DEAD]
        assert all((run.reason or "").startswith(CLUSTER_LOST) for run in dead), dead
        record = await queries.get_job("default", job_id)
        assert record is not None
        assert record.counts.dead == len(dead)


def when_dispatched(run: Run) -> tuple[datetime, int]:
    """Order runs as they were dispatched; those of one moment by their fences, which have to be different all the same."""
    return run.dispatched_at or run.created_at, run.fence


async def lose_temporal(stack: Stack) -> datetime:
    """``kill -9``, and its data with it."""
    stack.server.process.kill()
    lost_at = datetime.now(UTC)
    await asyncio.to_thread(stack.server.process.stop, grace=STOP_AT_ONCE)
    shutil.rmtree(stack.server.options.data_dir)
    return lost_at


async def start_empty(stack: Stack) -> None:
    """A new server at the same address."""
    server = DevServer(stack.server.options)
    await asyncio.to_thread(server.wait_until_ready)
    stack.server = server


async def restore(stack: Stack, database_url: str, lost_at: datetime, *options: str) -> dict[str, Any]:
    """``horarium restore``, as an operator runs it."""
    command = [sys.executable, "-P", "-c", "from api.cli import main; main()", "restore", "--json"]
    done = await asyncio.to_thread(
        subprocess.run,
        [*command, "--lost-at", lost_at.isoformat(), *options],
        env=environment({"database_url": database_url}) | {"TEMPORAL_ADDRESS": stack.address},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


async def is_open(client: Client, job_id: str) -> bool:
    """Whether Temporal has the job."""
    try:
        shown = await client.get_workflow_handle(job_workflow_id(tenant="default", job_id=job_id)).describe()
    except RPCError:
        return False
    return shown.status is WorkflowExecutionStatus.RUNNING


async def runs_of(queries: Queries, job_id: str) -> list[Run]:
    """All runs of a job in the mirror."""
    page = await queries.list_runs("default", job_id, RunFilter(), limit=1000)
    return [each.record.run for each in page.items]


async def is_running(queries: Queries, job_id: str) -> bool:
    """Whether the mirror shows a run of the job under way."""
    return any(run.status is RunStatus.RUNNING for run in await runs_of(queries, job_id))


async def successes(queries: Queries, job_id: str, *, at_least: int) -> bool:
    """Whether so many runs of a job have succeeded."""
    return sum(run.status is RunStatus.SUCCESS for run in await runs_of(queries, job_id)) >= at_least


async def all_decided(queries: Queries, job_id: str, expected: list[datetime]) -> list[LedgerEntry]:
    """The ledger, once it reaches the last expected time and no run up to there is under way."""
    page = await queries.list_ledger("default", job_id, limit=1000)
    assert page.next is None
    entries: list[LedgerEntry] = list(page.items)
    assert entries, "nothing is in the ledger yet"
    assert entries[-1].last >= expected[-1], entries[-1]
    open_runs = [run for run in await runs_of(queries, job_id) if run.status not in FINAL_STATUSES]
    assert not [run for run in open_runs if run.scheduled_at <= expected[-1]], open_runs
    return entries
