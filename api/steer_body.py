"""What pausing, resuming, triggering and cancelling is asked with, and how it is answered. Pure."""

from datetime import datetime, timedelta
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, Field, JsonValue

from api.answer import RunAnswer
from api.body import Body, read_body
from api.field import PAYLOAD_LIMIT, Text, check_printable, in_any_case
from api.job_body import OVERLAP_ALIASES
from api.problem import FieldError, InvalidRequest
from api.strict_json import compact_size, require_fit
from workflows.job import OverlapPolicy, Pause, PausedFires, TriggerOutcome
from workflows.schedule_parser import parse_moment

LONGEST_PAUSE: Final = timedelta(days=3_650)

Reason = Annotated[str, Field(max_length=500), AfterValidator(check_printable)]
CatchUp = Annotated[PausedFires, in_any_case(PausedFires)]

_CATCH_UP: Final = (
    "none: what fell into the pause is in the ledger as paused, and never runs. apply: it counts as missed, and "
    "missed_window decides."
)


class PauseBody(Body):
    """Why a job is paused, and until when. All may be left out."""

    reason: Reason = Field(default="", description="For people.")
    by: Text = Field(default="", description="Who pauses it.")
    until: str | None = Field(default=None, description="Then it resumes by itself. Default: when somebody resumes it.")
    catch_up: CatchUp = Field(default=PausedFires.NONE, description=f"At `until`. {_CATCH_UP}")


class ResumeBody(Body):
    """What becomes of the fires that fell into the pause."""

    catch_up: CatchUp = Field(default=PausedFires.NONE, description=_CATCH_UP)


class TriggerBody(Body):
    """How this one run differs. All may be left out."""

    keeps_null = frozenset({"payload"})

    payload: JsonValue = Field(
        default=None,
        description=f"Instead of the job's, for this run and its redrives; null counts. At most {PAYLOAD_LIMIT} bytes of JSON.",
    )
    overlap: Annotated[OverlapPolicy, in_any_case(OverlapPolicy, OVERLAP_ALIASES)] | None = Field(
        default=None, description="Instead of the job's policy. Default: the job's, as for a fire."
    )
    skip_next: bool = Field(
        default=False,
        description="The run takes the place of the next fire, which the ledger then calls consumed. Without a next fire: 409.",
    )


class CancelBody(Body):
    """Why a run is cancelled."""

    reason: Reason = Field(default="", description="Told in the run.")


class TriggerAnswer(BaseModel):
    """What became of a trigger."""

    outcome: TriggerOutcome = Field(
        description="started; buffered: the run waits for those in its way; skipped: the overlap policy let it pass."
    )
    run_id: str
    consumed: datetime | None = Field(description="Nominal time of the fire that the run takes the place of.")
    run: RunAnswer = Field(description="As it is by now; of a skipped trigger, with the reason.")
    warnings: list[str] = Field(
        default=[], description="Such as that the job is held: who triggers it runs it all the same."
    )


def read_pause(value: JsonValue, *, now: datetime) -> Pause:
    """Read the body of a pause. Raises ``InvalidRequest`` and ``InvalidSchedule``."""
    body = read_body(PauseBody, require_fit(value))
    until = None if body.until is None else parse_moment(body.until, timezone="UTC", pointer="/until")
    if until is not None and not now < until <= now + LONGEST_PAUSE:
        raise InvalidRequest(FieldError(pointer="/until", detail="must lie in the future, within ten years"))
    if body.catch_up is not PausedFires.NONE and until is None:
        reason = "goes with until; a pause without end is told at its resume"
        raise InvalidRequest(FieldError(pointer="/catch_up", detail=reason))
    return Pause(at=now, reason=body.reason, by=body.by, until=until, catch_up=body.catch_up)


def read_resume(value: JsonValue) -> PausedFires:
    """Read the body of a resume. Raises ``InvalidRequest``."""
    return read_body(ResumeBody, require_fit(value)).catch_up


def read_trigger(value: JsonValue) -> TriggerBody:
    """Read the body of a trigger. Raises ``InvalidRequest``."""
    body = read_body(TriggerBody, require_fit(value))
    if (size := compact_size(body.payload)) > PAYLOAD_LIMIT:
        detail = f"{size} bytes as JSON; {PAYLOAD_LIMIT} are allowed"
        raise InvalidRequest(FieldError(pointer="/payload", detail=detail))
    return body


def read_cancel(value: JsonValue) -> str:
    """Read the body of a cancellation; answers its reason. Raises ``InvalidRequest``."""
    return read_body(CancelBody, require_fit(value)).reason
