"""Metrics as Prometheus reads them, from real processes that are really killed."""

import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.databases import TEMPLATE, PostgresServer
from tests.eventually import eventually
from tests.scrape import Scrape, scrape
from tests.telemetry_stack import TEAM_QUEUE, TelemetryStack, telling
from tests.worker_process import run_to_end
from workers.devserver import free_port
from workers.metrics_endpoint import MetricsPage, MetricsServer
from workers.settings import Ports

OLDEST = "horarium_task_queue_oldest_age_seconds"


@pytest.fixture(scope="module")
def whole_stack(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[TelemetryStack]:
    """A Horarium for two tests: the first looks at all of it, the second ends a worker."""
    folder = tmp_path_factory.mktemp("telling")
    database = shutil.copy(sqlite_template, folder / "horarium.sqlite")
    with telling(folder, database_url=f"sqlite:///{database}") as running:
        yield running


@pytest.fixture
def stack(tmp_path: Path, sqlite_url: str) -> Iterator[TelemetryStack]:
    """A Horarium of the test's own, to be broken."""
    with telling(tmp_path, database_url=sqlite_url) as running:
        yield running


@pytest.fixture
def stack_on_postgres(tmp_path: Path, postgres_of_its_own: PostgresServer) -> Iterator[TelemetryStack]:
    """The same, on a database that may be killed too."""
    with telling(tmp_path, database_url=postgres_of_its_own.url(TEMPLATE)) as running:
        yield running


async def test_every_process_serves_its_metrics_and_those_of_the_installation(whole_stack: TelemetryStack) -> None:
    """The API on its own port, workers on theirs; what a process knows nothing of, it does not tell."""
    stack = whole_stack
    await stack.register("works", "charge", payload=1, schedule="@every 1s")
    await stack.register("fails", "refuse", max_retries=0)

    async def has_counted() -> Scrape:
        seen = await scrape(stack.metrics["scheduler"])
        assert seen.total("horarium_runs_total", status="success", kind="scheduled") >= 2
        assert seen.total("horarium_runs_total", status="dead", tenant="default") == 1
        return seen

    async def shows_both(name: str) -> Scrape:
        seen = await scrape(stack.metrics[name])
        assert seen.total("horarium_jobs", state="active") == 1
        assert seen.total("horarium_jobs", state="completed") == 1
        return seen

    await eventually(has_counted)
    scheduler, api = [await eventually(partial(shows_both, name)) for name in ("scheduler", "api")]
    team = await scrape(stack.metrics["team"])
    for name, process in (("scheduler", scheduler), ("job", team), ("api", api)):
        assert process.has("target_info", service_name=f"horarium-{name}")
        assert {"process_cpu_seconds_total", "process_resident_memory_bytes"} <= process.names
        assert any(metric.startswith("temporal_") for metric in process.names)
    assert {metric for metric in team.names if metric.startswith("horarium_")} == {"horarium_build_info"}
    assert team.total("temporal_worker_task_slots_available") > 0
    for process in (scheduler, api):
        assert process.has(OLDEST, task_queue=TEAM_QUEUE, kind="activity")
        assert process.total("horarium_source_up") == 2
        assert process.total("horarium_mirror_rows_written_total") > 0
    assert api.total("http_server_request_duration_seconds_count", http_route="/api/v1/jobs") == 2
    begun = scheduler.total("horarium_start_lateness_seconds_count")
    assert abs(scheduler.total("horarium_fires_total", outcome="ran") - begun) <= 1  # read while it is counted
    assert scheduler.total("horarium_attempts_total", status="failed") == 1


async def test_a_killed_workers_queue_tells_for_how_long_its_oldest_run_has_waited(whole_stack: TelemetryStack) -> None:
    """What autoscaling looks at is told by who lives, and grows while nobody comes."""
    stack = whole_stack
    await stack.register("waits", "charge", payload=1, schedule="@every 1s", overlap="allow")
    await eventually(lambda: _has_run(stack, "waits"))
    stack.team.signal(signal.SIGKILL)
    await stack.team.ended()

    ages: list[float] = []

    async def has_grown() -> bool:
        age = (await scrape(stack.metrics["api"])).total(OLDEST, task_queue=TEAM_QUEUE, kind="activity")
        if age > max(ages, default=0.0):
            ages.append(age)
        return len(ages) >= 2

    await eventually(has_grown, limit=timedelta(seconds=60), every=timedelta(milliseconds=500))
    assert ages[-1] - ages[0] > 3
    api, scheduler = await scrape(stack.metrics["api"]), await scrape(stack.metrics["scheduler"])
    assert api.total("horarium_task_queue_backlog", task_queue=TEAM_QUEUE) >= 1
    assert scheduler.total("horarium_task_queue_backlog", task_queue=TEAM_QUEUE) >= 1


async def test_gauges_come_from_what_is_there_and_go_with_it(stack: TelemetryStack) -> None:
    """SB-095, SB-166: without a scheduler jobs are told to be overdue, and no other gauge changes; nothing is negative, and a
    deleted job leaves no series behind."""
    await stack.register("here", "charge", payload=1, schedule="@every 1s")
    await eventually(lambda: _has_run(stack, "here"))
    stack.scheduler.signal(signal.SIGKILL)
    await stack.scheduler.ended()

    async def lags() -> Scrape:
        seen = await scrape(stack.metrics["api"])
        assert seen.total("horarium_scheduling_lag_seconds") > 5
        return seen

    seen = await eventually(lags, limit=timedelta(seconds=40), every=timedelta(milliseconds=500))
    assert seen.total("horarium_jobs", tenant="default", state="active") == 1
    with stack.another_scheduler() as scheduler:
        await scheduler.until_ready()
        async with stack.client() as client:
            assert (await client.delete("/jobs/here")).status_code == 200

        async def is_gone() -> Scrape:
            seen = await scrape(stack.metrics["api"])
            assert not seen.has("horarium_jobs")
            assert not seen.has(OLDEST, task_queue=TEAM_QUEUE)
            return seen

        seen = await eventually(is_gone, limit=timedelta(seconds=30), every=timedelta(milliseconds=500))
    ours = {key: value for key, value in seen.values.items() if key[0].startswith("horarium_")}
    assert ours
    assert not {key: value for key, value in ours.items() if value < 0}


async def test_a_database_that_is_away_is_told_and_jobs_are_counted_all_the_same(
    stack_on_postgres: TelemetryStack, postgres_of_its_own: PostgresServer
) -> None:
    """Gauges that come from it have no value; fires go on, and so does their counting. Back again, all is well."""
    stack = stack_on_postgres
    await stack.register("goes-on", "charge", payload=1, schedule="@every 1s")
    await eventually(lambda: _has_run(stack, "goes-on"))
    assert (await scrape(stack.metrics["scheduler"])).has(OLDEST, task_queue=TEAM_QUEUE)
    postgres_of_its_own.kill()

    async def is_told() -> Scrape:
        seen = await scrape(stack.metrics["scheduler"])
        assert seen.total("horarium_source_up", source="database") == 0
        assert seen.total("horarium_mirror_lag_seconds") > 0
        return seen

    before = await eventually(is_told, limit=timedelta(seconds=40))
    assert not before.has("horarium_jobs")
    assert before.has(OLDEST, task_queue=TEAM_QUEUE)

    async def goes_on() -> bool:
        seen = await scrape(stack.metrics["scheduler"])
        return seen.total("horarium_fires_total") >= before.total("horarium_fires_total") + 2

    await eventually(goes_on)
    postgres_of_its_own.start()

    async def is_well() -> bool:
        seen = await scrape(stack.metrics["scheduler"])
        return seen.total("horarium_source_up") == 2 and seen.total("horarium_mirror_lag_seconds") == 0

    await eventually(is_well, limit=timedelta(seconds=40), every=timedelta(milliseconds=500))


async def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    """Before anything is connected to; exit code 2."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        code, said = await run_to_end(tmp_path, metrics_port=str(port))
    assert code == 2
    assert said.splitlines() == [f"HORARIUM_METRICS_PORT: cannot listen on 127.0.0.1:{port}: Address already in use"]


async def test_processes_on_one_machine_share_a_range() -> None:
    """Each takes the first port that is free."""
    first = free_port()
    page = MetricsPage()
    servers = [MetricsServer(page, host="127.0.0.1", ports=Ports(first, first + 50)) for _ in range(3)]
    try:
        assert len({server.url for server in servers}) == 3
        for server in servers:
            assert "process_cpu_seconds_total" in (await scrape(server.url)).names
            async with httpx.AsyncClient() as client:
                assert (await client.get(server.url.replace("/metrics", "/elsewhere"))).status_code == 404
    finally:
        for server in servers:
            server.close()


async def _has_run(stack: TelemetryStack, job_id: str) -> bool:
    async with stack.client() as client:
        runs = (await client.get(f"/jobs/{job_id}/runs", params={"status": "success"})).json()
    return len(runs) > 0
