"""The nights of ``docs/dst.md``."""

import pytest

from tests.bench.dst_table import DOCUMENT, YEARS, ZONES, Row, list_nights, make_rows, to_markdown


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """All rows; no server is asked."""
    return make_rows()


def test_every_night_of_two_years_is_there() -> None:
    """Two changes a year in each zone, one forward and one back."""
    nights = list_nights()
    assert len(nights) == 2 * len(YEARS) * len(ZONES)
    assert sum(night.shift.total_seconds() for night in nights) == 0


def test_every_row_that_is_ours_equals_the_truth(rows: list[Row]) -> None:
    """The walk over every minute and the calculator agree, in each night and for each expression."""
    wrong = [(row.night, row.expression.title) for row in rows if row.ours != row.truth]
    assert wrong == []


def test_the_document_has_these_rows(rows: list[Row]) -> None:
    """What the document says is due, and that it says so of every row, does not go out of date."""
    document = DOCUMENT.read_text()
    due = [line.rsplit("|", 3)[0] for line in to_markdown(rows).splitlines()[4:]]
    assert [line for line in due if line not in document] == []
    assert f"Of {len(rows)} rows, ours equal the truth in {len(rows)}" in document
