"""``make bench``: measures Horarium beside Temporal's own Schedules on this machine, and says what that shows."""

import argparse
import asyncio
import importlib.util
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tests.bench.bench import Bench
from tests.bench.column import Column
from tests.bench.plan import FULL, QUICK, Measure
from tests.bench.report import plot_lateness, print_table, to_markdown, write_json
from tests.bench.requirement import make_lines
from tests.bench.result import Results

OUTPUT: Final = Path("bench-results")


def main() -> int:
    """Measure, print, and write; whatever was measured before an interruption too."""
    options = _read_options()
    console = Console()
    plan = QUICK if options.quick else FULL
    if options.runs:
        plan = replace(plan, runs=options.runs)
    columns = [Column(name) for name in _split(options.columns)] or list(Column)
    measures = [Measure(name) for name in _split(options.only)] or list(Measure)
    with _progress(console) as progress:
        bench = Bench(plan, progress, columns=columns)
        try:
            asyncio.run(bench.run(measures))
        finally:
            _report(console, bench.results)
    return 0


def _report(console: Console, results: Results) -> None:
    lines = make_lines(results)
    print_table(console, lines)
    OUTPUT.mkdir(exist_ok=True)
    stem = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    write_json(OUTPUT / f"{stem}.json", results, lines)
    (OUTPUT / f"{stem}.md").write_text(to_markdown(lines))
    if results.cost or results.burst:
        if importlib.util.find_spec("matplotlib") is None:
            console.print("No plot: matplotlib is not installed.")
        else:
            plot_lateness(OUTPUT / f"{stem}.png", results)
    console.print(f"{results.seconds / 60:.1f} minutes; {OUTPUT}/{stem}.json, .md, .png")


def _progress(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
        console=console,
    )


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", default="", help=f"some of {', '.join(Measure)}, separated by commas")
    parser.add_argument("--columns", default="", help=f"some of {', '.join(Column)}, separated by commas")
    parser.add_argument("--runs", type=int, default=0, help="alternating runs, 3 by default")
    parser.add_argument("--quick", action="store_true", help="see that everything works; the figures mean nothing")
    return parser.parse_args()


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


if __name__ == "__main__":
    sys.exit(main())
