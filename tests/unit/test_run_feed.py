"""What a terminal shows of runs, against an API that is played."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from workers.run_feed import RunFeed

START = datetime(2026, 6, 8, 13, 0, tzinfo=UTC)


class PlayedApi:
    """One job, whose runs the test writes."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []
        self.reads = 0
        self.client = httpx.AsyncClient(transport=httpx.MockTransport(self._answer), base_url="http://api/api/v1")

    def put(self, run_id: str, **changes: Any) -> None:
        """Write a run, or change it."""
        before = next((run for run in self.runs if run["run_id"] == run_id), None)
        run = (before or make_run(run_id)) | changes
        self.runs = [run, *(other for other in self.runs if other is not before)]

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/runs"):
            self.reads += 1
            return httpx.Response(200, json=self.runs)
        newest = self.runs[0] if self.runs else {}
        job = {
            "job_id": "nightly",
            "active_runs": int(newest.get("status") == "retrying"),
            "last_run_id": newest.get("run_id"),
            "last_status": newest.get("status"),
            "last_finished_at": newest.get("finished_at"),
        }
        return httpx.Response(200, json=[job])


def make_run(run_id: str) -> dict[str, Any]:
    """Make a run that has succeeded."""
    return {
        "run_id": run_id,
        "job_id": "nightly",
        "kind": "scheduled",
        "status": "success",
        "created_at": START.isoformat(),
        "target_at": START.isoformat(),
        "started_at": (START + timedelta(milliseconds=120)).isoformat(),
        "finished_at": START.isoformat(),
        "attempt": 1,
        "max_attempts": 4,
        "stands_for": 1,
        "error": None,
        "reason": None,
        "of_a_later_release": 1,
    }


async def read(feed: RunFeed) -> list[str]:
    """Read new lines, less the time and its zone that each begins with."""
    lines = [line async for line in feed.new_lines()]
    assert all(re.match(r"\d\d:\d\d:\d\d [A-Z+-]\S*  ", line) for line in lines)
    return [line.partition("  ")[2] for line in lines]


async def test_a_run_is_one_line_with_its_lateness() -> None:
    """Job, status, attempt, lateness; and once."""
    api = PlayedApi()
    feed = RunFeed(api.client, since=START)
    api.put("r1")
    assert await read(feed) == ["nightly                  success   attempt 1/4, 0.12 s late"]
    assert await read(feed) == []


async def test_each_attempt_that_fails_is_a_line_with_its_error() -> None:
    """Line breaks of the error are not in it."""
    api = PlayedApi()
    feed = RunFeed(api.client, since=START)
    api.put("r1", status="retrying", error="ValueError: row 7\n  is odd")
    assert await read(feed) == ["nightly                  retrying  attempt 1/4, 0.12 s late, ValueError: row 7 is odd"]
    api.put("r1", status="retrying", attempt=2, error="ValueError: row 7")
    assert await read(feed) == ["nightly                  retrying  attempt 2/4, 0.12 s late, ValueError: row 7"]
    api.put("r1", status="success", attempt=3, error=None)
    assert await read(feed) == ["nightly                  success   attempt 3/4, 0.12 s late"]


async def test_a_run_that_no_worker_can_carry_out_is_a_line_with_the_reason() -> None:
    """Parked before any attempt counted; whoever has misspelt an activity looks at the terminal first."""
    api = PlayedApi()
    feed = RunFeed(api.client, since=START)
    api.put("r1", status="pending", attempt=0, started_at=None, reason="waits in the catch-up lane")
    assert await read(feed) == []
    api.put("r1", status="parked", attempt=0, started_at=None, reason="unknown_activity: tpyo is not registered")
    assert await read(feed) == ["nightly                  parked    unknown_activity: tpyo is not registered"]


async def test_a_run_that_catches_up_says_for_how_many_fires() -> None:
    """What was missed while the stack was down is explained."""
    api = PlayedApi()
    feed = RunFeed(api.client, since=START)
    api.put("r1", kind="catch_up", stands_for=40)
    assert await read(feed) == ["nightly                  success   attempt 1/4, 0.12 s late, catch-up, for 40 fires"]


async def test_runs_of_before_are_not_shown() -> None:
    """The terminal begins where the stack does."""
    api = PlayedApi()
    feed = RunFeed(api.client, since=START + timedelta(seconds=1))
    api.put("r1")
    assert await read(feed) == []


async def test_a_job_to_which_nothing_happened_is_not_read() -> None:
    """However many jobs there are, watching them costs one request."""
    api = PlayedApi()
    feed = RunFeed(api.client, since=START)
    api.put("r1")
    for _ in range(3):
        await read(feed)
    assert api.reads == 1
