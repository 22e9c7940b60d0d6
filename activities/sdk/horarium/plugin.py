"""The Temporal plugin that lets a team's worker run jobs."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta
from typing import Final

from temporalio.plugin import SimplePlugin
from temporalio.worker import Worker, WorkerConfig

from horarium.announcing import announcing
from horarium.effect import EffectStore
from horarium.effect_desk import open_effect_desk
from horarium.job_activity import wrap_activity
from horarium.trace import TraceContext

HEARTBEAT_THROTTLE: Final = timedelta(seconds=1)
"""Temporal holds heartbeats back for 0.8 of their timeout, checkpoints included. With this, what the server knows
is at most about a second old."""


class HorariumPlugin(SimplePlugin):
    """Makes every activity of a worker runnable as a job: ``Worker(client, ..., plugins=[HorariumPlugin()])``.

    Other workflows see no difference. Functions that are not ``async`` need a thread pool as ``activity_executor``.

    The worker tells the scheduler what payloads its activities take, so that a job with another one is refused when it is
    registered; ``announce=False`` keeps that to itself.

    ``effects`` is where ``once`` keeps its claims: the scheduler's database, one of your own (``postgresql://...`` or
    ``sqlite:///FILE``, with ``horarium[effects]`` installed), or any ``EffectStore``. Default: the URL in
    ``HORARIUM_EFFECTS_URL``; without that, jobs that use ``once`` fail and say so.
    """

    def __init__(self, *, announce: bool = True, effects: str | EffectStore | None = None) -> None:
        super().__init__("horarium.HorariumPlugin", interceptors=[TraceContext()])
        self._announce = announce
        self._effects = open_effect_desk(effects)
        self._running = 0

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Wrap the activities, and let heartbeats through every second."""
        config = super().configure_worker(config)
        if isinstance(config.get("activity_executor"), ProcessPoolExecutor):
            raise ValueError("HorariumPlugin runs functions in threads: give the worker a ThreadPoolExecutor")
        worker = config.get("identity") or config["client"].identity
        config["activities"] = [
            wrap_activity(function, worker=worker, effects=self._effects) for function in config.get("activities", [])
        ]
        longest = config.get("max_heartbeat_throttle_interval", HEARTBEAT_THROTTLE)
        config["max_heartbeat_throttle_interval"] = min(longest, HEARTBEAT_THROTTLE)
        return config

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """Run the worker, and announce what it can run meanwhile. The last one of this plugin closes the effect store."""
        self._running += 1
        try:
            async with self._announcing(worker):
                await super().run_worker(worker, next)
        finally:
            self._running -= 1
            if self._effects is not None and not self._running:
                await asyncio.to_thread(self._effects.close)

    def _announcing(self, worker: Worker) -> AbstractAsyncContextManager[None]:
        if not self._announce:
            return nullcontext()
        functions = worker.config(active_config=True).get("activities", [])
        return announcing(worker.client, task_queue=worker.task_queue, functions=functions)
