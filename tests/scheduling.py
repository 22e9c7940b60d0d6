"""Who runs what when several processes run the tests: what shares a stack in one of them, and what takes long first.

A unit is the work of one process at a time. Most are a file, whose tests share what its fixtures start. The tests that look at a
stack of the session are one unit for each stack, whatever their files, so that a run starts each of them once.
"""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

ROOT: Final = Path(__file__).parents[1]

STACKS: Final = ("api_stack", "author_stack")
"""Fixtures of a session that start processes, the first of them for each database. Who uses one says so in its parameters."""

Stack = TypeVar("Stack")

_open: list[ExitStack] = []

_DATABASE: Final = re.compile(r"[\[-](sqlite|postgresql)[-\]]")

LONGEST: Final = (
    "api_stack sqlite",
    "api_stack postgresql",
    "tests/integration/test_dev_stack.py",
    "tests/integration/test_metrics.py",
    "tests/chaos/test_short_forms.py",
    "tests/integration/test_writing_jobs.py",
    "tests/integration/test_worker_process.py",
    "author_stack",
    "tests/integration/test_dead_letters.py",
)
"""Units that take most of a minute or more, the longest first. Each of the others is shorter than what is left beside them."""

UNHURRIED: Final = ("integration", "workflow", "replay")
"""Folders whose files take longest, in this order."""


def unit_of(nodeid: str) -> str:
    """Say to which unit a test belongs."""
    file, _, name = nodeid.partition("::")
    stack, database = _stack_in(file), _DATABASE.search(name)
    if stack == STACKS[0]:
        return f"{stack} {database[1]}" if database else file
    return stack or file


def rank_of(nodeid: str) -> int:
    """Say how early a test is to run, from 0."""
    unit, folder = unit_of(nodeid), nodeid.split("/")[1]
    if unit in LONGEST:
        return LONGEST.index(unit)
    return len(LONGEST) + (UNHURRIED.index(folder) if folder in UNHURRIED else len(UNHURRIED))


@contextmanager
def until_unit_ends(stack: AbstractContextManager[Stack]) -> Iterator[Stack]:
    """Keep a stack of a session until the tests that look at it are over: until ``end_stacks``, or the block's end."""
    with ExitStack() as cleanup:
        _open.append(cleanup)
        yield cleanup.enter_context(stack)


def end_stacks() -> None:
    """End the stacks of this process."""
    while _open:
        _open.pop().close()


@cache
def _stack_in(file: str) -> str | None:
    text = (ROOT / file).read_text()
    return next((name for name in STACKS if f"{name}: ApiStack" in text), None)


class UnitScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each process a unit at a time, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
