"""Arithmetic on figures. Pure."""

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """Take the smallest value that at least ``share`` of all are no larger than; not a number where there are none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median(values: Sequence[float]) -> float:
    """Take the middle value, or the mean of the two in the middle, leaving out what is not a number."""
    ordered = sorted(value for value in values if not math.isnan(value))
    if not ordered:
        return math.nan
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
