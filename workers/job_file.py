"""A file of jobs, and its registration over HTTP: ``jobs:`` and a list of bodies as ``POST /api/v1/jobs`` takes them.

Each has a ``job_id``, so that registering the file again finds what is there. What is there stays as it is, deleted jobs too:
the file is a beginning, not a description of how things should be.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import distribution
from pathlib import Path
from typing import Final, cast

import httpx
import yaml
from pydantic import JsonValue
from pydantic_core import to_jsonable_python

JobBody = dict[str, JsonValue]

MEMBER: Final = "jobs"

EXAMPLES: Final = "jobs.yaml"
"""In ``temporal-dev`` of a checkout, and among the data of an installed wheel."""

DISTRIBUTION: Final = "horarium-server"


class BadJobFile(Exception):
    """A file of jobs that cannot be registered. The text names the file, the place in it and what is wrong there."""


@dataclass(frozen=True)
class JobFile:
    """A file that was read, and is in order as far as can be seen without the API."""

    path: Path
    jobs: Sequence[JobBody]


def find_example_file() -> Path:
    """Find the example jobs of this checkout, or of this installation. Raises ``BadJobFile`` where neither has them."""
    in_checkout = Path(__file__).parents[1] / "temporal-dev" / EXAMPLES
    if in_checkout.is_file():
        return in_checkout
    for file in distribution(DISTRIBUTION).files or ():
        if file.name == EXAMPLES:
            return Path(str(file.locate())).resolve()
    raise BadJobFile(f"{EXAMPLES}: not installed; without example jobs it is --no-examples")


def read_job_file(path: Path) -> JobFile:
    """Read a file of jobs. Raises ``BadJobFile``."""
    try:
        content = to_jsonable_python(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError) as error:
        raise BadJobFile(f"{path}: {_in_one_line(error)}") from error
    jobs = content.get(MEMBER) if isinstance(content, dict) else None
    if not isinstance(jobs, list):
        raise BadJobFile(f"{path}: a list of jobs under the name {MEMBER!r} is expected")
    for number, job in enumerate(jobs, start=1):
        if not isinstance(job, dict) or not isinstance(job.get("job_id"), str):
            raise BadJobFile(f"{path}: job {number}: an object with a job_id is expected")
    return JobFile(path, jobs)


async def register_jobs(file: JobFile, api: httpx.AsyncClient) -> list[str]:
    """Register the jobs that are not there yet, and name them. Raises ``BadJobFile`` for one that the API refuses."""
    return [str(job["job_id"]) for job in file.jobs if await _register(job, file.path, api)]


async def _register(job: JobBody, path: Path, api: httpx.AsyncClient) -> bool:
    found = await api.get(f"/jobs/{job['job_id']}")
    if found.status_code == HTTPStatus.OK:
        return False
    answer = await api.post("/jobs", json=job, headers={"Idempotency-Key": f"job-file-{job['job_id']}"})
    if answer.status_code == HTTPStatus.CONFLICT:
        return False
    if answer.is_client_error:
        raise BadJobFile(f"{path}: job {job['job_id']}: {_describe(answer)}")
    answer.raise_for_status()
    return True


def _describe(answer: httpx.Response) -> str:
    """Read an RFC 9457 problem: what is wrong with which field."""
    try:
        problem = cast("dict[str, JsonValue]", answer.json())
    except ValueError:
        return f"{answer.status_code} {answer.reason_phrase}"
    errors = problem.get("errors")
    listed = errors if isinstance(errors, list) else []
    lines = [f"{error.get('pointer')}: {error.get('detail')}" for error in listed if isinstance(error, dict)]
    return "; ".join(lines) or str(problem.get("detail") or problem.get("title"))


def _in_one_line(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return " ".join(str(error).split())
