"""What the command line reads: files of JSON or YAML, and options that become fields of a body."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Final

import typer
import yaml
from pydantic import JsonValue

from activities.api_key import read_key
from api.problem import InvalidRequest, describe_field_error
from api.strict_json import parse_json, require_fit

STANDARD_INPUT: Final = "-"

KEY_VARIABLE: Final = "HORARIUM_API_KEY"

API_KEY: ContextVar[str | None] = ContextVar("horarium_cli_api_key", default=None)
"""What the command was started with."""


class BadInput(Exception):
    """What the user gave cannot be meant. One line that says what and where."""


class CommandFailed(Exception):
    """A command did not do what it should. One line, and the exit code."""

    def __init__(self, message: str, *, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


_REPEATED_LIMIT: Final = 100_000
"""Far beyond what people repeat, and read in a second."""


class YamlLoader(yaml.SafeLoader):
    """YAML without its own idea of times, which the API reads better: they stay text."""

    def compose_document(self) -> yaml.Node | None:
        """Read a document, unless its aliases make it much larger than what is written."""
        node = super().compose_document()
        distinct: dict[int, int | None] = {}
        if node is not None and _written_out(node, distinct) - len(distinct) > _REPEATED_LIMIT:
            problem = f"aliases repeat more than {_REPEATED_LIMIT} values"
            raise yaml.composer.ComposerError(problem=problem, problem_mark=node.start_mark)
        return node


def _written_out(node: yaml.Node, sizes: dict[int, int | None]) -> int:
    """Count the values of a document with its aliases written out; ``sizes`` remembers those of each node."""
    known = sizes.get(id(node), 0)
    if known is None:
        raise yaml.composer.ComposerError(problem="an alias stands within its own anchor", problem_mark=node.start_mark)
    if known:
        return known
    sizes[id(node)] = None
    inner: list[yaml.Node] = []
    if isinstance(node, yaml.SequenceNode):
        inner = node.value
    elif isinstance(node, yaml.MappingNode):
        inner = [each for pair in node.value for each in pair]
    size = 1 + sum(_written_out(each, sizes) for each in inner)
    sizes[id(node)] = size
    return size


YamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_document(name: str) -> JsonValue:
    """Read a file, or standard input for ``-``: JSON where it looks like it, else YAML. Raises ``BadInput``."""
    text = read_bytes(name)
    is_json = name.endswith(".json") or text.lstrip()[:1] in (b"{", b"[")
    return read_json(text, name=name) if is_json else _read_yaml(text, name=name)


def read_json(text: bytes, *, name: str) -> JsonValue:
    """Read JSON. Raises ``BadInput``."""
    try:
        return parse_json(text)
    except InvalidRequest as error:
        raise BadInput(f"{_shown(name)}: {error}") from error


def read_bytes(name: str) -> bytes:
    """Read a file, or standard input for ``-``. Raises ``BadInput``."""
    if name == STANDARD_INPUT:
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise BadInput(f"{name}: {error.strerror}") from error


def read_value(text: str, *, option: str) -> JsonValue:
    """Read the JSON value of an option. Raises ``BadInput``."""
    try:
        return require_fit(parse_json(text.encode(errors="replace")))
    except InvalidRequest as error:
        raise BadInput(f"{option}: {error}") from error


def read_api_key(text: str | None) -> str | None:
    """Read an API key; ``None`` where none is given. Raises ``BadInput``, without the key."""
    key = (text or "").strip()
    if key and read_key(key) is None:
        raise BadInput(f"--api-key or {KEY_VARIABLE}: this is no API key of Horarium")
    return key or None


def read_job_id(text: str) -> str:
    """Read the id of a job, which stands in the path of a request. Raises ``BadInput``."""
    from api.field import IDENTIFIER_WORDS
    from workflows.contracts import JOB_ID_PATTERN

    if not re.fullmatch(JOB_ID_PATTERN, text):
        raise BadInput(f"JOB: {IDENTIFIER_WORDS}")
    return text


JobId = Annotated[str, typer.Argument(callback=read_job_id)]
"""An argument: the id of a job."""


def read_schedule(text: str) -> JsonValue:
    """Read a schedule: an object where it looks like one, else as it stands. Raises ``BadInput``."""
    return read_value(text, option="SCHEDULE") if text.lstrip().startswith("{") else text


def list_bodies(document: JsonValue, *, name: str) -> list[dict[str, JsonValue]]:
    """List the bodies in a document: one object, a list of them, or a list under ``jobs``. Raises ``BadInput``."""
    if isinstance(document, dict) and isinstance(document.get("jobs"), list) and len(document) == 1:
        document = document["jobs"]
    bodies = document if isinstance(document, list) else [document]
    for body in bodies:
        if not isinstance(body, dict):
            raise BadInput(f"{_shown(name)}: expected an object, or a list of objects, not {json.dumps(body)[:60]}")
    return [body for body in bodies if isinstance(body, dict)]


def read_headers(headers: Sequence[str]) -> dict[str, JsonValue]:
    """Read ``NAME=VALUE``; a value that looks like JSON is JSON. Raises ``BadInput``."""
    pairs = [header.partition("=") for header in headers]
    for name, separator, _ in pairs:
        if not separator or not name:
            raise BadInput("--header: give NAME=VALUE")
    return {
        name: read_value(value, option="--header") if value[:1] in ("{", "[") else value for name, _, value in pairs
    }


def read_target(
    *,
    activity: dict[str, JsonValue],
    http: dict[str, JsonValue],
    workflow: dict[str, JsonValue],
    task_queue: str | None,
) -> dict[str, JsonValue] | None:
    """Make the target out of the options for each kind; ``None`` without any. Raises ``BadInput`` for several kinds."""
    kinds = {"activity": activity, "http": http, "workflow": workflow}
    chosen = [kind for kind, options in kinds.items() if options]
    if len(chosen) > 1:
        raise BadInput(f"options for {' and '.join(chosen)} targets: a job has one")
    queue = given({"task_queue": task_queue})
    if not chosen and not queue:
        return None
    [kind] = chosen or ["activity"]
    return {"kind": kind, **kinds[kind], **queue}


def given(fields: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Keep the options that were given."""
    return {name: value for name, value in fields.items() if value is not None}


def read_labels(labels: Sequence[str]) -> dict[str, JsonValue]:
    """Read ``KEY=VALUE`` pairs. Raises ``BadInput``."""
    pairs = [label.partition("=") for label in labels]
    for key, separator, _ in pairs:
        if not separator or not key:
            raise BadInput("--label: give KEY=VALUE")
    return {key: value for key, _, value in pairs}


def _read_yaml(text: bytes, *, name: str) -> JsonValue:
    try:
        value: JsonValue = yaml.load(text, Loader=YamlLoader)
        return require_fit(value)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise BadInput(f"{_shown(name)}: not YAML: {getattr(error, 'problem', None) or 'unreadable'}{place}") from error
    except RecursionError as error:
        raise BadInput(f"{_shown(name)}: not YAML: nested too deeply") from error
    except InvalidRequest as error:
        raise BadInput(f"{_shown(name)}: {'; '.join(map(describe_field_error, error.errors))}") from error


def _shown(name: str) -> str:
    return "standard input" if name == STANDARD_INPUT else name
