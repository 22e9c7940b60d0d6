"""``docs/effects.md``: its snippets run as they stand."""

import subprocess
import sys
from pathlib import Path

from tests.markdown_page import snippets_of

PAGE = Path(__file__).parents[2] / "docs/effects.md"

BANK = '''
"""A bank that honours keys."""

PAID: dict[str, str] = {}


async def transfer(account: str, cents: int, *, key: str) -> str:
    """Pay once a key."""
    return PAID.setdefault(key, f"receipt {len(PAID) + 1}")
'''


def test_the_snippets_of_the_page_run(tmp_path: Path) -> None:
    """In order, in an empty folder, with a bank beside them."""
    (tmp_path / "bank.py").write_text(BANK)
    python = [snippet for snippet in snippets_of(PAGE) if snippet.language == "python"]
    assert len(python) == 3
    for number, snippet in enumerate(python):
        path = tmp_path / snippet.options.get("title", f"snippet_{number}.py")
        path.write_text(snippet.text)
        done = subprocess.run([sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{snippet.text}\n{done.stderr}"
