"""What the activity of backfills makes of what the mirror and the job say."""

from datetime import UTC, datetime
from typing import Any

import pytest

from activities.backfill import UNKNOWN, BackfillAdmitter
from activities.job_control import JobIsGone
from workflows.backfill import AdmitReport, AdmitRequest
from workflows.job import JobRecord, Lifecycle

NOMINAL = datetime(2026, 6, 1, tzinfo=UTC)


class Mirror:
    """Knows one job, or none, and no runs."""

    def __init__(self, job: JobRecord | None) -> None:
        self._job = job

    async def read_runs_at(self, *_: Any) -> list[Any]:
        """As ``Queries`` does."""
        return []

    async def get_job(self, *_: Any) -> JobRecord | None:
        """As ``Queries`` does."""
        return self._job


class Silence:
    """A job whose workflow has ended."""

    def place(self, **_: Any) -> "Silence":
        """As ``JobControl`` does."""
        return self

    async def __aenter__(self) -> None:
        """Nothing to wait for."""

    async def __aexit__(self, *_: object) -> None:
        """Nothing to give back."""

    async def backfill(self, *_: Any, **__: Any) -> None:
        """Raise ``JobIsGone``."""
        raise JobIsGone


async def ask(job: JobRecord | None) -> AdmitReport:
    """Ask for one run."""
    queries: Any = Mirror(job)
    control: Any = Silence()
    request = AdmitRequest(job_id="j", backfill_id="b", nominals=(NOMINAL,))
    return await BackfillAdmitter(queries=queries, control=control).admit_fires(request)


async def test_a_mirror_that_was_lost_cancels_no_backfill() -> None:
    """Its job is as well as ever; the backfill waits until the mirror is filled again."""
    report = await ask(None)
    assert (report.gone, report.trouble, report.started) == ("", UNKNOWN, ())


@pytest.mark.parametrize("lifecycle", [Lifecycle.DELETED, Lifecycle.ACTIVE])
async def test_only_a_row_that_says_so_makes_a_job_a_deleted_one(lifecycle: Lifecycle) -> None:
    """An active job without a workflow is restored, and its backfill goes on."""
    report = await ask(
        JobRecord(job_id="j", lifecycle=lifecycle, registered_at=NOMINAL, updated_at=NOMINAL, high_water=NOMINAL)
    )
    assert report.gone == ("the job was deleted" if lifecycle is Lifecycle.DELETED else "")
    assert bool(report.trouble) is (lifecycle is Lifecycle.ACTIVE)
