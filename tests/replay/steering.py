"""How recorded jobs are steered while they fire: changed, paused, held, triggered, and their runs cancelled."""

import asyncio
from datetime import timedelta

from tests.eventually import eventually
from tests.temporal_servers import unique
from tests.workflow.harness import Harness, job
from workflows.command import (
    CancelCommand,
    ChangeCommand,
    PauseCommand,
    ResumeCommand,
    TriggerAnswer,
    TriggerCommand,
)
from workflows.contracts import (
    UPDATE_CANCEL_RUN,
    UPDATE_CHANGE,
    UPDATE_PAUSE,
    UPDATE_RESUME,
    UPDATE_TRIGGER,
)
from workflows.job import JobRecord, MirrorBatch, OverlapPolicy, Pause, PausedFires
from workflows.run import PayloadOverride, RunStatus

ENOUGH = timedelta(seconds=60)

PAUSE = timedelta(seconds=3)
"""Longer than some periods."""


async def change(harness: Harness, job_id: str) -> None:
    """To another period and payload, after its first fire."""
    await harness.until_runs(job_id, 1, limit=ENOUGH)
    command = ChangeCommand(key=unique("key"), definition=job("take", every_seconds=2, payload=0), expected=1)
    await harness.handle(job_id).execute_update(UPDATE_CHANGE, command, result_type=JobRecord)
    await harness.until_runs(job_id, 3, limit=ENOUGH)


async def pause_and_resume(harness: Harness, job_id: str) -> None:
    """And catch up with what fell into the pause."""
    await harness.until_runs(job_id, 1, limit=ENOUGH)
    pause = Pause(at=await harness.now(), reason="the bank is closed", by="ops")
    command = PauseCommand(key=unique("key"), pause=pause)
    await harness.handle(job_id).execute_update(UPDATE_PAUSE, command, result_type=JobRecord)
    await asyncio.sleep(PAUSE.total_seconds())  # the pause itself
    back = ResumeCommand(key=unique("key"), catch_up=PausedFires.APPLY)
    await harness.handle(job_id).execute_update(UPDATE_RESUME, back, result_type=JobRecord)
    await harness.until_runs(job_id, 3, limit=ENOUGH)


async def pause_for_a_while(harness: Harness, job_id: str) -> None:
    """It resumes by itself."""
    await harness.until_runs(job_id, 1, limit=ENOUGH)
    now = await harness.now()
    command = PauseCommand(key=unique("key"), pause=Pause(at=now, until=now + PAUSE))
    await harness.handle(job_id).execute_update(UPDATE_PAUSE, command, result_type=JobRecord)
    await harness.until_runs(job_id, 3, limit=ENOUGH)


async def hold_and_release(harness: Harness, job_id: str) -> None:
    """By two holds; the last of them is caught up."""
    await harness.until_runs(job_id, 1, limit=ENOUGH)
    await harness.hold(job_id, "h_first", reason="the bank migrates", by="ops")
    await harness.hold(job_id, "h_second", until=await harness.now() + 20 * PAUSE)
    await asyncio.sleep(PAUSE.total_seconds())  # what falls into them
    await harness.release(job_id, "h_first")
    await asyncio.sleep(PAUSE.total_seconds())  # what falls into the second alone
    await harness.release(job_id, "h_second", catch_up=PausedFires.APPLY)
    await harness.until_runs(job_id, 3, limit=ENOUGH)


async def hold_for_a_while(harness: Harness, job_id: str) -> None:
    """It ends by itself."""
    await harness.until_runs(job_id, 1, limit=ENOUGH)
    await harness.hold(job_id, "h_short", until=await harness.now() + PAUSE)
    await harness.until_runs(job_id, 3, limit=ENOUGH)


async def trigger(harness: Harness, job_id: str) -> None:
    """Beside the run that is active, with a payload of its own; and in the place of the next fire."""
    await harness.until_runs(job_id, 1, limit=ENOUGH)
    override = PayloadOverride(payload=0)
    beside = TriggerCommand(key="beside", request_id="beside", override=override, overlap=OverlapPolicy.ALLOW)
    instead = TriggerCommand(key="instead", request_id="instead", overlap=OverlapPolicy.BUFFER_ALL, skip_next=True)
    for command in (beside, instead):
        await harness.handle(job_id).execute_update(UPDATE_TRIGGER, command, result_type=TriggerAnswer)
    await harness.until_runs(job_id, 4, limit=ENOUGH)


async def trigger_together(harness: Harness, job_id: str) -> None:
    """Several at once, of a job that sleeps the long way, which it goes back to a moment after the last."""
    await until_continued(harness, job_id, times=1)
    await asyncio.gather(*(harness.trigger(job_id) for _ in range(3)))
    await harness.trigger(job_id)
    await harness.until_runs(job_id, 4, limit=ENOUGH)
    await until_continued(harness, job_id, times=2)


async def until_continued(harness: Harness, job_id: str, *, times: int) -> None:
    """Wait until a job has continued as new so many times."""

    async def has_continued() -> bool:
        return len(await harness.histories(job_id)) > times

    await eventually(has_continued, limit=ENOUGH)


async def cancel_run(harness: Harness, job_id: str) -> None:
    """The one that is active."""
    [call] = await eventually(lambda: harness.code.of(job_id)[:1], limit=ENOUGH)
    command = CancelCommand(key=unique("key"), run_id=call.run.run_id, reason="a wrong amount")
    await harness.handle(job_id).execute_update(UPDATE_CANCEL_RUN, command, result_type=MirrorBatch)
    await eventually(lambda: harness.mirror.statuses(job_id)[RunStatus.CANCELLED] == 1, limit=ENOUGH)


async def show(harness: Harness, job_id: str) -> None:
    """Ask it how it stands, before and after a change that the list of workflows shows too."""
    await harness.until_runs(job_id, 1, limit=ENOUGH)
    before = await harness.show(job_id)
    assert before.job is not None
    await harness.change(job_id, job(every_seconds=3))
    after = await harness.show(job_id, above=before.job.version + 1_000_000_000)
    assert after.job is not None
    assert after.job.version > before.job.version + 1_000_000_000
    await harness.until_runs(job_id, 3, limit=ENOUGH)
