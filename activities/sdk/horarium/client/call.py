"""One call of the API: what is sent, and what its answer becomes. And how one definition is a method of both clients.

``operation`` and ``listing`` turn a method that says what is sent into one that sends it: in a ``Client`` it answers, in an
``AsyncClient`` it is awaited. So neither client has a call that the other has not. Nothing here sends anything.
"""

import json
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import Enum
from functools import cache, update_wrapper
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    get_args,
    overload,
)
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from horarium.client.error import UnexpectedAnswer, Unsendable

Params = ParamSpec("Params")
Result = TypeVar("Result")
Item = TypeVar("Item")

PREFIX: Final = "/api/v1"

IfMatch: TypeAlias = str | int | None
"""A revision: ``job.etag``, ``job.revision``, or ``"*"`` for any. ``None``: whatever there is."""

IfNoneMatch: TypeAlias = Literal["*"] | None
"""``"*"``: only where there is nothing yet. ``None``: whatever there is."""

Labels: TypeAlias = Mapping[str, str] | Iterable[str] | None
"""``{"team": "billing"}``, or texts such as ``"team:billing"``; all must hold."""

Query: TypeAlias = tuple[tuple[str, str], ...]

_PLACE: Final = re.compile(r"\{\w+\}")

_EXPECTED: Final = "the API answered something unexpected; is it of another version?"


class Unset(Enum):
    """Says that a value was not given, where ``None`` is one."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


@dataclass(frozen=True, kw_only=True)
class Route(Generic[Result]):
    """A route of the API, and what it answers."""

    method: str
    path: str
    """With ``{names}`` for what differs."""

    answer: type[Result]
    is_keyed: bool = False
    """Whether it is sent with an idempotency key."""

    is_repeatable: bool = True
    """Whether two such requests are as good as one."""

    answers_503: bool = False
    """Whether 503 is an answer like another."""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What a call says beside its route."""

    names: tuple[str, ...] = ()
    """What stands in the places of the path, in order."""

    query: Query = ()
    body: object = UNSET
    content_type: str = "application/json"
    key: str | None = None
    """The caller's own idempotency key."""

    if_match: IfMatch = None
    if_none_match: IfNoneMatch = None


@dataclass(frozen=True, kw_only=True)
class Call(Generic[Result]):
    """A request that is ready, and the same whenever it is repeated."""

    route: Route[Result]
    path: str
    query: Query
    headers: Mapping[str, str]
    content: bytes | None

    def with_query(self, query: Query) -> "Call[Result]":
        """Make the same call with another query: for another page."""
        return replace(self, query=query)

    def read(self, content: bytes) -> Result:
        """Read the body of an answer. Raises ``UnexpectedAnswer``."""
        answer: Any = self.route.answer
        try:
            found: Result = _reader_of(answer).validate_python(json.loads(content))
        except (ValueError, RecursionError) as error:
            reason = _first_reason(error) if isinstance(error, ValidationError) else str(error)
            raise UnexpectedAnswer(f"{_EXPECTED} ({self.route.method} {self.path}: {reason})") from error
        return found


def make_call(route: Route[Result], sent: Sent) -> Call[Result]:
    """Make a call ready. Raises ``Unsendable``."""
    names = iter(sent.names)
    headers = {} if sent.body is UNSET else {"Content-Type": sent.content_type}
    if route.is_keyed:
        headers["Idempotency-Key"] = _header(sent.key or str(uuid.uuid4()), named="idempotency_key")
    if sent.if_match is not None:
        headers["If-Match"] = _header(_spell_match(sent.if_match), named="if_match")
    if sent.if_none_match is not None:
        headers["If-None-Match"] = _header(sent.if_none_match, named="if_none_match")
    return Call(
        route=route,
        path=_PLACE.sub(lambda _: quote_segment(next(names)), route.path),
        query=sent.query,
        headers=headers,
        content=None if sent.body is UNSET else _spell_body(sent.body),
    )


def query(**parameters: object) -> Query:
    """Write the parameters that are given; a list or a tuple is one that is repeated."""
    return tuple((name, text) for name, value in parameters.items() for text in _spell_parameter(value))


def given(**fields: object) -> dict[str, object]:
    """Keep the fields that are given."""
    return {name: value for name, value in fields.items() if value is not None}


def spell_labels(labels: Labels) -> Sequence[str]:
    """Write labels as parameters."""
    match labels:
        case None:
            return ()
        case str():
            return (labels,)
        case Mapping():
            return tuple(f"{key}:{value}" for key, value in labels.items())
        case _:
            return tuple(labels)


def quote_segment(text: str) -> str:
    """Write any text as one segment of a path. A lone dot would not stay one."""
    return quote(text, safe="") if text.strip(".") else text.replace(".", "%2E")


class Sends(Protocol):
    """Sends calls, and waits for the answer."""

    def send(self, call: Call[Result]) -> Result:
        """Send one."""

    def walk(self, call: Call[list[Item]]) -> Iterator[Item]:
        """Go through a list, page by page."""


class SendsAsync(Protocol):
    """Sends calls in an event loop."""

    async def send(self, call: Call[Result]) -> Result:
        """Send one."""

    def walk(self, call: Call[list[Item]]) -> AsyncIterator[Item]:
        """Go through a list, page by page."""


class SyncCalls:
    """Where operations answer."""

    def __init__(self, sender: Sends) -> None:
        self._sender = sender


class AsyncCalls:
    """Where operations are awaited."""

    def __init__(self, sender: SendsAsync) -> None:
        self._sender = sender


class Operation(Generic[Params, Result]):
    """A method that sends a call."""

    def __init__(self, route: Route[Result], describe: Callable[Concatenate[Any, Params], Sent]) -> None:
        self.route = route
        self.describe = describe
        self.__doc__ = describe.__doc__
        # For whoever asks for help at a prompt.
        describe.__annotations__["return"] = route.answer

    @overload
    def __get__(self, instance: None, owner: type[object]) -> "Operation[Params, Result]": ...
    @overload
    def __get__(self, instance: SyncCalls, owner: type[object]) -> Callable[Params, Result]: ...
    @overload
    def __get__(self, instance: AsyncCalls, owner: type[object]) -> Callable[Params, Awaitable[Result]]: ...
    def __get__(self, instance: Any, owner: type[object]) -> Any:
        if instance is None:
            return self

        def send(*args: Params.args, **kwargs: Params.kwargs) -> Any:
            return instance._sender.send(make_call(self.route, self.describe(instance, *args, **kwargs)))

        return _as_method(send, self.describe, instance)


class Listing(Generic[Params, Item]):
    """A method that goes through a list. Pages are asked for when they are reached."""

    def __init__(self, route: Route[list[Item]], describe: Callable[Concatenate[Any, Params], Sent]) -> None:
        self.route = route
        self.describe = describe
        self.__doc__ = describe.__doc__
        describe.__annotations__["return"] = f"Iterator[{get_args(route.answer)[0].__name__}]"

    @overload
    def __get__(self, instance: None, owner: type[object]) -> "Listing[Params, Item]": ...
    @overload
    def __get__(self, instance: SyncCalls, owner: type[object]) -> Callable[Params, Iterator[Item]]: ...
    @overload
    def __get__(self, instance: AsyncCalls, owner: type[object]) -> Callable[Params, AsyncIterator[Item]]: ...
    def __get__(self, instance: Any, owner: type[object]) -> Any:
        if instance is None:
            return self

        def walk(*args: Params.args, **kwargs: Params.kwargs) -> Any:
            return instance._sender.walk(make_call(self.route, self.describe(instance, *args, **kwargs)))

        return _as_method(walk, self.describe, instance)


def operation(
    method: str,
    path: str,
    answer: type[Result],
    *,
    is_keyed: bool = False,
    is_repeatable: bool = True,
    answers_503: bool = False,
) -> Callable[[Callable[Concatenate[Any, Params], Sent]], Operation[Params, Result]]:
    """Make an operation of the method that says what it sends. Every POST has an idempotency key."""
    route = Route(
        method=method,
        path=path,
        answer=answer,
        is_keyed=is_keyed or method == "POST",
        is_repeatable=is_repeatable,
        answers_503=answers_503,
    )
    return lambda describe: Operation(route, describe)


def listing(
    path: str, page: type[list[Item]]
) -> Callable[[Callable[Concatenate[Any, Params], Sent]], Listing[Params, Item]]:
    """Make a listing of the method that says what is asked for."""
    return lambda describe: Listing(Route(method="GET", path=path, answer=page), describe)


def _as_method(function: Callable[..., Any], described: Callable[..., object], instance: object) -> Callable[..., Any]:
    """Give a function the name, the parameters and the words of the method that it stands for."""
    method = update_wrapper(function, described)
    method.__wrapped__ = described.__get__(instance)
    return method


@cache
def _reader_of(answer: Any) -> TypeAdapter[Any]:
    return TypeAdapter(answer)


def _first_reason(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _spell_body(body: object) -> bytes:
    try:
        text = json.dumps(body, default=_spell_value, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Unsendable(f"the body has no JSON form: {error}") from error
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair. The API says in which field.
        return json.dumps(body, default=_spell_value, allow_nan=False).encode()


def _spell_value(value: object) -> str:
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not JSON")


def _spell_parameter(value: object) -> tuple[str, ...]:
    match value:
        case None:
            return ()
        case bool():
            return ("true" if value else "false",)
        case datetime():
            return (value.isoformat(),)
        case list() | tuple():
            return tuple(map(str, value))
        case _:
            return (str(value),)


def _header(text: str, *, named: str) -> str:
    if not (text.isascii() and text.isprintable()):
        raise Unsendable(f"{named}: visible ASCII characters only")
    return text


def _spell_match(revision: str | int) -> str:
    text = str(revision).strip()
    return f'"{text}"' if text.isdecimal() else text
