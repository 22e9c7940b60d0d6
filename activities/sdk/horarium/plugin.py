"""The Temporal plugin that lets a team's worker run jobs."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Final

from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.plugin import SimplePlugin
from temporalio.worker import Worker, WorkerConfig

from horarium.announcing import announcing
from horarium.effect import EffectStore
from horarium.effect_desk import open_effect_desk
from horarium.encryption_keys import VARIABLE, keys_of_environment, read_keys
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

    ``encryption_keys`` is the file of the keys that payloads are encrypted with, as the scheduler has it. Default: the one that
    ``HORARIUM_ENCRYPTION_KEYS_FILE`` names; without that nothing is encrypted. Payloads are the client's business: with keys give
    the plugin to it, ``Client.connect(..., plugins=[HorariumPlugin()])``, and its workers have it too.
    """

    def __init__(
        self,
        *,
        announce: bool = True,
        effects: str | EffectStore | None = None,
        encryption_keys: Path | str | None = None,
    ) -> None:
        self._encrypt = _encryption(encryption_keys)
        super().__init__("horarium.HorariumPlugin", interceptors=[TraceContext()], data_converter=self._encrypt)
        self._announce = announce
        self._effects = open_effect_desk(effects)
        self._running = 0

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Wrap the activities, and let heartbeats through every second."""
        config = super().configure_worker(config)
        if isinstance(config.get("activity_executor"), ProcessPoolExecutor):
            raise ValueError("HorariumPlugin runs functions in threads: give the worker a ThreadPoolExecutor")
        if self._encrypt is not None:
            _require_encrypting(config["client"])
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


def _encryption(file: Path | str | None) -> Callable[[DataConverter | None], DataConverter] | None:
    """Make what lets a data converter encrypt; ``None`` without keys."""
    keys = keys_of_environment() if file is None else read_keys(Path(file))
    if not keys:
        return None
    try:
        from horarium.encryption import encrypting
    except ImportError as error:
        raise ImportError(f"there are encryption keys ({VARIABLE}): install horarium[encryption]") from error
    return lambda converter: encrypting(converter or DataConverter.default, keys)


def _require_encrypting(client: Client) -> None:
    from horarium.encryption import is_encrypting

    if not is_encrypting(client.data_converter):
        raise ValueError(
            f"there are encryption keys ({VARIABLE}), and this worker's client does not use them: give the plugin to the client, "
            "Client.connect(..., plugins=[HorariumPlugin()]), rather than to the worker"
        )
