"""``README.md``, done by somebody who has nothing else: what they type, and what they then see."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from horarium import Client
from tests.api_stack import ApiStack
from tests.command import run
from tests.eventually import eventually
from tests.markdown_page import Snippet, snippets_of

PAGE: Final = Path(__file__).parents[2] / "README.md"

PROGRAM: Final = ".venv/bin/horarium "

OTHERS_START: Final = ("git clone", "make dev", "HORARIUM_ACTIVITIES=my_jobs make dev")
"""Commands that begin a stack: the test has one."""

READS: Final = re.compile(r"runs |jobs list|jobs show")
"""Commands whose answer may take a while to be what the page says."""

GAP: Final = r"[^\S\n]"


@dataclass(frozen=True)
class Step:
    """A command of a transcript, and what the page says it prints; ``None`` where it does not say."""

    command: str
    shown: str | None

    def fits(self, printed: str) -> bool:
        """Whether that is what was printed. ``...`` stands for anything within a line, and alone for any lines."""
        if self.shown is None:
            return True
        lines = [_pattern(line) for line in self.shown.splitlines()]
        return re.fullmatch("".join(lines), printed) is not None


def _pattern(line: str) -> str:
    """Write a line as a pattern. How far its words are apart makes no difference."""
    if line == "...":
        return r"(?:.*\n)*"
    words = (re.escape(word).replace(r"\.\.\.", ".*") for word in line.split())
    return f"{GAP}*{f'{GAP}+'.join(words)}{GAP}*\n"


def steps_of(snippet: Snippet) -> Iterator[Step]:
    """List the commands of a transcript. One goes on over lines as long as its quotes are open."""
    for part in re.split(r"^\$ ", snippet.text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines(keepends=True)
        end = next(end for end in range(1, len(lines) + 1) if "".join(lines[:end]).count("'") % 2 == 0)
        yield Step("".join(lines[:end]).strip(), "".join(lines[end:]) or None)


class Reader:
    """Somebody in an empty folder, who does what the page says."""

    def __init__(self, url: str) -> None:
        self._url = url

    def write(self, name: str, text: str) -> None:
        """Save a file."""
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")

    async def type(self, step: Step) -> None:
        """Type a command, and look at what it prints; again, if it only reads."""
        if step.command.startswith(OTHERS_START):
            return
        if READS.match(step.command.removeprefix(PROGRAM)):
            await eventually(lambda: self._see(step))
        else:
            self._see(step)

    def _see(self, step: Step) -> bool:
        printed = self._run(step.command)
        assert step.fits(printed), f"$ {step.command}\n{printed}"
        return True

    def _run(self, command: str) -> str:
        if command.startswith(PROGRAM):
            return run(*shlex.split(command.removeprefix(PROGRAM)), url=self._url).stdout
        here = command.replace("localhost:8000", self._url)
        done = subprocess.run(["bash", "-euc", here], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert '"status":4' not in done.stdout, done.stdout
        return done.stdout


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed, with which the page registers a job")
async def test_a_new_user_does_all_of_the_page(
    author_stack: ApiStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job is registered, edited, triggered, backfilled, paused and removed, by command line and by files that are applied."""
    monkeypatch.chdir(tmp_path)
    reader = Reader(author_stack.api.url)
    typed = []
    for snippet in snippets_of(PAGE):
        match snippet.language:
            case "console":
                for step in steps_of(snippet):
                    await reader.type(step)
                    typed.append(step.command.removeprefix(PROGRAM))
            case "yaml":
                reader.write(snippet.options["title"], snippet.text)
    with Client(author_stack.api.url) as client:
        for job_id in ("weekly-sales", "heartbeat", "charges"):
            client.jobs.delete(job_id)
    for command in ("jobs create", "jobs edit", "jobs pause", "backfill create", "jobs delete", "apply"):
        assert any(each.startswith(command) for each in typed), command


@pytest.mark.parametrize(
    ("shown", "printed", "fits"),
    [
        ("a  ... c\n", "a b c\n", True),
        ("a ... c\n", "a b d\n", False),
        ("a\n", "a\nb\n", False),
        ("a\n...\n", "a\nb\nc\n", True),
        ("...\nc\n", "a\nb\n", False),
        (None, "whatever", True),
    ],
)
def test_a_transcript_is_compared_line_by_line(shown: str | None, printed: str, fits: bool) -> None:
    """What the page shows is what is there, and not a part of it."""
    assert Step("x", shown).fits(printed) is fits


def test_a_command_may_go_on_over_lines() -> None:
    """As one with a body in quotes does."""
    snippet = Snippet("console", {}, "$ curl -d '\n  {\n  }'\nok\n$ ls\n", 1)
    assert [*steps_of(snippet)] == [Step("curl -d '\n  {\n  }'", "ok\n"), Step("ls", None)]
