"""Workflows as a team has them, which know nothing of ours: targets of jobs in tests."""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

ONCE = RetryPolicy(maximum_attempts=1)


@activity.defn
async def refuse(kind: str) -> None:
    """Fail with an error of this type, for good."""
    raise ApplicationError("the bank said no", type=kind, non_retryable=True)


@activity.defn
async def hang() -> None:
    """Never answer."""
    await asyncio.sleep(3600)


@workflow.defn
class Settlement:
    """Does what its payload says. Takes the run, as a workflow written for Horarium does."""

    @workflow.run
    async def run(self, run: dict[str, Any]) -> Any:
        """Do it."""
        return await _do(run["payload"], run)


@workflow.defn
class Stranger:
    """Takes an argument of its own, and nothing else."""

    @workflow.run
    async def run(self, order: str) -> str:
        """Say what it was given, and whose attempt it is as far as its memo tells."""
        return f"{order} {workflow.memo_value('horarium_fence', type_hint=int)}"


@workflow.defn
class Pair:
    """Takes both."""

    @workflow.run
    async def run(self, order: str, run: dict[str, Any]) -> str:
        """Say what it was given."""
        return f"{order} {run['payload']} {run['fence']}"


@workflow.defn
class Crowd:
    """Starts many workflows in one task, which no worker takes, and stays."""

    @workflow.run
    async def run(self, names: list[str], task_queue: str) -> None:
        """Start them, under these ids."""
        starts = [workflow.start_child_workflow("Nobody", id=name, task_queue=task_queue) for name in names]
        await asyncio.gather(*starts)
        await workflow.wait_condition(lambda: False)


async def _do(what: str, run: dict[str, Any]) -> Any:
    match what:
        case "tell":
            return run
        case "bytes":
            return b"\xff\x00"
        case "twice as new":
            await workflow.sleep(0.3)
            workflow.continue_as_new({**run, "payload": "once as new"})
        case "once as new":
            await workflow.sleep(0.3)
            workflow.continue_as_new({**run, "payload": "end"})
        case "end":
            return "the end"
        case "for ever as new":
            await workflow.sleep(1.1)
            workflow.continue_as_new(run)
        case "fail twice":
            if run["attempt"] <= 2:
                raise ApplicationError(f"attempt {run['attempt']}", type="Hiccup")
            return "at last"
        case "never again":
            raise ApplicationError("no such customer", type="PermanentError", non_retryable=True)
        case "fail inside":
            await workflow.execute_activity(
                refuse, "BankError", start_to_close_timeout=timedelta(seconds=5), retry_policy=ONCE
            )
        case "hang inside":
            await workflow.execute_activity(hang, start_to_close_timeout=timedelta(seconds=1), retry_policy=ONCE)
        case "clean up":
            await _clean_up()
        case "ignore":
            while True:
                try:
                    await workflow.sleep(3600)
                except asyncio.CancelledError:
                    continue
        case _:
            await workflow.sleep(3600)
    return None


async def _clean_up() -> None:
    try:
        await workflow.sleep(3600)
    except asyncio.CancelledError:
        await workflow.sleep(0.5)
        raise
