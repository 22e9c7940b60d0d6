"""Serves the application over HTTP until it is told to stop."""

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

import uvicorn
from fastapi import FastAPI

from activities.database import InvalidDatabaseUrl, Limits, open_database
from activities.key_store import KeyStore
from activities.schema import migrate
from api.app import create_app
from api.server_address import is_loopback
from workers.connection import connect_options
from workers.encryption import ciphers_of
from workers.settings import InvalidSettings, Settings, variable_of
from workers.telemetry import open_telemetry
from workflows.error import Unavailable

DRAIN: Final = timedelta(seconds=10)
"""How long requests that are being answered may go on after SIGTERM."""

KEEP_ALIVE: Final = timedelta(seconds=75)
"""How long an idle connection is kept: longer than by clients and proxies, so that none sends on one that just closes."""

PREPARED_WITHIN: Final = timedelta(seconds=5)
"""How long the database is waited for where it has to say whether there are keys."""


class _Server(uvicorn.Server):
    """Uvicorn, but that a signal to stop is the normal end of it, and not raised again afterwards."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        InvalidSettings: the address may not be listened on, or is taken.
    """
    _require_readable(settings)
    await require_keys_or_loopback(settings)
    listener = _listen(settings.api_host, settings.api_port)
    async with open_telemetry(settings, service="horarium-api", with_page=True) as telemetry:
        await _serve(create_app(settings, telemetry=telemetry), listener)


async def _serve(app: FastAPI, listener: socket.socket) -> None:
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_keep_alive=int(KEEP_ALIVE.total_seconds()),
        timeout_graceful_shutdown=int(DRAIN.total_seconds()),
    )
    server = _Server(config)
    await server.serve(sockets=[listener])
    if not server.started:
        raise RuntimeError("the application did not start")


async def require_keys_or_loopback(settings: Settings) -> None:
    """Refuse an address that others could reach: without API keys, whoever can connect may do everything.

    Where the database does not answer it is not known whether there are keys. Then the service starts, and lets nobody in before
    it knows.

    Raises:
        InvalidSettings: it is not of this machine alone, and there are no keys.
    """
    if is_loopback(settings.api_host) or await _may_have_keys(settings.database_url):
        return
    raise InvalidSettings(
        f"{variable_of('api_host')}: {settings.api_host!r} is not a loopback address, and there are no API keys yet that would "
        "keep strangers out; make one with `horarium keys create`, or use 127.0.0.1"
    )


async def _may_have_keys(database_url: str) -> bool:
    engine = open_database(database_url, limits=Limits(connections=1))
    store = KeyStore(engine)
    try:
        async with asyncio.timeout(PREPARED_WITHIN.total_seconds()):
            await migrate(database_url)
        return bool(await store.read_keys())
    except (Unavailable, TimeoutError):
        return True
    finally:
        await store.close()
        await engine.dispose()


def _require_readable(settings: Settings) -> None:
    """Refuse addresses that cannot be any, and keys that cannot be used. Whether somebody answers is another question."""
    connect_options(settings)
    ciphers_of(settings)
    try:
        open_database(settings.database_url)
    except InvalidDatabaseUrl as error:
        raise InvalidSettings(f"{variable_of('database_url')}: {error}") from error


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=_family(host), backlog=2_048)
    except OSError as error:
        raise InvalidSettings(f"{variable_of('api_port')}: cannot listen on {host}:{port}: {error.strerror}") from error


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host or host == "ip6-localhost" else socket.AF_INET
