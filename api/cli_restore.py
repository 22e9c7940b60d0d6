"""What ``horarium restore`` says. It works without the API: the loss of a cluster takes more than one thing with it."""

import asyncio
import json
import sys
from dataclasses import asdict
from datetime import datetime

from activities.restore import RestoreOptions, RestoreReport
from api.cli_input import BadInput, CommandFailed
from api.cli_table import print_line
from workers.connection import ServerTooOld
from workers.log import configure_logging
from workers.restore import restore
from workers.settings import InvalidSettings, read_settings
from workflows.error import HorariumError, InvalidSchedule
from workflows.schedule_parser import parse_moment


def run_restore(*, lost_at: str | None, rate: float, dry_run: bool, as_json: bool) -> None:
    """Restore, tell how far it is, and say what was done. Raises ``CommandFailed`` where a job was not restored."""
    options = RestoreOptions(lost_at=_read_moment(lost_at), rate=rate, dry_run=dry_run)
    try:
        settings = read_settings()
        configure_logging("warning", form=settings.log_format)
        report = asyncio.run(restore(settings, options, tell=_tell))
    except InvalidSettings as error:
        raise BadInput(str(error)) from error
    except (HorariumError, ServerTooOld) as error:
        raise CommandFailed(str(error)) from error
    if as_json:
        print(json.dumps(asdict(report) | {"lost_at": report.lost_at.isoformat(), "dry_run": dry_run}))
    else:
        _print_report(report, dry_run=dry_run)
    if report.failed:
        raise CommandFailed(f"{len(report.failed)} jobs or backfills were not restored; run it again")


def _read_moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else parse_moment(text, timezone="UTC", pointer="/lost-at")
    except InvalidSchedule as error:
        raise BadInput(f"--lost-at: {error.reason}") from error


def _tell(report: RestoreReport) -> None:
    looked_at = report.started + report.untouched + report.tidied + len(report.failed)
    print(f"{looked_at} jobs so far, {report.started} of them started", file=sys.stderr)


def _print_report(report: RestoreReport, *, dry_run: bool) -> None:
    would, are = ("would be ", "would be") if dry_run else ("", "are")
    print_line(f"Temporal is taken to be lost at {report.lost_at.isoformat()}.")
    print_line(f"{report.started} jobs {would}started; {report.untouched} are there, and {would}left alone.")
    print_line(f"{report.lost_runs} runs were under way and {are} dead letters: horarium dead-letters list.")
    print_line(f"{report.in_doubt} fires of about that time may have run; they {are} dead letters too.")
    print_line(f"{report.backfills} backfills that were not over {would}started again, behind what they have run.")
    if report.ended_backfills:
        print_line(
            f"{report.ended_backfills} backfills cannot go on and {would or 'are '}cancelled; their reasons say why."
        )
    if report.tidied:
        print_line(f"{report.tidied} jobs are over; only their last runs {would}ended.")
    for failure in report.failed:
        print_line(f"not restored: {failure}")
