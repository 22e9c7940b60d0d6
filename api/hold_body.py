"""What holds are asked for with, and how they are answered. Pure."""

from datetime import datetime, timedelta
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, Field, JsonValue

from activities.hold_store import HoldSpread, StoredHold
from api.body import Body, read_body
from api.field import Text, in_any_case
from api.job_body import LABEL_KEY, LABELS_LIMIT
from api.problem import FieldError, InvalidRequest
from api.steer_body import Reason
from api.strict_json import escape_pointer, require_fit
from workflows.job import Hold, PausedFires
from workflows.schedule_parser import parse_moment

LONGEST_HOLD: Final = timedelta(days=3_650)

EVERYTHING: Final = "all"

_CATCH_UP: Final = (
    "none: what fell into the hold is in the ledger as held, and never runs. apply: it counts as missed, and "
    "missed_window decides. Of several holds at once, all must say apply."
)

HoldState: TypeAlias = Literal["in_force", "released", "expired", "dry_run"]


class HoldBody(Body):
    """Which jobs are held, why, and until when."""

    selector: str | dict[str, Text] = Field(
        description="Labels that a job must have, all of them: `team=finance`, `env=prod,tier=2` or an object of them; "
        "`all`: every job. Jobs that get such labels later, or are registered later, are held as well."
    )
    reason: Reason = Field(default="", description="For people; in the ledger beside each fire that is held.")
    by: Text = Field(default="", description="Who holds them.")
    until: str | None = Field(default=None, description="Then it ends by itself. Default: when somebody releases it.")
    catch_up: Annotated[PausedFires, in_any_case(PausedFires)] = Field(
        default=PausedFires.NONE, description=f"At its end. {_CATCH_UP}"
    )
    dry_run: bool = Field(default=False, description="Only say which jobs it would be over.")


class ReleaseBody(Body):
    """What becomes of the fires that fell into the hold."""

    catch_up: Annotated[PausedFires, in_any_case(PausedFires)] | None = Field(
        default=None, description=f"Default: as the hold says. {_CATCH_UP}"
    )


class HoldAnswer(BaseModel):
    """A hold, and the jobs that it is over."""

    hold_id: str | None = Field(description="null of a dry run.")
    state: HoldState
    selector: str = Field(description="`all`, or the labels that a job must have.")
    labels: dict[str, str] = Field(description="The same as an object; empty for `all`.")
    reason: str
    by: str
    created_at: datetime
    until: datetime | None
    catch_up: PausedFires
    released_at: datetime | None = Field(description="When somebody released it, before it ended by itself.")
    jobs: int = Field(description="Jobs with its labels that are active or paused.")
    held: int = Field(
        description="Jobs that have been told of it, and not of its end. In force, it becomes `jobs`; released, 0."
    )
    job_ids: list[str] = Field(description="The first hundred of `jobs`, by id.")


def read_hold(value: JsonValue) -> HoldBody:
    """Read the body of a hold. Raises ``InvalidRequest``."""
    return read_body(HoldBody, require_fit(value))


def hold_of(body: HoldBody, *, tenant: str, hold_id: str, now: datetime) -> StoredHold:
    """Make the hold that is asked for. Raises ``InvalidRequest`` and ``InvalidSchedule``."""
    until = None if body.until is None else parse_moment(body.until, timezone="UTC", pointer="/until")
    if until is not None and not now < until <= now + LONGEST_HOLD:
        raise InvalidRequest(FieldError(pointer="/until", detail="must lie in the future, within ten years"))
    hold = Hold(hold_id=hold_id, at=now, reason=body.reason, by=body.by, until=until, catch_up=body.catch_up)
    return StoredHold(tenant=tenant, hold=hold, selector=read_selector(body.selector))


def read_release(value: JsonValue) -> PausedFires | None:
    """Read the body of a release. Raises ``InvalidRequest``."""
    return read_body(ReleaseBody, require_fit(value)).catch_up


def read_selector(selector: str | dict[str, str]) -> dict[str, str]:
    """Read which labels a job must have; none for every job. Raises ``InvalidRequest``."""
    if isinstance(selector, str):
        return {} if selector.strip() == EVERYTHING else _checked(dict(_read_pairs(selector)), pointer=None)
    if not selector:
        raise InvalidRequest(FieldError(pointer="/selector", detail=f"no label; for every job write {EVERYTHING!r}"))
    return _checked(selector, pointer="/selector")


def write_selector(labels: dict[str, str]) -> str:
    """Write a selector as people do."""
    return ",".join(f"{name}={value}" for name, value in labels.items()) or EVERYTHING


def describe_hold(stored: StoredHold, spread: HoldSpread, *, now: datetime, is_dry_run: bool = False) -> HoldAnswer:
    """Say a hold."""
    hold = stored.hold
    return HoldAnswer(
        hold_id=None if is_dry_run else hold.hold_id,
        state="dry_run" if is_dry_run else _state_of(stored, now=now),
        selector=write_selector(stored.selector),
        labels=stored.selector,
        reason=hold.reason,
        by=hold.by,
        created_at=hold.at,
        until=hold.until,
        catch_up=hold.catch_up,
        released_at=stored.released_at,
        jobs=spread.jobs,
        held=spread.held,
        job_ids=list(spread.job_ids),
    )


def _state_of(stored: StoredHold, *, now: datetime) -> HoldState:
    if stored.released_at is not None:
        return "released"
    return "expired" if stored.is_expired(now=now) else "in_force"


def _read_pairs(selector: str) -> list[tuple[str, str]]:
    pairs = [part.strip().partition("=") for part in selector.split(",")]
    for name, separator, _ in pairs:
        if not separator or not name:
            detail = f"give {EVERYTHING}, or labels such as team=finance or env=prod,tier=2"
            raise InvalidRequest(FieldError(pointer="/selector", detail=detail))
    names = [name for name, _, _ in pairs]
    if len(set(names)) < len(names):
        raise InvalidRequest(FieldError(pointer="/selector", detail="a label is named twice; no job has both values"))
    return [(name, value) for name, _, value in pairs]


def _checked(labels: dict[str, str], *, pointer: str | None) -> dict[str, str]:
    if len(labels) > LABELS_LIMIT:
        raise InvalidRequest(FieldError(pointer="/selector", detail=f"at most {LABELS_LIMIT} labels"))
    for name in labels:
        if not LABEL_KEY.fullmatch(name):
            place = "/selector" if pointer is None else f"{pointer}/{escape_pointer(name)}"
            raise InvalidRequest(FieldError(pointer=place, detail=f"a label is named by {LABEL_KEY.pattern}"))
    return labels
