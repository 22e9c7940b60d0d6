"""A PostgreSQL that a test may kill, freeze, slow down, and deprive of disk space."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from shutil import rmtree
from typing import Final, Literal, TypeAlias

from tests.databases import PORT, TEMPLATE, PostgresServer, running_postgres
from tests.slow_way import SlowWay, slow_way
from tests.small_disk import SmallDisk, small_disk

Fault: TypeAlias = Literal["killed", "frozen", "slow", "full"]

DELAY: Final = timedelta(seconds=2)
"""Of each answer, while it is slow."""

MEGABYTES: Final = 160
"""The server's own files, its log of writes and two databases; a hundred, about."""

SOCKET: Final = f".s.PGSQL.{PORT}"


class FaultyPostgres:
    """One server with Horarium's schema, reached on a way that may be slow."""

    def __init__(self, server: PostgresServer, way: SlowWay, disk: SmallDisk, *, way_folder: Path) -> None:
        self._server = server
        self._way = way
        self._disk = disk
        self._way_folder = way_folder

    @property
    def url(self) -> str:
        """For what is tested."""
        return self._server.url(TEMPLATE, folder=self._way_folder)

    @property
    def direct_url(self) -> str:
        """For the test, which does not want to wait."""
        return self._server.url(TEMPLATE)

    def begin(self, fault: Fault) -> None:
        """Let it befall the database."""
        match fault:
            case "killed":
                self._server.kill()
            case "frozen":
                self._server.freeze()
            case "slow":
                self._way.delay = DELAY
            case "full":
                self._disk.fill()

    def end(self, fault: Fault) -> None:
        """Undo it, as an operator would: a server that died of it is started again."""
        match fault:
            case "frozen":
                self._server.thaw()
            case "slow":
                self._way.delay = timedelta(0)
            case "full":
                self._disk.free()
            case "killed":
                pass
        if not self._server.is_running:
            self._server.start()


@contextmanager
def faulty_postgres(data: Path) -> Iterator[FaultyPostgres]:
    """Run one for the length of the block; ``data`` is what it begins with, see ``postgres_data``."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="horarium-pg-"))
        folder.chmod(0o755)
        stack.callback(rmtree, folder, ignore_errors=True)
        disk = stack.enter_context(small_disk(folder / "server" / "data", megabytes=MEGABYTES))
        server = stack.enter_context(running_postgres(folder / "server", data=data))
        way = stack.enter_context(slow_way(to=folder / "server" / SOCKET, at=folder / SOCKET))
        yield FaultyPostgres(server, way, disk, way_folder=folder)
