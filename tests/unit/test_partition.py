"""Which month a row belongs to."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from activities.partition import is_partition_name, month_of, months_of, partition_name


@pytest.mark.parametrize(
    ("moment", "month"),
    [
        (datetime(2026, 6, 1, tzinfo=UTC), date(2026, 6, 1)),
        (datetime(2026, 5, 31, 23, 59, 59, 999_999, tzinfo=UTC), date(2026, 5, 1)),
        (datetime(2026, 6, 1, 1, tzinfo=timezone(timedelta(hours=2))), date(2026, 5, 1)),
        (datetime(2020, 1, 1, tzinfo=UTC), date(2020, 1, 1)),
        (datetime(2019, 12, 31, 23, 59, tzinfo=UTC), None),
        (datetime(2099, 12, 31, tzinfo=UTC), date(2099, 12, 1)),
        (datetime(2100, 1, 1, tzinfo=UTC), None),
        (datetime.min.replace(tzinfo=UTC), None),
        (datetime.max.replace(tzinfo=UTC), None),
    ],
)
def test_a_row_belongs_to_its_month_in_utc(moment: datetime, month: date | None) -> None:
    """Years that no table is made for share the default partition."""
    assert month_of(moment) == month


def test_months_are_named_once() -> None:
    """However many rows a month has."""
    moments = [datetime(2026, 6, day, tzinfo=UTC) for day in range(1, 31)] + [datetime(1999, 1, 1, tzinfo=UTC)]
    assert months_of(moments) == {date(2026, 6, 1)}


def test_partitions_are_told_from_tables_by_name() -> None:
    """A migration's comparison must pass over the partitions, and over nothing else."""
    assert partition_name("runs", date(2026, 6, 1)) == "runs_2026_06"
    assert all(map(is_partition_name, ("runs_2026_06", "attempts_1999_12", "ledger_default")))
    assert not any(map(is_partition_name, ("runs", "runs_archive", "jobs_2026_06", "x_runs_2026_06")))
