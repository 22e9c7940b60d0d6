"""Shows results: a table in the terminal, the same for documents, JSON, and a plot of lateness."""

import json
import math
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table

from tests.bench.column import TITLES, Column
from tests.bench.machine import CORES, additions_a_second
from tests.bench.others.comparison import Comparison, Loss
from tests.bench.requirement import Line
from tests.bench.result import Results
from tests.bench.statistic import median
from workers.devserver import find_temporal_binary

_MET: Final = {True: "yes", False: "NO", None: ""}
_STYLE: Final = {True: "green", False: "bold red", None: ""}


def print_table(console: Console, lines: Sequence[Line]) -> None:
    """Print the lines, with what is required beside each figure."""
    columns = _columns_of(lines)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for column in columns:
        table.add_column(TITLES[column], justify="right")
    table.add_column("required")
    table.add_column("met")
    for line in lines:
        cells = [line.cells.get(column, "") for column in columns]
        table.add_row(
            line.title, *cells, line.required, f"[{_STYLE[line.met]}]{_MET[line.met]}" if line.met is not None else ""
        )
    console.print(table)


def comparison_rows(found: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """Lay the other schedulers out, a column each."""
    plan = found[0].plan
    return [
        ("", *(str(each.other) for each in found)),
        ("rate held, fires a second", *(f"{each.held:.0f}" for each in found)),
        (f"{plan.burst} due at once: last start, s", *(f"{each.burst_drained:.1f}" for each in found)),
        ("  lost", *(str(each.burst_lost) for each in found)),
        ("CPU a fire, ms, without the store", *(f"{each.cpu_ms:.1f}" for each in found)),
        ("kill -9: fires never begun", *(_of(each.killed) for each in found)),
        ("  runs cut off for good", *(str(each.killed.cut_off) for each in found)),
        (f"{plan.outage} s of downtime: fires never begun", *(_of(each.outage) for each in found)),
        ("  runs cut off for good", *(str(each.outage.cut_off) for each in found)),
    ]


def print_rows(console: Console, rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose first row is its head."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, title in enumerate(rows[0]):
        table.add_column(title, justify="right" if number else "left")
    for row in rows[1:]:
        table.add_row(*row)
    console.print(table)


def rows_to_markdown(rows: Sequence[Sequence[str]], *, texts: int = 1) -> str:
    """Lay a table out for a document; its first row is its head, and its first columns are texts."""
    rule = ["---"] * texts + ["---:"] * (len(rows[0]) - texts)
    lines = [rows[0], rule, *([_indent(row[0]), *row[1:]] for row in rows[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines) + "\n"


def _of(loss: Loss) -> str:
    return f"{loss.never_begun} of {loss.due}"


def to_markdown(lines: Sequence[Line]) -> str:
    """Lay the lines out as a table of a document."""
    columns = _columns_of(lines)
    head = ["", *(TITLES[column] for column in columns), "required", "met"]
    rows = [
        [_indent(line.title), *(line.cells.get(c, "") for c in columns), line.required, _MET[line.met]]
        for line in lines
    ]
    rule = ["---", *["---:"] * len(columns), "---", "---"]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *rows]) + "\n"


def list_notes(results: Results, *, runs: int) -> list[str]:
    """Say when and where this was measured, whether the machine was idle, and what could not be measured."""
    others = results.strangers
    return [
        f"Measured on {datetime.now(UTC):%Y-%m-%d} in {results.seconds / 60:.1f} minutes, {runs} alternating runs; Python "
        f"{platform.python_version()}, {_server_version()}, {CORES} cores, each of which adds "
        f"{additions_a_second() / 1e6:.0f} million numbers a second in a loop of plain Python.",
        *([f"Other processes used {median(others):.0%} of the machine, {max(others):.0%} at most."] if others else []),
        *(f"Not measured: {failure.what}: {failure.reason}." for failure in results.failures),
    ]


def _server_version() -> str:
    try:
        said = subprocess.run([find_temporal_binary(), "--version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return "a Temporal of unknown version"
    return said.stdout.strip() or "a Temporal of unknown version"


def write_json(path: Path, results: Results, lines: Sequence[Line]) -> None:
    """Write everything that was measured, each lateness included."""
    document = {"results": asdict(results), "table": [asdict(line) for line in lines]}
    path.write_text(json.dumps(_plain(document)))


def plot_lateness(path: Path, results: Results) -> None:
    """Draw how late fires were: under the steady load, and when all are due at once."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (steady, burst) = pyplot.subplots(1, 2, figsize=(12, 4.5))
    for column, runs in results.cost.items():
        _draw_shares(steady, column, [late for run in runs for late in run.lateness])
    steady.set(xscale="log", xlabel="seconds late", ylabel="share of fires", title="Steady load")
    for column, bursts in results.burst.items():
        _draw_shares(burst, column, [late for run in bursts for late in run.lateness])
    burst.set(xlabel="seconds after the instant", title="All due at one instant")
    for axes in (steady, burst):
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _draw_shares(axes: Any, column: Column, lateness: list[float]) -> None:
    ordered = sorted(max(late, 0.001) for late in lateness)
    axes.plot(ordered, [(n + 1) / len(ordered) for n in range(len(ordered))], label=TITLES[column])


def _columns_of(lines: Sequence[Line]) -> list[Column]:
    return [column for column in Column if any(column in line.cells for line in lines)]


def _indent(title: str) -> str:
    return title.replace("  ", "&nbsp;&nbsp;") if title.startswith("  ") else title


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case float():
            return None if math.isnan(value) or math.isinf(value) else round(value, 4)
        case _:
            return value
