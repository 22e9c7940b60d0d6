"""``horarium dev`` as a newcomer runs it: up, fires seen, down, up again, and nothing left behind."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.eventually import eventually
from tests.worker_process import environment
from workers.devserver import LOOPBACK, free_port

UP_WITHIN = timedelta(seconds=90)
DOWN_WITHIN = timedelta(seconds=30)

pytestmark = pytest.mark.timeout(300)


class DevProcess:
    """The command, in a session of its own as in a terminal."""

    def __init__(
        self, folder: Path, *options: str, ports: dict[str, int], command: Path | None = None, **settings: str
    ) -> None:
        self.ports = ports
        self.output = folder / "output.txt"
        arguments = [f"--{name}={port}" for name, port in ports.items()]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    command or Path(sys.executable).with_name("horarium"),
                    "dev",
                    "--data-dir",
                    folder / "data",
                    *arguments,
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environment(settings),
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        """All that it has written."""
        return self.output.read_text()

    async def api(self, method: str, path: str) -> Any:
        """Call the API, and read its answer."""
        async with httpx.AsyncClient(base_url=f"http://{LOOPBACK}:{self.ports['api-port']}/api/v1") as client:
            return (await client.request(method, path)).raise_for_status().json()

    def children(self) -> list[psutil.Process]:
        """List all that it has started."""
        return psutil.Process(self.process.pid).children(recursive=True)

    async def until_said(self, text: str, *, limit: timedelta = UP_WITHIN) -> None:
        """Wait for a text in what it writes."""

        def is_said() -> bool:
            if text in self.said:
                return True
            if self.process.poll() is not None:
                raise RuntimeError(f"it has ended:\n{self.said}")
            return False

        await eventually(is_said, limit=limit)

    async def ended(self, *, limit: timedelta = DOWN_WITHIN) -> int:
        """Wait for its end, and say its exit code."""
        await eventually(lambda: self.process.poll() is not None, limit=limit)
        return self.process.returncode


@contextmanager
def dev(
    folder: Path,
    *options: str,
    ports: dict[str, int] | None = None,
    command: Path | None = None,
    **settings: str,
) -> Iterator[DevProcess]:
    """Run the command, and leave nothing of it."""
    stack = DevProcess(folder, *options, ports=ports or free_ports(), command=command, **settings)
    try:
        yield stack
    finally:
        if stack.process.poll() is None:
            stack.process.kill()
            stack.process.wait()


def free_ports() -> dict[str, int]:
    """Choose ports for a stack, no two of them the same."""
    names = ("temporal-port", "ui-port", "api-port")
    ports: set[int] = set()
    while len(ports) < len(names):
        ports.add(free_port())
    return dict(zip(names, ports, strict=True))


async def are_gone(processes: list[psutil.Process]) -> None:
    """Wait until no process of a stack is left."""
    assert len(processes) >= 3
    await eventually(lambda: not any(process.is_running() for process in processes), limit=timedelta(seconds=10))


async def test_fires_are_seen_and_jobs_survive_the_stack(tmp_path: Path) -> None:
    """SIGTERM and Ctrl-C end all of it with exit code 0; started again, it goes on with the jobs that it had.

    The example jobs are applied: those that are as their file says are left alone, and one that was deleted comes again.
    """
    with dev(tmp_path) as first:
        await first.until_said("created weekly-report")
        await first.until_said("every-15-seconds         success   attempt 1/4")
        await first.until_said("fails-twice              success   attempt 3/4")
        await first.api("DELETE", "/jobs/fails-twice")
        await first.api("POST", "/jobs/weekly-report/pause")
        children = first.children()
        first.process.send_signal(signal.SIGTERM)
        assert await first.ended() == 0
        await are_gone(children)

    (tmp_path / "output.txt").rename(tmp_path / "first.txt")
    with dev(tmp_path) as second:
        await second.until_said("Horarium is up.")
        assert "created fails-twice\n1 created, 0 changed, 2 unchanged\n" in second.said
        jobs = {job["job_id"]: (job["state"], job["revision"]) for job in await second.api("GET", "/jobs")}
        assert jobs == {
            "every-15-seconds": ("active", 1),
            "fails-twice": ("active", 2),
            "weekly-report": ("paused", 1),
        }
        await second.until_said("every-15-seconds         success")
        children = second.children()
        # As a terminal does: to everybody in the foreground at once.
        os.killpg(second.process.pid, signal.SIGINT)
        assert await second.ended() == 0
        await are_gone(children)


async def test_a_child_that_dies_is_started_again_and_none_outlives_the_stack(tmp_path: Path) -> None:
    """A dead child is told with the end of its log, and jobs go on. After ``kill -9`` of the stack no orphan holds a port."""
    with dev(tmp_path) as stack:
        await stack.until_said("Horarium is up.")
        worker = next(child for child in stack.children() if child.cmdline()[-1] == "workers")
        worker.kill()
        await stack.until_said("worker was killed by signal 9. The end of")
        await stack.until_said("worker is up again.")
        await stack.until_said("every-15-seconds         success")
        children = stack.children()
        stack.process.kill()
        await are_gone(children)


async def test_job_code_that_cannot_be_imported_ends_the_stack(tmp_path: Path) -> None:
    """With the reason, exit code 1, and nothing left."""
    with dev(tmp_path, activities="no_such_module") as stack:
        assert await stack.ended(limit=UP_WITHIN) == 1
        assert "HORARIUM_ACTIVITIES: cannot import no_such_module" in stack.said
        assert "Traceback" not in stack.said


@pytest.mark.parametrize("option", ["temporal-port", "ui-port", "api-port"])
async def test_a_taken_port_is_one_line(tmp_path: Path, option: str) -> None:
    """Which port, and which option changes it; nothing is started."""
    with closing(socket.create_server((LOOPBACK, 0))) as taken:
        port = taken.getsockname()[1]
        with dev(tmp_path, ports=free_ports() | {option: port}) as stack:
            assert await stack.ended() == 2
            assert stack.said == f"horarium dev: port {port} is taken; choose another one with --{option}\n"


async def test_one_port_for_two_is_one_line(tmp_path: Path) -> None:
    """Said before either is in the other's way."""
    port = free_port()
    with dev(tmp_path, ports=free_ports() | {"ui-port": port, "api-port": port}) as stack:
        assert await stack.ended() == 2
        assert stack.said.startswith(f"horarium dev: port {port} is wanted by both --ui-port and --api-port;")


@pytest.mark.parametrize("place", ["data", "data/below"])
async def test_data_in_a_file_is_one_line(tmp_path: Path, place: str) -> None:
    """Which option, and what is wanted."""
    (tmp_path / "data").touch()
    with dev(tmp_path, "--data-dir", place) as stack:
        assert await stack.ended() == 2
        assert stack.said == f"horarium dev: --data-dir {place}: there is a file of that name; give a folder\n"


async def test_data_of_another_stack_is_left_alone(tmp_path: Path) -> None:
    """Two servers on one file would ruin it."""
    with dev(tmp_path, "--no-examples") as first:
        await first.until_said("Starting a worker")
        with dev(tmp_path) as second:
            assert await second.ended() == 2
        assert "another stack is using it" in first.said
