"""The commands about dead letters: ``horarium dead-letters list``, ``redrive``, ``progress`` and ``cancel``."""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from api.cli_input import BadInput, CommandFailed, read_labels

if TYPE_CHECKING:
    from horarium.client import BulkRedrive as Progress

POLL_SECONDS: Final = 1.0

dead_letters_app = typer.Typer(help="List runs that are dead, and run them again.", no_args_is_help=True)

Job = Annotated[str | None, typer.Option("--job", help="Only of this job.")]
Reason = Annotated[str | None, typer.Option(help="Only with a reason that begins so.")]
From = Annotated[str | None, typer.Option("--from", help="Only of runs that ended then or later.")]
To = Annotated[str | None, typer.Option("--to", help="Only of runs that ended then or earlier.")]
Label = Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="May be repeated.")]
BulkRedrive = Annotated[str, typer.Argument(metavar="ID", help="As `redrive --all` says it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as the API answers it.")]


@dead_letters_app.command("list")
def list_dead_letters(
    job: Job = None,
    reason: Reason = None,
    start: From = None,
    end: To = None,
    label: Label = None,
    redriven: Annotated[str | None, typer.Option(help="true, false or any. Default: false.")] = None,
    limit: Annotated[int, typer.Option(min=1)] = 50,
    as_json: AsJson = False,
) -> None:
    """List dead letters, those that ended last first."""
    from api.cli_client import documents, open_client, page_size, print_json
    from api.cli_table import print_dead_letters

    with open_client() as client:
        letters = client.dead_letters.list(
            job=job,
            reason=reason,
            start=start,
            end=end,
            labels=label,
            redriven=redriven,
            page_size=page_size(limit),
        )
        found = documents(letters, limit=limit)
    print_json(found) if as_json else print_dead_letters(found)


@dead_letters_app.command("redrive")
def redrive(
    runs: Annotated[list[str] | None, typer.Argument(help="Ids of dead runs.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Instead of ids: all that the options name, or without any every one.")
    ] = False,
    job: Job = None,
    reason: Reason = None,
    start: From = None,
    end: To = None,
    label: Label = None,
    rate: Annotated[float | None, typer.Option(help="Redrives begun a minute, at most. Default: 60.")] = None,
    limit: Annotated[int | None, typer.Option(help="Redrives in all. Default: 1000.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Whether to wait until all are begun.")] = True,
    as_json: AsJson = False,
) -> None:
    """Run dead runs again: those that are named, or with --all those that a filter names, or all of them."""
    from api.cli_client import open_client

    has_filter = any(each is not None for each in (job, reason, start, end)) or bool(label)
    if every == bool(runs):
        raise BadInput("give ids of dead runs, or --all, which options such as --job narrow down")
    if runs:
        if has_filter or rate is not None or limit is not None:
            raise BadInput("a filter, a rate and a limit are for --all")
        _redrive_each(runs, as_json=as_json)
        return
    with open_client() as client:
        progress = client.dead_letters.redrive_many(
            every=None if has_filter else True,
            job=job,
            reason=reason,
            start=start,
            end=end,
            labels={name: str(value) for name, value in read_labels(label or []).items()} or None,
            rate_per_minute=rate,
            limit=limit,
        )
        if wait:
            name = progress.redrive_id
            print(f"redrive {name} has begun; `horarium dead-letters cancel {name}` stops it", file=sys.stderr)
        while wait and progress.status == "running":
            time.sleep(POLL_SECONDS)
            progress = client.dead_letters.get_redrive(progress.redrive_id)
    _print_progress(progress, as_json=as_json)
    if progress.failed:
        raise CommandFailed(str(progress.last_error))


def _redrive_each(runs: list[str], *, as_json: bool) -> None:
    from api.cli_client import open_client, print_json
    from api.cli_table import print_line

    with open_client() as client:
        for run_id in runs:
            run = client.dead_letters.redrive(run_id)
            print_json(run) if as_json else print_line(f"{run_id} is run again as {run.run_id} ({run.status})")


@dead_letters_app.command("progress")
def show_progress(redrive: BulkRedrive, as_json: AsJson = False) -> None:
    """Say how far a redrive of many is."""
    from api.cli_client import open_client

    with open_client() as client:
        progress = client.dead_letters.get_redrive(redrive)
    _print_progress(progress, as_json=as_json)


@dead_letters_app.command("cancel")
def cancel(redrive: BulkRedrive, as_json: AsJson = False) -> None:
    """Let a redrive of many begin no more. What it has begun goes on."""
    from api.cli_client import open_client

    with open_client() as client:
        progress = client.dead_letters.cancel_redrive(redrive)
    _print_progress(progress, as_json=as_json)


def _print_progress(progress: "Progress", *, as_json: bool) -> None:
    from api.cli_client import print_json
    from api.cli_table import print_line

    if as_json:
        print_json(progress)
        return
    waits = f"; waits: {progress.trouble}" if progress.trouble else ""
    print_line(
        f"redrive {progress.redrive_id} is {progress.status}: "
        f"{progress.redriven} run again, {progress.failed} cannot be{waits}"
    )
