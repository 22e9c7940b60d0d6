"""A child process of the development stack, and what is told of its end."""

import sys
from datetime import timedelta
from pathlib import Path

from workers.child_process import ChildCommand, ChildProcess


def ended(path: Path, text: str) -> ChildProcess:
    """A process that has written a text and ended."""
    arguments = [sys.executable, "-S", "-c", f"print({text!r}, end='')"]
    process = ChildProcess(ChildCommand(name="child", arguments=arguments, log_path=path))
    assert process.wait(limit=timedelta(seconds=30)) == 0
    return process


def test_the_end_of_a_log_is_that_of_the_process_itself(tmp_path: Path) -> None:
    """What an earlier one has left in the file would mislead whoever looks for the reason; it is kept there all the same."""
    log = tmp_path / "logs" / "child.log"
    assert ended(log, "an old error\n").log_tail() == "an old error"
    assert ended(log, "").log_tail() == ""
    last = ended(log, "one\ntwo\nthree")
    assert last.log_tail() == "one\ntwo\nthree"
    assert last.log_tail(lines=2) == "two\nthree"
    assert log.read_text() == "an old error\none\ntwo\nthree"
