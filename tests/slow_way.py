"""A way to a database on which every answer is late, as it is from one that is far away or has too much to do."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import Thread

CHUNK = 65_536
STARTS_WITHIN = 10


class SlowWay:
    """Forwards one Unix socket to another. ``delay`` may be changed at any time."""

    def __init__(self, destination: Path) -> None:
        self._destination = destination
        self.delay = timedelta(0)
        """Of each answer."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward a connection until either side ends it."""
        with closing(writer), suppress(OSError):
            answers, questions = await asyncio.open_unix_connection(str(self._destination))
            with closing(questions):
                ways = (self._ask(reader, questions), self._answer(answers, writer))
                tasks = [asyncio.create_task(way) for way in ways]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            await asyncio.sleep(self.delay.total_seconds())
            writer.write(data)
            await writer.drain()


@contextmanager
def slow_way(*, to: Path, at: Path) -> Iterator[SlowWay]:
    """Listen at a socket for the length of the block, in a thread: the test's event loop may be busy."""
    way, loop = SlowWay(to), asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="slow-way", daemon=True)
    thread.start()
    try:
        listening = asyncio.start_unix_server(way.serve, str(at))
        asyncio.run_coroutine_threadsafe(listening, loop).result(STARTS_WITHIN)
        yield way
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
