"""Finds job code: every ``@activity.defn`` function of the modules that a worker is pointed at."""

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, Final

from temporalio import activity

from workers.settings import InvalidSettings, variable_of
from workflows.contracts import OUR_ACTIVITIES

EXAMPLES: Final = "activities.examples"

ActivityFunction = Callable[..., Any]

_VARIABLE: Final = variable_of("activities")


def load_job_activities(modules: Sequence[str], *, examples: bool) -> list[ActivityFunction]:
    """Import the modules and collect their activities; the example jobs last, less those whose names are taken.

    Raises ``InvalidSettings`` for a module that cannot be imported or has no activity, and for a name that is there twice.
    """
    _look_in_working_directory()
    found: dict[str, ActivityFunction] = {}
    for module in modules:
        for function in _require_activities(module):
            _add(found, function)
    if examples:
        for function in _activities_in(importlib.import_module(EXAMPLES)):
            found.setdefault(name_of(function), function)
    return list(found.values())


def name_of(function: ActivityFunction) -> str:
    """Say under which name a job asks for an activity."""
    # Temporal has no public way to ask; its test environment does the same.
    return activity._Definition.must_from_callable(function).name or "a dynamic activity"


def _look_in_working_directory() -> None:
    """Let modules of the working directory be found, after all that is installed, so that none hides one of ours."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def _require_activities(name: str) -> Iterable[ActivityFunction]:
    try:
        module = importlib.import_module(name)
    except Exception as error:  # whatever the team's module raises when it is run
        raise InvalidSettings(f"{_VARIABLE}: cannot import {name}: {type(error).__name__}: {error}") from error
    functions = _activities_in(module)
    if not functions:
        raise InvalidSettings(f"{_VARIABLE}: {name} has no function with @activity.defn")
    return functions


def _activities_in(module: ModuleType) -> list[ActivityFunction]:
    """List a module's activities in the order of their definition; methods count where the module names a bound one."""
    members = {id(member): member for member in vars(module).values() if not isinstance(member, type)}
    return [member for member in members.values() if callable(member) and _is_activity(member)]


def _is_activity(member: ActivityFunction) -> bool:
    return activity._Definition.from_callable(member) is not None


def _add(found: dict[str, ActivityFunction], function: ActivityFunction) -> None:
    name = name_of(function)
    if name in OUR_ACTIVITIES:
        raise InvalidSettings(
            f"{_VARIABLE}: {_place_of(function)} is named {name}, as is one of Horarium's own activities"
        )
    if found.get(name, function) is not function:
        raise InvalidSettings(f"{_VARIABLE}: {_place_of(found[name])} and {_place_of(function)} are both named {name}")
    found[name] = function


def _place_of(function: ActivityFunction) -> str:
    return f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
