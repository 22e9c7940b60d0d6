"""Wheels of Horarium: built from a tree of files, and installed into an environment of their own, as somebody has them.

Such an environment takes everything but our own two distributions from that of the tests, so it is made in a second and without
a network. What is imported there is what the wheels hold: the checkout is not on its path.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOURCES: Final = (Path("activities/sdk"), Path())
"""Our distributions, by where their ``pyproject.toml`` is: the SDK, and the server."""

DISTRIBUTIONS: Final = ("horarium", "horarium-server")

PACKAGES: Final = ("horarium", "workflows", "activities", "workers", "api")

_DEPENDENCIES: Final = "dependencies-of-the-tests.pth"


class WheelError(Exception):
    """A wheel that cannot be built or installed, with what pip said."""


@dataclass(frozen=True)
class Installation:
    """An environment with Horarium in it."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def command(self) -> Path:
        """The ``horarium`` command."""
        return self.folder / "bin" / "horarium"

    def origins(self) -> dict[str, Path]:
        """Say where each of our packages is imported from there."""
        code = f"import {', '.join(PACKAGES)}; print(*(each.__file__ for each in ({', '.join(PACKAGES)})), sep='\\n')"
        found = self._run(self.python, "-P", "-c", code).splitlines()
        return dict(zip(PACKAGES, map(Path, found), strict=True))

    def versions(self) -> dict[str, str]:
        """Say which version of each of our distributions is found there."""
        names = [f"version('{name}')" for name in DISTRIBUTIONS]
        code = f"from importlib.metadata import version; print({', '.join(names)})"
        return dict(zip(DISTRIBUTIONS, self._run(self.python, "-P", "-c", code).split(), strict=True))

    def _run(self, *command: str | Path) -> str:
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True).stdout


def build_wheels(tree: Path, folder: Path, *, at: int | None = None) -> list[Path]:
    """Build our wheels from a tree, which is left with the traces of it. ``at`` dates the files in them, for equal bytes."""
    dated = {} if at is None else {"SOURCE_DATE_EPOCH": str(at)}
    for source in SOURCES:
        _pip(["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(tree / source)], dated)
    return sorted(folder.glob("*.whl"))


def install_wheels(wheels: Sequence[Path], folder: Path) -> Installation:
    """Make an environment that has these wheels, and of all else what the tests have."""
    venv.EnvBuilder(symlinks=True).create(folder)
    installed = Installation(folder)
    _pip(["--python", str(installed.python), "install", "--no-deps", "--no-index", *map(str, wheels)])
    # Added to the path as it is: what is installed there in editable form stays out.
    [packages] = folder.glob("lib/python3*/site-packages")
    (packages / _DEPENDENCIES).write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    return installed


def _pip(arguments: Sequence[str], variables: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        env=os.environ | (variables or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise WheelError(f"{done.stdout}{done.stderr}")
