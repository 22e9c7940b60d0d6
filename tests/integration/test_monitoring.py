"""The dashboard, the alert rules and the page on operating speak of metrics that there are."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.monitoring_files import queries
from tests.promql import metrics_in
from tests.scrape import scrape
from tests.telemetry_stack import TelemetryStack, telling

OPERATING = Path(__file__).parents[2] / "docs" / "operating.md"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[TelemetryStack]:
    """A Horarium with something to tell."""
    folder = tmp_path_factory.mktemp("stack")
    url = f"sqlite:///{shutil.copy(sqlite_template, folder / 'horarium.sqlite')}"
    with telling(folder, database_url=url) as running:
        yield running


async def told(stack: TelemetryStack) -> set[str]:
    """Name everything that any process tells."""
    return set().union(*[(await scrape(url)).names for url in stack.metrics.values()])


async def test_every_metric_that_is_asked_for_is_told(stack: TelemetryStack) -> None:
    """A panel that shows nothing, or an alert that never fires, because of a name that nobody has."""
    await stack.register("asked", "charge", payload=1)
    wanted = {metric: where for where, query in queries() for metric in metrics_in(query)}

    async def all_told() -> bool:
        names = await told(stack)
        missing = {metric: where for metric, where in wanted.items() if metric not in names}
        assert not missing
        return True

    await eventually(all_told)


async def test_every_metric_of_ours_is_on_the_page_and_none_besides(stack: TelemetryStack) -> None:
    """With its unit in its name, as Prometheus has it."""
    await stack.register("listed", "charge", payload=1)
    listed = set(re.findall(r"^\| `(horarium_\w+)`", OPERATING.read_text(), re.MULTILINE))

    async def agrees() -> bool:
        names = {re.sub(r"_(bucket|count|sum)$", "", name) for name in await told(stack)}
        assert {name for name in names if name.startswith("horarium_")} == listed
        return True

    await eventually(agrees)
