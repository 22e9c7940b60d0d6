"""What has become of attempts at downstreams, counted for metrics. Nothing is decided by it.

A process may meet any number of downstreams, and forgets those that are called no more; its counts are bounded, and stay.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from workflows.admission import VerdictKind

TOLD_APART: Final = 100
"""Downstreams that have counts of their own in a process."""


@dataclass
class DownstreamCounts:
    """What has become of a downstream's attempts in this process, since it began."""

    openings: int = 0
    """How often this process has opened the breaker."""

    probes_succeeded: int = 0
    probes_failed: int = 0
    verdicts: Counter[VerdictKind] = field(default_factory=Counter)
    """What attempts were told that had failed and would be retried."""


class DownstreamTally:
    """Counts by tenant and downstream: of each of the first that a process meets, and of all the others together.

    They outlive what the process knows of a downstream, for a counter must not fall: had those of the others together lost a
    part, Prometheus would take it for a restart of the process, and see all of them again as an increase. A series that goes
    and comes back would be right for each of the first, and save nothing: they are few.
    """

    def __init__(self, *, most: int = TOLD_APART) -> None:
        self._most = most
        self._counts: dict[tuple[str, str] | None, DownstreamCounts] = {}

    def of(self, tenant: str, downstream: str) -> DownstreamCounts:
        """Get what to count in."""
        known = self._counts.get((tenant, downstream))
        if known is not None:
            return known
        is_told_apart = len(self._counts) < self._most
        return self._counts.setdefault((tenant, downstream) if is_told_apart else None, DownstreamCounts())

    def read(self) -> Mapping[tuple[str, str] | None, DownstreamCounts]:
        """Get all of them; those of the others stand under ``None``. May be called in any thread."""
        return self._counts.copy()
