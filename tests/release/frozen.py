"""What a release has recorded stays as it was: ``python -m tests.release.frozen`` fails on a file that was edited or removed.

Jobs sleep for months, so a later release meets the histories and states of every earlier one. Each release has a folder
here with a list of hashes, as ``sha256sum`` writes it, of every history and state that it replayed, and of its own
wheels. Where the checkout knows the release's tag, the files are held to that too, the lists included; one without git,
or without tags, has the lists alone. Files of later releases may always be added.
"""

import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[2]

RELEASES: Final = Path("tests/release")
RECORDINGS: Final = ("tests/replay/histories/*/*.json.gz", "tests/replay/states/*/*.json")
FROZEN: Final = (str(RELEASES), "tests/replay/histories", "tests/replay/states")
"""Where a tag's own files are looked at. In the first of them only what is in a release's folder counts."""

SUMS: Final = "SHA256SUMS"

VERSION: Final = re.compile(r"\d+\.\d+\.\d+")
_TAG: Final = re.compile(r"v?\d+\.\d+\.\d+")
_SECTION: Final = re.compile(r"^## (\d+\.\d+\.\d+)\b", re.MULTILINE)


def main() -> int:
    """Say what was changed; the exit code."""
    complaints = [*list_complaints(REPOSITORY)]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if complaints:
        print("What a release has recorded is never edited or removed: record what is new beside it.", file=sys.stderr)
    else:
        print(f"frozen: {', '.join(list_releases(REPOSITORY)) or 'no release yet'}")
    return 1 if complaints else 0


def list_complaints(repository: Path) -> Iterator[str]:
    """Name each frozen file that is not what it was, and each release that has no list."""
    for version in list_releases(repository):
        for path, expected in read_sums(repository, version).items():
            if (found := hash_of(repository / path)) != expected:
                yield f"{path}: {'removed' if found is None else 'edited'} since {version}"
    for version in sorted({*versions_of_changelog(repository)} - {*list_releases(repository)}):
        yield f"{RELEASES / version / SUMS}: removed, although CHANGELOG.md tells of {version}"
    for tag in list_tags(repository):
        for path, expected in _tagged_blobs(repository, tag).items():
            if (found := _blob_hash(repository / path)) != expected:
                yield f"{path}: {'removed' if found is None else 'edited'} since the tag {tag}"


def list_releases(repository: Path) -> list[str]:
    """List the versions that have a list of hashes."""
    return sorted(path.parent.name for path in (repository / RELEASES).glob(f"*/{SUMS}"))


def versions_of_changelog(repository: Path) -> Iterator[str]:
    """List the versions that were released; the present one, whose release may still be in the making, left out."""
    present = present_version(repository)
    yield from (each for each in _SECTION.findall((repository / "CHANGELOG.md").read_text()) if each != present)


def present_version(project: Path) -> str:
    """Say which version the ``pyproject.toml`` of a folder names; nothing where it names none."""
    found = re.search(r'^version = "(.+)"$', (project / "pyproject.toml").read_text(), re.MULTILINE)
    return "" if found is None else found[1]


def is_tagged(repository: Path, version: str) -> bool:
    """Whether this checkout knows the tag of a version."""
    return bool({version, f"v{version}"} & {*list_tags(repository)})


def freeze(repository: Path, version: str) -> Path:
    """Write the list of a release: all recordings as they are, and what lies in its folder."""
    sums = repository / RELEASES / version / SUMS
    files = [path for pattern in RECORDINGS for path in repository.glob(pattern)]
    files += [path for path in sums.parent.iterdir() if path != sums]
    lines = [f"{hash_of(path)}  {path.relative_to(repository).as_posix()}\n" for path in sorted(files)]
    sums.write_text("".join(lines))
    return sums


def read_sums(repository: Path, version: str) -> dict[str, str]:
    """Read the list of a release: hashes by path."""
    lines = (repository / RELEASES / version / SUMS).read_text().splitlines()
    return {path: digest for digest, _, path in (line.partition("  ") for line in lines)}


def frozen_files(repository: Path) -> dict[str, str]:
    """Name every frozen file, with the first release that has it. The present version freezes nothing before its tag."""
    released = list_releases(repository)
    present = present_version(repository)
    if present in released and not is_tagged(repository, present):
        released.remove(present)
    return {path: version for version in reversed(released) for path in read_sums(repository, version)}


def hash_of(path: Path) -> str | None:
    """Hash a file as ``sha256sum`` does; ``None`` where there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def list_tags(repository: Path) -> list[str]:
    """List the tags of releases that this checkout knows: none without git."""
    return [tag for tag in _git(repository, "tag", "--list").split() if _TAG.fullmatch(tag)]


def _tagged_blobs(repository: Path, tag: str) -> dict[str, str]:
    """List what a tag has frozen, by path, with the hashes that git gives them."""
    listed = _git(repository, "ls-tree", "-r", "-z", tag, "--", *FROZEN)
    blobs = {}
    for entry in filter(None, listed.split("\0")):
        facts, _, path = entry.partition("\t")
        if not path.startswith(f"{RELEASES}/") or VERSION.fullmatch(Path(path).parent.name):
            blobs[path] = facts.split()[2]
    return blobs


def _blob_hash(path: Path) -> str | None:
    if not path.is_file():
        return None
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0%b" % (len(content), content)).hexdigest()


def _git(repository: Path, *arguments: str) -> str:
    """Ask git; nothing where there is none, or no repository of its own that it may read."""
    if not (repository / ".git").exists():
        return ""
    try:
        done = subprocess.run(
            ["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=False, encoding="utf-8"
        )
    except FileNotFoundError:
        return ""
    return done.stdout if done.returncode == 0 else ""


if __name__ == "__main__":
    sys.exit(main())
