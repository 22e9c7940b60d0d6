"""Serves the application over HTTP until it is told to stop."""

import asyncio
import ipaddress
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

import uvicorn
from fastapi import FastAPI

from activities.database import InvalidDatabaseUrl, open_database
from api.app import create_app
from workers.connection import connect_options
from workers.settings import InvalidSettings, Settings, variable_of
from workers.telemetry import open_telemetry

DRAIN: Final = timedelta(seconds=10)
"""How long requests that are being answered may go on after SIGTERM."""

LOOPBACK_NAMES: Final = frozenset({"localhost", "ip6-localhost"})


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
    require_loopback(settings.api_host)
    _require_readable(settings)
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
        timeout_graceful_shutdown=int(DRAIN.total_seconds()),
    )
    server = _Server(config)
    await server.serve(sockets=[listener])
    if not server.started:
        raise RuntimeError("the application did not start")


def require_loopback(host: str) -> None:
    """Refuse an address that others could reach: without API keys, whoever can connect may do everything.

    Raises:
        InvalidSettings: it is not of this machine alone.
    """
    if host in LOOPBACK_NAMES:
        return
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        name = variable_of("api_host")
        raise InvalidSettings(
            f"{name}: {host!r} is not a loopback address, and there are no API keys yet that would keep strangers out; "
            "use 127.0.0.1 and put a proxy that knows its callers in front"
        )


def _require_readable(settings: Settings) -> None:
    """Refuse addresses that cannot be any. Whether somebody answers there is another question."""
    connect_options(settings)
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
