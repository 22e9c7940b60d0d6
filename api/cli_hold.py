"""``horarium hold``: jobs that do not fire for a while, chosen by their labels."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from horarium.client import Hold

hold_app = typer.Typer(help="Keep jobs with some labels from firing; list holds; release them.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as the API answers it.")]
CatchUp = Annotated[str | None, typer.Option(help="none or apply: what becomes of the fires that fell into the hold.")]
HoldId = Annotated[str, typer.Argument(help="Its id.")]


@hold_app.command("create")
def create_hold(
    selector: Annotated[str, typer.Argument(help="team=finance, env=prod,tier=2, or all.")],
    reason: Annotated[str | None, typer.Option(help="For people.")] = None,
    by: Annotated[str | None, typer.Option(help="Who holds the jobs.")] = None,
    until: Annotated[str | None, typer.Option(help="Then it ends by itself.")] = None,
    catch_up: CatchUp = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which jobs it would be over.")] = False,
    idempotency_key: Annotated[str | None, typer.Option(help="Repeated with it, nothing is done twice.")] = None,
    as_json: AsJson = False,
) -> None:
    """Hold jobs that have all of some labels, those that come later included."""
    from api.cli_client import open_client, print_json
    from api.cli_table import print_line

    with open_client() as client:
        hold = client.holds.create(
            selector,
            reason=reason,
            by=by,
            until=until,
            catch_up=catch_up,
            dry_run=dry_run or None,
            idempotency_key=idempotency_key,
        )
    print_json(hold) if as_json else print_line(_describe_dry_run(hold) if dry_run else _describe(hold))


@hold_app.command("list")
def list_holds(
    every: Annotated[bool, typer.Option("--all", help="Those that are over, too.")] = False, as_json: AsJson = False
) -> None:
    """List the holds that are in force, the newest first."""
    from api.cli_client import documents, open_client, print_json
    from api.cli_table import print_holds

    with open_client() as client:
        found = documents(client.holds.list(state="any" if every else None))
    print_json(found) if as_json else print_holds(found)


@hold_app.command("show")
def show_hold(hold: HoldId, as_json: AsJson = False) -> None:
    """Show a hold, and the jobs that it is over."""
    from api.cli_client import open_client, print_json
    from api.cli_table import print_hold

    with open_client() as client:
        found = client.holds.get(hold)
    print_json(found) if as_json else print_hold(found.document)


@hold_app.command("release")
def release_hold(hold: HoldId, catch_up: CatchUp = None, as_json: AsJson = False) -> None:
    """End a hold now. Jobs that are paused, or held by another, do not fire by that."""
    from api.cli_client import open_client, print_json
    from api.cli_table import print_line

    with open_client() as client:
        found = client.holds.release(hold, catch_up=catch_up)
    left = f"; {_count(found.held)} of it have not been told yet" if found.held else ""
    line = f"hold {found.hold_id} on {found.selector} is {found.state}{left}"
    print_json(found) if as_json else print_line(line)


def _describe(hold: "Hold") -> str:
    end = f" until {hold.document['until']}" if hold.until else ""
    return f"hold {hold.hold_id} on {hold.selector}{end}: {hold.held} of {_count(hold.jobs)} held"


def _describe_dry_run(hold: "Hold") -> str:
    more = ", ..." if hold.jobs > len(hold.job_ids) else ""
    named = f": {', '.join(hold.job_ids)}{more}" if hold.job_ids else ""
    return f"dry run: {hold.selector} is {_count(hold.jobs)}{named}"


def _count(jobs: int) -> str:
    return f"{jobs} job" if jobs == 1 else f"{jobs} jobs"
