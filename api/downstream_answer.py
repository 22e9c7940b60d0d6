"""What the API says of downstreams: their breakers, which are one for all, and what each scheduler process has counted. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from pydantic import BaseModel, Field, JsonValue

from activities.downstream_store import KnownDownstream
from workflows.downstream import BreakerLook, BreakerState, GateReport, state_of


class SchedulerAnswer(BaseModel):
    """What one scheduler process knows of a downstream; others have counted others."""

    worker: str = Field(description="Identity of the process, as Temporal's Web UI shows it.")
    seen_at: datetime = Field(description="When it said so; each does every five seconds.")
    consecutive_failures: int = Field(description="It opens the breaker at `HORARIUM_BREAKER_FAILURES`.")
    window_seconds: float = Field(description="Of the retry budget: the next three are of that time.")
    first_attempts: int
    retries: int
    retries_allowed: int = Field(description="Beyond these a run is dead as `retry_budget_exhausted`.")
    parked_runs: int = Field(description="That it has parked, and that have not come back to it.")


class DownstreamAnswer(BaseModel):
    """How a downstream stands."""

    downstream: str
    state: BreakerState | None = Field(
        description="Of its circuit breaker, one for all processes. null: neither Temporal nor a scheduler says."
    )
    opened_at: datetime | None
    open_until: datetime | None = Field(
        description="Then a run tries the downstream. null while the breaker is closed."
    )
    openings: int = Field(description="How often it opened without having been closed; each time for longer.")
    probes_out: int = Field(description="Runs that are trying the downstream.")
    jobs: int = Field(description="Jobs that call it.")
    parked_runs: int = Field(description="Their runs that wait for it, or for their turn.")
    schedulers: list[SchedulerAnswer] = Field(
        description="Processes that had to do with it in the last half minute, each with its own retry budget."
    )
    stale: bool = Field(description="Temporal does not answer: `state` is what schedulers said last.")


EXAMPLE: Final[dict[str, JsonValue]] = {
    "downstream": "bank.example.com",
    "state": "open",
    "opened_at": "2026-06-08T13:00:07Z",
    "open_until": "2026-06-08T13:01:37Z",
    "openings": 2,
    "probes_out": 0,
    "jobs": 12,
    "parked_runs": 1204,
    "schedulers": [
        {
            "worker": "41@scheduler-1",
            "seen_at": "2026-06-08T13:00:52Z",
            "consecutive_failures": 20,
            "window_seconds": 60,
            "first_attempts": 143,
            "retries": 3,
            "retries_allowed": 14,
            "parked_runs": 1204,
        }
    ],
    "stale": False,
}


def describe_downstream(
    known: KnownDownstream, look: BreakerLook | None, *, is_stale: bool, now: datetime
) -> DownstreamAnswer:
    """Say how a downstream stands; ``look`` is of its open breaker, if there is one and Temporal says so."""
    state = _last_known_state(known.reports, now=now) if is_stale else state_of(look, now=now)
    open_until = look.open_until if look is not None else None
    return DownstreamAnswer(
        downstream=known.downstream,
        state=state,
        opened_at=None if look is None else look.opened_at,
        open_until=_last_known_end(known.reports) if is_stale else open_until,
        openings=0 if look is None else look.openings,
        probes_out=0 if look is None else look.probes_out,
        jobs=known.jobs,
        parked_runs=known.parked_runs,
        schedulers=[_describe_scheduler(report) for report in known.reports],
        stale=is_stale,
    )


def _describe_scheduler(report: GateReport) -> SchedulerAnswer:
    return SchedulerAnswer(
        worker=report.worker,
        seen_at=report.seen_at,
        consecutive_failures=report.consecutive_failures,
        window_seconds=report.window.total_seconds(),
        first_attempts=report.first_attempts,
        retries=report.retries,
        retries_allowed=report.retries_allowed,
        parked_runs=report.parked_runs,
    )


def _last_known_state(reports: Iterable[GateReport], *, now: datetime) -> BreakerState | None:
    reports = list(reports)
    end = _last_known_end(reports)
    if end is None:
        return BreakerState.CLOSED if reports else None
    return BreakerState.OPEN if now < end else BreakerState.HALF_OPEN


def _last_known_end(reports: Iterable[GateReport]) -> datetime | None:
    return max((each.open_until for each in reports if each.open_until is not None), default=None)
