"""The command line for tests: inside their own process, where it costs nothing to start, or as a process, as people run it."""

import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Final
from unittest.mock import patch

from api.cli import _run as run_command
from tests.api_server import NOWHERE

COMMAND: Final = (sys.executable, "-P", "-c", "from api.cli import main; main()")

NO_API: Final = f"http://{NOWHERE}"

WIDE: Final = {"COLUMNS": "200"}
"""Tables are not wrapped."""


@dataclass(frozen=True)
class Said:
    """What a command wrote."""

    stdout: str
    stderr: str


def run(*arguments: str, stdin: str = "", url: str = NO_API, expect: int = 0) -> Said:
    """Run a command to its end, in a thread, and check its exit code."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, WIDE | {"HORARIUM_API_URL": url}),
        patch.object(sys, "argv", ["horarium", *arguments]),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()))),
        redirect_stdout(stdout),
        redirect_stderr(stderr),
        _logging_put_back(),
        ThreadPoolExecutor(1) as elsewhere,
    ):
        code = elsewhere.submit(run_command).result()
    return _checked(code, Said(stdout.getvalue(), stderr.getvalue()), expect=expect)


@contextmanager
def _logging_put_back() -> Iterator[None]:
    """Undo what a command sets of logging, which takes the process for its own."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers


def run_process(*arguments: str, stdin: str = "", url: str = NO_API, expect: int = 0) -> Said:
    """The same in a process, whose exit code is checked."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | WIDE | {"HORARIUM_API_URL": url},
    )
    return _checked(done.returncode, Said(done.stdout, done.stderr), expect=expect)


def _checked(code: int, said: Said, *, expect: int) -> Said:
    assert code == expect, said.stderr
    assert "Traceback" not in said.stderr
    return said
