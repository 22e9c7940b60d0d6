"""Makes what the tests of later releases need of this one: ``python -m tests.release``, at the commit that is to be tagged.

Builds the wheels from what is committed, keeps them in this folder under the version's name, and freezes them together with all
histories and states. Run again before the tag is there, it does all of it anew; a version that has its tag is left alone.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.release.frozen import RELEASES, REPOSITORY, VERSION, freeze, is_tagged, present_version
from tests.release.wheel import SOURCES, WheelError, build_wheels


class NotReady(Exception):
    """There can be no release yet. The text says why."""


def main() -> int:
    """Make the release's files; the exit code."""
    try:
        version = require_ready(REPOSITORY)
        folder = make_release(REPOSITORY, version)
    except (NotReady, WheelError) as error:
        print(f"no release: {error}", file=sys.stderr)
        return 1
    print(f"{folder} is made. Commit it, and tag that commit: git tag {version}")
    return 0


def require_ready(repository: Path) -> str:
    """Say which version is to be released. Raises ``NotReady``."""
    versions = {source: present_version(repository / source) for source in SOURCES}
    [version, *others] = set(versions.values())
    if others or not VERSION.fullmatch(version):
        raise NotReady(f"both pyproject.toml files must name one version without a suffix, not {versions}")
    if not re.search(
        rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$", (repository / "CHANGELOG.md").read_text(), re.M
    ):
        raise NotReady(f"CHANGELOG.md has no dated section for {version}")
    if is_tagged(repository, version):
        raise NotReady(f"{version} has its tag; what it has recorded stays as it is")
    changed = _git(repository, "status", "--porcelain", "--", ".", f":!{RELEASES / version}")
    if changed:
        raise NotReady(f"commit these first, or remove them:\n{changed}")
    return version


def make_release(repository: Path, version: str) -> Path:
    """Build the wheels of what is committed, and freeze the recordings with them."""
    folder = repository / RELEASES / version
    with tempfile.TemporaryDirectory() as name:
        tree, wheels = Path(name, "tree"), Path(name, "wheels")
        tree.mkdir()
        archive = subprocess.run(["git", "-C", str(repository), "archive", "HEAD"], stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
        built = build_wheels(tree, wheels, at=int(_git(repository, "log", "-1", "--format=%ct")))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for wheel in built:
            shutil.copy(wheel, folder)
    freeze(repository, version)
    return folder


def _git(repository: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(repository), *arguments], stdout=subprocess.PIPE, text=True, check=True
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
