"""A child on the leash ends with its parent, in both ways that there are."""

import asyncio
import sys
from pathlib import Path

import psutil
import pytest

from tests.eventually import eventually

REPOSITORY = Path(__file__).parents[2]

SLEEP = ["-c", "import time; time.sleep(600)"]

PARENT = f"""
import os, subprocess, sys, time
command = [sys.executable, "-c", sys.argv[1], str(os.getpid()), sys.executable, *{SLEEP}]
child = subprocess.Popen(command)
time.sleep(600)
"""

BY_KERNEL = "import sys; from workers.leash import main; sys.exit(main(int(sys.argv[1]), sys.argv[2:]))"
BY_WATCHING = "import sys; from workers.leash import watch; sys.exit(watch(int(sys.argv[1]), sys.argv[2:]))"


@pytest.mark.parametrize(
    "way",
    [pytest.param(BY_KERNEL, marks=pytest.mark.skipif(sys.platform != "linux", reason="Linux alone")), BY_WATCHING],
)
async def test_a_child_ends_when_its_parent_is_killed(way: str) -> None:
    """Whatever it was doing."""
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, way, cwd=REPOSITORY)

    def sleepers() -> list[psutil.Process]:
        children = psutil.Process(parent.pid).children(recursive=True)
        return [child for child in children if child.cmdline()[1:] == SLEEP]

    [child] = await eventually(sleepers)
    parent.kill()
    await parent.wait()
    await eventually(lambda: not child.is_running())
