"""How the databases look things up: by index, whatever the size of the history (SB-123).

SQLite decides without statistics, PostgreSQL with them; so the first is asked for its plans on an empty database, the second
on one with enough rows for a full scan to be the worse choice.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine

from activities.audit_store import AuditStore
from activities.database import open_database
from activities.downstream_store import DownstreamStore
from activities.idempotency_store import KEPT, IdempotencyStore
from activities.mirror_survey import MirrorSurveyor
from activities.mirror_writer import MirrorWriter, WriterOptions
from activities.partition import create_partitions, months_of
from activities.queries import FAILED, JobFilter, Queries, RunFilter
from tests.records import NOON, job_record, minute
from workflows.dead_letter import DeadLetterFilter, LetterPlace
from workflows.job import JobDefinition, Lifecycle, MirrorBatch
from workflows.run import RunStatus

Statement = tuple[str, Any]

Read = Callable[[AsyncEngine], Awaitable[object]]

QUERIES: dict[str, Callable[[Queries], Awaitable[object]]] = {
    "a job": lambda queries: queries.get_job("default", "hot"),
    "a run with its attempts": lambda queries: queries.get_run("default", "hot:7"),
    "jobs": lambda queries: queries.list_jobs("default", JobFilter()),
    "deleted jobs": lambda queries: queries.list_jobs("default", JobFilter(state=Lifecycle.DELETED)),
    "jobs of a name": lambda queries: queries.list_jobs("default", JobFilter(name="report")),
    "jobs of a target": lambda queries: queries.list_jobs("default", JobFilter(target="report")),
    "jobs with a text": lambda queries: queries.list_jobs("default", JobFilter(q="report")),
    "jobs with a label": lambda queries: queries.list_jobs("default", JobFilter(labels={"team": "x"})),
    "jobs of the next hour": lambda queries: queries.list_jobs(
        "default", JobFilter(state=Lifecycle.ACTIVE, next_after=NOON, next_before=minute(60))
    ),
    "runs": lambda queries: queries.list_runs("default", "hot", RunFilter(), include_attempts=True),
    "failed runs": lambda queries: queries.list_runs("default", "hot", RunFilter(statuses=FAILED)),
    "running runs": lambda queries: queries.list_runs(
        "default", "hot", RunFilter(statuses=frozenset({RunStatus.RUNNING}))
    ),
    "runs of a time": lambda queries: queries.list_runs("default", "hot", RunFilter(start=NOON, end=minute(60))),
    "dead letters": lambda queries: queries.list_dead_letters("default", DeadLetterFilter()),
    "dead letters of a job": lambda queries: queries.list_dead_letters("default", DeadLetterFilter(job_id="hot")),
    "dead letters by reason": lambda queries: queries.list_dead_letters("default", DeadLetterFilter(reason="max_")),
    "dead letters by label": lambda queries: queries.list_dead_letters("default", DeadLetterFilter(labels={"a": "b"})),
    "dead letters of a time": lambda queries: queries.list_dead_letters(
        "default", DeadLetterFilter(start=NOON, end=minute(60), redriven=None)
    ),
    "the next dead letters to be redriven": lambda queries: queries.read_dead_letters(
        "default", DeadLetterFilter(), after=LetterPlace(finished_at=NOON, run_id="x")
    ),
    "the runs of nominal times": lambda queries: queries.read_runs_at("default", "hot", [NOON, minute(60)]),
    "how many times have runs": lambda queries: queries.count_times_with_runs("default", "hot", NOON, minute(60)),
    "a backfill": lambda queries: queries.get_backfill("default", "b"),
    "backfills": lambda queries: queries.list_backfills("default", "hot"),
    "open backfills": lambda queries: queries.read_open_backfills("default", "hot"),
    "the ledger": lambda queries: queries.list_ledger("default", "hot"),
    "the ledger of a time": lambda queries: queries.list_ledger("default", "hot", start=NOON, end=minute(60)),
}


def _read_through(query: Callable[[Queries], Awaitable[object]]) -> Read:
    return lambda engine: query(Queries(engine))


READS: dict[str, Read] = {name: _read_through(query) for name, query in QUERIES.items()} | {
    "downstreams": lambda engine: DownstreamStore(engine).list("default", now=NOON),
    "a downstream": lambda engine: DownstreamStore(engine).get("default", "bank", now=NOON),
}


async def _statements(engine: AsyncEngine, read: Read, *, kind: str = "SELECT") -> list[Statement]:
    """Catch what a read sends to the database, its second page too; or the statements of another kind."""
    seen: list[Statement] = []

    def note(_: object, __: object, statement: str, parameters: Any, *___: object) -> None:
        seen.append((statement, parameters))

    event.listen(engine.sync_engine, "before_cursor_execute", note)
    await read(engine)
    event.remove(engine.sync_engine, "before_cursor_execute", note)
    return [each for each in seen if each[0].lstrip().startswith(kind)]


async def _plan(engine: AsyncEngine, explain: str, statement: Statement) -> str:
    async with engine.connect() as connection:
        rows = await connection.exec_driver_sql(f"{explain} {statement[0]}", statement[1])
        return "\n".join(str(row[-1]) for row in rows)


async def call_bank(url: str) -> None:
    """Write a job that calls a downstream, so that there is something to be completed."""
    writer = MirrorWriter(url, options=WriterOptions(budget=timedelta(seconds=10)))
    await writer.write(MirrorBatch(job=job_record(definition=JobDefinition(downstream="bank"))))
    await writer.close()


@pytest.mark.parametrize("name", READS)
async def test_sqlite_finds_rows_by_index_and_in_order(sqlite_url: str, name: str) -> None:
    """No table is scanned, and nothing but the merge of a page's parts is sorted."""
    await call_bank(sqlite_url)
    engine = open_database(sqlite_url)
    for statement in await _statements(engine, READS[name]):
        plan = await _plan(engine, "EXPLAIN QUERY PLAN", statement)
        for table in ("jobs", "runs", "attempts", "ledger", "gate_reports", "backfills"):
            assert f"SCAN {table}" not in plan, plan
        if "UNION ALL" not in statement[0] and "ix_ledger_tenant_job_id_last_first" not in plan:
            assert "TEMP B-TREE FOR ORDER BY" not in plan or "FROM attempts" in statement[0], plan
    await engine.dispose()


FILL_RUNS = """
    INSERT INTO runs (tenant, run_id, scheduled_at, job_id, version, kind, target_at, created_at, status, outcome, stands_for,
        revision, attempt, max_attempts, fence, idempotency_key, superseded, detached, parkings, excused,
        workflow_id, workflow_run_id, finished_at)
    SELECT 'default', job || ':' || n, at, job, n, 'scheduled', at, at, CASE n % 500 WHEN 0 THEN 'dead' ELSE 'success' END,
        'ran', 1, 1, 1, 4, n, n, false, false, 0, 0, '', '', at
    FROM (
        SELECT n, CASE WHEN n % 2 = 0 THEN 'hot' ELSE 'job-' || n % 100 END AS job,
            timestamptz '2026-01-01 00:00:00+00' + n * interval '8 minutes' AS at
        FROM generate_series(1, 30000) AS n
    ) AS made
"""
FILL_JOBS = """
    INSERT INTO jobs (tenant, job_id, version, revision, state, definition, name, owner, labels, target, task_queue, search_text,
        registered_at, updated_at, high_water, fence, counts, active_runs, waiting_runs)
    SELECT 'default', 'job-' || n, 1, 1, 'active', '{}', 'x', '', '{}', 'x', 'x', 'x', now(), now(), now(), 1, '{}',
        CASE WHEN n % 100 = 0 THEN 1 ELSE 0 END, 0
    FROM generate_series(1, 5000) AS n
"""
FILL_ATTEMPTS = """
    INSERT INTO attempts (tenant, run_id, scheduled_at, number, job_id, version, status, fence, dispatched_at)
    SELECT tenant, run_id, scheduled_at, 1, job_id, 1, 'success', 1, scheduled_at FROM runs
"""
FILL_LEDGER = """
    INSERT INTO ledger (tenant, job_id, first, last, version, count, outcome, revision)
    SELECT tenant, job_id, scheduled_at + interval '1 minute', scheduled_at + interval '2 minutes', 1, 2, 'missed', 1 FROM runs
"""


@pytest.fixture
async def filled(postgresql_url: str) -> AsyncIterator[AsyncEngine]:
    """Half a year of history, most of it of one job."""
    await call_bank(postgresql_url)
    engine = open_database(postgresql_url)
    async with engine.begin() as connection:
        months = months_of(datetime(2026, month, 1, tzinfo=UTC) for month in range(1, 7))
        await connection.run_sync(create_partitions, months)
        for statement in (FILL_RUNS, FILL_ATTEMPTS, FILL_LEDGER, "ANALYZE runs", "ANALYZE attempts", "ANALYZE ledger"):
            await connection.exec_driver_sql(statement)
    yield engine
    await engine.dispose()


async def test_postgresql_finds_runs_and_ledger_entries_by_index(filled: AsyncEngine) -> None:
    """A scan of a month is what would take seconds at five million runs."""
    for name, read in READS.items():
        for statement in await _statements(filled, read):
            plan = await _plan(filled, "EXPLAIN", statement)
            for table in ("runs", "attempts", "ledger"):
                assert f"Seq Scan on {table}_2026" not in plan, f"{name}:\n{plan}"


async def test_postgresql_leaves_out_the_months_that_a_window_does_not_touch(filled: AsyncEngine) -> None:
    """What partitions are for, besides being dropped."""
    for name in ("runs of a time", "the ledger of a time"):
        for statement in await _statements(filled, READS[name]):
            plan = await _plan(filled, "EXPLAIN", statement)
            if "FROM runs" in statement[0]:
                assert "runs_2026_06" in plan
                assert "runs_2026_05" not in plan


async def survey(engine: AsyncEngine) -> object:
    """Look at all jobs, as gauges do."""
    return await MirrorSurveyor(engine, limit=timedelta(seconds=10)).survey(now=NOON)


async def test_sqlite_counts_parked_runs_by_way_of_their_jobs(sqlite_url: str) -> None:
    """A look at all jobs does not read their history."""
    await call_bank(sqlite_url)
    engine = open_database(sqlite_url)
    plans = [await _plan(engine, "EXPLAIN QUERY PLAN", each) for each in await _statements(engine, survey)]
    assert any("SEARCH runs" in plan for plan in plans), plans
    assert not any("SCAN runs" in plan for plan in plans), plans
    await engine.dispose()


async def test_postgresql_counts_parked_runs_by_way_of_their_jobs(filled: AsyncEngine) -> None:
    """The same, with many jobs that have a run under way."""
    async with filled.begin() as connection:
        await connection.exec_driver_sql(FILL_JOBS)
        await connection.exec_driver_sql("ANALYZE jobs")
    plans = [await _plan(filled, "EXPLAIN", each) for each in await _statements(filled, survey)]
    assert any("runs_2026" in plan for plan in plans)
    assert not any("Seq Scan on runs_2026" in plan for plan in plans), plans


PRUNINGS: dict[str, Read] = {
    "audit_entries": lambda engine: AuditStore(engine).prune(before=NOON),
    "idempotency_records": lambda engine: IdempotencyStore(engine).prune(now=NOON + KEPT),
}


@pytest.mark.parametrize("table", PRUNINGS)
async def test_sqlite_finds_what_is_too_old_by_index(sqlite_url: str, table: str) -> None:
    """And deletes it by its key: in a large table a scan for each batch would be ended by its limit, and nothing forgotten."""
    engine = open_database(sqlite_url)
    [statement] = await _statements(engine, PRUNINGS[table], kind="DELETE")
    plan = await _plan(engine, "EXPLAIN QUERY PLAN", statement)
    assert f"SCAN {table}" not in plan, plan
    assert plan.count(f"SEARCH {table} USING INDEX") == 2, plan
    assert "TEMP B-TREE" not in plan, plan
    await engine.dispose()


FILL_AUDIT_ENTRIES = """
    INSERT INTO audit_entries (tenant, entry_id, at, request_id, actor, actor_name, action, outcome)
    SELECT 'default', 'e' || n, timestamptz '2026-06-06 10:00:00+00' + n * interval '1 minute', 'r', 'a', '', 'x', 'applied'
    FROM generate_series(1, 200000) AS n
"""
FILL_IDEMPOTENCY_RECORDS = """
    INSERT INTO idempotency_records (tenant, scope, key, body_hash, token, created_at, claimed_at)
    SELECT tenant, 'POST /jobs', entry_id, '', '', at, at FROM audit_entries
"""


async def test_postgresql_finds_what_is_too_old_by_index(postgresql_url: str) -> None:
    """The same, in a table large enough for a scan to be the worse choice."""
    engine = open_database(postgresql_url)
    async with engine.begin() as connection:
        for filling in (FILL_AUDIT_ENTRIES, FILL_IDEMPOTENCY_RECORDS, *(f"ANALYZE {table}" for table in PRUNINGS)):
            await connection.exec_driver_sql(filling)
    for table, prune in PRUNINGS.items():
        for statement in await _statements(engine, prune, kind="DELETE"):
            plan = await _plan(engine, "EXPLAIN", statement)
            assert f"Seq Scan on {table}" not in plan, plan
            assert plan.count("Index Scan") == 2, plan
    await engine.dispose()
