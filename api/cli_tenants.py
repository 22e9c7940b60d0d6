"""The commands about tenants: ``horarium tenants``. They work on the database itself."""

import json
import sys
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from activities.quota import Quota
from api.cli_input import BadInput
from api.cli_keys import read_name, read_tenant

tenants_app = typer.Typer(
    help="Show tenants, settle their quotas and their task queues, in the database that HORARIUM_DATABASE_URL names.",
    no_args_is_help=True,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

DEFAULT: Final = "default"
"""As a quota: what the settings say."""


@tenants_app.command("list")
def list_tenants(as_json: AsJson = False) -> None:
    """List tenants that have jobs, keys, a quota or task queues, with what they have and may have."""
    from activities.quota_store import QuotaStore
    from activities.task_queue_store import TaskQueueStore
    from api.cli_database import on_database
    from api.cli_table import print_tenants
    from api.quota import describe_standing

    now = datetime.now(UTC)
    found = on_database(lambda engine, settings: QuotaStore(engine, default=settings.quota()).list_tenants(now=now))
    grants = on_database(lambda engine, _: TaskQueueStore(engine).read_grants())
    shown = [
        describe_standing(standing, task_queues=grants.get(standing.tenant, ())).model_dump(mode="json")
        for standing in found
    ]
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


@tenants_app.command("set-task-queues")
def set_task_queues(
    tenant: Annotated[str, typer.Argument(help="Also one that has nothing yet.")],
    patterns: Annotated[
        list[str] | None, typer.Argument(metavar="[PATTERN]...", help='Such as reports, or "team-a-*".')
    ] = None,
    take_back: Annotated[bool, typer.Option("--none", help="Take back all that the tenant has.")] = False,
) -> None:
    """Grant a tenant task queues, these and no others. Its jobs may name no others then, and the jobs of others none of these."""
    from activities.task_queue_store import TaskQueueStore
    from api.cli_database import on_database, operator_entry
    from api.cli_table import print_line

    name = read_tenant(tenant)
    if bool(patterns) is take_back:
        raise BadInput("give patterns of task queues, or --none")
    granted = sorted({read_name(pattern, argument="PATTERN") for pattern in patterns or []})
    before = on_database(lambda engine, _: TaskQueueStore(engine).read_grants())
    entry = operator_entry(
        tenant=name,
        action="tenant.set_task_queues",
        subject=name,
        before={"task_queues": list(before.get(name, ()))},
        after={"task_queues": granted},
    )
    now = datetime.now(UTC)
    on_database(lambda engine, _: TaskQueueStore(engine).grant(name, granted, now=now, entry=entry))
    print_line(f"{name}: task queues {', '.join(granted) or 'any that no other tenant has'}")
    _tell_of_strangers()


def _tell_of_strangers() -> None:
    """Name the queues of jobs that could not be registered now. The jobs go on."""
    from activities.task_queue_grant import refusal_of
    from activities.task_queue_store import TaskQueueStore
    from api.cli_database import on_database

    grants = on_database(lambda engine, _: TaskQueueStore(engine).read_grants())
    for named in on_database(lambda engine, _: TaskQueueStore(engine).count_named()):
        if refusal_of(named.task_queue, grants, tenant=named.tenant) is not None:
            print(
                f"note: {named.jobs} jobs of tenant {named.tenant} name task queue {named.task_queue!r}, which new ones may not; "
                "they go on",
                file=sys.stderr,
            )


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
