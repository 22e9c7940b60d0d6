"""What a process does for as long as it lives, and goes on with whatever goes wrong in a round."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from temporalio.service import RPCError, RPCStatusCode

from activities import downstream_store
from activities.downstream_store import DownstreamStore, reporting
from activities.hold_store import StoredHold
from api import app, calendar_service, hold_service
from api.calendar_service import CalendarService
from api.hold_service import HoldService
from tests.eventually import eventually
from tests.records import NOON
from workflows.downstream import GateReport
from workflows.error import Unavailable
from workflows.job import Hold

BAD_REQUEST = RPCError("no such thing", RPCStatusCode.INVALID_ARGUMENT, b"")


class Told:
    """Stands for stores and for what tells jobs; counts what is asked of it, and fails as the test says."""

    def __init__(self, *, fails: Callable[[str, int], bool]) -> None:
        self.asked: Counter[str] = Counter()
        self._fails = fails

    async def list_unfinished(self, **_: Any) -> list[StoredHold]:
        """Two holds."""
        self._ask("list")
        return [StoredHold(tenant="t", hold=Hold(hold_id=name, at=NOON)) for name in ("h_bad", "h_good")]

    async def list_carried(self) -> list[StoredHold]:
        """No more than those."""
        return []

    async def count_untold(self, _: StoredHold, **__: Any) -> int:
        """Someone is."""
        return 1

    async def spread(self, hold_id: str, **_: Any) -> None:
        """Have jobs told of a hold."""
        self._ask(hold_id)

    async def list_versions(self) -> list[tuple[str, str, int]]:
        """Two calendars."""
        self._ask("list")
        return [("t", "bad", 1), ("t", "good", 1)]

    async def find_outdated(self, _: str, name: str, __: int, *, after: str, **___: Any) -> list[str]:
        """Two jobs of each."""
        self._ask(name)
        return [] if after else [f"{name}-1", f"{name}-2"]

    async def renew_calendars(self, job_id: str, **_: Any) -> bool:
        """Tell a job."""
        self._ask(job_id)
        return True

    def _ask(self, name: str) -> None:
        self.asked[name] += 1
        if self._fails(name, self.asked[name]):
            raise BAD_REQUEST


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at once, and again at once."""
    for module in (hold_service, calendar_service):
        monkeypatch.setattr(module, "LOOK_EVERY", timedelta(milliseconds=1))


@asynccontextmanager
async def looking(told: Told, *, at: str) -> AsyncIterator[None]:
    """Let the loop run that a process has for its whole life."""
    parts: dict[str, Any] = {"store": told, "audit": None}
    loops: dict[str, Callable[[], Awaitable[None]]] = {
        "holds": HoldService(jobs=None, control=told, **parts).tell_jobs_for_ever,  # type: ignore[arg-type]
        "calendars": CalendarService(changes=told, **parts).tell_jobs_for_ever,  # type: ignore[arg-type]
    }
    looks = asyncio.ensure_future(loops[at]())
    try:
        yield
        assert not looks.done()
    finally:
        looks.cancel()


async def until_asked(told: Told, name: str, *, times: int) -> None:
    """Wait until something was asked so often."""

    await eventually(lambda: told.asked[name] >= times)


@pytest.mark.parametrize("at", ["holds", "calendars"])
async def test_a_look_that_fails_is_not_the_last(at: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever Temporal or the database had against it; and it is told once."""
    told = Told(fails=lambda name, times: name == "list" and times < 5)
    async with looking(told, at=at):
        await until_asked(told, "list", times=6)
    [record] = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is BAD_REQUEST


@pytest.mark.parametrize(
    ("at", "bad", "good"),
    [
        ("holds", "h_bad", "h_good"),
        ("calendars", "bad", "good-2"),
        ("calendars", "bad-1", "bad-2"),
        ("calendars", "bad-1", "good-1"),
    ],
)
async def test_one_that_always_fails_does_not_keep_the_others_from_being_told(at: str, bad: str, good: str) -> None:
    """Jobs of the other holds and calendars, and the other jobs of its own."""
    told = Told(fails=lambda name, _: name == bad)
    async with looking(told, at=at):
        await until_asked(told, good, times=3)
    assert told.asked[bad] >= 2


async def test_reports_of_downstreams_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """After one that could not be made or written."""
    monkeypatch.setattr(downstream_store, "REPORT_EVERY", timedelta(milliseconds=1))
    looks = 0

    def look(_: datetime) -> list[GateReport]:
        nonlocal looks
        looks += 1
        raise KeyError(looks)

    async with reporting(DownstreamStore(None), look):  # type: ignore[arg-type]
        await eventually(lambda: looks > 2)


class _Pruned:
    """Stands for a store that is pruned in vain, or not."""

    def __init__(self, error: Exception | None = None) -> None:
        self.times = 0
        self._error = error

    async def prune(self, **_: datetime) -> None:
        """Count it."""
        self.times += 1
        if self._error is not None:
            raise self._error


async def test_a_table_that_cannot_be_pruned_does_not_keep_the_others_from_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told, with what was to be forgotten."""
    monkeypatch.setattr(app, "FORGET_EVERY", timedelta(milliseconds=1))
    stores = [_Pruned(Unavailable("too slow")), _Pruned(KeyError("x")), _Pruned(Unavailable("too slow")), _Pruned()]
    forgetting = asyncio.ensure_future(app._forget(*stores, audit_kept=timedelta(days=90)))  # type: ignore[arg-type]
    await eventually(lambda: stores[-1].times > 2)
    assert not forgetting.done()
    forgetting.cancel()
    told = {record.getMessage(): record.levelname for record in caplog.records}
    assert told == {
        "old idempotency keys could not be forgotten": "WARNING",
        "old quota claims could not be forgotten": "ERROR",
        "old audit entries could not be forgotten": "WARNING",
    }
