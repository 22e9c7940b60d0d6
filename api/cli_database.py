"""How commands reach the database without the API: those of an operator, who may do what no key may."""

import asyncio
import getpass
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine

from activities.audit_store import AuditEntry, AuditOutcome
from activities.database import InvalidDatabaseUrl, Limits, open_database
from activities.schema import migrate
from api.cli_input import BadInput, CommandFailed
from workers.log import configure_logging
from workers.settings import InvalidSettings, Settings, read_settings, variable_of
from workflows.error import HorariumError

OPERATOR: Final = "operator"
"""How the audit log calls whoever works on the database itself."""

Answer = TypeVar("Answer")


def on_database(work: Callable[[AsyncEngine, Settings], Awaitable[Answer]]) -> Answer:
    """Work on the database that the settings name, brought to the present schema. Raises ``CommandFailed`` and ``BadInput``."""
    try:
        settings = read_settings()
        configure_logging("warning", form=settings.log_format)
        return asyncio.run(_work(work, settings))
    except InvalidSettings as error:
        raise BadInput(str(error)) from error
    except InvalidDatabaseUrl as error:
        raise BadInput(f"{variable_of('database_url')}: {error}") from error
    except HorariumError as error:
        raise CommandFailed(str(error)) from error


async def _work(work: Callable[[AsyncEngine, Settings], Awaitable[Answer]], settings: Settings) -> Answer:
    engine = open_database(settings.database_url, limits=Limits(connections=1))
    try:
        await migrate(settings.database_url)
        return await work(engine, settings)
    finally:
        await engine.dispose()


def operator_entry(*, tenant: str, action: str, subject: str, **change: object) -> AuditEntry:
    """Make the audit entry of a change that is written together with it."""
    return AuditEntry(
        tenant=tenant,
        request_id="",
        actor=OPERATOR,
        actor_name=_account(),
        action=action,
        subject=subject,
        before=change.get("before"),  # type: ignore[arg-type]
        after=change.get("after"),  # type: ignore[arg-type]
        outcome=AuditOutcome.APPLIED,
    )


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
