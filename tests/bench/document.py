"""Text in documents that the bench writes, between marks that stay."""

from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parents[2] / "docs"

END_MARK: Final = "<!-- end -->"


def put_between(path: Path, mark: str, text: str) -> None:
    """Put text behind a mark and before the next end. Raises ``ValueError`` where a document has none."""
    before, found, rest = path.read_text().partition(mark)
    _, ended, after = rest.partition(END_MARK)
    if not found or not ended:
        raise ValueError(f"{path} has no {mark} with {END_MARK} after it")
    path.write_text(f"{before}{mark}\n\n{text.strip()}\n\n{END_MARK}{after}")
