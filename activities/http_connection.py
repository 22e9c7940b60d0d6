"""Opens the connections of ``http`` targets: to checked addresses, and to nothing else.

A name is resolved once for each connection, every address that it stands for is checked, and the connection goes to one of
those very addresses. So a name server that gives another answer the next time (DNS rebinding) gains nothing. The host's name
stays in the request and in the TLS handshake, whose certificate is verified against it. Proxies of the environment are not used:
a proxy would resolve the name again, where nobody checks it.
"""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeAlias

import httpcore

from activities.http_address import Allowance, check_addresses

Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Says which addresses a host has, the best first. Raises ``OSError`` where it has none."""

SocketOptions: TypeAlias = Iterable[
    tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
]

SHORTEST_TRY: Final = 1.0
"""Seconds that each address of a host has at least to answer, however many there are."""

LOOK_UPS: Final = 512
"""Names that a process looks up at once. The system cannot be told to stop, and asks a dead name server for up to half a minute,
three times as long as an attempt waits: with 100 job slots that is 300 at worst. Threads are made as they are needed."""


class ResolverBusy(Exception):
    """Too many names are being looked up. No host is to blame that is not among them."""


class SystemResolver:
    """Asks the system, in threads of its own: a name server that hangs must not hold up what else a process does in threads.

    Whoever asks for a name that is being looked up waits for that answer. So one that hangs takes one thread, however many jobs
    call it, and however often.
    """

    def __init__(self, *, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "resolve")
        self._begun = dict[str, Future[list[str]]]()
        """Until the system has answered, not only until nobody waits any more."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Give addresses in the order of RFC 6724. Takes names, and addresses in whatever spelling the system does.

        Raises ``ResolverBusy`` where every thread is taken.
        """
        look_up = self._begun.get(host) or self._begin(host, port)
        answer = asyncio.wrap_future(look_up)
        # A failure that comes when nobody waits any more is nobody's.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        # Shielded: whoever gives up must not take the answer from others who wait for it.
        return list(dict.fromkeys(await asyncio.shield(answer)))

    def _begin(self, host: str, port: int) -> Future[list[str]]:
        if len(self._begun) >= self._threads:
            raise ResolverBusy(f"{self._threads} names are being looked up, too many of which are not answered")
        look_up = self._begun[host] = self._pool.submit(_look_up, host, port)
        look_up.add_done_callback(lambda _: self._begun.pop(host))
        return look_up


def _look_up(host: str, port: int) -> list[str]:
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host[:100]!r} cannot be a host") from error
    return [str(address[0]) for _, _, _, _, address in infos]


resolve: Final = SystemResolver(threads=LOOK_UPS).resolve
"""For the whole process."""


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """Connects for ``httpcore``.

    Raises ``AddressRefused`` for hosts that may not be reached, and ``ResolverBusy``: none of ``httpcore``'s own errors, so they
    pass unchanged.
    """

    def __init__(self, *, allowance: Allowance, resolver: Resolver = resolve) -> None:
        self._allowance = allowance
        self._resolver = resolver
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: SocketOptions | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address of the host that answers."""
        deadline = None if timeout is None else time.monotonic() + timeout
        addresses = check_addresses(host, await self._resolve(host, port, timeout), allowance=self._allowance)
        failure: Exception = httpcore.ConnectError("the name has no address")
        for position, address in enumerate(addresses):
            try:
                return await self._inner.connect_tcp(
                    address,
                    port,
                    timeout=_share(deadline, left=len(addresses) - position),
                    local_address=local_address,
                    socket_options=socket_options,
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: SocketOptions | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Refuse: no URL leads here."""
        raise httpcore.ConnectError("sockets of this machine are not reached")

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._inner.sleep(seconds)

    async def _resolve(self, host: str, port: int, timeout: float | None) -> Sequence[str]:
        try:
            async with asyncio.timeout(timeout):
                return await self._resolver(host, port)
        except TimeoutError:
            raise httpcore.ConnectTimeout("the name was not resolved in time") from None
        except OSError as error:
            raise httpcore.ConnectError(f"the name cannot be resolved: {error.strerror or error}") from None


def _share(deadline: float | None, *, left: int) -> float | None:
    """Divide what time is left among the addresses that are."""
    return None if deadline is None else max(SHORTEST_TRY, (deadline - time.monotonic()) / left)
