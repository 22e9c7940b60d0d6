"""Compares the mirror with the jobs of Temporal: what may differ, and in which direction it is mended. Pure.

Temporal decides and SQL remembers, so it is SQL that is made equal. The one thing done in Temporal is to start a job again whose
workflow somebody ended there, because only its owner ends a job, by deleting it. Where many jobs are in that state at once,
something else is wrong, and nothing is started.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from workflows.job import JobRecord, Lifecycle
from workflows.value import Value

RESTORED_AT_LEAST: Final = 10
RESTORED_SHARE: Final = 0.05
"""Jobs that one pass starts again, at most: so many, or this share of all that it looked at."""

TOLD: Final = 100
"""Differences that a report names. It counts the others."""


PURGED_TABLES: Final = ("runs", "attempts", "ledger", "backfills", "jobs")
"""What is forgotten after the retention, as ``PurgeReport`` counts it."""


class DifferenceKind(StrEnum):
    """How the mirror differs from a job."""

    MISSING = "missing"
    """The job is not in SQL. Mended: its row is written."""

    OUTDATED = "outdated"
    """Its row shows another revision, state or next fire than the job has. Mended: its row is written."""

    UNRECORDED_END = "unrecorded_end"
    """The job has ended by itself, and its row does not say so. Mended: its row is written."""

    ENDED_IN_TEMPORAL = "ended_in_temporal"
    """Somebody terminated its workflow. Mended: it is started again, and goes on from what the mirror knows."""

    UNKNOWN_TO_TEMPORAL = "unknown_to_temporal"
    """Temporal knows nothing of the job: its data was lost, or the row is older than its retention. Only reported, because
    nobody can tell which: ``horarium restore`` starts it, and deleting it lets it end."""


class Difference(Value):
    """One job of which the mirror tells something else than Temporal."""

    tenant: str
    job_id: str
    kind: DifferenceKind
    detail: str = ""
    mended: bool = False
    failure: str = ""
    """Why it could not be mended, or looked at."""


class ReconcileReport(Value):
    """What one pass found and did."""

    jobs: int = 0
    """Open workflows of jobs that were looked at."""

    rows: int = 0
    """Rows of jobs that should have one."""

    found: dict[str, int] = {}
    """Differences by kind."""

    mended: int = 0
    mended_by_kind: dict[str, int] = {}
    """The same, of all that were found."""

    differences: tuple[Difference, ...] = ()
    """The first of them."""

    stopped: str = ""
    """Why jobs that were ended in Temporal were not started again."""

    postponed: int = 0
    """Jobs that may differ and are asked in the next pass."""

    trouble: str = ""
    """What kept the pass from coming to its end."""

    again_in: timedelta = timedelta(minutes=1)

    @property
    def is_equal(self) -> bool:
        """Whether the pass came to its end and leaves no difference."""
        return not (self.trouble or self.postponed) and self.mended == sum(self.found.values())


class PurgeReport(Value):
    """What was forgotten; in a dry run, what would be."""

    before: datetime
    runs: int = 0
    attempts: int = 0
    ledger: int = 0
    backfills: int = 0
    jobs: int = 0
    months: tuple[str, ...] = ()
    """Partitions that were dropped whole. Their rows are among those counted in a dry run only."""

    trouble: str = ""


@dataclass(frozen=True, kw_only=True)
class JobSight:
    """A job as the list of workflows shows it, without asking it. ``None`` is what the list does not say."""

    tenant: str
    job_id: str
    started_at: datetime
    """When this run of its workflow began, or fell asleep."""

    revision: int | None = None
    state: str | None = None
    updated_at: datetime | None = None
    next_run_at: datetime | None = None
    """As of the beginning of the run, or later."""


@dataclass(frozen=True, kw_only=True)
class JobGlance:
    """A job as its row shows it, as far as it is compared."""

    tenant: str
    job_id: str
    version: int
    revision: int
    state: str
    updated_at: datetime
    next_run_at: datetime | None


def may_differ(sight: JobSight, glance: JobGlance | None, *, settled_before: datetime) -> DifferenceKind | None:
    """Say how a row seems to differ from its job. Only the job itself knows for certain.

    What has changed after ``settled_before`` is left alone: the list and the mirror are both a moment behind.
    """
    if glance is None:
        return DifferenceKind.MISSING if sight.started_at < settled_before else None
    if glance.updated_at >= settled_before:
        return None
    told = (
        (sight.revision, glance.revision),
        (sight.state, glance.state),
        (sight.updated_at, glance.updated_at),
    )
    if any(there is not None and there != here for there, here in told):
        return DifferenceKind.OUTDATED
    return DifferenceKind.OUTDATED if _has_fired_since(sight, glance) else None


def _has_fired_since(sight: JobSight, glance: JobGlance) -> bool:
    """Say whether a job has come further than its row.

    A run that began before the last change shows the next fire of before it.
    """
    if sight.next_run_at is None or sight.started_at <= glance.updated_at or glance.state != Lifecycle.ACTIVE:
        return False
    return glance.next_run_at is None or glance.next_run_at < sight.next_run_at


def is_same_job(row: JobRecord | None, told: JobRecord) -> bool:
    """Say whether a row shows a job as it has told itself."""
    return row is not None and _unversioned(row) == _unversioned(told)


def describe_difference(row: JobRecord | None, told: JobRecord) -> str:
    """Name what differs."""
    if row is None:
        return f"revision {told.revision}, {told.lifecycle.value}"
    theirs, ours = _unversioned(told).model_dump(mode="json"), _unversioned(row).model_dump(mode="json")
    names = [name for name, value in theirs.items() if ours[name] != value]
    return ", ".join(_describe_field(name, ours[name], theirs[name]) for name in names)


def most_restored(rows: int) -> int:
    """Say how many jobs a pass may start again."""
    return max(RESTORED_AT_LEAST, int(rows * RESTORED_SHARE))


def with_differences(report: ReconcileReport, differences: Iterable[Difference]) -> ReconcileReport:
    """Add differences to a report."""
    added = tuple(differences)
    found, mended = Counter(report.found), Counter(report.mended_by_kind)
    found.update(each.kind.value for each in added)
    mended.update(each.kind.value for each in added if each.mended)
    return report.model_copy(
        update={
            "found": dict(found),
            "mended": mended.total(),
            "mended_by_kind": dict(mended),
            "differences": (*report.differences, *added)[:TOLD],
        }
    )


def _unversioned(record: JobRecord) -> JobRecord:
    return record.model_copy(update={"version": 0})


def _describe_field(name: str, ours: object, theirs: object) -> str:
    short = (str, int, float, bool, type(None))
    is_short = isinstance(ours, short) and isinstance(theirs, short)
    return f"{name}: {ours} in SQL, {theirs} in Temporal" if is_short else name
