"""Reads out of the ids that Temporal knows of which job, run and attempt something is: for logs and spans of the library."""

import re
from typing import Final

_OF_JOB: Final = re.compile(r"job/(?P<tenant>[^/]+)/(?P<job_id>[^/]+)")
_OF_RUN: Final = re.compile(r"run/(?P<tenant>[^/]+)/(?P<run_id>(?P<job_id>.+):[^:]+)")
"""As ``workflows.contracts`` builds them."""

_OF_ATTEMPT: Final = re.compile(r"(?P<run_id>.+)#(?P<attempt>\d+)\.\d+")
"""As ``workflows.attempt.activity_id`` builds it."""


def names_in_workflow_id(workflow_id: str) -> dict[str, str]:
    """Name the tenant and job, and the run if the workflow is of one; nothing for a workflow of somebody else."""
    found = _OF_JOB.fullmatch(workflow_id) or _OF_RUN.fullmatch(workflow_id)
    return {} if found is None else found.groupdict()


def names_in_activity_id(activity_id: str) -> dict[str, str | int]:
    """Name the run and the attempt; nothing for an activity that is no attempt."""
    found = _OF_ATTEMPT.fullmatch(activity_id)
    return {} if found is None else {"run_id": found["run_id"], "attempt": int(found["attempt"])}
