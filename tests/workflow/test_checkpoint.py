"""What an attempt has saved is where the next one begins."""

from temporalio.client import Client

from tests.workflow.harness import job, running


async def test_an_attempt_goes_on_where_the_last_one_was(temporal_client: Client) -> None:
    """SB-069: of a hundred items, the sixtieth fails: the second attempt begins there, under its key, and sends none twice."""
    async with running(temporal_client) as harness:
        job_id = await harness.register(job("send", payload=100, every_seconds=5))
        [run, *_] = await harness.until_runs(job_id, 1)
        assert (run.attempt, run.result) == (2, "from 60")
        assert [item for key, item in harness.code.sent if key == run.idempotency_key] == list(range(100))
        first, second = [call.run for call in harness.code.of(job_id) if call.run.run_id == run.run_id]
        assert (first.idempotency_key, first.checkpoint) == (second.idempotency_key, None)
        assert second.checkpoint == {"sent": 60}
