"""What ``horarium mirror`` says. It works without the API, on the database and on Temporal themselves."""

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from api.cli_input import BadInput, CommandFailed

if TYPE_CHECKING:
    from workers.rebuild import RebuildReport
    from workers.settings import Settings
    from workflows.reconciliation import PurgeReport, ReconcileReport

mirror_app = typer.Typer(
    help="Compare the mirror in SQL with Temporal, mend it, fill it anew, and forget what is old.", no_args_is_help=True
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

Report = TypeVar("Report")

NO_SETTLING: Final = timedelta(0)
"""Somebody waits for the answer: what has changed just now is looked at too."""


@mirror_app.command("check")
def check_mirror(as_json: AsJson = False) -> None:
    """Say where the mirror differs from Temporal; exit with 1 where it does. Changes nothing."""
    from activities.reconcile import ReconcileOptions
    from workers.mirror import reconcile

    options = ReconcileOptions(mend=False, settling=NO_SETTLING)
    _tell(_run(lambda settings: reconcile(settings, options)), as_json=as_json)


@mirror_app.command("reconcile")
def reconcile_mirror(
    restore_all: Annotated[
        bool,
        typer.Option("--restore-all", help="Start again the jobs that were ended in Temporal, however many they are."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make the mirror equal to Temporal, and start jobs again that were ended there; exit with 1 where something is left."""
    from activities.reconcile import ReconcileOptions
    from workers.mirror import reconcile

    options = ReconcileOptions(settling=NO_SETTLING, restore_all=restore_all)
    _tell(_run(lambda settings: reconcile(settings, options)), as_json=as_json)


@mirror_app.command("rebuild")
def rebuild_mirror(as_json: AsJson = False) -> None:
    """Fill the mirror from the histories that Temporal keeps. What it has is left alone."""
    from workers.mirror import rebuild

    report = _run(lambda settings: rebuild(settings, tell=_tell_progress))
    if as_json:
        print(json.dumps(asdict(report)))
    else:
        print(f"{report.done} histories read")
        for table, count in report.rows.items():
            print(f"{table:9} {count:10} rows, {report.added[table]} of them new")
    for failure in report.failures:
        print(f"not replayed: {failure}", file=sys.stderr)
    if report.failed:
        raise CommandFailed(f"{report.failed} histories do not replay; of these the mirror has what they began with")


@mirror_app.command("purge")
def purge_mirror(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would go.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forget history that is older than HORARIUM_RUN_RETENTION, which scheduler workers do every hour."""
    from workers.mirror import purge

    report = _run(lambda settings: purge(settings, dry_run=dry_run))
    if as_json:
        print(report.model_dump_json())
    else:
        _print_purge(report, dry_run=dry_run)
    if report.trouble:
        raise CommandFailed(report.trouble)


def _run(work: "Callable[[Settings], Coroutine[None, None, Report]]") -> Report:
    from workers.connection import ServerTooOld
    from workers.log import configure_logging
    from workers.settings import InvalidSettings, read_settings
    from workflows.error import HorariumError

    try:
        settings = read_settings()
        configure_logging("error", form=settings.log_format)
        return asyncio.run(work(settings))
    except InvalidSettings as error:
        raise BadInput(str(error)) from error
    except (HorariumError, ServerTooOld) as error:
        raise CommandFailed(str(error)) from error


def _tell(report: "ReconcileReport", *, as_json: bool) -> None:

    if as_json:
        print(report.model_dump_json())
    else:
        _print_reconciliation(report)
    if report.trouble:
        raise CommandFailed(report.trouble)
    if not report.is_equal:
        raise CommandFailed("the mirror differs from Temporal")


def _print_reconciliation(report: "ReconcileReport") -> None:
    from api.cli_table import print_line

    for each in report.differences:
        outcome = "mended" if each.mended else each.failure or "not mended"
        print_line(
            f"{each.tenant}/{each.job_id}: {each.kind.value}: {outcome}" + (f" ({each.detail})" if each.detail else "")
        )
    found = sum(report.found.values())
    if found > len(report.differences):
        print_line(f"... and {found - len(report.differences)} more")
    if report.postponed:
        print_line(f"{report.postponed} more may differ; run it again")
    if report.stopped:
        print_line(f"nothing was started: {report.stopped}")
    print_line(f"{report.jobs} jobs in Temporal, {report.rows} in SQL; differences: {found}, mended: {report.mended}.")


def _tell_progress(report: "RebuildReport") -> None:
    print(f"{report.done} of {report.total} histories", file=sys.stderr)


def _print_purge(report: "PurgeReport", *, dry_run: bool) -> None:
    from workflows.reconciliation import PURGED_TABLES

    would = "would be " if dry_run else ""
    print(f"What ended before {report.before.isoformat(timespec='seconds')} {'would go' if dry_run else 'is gone'}:")
    if report.months:
        print(f"months {would}dropped whole: {', '.join(report.months)}")
    for table in PURGED_TABLES:
        print(f"{table:9} {getattr(report, table):10} rows")
