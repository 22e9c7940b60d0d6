"""The dashboard and the alert rules, as files: what Grafana and Prometheus would refuse is refused here."""

import re
from pathlib import Path

import pytest

from tests.monitoring_files import ALERTS, PROMETHEUS, dashboard, queries, rules
from tests.promql import BadQuery, check_with_promtool, metrics_in

OPERATING = Path(__file__).parents[2] / "docs" / "operating.md"


@pytest.mark.parametrize(("where", "query"), list(queries()))
def test_each_query_is_one(where: str, query: str) -> None:
    """And asks for something."""
    assert metrics_in(query), where


@pytest.mark.parametrize("query", ["sum(rate(a[5m])", "sum(a))", "a{b}", "a{b='c'}", "rate(a[5 m])", "a & b"])
def test_a_broken_query_is_found(query: str) -> None:
    """So that the test above means something."""
    with pytest.raises(BadQuery):
        metrics_in(query)


def test_metrics_are_told_from_words_and_labels() -> None:
    """By where they stand."""
    query = 'sum by (le) (rate(a_bucket{kind="b"}[$__rate_interval])) > 1 and max by (c) (d) == 0'
    assert metrics_in(query) == {"a_bucket", "d"}


def test_prometheus_takes_the_rules_and_the_configuration() -> None:
    """By its own tool, where that is installed."""
    check_with_promtool("rules", ALERTS)
    check_with_promtool("config", PROMETHEUS)


def test_panels_have_names_places_and_no_id_twice() -> None:
    """And none lies on another."""
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_every_alert_says_what_is_wrong_how_urgent_it_is_and_where_to_read_on() -> None:
    """The page that it names has a section for it."""
    sections = set(re.findall(r"^#+ (Horarium\w+)$", OPERATING.read_text(), re.MULTILINE))
    for rule in rules():
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["runbook"] == f"docs/operating.md#{rule['alert'].lower()}"
        assert rule["alert"] in sections
    assert sections == {rule["alert"] for rule in rules()}
