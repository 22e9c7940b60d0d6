"""Where recorded histories and states are, and how they are read and written.

A history is what the server kept of one run of a workflow; a state is the JSON of an argument that a workflow was given. Both
are named by the logic version that made them and by a scenario.
"""

import gzip
import json
from pathlib import Path

from temporalio.client import WorkflowHistory

HISTORIES = Path(__file__).parent / "histories"
STATES = Path(__file__).parent / "states"


def history_path(workflow: str, name: str) -> Path:
    """Where a history of a workflow class is kept."""
    return HISTORIES / workflow / f"{name}.json.gz"


def state_path(value: str, name: str) -> Path:
    """Where the JSON of a value of a class is kept."""
    return STATES / value / f"{name}.json"


def list_histories() -> list[Path]:
    """All recorded histories."""
    return sorted(HISTORIES.glob("*/*.json.gz"))


def scenario_of(path: Path) -> str:
    """Name the scenario that a recording is of."""
    parts = path.name.partition(".")[0].split("-")[1:]
    return "-".join(parts[:-1] if parts[-1].isdigit() else parts)


def list_recordings(version: int, scenario: str) -> list[Path]:
    """All that was recorded of a scenario under a logic version: histories and states."""
    recorded = (path for path in (*list_histories(), *list_states()) if path.name.startswith(f"{version}-{scenario}"))
    return [path for path in recorded if scenario_of(path) == scenario]


def list_states() -> list[Path]:
    """All recorded states."""
    return sorted(STATES.glob("*/*.json"))


def read_history(path: Path) -> WorkflowHistory:
    """Read a history."""
    return WorkflowHistory.from_json(path.name, gzip.decompress(path.read_bytes()).decode())


def write_history(path: Path, history: WorkflowHistory) -> None:
    """Write a history, the same bytes for the same events."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(history.to_json_dict(), separators=(",", ":"), sort_keys=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def write_state(path: Path, data: bytes) -> None:
    """Write a state, indented for people."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(json.loads(data), indent=1, sort_keys=True) + "\n")
