"""JSON Merge Patch (RFC 7396). Pure."""

from typing import Final

from pydantic import JsonValue

MEDIA_TYPE: Final = "application/merge-patch+json"


def merge_patch(target: JsonValue, patch: JsonValue) -> JsonValue:
    """Apply a patch: objects are merged member by member, ``null`` removes a member, anything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged
