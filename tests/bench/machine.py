"""What this machine is, and whether it had anything else to do: what other processes used of it while something was measured."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import psutil

CORES: Final = os.cpu_count() or 1

ADDITIONS: Final = 1_000_000


@contextmanager
def watching(note: Callable[[float], None]) -> Iterator[None]:
    """Note, at the end of the block, the share of the machine's time that others used.

    Ours are this process and its children, these once they have ended and were waited for.
    """
    begin, busy, own = time.monotonic(), _busy_seconds(), _own_seconds()
    yield
    others = (_busy_seconds() - busy) - (_own_seconds() - own)
    note(max(0.0, others / (CORES * max(1e-3, time.monotonic() - begin))))


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def _own_seconds() -> float:
    own = os.times()
    return own.user + own.system + own.children_user + own.children_system


def additions_a_second() -> float:
    """Measure how fast one core runs plain Python: additions in a loop, in processor time, the best of five rounds.

    By it, figures of two machines can be held against each other.
    """
    return ADDITIONS / min(_add() for _ in range(5))


def _add() -> float:
    begin, total = time.process_time(), 0
    for number in range(ADDITIONS):
        total += number
    return time.process_time() - begin
