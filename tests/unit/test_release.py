"""When a release can be made, and what stands in its way."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.release.__main__ import NotReady, require_ready

VERSION = '[project]\nversion = "{}"\n'


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository that is ready to release 0.2.0."""
    write(tmp_path, "pyproject.toml", VERSION.format("0.2.0"))
    write(tmp_path, "activities/sdk/pyproject.toml", VERSION.format("0.2.0"))
    write(tmp_path, "CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n## 0.2.0 - 2026-12-24\n")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def write(repository: Path, name: str, text: str) -> None:
    """Write a file, its folder made."""
    (repository / name).parent.mkdir(parents=True, exist_ok=True)
    (repository / name).write_text(text)


def git(repository: Path, *arguments: str) -> None:
    """Run git there."""
    me = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    subprocess.run(["git", "-C", str(repository), *me, *arguments], check=True, capture_output=True)


def commit(repository: Path) -> None:
    """Commit all there is."""
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "Change")


def test_a_version_that_is_committed_and_described_may_be_released(repository: Path) -> None:
    """Again too, while there is no tag."""
    assert require_ready(repository) == "0.2.0"
    write(repository, "tests/release/0.2.0/SHA256SUMS", "")
    assert require_ready(repository) == "0.2.0"


def only_one_version(repository: Path) -> None:
    """The SDK was forgotten."""
    write(repository, "activities/sdk/pyproject.toml", VERSION.format("0.1.0"))
    commit(repository)


def in_development(repository: Path) -> None:
    """Nobody has decided to release it."""
    for name in ("pyproject.toml", "activities/sdk/pyproject.toml"):
        write(repository, name, VERSION.format("0.2.0.dev0"))
    commit(repository)


def not_described(repository: Path) -> None:
    """Users would not know what is new."""
    write(repository, "CHANGELOG.md", "## Unreleased\n")
    commit(repository)


def not_committed(repository: Path) -> None:
    """The wheels would lack it."""
    write(repository, "workflows/new.py", "")


def tagged(repository: Path) -> None:
    """It was released before."""
    git(repository, "tag", "0.2.0")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (only_one_version, "must name one version"),
        (in_development, "without a suffix"),
        (not_described, "no dated section for 0.2.0"),
        (not_committed, "commit these first"),
        (tagged, "0.2.0 has its tag"),
    ],
)
def test_what_stands_in_the_way_is_said(repository: Path, change: Callable[[Path], None], words: str) -> None:
    """Before anything is built."""
    change(repository)
    with pytest.raises(NotReady, match=words):
        require_ready(repository)
