"""``horarium mirror``, by command line."""

import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta

import pytest

from activities.mirror_writer import MirrorWriter, WriterOptions
from api.cli import _run as run_command
from tests.api_stack import ApiStack
from tests.integration.test_cli_keys import run_aside
from tests.records import run_record
from workflows.job import MirrorBatch
from workflows.run import RunStatus


def command(*arguments: str, monkeypatch: pytest.MonkeyPatch, **settings: str) -> int:
    """Run a command in this process; answers its exit code."""
    monkeypatch.setattr(sys, "argv", ["horarium", *arguments])
    for name, value in settings.items():
        monkeypatch.setenv(f"HORARIUM_{name.upper()}", value)
    return run_command()


def test_what_a_purge_would_forget_is_counted_and_then_forgotten(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without Temporal; by the retention that the settings say."""
    asyncio.run(add_run(sqlite_url, ended=datetime.now(UTC) - timedelta(days=10)))

    def purge(*options: str, retention: str = "P7D") -> str:
        code = command(
            "mirror", "purge", *options, monkeypatch=monkeypatch, database_url=sqlite_url, run_retention=retention
        )
        shown = capsys.readouterr()
        assert code == 0, shown.err
        return shown.out

    assert json.loads(purge("--json", retention="P90D"))["runs"] == 0
    dry = purge("--dry-run")
    assert "would go" in dry
    assert "runs               1 rows" in dry
    done = json.loads(purge("--json"))
    assert (done["runs"], done["trouble"]) == (1, "")
    assert json.loads(purge("--json"))["runs"] == 0


async def add_run(database_url: str, *, ended: datetime) -> None:
    """Write a run that has ended."""
    writer = MirrorWriter(database_url, options=WriterOptions(budget=timedelta(seconds=10)))
    await writer.write(MirrorBatch(runs=(run_record(at=ended, status=RunStatus.SUCCESS, finished_at=ended),)))
    await writer.close()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"database_url": "mysql://x/y"}, "HORARIUM_DATABASE_URL"),
        ({"run_retention": "60"}, "HORARIUM_RUN_RETENTION"),
    ],
)
def test_a_wrong_setting_is_one_line_and_exit_code_2(
    settings: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which names it."""
    assert command("mirror", "purge", monkeypatch=monkeypatch, **settings) == 2
    assert words in capsys.readouterr().err


async def test_a_check_tells_by_its_exit_code(author_stack: ApiStack) -> None:
    """What it found is in the report; 1 where the mirror differs."""
    here = {"database_url": author_stack.database_url, "temporal_address": author_stack.server.options.address}
    async with author_stack.client() as api:
        job_id = (await api.post("/jobs", json={"name": "noop", "schedule": "@weekly"})).json()["job_id"]
    reconciled = await run_aside("mirror", "reconcile", "--restore-all", "--json", settings=here, expect=None)
    checked = await run_aside("mirror", "check", "--json", settings=here, expect=None)
    for done in (reconciled, checked):
        report = json.loads(done.stdout)
        assert done.returncode == (0 if report["mended"] == sum(report["found"].values()) else 1)
        assert report["jobs"] >= 1
        assert not [each for each in report["differences"] if each["job_id"] == job_id]
