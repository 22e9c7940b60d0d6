"""Files of ``temporal-dev`` that must agree with the code."""

import re
from itertools import pairwise
from pathlib import Path

import yaml

from workers.devserver import DevServerOptions, temporal_command
from workflows.contracts import SEARCH_ATTRIBUTES

FOLDER = Path(__file__).parents[2] / "temporal-dev"


def test_the_script_registers_the_search_attributes_that_jobs_set(tmp_path: Path) -> None:
    """As the development server is told to, name by name and type by type."""
    script = (FOLDER / "search-attributes.sh").read_text()
    in_script = re.findall(r"--name (\w+) --type (\w+)", script)
    arguments = temporal_command(DevServerOptions(data_dir=tmp_path)).arguments
    at_start = [tuple(value.split("=")) for name, value in pairwise(arguments) if name == "--search-attribute"]
    assert in_script == at_start
    assert [name for name, _ in in_script] == [key.name for key in SEARCH_ATTRIBUTES]


def test_the_development_server_reads_timers_as_a_cluster_of_ones_own_is_told_to(tmp_path: Path) -> None:
    """Whoever gives other settings, of fairness say, keeps it, and can change it."""
    production = yaml.safe_load((FOLDER / "production" / "dynamicconfig.yaml").read_text())
    key = "history.queueReaderStuckCriticalAttempts"
    [wanted] = [each["value"] for each in production[key]]
    for given, value in (({}, wanted), ({"matching.enableFairness": "true"}, wanted), ({key: "3"}, 3)):
        arguments = temporal_command(DevServerOptions(data_dir=tmp_path, dynamic_config=given)).arguments
        told = {value for name, value in pairwise(arguments) if name == "--dynamic-config-value"}
        assert told == {f"{name}={value}" for name, value in ({key: value} | given).items()}


def test_the_sketch_starts_what_there_is() -> None:
    """Commands and settings of the compose file exist."""
    sketch = yaml.safe_load((FOLDER / "production" / "compose.yaml").read_text())
    services = sketch["services"]
    assert services["scheduler"]["command"] == services["jobs"]["command"] == ["horarium", "worker"]
    assert services["api"]["command"] == ["horarium", "api"]
    from workers.settings import Settings, variable_of

    known = {variable_of(field) for field in Settings.model_fields}
    used = {
        name for service in services.values() for name in service.get("environment", {}) if name.startswith("HORARIUM_")
    }
    assert used <= known
