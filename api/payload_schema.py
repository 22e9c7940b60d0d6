"""Holds a JSON value against a JSON Schema (2020-12) that came from a worker. Pure, and bounded in time.

The worker may be of any language and any quality, so nothing in a schema may reach out, hang or fail the request: one that cannot
be used raises ``UnusableSchema``. Messages tell what is wanted and never what was given, which may be a secret.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from itertools import count, islice
from typing import Annotated, Any, Final, TypeAlias
from uuid import UUID

from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.validators import extend
from pydantic import AnyUrl, Field, JsonValue, TypeAdapter
from pydantic_core import SchemaError as PatternError
from referencing import Registry

from api.body import one_error_a_place
from api.problem import FieldError
from api.strict_json import escape_pointer
from horarium import secret

ERRORS_SHOWN: Final = 20

STEPS_LIMIT: Final = 20_000
"""References followed and alternatives tried. Without a bound, alternatives within alternatives take for ever."""

CHOICES_SHOWN: Final = 10
"""Of an enumeration."""

TEXT_SHOWN: Final = 200
"""Characters of a schema's own text in a message."""

Keyword: TypeAlias = Callable[[Draft202012Validator, Any, Any, Any], Iterator[ValidationError]]
"""How ``jsonschema`` wants a keyword: of the validator, the keyword's value, the instance and the schema around it."""

_TYPES: Final = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}

_MESSAGES: Final = {
    "required": "required",
    "additionalProperties": "there is no such field",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} members",
    "maxProperties": "at most {} members",
    "pattern": "text that matches {}",
    "format": "not a valid {}",
}

_FORMATS: Final[dict[str, Any]] = {
    "date-time": datetime,
    "date": date,
    "time": time,
    "duration": timedelta,
    "uuid": UUID,
    "uri": AnyUrl,
    "ipv4": IPv4Address,
    "ipv6": IPv6Address,
}
"""Read by pydantic, as our workers do."""


class UnusableSchema(Exception):
    """A schema that is none, leads nowhere, or leads further than we go."""


def misfits(value: JsonValue, schema: Mapping[str, JsonValue] | bool, *, pointer: str) -> list[FieldError]:
    """List where a value does not fit, and why; ``pointer`` is where the value itself is. Raises ``UnusableSchema``."""
    try:
        validator = _bounded_validator()(schema, registry=Registry(), format_checker=_FORMAT_CHECKER)
        errors = islice(_counting(validator.iter_errors(value)), ERRORS_SHOWN)
        places = [*_places(errors, pointer)]
    except Exception as error:
        # A type that is none, a reference to nowhere, and whatever else a foreign schema may hold.
        raise UnusableSchema from error
    return [*islice(one_error_a_place(places), ERRORS_SHOWN)]


def _bounded_validator() -> type[Draft202012Validator]:
    """Make the validator of one check, with its own count of steps."""
    steps = count(1)

    def bounded(keyword: Keyword) -> Keyword:
        def check(validator: Draft202012Validator, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
            if next(steps) > STEPS_LIMIT:
                raise UnusableSchema
            yield from keyword(validator, value, instance, schema)

        return check

    standard = Draft202012Validator.VALIDATORS
    branching = {"$ref": standard["$ref"], "anyOf": _check_alternatives, "oneOf": _check_alternatives}
    keywords = _KEYWORDS | {name: bounded(each) for name, each in branching.items()}
    made: type[Draft202012Validator] = extend(Draft202012Validator, keywords)  # type: ignore[no-untyped-call]
    return made


def _check_alternatives(
    validator: Draft202012Validator, alternatives: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    """Find one that fits. That no second one does is not asked for: readers take the first."""
    chosen = _discriminated(instance, schema)
    if chosen == []:
        discriminator = schema["discriminator"]
        yield ValidationError(
            "unknown",
            path=[discriminator["propertyName"]],
            validator="enum",
            validator_value=[*discriminator["mapping"]],
        )
        return
    branches = [validator.evolve(schema=each) for each in chosen or alternatives]
    if not any(branch.is_valid(instance) for branch in branches):
        reasons = [islice(branch.iter_errors(instance), ERRORS_SHOWN) for branch in branches]
        yield ValidationError(
            "no alternative fits", context=[ValidationError("not this one", context=[*each]) for each in reasons]
        )


def _discriminated(instance: Any, schema: Any) -> list[Any] | None:
    """Name the alternative that a member of the instance chooses, as OpenAPI and pydantic write it; ``None``: it does not."""
    discriminator = schema.get("discriminator")
    if not isinstance(discriminator, dict) or not isinstance(instance, dict):
        return None
    name, mapping = discriminator.get("propertyName"), discriminator.get("mapping")
    if not isinstance(mapping, dict) or name not in instance:
        return None
    reference = mapping.get(instance[name]) if isinstance(instance[name], str) else None
    return [{"$ref": reference}] if reference else []


def _check_required(
    validator: Draft202012Validator, names: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        yield from (ValidationError("required", path=[name]) for name in names if name not in instance)


def _check_additional(
    validator: Draft202012Validator, value: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object") or "patternProperties" in schema:
        return
    for name in sorted(instance.keys() - schema.get("properties", {}).keys()):
        if value is False:
            yield ValidationError("unknown", path=[name])
        else:
            yield from validator.descend(instance[name], value, path=name)


def _check_pattern(
    validator: Draft202012Validator, pattern: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    reader = _pattern_reader(pattern)
    if reader and validator.is_type(instance, "string"):
        try:
            reader.validate_python(instance)
        except ValueError:
            yield ValidationError("no match")


@lru_cache(maxsize=256)
def _pattern_reader(pattern: str) -> TypeAdapter[str] | None:
    """Make a matcher that takes linear time, as the one of Python does not; ``None`` for a pattern beyond it."""
    try:
        return TypeAdapter(Annotated[str, Field(pattern=pattern)])
    except PatternError:
        return None


def _check_nothing(
    validator: Draft202012Validator, value: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    return iter(())


_KEYWORDS: Final[dict[str, Keyword]] = {
    "required": _check_required,
    "additionalProperties": _check_additional,
    "pattern": _check_pattern,
    # These would match with Python's own engine, or compare each item with each.
    **dict.fromkeys(("patternProperties", "unevaluatedProperties", "unevaluatedItems", "uniqueItems"), _check_nothing),
}


def _make_format_checker() -> FormatChecker:
    checker = FormatChecker(formats=())
    for name, kind in _FORMATS.items():
        checker.checks(name, raises=ValueError)(_format_check(TypeAdapter(kind)))
    return checker


def _format_check(reader: TypeAdapter[Any]) -> Callable[[object], bool]:
    def check(instance: object) -> bool:
        if isinstance(instance, str):
            reader.validate_json(json.dumps(instance))
        return True

    return check


_FORMAT_CHECKER: Final = _make_format_checker()


def _counting(errors: Iterable[ValidationError]) -> Iterator[ValidationError]:
    """Leave out what is wrong only because a secret is not there yet."""
    for error in errors:
        if _is_secret(error.instance):
            continue
        # Each alternative fails by something else than a secret.
        if all(any(True for _ in _counting(branch.context or [])) for branch in error.context or []):
            yield error


def _is_secret(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == {secret.MEMBER}


def _places(errors: Iterable[ValidationError], root: str) -> Iterator[tuple[str, str]]:
    """Name the places where nothing deeper is wrong, with the reason: one a place, or one for each alternative there."""
    seen = set[str]()
    for error in errors:
        if error.context:
            for branch in error.context:
                yield from _places(_counting(branch.context or []), root)
            continue
        steps = (escape_pointer(str(step)) for step in error.absolute_path)
        place = "/".join([root, *steps])
        if place not in seen:
            seen.add(place)
            yield place, _message(error)


def _message(error: ValidationError) -> str:
    keyword = str(error.validator)
    value: Any = error.validator_value
    match keyword:
        case "type":
            names = [value] if isinstance(value, str) else value
            return f"give {' or '.join(_TYPES.get(name, name) for name in names)}"
        case "enum":
            return f"use one of {_list_choices(value)}"
        case "const":
            return f"use {_clip(_spell(value))}"
        case "items" | "None":
            return "nothing is accepted here"
        case _:
            return _MESSAGES.get(keyword, f"does not fit the schema's {keyword}").format(_clip(str(value)))


def _list_choices(choices: Any) -> str:
    shown = ", ".join(_spell(choice) for choice in choices[:CHOICES_SHOWN])
    return _clip(shown if len(choices) <= CHOICES_SHOWN else f"{shown}, ...")


def _spell(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


def _clip(text: str) -> str:
    return text if len(text) <= TEXT_SHOWN else f"{text[: TEXT_SHOWN - 1]}…"
