"""What a Prometheus would read of a process."""

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from tests.api_server import http_client


@dataclass(frozen=True)
class Scrape:
    """One reading: the value of each series."""

    values: Mapping[tuple[str, frozenset[tuple[str, str]]], float]

    @property
    def names(self) -> set[str]:
        """Names of metrics, as queries use them."""
        return {name for name, _ in self.values}

    def series(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        """All series of a metric, by their labels."""
        return {labels: value for (found, labels), value in self.values.items() if found == name}

    def total(self, name: str, **labels: str) -> float:
        """Add up the series of a metric that have these labels; 0 where there is none."""
        wanted = set(labels.items())
        return sum(value for found, value in self.series(name).items() if wanted <= found)

    def has(self, name: str, **labels: str) -> bool:
        """Whether there is such a series."""
        wanted = set(labels.items())
        return any(wanted <= found for found in self.series(name))


async def scrape(url: str) -> Scrape:
    """Read a process. Fails where what it says is not what Prometheus takes."""
    async with http_client() as client:
        answer = (await client.get(url)).raise_for_status()
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in values, f"{key} is there twice"
            values[key] = sample.value
    return Scrape(values)
