"""``horarium keys``, ``tenants`` and ``audit``, as processes."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from activities.api_key import read_key
from api.cli import _run as run_command
from horarium.encryption_keys import read_keys
from tests.api_keys import new_key
from tests.api_server import serving
from tests.worker_process import environment

COMMAND = (sys.executable, "-P", "-c", "from api.cli import main; main()")


def run(*arguments: str, settings: Mapping[str, str], expect: int | None = 0) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and check its exit code; ``None``: whatever it is."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment(settings) | {"COLUMNS": "200"},
    )
    assert expect in (None, done.returncode), done.stderr
    assert "Traceback" not in done.stderr
    return done


async def run_aside(
    *arguments: str, settings: Mapping[str, str], expect: int | None = 0
) -> subprocess.CompletedProcess[str]:
    """The same, while the API is served in this event loop."""
    return await asyncio.to_thread(run, *arguments, settings=settings, expect=expect)


async def test_a_key_is_made_shown_once_used_and_revoked(empty_database_url: str) -> None:
    """On a database that nothing has prepared; the secret is in no other output, and the log knows who made it."""
    here = {"database_url": empty_database_url}
    made = await run_aside(
        "keys", "create", "CI", "--scope", "ADMIN", "--tenant", "acme", "--expires", "90d", settings=here
    )
    presented = read_key(made.stdout.strip())
    assert presented is not None
    assert presented.secret not in made.stderr
    key_id = presented.key_id
    [listed] = json.loads((await run_aside("keys", "list", "--json", settings=here)).stdout)
    assert (listed["key_id"], listed["tenant"], listed["scope"], listed["name"]) == (key_id, "acme", "admin", "CI")
    async with serving(database_url=empty_database_url) as api:
        bare = {"api_url": str(api.base_url).removesuffix("/api/v1/")}
        there = {**bare, "api_key": made.stdout}
        assert (await run_aside("jobs", "list", settings=there)).stdout == "no jobs\n"
        by_option = await run_aside("--api-key", made.stdout, "audit", "--json", settings=bare)
        [change] = json.loads(by_option.stdout)
        assert (change["action"], change["subject"], change["actor"]) == ("key.create", key_id, "operator")
        refused = await run_aside("jobs", "list", expect=1, settings=bare)
        assert "HORARIUM_API_KEY" in refused.stderr
        strange = await run_aside("jobs", "list", expect=1, settings={**bare, "api_key": new_key()[1]})
        assert "no such API key" in strange.stderr
    assert f"revoked {key_id}" in (await run_aside("keys", "revoke", key_id, settings=here)).stdout
    [listed] = json.loads((await run_aside("keys", "list", "--tenant", "acme", "--json", settings=here)).stdout)
    assert listed["revoked_at"] is not None


def test_a_quota_is_settled_in_part_and_given_back(sqlite_url: str) -> None:
    """What is not named stays as it was."""
    here = {"database_url": sqlite_url, "quota_jobs": "9"}
    assert run("tenants", "set-quota", "acme", "--jobs", "5", settings=here).stdout.startswith("acme: jobs 5")
    run("tenants", "set-quota", "acme", "--fires-per-minute", "0.5", settings=here)
    run("tenants", "set-quota", "acme", "--jobs", "default", settings=here)
    [tenant] = json.loads(run("tenants", "list", "--json", settings=here).stdout)
    assert (tenant["tenant"], tenant["max_jobs"], tenant["max_fires_per_minute"]) == ("acme", 9, 0.5)


def test_task_queues_are_granted_shown_and_taken_back(sqlite_url: str) -> None:
    """As a whole each time; with a note where jobs name what they might not any more."""
    here = {"database_url": sqlite_url}
    granted = run("tenants", "set-task-queues", "acme", "reports", "acme-*", "reports", settings=here)
    assert granted.stdout == "acme: task queues acme-*, reports\n"
    assert granted.stderr == ""
    assert "acme-*, reports" in run("tenants", "list", settings=here).stdout
    taken = run("tenants", "set-task-queues", "acme", "--none", settings=here)
    assert taken.stdout == "acme: task queues any that no other tenant has\n"


def test_a_new_encryption_key_is_a_line_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the id that was asked for, or one of the day; nothing else is printed, so that it can be appended."""
    for options in (["--id", "first"], []):
        monkeypatch.setattr(sys, "argv", ["horarium", "encryption", "new-key", *options])
        assert run_command() == 0
    file = tmp_path / "keys"
    file.write_text(capsys.readouterr().out)
    first, second = read_keys(file)
    assert first.key_id == "first"
    assert second.key_id.startswith("20")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["encryption", "new-key", "--id", "a b"], "--id: an id has 1 to 63 letters"),
        (["tenants", "set-task-queues", "acme"], "give patterns of task queues, or --none"),
        (["tenants", "set-task-queues", "acme", "x", "--none"], "give patterns of task queues, or --none"),
        (["tenants", "set-task-queues", "acme", "x" * 201], "PATTERN: string should have at most 200 characters"),
        (["keys", "create", "x", "--scope", "root"], "--scope: use one of read, operate, write, admin, metrics"),
        (["keys", "create", "x", "--scope", "read", "--tenant", "a/b"], "--tenant: a tenant is named by"),
        (["keys", "create", "x", "--scope", "read", "--expires", "soon"], "--expires: give a span"),
        (["keys", "create", " ", "--scope", "read"], "NAME: at least one visible character"),
        (["tenants", "set-quota", "acme"], "give --jobs or --fires-per-minute"),
        (["tenants", "set-quota", "acme", "--jobs", "1.5"], "--jobs: give a number"),
        (["--api-key", "S3CR3T-xyz", "jobs", "list"], "this is no API key of Horarium"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(
    arguments: Sequence[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which repeats no key. Nothing is opened before, so this needs no process of its own."""
    monkeypatch.setattr(sys, "argv", ["horarium", *arguments])
    assert run_command() == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    [line] = shown.err.splitlines()
    assert words in line
    assert "S3CR3T" not in line
