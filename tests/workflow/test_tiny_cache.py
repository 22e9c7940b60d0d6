"""A worker that can keep only some of its jobs in memory."""

from datetime import timedelta

from temporalio.client import Client

from tests.workflow.harness import job, running
from workers.settings import Settings


async def test_a_tiny_cache_costs_time_and_nothing_else(temporal_client: Client) -> None:
    """Fifteen jobs on a worker that keeps ten: each decision may begin with a replay, and every fire still comes once."""
    settings = Settings(
        max_cached_workflows=10,
        workflow_task_slots=5,
        local_activity_slots=20,
        job_slots=20,
        graceful_shutdown=timedelta(0),
    )
    async with running(temporal_client, settings=settings) as harness:
        jobs = [await harness.register(job(every_seconds=2)) for _ in range(15)]
        for job_id in jobs:
            await harness.until_runs(job_id, 3, limit=timedelta(seconds=40))
            await harness.until_decided(job_id, 3, step=timedelta(seconds=2))
