"""Runs as they happen, one line each, for whoever watches a terminal. Reads the API, as anybody could."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final

import httpx
from pydantic import BaseModel

JOBS_WATCHED: Final = 200
"""The first by id; a terminal is not for more."""

RUNS_READ: Final = 20
"""Of a job, the newest, each time that something happened to it."""


class JobSeen(BaseModel):
    """What tells that something happened to a job."""

    job_id: str
    active_runs: int
    last_run_id: str | None
    last_status: str | None
    last_finished_at: datetime | None


class RunSeen(BaseModel):
    """What is said of a run."""

    run_id: str
    job_id: str
    kind: str
    status: str
    created_at: datetime
    target_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    max_attempts: int
    stands_for: int
    error: str | None
    reason: str | None


class RunFeed:
    """Remembers what was shown, and shows what is new."""

    def __init__(self, api: httpx.AsyncClient, *, since: datetime) -> None:
        self._api = api
        self._since = since
        self._jobs: dict[str, JobSeen] = {}
        self._shown: dict[str, str] = {}
        """The last line of each run, without its time."""

    async def new_lines(self) -> AsyncIterator[str]:
        """Say what has happened since the last call."""
        for job in await self._read_jobs():
            before, self._jobs[job.job_id] = self._jobs.get(job.job_id), job
            if job != before or job.active_runs:
                for run in await self._read_runs(job.job_id):
                    line = describe_run(run)
                    if is_worth_a_line(run) and run.created_at >= self._since and self._shown.get(run.run_id) != line:
                        self._shown[run.run_id] = line
                        yield f"{datetime.now(UTC).astimezone():%H:%M:%S %Z}  {line}"

    async def _read_jobs(self) -> list[JobSeen]:
        answer = (await self._api.get("/jobs", params={"limit": JOBS_WATCHED})).raise_for_status()
        return [JobSeen.model_validate(job) for job in answer.json()]

    async def _read_runs(self, job_id: str) -> list[RunSeen]:
        """List the newest runs of a job, oldest first."""
        answer = (await self._api.get(f"/jobs/{job_id}/runs", params={"limit": RUNS_READ})).raise_for_status()
        return [RunSeen.model_validate(run) for run in reversed(answer.json())]


def is_worth_a_line(run: RunSeen) -> bool:
    """Whether a run was dispatched. One that is parked was, although no attempt of it counts."""
    return run.attempt > 0 or run.status == "parked"


def describe_run(run: RunSeen) -> str:
    """Write a run in one line: job, status, attempt, lateness, and what there is to explain."""
    facts = [f"attempt {run.attempt}/{run.max_attempts}"] if run.attempt else []
    if run.started_at is not None:
        facts.append(f"{max(0.0, (run.started_at - run.target_at).total_seconds()):.2f} s late")
    if run.kind != "scheduled":
        facts.append(run.kind.replace("_", "-"))
    if run.stands_for > 1:
        facts.append(f"for {run.stands_for} fires")
    explanation = " ".join((run.error or run.reason or "").split())
    if explanation and run.status != "success":
        facts.append(explanation)
    return f"{run.job_id:<24} {run.status:<9} {', '.join(facts)}"
