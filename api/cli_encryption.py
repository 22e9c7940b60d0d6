"""The commands about the keys that payloads are encrypted with: ``horarium encryption``."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer
from pydantic import JsonValue

from api.cli_input import BadInput, CommandFailed

encryption_app = typer.Typer(
    help="Make keys that payloads in Temporal are encrypted with, and see which are needed.", no_args_is_help=True
)


@encryption_app.command("new-key")
def make_key(
    key_id: Annotated[
        str | None,
        typer.Option("--id", help="Stands beside what is encrypted with it. Default: today's date, and more."),
    ] = None,
) -> None:
    """Print a new key, as a line of the file that HORARIUM_ENCRYPTION_KEYS_FILE names."""
    from secrets import token_hex

    from horarium.encryption_keys import InvalidKeys, draw_key

    try:
        line = draw_key(key_id or f"{datetime.now(UTC):%Y-%m-%d}-{token_hex(2)}")
    except InvalidKeys as error:
        raise BadInput(f"--id: {error}") from error
    if sys.stdout.isatty():
        print("append it to the file of keys on every process; the first line of the file encrypts:", file=sys.stderr)
    print(line)


@encryption_app.command("in-use")
def show_keys_in_use(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Count the open workflows by the key that they need, before an old key is removed."""
    from api.cli_table import print_encryption_keys

    shown = _keys_in_use()
    print(json.dumps(shown)) if as_json else print_encryption_keys(shown)


def _keys_in_use() -> Sequence[Mapping[str, JsonValue]]:
    import asyncio

    from temporalio.service import RPCError

    from workers.encryption import key_ids_of
    from workers.encryption_use import IN_CLEAR, count_keys_in_use
    from workers.log import configure_logging
    from workers.settings import InvalidSettings, read_settings

    try:
        settings = read_settings()
        configure_logging("error", form=settings.log_format)
        known = key_ids_of(settings)
        counts = asyncio.run(count_keys_in_use(settings))
    except InvalidSettings as error:
        raise BadInput(str(error)) from error
    except TimeoutError as error:
        raise CommandFailed("Temporal does not answer") from error
    except RPCError as error:
        raise CommandFailed(f"Temporal refuses: {error.status.name}: {error.message}") from error
    return [
        {
            "key_id": key_id or None,
            "open_workflows": counts[key_id],
            "is_known": key_id in known or key_id == IN_CLEAR,
            "encrypts": key_id in known[:1],
        }
        for key_id in dict.fromkeys([*known, *sorted(counts)])
    ]
