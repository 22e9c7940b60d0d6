"""The Temporal plugin that lets a team's worker run jobs."""

from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from typing import Final

from temporalio.plugin import SimplePlugin
from temporalio.worker import WorkerConfig

from horarium.job_activity import wrap_activity

HEARTBEAT_THROTTLE: Final = timedelta(seconds=1)
"""Temporal holds heartbeats back for 0.8 of their timeout, checkpoints included. With this, what the server knows
is at most about a second old."""


class HorariumPlugin(SimplePlugin):
    """Makes every activity of a worker runnable as a job: ``Worker(client, ..., plugins=[HorariumPlugin()])``.

    Other workflows see no difference. Functions that are not ``async`` need a thread pool as ``activity_executor``.
    """

    def __init__(self) -> None:
        super().__init__("horarium.HorariumPlugin")

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Wrap the activities, and let heartbeats through every second."""
        config = super().configure_worker(config)
        if isinstance(config.get("activity_executor"), ProcessPoolExecutor):
            raise ValueError("HorariumPlugin runs functions in threads: give the worker a ThreadPoolExecutor")
        worker = config.get("identity") or config["client"].identity
        config["activities"] = [wrap_activity(function, worker=worker) for function in config.get("activities", [])]
        longest = config.get("max_heartbeat_throttle_interval", HEARTBEAT_THROTTLE)
        config["max_heartbeat_throttle_interval"] = min(longest, HEARTBEAT_THROTTLE)
        return config
