"""Horarium's SDK: for job authors, and for whoever talks to the API. Imports nothing of the scheduler, so it fits anywhere.

What needs the SDK of Temporal, or httpx, is imported when it is first asked for: a program that only calls the API has no worker
in it, and a worker no HTTP client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from horarium.attempt import checkpoint, current_run
from horarium.attempt_report import AttemptReport, parse_attempt_report
from horarium.clock import now
from horarium.error import EffectRefused, PermanentError, RetryLater
from horarium.job_run import JobRun, RunKind
from horarium.log import JobLogger, RunFields, get_logger, logger

if TYPE_CHECKING:
    from horarium.client import AsyncClient, Client, HorariumError
    from horarium.effect_once import once, once_sync
    from horarium.job_activity import wrap_activity
    from horarium.plugin import HorariumPlugin
else:
    _WHEN_ASKED_FOR: Final = {
        "AsyncClient": "horarium.client",
        "Client": "horarium.client",
        "HorariumError": "horarium.client",
        "HorariumPlugin": "horarium.plugin",
        "once": "horarium.effect_once",
        "once_sync": "horarium.effect_once",
        "wrap_activity": "horarium.job_activity",
    }

    def __getattr__(name):
        """Import what is asked for the first time."""
        if name not in _WHEN_ASKED_FOR:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found = getattr(import_module(_WHEN_ASKED_FOR[name]), name)
        return found

    def __dir__():
        """List what there is, imported or not."""
        return sorted({*globals(), *_WHEN_ASKED_FOR})


__all__ = [
    "AsyncClient",
    "AttemptReport",
    "Client",
    "EffectRefused",
    "HorariumError",
    "HorariumPlugin",
    "JobLogger",
    "JobRun",
    "PermanentError",
    "RetryLater",
    "RunFields",
    "RunKind",
    "checkpoint",
    "current_run",
    "get_logger",
    "logger",
    "now",
    "once",
    "once_sync",
    "parse_attempt_report",
    "wrap_activity",
]
