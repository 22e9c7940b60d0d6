"""How things stand with all jobs together, on both databases, for gauges."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from activities.database import open_database
from activities.mirror_survey import MOST_QUEUES, MirrorSurvey, MirrorSurveyor, TenantSurvey
from activities.mirror_writer import MirrorWriter, WriterOptions
from tests.records import NOON, job_record, minute, run_record
from workflows.error import Unavailable
from workflows.job import JobDefinition, JobRecord, Lifecycle, MirrorBatch
from workflows.run import RunStatus
from workflows.target import ActivityTarget

NOW = minute(60)

PATIENT = timedelta(seconds=10)


@pytest.fixture
async def writer(database_url: str) -> AsyncIterator[MirrorWriter]:
    """Writes what is looked at."""
    writer = MirrorWriter(database_url, options=WriterOptions(budget=PATIENT))
    yield writer
    await writer.close()


@pytest.fixture
async def surveyor(database_url: str) -> AsyncIterator[MirrorSurveyor]:
    """Looks."""
    engine = open_database(database_url)
    surveyor = MirrorSurveyor(engine, limit=PATIENT)
    yield surveyor
    await surveyor.close()
    await engine.dispose()


def due(job_id: str, *, at: int, **fields: Any) -> JobRecord:
    """A job whose fire is nominal at a minute, and has its target ten seconds later."""
    times = {"next_run_at": minute(at), "next_target_at": minute(at) + timedelta(seconds=10)}
    return job_record(job_id, **(times | fields))


async def write(writer: MirrorWriter, *records: JobRecord) -> None:
    """Write jobs."""
    await asyncio.gather(*(writer.write(MirrorBatch(job=record)) for record in records))


async def test_an_empty_mirror_has_nothing_to_tell(surveyor: MirrorSurveyor) -> None:
    """No tenant, no queue; and no error."""
    assert await surveyor.survey(now=NOW) == MirrorSurvey()


async def test_jobs_runs_and_trouble_are_counted_by_tenant_without_the_deleted(
    writer: MirrorWriter, surveyor: MirrorSurveyor
) -> None:
    """SB-166: what belongs to a deleted job is gone, its tenant too when it was the last."""
    await write(
        writer,
        due("a", at=90, active_runs=2, waiting_runs=1),
        due("b", at=90, active_runs=1, trouble="cannot plan: no such zone"),
        job_record("c", lifecycle=Lifecycle.PAUSED),
        job_record("d", lifecycle=Lifecycle.DELETED, active_runs=7),
        job_record("e", tenant="acme", lifecycle=Lifecycle.COMPLETED),
        job_record("f", tenant="gone", lifecycle=Lifecycle.DELETED),
    )
    seen = await surveyor.survey(now=NOW)
    assert seen.tenants == {
        "acme": TenantSurvey(jobs={Lifecycle.COMPLETED: 1}, active_runs=0, waiting_runs=0, troubled=0),
        "default": TenantSurvey(
            jobs={Lifecycle.ACTIVE: 2, Lifecycle.PAUSED: 1}, active_runs=3, waiting_runs=1, troubled=1
        ),
    }


async def test_parked_runs_are_counted_by_tenant(writer: MirrorWriter, surveyor: MirrorSurveyor) -> None:
    """Those of jobs that have runs under way; other runs of theirs do not count."""
    statuses = {1: RunStatus.PARKED, 2: RunStatus.PARKED, 3: RunStatus.RUNNING, 4: RunStatus.SUCCESS}
    runs = tuple(run_record(at=minute(at), status=status) for at, status in statuses.items())
    await writer.write(MirrorBatch(job=job_record(active_runs=3), runs=runs))
    await write(writer, job_record("idle", tenant="acme"))
    seen = await surveyor.survey(now=NOW)
    assert {tenant: each.parked_runs for tenant, each in seen.tenants.items()} == {"acme": 0, "default": 2}


async def test_a_job_is_overdue_a_minute_after_its_target(writer: MirrorWriter, surveyor: MirrorSurveyor) -> None:
    """By the target and not the nominal time; paused and deleted jobs are never late."""
    await write(
        writer,
        due("early", at=61),
        due("just", at=59),
        due("late", at=50),
        due("paused", at=1, lifecycle=Lifecycle.PAUSED),
        due("deleted", at=1, lifecycle=Lifecycle.DELETED),
    )
    seen = (await surveyor.survey(now=NOW)).tenants["default"]
    assert (seen.overdue, seen.due_since) == (1, minute(50) + timedelta(seconds=10))
    seen = (await surveyor.survey(now=minute(59) + timedelta(seconds=5))).tenants["default"]
    assert (seen.overdue, seen.due_since) == (1, minute(50) + timedelta(seconds=10))
    seen = (await surveyor.survey(now=minute(50) + timedelta(seconds=9))).tenants["default"]
    assert (seen.overdue, seen.due_since) == (0, None)


async def test_a_job_whose_run_blocks_its_fires_is_not_late_at_once(
    writer: MirrorWriter, surveyor: MirrorSurveyor
) -> None:
    """It decides several of them together, within minutes; after ten it is late like any other."""
    await write(writer, due("busy", at=55, active_runs=1))
    assert (await surveyor.survey(now=NOW)).tenants["default"].overdue == 0
    assert (await surveyor.survey(now=minute(66))).tenants["default"].overdue == 1


async def test_queues_are_those_with_most_jobs_and_bounded(writer: MirrorWriter, surveyor: MirrorSurveyor) -> None:
    """A question to Temporal is asked about each; queues of jobs that are over are not asked about."""

    def on(job_id: str, queue: str, **fields: Any) -> JobRecord:
        definition = JobDefinition(name=job_id, target=ActivityTarget(activity="x", task_queue=queue))
        return job_record(job_id, definition=definition, **fields)

    records = [on(f"single-{number:03}", f"q-{number:03}") for number in range(MOST_QUEUES + 10)]
    records += [on(f"busy-{number}", "z-busy") for number in range(2)]
    records += [on("over", "over", lifecycle=Lifecycle.COMPLETED), on("gone", "gone", lifecycle=Lifecycle.DELETED)]
    await write(writer, *records)
    queues = (await surveyor.survey(now=NOW)).task_queues
    assert queues[:2] == ("z-busy", "q-000")
    assert len(queues) == MOST_QUEUES
    assert not {"over", "gone"} & set(queues)


async def test_a_database_that_does_not_answer_is_said_so() -> None:
    """Within the limit, and as what it is."""
    engine = open_database("postgresql://localhost:1/nothing")
    with pytest.raises(Unavailable):
        await MirrorSurveyor(engine, limit=timedelta(seconds=2)).survey(now=NOON)
    await engine.dispose()
