"""Two thousand jobs that are what their file says are applied again within 20 s, on PostgreSQL, and none of them notices."""

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from temporalio.client import Client

from tests.api_stack import ApiStack, running_stack
from tests.command import run_process
from tests.eventually import eventually
from tests.slowness import slowness
from workflows.contracts import job_workflow_id

JOBS = 2_000
FILES = 20
ROUNDS = 3
LIMIT_SECONDS = 20

DESCRIBED_AT_ONCE = 20

REGISTERED_WITHIN = timedelta(minutes=15)


@pytest.fixture
def stack(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ApiStack]:
    """Everything, on PostgreSQL."""
    with running_stack(request, tmp_path, database="postgresql") as stack:
        yield stack


def _write_jobs(folder: Path) -> list[str]:
    """Describe jobs that fire half a year from now, as several teams would; answers their ids."""
    folder.mkdir()
    month = (datetime.now(UTC).month + 5) % 12 + 1
    jobs = [
        {
            "job_id": f"report-{number:04}",
            "name": "noop",
            "description": f"Report {number} of the year",
            "owner": f"team-{number % 40}",
            "labels": {"team": f"team-{number % 40}", "tier": f"t{number % 3}"},
            "schedule": f"{number % 60} {number % 24} 1 {month} *",
            "timezone": ("UTC", "Europe/Berlin", "America/New_York")[number % 3],
            "payload": {"report": number, "text": "x" * 200},
            "max_retries": number % 5,
        }
        for number in range(JOBS)
    ]
    for file in range(FILES):
        (folder / f"{file:02}.yaml").write_text(yaml.safe_dump({"jobs": jobs[file::FILES]}))
    return [str(job["job_id"]) for job in jobs]


async def _read_runs(temporal: Client, job_ids: list[str]) -> dict[str, tuple[str, int, bool]]:
    """Say of each job which run it is in, how long that run's history is, and whether it sleeps without any."""
    places = asyncio.Semaphore(DESCRIBED_AT_ONCE)

    async def read(job_id: str) -> tuple[str, int, bool]:
        async with places:
            found = await temporal.get_workflow_handle(job_workflow_id(tenant="default", job_id=job_id)).describe()
        sleeps = found.execution_time is not None and found.execution_time > datetime.now(UTC) + timedelta(days=1)
        return found.run_id, found.history_length, sleeps

    return dict(zip(job_ids, await asyncio.gather(*map(read, job_ids)), strict=True))


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_unchanged_jobs_are_applied_again_at_once_and_sleep_on(stack: ApiStack, tmp_path: Path) -> None:
    """The command as people run it, the best of three rounds, on a machine that may have other work.

    A workflow task would leave events in its job's history, or another run.
    """
    folder, url = tmp_path / "jobs", stack.api.url
    job_ids = _write_jobs(folder)
    options = ("apply", "-f", str(folder), "--owner", "reports", "--prune")
    started = time.perf_counter()
    assert run_process(*options, url=url).stdout.endswith(f"{JOBS} created, 0 changed, 0 unchanged\n")
    print(f"registered {JOBS} jobs in {time.perf_counter() - started:.1f} s")
    asleep = asyncio.run(_until_all_sleep(stack, job_ids))

    found = []
    for _ in range(ROUNDS):
        slower, started = slowness(), time.perf_counter()
        assert run_process(*options, url=url).stdout == f"0 created, 0 changed, {JOBS} unchanged\n"
        taken = time.perf_counter() - started
        found.append(taken / slower)
        print(f"applied {JOBS} unchanged jobs in {taken:.1f} s, on a machine {slower:.1f} times slower than free")
    assert min(found) < LIMIT_SECONDS
    assert asyncio.run(_read_all(stack, job_ids)) == asleep


async def _until_all_sleep(stack: ApiStack, job_ids: list[str]) -> dict[str, tuple[str, int, bool]]:
    temporal = await stack.temporal()

    async def all_sleep() -> dict[str, tuple[str, int, bool]]:
        runs = await _read_runs(temporal, job_ids)
        awake = [job_id for job_id, (_, _, sleeps) in runs.items() if not sleeps]
        assert not awake, awake[:10]
        return runs

    return await eventually(all_sleep, limit=REGISTERED_WITHIN, every=timedelta(seconds=1))


async def _read_all(stack: ApiStack, job_ids: list[str]) -> dict[str, tuple[str, int, bool]]:
    return await _read_runs(await stack.temporal(), job_ids)
