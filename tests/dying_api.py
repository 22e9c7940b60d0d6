"""The API for tests that kill it in the middle of a request: ``python -m tests.dying_api``.

A request says itself where its process is to die: ``Fault-At: 3`` is before its fourth step, ``Fault-At: told-temporal`` before
the first step after Temporal was told something. A step is a transaction's commit, a command to Temporal, or the
beginning of the answer: nothing else that a request does is to be seen when it is dead. Production's code knows nothing of this.

The process that imports everything once is forked for each API, so that one costs a fraction of a second.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, NoReturn

from fastapi import FastAPI
from sqlalchemy import Connection, event
from sqlalchemy.engine import Engine
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from temporalio.client import (
    Interceptor,
    OutboundInterceptor,
    StartWorkflowInput,
    StartWorkflowUpdateInput,
    WorkflowHandle,
    WorkflowUpdateHandle,
)

import api.app
import api.server
import workers.call_trace
import workers.connection
from tests.worker_process import environment
from workers.devserver import free_port
from workers.process import run_process, settings_of_environment
from workers.settings import Settings

HEADER: Final = "Fault-At"

TOLD_TEMPORAL: Final = "told-temporal"


class Fuse:
    """Counts the steps of one request."""

    def __init__(self, at: str) -> None:
        self._left = None if at == TOLD_TEMPORAL else int(at)

    def burn(self) -> None:
        """Die, or come a step nearer to it."""
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._left is not None:
            self._left -= 1

    def note_command(self) -> None:
        """Temporal was told something."""
        if self._left is None:
            self._left = 0


FUSE: ContextVar[Fuse | None] = ContextVar("fuse", default=None)


def step(*_: object) -> None:
    """Take a step of the request that this is part of, if it is one that is to die."""
    fuse = FUSE.get()
    if fuse is not None:
        fuse.burn()


def note_command() -> None:
    """Note a command that Temporal has taken."""
    fuse = FUSE.get()
    if fuse is not None:
        fuse.note_command()


class Steps(OutboundInterceptor):
    """Commands to Temporal are steps."""

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        step()
        handle = await super().start_workflow(input)
        note_command()
        return handle

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:
        step()
        handle = await super().start_workflow_update(input)
        note_command()
        return handle


class StepInterceptor(Interceptor):
    """Makes them steps."""

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return Steps(next)


class FaultAt:
    """Middleware that lays the fuse."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        at = dict(scope.get("headers", [])).get(HEADER.lower().encode())
        if at is not None:
            FUSE.set(Fuse(at.decode()))

        async def send_as_step(message: Message) -> None:
            if message["type"] == "http.response.start":
                step()
            await send(message)

        await self._app(scope, receive, send_as_step)


def create_dying_app(settings: Settings, **others: Any) -> FastAPI:
    """Make the application, with a fuse."""
    app = api.app.create_app(settings, **others)
    app.add_middleware(FaultAt)
    return app


def lay_fuses() -> None:
    """Put steps into what every request goes through."""
    event.listen(Engine, "commit", _step_before_commit)
    interceptors = workers.call_trace.client_interceptors
    vars(workers.connection)["client_interceptors"] = lambda: [*interceptors(), StepInterceptor()]
    vars(api.server)["create_app"] = create_dying_app


def _step_before_commit(_: Connection) -> None:
    step()


class DyingApis:
    """Starts APIs that may die. To be used as a context manager; ends them all."""

    def __init__(self, folder: Path, *, address: str, database_url: str) -> None:
        self._folder = folder
        self._given = {"database_url": database_url}
        self._address = address

    def start(self) -> str:
        """Start one; answers its URL, where it will soon listen."""
        port = free_port()
        settings = environment({**self._given, "api_port": str(port)}) | {"TEMPORAL_ADDRESS": self._address}
        changed = {name: value for name, value in settings.items() if name.startswith(("HORARIUM_", "TEMPORAL_"))}
        assert self._zygote.stdin is not None
        self._zygote.stdin.write(json.dumps(changed) + "\n")
        self._zygote.stdin.flush()
        return f"http://127.0.0.1:{port}"

    def log(self) -> str:
        """What they said."""
        return (self._folder / "dying-api.log").read_text()

    def __enter__(self) -> "DyingApis":
        with (self._folder / "dying-api.log").open("ab") as log:
            self._zygote = subprocess.Popen(
                [sys.executable, "-m", "tests.dying_api"],
                cwd=Path(__file__).parents[1],
                env=environment({}),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._zygote.stdin is not None
        with suppress(BrokenPipeError):
            self._zygote.stdin.close()
        self._zygote.wait()


def main() -> NoReturn:
    """Fork an API for each line of settings; end them all when no more can come."""
    lay_fuses()
    children: list[int] = []
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the dead
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            serve_api(json.loads(line))
        children.append(child)
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    os._exit(0)


def serve_api(settings: dict[str, str]) -> NoReturn:
    """Be an API."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.update(settings)
    run_process(settings_of_environment(), api.server.serve)


if __name__ == "__main__":
    main()
