"""The dashboard, the alert rules and the page on operating speak of metrics that there are."""

import re
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.monitoring_files import queries
from tests.promql import metrics_in
from tests.scrape import Scrape, scrape
from tests.telemetry_stack import TelemetryStack, telling

OPERATING = Path(__file__).parents[2] / "docs" / "operating.md"

ENOUGH = timedelta(seconds=40)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[TelemetryStack]:
    """A Horarium with something to tell."""
    folder = tmp_path_factory.mktemp("stack")
    url = f"sqlite:///{shutil.copy(sqlite_template, folder / 'horarium.sqlite')}"
    with telling(folder, database_url=url) as running:
        yield running


async def give_something_to_tell(stack: TelemetryStack) -> None:
    """A job that works, and one whose downstream is down. Registered once for all tests of this module."""
    async with stack.client() as client:
        if (await client.get("/jobs/works")).status_code == 200:
            return
    await stack.register("works", "charge", payload=1)
    await stack.register("calls-the-bank", "refuse", downstream="bank", max_retries=5)


async def told(stack: TelemetryStack) -> set[str]:
    """Name everything that any process tells."""
    return set().union(*[(await scrape(url)).names for url in stack.metrics.values()])


async def test_every_metric_that_is_asked_for_is_told(stack: TelemetryStack) -> None:
    """A panel that shows nothing, or an alert that never fires, because of a name that nobody has."""
    await give_something_to_tell(stack)
    wanted = {metric: where for where, query in queries() for metric in metrics_in(query)}

    async def all_told() -> bool:
        names = await told(stack)
        missing = {metric: where for metric, where in wanted.items() if metric not in names}
        assert not missing
        return True

    await eventually(all_told, limit=ENOUGH)


async def test_every_metric_of_ours_is_on_the_page_and_none_besides(stack: TelemetryStack) -> None:
    """With its unit in its name, as Prometheus has it."""
    await give_something_to_tell(stack)
    listed = set(re.findall(r"^\| `(horarium_\w+)`", OPERATING.read_text(), re.MULTILINE))

    async def agrees() -> bool:
        names = {re.sub(r"_(bucket|count|sum)$", "", name) for name in await told(stack)}
        assert {name for name in names if name.startswith("horarium_")} == listed
        return True

    await eventually(agrees, limit=ENOUGH)


async def test_a_downstream_that_is_left_alone_is_told(stack: TelemetryStack) -> None:
    """The open breaker and the runs that wait for it by every process that knows the installation, the rest by the scheduler."""
    await give_something_to_tell(stack)
    bank = {"tenant": "default", "downstream": "bank"}

    async def are_told() -> Scrape:
        for name in ("scheduler", "api"):
            seen = await scrape(stack.metrics[name])
            assert seen.total("horarium_open_breakers", **bank) == 1
            assert seen.total("horarium_parked_runs", tenant="default") == 1
        return await scrape(stack.metrics["scheduler"])

    seen = await eventually(are_told, limit=ENOUGH, every=timedelta(milliseconds=500))
    assert seen.total("horarium_breaker_openings_total", **bank) >= 1
    assert seen.total("horarium_retry_verdicts_total", **bank, verdict="retry") >= 1
    assert seen.total("horarium_retry_verdicts_total", **bank, verdict="park") >= 1
    assert seen.total("horarium_retry_verdicts_total", **bank, verdict="exhausted") == 0
    assert seen.total("horarium_probes_total", **bank, result="success") == 0
