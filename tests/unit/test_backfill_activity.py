"""What the activity of backfills makes of what the mirror and the job say."""

from datetime import UTC, datetime
from typing import Any

import pytest

from activities.backfill import UNKNOWN, BackfillAdmitter
from activities.job_control import JobIsGone
from workflows.backfill import AdmitReport, AdmitRequest
from workflows.error import Unavailable
from workflows.job import JobDefinition, JobRecord, Lifecycle

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


class Definitions:
    """Keeps what it is given, or is away."""

    def __init__(self, *, is_away: bool = False) -> None:
        self.kept: dict[tuple[str, str], JobDefinition] = {}
        self._is_away = is_away

    async def keep_definition(self, definition: JobDefinition, *, tenant: str, backfill_id: str) -> None:
        """As ``BackfillDefinitions`` does."""
        if self._is_away:
            raise Unavailable("the database does not answer")
        self.kept[tenant, backfill_id] = definition


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


async def ask(job: JobRecord | None, definitions: Definitions | None = None) -> AdmitReport:
    """Ask for one run."""
    queries: Any = Mirror(job)
    control: Any = Silence()
    keeper: Any = definitions or Definitions()
    definition = JobDefinition(name="then")
    request = AdmitRequest(tenant="t", job_id="j", backfill_id="b", nominals=(NOMINAL,), definition=definition)
    return await BackfillAdmitter(queries=queries, definitions=keeper, control=control).admit_fires(request)


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


async def test_the_definition_is_kept_by_whoever_asks_for_runs() -> None:
    """The API that began the backfill may have died before it did; while it cannot be kept, no run is asked for."""
    definitions = Definitions()
    await ask(None, definitions)
    assert definitions.kept == {("t", "b"): JobDefinition(name="then")}
    report = await ask(None, Definitions(is_away=True))
    assert (report.trouble, report.started, report.gone) == ("the database does not answer", (), "")
