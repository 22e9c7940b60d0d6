"""Kinds of fields that several bodies have: names, text for people, and choices in any case."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from workflows.contracts import JOB_ID_PATTERN

TEXT_LIMIT: Final = 200
"""Characters of a name, an owner, a label's value, an activity or a task queue."""

PAYLOAD_LIMIT: Final = 262_144
"""Bytes of a payload as compact JSON. It crosses every continue-as-new, and Temporal takes 2 MB for everything."""

_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_INVISIBLE: Final = re.compile("[\\s\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]*")

Choice = TypeVar("Choice", bound=StrEnum)


def in_any_case(choices: type[Choice], aliases: dict[str, Choice] | None = None) -> BeforeValidator:
    """Read one of an enumeration's values, or of other names for them, whatever the case of its letters."""
    names = {member.value.lower(): member for member in choices} | (aliases or {})

    def read(value: object) -> Choice:
        member = names.get(value.lower()) if isinstance(value, str) else None
        if member is None:
            raise ValueError(f"use one of {', '.join([*choices, *(aliases or {})])}")
        return member

    return BeforeValidator(read)


def check_printable(value: str) -> str:
    """Refuse control characters and line breaks with ``ValueError``."""
    if found := _UNPRINTABLE.search(value):
        raise ValueError(f"control characters and line breaks are not accepted (character {found.start()})")
    return value


def _check_visible(value: str) -> str:
    if _INVISIBLE.fullmatch(value):
        raise ValueError("at least one visible character is needed")
    return check_printable(value)


@dataclass(frozen=True)
class Form:
    """Text of a form: refused in words, which people read, while the schema has the pattern, which programs do."""

    pattern: str
    words: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema) | {"pattern": self.pattern}

    def _check(self, value: str) -> str:
        if not re.fullmatch(self.pattern, value):
            raise ValueError(self.words)
        return value


IDENTIFIER_WORDS: Final = "give 1 to 128 letters (A-Z, a-z), digits, '.', '_' or '-', the first a letter or a digit"

Identifier = Annotated[str, Form(JOB_ID_PATTERN, IDENTIFIER_WORDS)]
"""What a job's id may be, and what else is named like one."""

IdentifierOrNothing = Annotated[str, Form(f"^$|{JOB_ID_PATTERN}", IDENTIFIER_WORDS)]

Name = Annotated[str, Field(max_length=TEXT_LIMIT), AfterValidator(_check_visible)]
Text = Annotated[str, Field(max_length=TEXT_LIMIT), AfterValidator(check_printable)]
