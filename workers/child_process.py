"""Child processes of the development stack: started on a leash, logged to a file, stopped within a bound.

Each is the leader of a session of its own. So a Ctrl-C in the terminal reaches only the parent, which stops its children
in its own order, and what a child has started goes with it.
"""

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, Final

_LEASH: Final = Path(__file__).with_name("leash.py")

_LOOK_EVERY: Final = 0.05


@dataclass(frozen=True, kw_only=True)
class ChildCommand:
    """What to run."""

    name: str
    """For people: ``worker``, ``api``."""

    arguments: Sequence[str]
    """The program and its arguments."""

    log_path: Path
    """Standard output and error are appended here."""

    environment: Mapping[str, str] | None = None
    """All of it; ``None``: that of this process."""


class ChildProcess:
    """One child, running or ended. Make it in the main thread: the leash is held by the thread that made it."""

    def __init__(self, command: ChildCommand) -> None:
        self.name = command.name
        self.log_path = command.log_path
        with _open_log(command.log_path) as log:
            self._log_begins_at = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-SE", str(_LEASH), str(os.getpid()), *command.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=command.environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id; that of its group as well."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """Say how it ended, or ``None`` while it runs."""
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        if self.exit_code() is None:
            self._process.send_signal(number)

    def stop(self, *, grace: timedelta) -> int:
        """Ask it to end, kill it and all that it started after ``grace``, and say how it ended."""
        self.signal(signal.SIGTERM)
        try:
            self._process.wait(grace.total_seconds())
        except subprocess.TimeoutExpired:
            self.kill()
        return self._process.wait()

    def kill(self) -> None:
        """Kill it and all that it started, at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def wait(self, *, limit: timedelta) -> int | None:
        """Wait for its end; ``None`` when it outlives the limit."""
        deadline = time.monotonic() + limit.total_seconds()
        while self.exit_code() is None and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY)
        return self.exit_code()

    def log_tail(self, *, lines: int = 20) -> str:
        """Read the last lines that it has logged; what an earlier process has left in the same file is not its own."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_begins_at)
            return b"".join(deque(log, maxlen=lines)).decode(errors="replace").rstrip()


def _open_log(path: Path) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("ab")
