"""The commands about the fires of a job: ``jobs ledger`` says what became of them, ``jobs upcoming`` which are to come."""

import sys
from typing import Annotated

import typer

from api.cli_input import JobId

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as the API answers it.")]


def list_ledger(
    job: JobId,
    start: Annotated[
        str | None, typer.Option("--from", help="First nominal time. Default: a week before --to.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="Last nominal time. Default: now.")] = None,
    limit: Annotated[int, typer.Option(min=1)] = 100,
    as_json: AsJson = False,
) -> None:
    """Say what became of every fire of a job, and why. The oldest comes first."""
    from api.cli_client import documents, open_client, page_size, print_json
    from api.cli_table import print_ledger

    with open_client() as client:
        entries = client.jobs.ledger(job, start=start, end=end, page_size=page_size(limit + 1))
        found = documents(entries, limit=limit + 1)
    print_json(found[:limit]) if as_json else print_ledger(found[:limit])
    if len(found) > limit:
        print("warning: there are later ones too; see --from and --limit", file=sys.stderr)


def list_upcoming(
    job: JobId,
    count: Annotated[int, typer.Option("--count", "-n", min=0, max=1_000, help="How many fires.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show the next fires of a job; none while it is paused."""
    from api.cli_client import documents, open_client, print_json
    from api.cli_table import print_upcoming

    with open_client() as client:
        found = documents(client.jobs.upcoming(job, count=count))
    print_json(found) if as_json else print_upcoming(found)
