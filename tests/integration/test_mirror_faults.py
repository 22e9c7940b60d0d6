"""The mirror's writer and readers when the database is away, hangs or is held by others. Real faults, real databases."""

import asyncio
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.testing import ActivityEnvironment

from activities.database import Limits, open_database
from activities.mirror_writer import MirrorUnavailable, MirrorWriter, WriterOptions
from activities.queries import JobFilter, Queries, RunFilter
from tests.databases import TEMPLATE, PostgresServer
from tests.eventually import eventually
from tests.mirror_process import JOBS, ROUNDS
from tests.records import job_record, minute, run_record
from tests.small_disk import small_disk
from workflows.contracts import MIRROR_UNAVAILABLE
from workflows.error import Unavailable
from workflows.job import MirrorBatch

PAUSE = timedelta(seconds=1)
OPTIONS = WriterOptions(pause=PAUSE)

AT_ONCE = 0.1
WITHIN_BUDGET = 1.0
"""Seconds; with room for a busy machine."""


def _batch(version: int) -> MirrorBatch:
    return MirrorBatch(job=job_record(version=version))


async def _time_to_fail(writer: MirrorWriter) -> float:
    begin = time.monotonic()
    with pytest.raises(MirrorUnavailable):
        await writer.write(_batch(99))
    return time.monotonic() - begin


async def _pause_is_over() -> None:
    """The pause begins when the transaction is given up, a moment after its first caller was told."""
    await asyncio.sleep(PAUSE.total_seconds() + 0.2)


async def _is_written(writer: MirrorWriter, version: int) -> bool:
    try:
        await writer.write(_batch(version))
    except MirrorUnavailable:
        return False
    return True


def _as_activity(*, is_local: bool) -> ActivityEnvironment:
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, is_local=is_local)
    return environment


async def _make_slow(engine: AsyncEngine, table: str, *, seconds: float) -> None:
    """Let PostgreSQL take its time for every statement that writes to a table."""
    body = f"BEGIN PERFORM pg_sleep({seconds}); RETURN NULL; END"
    async with engine.begin() as connection:
        await connection.execute(text(f"CREATE FUNCTION take_time() RETURNS trigger LANGUAGE plpgsql AS '{body}'"))
        trigger = f"CREATE TRIGGER take_time BEFORE INSERT ON {table} FOR EACH STATEMENT EXECUTE FUNCTION take_time()"
        await connection.execute(text(trigger))


async def _fails_when_full(writer: MirrorWriter) -> bool:
    """Whether a record that needs another page of the file is not written."""
    runs = tuple(run_record(at=minute(number), reason="x" * 1_000) for number in range(100))
    try:
        await writer.write(MirrorBatch(runs=runs))
    except MirrorUnavailable:
        return True
    return False


@contextmanager
def locked(url: str) -> Iterator[None]:
    """Hold the write lock of a SQLite file, as another process would."""
    holder = sqlite3.connect(str(make_url(url).database), isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        holder.execute("ROLLBACK")
        holder.close()


def _refuse_connections(server: PostgresServer) -> None:
    server.execute(f"ALTER DATABASE {TEMPLATE} WITH ALLOW_CONNECTIONS false")
    server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{TEMPLATE}'")


def _accept_connections(server: PostgresServer) -> None:
    server.execute(f"ALTER DATABASE {TEMPLATE} WITH ALLOW_CONNECTIONS true")


FAULTS: dict[str, tuple[Callable[[PostgresServer], None], Callable[[PostgresServer], None]]] = {
    "stopped": (PostgresServer.stop, PostgresServer.start),
    "killed": (PostgresServer.kill, PostgresServer.start),
    "frozen": (PostgresServer.freeze, PostgresServer.thaw),
    "closed": (_refuse_connections, _accept_connections),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_without_postgresql_the_writer_fails_within_its_budget_then_at_once_and_recovers(
    postgres_of_its_own: PostgresServer, fault: str
) -> None:
    """SB-117: down, crashed, or a black hole that keeps connections open; a local activity holds its workflow task open."""
    inject, undo = FAULTS[fault]
    writer = MirrorWriter(postgres_of_its_own.url(TEMPLATE), options=OPTIONS)
    await writer.write(_batch(1))
    inject(postgres_of_its_own)
    assert await _time_to_fail(writer) < WITHIN_BUDGET
    assert await _time_to_fail(writer) < AT_ONCE
    assert writer.failing_since is not None
    await _pause_is_over()
    assert await _time_to_fail(writer) < WITHIN_BUDGET
    undo(postgres_of_its_own)
    await eventually(lambda: _is_written(writer, 2))
    assert writer.failing_since is None
    await writer.close()


async def test_a_locked_sqlite_file_is_waited_for_within_the_budget_only(sqlite_url: str) -> None:
    """A backup or a shell of an operator may hold the lock for long."""
    writer = MirrorWriter(sqlite_url, options=OPTIONS)
    await writer.write(_batch(1))
    with locked(sqlite_url):
        assert await _time_to_fail(writer) < WITHIN_BUDGET
        assert await _time_to_fail(writer) < AT_ONCE
    await eventually(lambda: _is_written(writer, 2))
    await writer.close()


async def test_a_full_disk_is_an_outage_and_no_refusal(sqlite_url: str, tmp_path: Path) -> None:
    """Records are not dropped as impossible: they are written when there is room again."""
    with small_disk(tmp_path / "disk", megabytes=2) as disk:
        url = f"sqlite:///{shutil.copy(str(make_url(sqlite_url).database), tmp_path / 'disk')}"
        writer = MirrorWriter(url, options=OPTIONS)
        await writer.write(_batch(1))
        disk.fill()
        assert await _fails_when_full(writer)
        disk.free()
        await eventually(lambda: _is_written(writer, 10_000))
        assert (writer.records_refused, writer.failing_since) == (0, None)
        await writer.close()


async def test_a_short_lock_goes_unnoticed(sqlite_url: str) -> None:
    """Another process commits within a few milliseconds."""
    writer = MirrorWriter(sqlite_url, options=OPTIONS)
    await writer.write(_batch(1))
    with locked(sqlite_url):
        writing = asyncio.create_task(writer.write(_batch(2)))
        await asyncio.sleep(0.1)
    await writing
    await writer.close()


async def test_after_the_pause_one_caller_tries_and_the_others_are_refused_at_once(sqlite_url: str) -> None:
    """However many jobs fire in that moment, one workflow task is held up."""
    writer = MirrorWriter(sqlite_url, options=OPTIONS)
    await writer.write(_batch(1))
    with locked(sqlite_url):
        await _time_to_fail(writer)
        await _pause_is_over()
        times = await asyncio.gather(*(_time_to_fail(writer) for _ in range(50)))
    assert sum(each > AT_ONCE for each in times) == 1
    await writer.close()


async def test_the_activity_fails_quietly_and_may_be_retried(sqlite_url: str) -> None:
    """The writer logs an outage once; a warning for each job of each fire would drown everything else."""
    writer = MirrorWriter(sqlite_url, options=OPTIONS)
    with locked(sqlite_url), pytest.raises(ApplicationError) as failure:
        await _as_activity(is_local=True).run(writer.record_events, _batch(1))
    assert (failure.value.type, failure.value.non_retryable) == (MIRROR_UNAVAILABLE, False)
    assert failure.value.category is ApplicationErrorCategory.BENIGN
    await writer.close()


async def test_a_slow_database_gets_its_time_from_who_sends_late_and_from_nobody_else(postgresql_url: str) -> None:
    """Two seconds a statement: who holds up fires is told within the budget, and neither fails nor delays who is patient."""
    engine = open_database(postgresql_url)
    await _make_slow(engine, "jobs", seconds=2)
    writer = MirrorWriter(postgresql_url, options=OPTIONS)
    late = asyncio.create_task(_as_activity(is_local=False).run(writer.record_events, _batch(1)))
    assert await _time_to_fail(writer) < WITHIN_BUDGET
    assert await _time_to_fail(writer) < AT_ONCE
    assert not late.done()
    await late
    assert writer.transactions == writer.rows_written == 1
    assert writer.failing_since is None, "a commit is a commit, whoever waited for it"
    await engine.dispose()
    await writer.close()


async def test_who_is_patient_is_told_soon_that_the_database_gives_no_answer_at_all(
    postgres_of_its_own: PostgresServer,
) -> None:
    """Slow is not gone: the limit for one answer is a part of the budget for all."""
    patient = WriterOptions(budget=timedelta(seconds=60), statement=timedelta(seconds=1), pause=PAUSE)
    writer = MirrorWriter(postgres_of_its_own.url(TEMPLATE), options=OPTIONS, patient=patient)
    await writer.write_patiently(_batch(1))
    postgres_of_its_own.freeze()
    begin = time.monotonic()
    with pytest.raises(MirrorUnavailable):
        await writer.write_patiently(_batch(2))
    assert time.monotonic() - begin < 10
    postgres_of_its_own.thaw()
    await eventually(lambda: _is_written(writer, 3))
    await writer.close()


async def test_who_waits_long_for_the_mirror_heartbeats(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that records whose worker dies with them are sent again within seconds, however patient their sender was."""
    monkeypatch.setattr("activities.heartbeat.BEAT_EVERY", timedelta(seconds=0.1))
    beats = list[object]()
    environment = _as_activity(is_local=False)
    environment.on_heartbeat = lambda *_: beats.append(None)
    writer = MirrorWriter(sqlite_url, options=OPTIONS)
    with locked(sqlite_url):
        late = asyncio.create_task(environment.run(writer.record_events, _batch(1)))
        await eventually(lambda: len(beats) >= 3)
    await late
    await writer.close()


async def test_callers_that_gave_up_are_not_written_for(sqlite_url: str) -> None:
    """Their records come again; and the writer survives that nobody of a group is left."""
    writer = MirrorWriter(sqlite_url, options=OPTIONS)
    tasks = [asyncio.create_task(writer.write(_batch(version))) for version in range(1, 5)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await writer.write(_batch(9))
    assert writer.rows_written == 1
    await writer.close()


async def test_a_database_without_tables_is_an_outage_and_no_refusal(tmp_path: Path) -> None:
    """A worker that starts before the migration must not drop records as impossible."""
    writer = MirrorWriter(f"sqlite:///{tmp_path}/empty.sqlite", options=OPTIONS)
    assert await _time_to_fail(writer) < WITHIN_BUDGET
    await writer.close()


@pytest.mark.parametrize("fault", FAULTS)
async def test_readers_say_that_the_database_is_away_and_recover(
    postgres_of_its_own: PostgresServer, fault: str
) -> None:
    """SB-117: the API answers 503 quickly and never hangs."""
    inject, undo = FAULTS[fault]
    limits = Limits(connect=timedelta(seconds=1), statement=timedelta(seconds=1))
    engine = open_database(postgres_of_its_own.url(TEMPLATE), limits=limits)
    queries = Queries(engine, limit=timedelta(seconds=1))
    assert await queries.get_job("default", "report") is None
    inject(postgres_of_its_own)
    reads = [
        queries.get_job("default", "report"),
        queries.list_jobs("default", JobFilter()),
        queries.list_runs("default", "report", RunFilter()),
        queries.list_ledger("default", "report"),
        *(queries.get_run("default", str(number)) for number in range(20)),
    ]
    begin = time.monotonic()
    answers = await asyncio.gather(*reads, return_exceptions=True)
    assert [type(answer) for answer in answers] == [Unavailable] * len(reads)
    assert time.monotonic() - begin < 2
    undo(postgres_of_its_own)

    async def answers_again() -> bool:
        try:
            return await queries.get_job("default", "report") is None
        except Unavailable:
            return False

    await eventually(answers_again)
    await queries.close()
    await engine.dispose()


async def test_several_processes_write_the_same_rows_without_a_failure(database_url: str) -> None:
    """Two scheduler workers and the API share one SQLite file by default; nobody's report fails for the others'."""
    root = Path(__file__).parents[2]
    arguments = [sys.executable, "-m", "tests.mirror_process", database_url]
    processes = [await asyncio.create_subprocess_exec(*arguments, str(seed), cwd=root) for seed in range(3)]
    codes = await asyncio.wait_for(asyncio.gather(*(process.wait() for process in processes)), 60)
    assert codes == [0, 0, 0]
    engine = open_database(database_url)
    queries = Queries(engine)
    jobs = await queries.list_jobs("default", JobFilter(), limit=100)
    assert [job.version for job in jobs.items] == [ROUNDS] * JOBS
    runs = await queries.list_runs("default", "job-07", RunFilter(), limit=100, include_attempts=True)
    assert [len(run.attempts) for run in runs.items] == [1] * ROUNDS
    await engine.dispose()
