"""How the mirror may differ from a job, and what one pass may do about it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.records import job_record
from workflows.job import Lifecycle
from workflows.reconciliation import (
    TOLD,
    Difference,
    DifferenceKind,
    JobGlance,
    JobSight,
    ReconcileReport,
    describe_difference,
    is_same_job,
    may_differ,
    most_restored,
    with_differences,
)

NOW = datetime(2026, 6, 8, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)

SIGHT = JobSight(
    tenant="default",
    job_id="report",
    started_at=NOW - HOUR,
    revision=3,
    state="active",
    updated_at=NOW - 2 * HOUR,
    next_run_at=NOW + HOUR,
)
GLANCE = JobGlance(
    tenant="default",
    job_id="report",
    version=7,
    revision=3,
    state="active",
    updated_at=NOW - 2 * HOUR,
    next_run_at=NOW + HOUR,
)


def judged(sight: JobSight, glance: JobGlance | None) -> DifferenceKind | None:
    """What a pass thinks of a pair that has settled a minute ago."""
    return may_differ(sight, glance, settled_before=NOW - MINUTE)


def test_a_row_that_shows_the_job_is_left_alone() -> None:
    """Nobody is asked."""
    assert judged(SIGHT, GLANCE) is None


@pytest.mark.parametrize(
    "change",
    [
        {"revision": 2},
        {"revision": 4},
        {"state": "paused"},
        {"state": "deleted"},
        {"updated_at": NOW - 3 * HOUR},
        {"updated_at": NOW - HOUR},
        {"next_run_at": NOW - HOUR},
        {"next_run_at": None},
    ],
)
def test_a_row_of_another_time_may_differ(change: dict[str, Any]) -> None:
    """SB-084: an older mirror was put back, or a newer one beside an older Temporal."""
    assert judged(SIGHT, replace(GLANCE, **change)) is DifferenceKind.OUTDATED


def test_a_job_without_a_row_is_missing_once_it_has_settled() -> None:
    """A registration is in Temporal a moment before it is in SQL."""
    assert judged(SIGHT, None) is DifferenceKind.MISSING
    assert judged(replace(SIGHT, started_at=NOW), None) is None


def test_what_has_just_changed_is_left_alone() -> None:
    """The list of workflows is a moment behind."""
    assert judged(SIGHT, replace(GLANCE, revision=4, updated_at=NOW)) is None


def test_a_job_of_an_earlier_release_is_compared_by_what_it_shows() -> None:
    """Its memo says nothing yet; its search attributes may."""
    bare = replace(SIGHT, revision=None, updated_at=None)
    assert judged(bare, GLANCE) is None
    assert judged(bare, replace(GLANCE, state="paused")) is DifferenceKind.OUTDATED
    assert judged(replace(bare, state=None, next_run_at=None), replace(GLANCE, state="paused")) is None


def test_a_row_may_be_further_than_the_list() -> None:
    """A job on a timer fires without the list being told each time; after a change, the list shows the fire of before it."""
    assert judged(SIGHT, replace(GLANCE, next_run_at=NOW + 2 * HOUR)) is None
    changed = {"revision": 4, "updated_at": NOW - HOUR / 2}
    sight, glance = replace(SIGHT, **changed), replace(GLANCE, **changed, next_run_at=NOW + MINUTE)  # type: ignore[arg-type]
    assert judged(sight, glance) is None


def test_a_paused_row_has_no_next_fire_to_be_behind_with() -> None:
    """The list shows the fire of before the pause."""
    assert judged(replace(SIGHT, state="paused"), replace(GLANCE, state="paused", next_run_at=None)) is None


def test_versions_make_no_difference() -> None:
    """A job tells itself anew under a higher one each time."""
    assert is_same_job(job_record(version=1), job_record(version=2))
    assert not is_same_job(job_record(), job_record(lifecycle=Lifecycle.PAUSED))
    assert not is_same_job(None, job_record())


def test_a_difference_is_named() -> None:
    """Short values as they are; a definition by its name alone, for its payload may be large or private."""
    ours, theirs = job_record(revision=2), job_record(revision=3, lifecycle=Lifecycle.PAUSED)
    theirs = theirs.model_copy(update={"definition": theirs.definition.model_copy(update={"payload": "secret"})})
    told = describe_difference(ours, theirs)
    assert "revision: 2 in SQL, 3 in Temporal" in told
    assert "lifecycle: active in SQL, paused in Temporal" in told
    assert "definition" in told
    assert "secret" not in told
    assert describe_difference(None, theirs) == "revision 3, paused"


@pytest.mark.parametrize(("rows", "most"), [(0, 10), (1, 10), (200, 10), (1_000, 50), (100_000, 5_000)])
def test_so_many_jobs_are_started_again_without_being_asked(rows: int, most: int) -> None:
    """SB-084: more of them at once are a sign of something else."""
    assert most_restored(rows) == most


def test_a_report_counts_all_and_names_some() -> None:
    """It crosses a workflow, and stays small."""
    many = [
        Difference(tenant="default", job_id=f"job-{number}", kind=DifferenceKind.MISSING, mended=number > 0)
        for number in range(TOLD + 50)
    ]
    report = with_differences(ReconcileReport(), many)
    assert report.found == {"missing": TOLD + 50}
    assert (report.mended, len(report.differences)) == (TOLD + 49, TOLD)
    assert report.mended_by_kind == {"missing": TOLD + 49}
    assert not report.is_equal


@pytest.mark.parametrize(
    ("report", "equal"),
    [
        (ReconcileReport(jobs=5, rows=5), True),
        (ReconcileReport(found={"missing": 2}, mended=2), True),
        (ReconcileReport(found={"missing": 2}, mended=1), False),
        (ReconcileReport(trouble="Temporal does not answer"), False),
        (ReconcileReport(postponed=1), False),
    ],
)
def test_a_pass_leaves_the_mirror_equal_or_says_that_it_does_not(report: ReconcileReport, equal: bool) -> None:
    """What was not looked at is not equal."""
    assert report.is_equal is equal
