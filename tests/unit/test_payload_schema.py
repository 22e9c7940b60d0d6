"""Where a payload does not fit a JSON Schema, and schemas that cannot be used."""

import json
import time
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from api import payload_schema
from api.payload_schema import UnusableSchema, misfits


class Kind(StrEnum):
    """A choice."""

    WEEKLY = "weekly"
    DAILY = "daily"


class Mail(BaseModel):
    """One way to send."""

    by: Literal["mail"]
    address: str


class Chat(BaseModel):
    """Another way to send."""

    by: Literal["chat"]
    room: int


class Report(BaseModel):
    """What job authors write."""

    model_config = ConfigDict(extra="forbid")

    kind: Kind = Kind.WEEKLY
    copies: int = Field(default=1, ge=1, lt=100)
    title: str = Field(default="ab", min_length=2, max_length=5, pattern="^[a-z]+$")
    day: date | None = None
    since: datetime | None = None
    wait: timedelta | None = None
    key: UUID | None = None
    link: AnyUrl | None = None
    price: Decimal | None = None
    send: Annotated[Mail | Chat, Field(discriminator="by")] | None = None
    totals: dict[str, int] = {}
    pair: tuple[int, str] = (1, "a")
    parts: list["Report"] = Field(default=[], max_length=3)


SCHEMA: Any = Report.model_json_schema()


def found(value: JsonValue, schema: Any = SCHEMA) -> dict[str | None, str]:
    """List what is wrong, by place."""
    return {error.pointer: error.detail for error in misfits(value, schema, pointer="/payload")}


FITTING: list[JsonValue] = [
    {},
    {"kind": "daily", "copies": 60.0, "title": "abc"},
    {"day": "2028-02-29", "since": "2026-06-08T09:00:00-04:00", "wait": "PT5M"},
    {"day": None, "link": "https://example.com/x?y=1", "key": "6f2b9a1c-7a8e-4c6e-9f4a-0b1c2d3e4f50"},
    {"price": "1.50"},
    {"send": {"by": "chat", "room": 3, "more": True}},
    {"totals": {"a/b": 1}, "pair": [2, "b"], "parts": [{"parts": [{"copies": 99}]}]},
]


@pytest.mark.parametrize("payload", FITTING)
def test_what_the_workers_model_takes_fits(payload: JsonValue) -> None:
    """The oracle is pydantic itself, which reads the payload when the job runs."""
    TypeAdapter(Report).validate_python(payload)
    assert found(payload) == {}


@pytest.mark.parametrize(
    ("payload", "pointer", "detail"),
    [
        (None, "/payload", "give an object"),
        ([], "/payload", "give an object"),
        ({"kind": "monthly"}, "/payload/kind", 'use one of "weekly", "daily"'),
        ({"copies": "many"}, "/payload/copies", "give a whole number"),
        ({"copies": True}, "/payload/copies", "give a whole number"),
        ({"copies": 0}, "/payload/copies", "at least 1"),
        ({"copies": 100}, "/payload/copies", "less than 100"),
        ({"title": "a"}, "/payload/title", "at least 2 characters"),
        ({"title": "abcdef"}, "/payload/title", "at most 5 characters"),
        ({"title": "ABC"}, "/payload/title", "text that matches ^[a-z]+$"),
        ({"copy": 1}, "/payload/copy", "there is no such field"),
        ({"a/b~c": 1}, "/payload/a~1b~0c", "there is no such field"),
        ({"day": "2026-02-30"}, "/payload/day", "not a valid date, or give null"),
        ({"since": "yesterday"}, "/payload/since", "not a valid date-time, or give null"),
        ({"wait": "5 parsecs"}, "/payload/wait", "not a valid duration, or give null"),
        ({"key": "1234"}, "/payload/key", "not a valid uuid, or give null"),
        ({"link": "no link"}, "/payload/link", "not a valid uri, or give null"),
        ({"price": True}, "/payload/price", "give a number or a string or null"),
        ({"send": {"by": "mail"}}, "/payload/send/address", "required"),
        ({"send": {"by": "fax"}}, "/payload/send/by", 'use one of "chat", "mail"'),
        ({"totals": {"a": "1"}}, "/payload/totals/a", "give a whole number"),
        ({"pair": [1]}, "/payload/pair", "at least 2 items"),
        ({"parts": [{}, {"parts": [{"copies": 0}]}]}, "/payload/parts/1/parts/0/copies", "at least 1"),
        ({"parts": [{}, {}, {}, {}]}, "/payload/parts", "at most 3 items"),
    ],
)
def test_a_misfit_is_told_at_its_place_with_what_is_wanted(payload: JsonValue, pointer: str, detail: str) -> None:
    """And the worker's model agrees, taken at its word: without the conversions that pydantic is kind enough to make."""
    assert found(payload) == {pointer: detail}
    with pytest.raises(ValidationError):
        TypeAdapter(Report).validate_json(json.dumps(payload), strict=True)


def test_every_misfit_is_told_up_to_twenty() -> None:
    """Nobody likes to be told one at a time, nor a thousand."""
    assert len(found({"copies": 0, "title": 1, "kind": 2})) == 3
    assert len(found({f"field_{number}": 1 for number in range(1000)})) == 20


def test_messages_do_not_show_what_was_given() -> None:
    """It may be a secret, and messages travel far."""
    secret: JsonValue = {"copies": "s3cret", "title": "S3CRET", "kind": "s3cret", "day": "s3cret", "send": "s3cret"}
    assert "s3cret" not in str(found(secret)).lower()


@pytest.mark.parametrize(
    "payload",
    [
        {"$secret": "whole"},
        {"title": {"$secret": "title"}, "copies": {"$secret": "copies"}, "kind": {"$secret": "kind"}},
        {"day": {"$secret": "day"}, "send": {"by": "mail", "address": {"$secret": "address"}}},
        {"parts": [{"totals": {"a": {"$secret": "total"}}}], "pair": {"$secret": "pair"}},
    ],
)
def test_a_reference_to_a_secret_fits_everywhere(payload: JsonValue) -> None:
    """Its value is known on the worker alone, which reads it as whatever is wanted there."""
    assert found(payload) == {}


def test_beside_a_secret_everything_is_checked() -> None:
    """In each alternative, too; and what only looks like a reference is none."""
    assert found({"title": {"$secret": "title"}, "copies": 0}) == {"/payload/copies": "at least 1"}
    alternatives = {"anyOf": [Mail.model_json_schema(), Chat.model_json_schema()]}
    assert found({"by": "mail", "address": {"$secret": "address"}}, alternatives) == {}
    assert found({"by": "fax", "address": {"$secret": "address"}}, alternatives) == {
        "/payload/by": 'use "mail" or "chat"',
        "/payload/room": "required",
    }
    assert set(found({"title": {"$secret": "title", "more": 1}})) == {"/payload/title"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "text"},
        {"$ref": "#/$defs/nowhere"},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}]},
        {"$dynamicRef": "#"},
        {"enum": 5},
        {"maxLength": "long"},
    ],
)
def test_a_schema_that_is_none_is_as_good_as_none(schema: dict[str, JsonValue]) -> None:
    """It came from a worker of whatever language. Nothing is fetched, and the request does not fail."""
    with pytest.raises(UnusableSchema):
        misfits("text", schema, pointer="/payload")


@pytest.mark.parametrize("pattern", ["(a+)+$", "^(a|aa)+$", "(?=a)b", "(a{1,9999}){1,9999}"])
def test_no_pattern_takes_long(pattern: str) -> None:
    """With Python's own engine the first two take for ever; patterns beyond the linear one are not checked."""
    began = time.perf_counter()
    found("a" * 40 + "!", {"pattern": pattern})
    assert time.perf_counter() - began < 2


class Both(BaseModel):
    """All of these."""

    all: list["Both | Either"]


class Either(BaseModel):
    """Any of these."""

    model_config = ConfigDict(extra="forbid")

    any: list["Both | Either"]


def test_alternatives_within_alternatives_are_tried_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each level doubles the ways; 40 levels would take days."""
    monkeypatch.setattr(payload_schema, "STEPS_LIMIT", 1_000)
    payload: JsonValue = {"none": []}
    for level in range(40):
        payload = {"any" if level % 2 else "all": [payload]}
    schema: Any = TypeAdapter(Both | Either).json_schema()
    with pytest.raises(UnusableSchema):
        misfits(payload, schema, pointer="/payload")


def test_a_list_of_thousands_is_checked_in_time() -> None:
    """Unique items are not compared with each other: our workers take sets from lists with repeats."""
    items: list[JsonValue] = [[number % 7, "x"] for number in range(20_000)]
    began = time.perf_counter()
    assert found(items, {"type": "array", "uniqueItems": True, "items": {"type": "array"}}) == {}
    assert time.perf_counter() - began < 10
