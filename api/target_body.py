"""The target of a job as callers write it: an activity, an HTTP request or a workflow. Pure.

What is refused here is refused by the worker too; what only name resolution can tell is left to it.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal, TypeAlias, assert_never

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, JsonValue, Tag

from activities.http_url import URL_LIMIT, InvalidUrl, looks_internal, read_url
from api.body import Body, Integer
from api.field import PAYLOAD_LIMIT, Identifier, Name, in_any_case
from api.problem import FieldError
from api.strict_json import compact_size, escape_pointer
from workflows.contracts import OUR_ACTIVITIES, SCHEDULER_TASK_QUEUE
from workflows.target import (
    BODILESS,
    DEFAULT_TASK_QUEUE,
    ActivityTarget,
    HeaderValue,
    HttpMethod,
    HttpTarget,
    SecretReference,
    Target,
    WorkflowArgument,
    WorkflowTarget,
)

KINDS: Final = ("activity", "http", "workflow")

HEADERS_LIMIT: Final = 50
HEADER_LIMIT: Final = 4_096
"""Characters of a header's value: servers are known to refuse more than 8,000 bytes of all headers together."""

OUR_TYPES: Final = "Horarium"
"""With this begin the types of our own workflows, which only we start."""

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")

_RESERVED: Final = re.compile(
    r"host|content-length|transfer-encoding|connection|keep-alive|te|trailer|upgrade|expect|proxy-.*|accept-encoding"
    r"|idempotency-key|horarium-.*",
    re.IGNORECASE,
)
"""Written by the worker, or a matter of the connection."""

_CREDENTIAL: Final = re.compile(
    r"authorization|cookie|(x-)?api-?key|(x-)?(auth|access|api|session|csrf)-?token|x-amz-security-token|(x-)?secret(-.*)?",
    re.IGNORECASE,
)
"""Headers whose values are secrets, whoever writes them."""

_CREDENTIAL_IN_QUERY: Final = re.compile(
    r"[?&][^=&]*(token|secret|passw|api_?key|apikey|signature|sig=)", re.IGNORECASE
)


def _check_kind(value: object) -> object:
    if value not in KINDS:
        raise ValueError(f"use one of {', '.join(KINDS)}")
    return value


def check_url(value: str) -> str:
    """Refuse what is no URL that a worker would request."""
    try:
        read_url(value)
    except InvalidUrl as error:
        raise ValueError(str(error)) from None
    return value


class SecretBody(Body):
    """Stands for a secret that the worker knows, so that its value is in no job, no history and no log."""

    name: Identifier = Field(alias="$secret", description="Name of the secret.")


HeaderBody: TypeAlias = str | SecretBody | list[str | SecretBody]
"""A list is put together: ``["Bearer ", {"$secret": "bank"}]``."""


class ActivityTargetBody(Body):
    """A Temporal activity, by its name, on a task queue."""

    kind: Annotated[Literal["activity"], BeforeValidator(_check_kind)] = "activity"
    activity: Name | None = Field(default=None, description="Name of the activity. Default: the name of the job.")
    task_queue: Name = Field(default=DEFAULT_TASK_QUEUE, description="Where its workers listen.")


class HttpTargetBody(Body):
    """An HTTP request, sent by a worker. Redirects are not followed; addresses that are not public are not reached."""

    kind: Literal["http"]
    method: Annotated[HttpMethod, in_any_case(HttpMethod)] = HttpMethod.POST
    url: Annotated[str, Field(max_length=URL_LIMIT), AfterValidator(check_url)] | SecretBody = Field(
        description="http or https; a secret reference where the URL itself is the secret."
    )
    headers: dict[str, HeaderBody] = Field(
        default={},
        max_length=HEADERS_LIMIT,
        description="Values may be secret references, or lists of parts. `Idempotency-Key`, `Horarium-Fence` and the "
        "like are added to each request.",
    )
    body: JsonValue = Field(
        default=None, description="Default: the payload. A string is sent as it stands, anything else as JSON."
    )
    task_queue: Name = Field(default=DEFAULT_TASK_QUEUE, description="Whose workers send it.")
    signature: SecretBody | None = Field(default=None, description="Key of an HMAC in `Horarium-Signature`.")
    success_statuses: list[Annotated[Integer, Field(ge=200, le=599)]] = Field(
        default=[], max_length=100, description="Instead of every 2xx."
    )


class WorkflowTargetBody(Body):
    """A workflow of any team. Each attempt starts one, and is as long as it takes."""

    kind: Literal["workflow"]
    workflow: Name = Field(description="Name of its type.")
    task_queue: Name = Field(description="Where its workers listen.")
    args: list[Annotated[WorkflowArgument, in_any_case(WorkflowArgument)]] = Field(
        default=[WorkflowArgument.RUN],
        max_length=len(WorkflowArgument),
        description="Its arguments: `run` is the JobRun with payload and fence in it, `payload` the payload alone.",
    )


def _read_kind(value: object) -> object:
    """Read the kind in any case. Of a target of an unknown kind nothing else is worth a word."""
    if not isinstance(value, dict) or value.get("kind") is None:
        return value
    kind = value["kind"]
    if isinstance(kind, str) and kind.lower() in KINDS:
        return {**value, "kind": kind.lower()}
    return {"kind": kind}


def _tag_of(value: object) -> str | None:
    if isinstance(value, dict):
        kind = value.get("kind")
        return f"{kind} target" if kind in KINDS else "activity target"
    return (
        f"{value.kind} target" if isinstance(value, (ActivityTargetBody, HttpTargetBody, WorkflowTargetBody)) else None
    )


TargetBody: TypeAlias = Annotated[
    Annotated[ActivityTargetBody, Tag("activity target")]
    | Annotated[HttpTargetBody, Tag("http target")]
    | Annotated[WorkflowTargetBody, Tag("workflow target")],
    Discriminator(_tag_of),
    BeforeValidator(_read_kind),
]
"""The tags are no names of members, which would be taken for places in the body."""


def define_target(body: TargetBody, *, job_name: str) -> Target:
    """Say what a body stands for."""
    match body:
        case ActivityTargetBody():
            return ActivityTarget(activity=body.activity or job_name, task_queue=body.task_queue)
        case HttpTargetBody():
            return HttpTarget(
                method=body.method,
                url=body.url if isinstance(body.url, str) else _reference(body.url),
                headers={name: _header(value) for name, value in body.headers.items()},
                body=body.body,
                task_queue=body.task_queue,
                signature=None if body.signature is None else _reference(body.signature),
                success_statuses=tuple(sorted(set(body.success_statuses))),
            )
        case WorkflowTargetBody():
            return WorkflowTarget(workflow=body.workflow, task_queue=body.task_queue, args=tuple(body.args))
        case _:
            assert_never(body)


def broken_target_rules(body: TargetBody, *, job_name: str, pointer: str) -> Iterator[FieldError]:
    """Name what is right alone and wrong together, or nobody's but ours."""
    if body.task_queue == SCHEDULER_TASK_QUEUE:
        yield FieldError(pointer=f"{pointer}/task_queue", detail="this task queue is Horarium's own")
    match body:
        case ActivityTargetBody():
            # Called by its name, `http_request` would be sent headers that an HTTP target may not have.
            if (activity := body.activity or job_name) in OUR_ACTIVITIES:
                yield FieldError(
                    pointer=f"{pointer}/activity", detail=f"{activity} is one of Horarium's own activities"
                )
        case HttpTargetBody():
            yield from _broken_headers(body.headers, pointer=f"{pointer}/headers")
            if body.body is not None and body.method in BODILESS:
                yield FieldError(pointer=f"{pointer}/body", detail=f"{body.method.value} sends no body")
            if (size := compact_size(body.body)) > PAYLOAD_LIMIT:
                yield FieldError(pointer=f"{pointer}/body", detail=f"{size} bytes as JSON; {PAYLOAD_LIMIT} are allowed")
        case WorkflowTargetBody():
            if body.workflow.startswith(OUR_TYPES):
                yield FieldError(pointer=f"{pointer}/workflow", detail=f"{OUR_TYPES}... are Horarium's own workflows")
            if len(set(body.args)) < len(body.args):
                yield FieldError(pointer=f"{pointer}/args", detail="each argument at most once")
        case _:
            assert_never(body)


def doubtful_target_settings(body: TargetBody, *, has_payload: bool) -> Iterator[str]:
    """Warn of what is accepted and may not be what its author thinks."""
    if not isinstance(body, HttpTargetBody):
        return
    if has_payload and body.body is not None:
        yield "the payload is not sent: target.body is"
    if has_payload and body.method in BODILESS:
        yield f"the payload is not sent: {body.method.value} has no body"
    if not isinstance(body.url, str):
        return
    url = read_url(body.url)
    if looks_internal(url):
        yield "workers do not reach the host of target.url unless their HORARIUM_HTTP_ALLOW allows it"
    if url.scheme == "http" and (body.signature or any(not isinstance(value, str) for value in body.headers.values())):
        yield "target.url begins with http://: secrets are sent for everybody on the way to read"
    if _CREDENTIAL_IN_QUERY.search(body.url):
        yield "target.url seems to hold a credential, which whoever reads the job can see; make the URL a secret reference"


def _broken_headers(headers: dict[str, HeaderBody], *, pointer: str) -> Iterator[FieldError]:
    seen = set[str]()
    for name, value in headers.items():
        reason = _broken_header(name, value)
        if reason is None and name.lower() in seen:
            reason = "this header is given twice: case makes no difference"
        seen.add(name.lower())
        if reason:
            yield FieldError(pointer=f"{pointer}/{escape_pointer(name)}", detail=reason)


def _broken_header(name: str, value: HeaderBody) -> str | None:
    parts = value if isinstance(value, list) else [value]
    literal = "".join(part for part in parts if isinstance(part, str))
    if not _HEADER_NAME.fullmatch(name):
        return "not the name of a header"
    if _RESERVED.fullmatch(name):
        return "this header is written by the worker"
    if len(literal) > HEADER_LIMIT:
        return f"{len(literal)} characters; {HEADER_LIMIT} are allowed"
    if not _HEADER_VALUE.fullmatch(literal):
        return "only printable Latin-1 characters can be in a header"
    if _CREDENTIAL.fullmatch(name) and all(isinstance(part, str) for part in parts):
        return 'whoever may read the job could read this: give {"$secret": "name"}, or ["Bearer ", {"$secret": "name"}]'
    return None


def _reference(body: SecretBody) -> SecretReference:
    return SecretReference(name=body.name)


def _header(value: HeaderBody) -> HeaderValue:
    match value:
        case str():
            return value
        case SecretBody():
            return _reference(value)
        case list():
            return tuple(part if isinstance(part, str) else _reference(part) for part in value)
        case _:
            assert_never(value)
