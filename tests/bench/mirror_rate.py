"""How many rows a second the mirror's writer can do, on each database, when nothing else limits it."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from activities.mirror_writer import MirrorWriter, WriterOptions
from activities.schema import migrate
from tests.bench.measure import Tell
from tests.bench.result import Mirror
from tests.databases import fresh_database, running_postgres
from tests.records import attempt_record, job_record, minute, run_record
from workflows.job import MirrorBatch
from workflows.run import AttemptStatus, RunStatus

JOBS = 200
"""That fire over and over, each when its last records are committed."""

PATIENT = WriterOptions(budget=timedelta(seconds=10))
"""A workflow would keep its records and send them again; here nothing is to be sent twice."""


async def measure_mirror(database: str, tell: Tell, *, seconds: float) -> Mirror:
    """Write the records of fires for some seconds to ``sqlite`` or ``postgresql``."""
    tell(f"mirror on {database}")
    with _open_mirror(database) as url:
        await migrate(url)
        writer = MirrorWriter(url, options=PATIENT)
        end = time.monotonic() + seconds
        begin = time.monotonic()
        await asyncio.gather(*(_fire_until(writer, f"job-{number}", end) for number in range(JOBS)))
        took = time.monotonic() - begin
        await writer.close()
        return Mirror(
            database=database,
            rows_a_second=writer.rows_written / took,
            rows_a_transaction=writer.rows_written / max(1, writer.transactions),
        )


async def _fire_until(writer: MirrorWriter, job_id: str, end: float) -> None:
    fire = 0
    while time.monotonic() < end:
        fire += 1
        await writer.write(_records_of_fire(job_id, fire))


def _records_of_fire(job_id: str, fire: int) -> MirrorBatch:
    run = run_record(job_id, at=minute(fire), version=2 * fire, status=RunStatus.SUCCESS, attempt=1)
    attempt = attempt_record(run, version=2 * fire, status=AttemptStatus.SUCCESS, finished_at=minute(fire))
    job = job_record(job_id, version=2 * fire + 1, next_run_at=minute(fire) + timedelta(minutes=1))
    return MirrorBatch(job=job, runs=(run,), attempts=(attempt,))


@contextmanager
def _open_mirror(database: str) -> Iterator[str]:
    if database == "sqlite":
        with tempfile.TemporaryDirectory(prefix="horarium-bench-") as folder:
            yield f"sqlite:///{Path(folder) / 'mirror.sqlite'}"
        return
    with running_postgres() as server, fresh_database(server, template="template1") as url:
        yield url
