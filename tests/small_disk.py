"""A disk that a test may fill up. Mounting one takes root; where that is not permitted, a test that fills it is skipped."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BLOCK = b"\0" * 65_536


class SmallDisk:
    """A file system of its own, in memory."""

    def __init__(self, folder: Path, *, is_mounted: bool) -> None:
        self._is_mounted = is_mounted
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave no byte free."""
        if not self._is_mounted:
            pytest.skip("a disk cannot be mounted here; it takes root")
        with self._ballast.open("wb", buffering=0) as ballast:
            try:
                while ballast.write(BLOCK):
                    pass
            except OSError:
                return

    def free(self) -> None:
        """Undo ``fill``."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, *, megabytes: int) -> Iterator[SmallDisk]:
    """Mount one on a folder, which is made, for the length of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={megabytes}m,mode=0700"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, check=False
    )
    try:
        yield SmallDisk(folder, is_mounted=done.returncode == 0)
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)
