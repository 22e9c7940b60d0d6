"""JSON that would not survive its way unchanged is refused; everything else comes through exactly (SB-121)."""

import json

import pytest
from pydantic import JsonValue

from api.problem import InvalidRequest
from api.strict_json import DEPTH_LIMIT, compact_size, parse_json, require_fit


def nested(depth: int, *, opening: str = "[", closing: str = "]") -> bytes:
    return (opening * depth + "1" + closing * depth).encode()


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "true",
        "-0.0",
        "0.1",
        "1e308",
        "5e-324",
        str(2**63),
        str(2**64 - 1),
        str(-(2**63)),
        '"\\u00e9 \\ud83d\\ude00 \\u200b"',
        '{"": [], "a/b": {"~": null}}',
        json.dumps(list(range(20_000))),
    ],
)
def test_what_is_accepted_is_read_exactly(text: str) -> None:
    """The value of every accepted text is the one that it says."""
    assert require_fit(parse_json(text.encode())) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "pointer", "words"),
    [
        (b'{"a": NaN}', "/a", "finite"),
        (b'{"a": [1, -Infinity]}', "/a/1", "finite"),
        (b'{"a": 1e400}', "/a", "finite"),
        (str(2**64).encode(), "", "range"),
        (str(-(2**63) - 1).encode(), "", "range"),
        (b'{"n": ' + b"9" * 10_000 + b"}", "/n", "range"),
        (b'{"a": {"b": 1, "b": 2}}', "/a", "'b' occurs twice"),
        (b'{"a": "\\ud800"}', "/a", "surrogate"),
        (b'{"a": {"\\udfff": 1}}', "/a", "surrogate"),
        (b'["x\\u0000y"]', "/0", "NUL"),
        (b'{"a/b~c": NaN}', "/a~1b~0c", "finite"),
    ],
)
def test_what_would_change_on_its_way_is_refused_with_its_place(text: bytes, pointer: str, words: str) -> None:
    """NaN, infinities, numbers too large, equal keys, half characters and NUL."""
    with pytest.raises(InvalidRequest) as refusal:
        require_fit(parse_json(text))
    assert refusal.value.errors[0].pointer == pointer
    assert words in refusal.value.errors[0].detail


@pytest.mark.parametrize(
    ("text", "position"),
    [(b"", 0), (b"{", 1), (b'{"a" 1}', 5), (b"[1,]", 3), (b"nul", 0), (b'"\xff"', 1), (b"'a'", 0), (b"1 2", 2)],
)
def test_what_is_no_json_is_refused_with_its_position(text: bytes, position: int) -> None:
    """The first offending character is named."""
    with pytest.raises(InvalidRequest) as refusal:
        parse_json(text)
    assert refusal.value.errors[0].position == position


@pytest.mark.parametrize("depth", [DEPTH_LIMIT + 1, 900, 10_000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_deep_nesting_is_refused_at_any_depth(depth: int, opening: str, closing: str) -> None:
    """Neither the reader nor the walk runs out of stack."""
    with pytest.raises(InvalidRequest, match="levels deep"):
        require_fit(parse_json(nested(depth, opening=opening, closing=closing)))


def test_the_deepest_accepted_nesting_comes_through() -> None:
    """The limit itself is allowed."""
    require_fit(parse_json(nested(DEPTH_LIMIT)))


def test_many_bad_values_are_named_up_to_a_bound() -> None:
    """A body of a million bad values does not become an answer of a million errors."""
    with pytest.raises(InvalidRequest) as refusal:
        require_fit(parse_json(json.dumps([float("nan")] * 1_000).encode()))
    assert len(refusal.value.errors) == 20


@pytest.mark.parametrize("value", [{1: "a"}, {"a": {1, 2}}, [b"bytes"]])
def test_what_only_python_or_yaml_can_say_is_refused(value: JsonValue) -> None:
    """A body from a YAML file is held to the same rules."""
    with pytest.raises(InvalidRequest):
        require_fit(value)


def test_a_byte_order_mark_is_passed_over() -> None:
    """Files from some systems begin with one."""
    assert parse_json(b"\xef\xbb\xbf[1]") == [1]


def test_size_is_counted_in_bytes_of_compact_json() -> None:
    """An accent is two bytes, and blanks do not count."""
    assert compact_size({"a": "é"}) == len('{"a":"é"}'.encode())
