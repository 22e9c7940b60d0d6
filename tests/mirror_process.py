"""A process that writes to the mirror as a scheduler worker does: ``python -m tests.mirror_process URL SEED``.

Many jobs report at once, twenty times; the exit code is 0 when every report was committed at the first try.
"""

import asyncio
import random
import sys
from datetime import timedelta

from activities.mirror_writer import MirrorWriter, WriterOptions
from tests.records import attempt_record, job_record, minute, run_record
from workflows.job import MirrorBatch

JOBS = 20
ROUNDS = 20
PATIENCE = timedelta(seconds=5)
"""A busy machine must not decide; a deadlock lasts for ever."""


async def write_rounds(url: str, *, seed: int) -> None:
    """Write every job's record for every round, in an order of this process's own."""
    writer = MirrorWriter(url, options=WriterOptions(budget=PATIENCE))
    await writer.prepare(now=minute(0))
    for version in range(1, ROUNDS + 1):
        jobs = [f"job-{number:02}" for number in range(JOBS)]
        random.Random(seed * 1000 + version).shuffle(jobs)
        await asyncio.gather(*(writer.write(_report(job_id, version=version)) for job_id in jobs))
    await writer.close()


def _report(job_id: str, *, version: int) -> MirrorBatch:
    run = run_record(job_id, at=minute(version), version=version)
    attempts = (attempt_record(run, version=version),)
    return MirrorBatch(job=job_record(job_id, version=version), runs=(run,), attempts=attempts)


if __name__ == "__main__":
    asyncio.run(write_rounds(sys.argv[1], seed=int(sys.argv[2])))
