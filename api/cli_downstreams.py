"""The commands about downstreams: ``horarium downstreams list``, ``show`` and ``reset``."""

from typing import Annotated

import typer

downstreams_app = typer.Typer(help="Circuit breakers and retry budgets of what jobs call.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="As `downstreams list` shows it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as the API answers it.")]


@downstreams_app.command("list")
def list_downstreams(limit: Annotated[int, typer.Option(min=1)] = 100, as_json: AsJson = False) -> None:
    """List what jobs call, by name."""
    from api.cli_client import documents, open_client, page_size, print_json
    from api.cli_table import print_downstreams

    with open_client() as client:
        found = documents(client.downstreams.list(page_size=page_size(limit)), limit=limit)
    print_json(found) if as_json else print_downstreams(found)


@downstreams_app.command("show")
def show_downstream(name: Name, as_json: AsJson = False) -> None:
    """Show one, with what each scheduler process has counted."""
    from api.cli_client import open_client, print_json
    from api.cli_table import print_downstream

    with open_client() as client:
        found = client.downstreams.get(name)
    print_json(found) if as_json else print_downstream(found.document)


@downstreams_app.command("reset")
def reset_downstream(name: Name, as_json: AsJson = False) -> None:
    """Close its circuit breaker now; parked runs return spread out."""
    from api.cli_client import open_client, print_json
    from api.cli_table import print_line

    with open_client() as client:
        found = client.downstreams.reset(name)
    print_json(found) if as_json else print_line(
        f"the circuit breaker of {found.downstream} is {found.state}; {found.parked_runs} runs wait"
    )
