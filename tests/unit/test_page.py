"""Cursors and pages, without a database."""

import base64
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.page import (
    MAX_PAGE,
    Page,
    Position,
    decode_cursor,
    encode_cursor,
    fingerprint,
    make_page,
    moment_in,
    page_size,
)
from workflows.error import InvalidCursor

LISTING = fingerprint("runs", "default", "report")


def _cursor_of(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


PART = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=170)
"""Four bytes a character make two of them as long as a cursor may be."""


@given(st.lists(PART, min_size=2, max_size=2), st.booleans())
def test_a_cursor_reads_back_as_the_position_it_was_made_from(key: list[str], backwards: bool) -> None:
    """Whatever stands in an id, and in both directions."""
    position = Position(tuple(key), backwards)
    assert decode_cursor(encode_cursor(position, listing=LISTING), listing=LISTING, key_length=2) == position


def test_a_cursor_of_the_longest_parts_reads_back() -> None:
    """Whatever they are written in."""
    for letter in ("a", '"', "ü", "時", "\U0001f552"):
        position = Position((letter * 170, letter * 170), backwards=True)
        assert decode_cursor(encode_cursor(position, listing=LISTING), listing=LISTING, key_length=2) == position


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "garbage",
        "a",
        "ü",
        "\x00",
        "=" * 4,
        "A" * 100_000,
        "W10",
        _cursor_of({}),
        _cursor_of([]),
        _cursor_of([LISTING]),
        _cursor_of([LISTING, False]),
        _cursor_of([LISTING, 0, "a", "b"]),
        _cursor_of([LISTING, False, "a"]),
        _cursor_of([LISTING, False, "a", 1]),
        _cursor_of([LISTING, False, "a", None]),
        _cursor_of([LISTING, False, "a", "b", "c"]),
        base64.urlsafe_b64encode(b"[" * 1_400).decode(),
    ],
)
def test_a_cursor_that_nobody_gave_is_refused(cursor: str) -> None:
    """SB-142: garbage is the caller's error, never ours."""
    with pytest.raises(InvalidCursor):
        decode_cursor(cursor, listing=LISTING, key_length=2)


@given(st.text())
def test_no_text_at_all_is_taken_for_a_cursor(text: str) -> None:
    """SB-142, for any text."""
    with pytest.raises(InvalidCursor):
        decode_cursor(text, listing=LISTING, key_length=2)


def test_a_cursor_of_another_filter_or_tenant_is_refused() -> None:
    """SB-142 and SB-149: a cursor is bound to all that selects the items."""
    cursor = encode_cursor(Position(("a", "b")), listing=LISTING)
    for other in (fingerprint("runs", "default", "other"), fingerprint("runs", "other", "report")):
        with pytest.raises(InvalidCursor):
            decode_cursor(cursor, listing=other, key_length=2)


def test_the_time_in_a_position_is_read_in_utc() -> None:
    """As databases have it."""
    assert moment_in("2026-06-08T14:00:00+02:00").isoformat() == datetime(2026, 6, 8, 12, tzinfo=UTC).isoformat()


@pytest.mark.parametrize(
    "text", ["", "x", "2026-06-08T12:00:00", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"]
)
def test_a_time_that_no_position_has_is_refused(text: str) -> None:
    """SB-142, for one that is no time, has no zone, or has no year in UTC."""
    with pytest.raises(InvalidCursor):
        moment_in(text)


@pytest.mark.parametrize(("asked", "given"), [(-1, 1), (0, 1), (1, 1), (50, 50), (10**9, MAX_PAGE)])
def test_a_page_size_is_bounded(asked: int, given: int) -> None:
    """SB-142: never a full dump, never an error from the database."""
    assert page_size(asked) == given


def _page(found: list[str], *, at: Position | None) -> Page[str]:
    return make_page(found, size=2, at=at, listing=LISTING, key_of=lambda item: (item,))


def _leads_to(cursor: str | None) -> Position | None:
    return None if cursor is None else decode_cursor(cursor, listing=LISTING, key_length=1)


def test_the_first_page_leads_only_on() -> None:
    """``found`` holds one more than the page, which says that there is a next one."""
    page = _page(["a", "b", "c"], at=None)
    assert page.items == ("a", "b")
    assert _leads_to(page.next) == Position(("b",))
    assert page.previous is None


def test_a_page_in_the_middle_leads_both_ways() -> None:
    """Reached forward or backward, the same page has the same neighbours."""
    forward = _page(["c", "d", "e"], at=Position(("b",)))
    backward = _page(["d", "c", "b"], at=Position(("e",), backwards=True))
    assert forward == backward
    assert forward.items == ("c", "d")
    assert _leads_to(forward.next) == Position(("d",))
    assert _leads_to(forward.previous) == Position(("c",), backwards=True)


def test_behind_the_last_item_one_can_turn_back() -> None:
    """The last row of a page may be gone when the next page is asked for."""
    page = _page([], at=Position(("z",)))
    assert page.items == ()
    assert page.next is None
    assert _leads_to(page.previous) == Position(("z",), backwards=True)
