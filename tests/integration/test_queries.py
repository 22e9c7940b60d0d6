"""What people read of the mirror, on both databases."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from activities.database import open_database
from activities.mirror_writer import MirrorWriter, WriterOptions
from activities.page import Page
from activities.queries import FAILED, JobFilter, Queries, RecordedRun, RunFilter
from tests.records import NOON, attempt_record, job_record, ledger_record, minute, run_record
from workflows.dead_letter import DeadLetterFilter
from workflows.error import InvalidCursor
from workflows.job import JobDefinition, JobRecord, LedgerEntry, Lifecycle, MirrorBatch
from workflows.run import Failure, Outcome, PayloadOverride, RunKind, RunStatus
from workflows.target import ActivityTarget

PATIENT = WriterOptions(budget=timedelta(seconds=10))

HOSTILE = ["", "\x00", "'", "%", "_", "\\", "x' OR '1'='1", "id;DROP TABLE jobs", "é", "🕰", "a\nb", "x" * 10_000]
"""Texts that a caller may send wherever a text is asked for."""


class Mirror:
    """A database to write to and read from."""

    def __init__(self, url: str) -> None:
        self.engine = open_database(url)
        self.queries = Queries(self.engine)
        self._writer = MirrorWriter(url, options=PATIENT)

    async def write(self, batch: MirrorBatch) -> None:
        """Write a batch."""
        await self._writer.write(batch)

    async def close(self) -> None:
        """Let go of the database."""
        await self._writer.close()
        await self.engine.dispose()


@pytest.fixture
async def mirror(database_url: str) -> AsyncIterator[Mirror]:
    """An empty mirror."""
    mirror = Mirror(database_url)
    yield mirror
    await mirror.close()


async def _write_jobs(mirror: Mirror, *jobs: JobRecord) -> None:
    for job in jobs:
        await mirror.write(MirrorBatch(job=job))


async def _ids(mirror: Mirror, chosen: JobFilter) -> list[str]:
    return [job.job_id for job in (await mirror.queries.list_jobs("default", chosen)).items]


async def test_what_is_not_there_is_not_found(mirror: Mirror) -> None:
    """In an empty mirror, and in another tenant (SB-149)."""
    run = run_record(tenant="acme")
    await mirror.write(MirrorBatch(job=job_record(tenant="acme"), runs=(run,), attempts=(attempt_record(run),)))
    assert await mirror.queries.get_job("default", "report") is None
    assert await mirror.queries.get_run("default", run.run.run_id) is None
    assert (await mirror.queries.list_runs("default", "report", RunFilter())).items == ()
    assert (await mirror.queries.list_ledger("default", "report")).items == ()
    assert (await mirror.queries.list_jobs("default", JobFilter())).items == ()


async def test_any_text_is_data(mirror: Mirror) -> None:
    """SB-153: nothing that a caller sends is SQL, and nothing of it is an error of ours."""
    await mirror.write(MirrorBatch(job=job_record(), runs=(run_record(),)))
    for hostile in HOSTILE:
        await _find_nothing(mirror.queries, hostile)


async def _find_nothing(queries: Queries, hostile: str) -> None:
    assert await queries.get_job("default", hostile) is None
    assert await queries.get_job(hostile, "report") is None
    assert await queries.get_run("default", hostile) is None
    assert (await queries.list_runs("default", hostile, RunFilter())).items == ()
    assert (await queries.list_ledger(hostile, "report")).items == ()
    assert (await queries.list_jobs("default", JobFilter(name=hostile))).items == ()
    assert (await queries.list_jobs("default", JobFilter(labels={hostile: hostile}))).items == ()
    found = (await queries.list_jobs("default", JobFilter(q=hostile))).items
    assert len(found) == (1 if hostile == "" else 0)


async def test_jobs_are_found_by_text_in_any_case_and_literally(mirror: Mirror) -> None:
    """SB-153: ``%`` and ``_`` stand for themselves."""
    names = {"a": "100% sure", "b": "snake_case", "c": "back\\slash", "d": "Grüße an ALLE", "e": "plain"}
    target = ActivityTarget(activity="send_mail")
    jobs = [job_record(job_id, definition=JobDefinition(name=name, target=target)) for job_id, name in names.items()]
    await _write_jobs(mirror, *jobs, job_record("f", definition=JobDefinition(description="Plain too", owner="Ops")))
    searches = {"%": ["a"], "0% S": ["a"], "e_c": ["b"], "_": ["a", "b", "c", "d", "e"], "\\": ["c"], "GRÜSSE": ["d"]}
    searches |= {"plain": ["e", "f"], "ops": ["f"], "Send_Mail": ["a", "b", "c", "d", "e"], "%%": [], "e\nf": []}
    for q, found in searches.items():
        assert await _ids(mirror, JobFilter(q=q)) == found, q
    assert await _ids(mirror, JobFilter(name="plain")) == ["e"]
    assert await _ids(mirror, JobFilter(name="PLAIN")) == []


async def test_jobs_are_found_by_labels(mirror: Mirror) -> None:
    """All of the labels asked for, each with exactly its value."""
    labels = {
        "a": {"team": "x", "env": "prod"},
        "b": {"team": "x"},
        "c": {"team": "x y", 'quo"te': "1"},
        "d": {"nested.key": "v", "$": "w"},
        "e": {},
    }
    await _write_jobs(
        mirror, *(job_record(key, definition=JobDefinition(labels=value)) for key, value in labels.items())
    )
    assert await _ids(mirror, JobFilter(labels={"team": "x"})) == ["a", "b"]
    assert await _ids(mirror, JobFilter(labels={"team": "x", "env": "prod"})) == ["a"]
    assert await _ids(mirror, JobFilter(labels={'quo"te': "1"})) == ["c"]
    assert await _ids(mirror, JobFilter(labels={"nested.key": "v", "$": "w"})) == ["d"]
    assert await _ids(mirror, JobFilter(labels={"team": ""})) == []


async def test_jobs_are_found_by_their_target_and_their_next_fire(mirror: Mirror) -> None:
    """Both ends of a range included; jobs without a next fire are in none. Filters hold together."""
    mail = JobDefinition(target=ActivityTarget(activity="send_mail"))
    jobs = [job_record(str(n), definition=mail if n % 2 else None, next_run_at=minute(n)) for n in range(5)]
    await _write_jobs(mirror, *jobs, job_record("paused", definition=mail, lifecycle=Lifecycle.PAUSED))
    assert await _ids(mirror, JobFilter(target="send_mail")) == ["1", "3", "paused"]
    assert await _ids(mirror, JobFilter(target="send")) == []
    assert await _ids(mirror, JobFilter(next_after=minute(1), next_before=minute(3))) == ["1", "2", "3"]
    assert await _ids(mirror, JobFilter(next_before=minute(1))) == ["0", "1"]
    assert await _ids(mirror, JobFilter(next_after=minute(2), target="send_mail")) == ["3"]


async def test_deleted_jobs_are_listed_only_when_asked_for(mirror: Mirror) -> None:
    """Their history is kept, and can be read by id."""
    states = {"a": Lifecycle.ACTIVE, "b": Lifecycle.PAUSED, "c": Lifecycle.COMPLETED, "d": Lifecycle.DELETED}
    await _write_jobs(mirror, *(job_record(job_id, lifecycle=state) for job_id, state in states.items()))
    assert await _ids(mirror, JobFilter()) == ["a", "b", "c"]
    for job_id, state in states.items():
        assert await _ids(mirror, JobFilter(state=state)) == [job_id]
    deleted = await mirror.queries.get_job("default", "d")
    assert deleted is not None
    assert deleted.lifecycle is Lifecycle.DELETED
    assert await mirror.queries.count_jobs("default") == dict.fromkeys(Lifecycle, 1)
    assert await mirror.queries.count_jobs("other") == dict.fromkeys(Lifecycle, 0)


async def test_jobs_are_paged_by_id_in_both_directions_while_others_come_and_go(mirror: Mirror) -> None:
    """Upper and lower case are two ids (SB-140), sorted by code point in both databases."""
    ids = ["A", "a", "a-2026", "b", "B", "c", "c.1", "c_1", "Z"]
    await _write_jobs(mirror, *(job_record(job_id) for job_id in ids))
    first = await mirror.queries.list_jobs("default", JobFilter(), limit=4)
    assert [job.job_id for job in first.items] == ["A", "B", "Z", "a"]
    await _write_jobs(mirror, job_record("Aa"), job_record("a", version=2, lifecycle=Lifecycle.DELETED))
    second = await mirror.queries.list_jobs("default", JobFilter(), limit=4, cursor=first.next)
    assert [job.job_id for job in second.items] == ["a-2026", "b", "c", "c.1"]
    third = await mirror.queries.list_jobs("default", JobFilter(), limit=4, cursor=second.next)
    assert ([job.job_id for job in third.items], third.next) == (["c_1"], None)
    back = await mirror.queries.list_jobs("default", JobFilter(), limit=4, cursor=second.previous)
    assert [job.job_id for job in back.items] == ["A", "Aa", "B", "Z"]


async def _walk(mirror: Mirror, chosen: RunFilter, *, size: int) -> list[Page[RecordedRun]]:
    pages = [await mirror.queries.list_runs("default", "report", chosen, limit=size)]
    while (cursor := pages[-1].next) is not None:
        pages.append(await mirror.queries.list_runs("default", "report", chosen, limit=size, cursor=cursor))
    return pages


def _run_ids(pages: list[Page[RecordedRun]]) -> list[str]:
    return [run.record.run.run_id for page in pages for run in page.items]


async def test_500_runs_of_one_second_are_paged_without_a_loss_in_both_directions(mirror: Mirror) -> None:
    """SB-141, while new runs are coming in."""
    runs = tuple(run_record(kind=RunKind.MANUAL, request_id=f"r{number}") for number in range(500))
    await mirror.write(MirrorBatch(runs=runs))
    pages = [await mirror.queries.list_runs("default", "report", RunFilter(), limit=50)]
    for number in range(9):
        newer = run_record(at=minute(number + 1), kind=RunKind.MANUAL, request_id=f"new{number}")
        await mirror.write(MirrorBatch(runs=(newer,)))
        pages.append(await mirror.queries.list_runs("default", "report", RunFilter(), limit=50, cursor=pages[-1].next))
    forward = _run_ids(pages)
    assert (len(forward), set(forward)) == (500, {run.run.run_id for run in runs})
    assert pages[-1].next is None
    backward = [pages[-1]]
    while (cursor := backward[0].previous) is not None:
        backward.insert(0, await mirror.queries.list_runs("default", "report", RunFilter(), limit=50, cursor=cursor))
    assert _run_ids(backward)[-500:] == forward
    assert len(_run_ids(backward)) == 509


async def test_runs_are_filtered_by_status_and_time(mirror: Mirror) -> None:
    """``failed`` means retrying or dead; both ends of the time are inclusive."""
    statuses = list(RunStatus)
    runs = tuple(run_record(at=minute(number), status=statuses[number % 7]) for number in range(70))
    await mirror.write(MirrorBatch(runs=runs))

    def expected(wanted: frozenset[RunStatus], start: int = 0, end: int = 69) -> list[str]:
        chosen = [run for run in runs[start : end + 1] if not wanted or run.run.status in wanted]
        return [run.run.run_id for run in reversed(chosen)]

    for wanted in (frozenset[RunStatus](), FAILED, frozenset(RunStatus), *(frozenset({each}) for each in RunStatus)):
        pages = await _walk(mirror, RunFilter(statuses=wanted), size=4)
        assert _run_ids(pages) == expected(wanted), wanted
        window = RunFilter(statuses=wanted, start=minute(10), end=minute(30))
        assert _run_ids(await _walk(mirror, window, size=4)) == expected(wanted, 10, 30), wanted
    assert _run_ids(await _walk(mirror, RunFilter(start=minute(31), end=minute(30)), size=4)) == []


async def test_attempts_come_with_their_runs_when_asked_for(mirror: Mirror) -> None:
    """In order of their numbers, which are numbers: 10 comes after 9."""
    runs = tuple(run_record(at=NOON + timedelta(days=20 * number)) for number in range(4))
    attempts = tuple(attempt_record(run, number=number) for run in runs[1:] for number in range(12, 0, -1))
    await mirror.write(MirrorBatch(runs=runs, attempts=attempts))
    listed = await mirror.queries.list_runs("default", "report", RunFilter(), include_attempts=True)
    numbers = [[attempt.number for attempt in run.attempts] for run in listed.items]
    assert numbers == [list(range(1, 13))] * 3 + [[]]
    without = await mirror.queries.list_runs("default", "report", RunFilter())
    assert [run.attempts for run in without.items] == [()] * 4


LARGE = {"rows": [{"id": number, "name": f"customer {number} \ud800\x00", "ok": True} for number in range(4_000)]}


async def test_lists_of_jobs_have_payloads_only_where_they_are_asked_for(mirror: Mirror) -> None:
    """And everything else of a job in any case."""
    job = job_record(definition=JobDefinition(name="report", payload=LARGE, labels={"team": "x"}), revision=3)
    await _write_jobs(mirror, job)
    [whole] = (await mirror.queries.list_jobs("default", JobFilter(), with_payloads=True)).items
    [short] = (await mirror.queries.list_jobs("default", JobFilter())).items
    assert whole == await mirror.queries.get_job("default", "report") == job
    assert short == job.model_copy(update={"definition": job.definition.model_copy(update={"payload": None})})


async def test_lists_of_runs_have_all_but_checkpoints_and_dead_letters_have_those_too(mirror: Mirror) -> None:
    """The one that is read alone has it as well."""
    run = run_record(
        override=PayloadOverride(payload=LARGE),
        result=["x\ud800"],
        checkpoint=LARGE,
        status=RunStatus.DEAD,
        failure=Failure(message="no"),
        finished_at=NOON,
    )
    await mirror.write(MirrorBatch(runs=(run,)))
    [listed] = (await mirror.queries.list_runs("default", "report", RunFilter())).items
    [letter] = (await mirror.queries.list_dead_letters("default", DeadLetterFilter())).items
    assert listed.record.run == run.run.model_copy(update={"checkpoint": None})
    assert letter == await mirror.queries.get_run("default", run.run.run_id) == RecordedRun(run)


async def test_a_page_of_large_payloads_holds_nobody_up(mirror: Mirror) -> None:
    """They are read in a thread: whoever asks for a little meanwhile is answered."""
    for number in range(20):
        await _write_jobs(mirror, job_record(f"job-{number}", definition=JobDefinition(payload=LARGE)))
    clock = asyncio.get_running_loop().time
    reading, begun, stops = asyncio.create_task(_read_everything(mirror)), clock(), [0.0]
    while not reading.done():
        before = clock()
        await asyncio.sleep(0)
        stops.append(clock() - before)
    assert len(await reading) == 20
    assert max(stops) < (clock() - begun) / 2


async def _read_everything(mirror: Mirror) -> tuple[JobRecord, ...]:
    return (await mirror.queries.list_jobs("default", JobFilter(), with_payloads=True)).items


async def test_a_cursor_goes_on_where_its_row_was_even_when_the_row_is_gone(mirror: Mirror) -> None:
    """SB-142: retention may remove the row between two pages."""
    runs = tuple(run_record(at=minute(number)) for number in range(6))
    await mirror.write(MirrorBatch(runs=runs))
    first = await mirror.queries.list_runs("default", "report", RunFilter(), limit=3)
    async with mirror.engine.begin() as connection:
        await connection.execute(text("DELETE FROM runs WHERE run_id = :id"), {"id": first.items[-1].record.run.run_id})
    rest = await mirror.queries.list_runs("default", "report", RunFilter(), limit=3, cursor=first.next)
    assert _run_ids([rest]) == [run.run.run_id for run in reversed(runs[:3])]


async def test_a_cursor_belongs_to_its_list_filter_and_tenant(mirror: Mirror) -> None:
    """SB-142, SB-149."""
    await mirror.write(MirrorBatch(job=job_record("a"), runs=(run_record("a"), run_record("a", at=minute(1)))))
    await mirror.write(
        MirrorBatch(job=job_record("b"), ledger=(ledger_record("a", first=2), ledger_record("a", first=3)))
    )
    queries = mirror.queries
    runs = (await queries.list_runs("default", "a", RunFilter(), limit=1)).next
    jobs = (await queries.list_jobs("default", JobFilter(), limit=1)).next
    ledger = (await queries.list_ledger("default", "a", limit=1)).next
    for cursor in (jobs, ledger, "garbage"):
        with pytest.raises(InvalidCursor):
            await queries.list_runs("default", "a", RunFilter(), cursor=cursor)
    for cursor in (jobs, runs, "garbage"):
        with pytest.raises(InvalidCursor):
            await queries.list_ledger("default", "a", cursor=cursor)
    for tenant, job_id, chosen in (
        ("other", "a", RunFilter()),
        ("default", "b", RunFilter()),
        ("default", "a", RunFilter(statuses=FAILED)),
        ("default", "a", RunFilter(start=NOON)),
    ):
        with pytest.raises(InvalidCursor):
            await queries.list_runs(tenant, job_id, chosen, cursor=runs)
    for chosen_jobs in (JobFilter(q="a"), JobFilter(state=Lifecycle.DELETED), JobFilter(labels={"a": "b"})):
        with pytest.raises(InvalidCursor):
            await queries.list_jobs("default", chosen_jobs, cursor=jobs)


async def _ledger(mirror: Mirror, *, size: int = 50, start: int | None = None, end: int | None = None) -> list[str]:
    """The whole ledger of a window, page by page: ``outcome first-last``, in minutes."""
    told: list[str] = []
    cursor = None
    while True:
        page = await mirror.queries.list_ledger(
            "default",
            "report",
            start=None if start is None else minute(start),
            end=None if end is None else minute(end),
            cursor=cursor,
            limit=size,
        )
        assert len(page.items) <= size
        for entry in page.items:
            first, last = (round((moment - NOON) / timedelta(minutes=1)) for moment in (entry.first, entry.last))
            assert entry.count == last - first + 1
            told.append(f"{entry.outcome} {first}-{last}")
        if page.next is None:
            return told
        cursor = page.next


async def test_the_ledger_tells_each_nominal_time_once_in_order(mirror: Mirror) -> None:
    """Fires with a run by the run, the others by ranges; manual runs and backfills answer for no nominal time."""
    runs = (
        run_record(at=minute(0), outcome=Outcome.RAN),
        run_record(at=minute(9), kind=RunKind.CATCH_UP, stands_for=5, outcome=Outcome.RAN),
        run_record(at=minute(12), outcome=Outcome.CANCELLED, reason="deleted"),
        run_record(at=minute(3), kind=RunKind.MANUAL, request_id="m"),
        run_record(at=minute(4), kind=RunKind.BACKFILL, request_id="b"),
    )
    ledger = (
        ledger_record(first=1, last=4, outcome=Outcome.MISSED),
        ledger_record(first=5, last=8, outcome=Outcome.COALESCED, run_id=runs[1].run.run_id),
        ledger_record(first=10, outcome=Outcome.SKIPPED, reason="overlap", run_id="blocker"),
        ledger_record(first=11, outcome=Outcome.EXCLUDED),
        ledger_record(first=12, outcome=Outcome.PENDING),
    )
    await mirror.write(MirrorBatch(runs=runs, ledger=ledger))
    told = ["ran 0-0", "missed 1-4", "coalesced 5-8", "ran 9-9", "skipped 10-10", "excluded 11-11", "cancelled 12-12"]
    for size in range(1, 9):
        assert await _ledger(mirror, size=size) == told
    page = await mirror.queries.list_ledger("default", "report")
    assert [(entry.reason, entry.run_id) for entry in page.items[-3:]] == [
        ("overlap", "blocker"),
        (None, None),
        ("deleted", runs[2].run.run_id),
    ]


async def test_the_ledger_tells_beside_an_outcome_what_was_backfilled(mirror: Mirror) -> None:
    """A missed fire stays missed. A run that was cancelled does not count, and one that was run again counts once."""
    backfilled: dict[str, Any] = {"kind": RunKind.BACKFILL, "backfill_id": "b"}
    runs = (
        run_record(at=minute(0), outcome=Outcome.RAN, status=RunStatus.DEAD),
        run_record(at=minute(0), request_id="0", **backfilled),
        run_record(at=minute(2), request_id="2", **backfilled),
        run_record(at=minute(2), request_id="again-2", **backfilled),
        run_record(at=minute(3), request_id="3", **backfilled),
        run_record(at=minute(4), request_id="4", status=RunStatus.CANCELLED, **backfilled),
        run_record("another", at=minute(4), request_id="5", **backfilled),
    )
    ledger = (ledger_record(first=1, last=9), ledger_record(first=10))
    await mirror.write(MirrorBatch(runs=runs, ledger=ledger))
    page = await mirror.queries.list_ledger("default", "report")
    assert [(entry.outcome, entry.count, entry.backfilled) for entry in page.items] == [
        (Outcome.RAN, 1, 1),
        (Outcome.MISSED, 9, 2),
        (Outcome.MISSED, 1, 0),
    ]
    names = [entry.backfill_run_id for entry in page.items]
    assert names == ["report:backfill-0", "report:backfill-3", None]
    paused = LedgerEntry(first=minute(2), last=minute(4), count=3, outcome=Outcome.PAUSED)
    [told] = await mirror.queries.tell_backfilled("default", "report", [paused])
    assert (told.outcome, told.backfilled) == (Outcome.PAUSED, 2)


async def test_a_window_of_the_ledger_holds_what_reaches_into_it(mirror: Mirror) -> None:
    """A range that began before the window is listed whole; one that ended before is not."""
    ledger = tuple(ledger_record(first=first, last=first + 8) for first in range(0, 100, 10))
    runs = tuple(run_record(at=minute(nominal), outcome=Outcome.RAN) for nominal in range(9, 100, 10))
    await mirror.write(MirrorBatch(ledger=ledger, runs=runs))
    for size in (1, 2, 50):
        assert await _ledger(mirror, size=size, start=28, end=40) == [
            "missed 20-28",
            "ran 29-29",
            "missed 30-38",
            "ran 39-39",
            "missed 40-48",
        ]
        assert await _ledger(mirror, size=size, start=29, end=29) == ["ran 29-29"]
        assert await _ledger(mirror, size=size, start=35, end=36) == ["missed 30-38"]
        assert await _ledger(mirror, size=size, start=95) == ["missed 90-98", "ran 99-99"]
        assert await _ledger(mirror, size=size, end=9) == ["missed 0-8", "ran 9-9"]
        assert await _ledger(mirror, size=size, start=100) == []
        assert await _ledger(mirror, size=size, start=40, end=39) == []


async def test_the_ledger_reaches_over_months(mirror: Mirror) -> None:
    """On PostgreSQL a window's ranges may lie in another month's partition."""
    day = 24 * 60
    ledger = (ledger_record(first=0, last=100 * day), ledger_record(first=100 * day + 1, last=200 * day))
    await mirror.write(MirrorBatch(ledger=ledger, runs=(run_record(at=minute(200 * day + 1), outcome=Outcome.RAN),)))
    told = [f"missed 0-{100 * day}", f"missed {100 * day + 1}-{200 * day}", f"ran {200 * day + 1}-{200 * day + 1}"]
    assert await _ledger(mirror, size=1) == told
    assert await _ledger(mirror, start=90 * day, end=150 * day) == told[:2]
    assert await _ledger(mirror, start=150 * day) == told[1:]
