"""Quotas: what a tenant may have, what it has, and whether a job still fits. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Quota:
    """How much a tenant may have; ``None`` is no limit."""

    jobs: int | None = None
    fires_per_minute: float | None = None

    def or_default(self, default: "Quota") -> "Quota":
        """Fill in what is not settled."""
        jobs = default.jobs if self.jobs is None else self.jobs
        fires = default.fires_per_minute if self.fires_per_minute is None else self.fires_per_minute
        return Quota(jobs=jobs, fires_per_minute=fires)


@dataclass(frozen=True, kw_only=True)
class Usage:
    """How much a tenant has."""

    jobs: int = 0
    fires_per_minute: float = 0


@dataclass(frozen=True)
class Share:
    """What one job takes, or ``None`` where it has claimed nothing yet."""

    fires_per_minute: float | None
    is_counted: bool
    """Whether the tenant's quotas count it already."""


def is_too_much(quota: Quota, others: Usage, before: Share, *, fires_per_minute: float) -> bool:
    """Decide whether a job exceeds the quota, beside what the tenant's other jobs take.

    A change that takes no more than before is never refused, also when the quota was lowered meanwhile.
    """
    if quota.jobs is not None and not before.is_counted and others.jobs + 1 > quota.jobs:
        return True
    # A job that has claimed nothing yet is of before a store was lost: what it took is not known, and not held against it.
    known = fires_per_minute if before.fires_per_minute is None else before.fires_per_minute
    had = known if before.is_counted else 0
    limit = quota.fires_per_minute
    return limit is not None and fires_per_minute > had and others.fires_per_minute + fires_per_minute > limit
