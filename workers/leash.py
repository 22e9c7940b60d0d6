"""Runs a command that dies when its parent does, even by ``kill -9``: ``python leash.py PARENT_PID COMMAND...``.

Run as a file, with the standard library alone, so that it costs a child some milliseconds. On Linux the kernel does it
and the command takes this process over; elsewhere this process stays, looks for its parent, and passes signals on.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1
"""From ``linux/prctl.h``. The signal comes when the thread that started us ends, so parents start children from their
main thread."""

LOOK_EVERY = 0.5


def main(parent: int, command: list[str]) -> int:
    """Become the command, or watch it."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return 1  # It died before the kernel knew.
        os.execvp(command[0], command)
    return watch(parent, command)


def watch(parent: int, command: list[str]) -> int:
    """Stay beside the command until it ends or the parent is gone."""
    child = subprocess.Popen(command)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: child.send_signal(number))
    while child.poll() is None:
        if os.getppid() != parent:
            child.kill()
        time.sleep(LOOK_EVERY)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
