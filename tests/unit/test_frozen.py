"""The histories and states of released versions cannot be changed unnoticed, whatever kind of checkout this is."""

import subprocess
from pathlib import Path

import pytest

from tests.release.frozen import REPOSITORY, freeze, frozen_files, list_complaints, list_releases

HISTORY = "tests/replay/histories/JobWorkflow/1-plain-fires.json.gz"
STATE = "tests/replay/states/JobInput/1-plain-fires.json"
WHEEL = "tests/release/0.1.0/horarium-0.1.0-py3-none-any.whl"
SUMS = "tests/release/0.1.0/SHA256SUMS"
CODE = "tests/release/frozen.py"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository that has released 0.1.0, and works on the next version."""
    for name in (HISTORY, STATE, WHEEL, CODE):
        write(tmp_path / name, name)
    write(tmp_path / "pyproject.toml", '[project]\nversion = "0.2.0.dev0"\n')
    write(tmp_path / "CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n## 0.1.0 - 2026-11-30\n")
    freeze(tmp_path, "0.1.0")
    return tmp_path


@pytest.fixture
def tagged(repository: Path) -> Path:
    """The same, in git."""
    git = ["git", "-C", str(repository), "-c", "user.name=A", "-c", "user.email=a@example.com"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "Release 0.1.0"], ["tag", "0.1.0"]):
        subprocess.run([*git, *arguments], check=True, capture_output=True)
    return repository


def write(path: Path, text: str) -> None:
    """Write a file, its folder made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_what_was_released_is_as_it_was() -> None:
    """Of this very repository; ``python -m tests.release.frozen`` is the same as a step of CI."""
    assert [*list_complaints(REPOSITORY)] == []


def test_files_may_be_added(repository: Path) -> None:
    """Each release records what is new in it."""
    write(repository / "tests/replay/histories/JobWorkflow/2-plain-fires.json.gz", "new")
    assert [*list_complaints(repository)] == []
    write(repository / "tests/release/0.2.0/horarium-0.2.0-py3-none-any.whl", "new")
    freeze(repository, "0.2.0")
    assert list_releases(repository) == ["0.1.0", "0.2.0"]
    assert frozen_files(repository)[HISTORY] == "0.1.0"
    assert [*list_complaints(repository)] == []


@pytest.mark.parametrize("name", [HISTORY, STATE, WHEEL])
def test_an_edited_file_is_named(repository: Path, name: str) -> None:
    """A history that was made to fit the new code proves nothing of the jobs that sleep under the old."""
    write(repository / name, "edited")
    assert [*list_complaints(repository)] == [f"{name}: edited since 0.1.0"]


@pytest.mark.parametrize("name", [HISTORY, STATE, WHEEL])
def test_a_removed_file_is_named(repository: Path, name: str) -> None:
    """As is one that was renamed."""
    (repository / name).unlink()
    assert [*list_complaints(repository)] == [f"{name}: removed since 0.1.0"]


def test_a_removed_list_is_named(repository: Path) -> None:
    """The changelog remembers what was released."""
    (repository / SUMS).unlink()
    assert [*list_complaints(repository)] == [f"{SUMS}: removed, although CHANGELOG.md tells of 0.1.0"]


def test_the_present_version_may_not_be_frozen_yet(repository: Path) -> None:
    """Its section in the changelog is written before it is released."""
    write(repository / "CHANGELOG.md", "## 0.2.0 - 2026-12-24\n\n## 0.1.0 - 2026-11-30\n")
    write(repository / "pyproject.toml", '[project]\nversion = "0.2.0"\n')
    assert [*list_complaints(repository)] == []


def test_a_release_in_the_making_may_be_recorded_anew(tagged: Path) -> None:
    """Until its tag is there; what earlier ones have recorded is kept, whatever is played."""
    write(tagged / "pyproject.toml", '[project]\nversion = "0.2.0"\n')
    write(tagged / "tests/replay/histories/JobWorkflow/2-plain-fires.json.gz", "new")
    write(tagged / "tests/release/0.2.0/horarium-0.2.0-py3-none-any.whl", "new")
    freeze(tagged, "0.2.0")
    assert {*frozen_files(tagged).values()} == {"0.1.0"}
    subprocess.run(["git", "-C", str(tagged), "tag", "0.2.0"], check=True)
    assert {*frozen_files(tagged).values()} == {"0.1.0", "0.2.0"}


def test_a_list_that_was_made_to_fit_is_held_to_the_tag(tagged: Path) -> None:
    """Whoever edits a history and its hash is found out where the tag is known."""
    assert [*list_complaints(tagged)] == []
    write(tagged / HISTORY, "edited")
    freeze(tagged, "0.1.0")
    assert [*list_complaints(tagged)] == [
        f"{SUMS}: edited since the tag 0.1.0",
        f"{HISTORY}: edited since the tag 0.1.0",
    ]


def test_code_of_a_tag_is_not_frozen(tagged: Path) -> None:
    """Only what was recorded is."""
    write(tagged / CODE, "new")
    assert [*list_complaints(tagged)] == []


def test_a_checkout_without_history_has_the_lists_alone(tagged: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A shallow one has no tags; an archive has no ``.git``. Both pass, and both notice an edit."""
    shallow = tmp_path_factory.mktemp("shallow") / "clone"
    source = tagged.as_uri()
    subprocess.run(["git", "clone", "-q", "--depth", "1", "--no-tags", source, str(shallow)], check=True)
    assert [*list_complaints(shallow)] == []
    write(shallow / HISTORY, "edited")
    assert [*list_complaints(shallow)] == [f"{HISTORY}: edited since 0.1.0"]
