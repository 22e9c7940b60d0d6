"""The client of the SDK says all that the API understands: held against the OpenAPI document, so that neither runs ahead."""

import inspect
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, TypeAlias

import pytest
from pydantic import BaseModel, TypeAdapter

from api.app import create_app
from horarium.client import AsyncClient, Client, body, operation
from horarium.client.call import UNSET, Call, Listing, Operation, make_call
from workers.settings import Settings

Document: TypeAlias = dict[str, Any]
Method: TypeAlias = Operation[..., Any] | Listing[..., Any]

NOT_OURS: Final = {"codec"}
"""Tags of routes that somebody else speaks: Temporal's Web UI, in a protocol of its own."""

OF_THE_CLIENT: Final = {"cursor", "limit"}
"""Parameters of lists that are its own business: it follows cursors, and calls the other one ``page_size``."""

NOW: Final = datetime(2026, 6, 8, 13, tzinfo=UTC)

SAMPLES: Final[Document] = {
    "attempts": True,
    "cancel_active": True,
    "calendar": {"dates": ["2026-12-24"]},
    "count": 3,
    "dry_run": True,
    "end": NOW,
    "every": True,
    "if_match": 3,
    "if_none_match": "*",
    "job": {"name": "noop", "schedule": "@daily"},
    "labels": {"team": "billing"},
    "limit": 10,
    "next_after": NOW,
    "next_before": NOW,
    "page_size": 10,
    "patch": {"schedule": "@hourly"},
    "payload": {"a": 1},
    "rate_per_minute": 60.0,
    "schedule": {"schedule": "@daily"},
    "schedules": [{"schedule": "@daily"}],
    "skip_next": True,
    "start": NOW,
    "status": ["dead"],
    "until": NOW,
}
"""Something for each parameter; any other is a word."""

TYPED: Final[Document] = {
    "JobBody": body.JobBody,
    "JobPatch": body.JobPatch,
    "PreviewBody": body.PreviewBody,
    "CalendarBody": body.CalendarBody,
    "HolidaysBody": body.HolidaysBody,
    "DateBody": body.CalendarDate,
    "PeriodBody": body.CalendarPeriod,
    "DstInput": body.DstBody,
    "ExcludeInput": body.ExcludeBody,
    "OnlyInput": body.OnlyBody,
    "BusinessDaysInput": body.BusinessDaysBody,
}
"""The typed dictionaries, by what the document calls the same."""

DICTIONARIES: Final = {
    "JobOperations.create",
    "JobOperations.put",
    "JobOperations.update",
    "CalendarOperations.put",
    "ServiceOperations.preview",
    "ServiceOperations.preview_each",
}
"""Methods that are given a body, rather than its fields."""


LEFT_OUT: Final = {
    "BackfillOperations.create": {"dry_run"},
    "BackfillOperations.preview": {"existing", "max_concurrent", "rate_per_minute", "reason"},
}
"""Of a route that does one thing or another, what is of no use to a method of it."""

ANSWERED: Final = {"BackfillOperations.preview": "BackfillPreview"}
"""Of a route that answers one thing or another, what a method of it always gets."""


@cache
def document() -> Document:
    """The OpenAPI document."""
    found: Document = create_app(Settings()).openapi()
    return found


def schemas() -> Document:
    found: Document = document()["components"]["schemas"]
    return found


def documented() -> dict[tuple[str, str], Document]:
    return {
        (method.upper(), path): described
        for path, methods in document()["paths"].items()
        for method, described in methods.items()
        if NOT_OURS.isdisjoint(described.get("tags", []))
    }


def groups() -> Iterator[type]:
    for _, found in inspect.getmembers(operation, inspect.isclass):
        if any(isinstance(each, Operation | Listing) for each in vars(found).values()):
            yield found


def methods() -> dict[str, Method]:
    return {
        f"{group.__name__}.{name}": each
        for group in groups()
        for name, each in vars(group).items()
        if isinstance(each, Operation | Listing)
    }


METHODS: Final = methods()


def full_call(method: Method) -> tuple[Call[Any], object]:
    """Make the call that says everything; and its body before it became JSON."""
    names = [*inspect.signature(method.describe).parameters][1:]
    sent = method.describe(None, **{name: SAMPLES.get(name, f"a-{name}") for name in names})
    return make_call(method.route, sent), sent.body


def described(method: Method) -> Document:
    return documented()[method.route.method, method.route.path]


def parameters_of(method: Method, place: str) -> set[str]:
    return {each["name"] for each in described(method).get("parameters", []) if each["in"] == place}


def test_every_route_has_a_method_and_every_method_a_route() -> None:
    """A route that is new needs a line in ``horarium.client.operation``."""
    assert {(each.route.method, each.route.path) for each in METHODS.values()} == set(documented())


async def test_both_clients_have_all_methods() -> None:
    """Each group of them hangs at each client."""
    async with AsyncClient() as awaited:
        with Client() as plain:
            for client in (plain, awaited):
                parts = [client, *vars(client).values()]
                assert {parent for part in parts for parent in type(part).__mro__} >= {*groups()}


@pytest.mark.parametrize("name", METHODS)
def test_every_parameter_can_be_given(name: str) -> None:
    """And none that the API refuses; keys and revisions where the API takes them, and nowhere else."""
    method = METHODS[name]
    call, _ = full_call(method)
    pages = OF_THE_CLIENT if isinstance(method, Listing) else set()
    assert {key for key, _ in call.query} | pages == parameters_of(method, "query")
    assert call.path.count("/") == method.route.path.count("/")
    for header in ("If-Match", "If-None-Match"):
        assert (header in call.headers) == (header in parameters_of(method, "header"))
    if "Idempotency-Key" in parameters_of(method, "header") or method.route.method == "POST":
        assert call.headers["Idempotency-Key"]


@pytest.mark.parametrize("name", [each for each in METHODS if each not in DICTIONARIES])
def test_every_field_of_a_body_can_be_given(name: str) -> None:
    """Where a method takes them one by one."""
    _, given = full_call(METHODS[name])
    body = described(METHODS[name]).get("requestBody")
    if body is None:
        assert given is UNSET
        return
    [content] = body["content"].values()
    assert isinstance(given, dict)
    assert set(given) | LEFT_OUT.get(name, set()) == set(resolve(content["schema"], schemas())["properties"])


def test_routes_that_heed_a_revision_tell_what_they_refuse() -> None:
    """412 for another revision, and 428 for none where the installation insists on one."""
    heeding = {name for name, method in METHODS.items() if "If-Match" in parameters_of(method, "header")}
    assert heeding == {f"JobOperations.{name}" for name in ("put", "update", "delete", "pause", "resume")}
    for name in heeding:
        assert {"412", "428"} <= described(METHODS[name])["responses"].keys()


@pytest.mark.parametrize("name", TYPED)
def test_every_field_of_a_dictionary_has_a_type(name: str) -> None:
    """Of the bodies that are written as a whole."""
    assert set(TYPED[name].__annotations__) == set(schemas()[name]["properties"])


@pytest.mark.parametrize("name", METHODS)
def test_every_field_of_an_answer_has_a_type(name: str) -> None:
    """However deep it lies."""
    method = METHODS[name]
    ours = TypeAdapter(method.route.answer).json_schema(by_alias=True, mode="validation")
    answers = [each for status, each in described(method)["responses"].items() if status.startswith("2")]
    told = [each.get("content", {}).get("application/json", {}).get("schema", {}) for each in answers]
    if name in ANSWERED:
        told = [schemas()[ANSWERED[name]]]
    for schema in told:
        assert [*missing(schema, ours, definitions=ours.get("$defs", {}))] == []


def test_what_is_missing_would_be_seen() -> None:
    """The comparison of answers sees a field that is not there, in lists and members too."""

    class Inner(BaseModel):
        known: int

    class Outer(BaseModel):
        inner: Inner | None
        many: list[Inner]

    ours = TypeAdapter(list[Outer]).json_schema()
    two: Document = {"properties": {"known": {}, "new": {}}}
    theirs = {"items": {"properties": {"inner": {"anyOf": [two, {"type": "null"}]}, "many": {"items": two}, "x": {}}}}
    assert [*missing(theirs, ours, definitions=ours["$defs"])] == ["[].inner.new", "[].many[].new", "[].x"]


def resolve(schema: Document, definitions: Document) -> Document:
    """Follow references, and take the member of a union that says most; ``null`` says nothing."""
    while "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    members = [resolve(each, definitions) for each in schema.get("anyOf") or schema.get("oneOf") or []]
    return max(members, key=lambda each: len(each.get("properties", each)), default=schema)


def missing(theirs: Document, ours: Document, *, definitions: Document, place: str = "") -> Iterator[str]:
    """Name what a documented schema has and ours has not. An object of ours that says nothing of its members takes all."""
    theirs, ours = resolve(theirs, schemas()), resolve(ours, definitions)
    if "items" in theirs and "items" in ours:
        yield from missing(theirs["items"], ours["items"], definitions=definitions, place=f"{place}[]")
    for name, inner in theirs.get("properties", {}).items() if "properties" in ours else ():
        here = f"{place}.{name}".lstrip(".")
        if name in ours["properties"]:
            yield from missing(inner, ours["properties"][name], definitions=definitions, place=here)
        else:
            yield here
