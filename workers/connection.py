"""The one place that makes Temporal clients.

Owns the address, the data converter and the identity that all processes use, the wait for a server that is not there yet,
and what a namespace must have: a server that is new enough, and our search attributes.
"""

import asyncio
import logging
import os
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeVar

from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, GetSystemInfoRequest
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.envconfig import ClientConfig, ClientConnectConfig
from temporalio.service import GrpcCompression, RPCError, RPCStatusCode

from workers.call_trace import client_interceptors, client_plugins
from workers.encryption import encrypted
from workers.settings import InvalidSettings, Settings, variable_of
from workflows.contracts import SEARCH_ATTRIBUTES
from workflows.data_converter import DATA_CONVERTER

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

DEFAULT_ADDRESS: Final = "localhost:7233"

OLDEST_SERVER: Final = (1, 32)
"""Older servers hold a job that was woken early to its old target (ARCHITECTURE.md, "Two ways to sleep")."""

TRY_EVERY: Final = timedelta(seconds=1)

SAY_EVERY: Final = timedelta(seconds=30)
"""How often a process that waits says so."""

_NOT_THERE_YET: Final = frozenset(
    {RPCStatusCode.NOT_FOUND, RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED}
)
"""Answers of a server that is starting, and for a namespace that somebody will create."""

_KNOWN_ALREADY: Final = frozenset({RPCStatusCode.ALREADY_EXISTS})
_NOT_OURS_TO_ADD: Final = frozenset(
    {RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED, RPCStatusCode.UNIMPLEMENTED}
)
"""Answers of namespaces whose owner registers search attributes otherwise, such as those of Temporal Cloud."""


class ServerTooOld(Exception):
    """The Temporal server lacks what jobs need in order to be on time."""


@dataclass(frozen=True, kw_only=True)
class Namespace:
    """What is known of the namespace that a client is connected to."""

    client: Client
    has_search_attributes: bool
    """Whether jobs may set ours. An attribute that a namespace does not know would stop the job that sets it."""


async def enter_namespace(settings: Settings, *, name: str) -> Namespace:
    """Connect, wait for the server and the namespace as long as it takes, and see to what the namespace needs.

    ``name`` says what the process is, for its identity. Raises ``ServerTooOld``, ``InvalidSettings``, and ``RPCError`` where
    Temporal refuses us.
    """
    client = await connect(settings, name=name)

    async def look_around() -> bool:
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
        await require_recent_server(client)
        return await register_search_attributes(client)

    has_search_attributes = await _when_there(look_around, what=f"namespace {client.namespace}")
    return Namespace(client=client, has_search_attributes=has_search_attributes)


async def connect(settings: Settings, *, name: str, patience: timedelta | None = None) -> Client:
    """Connect, and wait for a server that does not answer yet.

    Raises ``InvalidSettings`` for an address that cannot be one and for encryption keys that cannot be used, and ``TimeoutError``
    after ``patience``.
    """
    options = connect_options(settings)
    converter = encrypted(DATA_CONVERTER, settings)

    async def open_client_now() -> Client:
        return await _open(
            options, converter, identity=identity_of(name), lazy=False, compressed=settings.temporal_compression
        )

    async with asyncio.timeout(None if patience is None else patience.total_seconds()):
        return await _when_there(open_client_now, what=f"server {options.get('target_host')}")


async def open_client(settings: Settings, *, name: str) -> Client:
    """Make a client that connects when it is first used: for processes that are of use without Temporal.

    Raises ``InvalidSettings``.
    """
    options, converter = connect_options(settings), encrypted(DATA_CONVERTER, settings)
    return await _open(
        options, converter, identity=identity_of(name), lazy=True, compressed=settings.temporal_compression
    )


def connect_options(settings: Settings) -> ClientConnectConfig:
    """Put our settings on top of Temporal's environment and profile. Raises ``InvalidSettings``."""
    try:
        options = ClientConfig.load_client_connect_config()
    except Exception as error:  # of a type that the SDK does not export
        raise InvalidSettings(f"Temporal's environment (TEMPORAL_...) or profile: {error}") from error
    if settings.temporal_address is not None:
        options["target_host"] = settings.temporal_address
    if settings.temporal_namespace is not None:
        options["namespace"] = settings.temporal_namespace
    options.setdefault("target_host", DEFAULT_ADDRESS)
    return options


def identity_of(name: str) -> str:
    """Name this process as Temporal's history and Web UI show it."""
    return f"{name}:{os.getpid()}@{socket.gethostname()}"


async def require_recent_server(client: Client) -> None:
    """Raise ``ServerTooOld`` unless the server keeps the promises of the long sleep."""
    info = await client.workflow_service.get_system_info(GetSystemInfoRequest())
    version = _parse_version(info.server_version)
    if version is None:
        logger.warning("the Temporal server does not say its version", extra={"server_version": info.server_version})
    elif version < OLDEST_SERVER:
        oldest = ".".join(map(str, OLDEST_SERVER))
        raise ServerTooOld(f"the Temporal server is {info.server_version}; Horarium needs {oldest} or later")


async def register_search_attributes(client: Client) -> bool:
    """Make the namespace know our search attributes. Answers whether it does, which jobs can live without."""
    wanted = {key.name: int(key.indexed_value_type) for key in SEARCH_ATTRIBUTES}
    try:
        known = await _list_search_attributes(client)
        missing = {name: kind for name, kind in wanted.items() if name not in known}
        if missing:
            await _add_search_attributes(client, missing)
            known = await _list_search_attributes(client)
    except RPCError as error:
        if error.status not in _NOT_OURS_TO_ADD:
            raise
        return _do_without(f"{error.status.name}: {error.message}")
    wrong = [name for name, kind in wanted.items() if known.get(name) != kind]
    return _do_without(f"missing or of another type: {', '.join(wrong)}") if wrong else True


async def _when_there(ask: Callable[[], Awaitable[Answer]], *, what: str) -> Answer:
    """Ask until there is an answer, and say now and then that we are waiting, and for what."""
    say_at = 0.0
    loop = asyncio.get_running_loop()
    while True:
        try:
            return await ask()
        except (RuntimeError, RPCError) as error:
            if isinstance(error, RPCError) and error.status not in _NOT_THERE_YET:
                raise
            if loop.time() >= say_at:
                say_at = loop.time() + SAY_EVERY.total_seconds()
                logger.warning("waiting for Temporal", extra={"waiting_for": what, "error": str(error)})
        await asyncio.sleep(TRY_EVERY.total_seconds())


async def _open(
    options: ClientConnectConfig, converter: DataConverter, *, identity: str, lazy: bool, compressed: bool
) -> Client:
    try:
        return await Client.connect(
            **options,
            data_converter=converter,
            identity=identity,
            lazy=lazy,
            grpc_compression=GrpcCompression.GZIP if compressed else GrpcCompression.NONE,
            interceptors=client_interceptors(),
            plugins=client_plugins(),
        )
    except ValueError as error:
        name = variable_of("temporal_address")
        raise InvalidSettings(f"{name} or TEMPORAL_ADDRESS: {error}; expected HOST:PORT") from error


async def _list_search_attributes(client: Client) -> dict[str, int]:
    answer = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace)
    )
    return {name: int(kind) for name, kind in answer.custom_attributes.items()}


async def _add_search_attributes(client: Client, missing: dict[str, int]) -> None:
    request = AddSearchAttributesRequest(namespace=client.namespace)
    for name, kind in missing.items():
        request.search_attributes[name] = kind  # type: ignore[assignment]
    try:
        await client.operator_service.add_search_attributes(request)
    except RPCError as error:
        # Another process that starts as well was faster.
        if error.status not in _KNOWN_ALREADY:
            raise
    else:
        logger.info("search attributes registered", extra={"names": ",".join(missing)})


def _do_without(reason: str) -> bool:
    logger.warning(
        "jobs run without search attributes; temporal-dev/README.md says how to add them", extra={"reason": reason}
    )
    return False


def _parse_version(text: str) -> tuple[int, int] | None:
    """Read ``1.32.0`` or ``1.32.0-rc.1``."""
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None
