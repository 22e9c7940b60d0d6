"""One line for each fire whose work began: what every contender's no-op writes, and what the bench reads.

All contenders are measured by this file and this clock alone, whatever they themselves say about their fires.
"""

import os
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FIRE_LOG_VARIABLE = "BENCH_FIRE_LOG"
"""Names the file to the process that does the work. Without it nothing is written."""


def note_fire(job_id: str, due: float, *, jitter: float = 0.0) -> None:
    """Write that the work of a job's fire begins now. It was due at a Unix time in whole seconds, and ``jitter`` later was
    its target."""
    log = _open_log()
    if log is not None:
        os.write(log, f"{job_id} {due:.0f} {time.time() - jitter:.4f}\n".encode())


@cache
def _open_log() -> int | None:
    path = os.environ.get(FIRE_LOG_VARIABLE)
    return None if path is None else os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


@dataclass(frozen=True)
class BenchJob:
    """A job that is due at every ``offset + n * every`` of Unix time, in whole seconds."""

    job_id: str
    every: int
    offset: int

    def due_between(self, start: float, end: float) -> list[int]:
        """List its due times ``start <= due < end``."""
        first = self.offset + -int((self.offset - start) // self.every) * self.every
        return list(range(first, _ceil(end), self.every))


def _ceil(value: float) -> int:
    return -int(-value // 1)


Fire = tuple[str, int]
"""Job id and due time."""


class FireLog:
    """The fires that have begun so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._lines: list[tuple[str, int, float]] = []
        self._starts: dict[Fire, list[float]] = {}
        path.touch()

    def lines(self) -> list[tuple[str, int, float]]:
        """Read on, and answer all lines: job id, due time, and when it began."""
        self.starts()
        return self._lines

    def starts(self) -> dict[Fire, list[float]]:
        """Read on, and answer when each fire began; more than once where it ran more than once."""
        with self.path.open("rb") as log:
            log.seek(self._offset)
            fresh = log.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.decode().splitlines():
            job_id, due, at = line.split()
            self._lines.append((job_id, int(due), float(at)))
            self._starts.setdefault((job_id, int(due)), []).append(float(at))
        return self._starts


@dataclass(frozen=True)
class Seen:
    """What became of the fires that were due in a stretch of time."""

    lateness: tuple[float, ...]
    """Seconds from due to begun, of those that have, in order of size."""

    lost: int
    """Have not begun."""

    repeated: int
    """Began more than once."""


def look(log: FireLog, jobs: list[BenchJob], start: float, end: float) -> Seen:
    """Compare what was due at ``start <= due < end`` with what has begun."""
    starts = log.starts()
    wanted = [(job.job_id, due) for job in jobs for due in job.due_between(start, end)]
    begun = {fire: starts[fire] for fire in wanted if fire in starts}
    return Seen(
        lateness=tuple(sorted(min(times) - fire[1] for fire, times in begun.items())),
        lost=len(wanted) - len(begun),
        repeated=sum(len(times) > 1 for times in begun.values()),
    )
