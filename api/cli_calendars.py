"""``horarium calendars``: named sets of days that jobs leave out, or keep to."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from pydantic import JsonValue

from api.cli_input import BadInput, given, list_bodies, read_document

if TYPE_CHECKING:
    from horarium.client import CalendarBody

calendars_app = typer.Typer(help="Write, read and delete calendars.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as the API answers it.")]


@calendars_app.command("put")
def write_calendar(
    name: str,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE|-", help="JSON or YAML: a calendar as the API takes it.")
    ] = None,
    date: Annotated[list[str] | None, typer.Option(help="A day such as 2026-12-24. May be repeated.")] = None,
    period: Annotated[
        list[str] | None, typer.Option(metavar="FROM/TO", help="Days, both included. May be repeated.")
    ] = None,
    country: Annotated[str | None, typer.Option(help="With its public holidays; a code such as DE.")] = None,
    subdivision: Annotated[str | None, typer.Option(help="Of the country, such as BY.")] = None,
    market: Annotated[
        str | None, typer.Option(help="With the days on which an exchange is closed, such as XNYS.")
    ] = None,
    years: Annotated[str | None, typer.Option(help="Of the holidays, such as 2026-2030. Default: five.")] = None,
    description: Annotated[str | None, typer.Option()] = None,
    as_json: AsJson = False,
) -> None:
    """Create or replace a calendar. Options go before what a file says."""
    from api.cli_client import open_client, print_json
    from api.cli_table import print_line

    body = {} if file is None else _read_one(file)
    holidays = given({"country": country, "subdivision": subdivision, "market": market})
    if years is not None:
        holidays["years"] = _read_years(years)
    options = given(
        {
            "description": description,
            "dates": None if date is None else [*date],
            "periods": None if period is None else [_read_period(each) for each in period],
            "holidays": holidays or None,
        }
    )
    with open_client() as client:
        written = client.calendars.put(name, cast("CalendarBody", {**body, **options}))
    if as_json:
        print_json(written)
    else:
        print_line(f"calendar {written.name}: {written.count} days, used by {written.jobs} jobs")


@calendars_app.command("list")
def list_calendars(as_json: AsJson = False) -> None:
    """List calendars."""
    from api.cli_client import documents, open_client, print_json
    from api.cli_table import print_calendars

    with open_client() as client:
        found = documents(client.calendars.list())
    print_json(found) if as_json else print_calendars(found)


@calendars_app.command("show")
def show_calendar(name: str, as_json: AsJson = False) -> None:
    """Show the days of a calendar, and which jobs use it."""
    from api.cli_client import open_client, print_json
    from api.cli_table import print_calendar

    with open_client() as client:
        found = client.calendars.get(name)
    print_json(found) if as_json else print_calendar(found.document)


@calendars_app.command("delete")
def delete_calendar(name: str) -> None:
    """Delete a calendar that no job uses."""
    from api.cli_client import open_client
    from api.cli_table import print_line

    with open_client() as client:
        found = client.calendars.delete(name)
    print_line(f"deleted calendar {found.name}")


def _read_one(file: str) -> dict[str, JsonValue]:
    bodies = list_bodies(read_document(file), name=file)
    if len(bodies) != 1:
        raise BadInput(f"{Path(file)}: expected one calendar, not {len(bodies)}")
    return bodies[0]


def _read_period(text: str) -> dict[str, JsonValue]:
    first, separator, last = text.partition("/")
    if not separator:
        raise BadInput("--period: give FROM/TO, such as 2026-12-24/2027-01-01")
    return {"from": first, "to": last}


def _read_years(text: str) -> list[JsonValue]:
    found = re.fullmatch(r"(\d{4})(?:-(\d{4}))?", text.strip(), re.ASCII)
    if found is None:
        raise BadInput("--years: give a year, or two such as 2026-2030")
    first, last = int(found[1]), int(found[2] or found[1])
    return [*range(first, last + 1)]
