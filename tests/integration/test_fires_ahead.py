"""The forecast over HTTP, on both databases, and for as many jobs as an installation has."""

import asyncio
import json
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert

from activities.database import open_database
from activities.mirror_row import job_row
from activities.queries import Queries
from activities.tables import JOBS
from api.forecast_service import ForecastService, read_horizon
from tests.api_stack import ApiStack
from tests.command import run
from tests.records import job_record
from tests.temporal_servers import unique
from workflows.fire_times import next_fires
from workflows.job import Hold, JobDefinition, JobRecord, Lifecycle, Pause
from workflows.schedule import CronRule, Schedule

NOON = datetime(2026, 6, 8, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def recorded(job_id: str, schedule: Schedule, **fields: Any) -> JobRecord:
    """A job whose next fire is as its planner found it."""
    [fire] = next_fires(schedule, job_id=job_id, after=NOON, count=1)
    values = {"next_run_at": fire.nominal, "next_target_at": fire.target} | fields
    definition = JobDefinition(name=job_id, schedule=schedule, payload="x" * 1_000)
    return job_record(job_id, definition=definition, **values)


async def write(url: str, records: list[JobRecord]) -> None:
    """Fill the mirror."""
    engine = open_database(url)
    async with engine.begin() as connection:
        for start in range(0, len(records), 1_000):
            await connection.execute(insert(JOBS), [job_row(each) for each in records[start : start + 1_000]])
    await engine.dispose()


async def test_the_mirror_says_all_that_is_needed(database_url: str) -> None:
    """Active jobs from their next fire on, paused ones from where they resume, held ones after the hold; others not at all."""
    hourly = Schedule(rule=CronRule(expression="30 * * * *"), time_critical=True)
    resumes = Pause(at=NOON, until=NOON + 5 * HOUR)
    hold = Hold(hold_id="h", at=NOON, until=NOON + 20 * HOUR)
    ends = {"next_run_at": NOON + 20.5 * HOUR, "next_target_at": NOON + 20.5 * HOUR}
    gone: dict[str, Any] = {"next_run_at": None, "next_target_at": None}
    await write(
        database_url,
        [
            recorded("active", hourly),
            recorded("held", hourly, holds=(hold,), **ends),
            recorded("held-for-good", hourly, holds=(Hold(hold_id="h", at=NOON),), **gone),
            recorded("paused-for-good", hourly, lifecycle=Lifecycle.PAUSED, pause=Pause(at=NOON), **gone),
            recorded("paused", hourly, lifecycle=Lifecycle.PAUSED, pause=resumes, **gone),
            recorded("paused-and-held", hourly, lifecycle=Lifecycle.PAUSED, pause=resumes, holds=(hold,), **gone),
            recorded("deleted", hourly, lifecycle=Lifecycle.DELETED, **gone),
            recorded("theirs", hourly, tenant="acme"),
        ],
    )
    engine = open_database(database_url)
    queries = Queries(engine)
    horizon = read_horizon(start=NOON, end=None, step="1h", now=NOON)
    answer = await ForecastService(queries=queries).forecast(horizon, tenant="default")
    await queries.close()
    await engine.dispose()
    expected = [1] * 5 + [2] * 15 + [4] * 4
    assert [step.fires for step in answer.steps] == expected
    assert (answer.complete, answer.exact_until) == (True, NOON + 24 * HOUR)


@pytest.mark.parametrize("count", [1_000, pytest.param(20_000, marks=pytest.mark.slow)])
async def test_thousands_of_jobs_are_counted_while_others_are_answered(sqlite_url: str, count: int) -> None:
    """Exactly, and the event loop is never held up for long."""
    expressions = [f"{minute} {minute % 24} * * *" for minute in range(60)] + ["0 * * * *", "*/5 * * * *"]
    schedules = [Schedule(rule=CronRule(expression=each), time_critical=True) for each in expressions]
    models = [recorded("model", each) for each in schedules]
    await write(
        sqlite_url,
        [models[number % 62].model_copy(update={"job_id": f"job-{number:05}"}) for number in range(count)],
    )
    expected: Counter[int] = Counter()
    for number in range(count):
        match number % 62:
            case 60:
                # What fires at noon was due a second before anybody asked.
                expected.update(range(1, 24))
            case 61:
                expected.update(dict.fromkeys(range(1, 24), 12) | {0: 11})
            case 0:
                expected[12] += 1
            case minute:
                expected[(minute % 24 - 12) % 24] += 1
    engine = open_database(sqlite_url)
    queries = Queries(engine)
    slowest, done = 0.0, asyncio.Event()

    async def watch() -> None:
        nonlocal slowest
        while not done.is_set():
            asked = time.monotonic()
            await asyncio.sleep(0.01)
            slowest = max(slowest, time.monotonic() - asked - 0.01)

    watching = asyncio.create_task(watch())
    horizon = read_horizon(start=NOON, end=None, step="1h", now=NOON + timedelta(seconds=1))
    answer = await ForecastService(queries=queries, within=timedelta(seconds=60)).forecast(horizon, tenant="default")
    done.set()
    await watching
    await queries.close()
    await engine.dispose()
    assert [step.fires for step in answer.steps] == [expected[hour] for hour in range(24)]
    assert answer.complete
    assert slowest < 1


async def test_a_forecast_that_has_no_time_says_what_it_left_out(sqlite_url: str) -> None:
    """The jobs that fire soonest are counted first, so that the beginning is exact."""
    daily = [Schedule(rule=CronRule(expression=f"0 {hour} * * *"), time_critical=True) for hour in range(24)]
    await write(sqlite_url, [recorded(f"j{number}", each) for number, each in enumerate(daily)])
    engine = open_database(sqlite_url)
    queries = Queries(engine)
    horizon = read_horizon(start=NOON, end=None, step="1h", now=NOON)
    answer = await ForecastService(queries=queries, within=timedelta(0)).forecast(horizon, tenant="default")
    await queries.close()
    await engine.dispose()
    assert (answer.complete, answer.jobs, answer.left_out) == (False, 0, 23)
    assert answer.exact_until == NOON + HOUR
    assert answer.steps[0].fires == 0


async def test_the_route_and_the_command_line_show_what_is_ahead(api_stack: ApiStack) -> None:
    """A job of a far minute of its own; bars for people, JSON for programs."""
    job_id = unique("job")
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(days=900)
    body = {"name": "noop", "job_id": job_id, "schedule": {"at": (start + HOUR / 2).isoformat()}}
    async with api_stack.client() as api:
        assert (await api.post("/jobs", json=body)).status_code == 201
        asked = {"from": start.isoformat(), "to": (start + 2 * HOUR).isoformat(), "step": "30m"}
        answer = (await api.get("/forecast", params=asked)).json()
        assert answer["step_seconds"] == 1_800
        assert len(answer["steps"]) == 4
        assert answer["complete"] is True
        wrong = await api.get("/forecast", params={"step": "1s"})
        assert wrong.status_code == 422
        assert wrong.json()["errors"][0]["parameter"] == "step"
    url = f"http://127.0.0.1:{api_stack.api.port}"
    options = ("--from", asked["from"], "--to", asked["to"], "--step", "30m")
    shown = run("forecast", *options, url=url).stdout
    assert f"{start + HOUR / 2:%a %Y-%m-%d %H:%M}" in shown
    assert json.loads(run("forecast", *options, "--json", url=url).stdout)["step_seconds"] == 1_800
    assert "step: at least 60 seconds" in run("forecast", "--step", "1s", url=url, expect=2).stderr
