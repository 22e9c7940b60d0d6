"""Backfills of the mirror are started again in a Temporal that does not know them."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import Client

from activities.backfill_control import BackfillControl
from activities.backfill_definition import BackfillDefinitions
from activities.backfill_restore import BackfillRestorer
from activities.database import open_database
from activities.mirror_writer import MirrorWriter, WriterOptions
from activities.queries import Queries
from activities.restore import RestoreOptions, RestoreReport, TemporalGlance
from tests.temporal_servers import unique
from workflows.backfill import BackfillState
from workflows.backfill_record import BackfillRecord, BackfillStatus
from workflows.contracts import backfill_workflow_id
from workflows.job import JobDefinition, JobRecord, MirrorBatch, RunRecord
from workflows.run import Run, RunKind, RunStatus
from workflows.schedule import IntervalRule, Schedule

MINUTE = timedelta(minutes=1)
START = datetime(2026, 6, 1, tzinfo=UTC)
LONG_AGO = datetime(2026, 5, 1, tzinfo=UTC)
LOST_AT = datetime(2026, 6, 2, tzinfo=UTC)

DEFINITION = JobDefinition(schedule=Schedule(rule=IntervalRule(every=MINUTE), jitter_window_seconds=0))


class Place:
    """A mirror, and a Temporal whose data is not there any more."""

    def __init__(
        self, client: Client, *, queries: Queries, definitions: BackfillDefinitions, writer: MirrorWriter
    ) -> None:
        self.client, self.queries, self.definitions, self.writer = client, queries, definitions, writer

    async def restore(self, *, dry_run: bool = False) -> RestoreReport:
        """Restore all backfills."""
        restorer = BackfillRestorer(
            glance=TemporalGlance(self.client),
            queries=self.queries,
            definitions=self.definitions,
            writer=self.writer,
            control=BackfillControl(self.client),
            options=RestoreOptions(dry_run=dry_run),
        )
        return await restorer.restore(RestoreReport(lost_at=LOST_AT))

    async def given(self, record: BackfillRecord) -> BackfillState | None:
        """Read what a backfill's workflow was started with; ``None`` where there is none."""
        about = {"tenant": record.tenant, "job_id": record.job_id, "backfill_id": record.backfill_id}
        name = backfill_workflow_id(**about)
        if not await TemporalGlance(self.client).knows(name):
            return None
        history = await self.client.get_workflow_handle(name).fetch_history()
        payloads = history.events[0].workflow_execution_started_event_attributes.input.payloads
        [state] = await self.client.data_converter.decode(list(payloads), [BackfillState])
        assert isinstance(state, BackfillState)
        return state


@pytest.fixture
async def place(temporal_client: Client, database_url: str) -> AsyncIterator[Place]:
    """Nobody works here, so that what was started stays as it was."""
    engine = open_database(database_url)
    queries, definitions = Queries(engine), BackfillDefinitions(engine)
    writer = MirrorWriter(database_url, options=WriterOptions(budget=timedelta(seconds=10)))
    yield Place(temporal_client, queries=queries, definitions=definitions, writer=writer)
    await writer.close()
    await definitions.close()
    await queries.close()
    await engine.dispose()


def job_record(job_id: str) -> JobRecord:
    """A job of every minute."""
    times = {"registered_at": LONG_AGO, "updated_at": LONG_AGO, "high_water": LONG_AGO}
    return JobRecord.model_validate(
        {"tenant": "default", "job_id": job_id, "version": 1, "definition": DEFINITION} | times
    )


def backfill(job_id: str, name: str, status: BackfillStatus, *, revision: int = 1) -> BackfillRecord:
    """A backfill of ten fires, of which three were taken."""
    return BackfillRecord(
        tenant="default",
        job_id=job_id,
        backfill_id=unique(name),
        version=1,
        status=status,
        revision=revision,
        start=START,
        end=START + 9 * MINUTE,
        requested_at=START + timedelta(hours=1),
        total=10,
        succeeded=2,
        through=START + 2 * MINUTE,
    )


def run_of(asked: BackfillRecord, minute: int, status: RunStatus) -> RunRecord:
    """A run of a backfill."""
    nominal = START + minute * MINUTE
    times = {"scheduled_at": nominal, "target_at": nominal, "created_at": nominal}
    about = {"run_id": f"{asked.backfill_id}:{minute}", "kind": RunKind.BACKFILL, "backfill_id": asked.backfill_id}
    run = Run.model_validate({**times, **about, "status": status, "detached": True})
    return RunRecord(tenant="default", job_id=asked.job_id, version=1, run=run)


async def test_backfills_that_were_not_over_go_on_and_the_others_stay(place: Place) -> None:
    """Each with its progress, once, and not in a dry run; one whose definition is lost ends and says so."""
    job_id = unique("job")
    running = backfill(job_id, "running", BackfillStatus.RUNNING)
    paused = backfill(job_id, "paused", BackfillStatus.PAUSED)
    outdated = backfill(job_id, "outdated", BackfillStatus.RUNNING, revision=7)
    done = backfill(job_id, "done", BackfillStatus.DONE)
    ended = [run_of(each, minute, RunStatus.SUCCESS) for each in (running, paused) for minute in (0, 1)]
    lost = run_of(running, 2, RunStatus.RUNNING)
    everything = (running, paused, outdated, done)
    await place.writer.write_patiently(MirrorBatch(job=job_record(job_id), runs=(*ended, lost), backfills=everything))

    dry = await place.restore(dry_run=True)
    assert (dry.backfills, dry.ended_backfills, dry.lost_runs, dry.failed) == (2, 1, 1, ())
    assert [await place.given(each) for each in everything] == [None] * 4

    report = await place.restore()
    assert report == dry
    states = [await place.given(each) for each in (running, paused)]
    assert [state and state.record.status for state in states] == [BackfillStatus.RUNNING, BackfillStatus.PAUSED]
    assert [state and state.listed_through for state in states] == [START + 2 * MINUTE] * 2
    assert [state and state.definition for state in states] == [DEFINITION] * 2
    assert [await place.given(each) for each in (outdated, done)] == [None, None]

    shown = {each.backfill_id: each for each in (await place.queries.list_backfills("default", job_id)).items}
    assert (shown[running.backfill_id].succeeded, shown[running.backfill_id].dead) == (2, 1)
    assert shown[outdated.backfill_id].status is BackfillStatus.CANCELLED
    assert "revision 7 of the job" in shown[outdated.backfill_id].reason
    assert shown[done.backfill_id] == done
    [row] = [
        each.run
        for each in await place.queries.read_runs_at("default", job_id, [lost.run.scheduled_at])
        if each.run.backfill_id == running.backfill_id
    ]
    assert row.status is RunStatus.DEAD

    again = await place.restore()
    assert again == replace(dry, backfills=0, ended_backfills=0, lost_runs=0, in_doubt=0)


async def test_one_whose_job_was_changed_goes_on_under_its_own_definition(place: Place) -> None:
    """Which is kept with its row, whatever is recorded of it since: payload, schedule and all; a row of an earlier release has
    none, and ends."""
    job_id = unique("job")
    asked = backfill(job_id, "asked-before", BackfillStatus.RUNNING, revision=1)
    of_old = backfill(job_id, "of-an-earlier-release", BackfillStatus.RUNNING, revision=1)
    hourly = Schedule(rule=IntervalRule(every=60 * MINUTE), jitter_window_seconds=0)
    changed = job_record(job_id).model_copy(update={"revision": 2, "definition": JobDefinition(schedule=hourly)})
    await place.writer.write_patiently(MirrorBatch(job=changed, backfills=(asked, of_old)))
    pinned = DEFINITION.model_copy(update={"payload": {"big": 2**63, "text": "\u2603 \x00"}})
    about = {"tenant": "default", "backfill_id": asked.backfill_id}
    await place.definitions.keep_definition(pinned, **about)

    later = asked.model_copy(update={"version": 2, "succeeded": 3, "through": START + 3 * MINUTE})
    await place.writer.write_patiently(MirrorBatch(backfills=(later,)))
    await place.definitions.keep_definition(changed.definition, **about)
    assert await place.definitions.find_definition(**about) == pinned
    assert await place.queries.get_backfill("default", asked.backfill_id) == later

    report = await place.restore()
    assert (report.backfills, report.ended_backfills, report.failed) == (1, 1, ())
    state = await place.given(asked)
    assert state is not None
    assert (state.definition, state.record.revision, state.record.max_concurrent) == (pinned, 1, 1)
    # What it had taken last may have run: a fire that only its own schedule has.
    [doubtful] = await place.queries.read_runs_at("default", job_id, [START + n * MINUTE for n in range(10)])
    assert (doubtful.run.scheduled_at, doubtful.run.revision) == (START + 3 * MINUTE, 1)
    assert await place.given(of_old) is None
    ended = await place.queries.get_backfill("default", of_old.backfill_id)
    assert ended is not None
    assert "revision 1 of the job" in ended.reason


async def test_nothing_is_kept_of_a_backfill_that_has_no_row(place: Place) -> None:
    """It is kept the next time; and of one that is not known nothing is found."""
    about = {"tenant": "default", "backfill_id": unique("unknown")}
    await place.definitions.keep_definition(DEFINITION, **about)
    assert await place.definitions.find_definition(**about) is None
