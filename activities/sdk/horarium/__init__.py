"""Horarium's SDK for job authors. Imports nothing of the scheduler, so it fits into any team's worker."""

from horarium.job_run import JobRun, RunKind

__all__ = ["JobRun", "RunKind"]
