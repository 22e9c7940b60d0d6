"""Jobs that write down, outside of Horarium, which attempt was made by the code of which release. Run by both."""

import asyncio
import json
from pathlib import Path

from temporalio import activity

import workflows
from horarium import JobRun, checkpoint

SINK = Path.cwd().parent / "sink"
"""Next to the folder of each worker."""


@activity.defn
async def note(run: JobRun) -> None:
    """Note the call, and be done."""
    write_down(run)


@activity.defn
async def fail_until_mended(run: JobRun) -> str:
    """Fail while nobody has mended it."""
    write_down(run)
    if not (SINK / "mended").exists():
        raise ConnectionError("not mended yet")
    return "mended"


@activity.defn
async def work_until_mended(run: JobRun) -> int:
    """Take as long as it takes, and count the steps of all attempts."""
    write_down(run)
    steps = run.checkpoint if isinstance(run.checkpoint, int) else 0
    while not (SINK / "mended").exists():
        steps += 1
        checkpoint(steps)
        await asyncio.sleep(0.2)
    return steps


def write_down(run: JobRun) -> None:
    """Note a call: one line, whole."""
    call = {
        "job_id": run.job_id,
        "run_id": run.run_id,
        "scheduled_at": run.scheduled_at.isoformat(),
        "attempt": run.attempt,
        "code": workflows.__file__,
    }
    with (SINK / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps(call) + "\n")
