"""How long records have not reached the mirror, as a process knows it."""

from datetime import timedelta

import pytest

from activities.mirror_writer import MirrorUnavailable, MirrorWriter, WriterOptions
from tests.databases import TEMPLATE, PostgresServer
from tests.eventually import eventually
from tests.records import job_record
from workers.metric import mirror_lag
from workflows.job import MirrorBatch

BATCH = MirrorBatch(job=job_record())

IMPATIENT = WriterOptions(budget=timedelta(seconds=1), pause=timedelta(milliseconds=200))


async def test_lag_grows_from_the_first_failure_until_the_database_is_back(postgres_of_its_own: PostgresServer) -> None:
    """Also where nobody writes any more: the records may have gone through another process meanwhile."""
    writer = MirrorWriter(postgres_of_its_own.url(TEMPLATE), options=IMPATIENT)
    await writer.write(BATCH)
    assert mirror_lag(writer) == 0.0
    postgres_of_its_own.kill()
    with pytest.raises(MirrorUnavailable):
        await writer.write(BATCH)
    first = mirror_lag(writer)
    assert first >= 0.0

    async def grows() -> bool:
        await writer.check()
        return mirror_lag(writer) > first + 1

    await eventually(grows)
    postgres_of_its_own.start()

    async def is_well() -> bool:
        await writer.check()
        return mirror_lag(writer) == 0.0

    await eventually(is_well)
    await writer.write(BATCH)
    await writer.close()
