"""How slow this machine is just now: what must be fast is held to its limit on a machine that may have other work."""

import statistics
import time

_WORK_SECONDS = 0.05


def slowness() -> float:
    """How many times longer than its processor time work takes here and now, because others work too; 1 on a free machine."""
    return statistics.median(_look() for _ in range(3))


def _look() -> float:
    started, cpu = time.perf_counter(), time.process_time()
    while time.process_time() - cpu < _WORK_SECONDS:
        pass
    return max(1.0, (time.perf_counter() - started) / _WORK_SECONDS)
