"""Short forms of faults that befall schedulers and Temporal, one after the other on one stack; the long ones stand beside."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median

import pytest
import pytest_asyncio
from temporalio.client import Client
from temporalio.service import RPCError

from activities.database import open_database
from activities.job_control import JobControl
from activities.queries import Queries
from tests.chaos.bank import BANK, HTTP_ALLOW, Bank, all_ended, most_while_down, open_bank, payment
from tests.chaos.downtime import all_told, check_counts, check_rate_of_job, count_outcomes
from tests.chaos.stack import TEMPORAL, Stack, register
from tests.chaos.test_cluster_loss import all_decided, all_known, lose_temporal, restore, start_empty
from tests.chaos.test_kill_at_fire import ATTEMPTS, JOB_CODE, calls_in, is_amid, job, runs_of
from tests.chaos.test_kill_nine import grid, nominal_times
from tests.eventually import eventually
from tests.scrape import scrape
from tests.wrong_clock import clock_of_children
from workers.devserver import free_port
from workflows.admission import VerdictKind
from workflows.command import DeleteCommand
from workflows.contracts import downstream_workflow_id, scheduled_run_id
from workflows.downstream import read_breaker_memo
from workflows.job import CatchUpPolicy, JobDefinition, LedgerEntry, OverlapPolicy
from workflows.run import FINAL_STATUSES, Outcome, Run, RunKind, RunStatus
from workflows.schedule import IntervalRule, OneOffRule

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORKER = "worker"
SECOND_SCHEDULER = "second-scheduler"
"""Beside it, in one of the tests."""

LONG_SLEEP_FROM = "1"
"""Seconds: less than the period, so that each fire ends in a continue-as-new."""

PERIOD = timedelta(seconds=2)
BURST = 20
PUNCTUAL = timedelta(seconds=20)
"""For a busy machine; far less than what the clock is off."""

COUNTED_WITHIN = timedelta(seconds=60)

PAYMENTS = 30
FAILURES_TO_OPEN = 4
BUDGET_FLOOR = 5
OPEN_FOR = timedelta(seconds=2)
RETURN_RATE = 5
A_PROBE_IS_LOST = timedelta(seconds=90)
"""With the scheduler that dies: the next is granted when it has expired, which takes longer than the attempt may."""

SECOND = timedelta(seconds=1)
DOWNTIME = timedelta(seconds=7)
GRACE = timedelta(seconds=2)
MAX_MISSED = 4
"""Less than a job misses in the downtime."""

CATCH_UP_RATE = 60
"""A minute, for each job."""

OUTCOME_OF_MISSED = {
    CatchUpPolicy.SKIP: Outcome.MISSED,
    CatchUpPolicy.DEADLINE: Outcome.MISSED,
    CatchUpPolicy.RUN_ONCE: Outcome.COALESCED,
    CatchUpPolicy.RUN_ALL: Outcome.DROPPED,
}
"""Of those that have no run."""

WHILE_IT_DECIDES = timedelta(seconds=0.03)
"""After a fire is due."""

WHILE_IT_WAITS = timedelta(seconds=0.3)
"""After an attempt that fails: about a second lies between two."""


@pytest.fixture(scope="module")
def sink(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where calls are counted, outside of Horarium."""
    sink = tmp_path_factory.mktemp("sink") / "calls"
    sink.touch()
    return sink


@pytest.fixture(scope="module")
def metrics_port() -> int:
    """Where the worker tells what it counts."""
    return free_port()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stack(
    tmp_path_factory: pytest.TempPathFactory, module_sqlite_url: str, sink: Path, metrics_port: int
) -> AsyncIterator[Stack]:
    """A worker for everything."""
    folder = tmp_path_factory.mktemp("short")
    stack = Stack(
        folder,
        database_url=module_sqlite_url,
        long_sleep_threshold=LONG_SLEEP_FROM,
        activities="counted_jobs",
        http_allow=HTTP_ALLOW,
        breaker_failures=str(FAILURES_TO_OPEN),
        breaker_open=str(OPEN_FOR.total_seconds()),
        breaker_longest_open=str(OPEN_FOR.total_seconds()),
        retry_budget_floor=str(BUDGET_FLOOR),
        readmission_rate=str(RETURN_RATE),
    )
    try:
        for name in (WORKER, SECOND_SCHEDULER):
            (folder / name).mkdir()
            (folder / name / "counted_jobs.py").write_text(JOB_CODE.format(sink=sink, attempts=ATTEMPTS))
        await stack.start_worker(WORKER, role="both", metrics_port=str(metrics_port))
        yield stack
    finally:
        stack.stop()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def queries(module_sqlite_url: str, stack: Stack) -> AsyncIterator[Queries]:
    """What people read."""
    engine = open_database(stack.database_url)
    yield Queries(engine)
    await engine.dispose()


async def test_a_scheduler_that_dies_amid_a_fire_loses_and_doubles_nothing(
    stack: Stack, queries: Queries, sink: Path
) -> None:
    """``kill -9`` while it decides and puts to sleep, and while a run waits between two attempts."""
    client = await stack.connect()
    await register(client, "retrier", job("fail_at_first", IntervalRule(every=PERIOD)))
    begun = datetime.now(UTC)
    [fire, *_] = grid(begun + PERIOD / 2, begun + 2 * PERIOD, PERIOD)
    await asyncio.sleep((fire + WHILE_IT_DECIDES - datetime.now(UTC)).total_seconds())
    await stack.kill_and_restart(WORKER)
    before = called(sink, "retrier")
    await eventually(lambda: first_attempts(called(sink, "retrier") - before), every=timedelta(milliseconds=20))
    await asyncio.sleep(WHILE_IT_WAITS.total_seconds())
    killed = datetime.now(UTC)
    await stack.kill_and_restart(WORKER)
    expected = grid(begun + PERIOD, datetime.now(UTC), PERIOD)
    entries = await eventually(lambda: all_decided(queries, "retrier", expected))
    told = nominal_times(entries, PERIOD)
    assert len(told) == len(set(told)), "one outcome each"
    assert set(expected) <= set(told), stack.logs()
    calls = calls_in(sink)
    assert max(calls.values()) == 1, "no attempt was made twice"
    ran = [run for run in await runs_of(queries, "retrier") if run.status is RunStatus.SUCCESS]
    assert ran
    for run in ran:
        assert [calls[run.run_id, number] for number in range(1, run.attempt + 1)] == [1] * run.attempt
    assert any(is_amid(run, killed) for run in ran), "it died amid the retries of a run"


async def test_a_server_that_dies_in_a_burst_accounts_for_all_its_fires(
    stack: Stack, queries: Queries, sink: Path
) -> None:
    """``kill -9`` of Temporal while many jobs that are due in one second are under way."""
    client = await stack.connect()
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=3)
    names = [f"burst-{number}" for number in range(BURST)]
    await asyncio.gather(*(register(client, name, job("count", OneOffRule(at=due))) for name in names))
    await eventually(lambda: called(sink, "burst-"), every=timedelta(milliseconds=10))
    before = len(called(sink, "burst-"))
    await stack.kill_and_restart(TEMPORAL)

    async def all_ended() -> list[Run]:
        runs = [run for name in names for run in await runs_of(queries, name)]
        assert len(runs) == BURST, f"{len(runs)} runs"
        assert all(run.status in FINAL_STATUSES for run in runs)
        return runs

    runs = await eventually(all_ended)
    assert {run.status for run in runs} == {RunStatus.SUCCESS}
    assert max(calls_in(sink).values()) == 1, "no attempt was made twice"
    assert {run_id for run_id, _ in called(sink, "burst-")} == {run.run_id for run in runs}
    assert before < BURST, "it died amid the burst"


async def test_every_job_is_restored_from_the_database(stack: Stack, queries: Queries, sink: Path) -> None:
    """Temporal's disk is lost; ``horarium restore`` starts its jobs above what was decided, and nothing runs twice."""
    client = await stack.connect()
    await register(client, "lost", job("count", IntervalRule(every=PERIOD)))
    await eventually(lambda: succeeded(queries, "lost", at_least=1))
    known = {run.run_id: run.fence for run in await runs_of(queries, "lost")}
    lost_at = await lose_temporal(stack)
    await start_empty(stack)
    report = await restore(stack, stack.database_url, lost_at)
    assert report["started"] >= 1
    assert report["failed"] == []
    again = await restore(stack, stack.database_url, lost_at)
    assert (again["started"], again["lost_runs"], again["in_doubt"]) == (0, 0, 0)

    await eventually(lambda: succeeded(queries, "lost", at_least=len(known) + 1))
    first = min(run.scheduled_at for run in await runs_of(queries, "lost"))
    expected = grid(first, datetime.now(UTC), PERIOD)
    entries = await eventually(lambda: all_decided(queries, "lost", expected))
    told = nominal_times(entries, PERIOD)
    assert len(told) == len(set(told)), "one outcome each"
    assert set(expected) <= set(told)
    assert max(calls_in(sink).values()) == 1, "nothing ran twice"
    later = [run for run in await runs_of(queries, "lost") if run.run_id not in known and run.fence]
    assert min(run.fence for run in later) > max(known.values())


@pytest.mark.timeout(240)
async def test_a_dead_downstream_is_left_alone_and_every_run_completes(
    stack: Stack, queries: Queries, metrics_port: int
) -> None:
    """It refuses while many runs wait for it, and one of two schedulers dies; once it is well, each run is paid once."""
    client = await stack.connect()
    await stack.start_worker(SECOND_SCHEDULER, role="scheduler")
    names = [f"pay-{number}" for number in range(PAYMENTS)]
    async with open_bank() as bank:
        down_since = datetime.now(UTC)
        due = down_since.replace(microsecond=0) + timedelta(seconds=2)
        await asyncio.gather(*(register(client, name, payment(bank, due)) for name in names))
        # Each time that it opens anew, a probe has failed.
        await eventually(lambda: has_opened(client, times=2))
        await stack.kill_worker(SECOND_SCHEDULER)
        await eventually(lambda: has_opened(client, times=3), limit=A_PROBE_IS_LOST)
        bank.is_down = False
        outage = datetime.now(UTC) - down_since
        runs = await eventually(lambda: all_ended(queries, names), limit=A_PROBE_IS_LOST)

    assert {run.status for run in runs} == {RunStatus.SUCCESS}, Counter(run.reason for run in runs)
    assert Counter(call.run_id for call in bank.accepted()) == {run.run_id: 1 for run in runs}, "each paid once"
    assert max(Counter((call.run_id, call.attempt) for call in bank.calls).values()) == 1, "no attempt was made twice"
    assert len(bank.refused()) <= most_while_down(
        processes=2,
        failures_to_open=FAILURES_TO_OPEN,
        budget_floor=BUDGET_FLOOR,
        outage=outage,
        open_for=OPEN_FOR,
    )
    assert bank.most_in_a_second() <= 3 * RETURN_RATE, "no second wave"
    await eventually(lambda: tells_of(bank, metrics_port))


async def tells_of(bank: Bank, metrics_port: int) -> bool:
    """Whether the scheduler that has lived through it all tells Prometheus what the bank has seen, and that it is over."""
    seen = await scrape(f"http://127.0.0.1:{metrics_port}/metrics")
    about = {"tenant": "default", "downstream": BANK}
    assert not seen.has("horarium_open_breakers", **about)
    assert seen.total("horarium_probes_total", **about, result="success") >= 1
    failed = seen.total("horarium_probes_total", **about, result="failed")
    told = {kind: seen.total("horarium_retry_verdicts_total", **about, verdict=kind) for kind in VerdictKind}
    assert seen.has("horarium_retry_verdicts_total", **about, verdict=VerdictKind.EXHAUSTED)
    assert told[VerdictKind.EXHAUSTED] == 0
    assert told[VerdictKind.PARK] >= 1
    assert failed <= sum(told.values()) <= len(bank.refused()), "it knows of no failure that was none"
    return True


async def test_what_a_downtime_has_missed_follows_the_policy_of_each_job(
    stack: Stack, queries: Queries, sink: Path
) -> None:
    """``kill -9`` of the only scheduler, which is away for as long as jobs need to miss more than they may catch up."""
    client = await stack.connect()
    jobs = {f"down-{policy.value.lower()}": short_of(policy) for policy in CatchUpPolicy}
    await asyncio.gather(*(register(client, job_id, definition) for job_id, definition in jobs.items()))
    for job_id in jobs:
        await eventually(lambda job_id=job_id: succeeded(queries, job_id, at_least=1))  # type: ignore[misc]
    await stack.kill_worker(WORKER)
    down = datetime.now(UTC)
    await asyncio.sleep(DOWNTIME.total_seconds())
    up = datetime.now(UTC)
    await stack.start_worker(WORKER, role="both")
    missed = len(grid(down, up - GRACE, SECOND))
    assert missed > MAX_MISSED

    await eventually(lambda: has_caught_up(queries, "down-run_all"))
    until = datetime.now(UTC)
    runs = dict[str, list[Run]]()
    for job_id, definition in jobs.items():
        runs[job_id], entries = await eventually(
            partial(counted, queries, job_id, definition, until=until, missed=missed), limit=COUNTED_WITHIN
        )
        assert set(count_outcomes(entries)) == {Outcome.RAN, OUTCOME_OF_MISSED[definition.missed_window]}
        check_rate_of_job([run for run in runs[job_id] if run.kind is RunKind.CATCH_UP], per_minute=CATCH_UP_RATE)
        check_calls(sink, job_id, entries, until=until)
    control = JobControl(client, find_search_attributes=all_known)
    for job_id in jobs:
        await control.delete(DeleteCommand(), tenant="default", job_id=job_id)

    backlog = sorted(dispatched(run) for run in runs["down-run_all"] if run.kind is RunKind.CATCH_UP)
    live = [run for of_job in runs.values() for run in of_job if run.kind is RunKind.SCHEDULED and run.target_at >= up]
    lateness = [(dispatched(run) - run.target_at).total_seconds() for run in live]
    assert any(backlog[0] < dispatched(run) < backlog[-1] for run in live), "live fires do not wait for what was missed"
    assert min(lateness) >= 0
    assert median(lateness) < GRACE.total_seconds()
    assert max(lateness) < PUNCTUAL.total_seconds()


async def test_no_fire_is_early_or_late_by_a_workers_clock(stack: Stack, queries: Queries, sink: Path) -> None:
    """SB-113: the only worker's clock is ten minutes ahead. By the clock of this process, fires run when they are due."""
    with clock_of_children(ahead=timedelta(minutes=10)):
        await stack.kill_and_restart(WORKER)
    client = await stack.connect()
    registered = datetime.now(UTC)
    await register(client, "deceived", job("count", IntervalRule(every=PERIOD)))
    seen = dict[str, datetime]()

    def three_called() -> bool:
        for run_id, _ in called(sink, "deceived"):
            seen.setdefault(run_id, datetime.now(UTC))
        return len(seen) >= 3

    await eventually(three_called, every=timedelta(milliseconds=20))
    await eventually(lambda: succeeded(queries, "deceived", at_least=3))
    runs = sorted(await runs_of(queries, "deceived"), key=lambda run: run.scheduled_at)
    lateness = [seen[run.run_id] - run.target_at for run in runs if run.run_id in seen]
    assert timedelta(0) <= min(lateness)
    assert max(lateness) < PUNCTUAL
    entries = (await queries.list_ledger("default", "deceived", limit=1000)).items
    told = nominal_times([*entries], PERIOD)
    assert min(told) <= registered + 2 * PERIOD, "none was left out"


async def counted(
    queries: Queries, job_id: str, definition: JobDefinition, *, until: datetime, missed: int
) -> tuple[list[Run], list[LedgerEntry]]:
    """Runs and ledger of a job, once they tell of all that a killed worker had begun as well, with the outcomes of its policy."""
    runs, entries = await all_told(queries, job_id, until, SECOND)
    after = min(nominal_times(entries, SECOND)) - SECOND
    check_counts(definition, runs, entries, period=SECOND, after=after, until=until, missed=missed)
    return runs, entries


def called(sink: Path, job_id: str) -> Counter[tuple[str, int]]:
    """How often each attempt of the jobs whose id begins so was made."""
    return Counter({call: times for call, times in calls_in(sink).items() if job_id in call[0]})


def first_attempts(calls: Counter[tuple[str, int]]) -> list[str]:
    """The runs whose first attempt is among these."""
    return [run_id for run_id, number in calls if number == 1]


async def succeeded(queries: Queries, job_id: str, *, at_least: int) -> bool:
    """Whether so many runs of a job have succeeded."""
    return sum(run.status is RunStatus.SUCCESS for run in await runs_of(queries, job_id)) >= at_least


async def has_opened(client: Client, *, times: int) -> bool:
    """Whether the breaker of the bank is open, and has opened so often without having been closed."""
    handle = client.get_workflow_handle(downstream_workflow_id(tenant="default", downstream=BANK))
    try:
        shown = await handle.describe()
    except RPCError:
        return False
    return read_breaker_memo(await shown.memo(), started_at=shown.start_time).openings >= times


def short_of(policy: CatchUpPolicy) -> JobDefinition:
    """A job that calls the sink every second."""
    definition = job("count", IntervalRule(every=SECOND))
    return definition.model_copy(
        update={
            "missed_window": policy,
            "misfire_grace": GRACE,
            "max_delay": GRACE if policy is CatchUpPolicy.DEADLINE else None,
            "max_missed": MAX_MISSED,
            "catch_up_rate": CATCH_UP_RATE,
            # What a busy machine takes long for is in nobody's way, and counts as no outcome of its own.
            "overlap": OverlapPolicy.ALLOW,
        }
    )


async def has_caught_up(queries: Queries, job_id: str) -> bool:
    """Whether so many of what it has missed have run as may."""
    caught_up = [run for run in await runs_of(queries, job_id) if run.kind is RunKind.CATCH_UP]
    return sum(run.status is RunStatus.SUCCESS for run in caught_up) >= MAX_MISSED


def check_calls(sink: Path, job_id: str, entries: list[LedgerEntry], *, until: datetime) -> None:
    """What is told to have run was called, and nothing else up to there; no attempt was made twice."""
    calls = called(sink, job_id)
    assert max(calls.values()) == 1
    told = {
        scheduled_run_id(job_id=job_id, nominal=nominal): entry.outcome
        for entry in entries
        for nominal in nominal_times([entry], SECOND)
        if nominal <= until
    }
    begun = {run_id for run_id, _ in calls}
    assert {run_id for run_id, outcome in told.items() if outcome is Outcome.RAN} == begun & set(told)


def dispatched(run: Run) -> datetime:
    """When its last attempt was handed to the task queue."""
    assert run.dispatched_at is not None
    return run.dispatched_at
