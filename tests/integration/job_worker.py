"""A worker of a team, run as a process so that tests can kill it: ``python job_worker.py ADDRESS TASK_QUEUE``."""

import asyncio
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from horarium import HorariumPlugin, checkpoint


@activity.defn
async def save_and_hang() -> None:
    """Save, and never answer."""
    checkpoint({"row": 7})
    await asyncio.sleep(3600)


@activity.defn
def save_and_hang_in_thread() -> None:
    """The same, in a thread."""
    checkpoint({"row": 8})
    time.sleep(3600)


@activity.defn
async def hang() -> None:
    """Never answer, and save nothing."""
    await asyncio.sleep(3600)


async def main(address: str, task_queue: str) -> None:
    """Serve until killed."""
    client = await Client.connect(address, identity="doomed")
    worker = Worker(
        client,
        task_queue=task_queue,
        activities=[save_and_hang, save_and_hang_in_thread, hang],
        activity_executor=ThreadPoolExecutor(),
        plugins=[HorariumPlugin()],
    )
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
