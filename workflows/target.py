"""What a fire runs: an activity, an HTTP request or a workflow, and what each of them means to the rest of Horarium.

Owns the shapes, and the few questions that have another answer for each kind; nobody else looks at the kind of a target to
name it, to list it or to dispatch it. Pure.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, Literal, TypeAlias, assert_never
from urllib.parse import SplitResult, urlsplit

from pydantic import ConfigDict, Discriminator, Field, JsonValue, Tag

from workflows.contracts import HTTP_REQUEST
from workflows.value import Value

DEFAULT_TASK_QUEUE: Final = "horarium"
"""Workflows and, by default, job activities. One queue for both lets an activity start without another poll."""


class ActivityTarget(Value):
    """Run a Temporal activity."""

    kind: Literal["activity"] = "activity"
    activity: str = ""
    task_queue: str = DEFAULT_TASK_QUEUE


class SecretReference(Value):
    """Stands for a secret, which only the worker that uses it knows: ``{"$secret": "name"}``."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)

    name: str = Field(default="", alias="$secret")


HeaderValue: TypeAlias = str | SecretReference | tuple[str | SecretReference, ...]
"""A list is put together: ``["Bearer ", {"$secret": "bank"}]``."""


class HttpMethod(StrEnum):
    """Methods that a job may use."""

    GET = "GET"
    HEAD = "HEAD"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


BODILESS: Final = frozenset({HttpMethod.GET, HttpMethod.HEAD})
"""With these no body is sent."""


class HttpTarget(Value):
    """Send an HTTP request. Carried out by our own activity ``http_request``, whose payload this is."""

    kind: Literal["http"] = "http"
    method: HttpMethod = HttpMethod.POST
    url: str | SecretReference = ""
    """A reference where the URL itself is the secret, as those of chat services are."""

    headers: dict[str, HeaderValue] = {}
    body: JsonValue = None
    """``None``: the payload of the job. A string is sent as it stands, anything else as JSON."""

    task_queue: str = DEFAULT_TASK_QUEUE
    signature: SecretReference | None = None
    """Key of the HMAC in ``Horarium-Signature``; ``None``: no signature."""

    success_statuses: tuple[int, ...] = ()
    """Empty: every 2xx."""


class WorkflowArgument(StrEnum):
    """What is handed to a workflow."""

    RUN = "run"
    """The ``JobRun``, with the payload and the fence in it."""

    PAYLOAD = "payload"
    """The payload alone, for workflows that were not written for Horarium."""


class WorkflowTarget(Value):
    """Run a workflow, of any team and in any language, as a child of the run's own workflow."""

    kind: Literal["workflow"] = "workflow"
    workflow: str = ""
    """Name of its type."""

    task_queue: str = ""
    args: tuple[WorkflowArgument, ...] = (WorkflowArgument.RUN,)
    """Its arguments, in order."""


def _kind_of(value: object) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) else "activity"


Target: TypeAlias = Annotated[
    Annotated[ActivityTarget, Tag("activity")]
    | Annotated[HttpTarget, Tag("http")]
    | Annotated[WorkflowTarget, Tag("workflow")],
    Discriminator(_kind_of),
]


@dataclass(frozen=True, kw_only=True)
class ActivityCall:
    """The activity that makes an attempt, and what it is given as the payload of its ``JobRun``."""

    activity: str
    task_queue: str
    payload: JsonValue


def activity_call(target: Target, *, payload: JsonValue) -> ActivityCall | None:
    """Say how an activity carries out a target; ``None`` for a workflow, which is started and not called."""
    match target:
        case ActivityTarget():
            return ActivityCall(activity=target.activity, task_queue=target.task_queue, payload=payload)
        case HttpTarget():
            request = target if target.body is not None else target.model_copy(update={"body": payload})
            document = request.model_dump(mode="json", exclude={"kind", "task_queue"})
            return ActivityCall(activity=HTTP_REQUEST, task_queue=target.task_queue, payload=document)
        case WorkflowTarget():
            return None
        case _:
            assert_never(target)


def target_name(target: Target) -> str:
    """Name a target in lists. Of a URL only what cannot hold a secret: no query, and no user."""
    match target:
        case ActivityTarget():
            return target.activity
        case HttpTarget():
            return f"{target.method.value} {_shown(target.url)}"
        case WorkflowTarget():
            return target.workflow
        case _:
            assert_never(target)


def without_body(target: Target) -> Target:
    """Leave out what is too large for a list."""
    return target.model_copy(update={"body": None}) if isinstance(target, HttpTarget) else target


def natural_downstream(target: Target) -> str:
    """Name what a target calls as far as it says so itself: the host of a URL. Empty where only the job's owner knows."""
    if not isinstance(target, HttpTarget) or not isinstance(target.url, str):
        return ""
    return _split(target.url).hostname or ""


def _shown(url: str | SecretReference) -> str:
    if isinstance(url, SecretReference):
        return f"the URL in secret {url.name}"
    parts = _split(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        # Refused at registration; a name is no place to fail.
        return SplitResult("", "", "", "", "")
