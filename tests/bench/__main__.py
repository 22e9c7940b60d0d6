"""``make bench``: measures Horarium beside Temporal's own Schedules on this machine, and says what that shows."""

import argparse
import asyncio
import importlib.util
import json
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tests.bench.bench import Bench
from tests.bench.column import Column
from tests.bench.others.comparison import Comparison, compare
from tests.bench.others.other import MissingProgram, Other, prepare_environment
from tests.bench.plan import FULL, QUICK, Measure
from tests.bench.report import plot_lateness, print_comparison, print_table, to_markdown, write_json
from tests.bench.requirement import make_lines
from tests.bench.result import Results

OUTPUT: Final = Path("bench-results")


def main() -> int:
    """Measure, print, and write; whatever was measured before an interruption too."""
    options = _read_options()
    console = Console()
    return _compare_others(console) if options.others else _compare_with_native(console, options)


def _compare_with_native(console: Console, options: argparse.Namespace) -> int:
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


def _compare_others(console: Console) -> int:
    OUTPUT.mkdir(exist_ok=True)
    try:
        python = prepare_environment(OUTPUT.absolute() / "others-venv")
    except MissingProgram as missing:
        console.print(str(missing))
        return 2
    found: list[Comparison] = []
    try:
        asyncio.run(_compare_all(console, python, found))
    finally:
        print_comparison(console, found)
        (OUTPUT / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-others.json").write_text(
            json.dumps([asdict(each) for each in found], indent=1)
        )
    return 0


async def _compare_all(console: Console, python: Path, found: list[Comparison]) -> None:
    for other in Other:
        # One by one, so that what was found before an interruption is shown.
        found.append(await compare(other, python, partial(_tell_of, console, other)))  # noqa: PERF401


def _tell_of(console: Console, other: Other, what: str) -> None:
    console.print(f"{other}: {what}")


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
    parser.add_argument(
        "--others",
        action="store_true",
        help="instead, APScheduler 4, DBOS and Celery beat; needs redis-server, and installs the rest beside the results",
    )
    return parser.parse_args()


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


if __name__ == "__main__":
    sys.exit(main())
