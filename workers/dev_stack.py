"""The whole of Horarium on one machine: Temporal with its Web UI, a worker and the API, as children of this process.

Owns in which order they start and stop, where their data and logs are, and what happens when one dies: the end of its log
is shown and it is started again. One that dies before it was ready, or three times within a minute, ends the stack with
exit code 1. However this process itself ends, no child outlives it.

Knows the API as a command and a URL only.
"""

import asyncio
import fcntl
import os
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Final

import httpx

from workers.child_process import ChildCommand, ChildProcess
from workers.devserver import (
    LOOPBACK,
    DevServerError,
    DevServerOptions,
    answers,
    temporal_command,
    why_not_usable,
)
from workers.run_feed import RunFeed
from workers.settings import EXIT_CODE, Ports, Role, variable_of

KEY_VARIABLE: Final = "HORARIUM_API_KEY"
"""Where the command line finds its API key, too."""

METRICS_PORTS: Final = Ports(9464, 9563)
"""From the port on that OpenTelemetry gives to metrics for Prometheus."""

READY_WITHIN: Final = timedelta(seconds=60)

GRACE: Final = timedelta(seconds=5)
"""What the worker gives its attempts: a person waits for Ctrl-C."""

STOP_WITHIN: Final = timedelta(seconds=15)
"""More than a worker takes that gives up on its attempts."""

LOOK_EVERY: Final = timedelta(milliseconds=100)
FEED_EVERY: Final = timedelta(milliseconds=500)

DEATHS_ALLOWED: Final = 2
DEATHS_WITHIN: Final = timedelta(minutes=1)
RESTART_AFTER: Final = timedelta(seconds=1)


class StackError(Exception):
    """The stack cannot go on. The text is for the terminal."""


class BadOptions(StackError):
    """What was asked for cannot be; nothing was started."""


@dataclass(frozen=True, kw_only=True)
class DevOptions:
    """What the ``dev`` command can be told."""

    data_dir: Path = Path(".data")
    """Everything that is kept, and the logs. Made if absent. One stack at a time."""

    api_port: int = 8000
    temporal_port: int = 7233
    ui_port: int = 8233
    apply_jobs: Callable[[str], None] | None = None
    """Called once, in a thread, with the URL of the API when that is there; what it raises ends the stack, and is raised."""

    metrics_ports: str = field(
        default_factory=lambda: os.environ.get(variable_of("metrics_port"), _free_metrics_ports())
    )
    """Where the worker serves its metrics, as its setting spells it. Default: what the environment says, or the first port
    that is free from 9464 on. The API has them on its own port."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """One part of the stack."""

    command: ChildCommand
    is_ready: Callable[[], Awaitable[bool]]
    prepare: Callable[[], None] = lambda: None
    """Called before each start."""


def run_dev_stack(options: DevOptions) -> int:
    """Run until Ctrl-C, SIGTERM or SIGHUP. Answers the exit code: 0 then, 1 after a failure, 2 for what cannot be.

    Raises what ``apply_jobs`` does.

    Call it in the main thread of a process that has nothing else to do.
    """
    try:
        _check_ports(options)
        with _claimed(options.data_dir):
            asyncio.run(_run(options))
    except BadOptions as error:
        return _complain(error, EXIT_CODE)
    except (StackError, DevServerError) as error:
        return _complain(error, 1)
    return 0


async def _run(options: DevOptions) -> None:
    """Live until a signal or a failure, and leave nothing running."""
    stack = Stack()
    stop = _stop_at_signals(stack)
    living = asyncio.create_task(_live(stack, options))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({living, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        living.cancel()
        failure = (await asyncio.gather(living, return_exceptions=True))[0]
        _say("Stopping ...")
        await stack.stop()
    if isinstance(failure, ExceptionGroup):
        raise failure.exceptions[0]


async def _live(stack: "Stack", options: DevOptions) -> None:
    """Start everything, say where it is, and show runs for ever. Failures come as an ``ExceptionGroup``."""
    since = datetime.now(UTC)
    async with asyncio.TaskGroup() as group:
        _say(f"Starting Temporal on port {options.temporal_port} and its Web UI on port {options.ui_port} ...")
        await stack.start(_temporal(options), group)
        _say(f"Starting a worker, and the API on port {options.api_port} ...")
        await asyncio.gather(*(stack.start(service, group) for service in (_worker(options), _api(options))))
        async with httpx.AsyncClient(
            base_url=f"{_url(options.api_port)}/api/v1", timeout=30, headers=_credentials()
        ) as api:
            if not await _is_let_in(api):
                _say(
                    f"{_welcome(options)}None are shown: the API wants a key, and {KEY_VARIABLE} has none that is good."
                )
                return
            if options.apply_jobs is not None:
                # Whoever read our output may have gone; the stack goes on.
                with suppress(BrokenPipeError):
                    await asyncio.to_thread(options.apply_jobs, _url(options.api_port))
            _say(_welcome(options))
            await _show_runs(RunFeed(api, since=since))


class Stack:
    """The services that run. Temporal is the first to be started and the last to be stopped."""

    def __init__(self) -> None:
        self._running: dict[str, ChildProcess] = {}

    async def start(self, service: Service, group: asyncio.TaskGroup) -> None:
        """Start a service, wait until it is ready, and keep it running from then on."""
        process = await self._start_and_wait(service)
        group.create_task(self._keep(service, process))

    async def stop(self) -> None:
        """Stop all services, and kill what does not stop in time."""
        first, *others = self._running.values() or [None]
        await asyncio.gather(*(_stop(process) for process in others if process))
        if first:
            await _stop(first)

    def kill(self) -> None:
        """Kill all services at once."""
        for process in self._running.values():
            process.kill()

    async def _keep(self, service: Service, process: ChildProcess) -> None:
        deaths = deque[float](maxlen=DEATHS_ALLOWED + 1)
        loop = asyncio.get_running_loop()
        while True:
            await _until_ended(process)
            deaths.append(loop.time())
            _say(_obituary(process))
            if len(deaths) > DEATHS_ALLOWED and deaths[-1] - deaths[0] < DEATHS_WITHIN.total_seconds():
                raise StackError(f"{process.name} has died {len(deaths)} times within {DEATHS_WITHIN.seconds} seconds")
            await asyncio.sleep(RESTART_AFTER.total_seconds())
            process = await self._start_and_wait(service)
            _say(f"{process.name} is up again.")

    async def _start_and_wait(self, service: Service) -> ChildProcess:
        service.prepare()
        process = self._running[service.command.name] = ChildProcess(service.command)
        try:
            async with asyncio.timeout(READY_WITHIN.total_seconds()):
                await _until_ready(service, process)
        except TimeoutError:
            raise StackError(f"{process.name} was not ready within {READY_WITHIN.seconds} seconds") from None
        return process


def _temporal(options: DevOptions) -> Service:
    async def is_ready() -> bool:
        return await answers(options.temporal_port)

    server = DevServerOptions(
        data_dir=options.data_dir,
        port=options.temporal_port,
        ui_port=options.ui_port,
        codec_endpoint=f"{_url(options.api_port)}/codec"
        if os.environ.get(variable_of("encryption_keys_file"))
        else None,
    )
    return Service(command=temporal_command(server), is_ready=is_ready)


def _worker(options: DevOptions) -> Service:
    ready_file = options.data_dir.absolute() / "worker.ready"

    async def is_ready() -> bool:
        return ready_file.exists()

    return Service(
        command=_python_command(
            "worker", "workers", options, ready_file=str(ready_file), metrics_port=options.metrics_ports
        ),
        is_ready=is_ready,
        prepare=lambda: ready_file.unlink(missing_ok=True),
    )


def _api(options: DevOptions) -> Service:
    async def is_ready() -> bool:
        async with httpx.AsyncClient() as client:
            with suppress(httpx.HTTPError):
                return (await client.get(f"{_url(options.api_port)}/readyz")).is_success
        return False

    return Service(command=_python_command("api", "api", options, metrics_port="0"), is_ready=is_ready)


def _python_command(name: str, module: str, options: DevOptions, **settings: str) -> ChildCommand:
    """Say how a process of ours is started. ``-P``: no module of the working directory takes the place of one of ours."""
    return ChildCommand(
        name=name,
        arguments=[sys.executable, "-P", "-m", module],
        log_path=options.data_dir / f"{name}.log",
        environment=_environment(options, settings),
    )


def _environment(options: DevOptions, settings: Mapping[str, str]) -> dict[str, str]:
    """Make the settings of a child: where things are is ours to say, all else is the environment's.

    Temporal's own variables and profile may speak of another server, and are hidden.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TEMPORAL_")}
    data_dir = options.data_dir.absolute()
    ours = {
        "temporal_address": f"{LOOPBACK}:{options.temporal_port}",
        "temporal_namespace": "default",
        "ui_url": _url(options.ui_port),
        "api_host": LOOPBACK,
        "api_port": str(options.api_port),
        "role": Role.BOTH,
        **settings,
    }
    defaults = {
        variable_of("database_url"): f"sqlite:///{data_dir / 'horarium.sqlite'}",
        variable_of("graceful_shutdown"): str(GRACE.seconds),
        "TEMPORAL_CONFIG_FILE": str(data_dir / "no-profile.toml"),
    }
    return defaults | inherited | {variable_of(name): value for name, value in ours.items()}


async def _until_ended(process: ChildProcess) -> None:
    while process.exit_code() is None:  # noqa: ASYNC110 (a child's end sets no event)
        await asyncio.sleep(LOOK_EVERY.total_seconds())


async def _until_ready(service: Service, process: ChildProcess) -> None:
    while not await service.is_ready():
        if process.exit_code() is not None:
            raise StackError(_obituary(process))
        await asyncio.sleep(LOOK_EVERY.total_seconds())


async def _stop(process: ChildProcess) -> None:
    await asyncio.to_thread(process.stop, grace=STOP_WITHIN)


def _credentials() -> dict[str, str]:
    """What this process shows the API: once there are keys, it needs one as everybody does."""
    key = os.environ.get(KEY_VARIABLE, "").strip()
    return {"Authorization": f"Bearer {key}"} if key.isascii() and key else {}


async def _is_let_in(api: httpx.AsyncClient) -> bool:
    try:
        return (await api.get("/jobs", params={"limit": 1})).status_code != HTTPStatus.UNAUTHORIZED
    except httpx.HTTPError as error:
        raise StackError(f"the API does not answer: {error}") from error


async def _show_runs(feed: RunFeed) -> None:
    while True:
        # The API, or the database behind it, may be away for a moment; what happens meanwhile is shown afterwards.
        with suppress(httpx.HTTPError):
            async for line in feed.new_lines():
                _say(line)
        await asyncio.sleep(FEED_EVERY.total_seconds())


def _stop_at_signals(stack: Stack) -> asyncio.Event:
    """Make an event that the first signal sets. The second one kills all services."""
    stop = asyncio.Event()

    def obey() -> None:
        if stop.is_set():
            stack.kill()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # `nohup` has us ignore that the terminal is gone.
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, obey)
    return stop


@contextmanager
def _claimed(data_dir: Path) -> Iterator[None]:
    """Hold a data directory for this process alone, until it ends in whatever way."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        lock = (data_dir / "lock").open("w")
    except (FileExistsError, NotADirectoryError) as error:
        raise BadOptions(f"--data-dir {data_dir}: there is a file of that name; give a folder") from error
    except OSError as error:
        raise BadOptions(f"--data-dir {data_dir}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BadOptions(f"--data-dir {data_dir}: another stack is using it") from error
        yield


def _check_ports(options: DevOptions) -> None:
    ports = {"--temporal-port": options.temporal_port, "--ui-port": options.ui_port, "--api-port": options.api_port}
    seen: dict[int, str] = {}
    for option, port in ports.items():
        if port in seen:
            raise BadOptions(
                f"port {port} is wanted by both {seen[port]} and {option}; choose another one for one of them"
            )
        problem = why_not_usable(port) if 1 <= port <= 65535 else "not between 1 and 65535"
        if problem is not None:
            raise BadOptions(f"port {port} is {problem}; choose another one with {option}")
        seen[port] = option


def _free_metrics_ports() -> str:
    """Name the ports from the first free one on: another stack may take that before the worker does."""
    free = next((port for port in range(METRICS_PORTS.first, METRICS_PORTS.last) if why_not_usable(port) is None), None)
    return "0" if free is None else str(Ports(free, METRICS_PORTS.last))


def _obituary(process: ChildProcess) -> str:
    end = f"{process.name} {_describe_end(process.exit_code() or 0)}."
    tail = [f"  | {line}" for line in process.log_tail().splitlines()]
    if not tail:
        return f"{end} It has logged nothing."
    return "\n".join([f"{end} The end of {process.log_path}:", *tail])


def _describe_end(exit_code: int) -> str:
    return f"was killed by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"


def _welcome(options: DevOptions) -> str:
    return f"""
Horarium is up.
  API and its documentation  {_url(options.api_port)}/docs
  Temporal Web UI            {_url(options.ui_port)}
  Temporal server            {LOOPBACK}:{options.temporal_port}
  metrics                    {_url(options.api_port)}/metrics, and the worker's on port {options.metrics_ports.split("-")[0]}
  data and logs              {options.data_dir}
Ctrl-C stops everything; started again, it goes on where it was. Runs as they happen:
"""


def _url(port: int) -> str:
    return f"http://{LOOPBACK}:{port}"


def _complain(error: Exception, code: int) -> int:
    print(f"horarium dev: {error}", file=sys.stderr, flush=True)
    return code


def _say(text: str) -> None:
    # Whoever read our output may have gone; the stack goes on.
    with suppress(BrokenPipeError):
        print(text, flush=True)
