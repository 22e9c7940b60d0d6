"""The mirror made anew from histories: what workflows recorded when they ran, they record again when they are replayed."""

import asyncio
from datetime import timedelta

from temporalio.client import Client, WorkflowHistory

from tests.eventually import eventually
from tests.replay.recordings import list_histories, read_history
from tests.workflow.harness import SLEEPY, Harness, MemoryMirror, chain_of, children_in, job, running
from workers.projection import Projector
from workflows.backfill_record import BackfillStatus
from workflows.job import Lifecycle
from workflows.outbox import IF_LOST
from workflows.run import Outcome, RunStatus
from workflows.schedule import Schedule

OFTEN = {"max_attempts": 3, "base": timedelta(milliseconds=1), "cap": timedelta(milliseconds=1)}

JOBS = {
    "timer": job(every_seconds=1),
    "sleepy": job(every_seconds=2),
    "retried": job("fail", every_seconds=2, payload=1, retry=OFTEN),
    "detached": job("fail", every_seconds=2, payload=1, retry=OFTEN, isolation="workflow"),
    "overlapping": job("take", every_seconds=1, payload=1.5),
    "changed": job(every_seconds=1),
}


async def histories_of(harness: Harness, job_id: str) -> list[WorkflowHistory]:
    """All that a job has left in Temporal, the workflows of its detached runs included."""
    chain = await harness.histories(job_id)
    children = [await chain_of(harness.client, name) for name in children_in(chain)]
    return [*chain, *(history for child in children for history in child)]


async def test_replayed_histories_give_back_every_row(temporal_client: Client) -> None:
    """Jobs on timers and asleep, with retries inline and detached, with fires that did not run, paused and changed: all rows,
    with the versions that they had, so that writing them again is safe while jobs fire."""
    async with running(temporal_client) as harness:
        ids = {
            name: await harness.register(definition, tuning=SLEEPY if name == "sleepy" else None)
            for name, definition in JOBS.items()
        }
        await harness.until_runs(ids["changed"], 1)
        await harness.change(ids["changed"], job(every_seconds=2))
        await harness.pause(ids["changed"], reason="maintenance")
        await asyncio.gather(*(harness.until_runs(job_id, 2) for name, job_id in ids.items() if name != "changed"))
        await eventually(
            lambda: any(outcome is Outcome.SKIPPED for _, outcome in harness.mirror.outcomes(ids["overlapping"]))
        )
        await asyncio.gather(*map(harness.delete, ids.values()))
        await asyncio.gather(*(harness.until_closed(job_id, Lifecycle.DELETED) for job_id in ids.values()))

        rebuilt = MemoryMirror()
        for job_id in ids.values():
            for projection in await Projector(harness.client).project(await histories_of(harness, job_id)):
                assert projection.failure == ""
                for batch in projection.batches:
                    await rebuilt.record_events(batch)
        for name, job_id in ids.items():
            there = harness.mirror
            assert rebuilt.jobs[job_id] == there.jobs[job_id], name
            assert rebuilt.runs[job_id] == there.runs[job_id], name
            assert rebuilt.attempts[job_id] == there.attempts[job_id], name
            assert rebuilt.ledger.get(job_id) == there.ledger.get(job_id), name
        assert rebuilt.conflicts == []


async def test_a_job_that_sleeps_is_told_without_waking_it(temporal_client: Client) -> None:
    """Its state is in what its present run was given: the row of the job, and the run that ended last."""
    async with running(temporal_client) as harness:
        job_id = await harness.register(job(every_seconds=5), tuning=SLEEPY)
        [run, *_] = await harness.until_runs(job_id, 1)

        async def is_asleep() -> WorkflowHistory | None:
            *_, latest = await harness.histories(job_id)
            return latest if len(latest.events) == 1 else None

        history = await eventually(is_asleep)
        assert history is not None
        [projection] = await Projector(harness.client).project([history])
        [batch] = projection.batches
        assert batch.job is not None
        assert batch.job.next_run_at == run.scheduled_at + timedelta(seconds=5)
        [last] = batch.runs
        assert (last.version, last.run.run_id, last.run.status) == (IF_LOST, run.run_id, RunStatus.SUCCESS)


async def test_a_history_that_does_not_fit_is_told_and_the_others_are_read(temporal_client: Client) -> None:
    """As a reset may leave one: what its run began with is told all the same."""
    async with running(temporal_client) as harness:
        job_id = await harness.register(job(every_seconds=1))
        await harness.until_runs(job_id, 2)
        [good, *_] = await harness.histories(job_id)
        bad = WorkflowHistory(
            good.workflow_id, [type(event).FromString(event.SerializeToString()) for event in good.events]
        )
        event = next(each for each in bad.events if each.HasField("activity_task_scheduled_event_attributes"))
        event.activity_task_scheduled_event_attributes.activity_type.name = "another"
        bad.events[0].workflow_execution_started_event_attributes.original_execution_run_id = "another"
        broken, whole = await Projector(harness.client).project([bad, good])
    assert broken.failure
    assert broken.batches[0].job is not None
    assert whole.failure == ""
    assert any(record.run.status is RunStatus.SUCCESS for batch in whole.batches for record in batch.runs)


async def test_backfills_are_read_from_their_own_workflows(temporal_client: Client) -> None:
    """As they were recorded: how far each was, up to its end; and the definition that it began with, which no record has."""
    paths = [path for path in list_histories() if path.parent.name == "BackfillWorkflow"]
    projections = await Projector(temporal_client).project([read_history(path) for path in paths])
    assert [projection.failure for projection in projections] == [""] * len(paths)
    records = [record for each in projections for batch in each.batches for record in batch.backfills]
    assert any(record.status is BackfillStatus.DONE for record in records)
    given = [each.backfill for each in projections if each.backfill is not None]
    assert len(given) == len(paths)
    assert {state.record.backfill_id for state in given} == {record.backfill_id for record in records}
    assert all(state.definition.schedule != Schedule() for state in given)
