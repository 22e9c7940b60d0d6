"""Cheap questions to Temporal: does it answer, does anybody poll a queue, and what can its workers run.

Answers are kept for a few seconds, so that a page of reads costs one question, and none takes longer than
``PATIENCE``. Never raises: not knowing is an answer.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final, Generic, TypeVar

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.observation import REPORTED_PROBLEMS, is_polled
from horarium.catalogue import CATALOGUE_MEMO, catalogue_workflow_id
from workflows.catalogue import Catalogue, from_memo

PATIENCE: Final = timedelta(seconds=1)

REMEMBERED: Final = timedelta(seconds=3)
IN_DOUBT_REMEMBERED: Final = timedelta(seconds=1)
"""For bad news: a server that is back should not be thought away for longer."""

QUEUES_REMEMBERED: Final = 1_000

CATALOGUES_REMEMBERED: Final = 100
"""Of some kilobytes each, a few hundred at most."""

Fact = TypeVar("Fact")


@dataclass(frozen=True, kw_only=True)
class WorkflowLook:
    """What Temporal says of a job's workflow."""

    is_open: bool
    is_known: bool = True
    """Whether Temporal has it at all."""

    problems: tuple[str, ...] = ()


class _Remembered(Generic[Fact]):
    """One fact and when it was learned. Callers that come while it is being asked share the answer."""

    def __init__(self, ask: Callable[[], Awaitable[Fact]]) -> None:
        self._ask = ask
        self._known_until = 0.0
        self._asking: asyncio.Task[Fact] | None = None

    async def get(self) -> Fact:
        if self._asking is None or (self._asking.done() and time.monotonic() > self._known_until):
            self._asking = asyncio.ensure_future(self._ask_and_remember())
        return await asyncio.shield(self._asking)

    async def _ask_and_remember(self) -> Fact:
        fact = await self._ask()
        lasts = REMEMBERED if fact else IN_DOUBT_REMEMBERED
        self._known_until = time.monotonic() + lasts.total_seconds()
        return fact


class TemporalProbe:
    """What is known of one namespace."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._reachable = _Remembered(self._ask_whether_reachable)
        self._polled: dict[tuple[str, bool], _Remembered[bool | None]] = {}
        self._catalogues: dict[str, _Remembered[Catalogue | None]] = {}

    async def is_reachable(self) -> bool:
        """Say whether Temporal answers."""
        return await self._reachable.get()

    async def is_polled(self, task_queue: str, *, workflows: bool = False) -> bool | None:
        """Say whether any worker polls a queue for activities, or for workflows; ``None`` when Temporal does not say."""
        if len(self._polled) >= QUEUES_REMEMBERED:
            self._polled.clear()
        ask = partial(self._ask_whether_polled, task_queue, workflows=workflows)
        return await self._polled.setdefault((task_queue, workflows), _Remembered(ask)).get()

    async def look_at(self, workflow_id: str) -> WorkflowLook | None:
        """Look at a workflow, anew each time; ``None`` when Temporal does not say."""
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                shown = await self._client.get_workflow_handle(workflow_id).describe(rpc_timeout=PATIENCE)
        except RPCError as error:
            return WorkflowLook(is_open=False, is_known=False) if error.status is RPCStatusCode.NOT_FOUND else None
        except (RuntimeError, TimeoutError):
            return None
        problems = shown.typed_search_attributes.get(REPORTED_PROBLEMS)
        is_open = shown.status is WorkflowExecutionStatus.RUNNING
        return WorkflowLook(is_open=is_open, problems=tuple(problems or ()))

    async def catalogue_of(self, task_queue: str) -> Catalogue | None:
        """Say what the workers of a queue can run; ``None`` when none of them or Temporal does not say."""
        if len(self._catalogues) >= CATALOGUES_REMEMBERED:
            self._catalogues.clear()
        queue = self._catalogues.setdefault(task_queue, _Remembered(lambda: self._ask_for_catalogue(task_queue)))
        return await queue.get()

    async def _ask_whether_reachable(self) -> bool:
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                return await self._client.service_client.check_health(timeout=PATIENCE)
        except (RPCError, RuntimeError, TimeoutError):
            return False

    async def _ask_whether_polled(self, task_queue: str, *, workflows: bool) -> bool | None:
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                return await is_polled(self._client, task_queue, workflows=workflows)
        except (RPCError, RuntimeError, TimeoutError):
            return None

    async def _ask_for_catalogue(self, task_queue: str) -> Catalogue | None:
        handle = self._client.get_workflow_handle(catalogue_workflow_id(task_queue))
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):
                described = await handle.describe(rpc_timeout=PATIENCE)
                memo: str | None = await described.memo_value(CATALOGUE_MEMO, None, type_hint=str)
                return from_memo(memo) if memo is not None else None
        except (RPCError, RuntimeError, TimeoutError, ValueError):
            # The last: a memo that is none of ours, or of a release that we do not understand.
            return None
