"""What a new job begins with: its id, its state, and how it is shown before its workflow has said anything.

Pure, but that ids and keys are drawn where the caller gave none.
"""

import base64
import hashlib
import secrets
from datetime import UTC, datetime, timedelta
from typing import Final

from api.job_body import JobRequest
from workflows.change import NOT_ENABLED, change_job
from workflows.command import ChangeCommand
from workflows.command_answer import answer_command, remembered_record
from workflows.error import InvalidSchedule
from workflows.fire_times import next_fires
from workflows.hold import release_time
from workflows.job import (
    Answer,
    CarriedFire,
    FirePlan,
    Hold,
    JobRecord,
    JobState,
    LedgerEntry,
    Lifecycle,
    Pause,
)
from workflows.job_state import with_entries
from workflows.revival import revived_state
from workflows.run import Outcome, Run
from workflows.schedule import Fire, IfPast, OneOffRule
from workflows.schedule_parser import check_fires

_BEGINNING: Final = datetime(1, 1, 1, tzinfo=UTC)

_PAST_GRACE: Final = timedelta(days=1)
"""For a time in the past that is to run now: workers may be away for a while."""

JOB_ID_PREFIX: Final = "j_"

JOB_ID_BYTES: Final = 15
"""120 bits: no two drawn ids are ever the same. 24 characters in base 32."""


def new_job_id(*, tenant: str, key: str | None) -> str:
    """Make an id. From an idempotency key it is always the same, so that a repeat after a crash finds the same job."""
    drawn = secrets.token_bytes(JOB_ID_BYTES)
    known = hashlib.sha256(f"{tenant}\0{key}".encode()).digest()[:JOB_ID_BYTES]
    return JOB_ID_PREFIX + base64.b32encode(drawn if key is None else known).decode().lower()


def new_command_key() -> str:
    """Make the key of a command whose caller gave none."""
    return secrets.token_hex(16)


def first_state(
    request: JobRequest,
    *,
    tenant: str,
    key: str,
    before: JobRecord | None,
    now: datetime,
    holds: tuple[Hold, ...] = (),
) -> JobState:
    """Make the state that a job begins with. ``before`` is what the mirror knows of an earlier job of the same id.

    The ``holds`` over it are there from the beginning.

    Its plan is of no revision: it only shows the first fire until the planner has been asked.

    Raises:
        InvalidSchedule: the job has no fire after ``now``.
    """
    job_id, definition = request.job_id, request.definition
    past = _find_past(request, before=before, now=now)
    if past is None:
        check_fires(request.schedule, job_id=job_id, after=now)
    first = next_fires(definition.schedule, job_id=job_id, after=release_time(holds) or now, count=1)
    is_paused = request.enabled is False
    state = JobState(
        tenant=tenant,
        job_id=job_id,
        definition=definition,
        # Goes on counting, so that an ETag of the old registration does not fit the new one.
        revision=before.revision + 1 if before else 1,
        lifecycle=Lifecycle.PAUSED if is_paused else Lifecycle.ACTIVE,
        pause=Pause(at=now, reason=NOT_ENABLED) if is_paused else None,
        holds=holds,
        registered_at=now,
        updated_at=now,
        high_water=max(now, before.high_water) if before else now,
        version=max(_microseconds(now), before.version + 1 if before else 0),
        fence=before.fence if before else 0,
        plan=FirePlan(revision=0, planned_at=now, upcoming=tuple(first)),
    )
    if past is not None:
        state = _with_past(state, past, if_past=request.if_past, now=now)
    return state.model_copy(update={"answers": (Answer(key=key, at=now, record=remembered_record(state)),)})


def _find_past(request: JobRequest, *, before: JobRecord | None, now: datetime) -> Fire | None:
    """Find the one fire of a job that lies in the past and about which the request says something.

    Raises InvalidSchedule where an earlier job of this id may have run at that time.
    """
    schedule = request.definition.schedule
    if request.if_past is None or not isinstance(schedule.rule, OneOffRule):
        return None
    found = next_fires(schedule, job_id=request.job_id, after=_BEGINNING, count=1)
    if not found or found[0].nominal > now:
        return None
    if before is not None and found[0].nominal <= before.high_water:
        reason = "a job of this id has dealt with that time already, and a time is run once at most"
        raise InvalidSchedule(reason, pointer="/if_past")
    return found[0]


def _with_past(state: JobState, fire: Fire, *, if_past: IfPast | None, now: datetime) -> JobState:
    """Let a job begin with a time in the past: it runs at once, or the ledger says why it does not."""
    if if_past is IfPast.RUN_NOW:
        due = Fire(nominal=fire.nominal, target=now)
        carried = CarriedFire(fire=due, revision=state.revision, grace=_PAST_GRACE)
        return state.model_copy(update={"carried": (carried,)})
    reason = "its time had passed when the job was registered (if_past: skip)"
    entry = LedgerEntry(first=fire.nominal, last=fire.nominal, outcome=Outcome.MISSED, reason=reason)
    return with_entries(state, (entry,), now=now)


def changed_state(found: JobRecord, last: Run | None, command: ChangeCommand, *, now: datetime) -> JobState:
    """Make the state that a completed job goes on from with another definition. ``last`` is the run that ended last."""
    state = change_job(revived_state(found, last=last, now=now), command, now=now)
    after = release_time(state.holds) or now
    first = next_fires(state.definition.schedule, job_id=state.job_id, after=after, count=1)
    # Of no revision, as in a new job's state: it only shows the first fire.
    plan = FirePlan(revision=0, planned_at=now, upcoming=tuple(first))
    return answer_command(state.model_copy(update={"plan": plan}), command, now=now)[0]


def deleted_record(found: JobRecord, *, now: datetime) -> JobRecord:
    """Show a job as deleted that has no workflow to say so."""
    return found.model_copy(
        update={
            "version": max(_microseconds(now), found.version + 1),
            "lifecycle": Lifecycle.DELETED,
            "updated_at": now,
            "next_run_at": None,
            "next_target_at": None,
            "active_runs": 0,
            "waiting_runs": 0,
        }
    )


def _microseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
