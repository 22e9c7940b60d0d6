"""The commands about dead letters: ``horarium dead-letters list``, ``redrive``, ``progress`` and ``cancel``."""

import json
import sys
import time
from collections.abc import Mapping
from typing import Annotated, Final

import typer
from pydantic import JsonValue

from api.cli_input import BadInput, given, quote_segment, read_labels

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
    from api.cli_client import ApiClient
    from api.cli_table import print_dead_letters

    filters = [("job", job), ("reason", reason), ("from", start), ("to", end), ("redriven", redriven)]
    filters += [("label", each) for each in label or []]
    parameters = [(name, value) for name, value in filters if value is not None]
    with ApiClient() as client:
        found = client.list_all("/api/v1/dead-letters", parameters=parameters, limit=limit)
    print(json.dumps(found, ensure_ascii=False)) if as_json else print_dead_letters(found)


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
    filters: dict[str, JsonValue] = given({"job": job, "reason": reason, "from": start, "to": end})
    filters |= {"labels": read_labels(label)} if label else {}
    pace = given({"rate_per_minute": rate, "limit": limit})
    if every == bool(runs):
        raise BadInput("give ids of dead runs, or --all, which options such as --job narrow down")
    if runs:
        if filters or pace:
            raise BadInput("a filter, a rate and a limit are for --all")
        _redrive_each(runs, as_json=as_json)
    else:
        _redrive_all((filters or {"all": True}) | pace, wait=wait, as_json=as_json)


def _redrive_each(runs: list[str], *, as_json: bool) -> None:
    from api.cli_client import ApiClient
    from api.cli_table import print_line

    with ApiClient() as client:
        for run_id in runs:
            run = client.post(f"/api/v1/dead-letters/{quote_segment(run_id)}/redrive", None)
            print(json.dumps(run, ensure_ascii=False)) if as_json else print_line(
                f"{run_id} is run again as {run['run_id']} ({run['status']})"
            )


def _redrive_all(body: dict[str, JsonValue], *, wait: bool, as_json: bool) -> None:
    from api.cli_client import ApiClient, CommandFailed

    with ApiClient() as client:
        progress = client.post("/api/v1/dead-letters/redrive", body)
        if wait:
            name = progress["redrive_id"]
            print(f"redrive {name} has begun; `horarium dead-letters cancel {name}` stops it", file=sys.stderr)
        while wait and progress["status"] == "running":
            time.sleep(POLL_SECONDS)
            progress = client.get(f"/api/v1/dead-letters/redrives/{progress['redrive_id']}")
    _print_progress(progress, as_json=as_json)
    if progress["failed"]:
        raise CommandFailed(str(progress["last_error"]))


@dead_letters_app.command("progress")
def show_progress(redrive: BulkRedrive, as_json: AsJson = False) -> None:
    """Say how far a redrive of many is."""
    from api.cli_client import ApiClient

    with ApiClient() as client:
        progress = client.get(f"/api/v1/dead-letters/redrives/{quote_segment(redrive)}")
    _print_progress(progress, as_json=as_json)


@dead_letters_app.command("cancel")
def cancel(redrive: BulkRedrive, as_json: AsJson = False) -> None:
    """Let a redrive of many begin no more. What it has begun goes on."""
    from api.cli_client import ApiClient

    with ApiClient() as client:
        progress = client.post(f"/api/v1/dead-letters/redrives/{quote_segment(redrive)}/cancel", None)
    _print_progress(progress, as_json=as_json)


def _print_progress(progress: Mapping[str, JsonValue], *, as_json: bool) -> None:
    from api.cli_table import print_line

    if as_json:
        print(json.dumps(progress, ensure_ascii=False))
        return
    waits = f"; waits: {progress['trouble']}" if progress["trouble"] else ""
    print_line(
        f"redrive {progress['redrive_id']} is {progress['status']}: "
        f"{progress['redriven']} run again, {progress['failed']} cannot be{waits}"
    )
