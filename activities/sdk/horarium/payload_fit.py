"""Fits a run to the parameters that a job's function happens to have, and says as a JSON Schema what fits."""

import inspect
import json
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias, get_args, get_origin, get_type_hints

from pydantic import JsonValue, PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError
from pydantic.json_schema import GenerateJsonSchema

from horarium.error import PermanentError
from horarium.job_run import JobRun

JsonSchema: TypeAlias = dict[str, JsonValue]

_NULL: Final[JsonSchema] = {"type": "null"}


class _QuietSchema(GenerateJsonSchema):
    """Leaves out a default that has no JSON form, without a word in the log of the worker that starts."""

    ignored_warning_kinds = {"non-serializable-default", "skipped-choice"}


class Parameter:
    """One parameter of a job's function."""

    def __init__(self, parameter: inspect.Parameter, hint: Any) -> None:
        self.name = parameter.name
        self._hint = hint
        self._default = parameter.default

    @property
    def is_run(self) -> bool:
        """Whether it asks for the whole ``JobRun``."""
        return self._hint is JobRun or get_origin(self._hint) is JobRun

    @property
    def has_default(self) -> bool:
        """Whether it may be left out."""
        return self._default is not inspect.Parameter.empty

    @property
    def default(self) -> Any:
        """What it is when left out."""
        return self._default

    def decode(self, value: JsonValue, *, path: str) -> Any:
        """Read a JSON value as the parameter's type. ``path`` names the value in messages."""
        try:
            return self.adapter.validate_json(json.dumps(value))
        except ValidationError as error:
            raise PermanentError(_describe(error, path)) from None
        except (PydanticUserError, PydanticSchemaGenerationError) as error:
            raise PermanentError(f"parameter {self.name}: its type cannot be read from JSON: {error}") from error

    def json_schema(self) -> JsonSchema:
        """Say what ``decode`` takes. Raises whatever pydantic does for types that have no JSON Schema."""
        return self.adapter.json_schema(schema_generator=_QuietSchema)

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """Reader of the parameter's type. May raise whatever pydantic does for types that it cannot read."""
        # Built at the first run and not before: the type may be one that only other workflows of the team pass.
        return TypeAdapter(_payload_type(self._hint) if self.is_run else self._hint)


class PayloadFit:
    """How a function wants its run.

    No parameter: nothing is passed. One annotated ``JobRun``: the run. One other: the payload. Several: members of the
    payload, by name, beside the run where one of them is annotated so. Absent members and a ``null`` payload leave a
    parameter at its default.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        hints = get_type_hints(_hinted(function), include_extras=True)
        parameters = inspect.signature(function).parameters.values()
        self._parameters = [
            Parameter(parameter, hints.get(parameter.name, Any))
            for parameter in parameters
            if parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        ]

    def arguments(self, run: JobRun[Any]) -> list[Any]:
        """Make the positional arguments. Raises ``PermanentError``, naming the member that does not fit."""
        match self._parameters:
            case []:
                return []
            case [parameter]:
                return _whole_payload(parameter, run)
            case parameters:
                return _members(parameters, run)

    def json_schema(self) -> JsonSchema:
        """Say what payloads fit. Raises whatever pydantic does for types that have no JSON Schema."""
        match self._parameters:
            case []:
                return {}
            case [parameter] if parameter.is_run or not parameter.has_default:
                return parameter.json_schema()
            case [parameter]:
                return _or_null(parameter.json_schema())
            case parameters:
                return _members_schema([parameter for parameter in parameters if not parameter.is_run])


def _whole_payload(parameter: Parameter, run: JobRun[Any]) -> list[Any]:
    if parameter.is_run:
        return [_with_payload(run, parameter.decode(run.payload, path="payload"))]
    if run.payload is None and parameter.has_default:
        return []
    return [parameter.decode(run.payload, path="payload")]


def _members(parameters: Sequence[Parameter], run: JobRun[Any]) -> list[Any]:
    payload = {} if run.payload is None else run.payload
    names = [parameter.name for parameter in parameters if not parameter.is_run]
    if not isinstance(payload, dict):
        raise PermanentError(f"payload: an object with the members {', '.join(names)} is needed")
    for unknown in payload.keys() - set(names):
        raise PermanentError(f"payload.{unknown}: the job's function has no such parameter, only {', '.join(names)}")
    return [_member(parameter, payload, run) for parameter in parameters]


def _member(parameter: Parameter, payload: dict[str, JsonValue], run: JobRun[Any]) -> Any:
    if parameter.is_run:
        return _with_payload(run, parameter.decode(payload, path="payload"))
    path = f"payload.{parameter.name}"
    if parameter.name in payload:
        return parameter.decode(payload[parameter.name], path=path)
    if parameter.has_default:
        return parameter.default
    raise PermanentError(f"{path}: missing")


def _members_schema(parameters: Sequence[Parameter]) -> JsonSchema:
    schemas, definitions = TypeAdapter.json_schemas(
        [(parameter.name, "validation", parameter.adapter) for parameter in parameters], schema_generator=_QuietSchema
    )
    required = [parameter.name for parameter in parameters if not parameter.has_default]
    members: JsonSchema = {
        "type": "object",
        "properties": {parameter.name: schemas[parameter.name, "validation"] for parameter in parameters},
        "additionalProperties": False,
    }
    # A payload of `null` is one without members.
    whole: JsonSchema = members | {"required": [*required]} if required else {"anyOf": [members, _NULL]}
    return whole | definitions


def _or_null(schema: JsonSchema) -> JsonSchema:
    # References lead from the root, so that is where definitions stay.
    definitions: JsonSchema = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    alone = {name: member for name, member in schema.items() if name != "$defs"}
    return {"anyOf": [alone, _NULL], **definitions}


def _with_payload(run: JobRun[Any], payload: Any) -> JobRun[Any]:
    # `dataclasses.replace` would do, were it not for mypy's view of generic frozen classes.
    return JobRun(**{**vars(run), "payload": payload})


def _payload_type(hint: Any) -> Any:
    """Say what ``JobRun[X]`` wants as its payload: ``X``, or anything for a bare ``JobRun``."""
    arguments = get_args(hint)
    return arguments[0] if arguments else Any


def _hinted(function: Callable[..., object]) -> Callable[..., object]:
    """Find where the annotations are: activities may be functions, methods, or objects that can be called."""
    if inspect.isfunction(function) or inspect.ismethod(function):
        return function
    return type(function).__call__


def _describe(error: ValidationError, path: str) -> str:
    problems = (
        f"{'.'.join([path, *(str(part) for part in problem['loc'])])}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_context=False, include_input=False)
    )
    return "; ".join(problems)
