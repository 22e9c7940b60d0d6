"""The commands about downstreams: ``horarium downstreams list``, ``show`` and ``reset``."""

import json
from typing import Annotated

import typer

from api.cli_input import quote_segment

downstreams_app = typer.Typer(help="Circuit breakers and retry budgets of what jobs call.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="As `downstreams list` shows it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as the API answers it.")]


@downstreams_app.command("list")
def list_downstreams(limit: Annotated[int, typer.Option(min=1)] = 100, as_json: AsJson = False) -> None:
    """List what jobs call, by name."""
    from api.cli_client import ApiClient
    from api.cli_table import print_downstreams

    with ApiClient() as client:
        found = client.list_all("/api/v1/downstreams", parameters=[], limit=limit)
    print(json.dumps(found, ensure_ascii=False)) if as_json else print_downstreams(found)


@downstreams_app.command("show")
def show_downstream(name: Name, as_json: AsJson = False) -> None:
    """Show one, with what each scheduler process has counted."""
    from api.cli_client import ApiClient
    from api.cli_table import print_downstream

    with ApiClient() as client:
        found = client.get(f"/api/v1/downstreams/{quote_segment(name)}")
    print(json.dumps(found, ensure_ascii=False)) if as_json else print_downstream(found)


@downstreams_app.command("reset")
def reset_downstream(name: Name, as_json: AsJson = False) -> None:
    """Close its circuit breaker now; parked runs return spread out."""
    from api.cli_client import ApiClient
    from api.cli_table import print_line

    with ApiClient() as client:
        found = client.post(f"/api/v1/downstreams/{quote_segment(name)}/reset", None)
    print(json.dumps(found, ensure_ascii=False)) if as_json else print_line(
        f"the circuit breaker of {found['downstream']} is {found['state']}; {found['parked_runs']} runs wait"
    )
