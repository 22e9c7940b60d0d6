"""Processes whose clock is wrong: ``libfaketime`` stands before the C library, for Python and for what is compiled alike."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest

TOLERANCE = 60
"""Seconds; for a busy machine. Clocks of tests are off by more."""


@contextmanager
def clock_of_children(*, ahead: timedelta) -> Iterator[None]:
    """Let the clock of processes started in the block be ``ahead`` of this one's, or behind. Time goes as fast as ever.

    Skips the test where the library does not fit the machine.
    """
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("LD_PRELOAD", str(_library()))
        environment.setenv("FAKETIME", f"{ahead.total_seconds():+.0f}s")
        environment.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        told = subprocess.check_output([sys.executable, "-c", "import time; print(time.time())"], text=True)
        if abs(float(told) - time.time() - ahead.total_seconds()) > TOLERANCE:
            pytest.skip("libfaketime does not work here")
        yield


def _library() -> Path:
    spec = find_spec("libfaketime")
    assert spec is not None
    assert spec.origin is not None
    [library] = Path(spec.origin).parent.rglob("libfaketime.so.1")
    return library
