"""The code of this checkout takes over from the release before, in the middle of everything: nothing is lost, nothing doubled."""

import json
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from activities.database import open_database
from activities.queries import Queries, RunFilter
from activities.schema import is_current
from tests.api_server import ApiProcess, client_of
from tests.chaos.test_kill_nine import all_decided, grid, nominal_times, slept_the_long_way
from tests.databases import PostgresServer, fresh_database
from tests.eventually import eventually
from tests.integration.test_dev_stack import dev
from tests.release.frozen import RELEASES, REPOSITORY, list_releases
from tests.release.wheel import DISTRIBUTIONS, Installation, install_wheels
from tests.replay.later_release import with_unknown_members, without_free_form
from tests.temporal_servers import connect_to, server_options
from tests.worker_process import WorkerProcess
from tests.workflow.harness import chain_of, is_bug
from workers.devserver import DevServer
from workflows.contracts import JOB_WORKFLOW, WORKFLOW_TASK_TIMEOUT, job_workflow_id, scheduled_run_id
from workflows.job import JobDefinition, JobInput, JobState, LedgerEntry
from workflows.run import Outcome, Run, RunStatus
from workflows.schedule import IntervalRule, Schedule
from workflows.target import DEFAULT_TASK_QUEUE, ActivityTarget

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

CODE = Path(__file__).with_name("upgrade_jobs.py")

OLD, NEW = "old", "new"

TICKERS = {f"ticks-{number}": timedelta(seconds=2) for number in range(20)}
SLEEPERS = {f"sleeps-{number}": timedelta(seconds=5) for number in range(5)}
LATER = {"of-a-later-release": timedelta(seconds=2)}
"""Its state has members that the old release does not know, as after a roll-back."""

OLD_LOGIC = 1
"""Logic version of the old release. It leaves jobs of a later one to the new code."""

PERIODS = TICKERS | SLEEPERS | LATER
RETRYING, DETACHED = "retries", "takes-long"

TEAM = {"of-a-team": timedelta(seconds=2)}
"""Runs on a worker that keeps the old SDK: a team upgrades when it likes."""

TEAM_QUEUE = "team"

SETTINGS = {"activities": "upgrade_jobs", "long_sleep_threshold": "3", "graceful_shutdown": "2"}
"""A job of every five seconds sleeps the long way."""

FIRES_EACH = 3
"""Of each job, in each of the three phases."""


@dataclass(frozen=True)
class Call:
    """A call of job code."""

    job_id: str
    run_id: str
    scheduled_at: datetime
    attempt: int
    by: str
    """``OLD`` or ``NEW``."""


@dataclass
class Installed:
    """Temporal, a database, and the processes of two releases that use them."""

    folder: Path
    database_url: str
    server: DevServer
    old: Installation
    workers: dict[str, WorkerProcess] = field(default_factory=dict)
    apis: dict[str, ApiProcess] = field(default_factory=dict)

    async def start(self, release: str) -> None:
        """Start a worker and the API of a release."""
        folder = self.folder / release
        folder.mkdir()
        shutil.copy(CODE, folder)
        known: dict[str, Any] = {"address": self.server.options.address, "database_url": self.database_url}
        if release == OLD:
            known["python"] = self.old.python
        self.workers[release] = WorkerProcess(folder, **known, **SETTINGS)
        self.apis[release] = ApiProcess(folder, **known)
        await self.workers[release].until_ready()
        await self.apis[release].until_alive()

    async def start_team(self) -> None:
        """Start a worker that runs job code only, with the old SDK."""
        folder = self.folder / "team"
        folder.mkdir()
        shutil.copy(CODE, folder)
        self.workers["team"] = WorkerProcess(
            folder,
            address=self.server.options.address,
            python=self.old.python,
            role="job",
            task_queues=TEAM_QUEUE,
            activities="upgrade_jobs",
        )
        await self.workers["team"].until_ready()

    async def register(self, job_id: str, activity: str, schedule: str, *, by: str, **fields: Any) -> None:
        """Register a job through the API of a release."""
        body = {"job_id": job_id, "name": activity, "schedule": schedule, "time_critical": True} | fields
        async with client_of(self.apis[by].port) as client:
            answer = await client.post("/jobs", json=body)
        assert answer.status_code == 201, answer.text

    def calls(self) -> list[Call]:
        """All calls of job code until now."""
        lines = (self.folder / "sink" / "calls.jsonl").read_text().splitlines()
        return [self._read(json.loads(line)) for line in lines]

    async def until_called(self, jobs: Iterable[str], *, by: str, since: datetime) -> None:
        """Wait until a release has called each of some jobs often enough, for fires since a moment."""

        def have_been() -> bool:
            counted = Counter(each.job_id for each in self.calls() if each.by == by and each.scheduled_at >= since)
            missing = {job_id: counted[job_id] for job_id in jobs if counted[job_id] < FIRES_EACH}
            assert not missing, f"by the {by} release: {missing}"
            return True

        await eventually(have_been, limit=timedelta(seconds=60))

    async def until_called_by_both(self, *, since: datetime) -> None:
        """Wait until both releases have a share in what happens."""

        def have_both() -> bool:
            counted = Counter(each.by for each in self.calls() if each.scheduled_at >= since)
            assert min(counted[OLD], counted[NEW]) >= len(PERIODS), counted
            return True

        await eventually(have_both, limit=timedelta(seconds=60))

    def _read(self, line: dict[str, Any]) -> Call:
        by = OLD if Path(line["code"]).is_relative_to(self.old.folder) else NEW
        at = datetime.fromisoformat(line["scheduled_at"])
        return Call(line["job_id"], line["run_id"], at, line["attempt"], by)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """The last release, from its wheels."""
    released = list_releases(REPOSITORY)
    assert released, "make release-files"
    version = max(released, key=lambda each: [*map(int, each.split("."))])
    wheels = sorted((REPOSITORY / RELEASES / version).glob("*.whl"))
    installation = install_wheels(wheels, tmp_path_factory.mktemp("released") / "environment")
    assert installation.versions() == dict.fromkeys(DISTRIBUTIONS, version)
    assert all(origin.is_relative_to(installation.folder) for origin in installation.origins().values())
    return installation


@pytest.fixture
def database_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A database that the old release finds empty."""
    with fresh_database(postgres_server, template="template1") as url:
        yield url


@pytest.fixture
async def stack(tmp_path: Path, database_url: str, old: Installation) -> AsyncIterator[Installed]:
    """Temporal and the database; nothing of Horarium runs yet."""
    (tmp_path / "sink").mkdir()
    (tmp_path / "sink" / "calls.jsonl").touch()
    server = DevServer(server_options(tmp_path / "temporal"))
    with ExitStack() as cleanup:
        cleanup.callback(server.stop)
        server.wait_until_ready()
        stack = Installed(tmp_path, database_url, server, old)
        yield stack
        for worker in stack.workers.values():
            worker.__exit__()
        for api in stack.apis.values():
            api.__exit__()


async def test_the_new_code_takes_over_from_the_released_one_under_load(stack: Installed) -> None:
    """The old alone, then both side by side, then the new alone; with short and long sleepers, a run that is being retried and
    one in a workflow of its own. Each nominal time has one outcome and one run, and every job goes on."""
    await stack.start(OLD)
    await stack.start_team()
    client = await connect_to(stack.server)
    soon = (datetime.now(UTC) + timedelta(seconds=3)).isoformat(timespec="seconds")
    patient = {"retry_backoff": {"kind": "fixed", "base_seconds": 1}, "max_retries": 1_000}
    await stack.register(RETRYING, "fail_until_mended", soon, by=OLD, **patient)
    await stack.register(
        DETACHED, "work_until_mended", soon, by=OLD, isolation="workflow", heartbeat_timeout_seconds=5, **patient
    )
    for job_id, period in (TICKERS | SLEEPERS).items():
        await stack.register(job_id, "note", f"@every {period.seconds}s", by=OLD)
    for job_id, period in LATER.items():
        await register_of_a_later_release(client, job_id, period)
    for job_id, period in TEAM.items():
        target = {"activity": "note", "task_queue": TEAM_QUEUE}
        await stack.register(job_id, "note", f"@every {period.seconds}s", by=OLD, target=target)
    begun = datetime.now(UTC) + timedelta(seconds=2)
    await stack.until_called([*PERIODS, *TEAM], by=OLD, since=begun)

    await stack.start(NEW)
    await stack.until_called_by_both(since=datetime.now(UTC))
    stack.workers[OLD].process.terminate()
    stack.apis[OLD].process.terminate()
    assert await stack.workers[OLD].ended() == 0
    assert await stack.apis[OLD].ended() == 0

    alone = datetime.now(UTC)
    await stack.until_called(PERIODS, by=NEW, since=alone)
    await stack.until_called(TEAM, by=OLD, since=alone)
    (stack.folder / "sink" / "mended").touch()
    await check(stack, client, begun=begun, ended=datetime.now(UTC))


async def test_a_stack_on_one_machine_goes_on_after_an_upgrade(tmp_path: Path, old: Installation) -> None:
    """``horarium dev`` of the old release leaves its data; that of the new one finds the jobs there, and their history."""
    with dev(tmp_path, command=old.command) as stack:
        await stack.until_said("every-15-seconds         success")
        before = await stack.api("GET", "/jobs/every-15-seconds/runs")
        stack.process.send_signal(signal.SIGTERM)
        assert await stack.ended() == 0
    stack.output.unlink()
    with dev(tmp_path) as stack:
        await stack.until_said("every-15-seconds         success")
        assert "Registered" not in stack.said
        after = await stack.api("GET", "/jobs/every-15-seconds/runs")
        stack.process.send_signal(signal.SIGTERM)
        assert await stack.ended() == 0
    assert {run["run_id"] for run in before} < {run["run_id"] for run in after}
    engine = open_database(f"sqlite:///{tmp_path}/data/horarium.sqlite")
    assert await is_current(engine)
    await engine.dispose()


async def check(stack: Installed, client: Client, *, begun: datetime, ended: datetime) -> None:
    """Hold what SQL, the jobs' own notes and the histories say to each other."""
    engine = open_database(stack.database_url)
    queries = Queries(engine)
    try:
        assert await is_current(engine), "the old database was migrated"
        for job_id, period in (PERIODS | TEAM).items():
            expected = grid(begun, ended, period)
            entries = await eventually(partial(all_decided, queries, job_id, expected), limit=timedelta(seconds=60))
            check_ledger(entries, expected, period)
            calls = [call for call in stack.calls() if call.job_id == job_id]
            await check_runs(queries, job_id, calls, ended=ended)
            assert {call.by for call in calls} == ({OLD} if job_id in TEAM else {OLD, NEW})
        for job_id in (RETRYING, DETACHED):
            run = await eventually(partial(the_success, queries, job_id), limit=timedelta(seconds=60))
            by = [call.by for call in stack.calls() if call.run_id == run.run_id]
            assert (by[0], by[-1]) == (OLD, NEW), "between them, either"
            assert run.attempt == len(by)
    finally:
        await queries.close()
        await engine.dispose()
    for job_id in SLEEPERS:
        assert await slept_the_long_way(client, job_id)
    for job_id in (*PERIODS, RETRYING, DETACHED):
        for history in await chain_of(client, job_workflow_id(tenant="default", job_id=job_id)):
            assert not [event for event in history.events if is_bug(event) and not is_left_to_the_new(event)]


def is_left_to_the_new(event: HistoryEvent) -> bool:
    """Whether a worker of the old release was asked for a decision that only the new one can make."""
    reason = event.workflow_task_failed_event_attributes.failure.message
    return reason.startswith(f"This worker knows logic version {OLD_LOGIC};")


def check_ledger(entries: list[LedgerEntry], expected: list[datetime], period: timedelta) -> None:
    """Every nominal time has one outcome. Most ran; on a busy machine some meet the run before, or come together."""
    times = nominal_times(entries, period)
    assert len(times) == len({*times}), "one outcome each"
    assert {*expected} <= {*times}, "none lost"
    outcomes = Counter(outcome for entry in entries for outcome in [entry.outcome] * entry.count)
    assert {*outcomes} <= {Outcome.RAN, Outcome.SKIPPED, Outcome.COALESCED}, outcomes
    assert outcomes[Outcome.RAN] > sum(outcomes.values()) / 2, outcomes


async def check_runs(queries: Queries, job_id: str, calls: list[Call], *, ended: datetime) -> None:
    """Each run has the name of its nominal time, and was called once in each of its attempts, by whichever release."""
    page = await queries.list_runs("default", job_id, RunFilter(), limit=1000)
    runs = {each.record.run.run_id: each.record.run for each in page.items if each.record.run.scheduled_at <= ended}
    assert {*runs} == {scheduled_run_id(job_id=job_id, nominal=run.scheduled_at) for run in runs.values()}
    assert {run.status for run in runs.values()} == {RunStatus.SUCCESS}
    attempts = Counter((call.run_id, call.attempt) for call in calls)
    assert {*attempts.values()} == {1}
    assert {*runs} <= {call.run_id for call in calls}


async def the_success(queries: Queries, job_id: str) -> Run:
    """The one run of a job, once it has succeeded."""
    page = await queries.list_runs("default", job_id, RunFilter())
    [run] = [each.record.run for each in page.items]
    assert run.status is RunStatus.SUCCESS, run
    return run


async def register_of_a_later_release(client: Client, job_id: str, period: timedelta) -> None:
    """Start a job whose state says more than the present release can read."""
    now = datetime.now(UTC)
    definition = JobDefinition(
        name="note",
        schedule=Schedule(rule=IntervalRule(every=period), jitter_window_seconds=0),
        target=ActivityTarget(activity="note"),
    )
    version = int(now.timestamp() * 1_000_000)
    state = JobState(job_id=job_id, definition=definition, registered_at=now, high_water=now, version=version)
    given = JobInput(state=state, logic_version=OLD_LOGIC).model_dump(mode="json")
    await client.start_workflow(
        JOB_WORKFLOW,
        with_unknown_members(without_free_form(given)),
        id=job_workflow_id(tenant=state.tenant, job_id=job_id),
        task_queue=DEFAULT_TASK_QUEUE,
        task_timeout=WORKFLOW_TASK_TIMEOUT,
    )
