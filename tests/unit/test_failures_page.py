"""``docs/failures.md`` names tests; each of them is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/failures.md"
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


def functions_of(path: Path) -> set[str]:
    """Names of the functions in a module."""
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
