"""From JSON to a request model, with every error at its place. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, ClassVar, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, ValidationError, model_validator
from pydantic_core import ErrorDetails

from api.problem import FieldError, InvalidRequest
from api.strict_json import escape_pointer

Model = TypeVar("Model", bound="Body")

_MESSAGES: Final = {
    "extra_forbidden": "there is no such field",
    "missing": "required",
    "model_type": "give an object",
    "dict_type": "give an object",
    "list_type": "give a list",
    "tuple_type": "give a list",
    "string_type": "give a string",
    "int_type": "give a whole number",
    "float_type": "give a number",
    "bool_type": "give true or false",
    "timezone_aware": "give a time as in RFC 3339, such as 2026-06-08T13:00:00Z",
    "union_tag_not_found": "give an object",
}


_VERBS: Final = ("give ", "use ")
"""What most messages begin with."""


class Body(BaseModel):
    """Parent of all request bodies: unknown fields are refused, nothing is converted, ``null`` means the default."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    keeps_null: ClassVar[frozenset[str]] = frozenset()
    """Fields for which ``null`` says something else than the default."""

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        defaulted = cls.model_fields.keys() - cls.keeps_null
        return {key: inner for key, inner in value.items() if inner is not None or key not in defaulted}


def _read_integer(value: object) -> object:
    # 60.0 is the same JSON number as 60, and some languages write it so.
    return int(value) if isinstance(value, float) and value.is_integer() else value


Integer = Annotated[int, BeforeValidator(_read_integer)]


def read_body(model: type[Model], value: JsonValue) -> Model:
    """Read a request body.

    Raises:
        InvalidRequest: with every field that is wrong.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)
        raise InvalidRequest(*_field_errors(details, value)) from error


def message_of(kind: str, message: str) -> str:
    """Say what is wrong, without the value: it may be a secret."""
    known = _MESSAGES.get(kind)
    if known is not None:
        return known
    reason = message.removeprefix("Value error, ").removeprefix("Input ")
    return reason[:1].lower() + reason[1:]


def one_error_a_place(errors: Iterable[tuple[str, str]]) -> Iterator[FieldError]:
    """Turn pointers with reasons into one error a place.

    Where something deeper is wrong, that alone is told: the errors above are those of other members of a union, which did not
    fit either.
    """
    found: dict[str, list[str]] = {}
    for pointer, message in errors:
        messages = found.setdefault(pointer, [])
        if message not in messages:
            messages.append(message)
    above = {pointer[:end] for pointer in found for end in range(len(pointer)) if pointer[end] == "/"}
    for pointer, messages in found.items():
        if pointer not in above:
            yield FieldError(pointer=pointer, detail=_join(messages))


def _join(messages: Sequence[str]) -> str:
    """Say all that would be right: ``give a number or null``."""
    for verb in _VERBS:
        if all(each.startswith(verb) for each in messages):
            return verb + " or ".join(each.removeprefix(verb) for each in messages)
    return ", or ".join(messages)


def _field_errors(details: Iterable[ErrorDetails], value: JsonValue) -> Iterator[FieldError]:
    return one_error_a_place(
        (_pointer(each["loc"], value, is_missing=each["type"] == "missing"), message_of(each["type"], each["msg"]))
        for each in details
    )


def _pointer(location: tuple[str | int, ...], value: JsonValue, *, is_missing: bool) -> str:
    """Write a place as a JSON pointer. Steps that name a member of a union are no part of the body."""
    pointer = ""
    for depth, step in enumerate(location, start=1):
        if isinstance(value, dict) and step in value:
            value = value[str(step)]
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        elif not (is_missing and depth == len(location)):
            continue
        pointer += f"/{escape_pointer(str(step))}"
    return pointer
