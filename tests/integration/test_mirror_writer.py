"""The mirror's writer, on both databases: what is written, and what happens to what cannot be."""

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.database import open_database
from activities.mirror_writer import MirrorRefused, MirrorWriter, WriterOptions
from activities.queries import JobFilter, Queries, RunFilter
from tests.records import NOON, attempt_record, job_record, ledger_record, minute, run_record
from workflows.contracts import MIRROR_REFUSED
from workflows.job import JobCounts, JobDefinition, JobRecord, LedgerEntry, Lifecycle, MirrorBatch, RunRecord
from workflows.run import Attempt, AttemptStatus, Failure, Outcome, Run, RunKind, RunStatus
from workflows.schedule import CronRule, Schedule
from workflows.target import ActivityTarget

PATIENT = WriterOptions(budget=timedelta(seconds=10))
"""For tests of what is written, which must not depend on how fast the machine is."""

TOO_LARGE = 2**63
"""One more than a database's integer holds."""


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    """For looking at the tables themselves."""
    engine = open_database(database_url)
    yield engine
    await engine.dispose()


@pytest.fixture
async def queries(engine: AsyncEngine) -> Queries:
    """For reading as the API does."""
    return Queries(engine)


@pytest.fixture
async def writer(database_url: str) -> AsyncIterator[MirrorWriter]:
    """A writer of one process."""
    writer = MirrorWriter(database_url, options=PATIENT)
    yield writer
    await writer.close()


async def _count(engine: AsyncEngine, table: str) -> int:
    async with engine.connect() as connection:
        return int((await connection.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one())


FULL_JOB = JobRecord(
    tenant="acme",
    job_id="weekly-report",
    version=1_780_000_000_000_123,
    revision=7,
    lifecycle=Lifecycle.PAUSED,
    definition=JobDefinition(
        name="Wöchentlicher Bericht 📊",
        description="x" * 5_000,
        owner="reports",
        labels={"team": "a b", 'quo"te': "%_'"},
        schedule=Schedule(rule=CronRule(expression="0 9 * * 1"), timezone="America/New_York"),
        target=ActivityTarget(activity="send_report", task_queue="reports"),
        payload={"z": 1, "a": [1.0, 1e22, 2**64, "\x00", None], "": {}},
        timeout=timedelta(seconds=120),
    ),
    registered_at=NOON,
    updated_at=NOON + timedelta(microseconds=1),
    next_run_at=minute(1),
    next_target_at=minute(2),
    high_water=NOON,
    fence=1_780_000_000_000_999,
    counts=JobCounts(started=5, succeeded=3, dead=1, missed=2, skipped=9),
    active_runs=1,
    waiting_runs=2,
    last_run_id="weekly-report:1",
    last_status="missed",
    last_finished_at=minute(3),
    last_success_at=minute(4),
    last_error="ValueError: no",
    trouble="unknown zone",
)

FULL_RUN = Run(
    run_id="weekly-report:20260608T120000Z",
    kind=RunKind.CATCH_UP,
    scheduled_at=NOON,
    target_at=minute(1),
    created_at=minute(2),
    status=RunStatus.RETRYING,
    outcome=Outcome.RAN,
    reason="waiting for a worker",
    stands_for=3,
    revision=7,
    attempt=2,
    max_attempts=4,
    fence=1_780_000_000_000_999,
    idempotency_key="report-2026-W24",
    superseded=True,
    detached=True,
    dispatched_at=minute(3),
    started_at=minute(4),
    finished_at=minute(5),
    next_attempt_at=minute(6),
    parkings=1,
    checkpoint={"page": 17},
    worker="1@host",
    failure=Failure(type="ValueError", message="no", retryable=False, retry_after=timedelta(seconds=1.5)),
    result=[1, {"a": "b"}],
    workflow_id="job/acme/weekly-report",
    workflow_run_id="0190",
)

FULL_ATTEMPT = Attempt(
    run_id=FULL_RUN.run_id,
    scheduled_at=NOON,
    number=2,
    status=AttemptStatus.LOST,
    fence=1_780_000_000_000_999,
    dispatched_at=minute(3),
    started_at=minute(4),
    finished_at=minute(5),
    worker="1@host",
    failure=Failure(type="lost", message="no heartbeat"),
)


async def test_every_field_reads_back_as_it_was_written(writer: MirrorWriter, queries: Queries) -> None:
    """A job is restored from its row, so nothing of it may be lost or respelled: numbers, key order and NUL included."""
    run = RunRecord(tenant="acme", job_id="weekly-report", version=5, run=FULL_RUN)
    attempts = tuple(
        attempt_record(run).model_copy(update={"attempt": FULL_ATTEMPT.model_copy(update={"number": number})})
        for number in (2, 1)
    )
    await writer.write(MirrorBatch(job=FULL_JOB, runs=(run,), attempts=attempts))
    job = await queries.get_job("acme", "weekly-report")
    assert job == FULL_JOB
    assert job.definition.model_dump_json() == FULL_JOB.definition.model_dump_json()
    found = await queries.get_run("acme", FULL_RUN.run_id)
    assert found is not None
    assert found.record == run
    assert found.attempts == (FULL_ATTEMPT.model_copy(update={"number": 1}), FULL_ATTEMPT)


def _history() -> list[MirrorBatch]:
    """The records of one job in the order in which it made them."""
    planned = run_record(at=minute(1), version=2)
    running = run_record(at=minute(1), version=4, status=RunStatus.RUNNING, attempt=1)
    done = run_record(at=minute(1), version=6, status=RunStatus.SUCCESS, attempt=1, result={"sent": 3})
    ended = attempt_record(done, version=6, status=AttemptStatus.SUCCESS, finished_at=minute(2))
    return [
        MirrorBatch(job=job_record(version=1, next_run_at=minute(1))),
        MirrorBatch(job=job_record(version=3, next_run_at=minute(2)), runs=(planned,)),
        MirrorBatch(
            job=job_record(version=5, active_runs=1), runs=(running,), attempts=(attempt_record(running, version=4),)
        ),
        MirrorBatch(job=job_record(version=7), runs=(done,), attempts=(ended,)),
        MirrorBatch(ledger=(ledger_record(first=2, last=4, version=8),)),
        MirrorBatch(job=job_record(version=10), ledger=(ledger_record(first=2, last=9, version=9),)),
    ]


@pytest.mark.parametrize("seed", range(6))
async def test_records_written_late_twice_and_out_of_order_end_as_the_newest(
    writer: MirrorWriter, queries: Queries, seed: int
) -> None:
    """Writers repeat what they were not told of, and a backlog overtakes and is overtaken."""
    shuffled = _history() * 2
    random.Random(seed).shuffle(shuffled)
    together = seed % 2 == 0
    if together:
        await asyncio.gather(*map(writer.write, shuffled))
    else:
        for batch in shuffled:
            await writer.write(batch)
    assert await queries.get_job("default", "report") == job_record(version=10)
    run = await queries.get_run("default", run_record(at=minute(1)).run.run_id)
    assert run is not None
    assert (run.record.version, run.record.run.result) == (6, {"sent": 3})
    assert [attempt.status for attempt in run.attempts] == [AttemptStatus.SUCCESS]
    ledger = await queries.list_ledger("default", "report")
    assert [(entry.first, entry.last, entry.count) for entry in ledger.items] == [
        (minute(1), minute(1), 1),
        (minute(2), minute(9), 8),
    ]


async def test_a_definition_is_written_once_a_revision(writer: MirrorWriter, queries: Queries) -> None:
    """A payload may be large and fires are many. A new registration of a deleted id counts its revisions from 1 again."""
    first, second, third = (JobDefinition(name=name) for name in ("first", "second", "third"))
    await writer.write(MirrorBatch(job=job_record(version=1, revision=1, definition=first)))
    await writer.write(MirrorBatch(job=job_record(version=2, revision=1, definition=second, fence=5)))
    job = await queries.get_job("default", "report")
    assert job is not None
    assert (job.definition.name, job.fence) == ("first", 5)
    await writer.write(MirrorBatch(job=job_record(version=3, revision=2, definition=second)))
    job = await queries.get_job("default", "report")
    assert job is not None
    assert job.definition.name == "second"
    anew = job_record(version=4, revision=2, definition=third, registered_at=minute(60))
    await writer.write(MirrorBatch(job=anew))
    job = await queries.get_job("default", "report")
    assert job is not None
    assert job.definition.name == "third"


async def test_what_many_jobs_report_at_once_is_few_transactions(writer: MirrorWriter, engine: AsyncEngine) -> None:
    """Each caller returns after its own commit, but the commits are shared."""
    await writer.write(MirrorBatch(job=job_record("warm-up")))

    async def report(number: int) -> None:
        await writer.write(MirrorBatch(job=job_record(f"job-{number}"), runs=(run_record(f"job-{number}"),)))

    await asyncio.gather(*map(report, range(400)))
    assert await _count(engine, "jobs") == 401
    assert writer.transactions <= 1 + 4
    assert writer.rows_written == 1 + 800
    assert writer.last_commit_at is not None
    assert datetime.now(UTC) - writer.last_commit_at < timedelta(minutes=1)


async def test_a_batch_without_records_is_nothing_to_do(writer: MirrorWriter) -> None:
    """And asks no database."""
    await writer.write(MirrorBatch())
    assert writer.transactions == 0


async def test_two_writers_of_the_same_rows_do_not_block_each_other(database_url: str, queries: Queries) -> None:
    """Two scheduler processes: a job moves between them, and its late records meet the new ones in another order."""
    writers = [MirrorWriter(database_url, options=PATIENT) for _ in range(2)]

    def batches(version: int) -> list[MirrorBatch]:
        jobs = [f"job-{number:02}" for number in range(30)]
        random.Random(version).shuffle(jobs)
        return [
            MirrorBatch(job=job_record(job_id, version=version), runs=(run_record(job_id, version=version),))
            for job_id in jobs
        ]

    for version in range(1, 11):
        one, other = batches(version), batches(version + 1)
        await asyncio.gather(*map(writers[0].write, one), *map(writers[1].write, other))
    page = await queries.list_jobs("default", JobFilter(), limit=100)
    assert [job.version for job in page.items] == [11] * 30
    assert all(writer.failing_since is None for writer in writers)
    for writer in writers:
        await writer.close()


async def test_a_poisoned_record_fails_its_own_batch_and_no_other(writer: MirrorWriter, engine: AsyncEngine) -> None:
    """What the database refuses is found by halving the group; the rest of its batch is written too."""
    poisoned = MirrorBatch(
        job=job_record("poisoned"), runs=(run_record("poisoned", fence=TOO_LARGE), run_record("poisoned", at=minute(1)))
    )
    naive = job_record("naive").model_copy(update={"high_water": datetime(2026, 1, 1)})  # noqa: DTZ001
    healthy = [MirrorBatch(job=job_record(f"job-{number:03}")) for number in range(100)]
    batches = [*healthy[:37], poisoned, *healthy[37:81], MirrorBatch(job=naive), *healthy[81:]]
    results = await asyncio.gather(*map(writer.write, batches), return_exceptions=True)
    assert [type(results[37]), type(results[82])] == [MirrorRefused, MirrorRefused]
    assert sum(result is None for result in results) == 100
    assert (await _count(engine, "jobs"), await _count(engine, "runs")) == (101, 1)
    assert writer.failing_since is None


async def test_texts_that_no_database_holds_do_not_lose_the_record(writer: MirrorWriter, queries: Queries) -> None:
    """An error message of a job may be any bytes."""
    failure = Failure(type="E", message="bad\x00byte")
    definition = JobDefinition(name="a\x00b", labels={"k\x00": "v\x00"})
    run = run_record(at=minute(1), reason="why\x00", failure=failure, result="\x00")
    await writer.write(MirrorBatch(job=job_record(definition=definition, last_error="E: bad\x00byte"), runs=(run,)))
    job = await queries.get_job("default", "report")
    assert job is not None
    assert (job.last_error, job.definition.name) == ("E: bad␀byte", "a\x00b")
    found = await queries.get_run("default", run.run.run_id)
    assert found is not None
    assert (found.record.run.reason, found.record.run.failure, found.record.run.result) == ("why␀", failure, "\x00")


async def test_a_nominal_time_keeps_its_first_run_and_the_rest_of_the_batch_is_written(
    writer: MirrorWriter, queries: Queries, caplog: pytest.LogCaptureFixture
) -> None:
    """Two runs of one nominal time mean a broken promise: refused, reported loudly, and not tried again and again."""
    first = run_record()
    second = RunRecord(job_id="report", version=9, run=first.run.model_copy(update={"run_id": "other"}))
    manual = run_record(kind=RunKind.MANUAL, request_id="r1", version=9)
    await writer.write(MirrorBatch(runs=(first,)))
    await writer.write(MirrorBatch(job=job_record(version=9), runs=(second, manual)))
    runs = await queries.list_runs("default", "report", RunFilter())
    assert {found.record.run.run_id for found in runs.items} == {first.run.run_id, manual.run.run_id}
    assert await queries.get_job("default", "report") == job_record(version=9)
    assert writer.nominal_conflicts == 1
    assert "another run has this nominal time" in caplog.text


async def test_the_activity_says_that_a_refused_record_is_not_to_be_sent_again(writer: MirrorWriter) -> None:
    """Otherwise its job would send it for ever."""
    batch = MirrorBatch(runs=(run_record(fence=TOO_LARGE),))
    with pytest.raises(ApplicationError) as failure:
        await ActivityEnvironment().run(writer.record_events, batch)
    assert (failure.value.type, failure.value.non_retryable) == (MIRROR_REFUSED, True)
    await ActivityEnvironment().run(writer.record_events, MirrorBatch(runs=(run_record(),)))


async def test_dates_of_any_year_have_a_place(writer: MirrorWriter, queries: Queries) -> None:
    """A backfill of the past, a yearly job, and the edges of the calendar."""
    years = (1, 1970, 2019, 2020, 2026, 2050, 2099, 2100, 9999)
    times = [datetime(year, month, 1, tzinfo=UTC) for year in years for month in (1, 12)]
    times += [NOON.replace(month=12, day=31, hour=23, minute=59, second=59, microsecond=999_999)]
    ledger = tuple(ledger_record(first=0).model_copy(update={"entry": _entry_at(moment)}) for moment in times)
    runs = tuple(run_record(at=moment) for moment in times)
    attempts = tuple(map(attempt_record, runs))
    await writer.write(MirrorBatch(runs=runs, attempts=attempts, ledger=ledger))
    page = await queries.list_runs("default", "report", RunFilter(), limit=100, include_attempts=True)
    assert [found.record.run.scheduled_at for found in page.items] == sorted(times, reverse=True)
    assert all(len(found.attempts) == 1 for found in page.items)
    assert len((await queries.list_ledger("default", "report", limit=100)).items) == len(times)


async def test_a_prepared_writer_has_its_connection_and_the_coming_months(postgresql_url: str) -> None:
    """The first record of a process, and the first of a month, wait for neither."""
    writer = MirrorWriter(postgresql_url)
    await writer.prepare(now=datetime(2031, 1, 31, tzinfo=UTC))
    engine = open_database(postgresql_url)
    assert await _count(engine, "attempts_2031_01") == await _count(engine, "attempts_2031_02") == 0
    await engine.dispose()
    await writer.close()


async def test_preparing_for_a_database_that_is_away_is_no_error() -> None:
    """A worker starts without it, and jobs fire."""
    writer = MirrorWriter("postgresql://localhost:1/nothing")
    await writer.prepare(now=NOON)
    assert writer.failing_since is None
    await writer.close()


async def test_writers_that_meet_a_new_month_together_all_succeed(postgresql_url: str) -> None:
    """At the turn of a month every process makes the month's partitions at the same moment."""
    writers = [MirrorWriter(postgresql_url, options=PATIENT) for _ in range(6)]
    months = [datetime(2030 + number // 12, number % 12 + 1, 1, tzinfo=UTC) for number in range(24)]
    await asyncio.gather(
        *(
            writer.write(MirrorBatch(runs=(run_record(f"job-{number}", at=month),)))
            for month in months
            for number, writer in enumerate(writers)
        )
    )
    engine = open_database(postgresql_url)
    assert await _count(engine, "runs_2030_01") == len(writers)
    assert await _count(engine, "runs_default") == 0
    await engine.dispose()
    for writer in writers:
        await writer.close()


async def test_a_month_whose_partition_cannot_be_made_goes_to_the_default_one(postgresql_url: str) -> None:
    """For instance because rows of the month are there already. No row is lost for it."""
    engine = open_database(postgresql_url)
    async with engine.begin() as connection:
        columns = "(tenant, job_id, first, last, version, count, outcome, revision)"
        values = "('t', 'j', '2031-05-05', '2031-05-05', 1, 1, 'missed', 1)"
        await connection.execute(text(f"INSERT INTO ledger {columns} VALUES {values}"))
    writer = MirrorWriter(postgresql_url, options=PATIENT)
    record = ledger_record(first=0).model_copy(update={"entry": _entry_at(datetime(2031, 5, 6, tzinfo=UTC))})
    await writer.write(MirrorBatch(ledger=(record,), runs=(run_record(at=datetime(2031, 5, 6, tzinfo=UTC)),)))
    assert (await _count(engine, "ledger_default"), await _count(engine, "runs_2031_05")) == (2, 1)
    await writer.close()
    await engine.dispose()


def _entry_at(moment: datetime) -> LedgerEntry:
    return ledger_record(first=0).entry.model_copy(update={"first": moment, "last": moment})
