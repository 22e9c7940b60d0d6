"""``make bench``: measures Horarium beside Temporal's own Schedules on this machine, and says what that shows.

A full bench writes its tables and its plot into the documents; whatever else is asked for goes to ``bench-results`` alone.
"""

import argparse
import asyncio
import importlib.util
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tests.bench.bench import Bench, Step
from tests.bench.column import Column
from tests.bench.document import DOCS, put_between
from tests.bench.machine import CORES, watching
from tests.bench.others import comparison
from tests.bench.others.comparison import Comparison, compare
from tests.bench.others.other import MissingProgram, Other, prepare_environment
from tests.bench.plan import FULL, QUICK, USUAL, Measure
from tests.bench.report import (
    comparison_rows,
    list_notes,
    plot_lateness,
    print_rows,
    print_table,
    rows_to_markdown,
    to_markdown,
    write_json,
)
from tests.bench.requirement import KNOB_HEAD, knob_lines, make_lines

OUTPUT: Final = Path("bench-results")

DOCUMENT: Final = DOCS / "performance.md"
PLOT: Final = DOCS / "images" / "lateness.png"

LOG_WIDTH: Final = 200
"""Columns of a table that goes to a file."""

BUDGET: Final = 29.5
"""Minutes."""

SHARED: Final = 0.5
"""Share of the machine above which figures of the other schedulers are not theirs alone."""

SHARED_NOTE: Final = (
    "**The machine was shared**: rates and times are below what these schedulers do on an idle one, and fires never begun "
    "contain those that the machine did not get to. No figure here may be held against the first table."
)

PLOT_LINK: Final = f"![Lateness of fires, under the steady load and when all are due at once](images/{PLOT.name})"

TABLE_MARK: Final = "<!-- made by make bench -->"
TUNING_MARK: Final = "<!-- made by make bench ONLY=tuning -->"
OTHERS_MARK: Final = "<!-- made by make bench OTHERS=1 -->"


def main() -> int:
    """Measure, print, and write; whatever was measured before an interruption too."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # In the background of a script, Python would not hear of the first, and would not report at the second.
        signal.signal(number, signal.default_int_handler)
    options = _read_options()
    console = Console(width=None if sys.stdout.isatty() else LOG_WIDTH)
    OUTPUT.mkdir(exist_ok=True)
    return _compare_others(console, options) if options.others else _compare_with_native(console, options)


def _compare_with_native(console: Console, options: argparse.Namespace) -> int:
    plan = QUICK if options.quick else FULL
    plan = replace(plan, runs=options.runs) if options.runs else plan
    columns = [Column(name) for name in _split(options.columns)] or list(Column)
    measures = [Measure(name) for name in _split(options.only)] or list(USUAL)
    bench = Bench(plan, columns=columns)
    steps = bench.list_steps(measures)
    budget = options.budget or (None if options.only or options.runs else BUDGET)
    _announce(console, steps, budget=budget)
    interrupted = True
    try:
        with _progress(console) as progress:
            asyncio.run(bench.run(steps, progress, budget=None if budget is None else budget * 60))
        interrupted = False
    finally:
        is_whole = not (interrupted or options.quick or options.columns)
        _report(console, bench, runs=plan.runs, measures=measures, is_whole=is_whole)
    return 1 if bench.results.failures else 0


def _announce(console: Console, steps: Sequence[Step], *, budget: float | None) -> None:
    """Say how long it should take, and what takes it."""
    groups = {group: sum(step.seconds for step in steps if step.group == group) for group in (s.group for s in steps)}
    parts = ", ".join(f"{group} {seconds / 60:.1f}" for group, seconds in groups.items())
    bound = "" if budget is None else f"; what would end after {budget:g} is left out"
    console.print(f"About {sum(groups.values()) / 60:.0f} minutes ({parts}){bound}.")


def _report(console: Console, bench: Bench, *, runs: int, measures: Sequence[Measure], is_whole: bool) -> None:
    results, lines = bench.results, make_lines(bench.results)
    notes = list_notes(results, runs=runs)
    knobs = [KNOB_HEAD, *knob_lines(results)]
    if lines:
        print_table(console, lines)
    if results.knobs:
        print_rows(console, knobs)
    for note in notes:
        console.print(note)
    is_full = is_whole and runs >= FULL.runs and set(measures) == set(USUAL)
    stem = "bench" if is_full else f"part-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    write_json(OUTPUT / f"{stem}.json", results, lines)
    table = to_markdown(lines) if lines else ""
    tuning = rows_to_markdown(knobs, texts=2) if results.knobs else ""
    said = "".join(f"\n{note}" for note in notes)
    (OUTPUT / f"{stem}.md").write_text(f"{table}\n{tuning}{said}\n")
    plot = OUTPUT / f"{stem}.png"
    has_plot = bool(results.cost or results.burst) and importlib.util.find_spec("matplotlib") is not None
    if has_plot:
        plot_lateness(plot, results)
    console.print(f"{results.seconds / 60:.1f} minutes; {OUTPUT}/{stem}.json, .md{', .png' if has_plot else ''}")
    if is_full:
        if has_plot:
            PLOT.write_bytes(plot.read_bytes())
        shown = f"\n{PLOT_LINK}\n" if has_plot else ""
        put_between(DOCUMENT, TABLE_MARK, f"{table}{said}\n{shown}")
        console.print(f"written into {DOCUMENT.relative_to(DOCS.parent)} and {PLOT.relative_to(DOCS.parent)}")
    if is_whole and results.knobs:
        put_between(DOCUMENT, TUNING_MARK, f"{tuning}{said}")


def _compare_others(console: Console, options: argparse.Namespace) -> int:
    try:
        python = prepare_environment(OUTPUT.absolute() / "others-venv")
    except MissingProgram as missing:
        console.print(str(missing))
        return 2
    plan = comparison.QUICK if options.quick else comparison.Plan()
    found: list[Comparison] = []
    failures: list[str] = []
    strangers: list[float] = []
    try:
        asyncio.run(_compare_all(console, python, plan, found, failures, strangers))
    finally:
        _report_others(console, found, failures, strangers, quick=options.quick)
    return 1 if failures else 0


async def _compare_all(
    console: Console,
    python: Path,
    plan: comparison.Plan,
    found: list[Comparison],
    failures: list[str],
    strangers: list[float],
) -> None:
    for other in Other:
        try:
            with watching(strangers.append):
                async with asyncio.timeout(comparison.LIMIT):
                    found.append(await compare(other, python, plan, partial(_tell_of, console, other)))
        except Exception as error:  # the next one is still worth measuring
            failures.append(f"Not measured: {other}: {type(error).__name__}: {error}")


def _tell_of(console: Console, other: Other, what: str) -> None:
    console.print(f"{other}: {what}")


def _report_others(
    console: Console, found: list[Comparison], failures: list[str], strangers: list[float], *, quick: bool
) -> None:
    rows = comparison_rows(found) if found else []
    notes = [f"Measured on {datetime.now(UTC):%Y-%m-%d}, {CORES} cores.", *failures]
    if strangers:
        used = f"{min(strangers):.0%} to {max(strangers):.0%}"
        notes.append(f"Other processes, those of the stores among them, used {used} of the machine.")
    if strangers and max(strangers) > SHARED:
        notes.append(SHARED_NOTE)
    if rows:
        print_rows(console, rows)
    for note in notes:
        console.print(note)
    document = {"found": [asdict(each) for each in found], "notes": notes}
    stem = "others-quick" if quick else "others"
    (OUTPUT / f"{stem}.json").write_text(json.dumps(document, indent=1))
    if rows and not quick:
        text = rows_to_markdown(rows) + "".join(f"\n{note}" for note in notes)
        (OUTPUT / "others.md").write_text(text)
        put_between(DOCUMENT, OTHERS_MARK, text)


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
        "--budget",
        type=float,
        help=f"minutes; what would end later is left out; by default {BUDGET:g} for what is usual",
    )
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
