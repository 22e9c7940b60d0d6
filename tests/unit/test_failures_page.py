"""``docs/failures.md`` names tests; each of them is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/failures.md"
SLOW = "pytest.mark.slow"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_test_that_the_page_names_exists() -> None:
    """A promise without its test is none."""
    named = NAMED.findall(PAGE.read_text())
    assert len(named) >= 20
    assert [f"{path}::{name}" for path, name in named if name not in functions_of(ROOT / path)] == []


def test_every_row_of_the_page_names_a_test() -> None:
    """In its last column."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and not line.startswith("| Fault")]
    faults = [row for row in rows if not row.startswith("| ---")]
    assert [row for row in faults if not NAMED.search(row.rstrip(" |").rpartition("|")[2])] == []


def test_every_row_of_the_page_has_a_short_form() -> None:
    """A test that ``make test`` runs: not all that the row names are slow."""
    rows = [row for line in PAGE.read_text().splitlines() if (row := NAMED.findall(line))]
    assert len(rows) >= 20
    assert [row for row in rows if all(name in slow_ones_of(ROOT / path) for path, name in row)] == []


def slow_ones_of(path: Path) -> set[str]:
    """Names of the tests in a module that ``make test`` leaves out whatever their parameters are."""
    tree = ast.parse(path.read_text())
    marks = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    if any(SLOW in ast.unparse(mark) for mark in marks):
        return functions_of(path)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {node.name for node in functions if any(ast.unparse(mark) == SLOW for mark in node.decorator_list)}


def functions_of(path: Path) -> set[str]:
    """Names of the functions in a module."""
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
