"""What a workflow has going on beside its turns."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")


class Chores:
    """Tasks of one workflow. Each that ends gives its turns something to look at; one that breaks fails the workflow task."""

    def __init__(self, *, notice: Callable[[], None]) -> None:
        self._notice = notice
        self._out: set[asyncio.Task[object]] = set()
        self._broken: list[BaseException] = []

    def __len__(self) -> int:
        """Say how many chores are out. While there are any, the run cannot continue as new."""
        return len(self._out)

    def start_task(self, work: Coroutine[None, None, T]) -> asyncio.Task[T]:
        """Start what somebody else keeps count of."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._end)
        return task

    def start(self, work: Coroutine[None, None, T]) -> asyncio.Task[T]:
        """Start a chore: an ordinary activity, a child workflow, and the like."""
        task = self.start_task(work)
        self._out.add(task)
        return task

    def raise_if_broken(self) -> None:
        """Raise what the first of the tasks that broke has raised."""
        if self._broken:
            raise self._broken[0]

    def _end(self, task: asyncio.Task[T]) -> None:
        self._out.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug. Raised where it fails the workflow task, which is retried until the code is mended.
            self._broken.append(error)
        self._notice()
