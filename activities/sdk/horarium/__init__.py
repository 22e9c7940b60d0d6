"""Horarium's SDK for job authors. Imports nothing of the scheduler, so it fits into any team's worker."""

from horarium.attempt import checkpoint, current_run
from horarium.attempt_report import AttemptReport, parse_attempt_report
from horarium.clock import now
from horarium.error import EffectRefused, PermanentError, RetryLater
from horarium.job_activity import wrap_activity
from horarium.job_run import JobRun, RunKind
from horarium.log import JobLogger, RunFields, get_logger, logger
from horarium.once import once, once_sync
from horarium.plugin import HorariumPlugin

__all__ = [
    "AttemptReport",
    "EffectRefused",
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
