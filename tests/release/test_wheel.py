"""What a wheel holds is all that a team needs: built, installed outside of the checkout, and run in an empty folder."""

import re
import shutil
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_dev_stack import are_gone, dev
from tests.release.frozen import REPOSITORY
from tests.release.wheel import Installation, build_wheels, install_wheels
from tests.worker_process import environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PACKAGES = ("workflows", "activities", "workers", "api")
NEEDED = (*PACKAGES, "temporal-dev", "pyproject.toml", "README.md")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Built from a copy of the sources: a build leaves traces where it is made."""
    folder = tmp_path_factory.mktemp("wheels")
    tree = folder / "tree"
    for name in NEEDED:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
        else:
            shutil.copy(source, tree / name)
    return build_wheels(tree, folder / "wheels")


@pytest.fixture(scope="module")
def installed(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """The wheels in an environment of their own."""
    return install_wheels(wheels, tmp_path_factory.mktemp("installed") / "environment")


def files_in(wheel: Path) -> set[str]:
    """What a wheel brings, less what describes it."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def modules_of(*packages: str, at: Path) -> Iterator[str]:
    """What is to be in a wheel of the code."""
    for package in packages:
        for path in (at / package).rglob("*"):
            if path.suffix in {".py", ".mako"} or path.name == "py.typed":
                yield path.relative_to(at).as_posix()


def test_the_wheels_hold_all_of_the_code_and_nothing_else(wheels: list[Path]) -> None:
    """Migrations and data included; the SDK, which is a distribution of its own, is in its own wheel only."""
    sdk, server = wheels
    code = {name for name in modules_of(*PACKAGES, at=REPOSITORY) if not name.startswith("activities/sdk/")}
    data = {re.sub(r"^[^/]+\.data/data/", "", name) for name in files_in(server) if ".data/" in name}
    assert {name for name in files_in(server) if ".data/" not in name} == code
    assert "activities/migrations/versions/0001_first_tables.py" in code
    assert data == {
        "share/horarium/jobs.yaml",
        "share/horarium/search-attributes.sh",
        *(f"share/horarium/monitoring/{name}" for name in ("alerts.yaml", "dashboard.json", "prometheus.yaml")),
    }
    at = REPOSITORY / "activities" / "sdk"
    schemas = {
        f"{sdk.name.removesuffix('-py3-none-any.whl')}.data/data/share/horarium/schemas/{path.name}"
        for path in (at / "schemas").glob("*.json")
    }
    assert files_in(sdk) == {*modules_of("horarium", at=at), "horarium_pytest.py", *schemas}


def test_what_is_imported_is_what_was_installed(installed: Installation) -> None:
    """So that the tests below are about the wheels."""
    assert all(origin.is_relative_to(installed.folder) for origin in installed.origins().values())
    said = subprocess.run([installed.command, "--version"], capture_output=True, text=True, check=True).stdout
    project = (REPOSITORY / "pyproject.toml").read_text()
    assert f'version = "{said.removeprefix("horarium ").strip()}"' in project


async def test_horarium_dev_runs_in_an_empty_folder(installed: Installation, tmp_path: Path) -> None:
    """With its example jobs; and without, started again."""
    with dev(tmp_path, command=installed.command) as stack:
        await stack.until_said("created weekly-report")
        await stack.until_said("every-15-seconds         success")
        children = stack.children()
        stack.process.send_signal(signal.SIGTERM)
        assert await stack.ended() == 0
        await are_gone(children)

    empty = tmp_path / "empty"
    empty.mkdir()
    with dev(empty, "--no-examples", command=installed.command) as stack:
        await stack.until_said("Horarium is up.")
        assert await stack.api("GET", "/jobs") == []
        stack.process.send_signal(signal.SIGTERM)
        assert await stack.ended() == 0


def test_schemas_for_other_languages_can_be_written(installed: Installation, tmp_path: Path) -> None:
    """By the SDK alone, the same as it ships."""
    subprocess.run(
        [installed.python, "-P", "-m", "horarium.wire_schema", str(tmp_path)],
        cwd=tmp_path,
        env=environment({}),
        check=True,
    )
    written = {path.name: path.read_text() for path in tmp_path.glob("*.json")}
    assert written == {path.name: path.read_text() for path in (REPOSITORY / "activities/sdk/schemas").glob("*.json")}
