"""The commands about API keys: ``horarium keys``. They work on the database itself: so the first key comes into being."""

import json
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer
from pydantic import JsonValue, TypeAdapter, ValidationError

from activities.api_key import ApiKey, Scope, draw_key
from api.cli_input import BadInput, CommandFailed
from workflows.error import InvalidSchedule

keys_app = typer.Typer(
    help="Make, list and revoke API keys, in the database that HORARIUM_DATABASE_URL names.", no_args_is_help=True
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_SPAN: Final = re.compile(r"(\d{1,5})([mhdw])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@keys_app.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="For people: who or what uses it.")],
    scope: Annotated[str, typer.Option(help="read, operate, write, admin or metrics.")],
    tenant: Annotated[str, typer.Option(help="Whose jobs it is for.")] = "default",
    expires: Annotated[str | None, typer.Option(help="A time, or a span such as 12h or 90d. Default: never.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key, and print it: this once, for it is kept nowhere."""
    from activities.key_store import KeyStore
    from api.cli_database import on_database, operator_entry

    now = datetime.now(UTC)
    key_id, secret_hash, text = draw_key()
    key = ApiKey(
        key_id=key_id,
        tenant=read_tenant(tenant),
        name=read_name(name, argument="NAME"),
        scope=_read_scope(scope),
        secret_hash=secret_hash,
        created_at=now,
        expires_at=None if expires is None else _read_expiry(expires, now=now),
    )
    entry = operator_entry(tenant=key.tenant, action="key.create", subject=key_id, after=dict(describe_key(key)))
    on_database(lambda engine, _: KeyStore(engine).add(key, entry=entry))
    if as_json:
        print(json.dumps({**describe_key(key), "key": text}))
        return
    until = f" until {key.expires_at.isoformat()}" if key.expires_at else ""
    print(
        f"key {key_id} of tenant {key.tenant}, scope {key.scope.value}{until}; it is shown this once:", file=sys.stderr
    )
    print(text)


@keys_app.command("list")
def list_keys(
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant.")] = None, as_json: AsJson = False
) -> None:
    """List keys, without their secrets."""
    from activities.key_store import KeyStore
    from api.cli_database import on_database
    from api.cli_table import print_keys

    chosen = None if tenant is None else read_tenant(tenant)
    found = on_database(lambda engine, _: KeyStore(engine).read_keys(chosen))
    shown = [describe_key(key) for key in found]
    print(json.dumps(shown)) if as_json else print_keys(shown)


@keys_app.command("revoke")
def revoke_key(key_id: Annotated[str, typer.Argument(metavar="ID", help="As `keys list` shows it.")]) -> None:
    """Revoke a key; within seconds every API process refuses it."""
    from activities.key_store import KeyStore
    from api.cli_database import on_database, operator_entry
    from api.cli_table import print_line

    found = {key.key_id: key for key in on_database(lambda engine, _: KeyStore(engine).read_keys())}.get(key_id)
    if found is None:
        raise CommandFailed("there is no key with this id; `horarium keys list` shows them")
    entry = operator_entry(tenant=found.tenant, action="key.revoke", subject=key_id)
    now = datetime.now(UTC)
    if on_database(lambda engine, _: KeyStore(engine).revoke(key_id, now=now, entry=entry)):
        print_line(f"revoked {key_id} ({found.name})")
    else:
        print_line(f"{key_id} ({found.name}) was revoked before")


def describe_key(key: ApiKey) -> Mapping[str, JsonValue]:
    """Say a key without its secret."""
    return {
        "key_id": key.key_id,
        "tenant": key.tenant,
        "name": key.name,
        "scope": key.scope.value,
        "created_at": _spell(key.created_at),
        "expires_at": _spell(key.expires_at),
        "revoked_at": _spell(key.revoked_at),
        "last_used_at": _spell(key.last_used_at),
    }


def read_tenant(text: str) -> str:
    """Read the name of a tenant. Raises ``BadInput``."""
    from workflows.contracts import TENANT_PATTERN

    if re.fullmatch(TENANT_PATTERN, text) is None:
        raise BadInput(f"--tenant: a tenant is named by {TENANT_PATTERN}")
    return text


def read_name(text: str, *, argument: str) -> str:
    """Read what people call something. Raises ``BadInput``."""
    from api.field import Name

    try:
        return TypeAdapter(Name).validate_python(text)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise BadInput(f"{argument}: {reason[:1].lower()}{reason[1:]}") from error


def _read_scope(text: str) -> Scope:
    try:
        return Scope(text.lower())
    except ValueError as error:
        raise BadInput(f"--scope: use one of {', '.join(Scope)}") from error


def _read_expiry(text: str, *, now: datetime) -> datetime:
    span = _SPAN.fullmatch(text)
    moment = now + timedelta(**{_UNITS[span[2]]: int(span[1])}) if span else _read_moment(text)
    if moment <= now:
        raise BadInput("--expires: is past already")
    return moment


def _read_moment(text: str) -> datetime:
    from workflows.schedule_parser import parse_moment

    try:
        return parse_moment(text, timezone="UTC", pointer="/expires")
    except InvalidSchedule as error:
        raise BadInput(f"--expires: give a span such as 12h or 90d, or a time: {error.reason}") from error


def _spell(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds").replace("+00:00", "Z")
