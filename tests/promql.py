"""Reads queries of Prometheus: which metrics they name, and whether they are balanced and made of known words."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

_WORDS = """
abs absent and avg bool by ceil clamp_max clamp_min count delta floor group_left group_right histogram_quantile
ignoring increase irate label_values max min offset on or quantile rate round sum topk unless vector without
"""

WORDS = frozenset(_WORDS.split())
"""Functions, operators and keywords. A word that is none of these and stands outside of braces is a metric."""

TOKEN = re.compile(
    r"""
    (?P<string>"(?:[^"\\]|\\.)*") | (?P<range>\[(?:\d+[smhdwy]|\$__rate_interval)\]) | (?P<labels>\{[^{}]*\})
    | (?P<group>\b(?:by|without|on|ignoring|group_left|group_right)\s*\([\w\s,]*\)) | (?P<name>[a-zA-Z_:][\w:]*)
    | (?P<number>\d+(?:\.\d+)?) | (?P<operator>[-+*/%^,()]|==|!=|>=|<=|>|<) | (?P<space>\s+)
    """,
    re.VERBOSE,
)

LABELS = re.compile(r'\{\s*(?:\w+\s*(?:=~|!~|!=|=)\s*"(?:[^"\\]|\\.)*"\s*,?\s*)*\}')


class BadQuery(Exception):
    """A text that is no query."""


def metrics_in(query: str) -> set[str]:
    """Name the metrics of a query. Raises ``BadQuery``."""
    return {text for kind, text in _tokens(query) if kind == "name" and text not in WORDS}


def _tokens(query: str) -> Iterator[tuple[str, str]]:
    at, depth = 0, 0
    while at < len(query):
        found = TOKEN.match(query, at)
        if found is None:
            raise BadQuery(f"{query!r}: {query[at:]!r} is not understood")
        kind, text = str(found.lastgroup), found.group()
        if kind == "labels" and not LABELS.fullmatch(text):
            raise BadQuery(f"{query!r}: {text!r} are no labels")
        depth += {"(": 1, ")": -1}.get(text, 0)
        if depth < 0:
            break
        yield kind, text
        at = found.end()
    if depth != 0:
        raise BadQuery(f"{query!r}: parentheses do not match")


def check_with_promtool(kind: str, file: Path) -> None:
    """Let Prometheus itself check a file, where its tool is installed. ``kind``: ``rules`` or ``config``."""
    promtool = shutil.which("promtool")
    if promtool is not None:
        done = subprocess.run([promtool, "check", kind, str(file)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
