"""Records laid out as rows, without a database."""

from collections.abc import Callable, Mapping
from datetime import timedelta

import pytest

from activities.mirror_row import (
    Row,
    SqlValue,
    attempt_from,
    attempt_row,
    entry_from,
    job_from,
    job_row,
    ledger_row,
    newest,
    run_from,
    run_row,
    storable,
)
from activities.tables import ATTEMPTS, JOBS, LEDGER, RUNS
from tests.records import attempt_record, job_record, ledger_record, run_record
from workflows.error import Unavailable
from workflows.job import JobDefinition
from workflows.run import Failure
from workflows.target import ActivityTarget


def test_every_field_of_a_record_has_a_column_and_every_column_is_written() -> None:
    """A new field of a value needs a column and a migration; without this test it would be noticed by a stopped mirror."""
    run = run_record()
    for table, row in (
        (JOBS, job_row(job_record())),
        (RUNS, run_row(run)),
        (ATTEMPTS, attempt_row(attempt_record(run))),
        (LEDGER, ledger_row(ledger_record(first=1))),
    ):
        assert set(row) == {column.name for column in table.columns}


def test_what_no_database_holds_is_replaced_by_a_sign_that_people_see() -> None:
    """PostgreSQL refuses NUL in text, and no UTF-8 holds half of a surrogate pair; the record must not be lost for it."""
    assert storable("a\x00b\ud800c") == "a␀b\ufffdc"
    assert storable("Zürich 🕰 \n") == "Zürich 🕰 \n"
    assert run_row(run_record(reason="x\x00"))["reason"] == "x␀"


def test_documents_are_kept_as_they_are() -> None:
    """JSON is written in ASCII, where NUL is an escape like any other."""
    row = run_row(run_record(result={"text": "a\x00"}, failure=Failure(type="E", retry_after=timedelta(seconds=90))))
    assert row["result"] == {"text": "a\x00"}
    failure = row["failure"]
    assert isinstance(failure, dict)
    assert (failure["type"], failure["retry_after"]) == ("E", "PT1M30S")


def test_a_search_looks_in_id_name_description_owner_and_target() -> None:
    """In lower case, so that both databases compare alike."""
    definition = JobDefinition(
        name="Straße", description="Weekly", owner="Ops", target=ActivityTarget(activity="SendIt")
    )
    assert job_row(job_record("J1", definition=definition))["search_text"] == "j1\nstrasse\nweekly\nops\nsendit"


def test_of_several_records_with_one_key_the_newest_is_written_in_the_order_of_keys() -> None:
    """One order for all writers: none waits for another that waits for it."""
    rows = [
        job_row(job_record(job_id, version=version)) for job_id, version in (("b", 1), ("a", 2), ("b", 3), ("a", 1))
    ]
    kept = newest(rows, key=("tenant", "job_id"))
    assert [(row["job_id"], row["version"]) for row in kept] == [("a", 2), ("b", 3)]


@pytest.mark.parametrize(
    ("read", "row", "unknown"),
    [
        (job_from, job_row(job_record()), ("state", "hibernating")),
        (run_from, run_row(run_record()), ("status", "suspended")),
        (attempt_from, attempt_row(attempt_record(run_record())), ("status", "suspended")),
        (entry_from, ledger_row(ledger_record(first=1)), ("outcome", "postponed")),
    ],
)
def test_a_row_of_a_later_release_is_said_to_be_one(
    read: Callable[[Mapping[str, SqlValue]], object], row: Row, unknown: tuple[str, str]
) -> None:
    """As it may be after a release was taken back: the field and its value, and that is nobody's bad request."""
    read(row)
    column, value = unknown
    field = {"state": "lifecycle"}.get(column, column)
    with pytest.raises(Unavailable, match=f"later release.* (run.)?{field}: .*, and not '{value}'"):
        read({**row, column: value})
