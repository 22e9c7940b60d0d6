"""``docs/writing-jobs.md``, done step by step by somebody who has nothing else: an empty folder, and a stack that runs."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.integration.test_dev_stack import DevProcess, dev
from tests.markdown_page import Snippet, snippets_of
from tests.worker_process import environment

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/writing-jobs.md"
SNIPPETS = snippets_of(PAGE)

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed, with which the page registers jobs"),
]


class Author:
    """Somebody in an empty folder, with a few terminals."""

    def __init__(self, folder: Path, stack: DevProcess) -> None:
        self.folder = folder
        self._stack = stack
        self._environment = environment({}) | {
            # The page says python3; here that is the one that runs the tests, and not a virtual environment of it.
            "PATH": f"{Path(sys.base_prefix, 'bin')}{os.pathsep}{os.environ['PATH']}",
            "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "TEMPORAL_ADDRESS": f"127.0.0.1:{stack.ports['temporal-port']}",
        }
        self._environment.pop("PYTHONPATH", None)
        self._environment.pop("VIRTUAL_ENV", None)

    def run(self, command: str) -> str:
        """Type a command; what it prints."""
        done = subprocess.run(
            ["bash", "-euc", self._here(command)],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def running(self, command: str) -> Iterator[None]:
        """Type a command in a terminal of its own, and leave it there."""
        with (self.folder / "terminal.log").open("ab") as log:
            process = subprocess.Popen(
                ["bash", "-euc", f"exec {self._here(command)}"],
                cwd=self.folder,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            yield
            assert process.poll() is None, (self.folder / "terminal.log").read_text()
        finally:
            process.kill()
            process.wait()

    def write(self, name: str, text: str) -> None:
        """Save a file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def _here(self, command: str) -> str:
        """Put what is here in the place of what the page says."""
        api = f"localhost:{self._stack.ports['api-port']}"
        return command.replace("path/to/horarium", str(ROOT)).replace("localhost:8000", api)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevProcess]:
    """What ``make dev`` starts, on ports that are free here."""
    with dev(tmp_path_factory.mktemp("stack"), "--no-examples") as process:
        yield process


@pytest.fixture
def author(tmp_path: Path, stack: DevProcess) -> Author:
    """An author in an empty folder."""
    return Author(tmp_path, stack)


async def test_a_new_author_gets_from_an_empty_folder_to_the_end_of_the_page(author: Author, stack: DevProcess) -> None:
    """Every block is done in order, and what the page says comes out comes out."""
    last: Snippet | None = None
    answer = ""
    with ExitStack() as terminals:
        for snippet in SNIPPETS:
            match snippet.language, snippet.options:
                case "sh", {"terminal": "horarium"}:
                    assert snippet.text == "make dev\n"
                    await stack.until_said("Horarium is up.")
                case "sh", {"terminal": _}:
                    terminals.enter_context(author.running(snippet.text))
                case "sh", _:
                    last, answer = snippet, await asyncio.to_thread(author.run, snippet.text)
                case "json", _:
                    assert last is not None
                    await shows(author, last, answer, snippet)
                case "python", {"title": name}:
                    author.write(name, snippet.text)
                case "python", _:
                    author.write(f"line_{snippet.line}.py", snippet.text)
                case language, _:
                    raise AssertionError(f"line {snippet.line}: nothing runs {language}")
        await asyncio.to_thread(run_loose_snippets, author)


async def shows(author: Author, command: Snippet, answer: str, expected: Snippet) -> None:
    """Compare what a command prints with the excerpt on the page; it may take a while, so look again."""
    wanted = json.loads(expected.text)
    answers = [answer]

    async def matches() -> bool:
        found = json.loads(answers[-1])
        if fits(wanted, found):
            return True
        answers.append(await asyncio.to_thread(author.run, command.text))
        raise AssertionError(f"line {expected.line}: {answers[-1]}")

    await eventually(matches, limit=timedelta(seconds=60), every=timedelta(seconds=1))


def fits(wanted: Any, found: Any) -> bool:
    """Whether an answer has all that an excerpt shows."""
    match wanted, found:
        case dict(), dict():
            return all(name in found and fits(value, found[name]) for name, value in wanted.items())
        case list(), list():
            return len(wanted) == len(found) and all(map(fits, wanted, found))
        case _:
            return bool(wanted == found)


def run_loose_snippets(author: Author) -> None:
    """Run the blocks that belong to no file, each as a program of its own that uses nothing of the others."""
    names = [f"line_{snippet.line}.py" for snippet in SNIPPETS if is_loose(snippet)]
    author.write("run_all.py", "import runpy, sys\nfor name in sys.argv[1:]:\n    runpy.run_path(name)\n")
    author.run(f".venv/bin/python run_all.py {' '.join(names)}")


def is_loose(snippet: Snippet) -> bool:
    """Whether a block belongs to no file."""
    return snippet.language == "python" and "title" not in snippet.options


def test_every_snippet_is_typed_as_strictly_as_authors_wish(tmp_path: Path) -> None:
    """The SDK has types, and needs no ``Any``, cast or ignored error of its users."""
    names = []
    for page in (PAGE, ROOT / "activities/sdk/README.md", ROOT / "docs/client.md"):
        for snippet in snippets_of(page):
            if snippet.language == "python":
                name = snippet.options.get("title", f"{page.stem.replace('-', '_')}_{snippet.line}.py")
                path = tmp_path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(snippet.text)
                names.append(name)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--explicit-package-bases", *names],
        cwd=tmp_path,
        env=environment({}) | {"MYPYPATH": str(ROOT / "activities/sdk")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
