"""Whether a payload fits what the workers of its job say that they take. Pure."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from pydantic import JsonValue

from api.payload_schema import UnusableSchema, misfits
from api.problem import FieldError, InvalidRequest, describe_field_error
from workflows.catalogue import AnnouncedActivity, Catalogue
from workflows.target import ActivityTarget

POINTER: Final = "/payload"


def check_payload(
    payload: JsonValue, *, target: ActivityTarget, catalogue: Catalogue | None, polled: bool | None
) -> tuple[str, ...]:
    """Hold a payload against what is known of its target; answers warnings about what is not known.

    ``polled`` says whether any worker polls the queue, ``None`` that nobody knows. While versions of a worker follow each
    other, a payload that fits one of them is accepted.

    Raises:
        InvalidRequest: it fits none.
    """
    versions = catalogue.versions if catalogue else ()
    if not versions:
        return (_unchecked(target),) if polled and payload is not None else ()
    having = [each.activities[target.activity] for each in versions if target.activity in each.activities]
    if not having:
        return (_unknown_activity(target, {name for each in versions for name in each.activities}),)
    verdicts = [_errors_of(payload, activity) for activity in having]
    if all(verdicts):
        raise InvalidRequest(*verdicts[-1] or ())
    if wrong := next(filter(None, verdicts), None):
        return (f"a version of the worker that was there lately does not take this payload: {_in_words(wrong)}",)
    return (_unchecked(target),) if None in verdicts and payload is not None else ()


def _errors_of(payload: JsonValue, activity: AnnouncedActivity) -> list[FieldError] | None:
    """List what is wrong; ``None`` where that cannot be said."""
    if activity.payload_schema is None:
        return None
    try:
        return misfits(payload, activity.payload_schema, pointer=POINTER)
    except UnusableSchema:
        return None


def _in_words(errors: Iterable[FieldError]) -> str:
    return "; ".join(map(describe_field_error, errors))


def _unchecked(target: ActivityTarget) -> str:
    return (
        f"the payload was not checked: of what activity {target.activity!r} takes on task queue {target.task_queue!r} "
        "there is no schema, or none that can be used"
    )


def _unknown_activity(target: ActivityTarget, known: Iterable[str]) -> str:
    guess = get_close_matches(target.activity, known, n=1, cutoff=0.7)
    hint = f"; did you mean {guess[0]!r}?" if guess else ""
    return f"no worker of task queue {target.task_queue!r} says that it has an activity {target.activity!r}{hint}"
