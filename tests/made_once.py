"""What all processes of a test run share: files and folders that take a while to make, made by whichever is first."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a whole run. Each process of pytest-xdist has its own below it."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def made_once(path: Path, make: Callable[[Path], object]) -> Path:
    """Return ``path``, which ``make`` has made. Processes that want it meanwhile wait; after a failure the next one tries."""
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            unfinished = path.with_name(f"{path.name}.of-{os.getpid()}")
            make(unfinished)
            unfinished.rename(path)
    return path
