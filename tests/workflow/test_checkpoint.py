"""What an attempt has saved is where the next one begins."""

import asyncio

from temporalio.client import Client

from tests.workflow.harness import Harness, job, running


async def test_an_attempt_goes_on_where_the_last_one_was(temporal_client: Client) -> None:
    """SB-069, SB-094: whatever of it the throttled heartbeats had told: of many items one fails, and the second attempt begins
    there, under its key, and sends none twice."""
    async with running(temporal_client) as harness:
        await asyncio.gather(check(harness, items=100, fails_at=60), check(harness, items=200, fails_at=190))


async def check(harness: Harness, *, items: int, fails_at: int) -> None:
    """Let a job send items, of which one fails at first."""
    job_id = await harness.register(job("send", payload={"items": items, "fails_at": fails_at}, every_seconds=5))
    [run, *_] = await harness.until_runs(job_id, 1)
    assert (run.attempt, run.result) == (2, f"from {fails_at}")
    assert [item for key, item in harness.code.sent if key == run.idempotency_key] == list(range(items))
    first, second = [call.run for call in harness.code.of(job_id) if call.run.run_id == run.run_id]
    assert (first.idempotency_key, first.checkpoint) == (second.idempotency_key, None)
    assert second.checkpoint == {"sent": fails_at}
