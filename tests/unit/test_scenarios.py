"""``tests/data/scenarios.md`` says where each scenario is shown: every one has its line, and the line is true."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

PAGE = (TESTS / "data" / "scenarios.md").read_text()

SCENARIOS = re.findall(r"^- \*\*(SB-\d+)\*\*", PAGE, re.MULTILINE)

SHOWN_BY = dict(re.findall(r"^\| (SB-\d+) \| (.+) \|$", PAGE, re.MULTILINE))


def test_each_scenario_has_a_line() -> None:
    """And no line is of a scenario that is not there."""
    assert SCENARIOS
    assert SHOWN_BY.keys() == set(SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_line_names_tests_that_name_the_scenario(scenario: str) -> None:
    """Or gives a reason."""
    shown_by = SHOWN_BY[scenario]
    assert shown_by != "MISSING"
    for name in re.findall(r"`([\w/]+\.py)`", shown_by):
        text = (TESTS / name).read_text()
        assert re.search(scenario.replace("-", "[-_]"), text, re.IGNORECASE), name
