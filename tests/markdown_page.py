"""The code on a page of the documentation, so that tests can run it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(?P<language>\w+)(?P<options>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)

OPTION = re.compile(r'(\w+)=(?:"([^"]*)"|(\S+))')


@dataclass(frozen=True)
class Snippet:
    """A fenced block. Readers see its language alone; ``name=value`` behind it is for tests."""

    language: str
    options: Mapping[str, str]
    text: str
    line: int
    """Of the page, where the text begins."""


def snippets_of(page: Path) -> list[Snippet]:
    """List the fenced blocks of a page that have a language, in order."""
    content = page.read_text(encoding="utf-8")
    return [
        Snippet(
            language=found["language"],
            options={name: quoted or plain for name, quoted, plain in OPTION.findall(found["options"])},
            text=found["text"],
            line=content.count("\n", 0, found.start("text")) + 1,
        )
        for found in FENCE.finditer(content)
    ]
