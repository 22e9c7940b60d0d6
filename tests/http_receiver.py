"""An HTTP server for tests that receives what jobs send, and answers as badly as a test wants."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeAlias


@dataclass(frozen=True, kw_only=True)
class Received:
    """A request as it came."""

    method: str
    target: str
    headers: Mapping[str, str]
    """By their lower-case names."""

    body: bytes


Answer: TypeAlias = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


def answer(status: int = 200, body: bytes = b"", **headers: str) -> Answer:
    """Answer at once. Names of headers are written with ``_`` for ``-``."""

    async def write(_: Received, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()

    return write


async def hang(_: Received, writer: asyncio.StreamWriter) -> None:
    """Never answer."""
    await asyncio.sleep(3600)


async def hang_up(_: Received, writer: asyncio.StreamWriter) -> None:
    """Close the connection without an answer."""


async def trickle(_: Received, writer: asyncio.StreamWriter) -> None:
    """Begin an answer, and send a byte of its body ten times a second, for ever."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.1)


async def flood(_: Received, writer: asyncio.StreamWriter) -> None:
    """Send a body without end."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while True:
        writer.write(b"0123456789abcdef" * 4096)
        await writer.drain()


async def garbage(_: Received, writer: asyncio.StreamWriter) -> None:
    """Answer with what is no HTTP."""
    writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
    await writer.drain()


@dataclass
class Receiver:
    """What runs."""

    host: str
    port: int = 0
    answers: list[Answer] = field(default_factory=list)
    """Given one after the other; the last one again and again."""

    received: list[Received] = field(default_factory=list)
    connections: int = 0
    serving: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{self.host}:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take one request of a connection."""
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        try:
            request = await _read(reader)
            self.received.append(request)
            reply = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            await reply(request, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self.serving.discard(task)


@asynccontextmanager
async def receiving(
    *answers: Answer, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    """Run a receiver for the length of the block."""
    receiver = Receiver(host, answers=list(answers) or [answer()])
    server = await asyncio.start_server(receiver.serve, host, port, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for task in receiver.serving:
            task.cancel()


async def _read(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method=method, target=target, headers=headers, body=body)
