"""Holds: whether one keeps a job from firing, until when, and what the ledger says of the fires that fall into it.

Pure. A hold is over all jobs of a tenant that have some labels. Each of these jobs carries it, with its end, and so needs nobody
to be released in time. A hold and a pause know nothing of each other: a job fires when it has neither.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from workflows.job import DEFAULT_TENANT, Hold, JobRecord, JobState, Lifecycle, Pause, PausedFires
from workflows.run import Outcome
from workflows.value import Value

PAUSED: Final = "the job was paused"

REASON_LIMIT: Final = 500
"""Characters of what the ledger says of a fire."""


@dataclass(frozen=True, kw_only=True)
class Standstill:
    """Why a job does not fire, though it is to go on: what becomes of fires in the ledger."""

    outcome: Outcome
    reason: str


class HoldProgress(Value):
    """How far the jobs have been told of a hold, or of its end."""

    after: str = ""
    """Id of the last job that was looked at in this round."""

    told: int = 0
    """Jobs, since the workflow began."""

    failed: int = 0
    """Jobs of this round whose workflow Temporal does not have: they do not fire either."""

    is_done: bool = False
    trouble: str | None = None
    """What kept jobs of this round from being told; they come again in the next one."""


class HoldOrder(Value):
    """Input of ``HoldWorkflow``: let the jobs be as the hold is in the store, in force or not."""

    tenant: str = DEFAULT_TENANT
    hold_id: str = ""
    progress: HoldProgress | None = None
    """Of the run before."""


def is_firing(job: JobState | JobRecord) -> bool:
    """Say whether nothing keeps a job from firing."""
    return job.lifecycle is Lifecycle.ACTIVE and not job.holds


def is_held(job: JobState | JobRecord) -> bool:
    """Say whether holds alone keep a job from firing."""
    return job.lifecycle is Lifecycle.ACTIVE and bool(job.holds)


def standstill(job: JobState | JobRecord) -> Standstill | None:
    """Say why a job does not fire now; ``None`` for one that fires, or never will. A paused job is that, held or not."""
    if job.lifecycle is Lifecycle.PAUSED:
        return Standstill(outcome=Outcome.PAUSED, reason=describe_pause(job.pause))
    return Standstill(outcome=Outcome.HELD, reason=describe_holds(job.holds)) if is_held(job) else None


def describe_pause(pause: Pause | None) -> str:
    """Say that a job was paused, with the reason that was given last."""
    return f"{PAUSED}: {pause.reason}"[:REASON_LIMIT] if pause is not None and pause.reason else PAUSED


def describe_holds(holds: tuple[Hold, ...]) -> str:
    """Name holds, with their reasons."""
    named = (f"{hold.hold_id} ({hold.reason})" if hold.reason else hold.hold_id for hold in holds)
    return f"held by {', '.join(named)}"[:REASON_LIMIT]


def release_time(holds: tuple[Hold, ...]) -> datetime | None:
    """Say when the last of some holds ends by itself; ``None`` when one of them does not, or there are none."""
    ends = [hold.until for hold in holds if hold.until is not None]
    return max(ends) if ends and len(ends) == len(holds) else None


def is_caught_up(holds: tuple[Hold, ...]) -> bool:
    """Say whether what falls into some holds at once counts as missed afterwards: only if all of them say so."""
    return all(hold.catch_up is PausedFires.APPLY for hold in holds)


def with_hold(holds: tuple[Hold, ...], hold: Hold) -> tuple[Hold, ...]:
    """Add a hold; one that is there stays where it is, and as it is."""
    return holds if any(each.hold_id == hold.hold_id for each in holds) else (*holds, hold)


def without_hold(holds: tuple[Hold, ...], hold_id: str) -> tuple[Hold, ...]:
    """Take a hold out."""
    return tuple(each for each in holds if each.hold_id != hold_id)


def with_choice(state: JobState, hold_id: str, catch_up: PausedFires) -> JobState:
    """Let the end of a hold do something else with the fires that fell into it."""
    holds = tuple(
        each.model_copy(update={"catch_up": catch_up}) if each.hold_id == hold_id else each for each in state.holds
    )
    return state.model_copy(update={"holds": holds})


def chooses(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Say whether a job with these labels has all that a hold names. One that names none is over every job."""
    return all(labels.get(name) == value for name, value in selector.items())
