"""Names are looked up without one that hangs standing in the way of others."""

import asyncio
import gc
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpcore
import pytest

from activities.http_address import Allowance
from activities.http_connection import CheckedBackend, ResolverBusy, SystemResolver, resolve
from activities.http_target import HttpSender
from horarium.testing import run_job_async

ADDRESS = "8.8.8.8"


@dataclass
class System:
    """Looks names up: those that begin with ``dead`` or ``slow`` not until it is told to."""

    asked: list[str] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)

    def look_up(self, host: str, port: int, **_: Any) -> Any:
        """Stand in for ``socket.getaddrinfo``."""
        self.asked.append(host)
        if host.startswith(("dead", "slow")):
            self.go_on.wait(30)
        if host.startswith("dead"):
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ADDRESS, port))]


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    """The system, which lets go of everything when the test is over."""
    system = System()
    monkeypatch.setattr(socket, "getaddrinfo", system.look_up)
    yield system
    system.go_on.set()


async def give_up(resolver: SystemResolver, host: str, port: int = 80) -> None:
    """Look a name up and lose patience, as an attempt does."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await resolver.resolve(host, port)


async def test_a_name_that_hangs_takes_one_thread_however_often_it_is_asked_for(system: System) -> None:
    """On whatever ports, at once or one attempt after the other; nobody else is kept waiting."""
    resolver = SystemResolver(threads=2)
    await asyncio.gather(*(give_up(resolver, "dead.example", port) for port in range(1, 20)))
    await give_up(resolver, "dead.example")
    assert await resolver.resolve("bank.example", 443) == [ADDRESS]
    assert system.asked == ["dead.example", "bank.example"]


async def test_whoever_waits_for_the_same_name_outlives_whoever_gives_up(system: System) -> None:
    """An attempt that is cancelled ends its own waiting only; the next one after the answer asks anew."""
    resolver = SystemResolver(threads=1)
    waiting = asyncio.create_task(resolver.resolve("slow.example", 80))
    await give_up(resolver, "slow.example")
    system.go_on.set()
    assert await waiting == [ADDRESS]
    assert await resolver.resolve("slow.example", 80) == [ADDRESS]
    assert system.asked == ["slow.example"] * 2


async def test_an_answer_that_nobody_waits_for_any_more_is_nobodys_trouble(system: System) -> None:
    """The name server fails after all attempts have given up."""
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    resolver = SystemResolver(threads=1)
    await give_up(resolver, "dead.example")
    system.go_on.set()
    with pytest.raises(OSError, match="no answer"):
        await resolver.resolve("dead.example", 80)
    await asyncio.sleep(0.05)
    gc.collect()
    assert told == []


async def test_where_all_threads_hang_it_says_so_at_once(system: System) -> None:
    """It is none of the errors that a host is blamed for."""
    resolver = SystemResolver(threads=2)
    await asyncio.gather(give_up(resolver, "dead1.example"), give_up(resolver, "dead2.example"))
    backend = CheckedBackend(allowance=Allowance(), resolver=resolver.resolve)
    with pytest.raises(ResolverBusy, match="2 names"):
        await backend.connect_tcp("bank.example", 443, timeout=10)
    assert "bank.example" not in system.asked


async def test_many_dead_names_leave_room_for_others(system: System) -> None:
    """A team that calls forty of them stops nobody else."""
    backend = CheckedBackend(allowance=Allowance(), resolver=resolve)
    dead = [backend.connect_tcp(f"dead{number}.example", 80, timeout=0.5) for number in range(40)]
    waiting = asyncio.gather(*dead, return_exceptions=True)
    await asyncio.sleep(0)
    assert await resolve("bank.example", 443) == [ADDRESS]
    assert {type(error) for error in await waiting} == {httpcore.ConnectTimeout}


async def test_an_attempt_that_finds_no_thread_fails_by_a_name_of_its_own() -> None:
    """Which is classified as one that no downstream is to blame for, and made again."""

    async def refuse(host: str, port: int) -> list[str]:
        raise ResolverBusy("512 names are being looked up")

    sender = HttpSender(allowance=Allowance(), resolver=refuse)
    failure = (await run_job_async(sender.http_request, payload={"url": "http://bank.example/"})).failure
    assert failure is not None
    assert (failure.type, failure.retryable) == ("ResolverBusy", True)
    assert "512 names" in failure.message
