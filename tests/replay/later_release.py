"""Values as a later release may write them: with members that the present one does not know."""

from typing import Any

FREE_FORM = ("payload", "result", "checkpoint", "labels", "activities")
"""Members whose names are the owner's or a team's: nothing in them is unknown."""


def with_unknown_members(value: Any) -> Any:
    """Put a member that nobody knows into every object."""
    if isinstance(value, list):
        return [with_unknown_members(each) for each in value]
    if isinstance(value, dict):
        return {key: with_unknown_members(each) for key, each in value.items()} | {"of_a_later_release": {"a": [1]}}
    return value


def without_free_form(value: Any) -> Any:
    """Leave out what may hold anything."""
    if isinstance(value, list):
        return [without_free_form(each) for each in value]
    if isinstance(value, dict):
        return {key: without_free_form(each) for key, each in value.items() if key not in FREE_FORM}
    return value
