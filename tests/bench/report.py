"""Shows results: a table in the terminal, the same for documents, JSON, and a plot of lateness."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table

from tests.bench.column import TITLES, Column
from tests.bench.others.comparison import BURST, OUTAGE, Comparison, Loss
from tests.bench.requirement import Line
from tests.bench.result import Results

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


def print_comparison(console: Console, found: Sequence[Comparison]) -> None:
    """Print the table of the other schedulers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for each in found:
        table.add_column(each.other, justify="right")
    table.add_row("rate held, fires a second", *(f"{each.held:.0f}" for each in found))
    table.add_row(f"{BURST} due at once: last start, s", *(f"{each.burst_drained:.1f}" for each in found))
    table.add_row("  lost", *(str(each.burst_lost) for each in found))
    table.add_row("CPU a fire, ms, without the store", *(f"{each.cpu_ms:.1f}" for each in found))
    table.add_row("kill -9: fires never begun", *(_of(each.killed) for each in found))
    table.add_row("  runs cut off for good", *(str(each.killed.cut_off) for each in found))
    table.add_row(f"{OUTAGE} s of downtime: fires never begun", *(_of(each.outage) for each in found))
    table.add_row("  runs cut off for good", *(str(each.outage.cut_off) for each in found))
    console.print(table)


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


def write_json(path: Path, results: Results, lines: Sequence[Line]) -> None:
    """Write everything that was measured, each lateness included."""
    document = {"results": asdict(results), "table": [asdict(line) for line in lines]}
    path.write_text(json.dumps(_plain(document), indent=1))


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
