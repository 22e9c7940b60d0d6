"""The effect store of a worker: where its job code claims effects, and what keeps it from growing for ever."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from activities.database import InvalidDatabaseUrl
from activities.deadline import end_task
from activities.trouble import Trouble
from horarium.effect import StoreUnavailable
from horarium.effect_desk import EffectDesk
from horarium.effect_sql import SqlEffectStore
from workers.settings import InvalidSettings, Role, Settings, variable_of

logger = logging.getLogger(__name__)

PRUNE_EVERY: Final = timedelta(hours=1)

LONGEST_RUN: Final = timedelta(days=30)
"""From an effect to the end of its run, generously: a dead run can be redriven for as long after its end as runs are kept."""


@asynccontextmanager
async def open_effects(settings: Settings) -> AsyncIterator[EffectDesk | None]:
    """Open the store, which connects when it is first used; a process with the scheduler role prunes it meanwhile.

    ``None`` for a job worker that was told no database: a file of its own would be one that no other worker knows.
    """
    store = _open_store(settings)
    if store is None:
        yield None
        return
    desk = EffectDesk(store)
    pruning = asyncio.create_task(_keep_pruned(settings)) if settings.role is not Role.JOB else None
    try:
        yield desk
    finally:
        if pruning is not None:
            await end_task(pruning)
        await asyncio.to_thread(desk.close)


def _open_store(settings: Settings) -> SqlEffectStore | None:
    if settings.effects_url is None and settings.role is Role.JOB and "database_url" not in settings.model_fields_set:
        return None
    try:
        return SqlEffectStore(_url_of(settings))
    except InvalidDatabaseUrl as error:
        field = "database_url" if settings.effects_url is None else "effects_url"
        raise InvalidSettings(f"{variable_of(field)}: {error}") from error


def _url_of(settings: Settings) -> str:
    return settings.effects_url or settings.database_url


def claims_kept(settings: Settings) -> timedelta:
    """Say how long claims are kept after they were last asked for: longer than any run that could ask again."""
    return max(settings.effect_retention, settings.run_retention + LONGEST_RUN)


async def _keep_pruned(settings: Settings) -> None:
    """Forget old claims now and then. Several processes may; they do not disturb each other."""
    # Not through the desk, whose connections are for job code.
    store = SqlEffectStore(_url_of(settings))
    trouble = Trouble(logger, expected=StoreUnavailable)
    try:
        while True:
            await asyncio.sleep(PRUNE_EVERY.total_seconds())
            with trouble.survived("effect claims could not be pruned"):
                count = await store.prune(older_than=claims_kept(settings))
                logger.info("effect claims pruned", extra={"count": count})
    finally:
        await store.close()
