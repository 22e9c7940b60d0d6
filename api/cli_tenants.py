"""The commands about tenants: ``horarium tenants``. They work on the database itself."""

import json
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from activities.quota import Quota
from api.cli_input import BadInput
from api.cli_keys import read_tenant

tenants_app = typer.Typer(
    help="Show tenants and settle their quotas, in the database that HORARIUM_DATABASE_URL names.", no_args_is_help=True
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

DEFAULT: Final = "default"
"""As a quota: what the settings say."""


@tenants_app.command("list")
def list_tenants(as_json: AsJson = False) -> None:
    """List tenants that have jobs, keys or a quota, with what they have and may have."""
    from activities.quota_store import QuotaStore
    from api.cli_database import on_database
    from api.cli_table import print_tenants
    from api.quota import describe_standing

    now = datetime.now(UTC)
    found = on_database(lambda engine, settings: QuotaStore(engine, default=settings.quota()).list_tenants(now=now))
    shown = [describe_standing(standing).model_dump(mode="json") for standing in found]
    print(json.dumps(shown)) if as_json else print_tenants(shown)


@tenants_app.command("set-quota")
def set_quota(
    tenant: Annotated[str, typer.Argument(help="Also one that has nothing yet.")],
    jobs: Annotated[str | None, typer.Option(help="Jobs, active or paused; `default`: as the settings say.")] = None,
    fires_per_minute: Annotated[
        str | None, typer.Option(help="Of all jobs, each at its densest; `default`: as the settings say.")
    ] = None,
) -> None:
    """Settle what a tenant may have. What it has already stays."""
    from activities.quota_store import QuotaStore
    from api.cli_database import on_database, operator_entry
    from api.cli_table import print_line

    name = read_tenant(tenant)
    if jobs is None and fires_per_minute is None:
        raise BadInput("give --jobs or --fires-per-minute")
    now = datetime.now(UTC)
    before = on_database(lambda engine, _: QuotaStore(engine, default=Quota()).read_standing(name, now=now)).quota
    most_jobs = _read_number(jobs, option="--jobs", before=before.jobs)
    quota = Quota(
        jobs=None if most_jobs is None else int(most_jobs),
        fires_per_minute=_read_number(fires_per_minute, option="--fires-per-minute", before=before.fires_per_minute),
    )
    entry = operator_entry(
        tenant=name, action="tenant.set_quota", subject=name, before=_spell(before), after=_spell(quota)
    )
    on_database(lambda engine, _: QuotaStore(engine, default=Quota()).set_quota(name, quota, now=now, entry=entry))
    print_line(f"{name}: jobs {_say(quota.jobs)}, fires a minute {_say(quota.fires_per_minute)}")


def _read_number(text: str | None, *, option: str, before: float | None) -> float | None:
    """Read a quota; one that is not given stays."""
    if text is None:
        return before
    if text.lower() == DEFAULT:
        return None
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1e9 or (option == "--jobs" and not number.is_integer()):
        raise BadInput(f"{option}: give a number from 0 on, or {DEFAULT!r}")
    return number


def _say(limit: float | None) -> str:
    return "as the settings say" if limit is None else f"{limit:g}"


def _spell(quota: Quota) -> dict[str, float | None]:
    return {"max_jobs": quota.jobs, "max_fires_per_minute": quota.fires_per_minute}
