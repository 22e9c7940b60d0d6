"""The files of monitoring that ship with Horarium: what they ask Prometheus."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).parents[1] / "temporal-dev" / "production" / "monitoring"

DASHBOARD: Final = FOLDER / "dashboard.json"
ALERTS: Final = FOLDER / "alerts.yaml"
PROMETHEUS: Final = FOLDER / "prometheus.yaml"


def dashboard() -> dict[str, Any]:
    """Read the dashboard."""
    read: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return read


def rules() -> list[dict[str, Any]]:
    """Read the alert rules."""
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def queries() -> Iterator[tuple[str, str]]:
    """List all queries, with where each stands."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield f"panel {panel['title']}", target["expr"]
    for rule in rules():
        yield f"alert {rule['alert']}", rule["expr"]
