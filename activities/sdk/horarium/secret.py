"""Secret references: ``{"$secret": "name"}`` in a payload stands for a value that only the worker knows.

Resolved on the worker, just before the job's function gets its payload, so that no value is ever in a definition, a history, a
list or a log. Values come from files (``HORARIUM_SECRETS_DIR``, one file a secret, as Docker and Kubernetes mount them) or from
the environment (``HORARIUM_SECRET_<NAME>``), and are read anew for each attempt. A tenant other than ``default`` has files only,
in a folder of its name: no job can name what belongs to another tenant.

What a job says of its values by mistake, in a failure, a result or a checkpoint, is replaced by ``***`` before it leaves the
worker.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote, quote_plus

from pydantic import JsonValue

from horarium.error import PermanentError

MEMBER: Final = "$secret"

DIRECTORY_VARIABLE: Final = "HORARIUM_SECRETS_DIR"
VARIABLE_PREFIX: Final = "HORARIUM_SECRET_"

HIDDEN: Final = "***"

SHORTEST_HIDDEN: Final = 4
"""Characters. Hiding shorter values would spoil text that has nothing to do with them."""

_DEFAULT_TENANT: Final = "default"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NOT_IN_VARIABLES: Final = re.compile(r"[^A-Z0-9]")


class Secrets:
    """The values that one attempt was given, known in order to be hidden."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        forms = {form for value in values for form in _forms_of(value) if len(form) >= SHORTEST_HIDDEN}
        # The longest first: one may be part of another.
        longest_first = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def __bool__(self) -> bool:
        return self._pattern is not None

    def are_in(self, text: str) -> bool:
        """Whether a text has one of the values."""
        return self._pattern is not None and self._pattern.search(text) is not None

    def hide_in(self, text: str) -> str:
        """Replace the values in a text, also where they are quoted or percent-encoded."""
        return self._pattern.sub(HIDDEN, text) if self._pattern else text

    def hide_in_json(self, value: JsonValue) -> JsonValue:
        """Replace the values in all texts of a JSON value, names of members included."""
        if self._pattern is None:
            return value
        match value:
            case str():
                return self.hide_in(value)
            case list():
                return [self.hide_in_json(item) for item in value]
            case dict():
                return {self.hide_in(name): self.hide_in_json(item) for name, item in value.items()}
            case _:
                return value


def resolve_secrets(
    value: JsonValue, *, tenant: str, path: str = "payload", environment: Mapping[str, str] | None = None
) -> tuple[JsonValue, Secrets]:
    """Put values in the place of references. ``path`` names the value in messages.

    Raises ``PermanentError``, which names the secret and never a value, for one that is unknown and for what only looks like a
    reference.
    """
    source = _Source(tenant, os.environ if environment is None else environment)
    resolved = _resolve(value, source, path)
    return resolved, Secrets(source.given)


class _Source:
    """Where the secrets of a tenant are."""

    def __init__(self, tenant: str, environment: Mapping[str, str]) -> None:
        self._tenant = tenant
        self._environment = environment
        self.given: list[str] = []

    def get(self, name: str, path: str) -> str:
        value = self._read_file(name)
        if value is None and self._tenant == _DEFAULT_TENANT:
            value = self._environment.get(_variable_of(name))
        if value is None:
            raise PermanentError(f"{path}: secret {name!r} is not known to this worker: {self._places(name)}")
        self.given.append(value)
        return value

    def _read_file(self, name: str) -> str | None:
        file = self._file_of(name)
        if file is None or not file.is_file():
            return None
        # Editors and `echo` end a file with a line break, which is no part of the secret.
        return file.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")

    def _file_of(self, name: str) -> Path | None:
        folder = self._environment.get(DIRECTORY_VARIABLE)
        if not folder or not _NAME.fullmatch(self._tenant):
            return None
        return Path(folder, name) if self._tenant == _DEFAULT_TENANT else Path(folder, self._tenant, name)

    def _places(self, name: str) -> str:
        variable = f"set {_variable_of(name)}, or " if self._tenant == _DEFAULT_TENANT else ""
        return f"{variable}put it into a file of the folder that {DIRECTORY_VARIABLE} names"


def _resolve(value: JsonValue, source: _Source, path: str) -> JsonValue:
    match value:
        case dict() if MEMBER in value:
            return source.get(_name_in(value, path), path)
        case dict():
            return {name: _resolve(item, source, f"{path}.{name}") for name, item in value.items()}
        case list():
            return [_resolve(item, source, f"{path}.{index}") for index, item in enumerate(value)]
        case _:
            return value


def _name_in(reference: Mapping[str, JsonValue], path: str) -> str:
    name = reference[MEMBER]
    if len(reference) > 1 or not isinstance(name, str) or not _NAME.fullmatch(name):
        raise PermanentError(
            f'{path}: a secret reference is {{"{MEMBER}": "name"}} and nothing else; the name has letters, digits, ".", "_", "-"'
        )
    return name


def _variable_of(name: str) -> str:
    return VARIABLE_PREFIX + _NOT_IN_VARIABLES.sub("_", name.upper())


def _forms_of(value: str) -> Iterable[str]:
    """List how a value may stand in a text: as it is, quoted by ``repr`` or JSON, percent-encoded, and line by line."""
    yield value
    yield repr(value)[1:-1]
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield quote(value, safe="")
    yield quote(value)
    yield quote_plus(value)
    yield from (line for line in value.splitlines() if len(line) >= 2 * SHORTEST_HIDDEN)
