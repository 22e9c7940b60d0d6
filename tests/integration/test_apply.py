"""``horarium apply`` and ``export`` against a whole stack."""

import asyncio
import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import yaml

from api import cli_apply
from api.apply_plan import OWNER_LABEL, ApplyPlan, make_plan
from api.cli_apply import apply_files
from tests.api_server import serving
from tests.api_stack import ApiStack
from tests.command import run
from tests.temporal_servers import unique


def write(folder: Path, *jobs: dict[str, object]) -> str:
    (folder / "jobs.yaml").write_text(yaml.safe_dump({"jobs": list(jobs)}))
    return str(folder)


def job(job_id: str, **fields: object) -> dict[str, object]:
    return {"job_id": job_id, "name": "noop", "schedule": "0 9 * * 1", **fields}


def test_files_make_jobs_what_they_say(api_stack: ApiStack, tmp_path: Path) -> None:
    """Dry run, create, nothing to do, change with its diff, prune; and nothing of anybody else's."""
    url, owner, (first, second, other) = api_stack.api.url, unique("team"), [unique("as-code") for _ in range(3)]
    run("jobs", "create", "noop", "@daily", "--job-id", other, url=url)
    folder = write(tmp_path, job(first), job(second, timezone="Europe/Berlin"))
    options = ("apply", "-f", folder, "--owner", owner)

    dry = run(*options, "--dry-run", url=url).stdout
    assert f"+ {first} ({folder}/jobs.yaml:2)" in dry
    assert dry.endswith("dry run: 2 created, 0 changed, 0 unchanged\n")
    run("jobs", "show", first, url=url, expect=1)

    assert run(*options, url=url).stdout.endswith("2 created, 0 changed, 0 unchanged\n")
    shown = json.loads(run("jobs", "show", first, "--json", url=url).stdout)
    assert run(*options, url=url).stdout == "0 created, 0 changed, 2 unchanged\n"
    assert json.loads(run("jobs", "show", first, "--json", url=url).stdout) == shown

    write(tmp_path, job(first, schedule="0 10 * * 1", description="later"))
    dry = run(*options, "--prune", "--dry-run", url=url).stdout
    assert f"~ {first}" in dry
    assert '    schedule: "0 9 * * 1" -> "0 10 * * 1"\n' in dry
    assert f"- {second}\n" in dry
    assert other not in dry
    applied = run(*options, "--prune", url=url).stdout
    assert applied.endswith("0 created, 1 changed, 1 removed, 0 unchanged\n")
    changed = json.loads(run("jobs", "show", first, "--json", url=url).stdout)
    assert (changed["schedule"], changed["revision"]) == ("0 10 * * 1", shown["revision"] + 1)
    assert json.loads(run("jobs", "show", second, "--json", url=url).stdout)["state"] == "deleted"
    assert json.loads(run("jobs", "show", other, "--json", url=url).stdout)["state"] == "active"


def apply_twice_at_once(folder: str, *, url: str) -> list[int]:
    """In threads of this process, where starting costs nothing; answers the exit codes."""

    def apply(_: int) -> int:
        return apply_files([folder], owner=None, prune=False, take_over=False, dry_run=False, url=url)

    with ThreadPoolExecutor() as pool:
        return list(pool.map(apply, range(2)))


def test_two_who_apply_the_same_files_at_once_make_one_revision(
    api_stack: ApiStack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both create the jobs, and both change them: who comes second finds what it wanted to write, and says so."""
    url, ids = api_stack.api.url, [unique("twice") for _ in range(5)]
    folder = write(tmp_path, *map(job, ids))
    assert apply_twice_at_once(folder, url=url) == [0, 0]
    assert capsys.readouterr().err == ""
    write(tmp_path, *(job(job_id, schedule="0 10 * * 1") for job_id in ids))
    assert apply_twice_at_once(folder, url=url) == [0, 0]
    assert capsys.readouterr().err == ""
    found = [json.loads(run("jobs", "show", job_id, "--json", url=url).stdout) for job_id in ids]
    assert [(each["schedule"], each["revision"]) for each in found] == [("0 10 * * 1", 2)] * len(ids)
    assert run("apply", "-f", folder, url=url).stdout == f"0 created, 0 changed, {len(ids)} unchanged\n"


def compare_at_once(folders: Mapping[str, Path], *, url: str, prune: bool = False) -> dict[str, int]:
    """Apply folders, each for its owner, so that nobody writes before all have compared; answers the exit codes."""
    everybody = Barrier(len(folders))

    def compare_and_wait(*args: Any, **kwargs: Any) -> ApplyPlan:
        plan = make_plan(*args, **kwargs)
        everybody.wait(timeout=60)
        return plan

    def apply(folder: Path, owner: str) -> int:
        return apply_files([str(folder)], owner=owner, prune=prune, take_over=False, dry_run=False, url=url)

    with pytest.MonkeyPatch.context() as patched, ThreadPoolExecutor() as pool:
        patched.setattr(cli_apply, "make_plan", compare_and_wait)
        codes = pool.map(apply, folders.values(), (name.partition("/")[0] for name in folders))
        return dict(zip(folders, codes, strict=True))


def test_who_creates_a_job_that_another_has_created_meanwhile_overwrites_nothing(
    api_stack: ApiStack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job is as one team's file says; the other team is told, and what to do, and its other jobs are written."""
    url, shared, teams = api_stack.api.url, unique("shared"), [unique("team"), unique("team")]
    folders = {team: tmp_path / team for team in teams}
    for team, folder in folders.items():
        folder.mkdir()
        write(folder, job(shared, description=f"of {team}"), job(f"own-{team}"))
    codes = compare_at_once(folders, url=url)
    assert sorted(codes.values()) == [0, 1]
    winner, loser = sorted(teams, key=codes.__getitem__)
    assert capsys.readouterr().err == (
        f"horarium: {folders[loser]}/jobs.yaml:2: {shared}: created by somebody else since it was looked for "
        "(there is a job of this id already): apply again; with --dry-run it says what would change\n"
    )
    found = json.loads(run("jobs", "show", shared, "--json", url=url).stdout)
    assert (found["description"], found["revision"], found["labels"]) == (f"of {winner}", 1, {OWNER_LABEL: winner})
    for team in teams:
        run("jobs", "show", f"own-{team}", url=url)
    again = run("apply", "-f", str(folders[loser]), "--owner", loser, url=url, expect=2).stderr
    assert f"applied by {winner!r}: say --owner {winner}, or --take-over" in again


def test_who_changes_or_removes_what_another_has_changed_meanwhile_is_told(
    api_stack: ApiStack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two versions of a team's files: of each job one change is kept, and none is removed that was changed meanwhile."""
    url, owner, (changed, removed) = api_stack.api.url, unique("team"), [unique("as-code") for _ in range(2)]
    folders = {f"{owner}/{version}": tmp_path / version for version in ("one", "other")}
    one, other = folders.values()
    for folder in (one, other):
        folder.mkdir()
    run("apply", "-f", write(one, job(changed), job(removed)), "--owner", owner, url=url)
    write(one, job(changed, description="one"), job(removed, description="one"))
    write(other, job(changed, description="other"))
    codes = compare_at_once(folders, url=url, prune=True)
    told = capsys.readouterr().err.splitlines()
    assert any(codes.values())
    assert sorted(line.split(": ")[2] for line in told) == sorted([changed, removed])
    assert {line.rpartition("): ")[2] for line in told} == {"apply again; with --dry-run it says what would change"}
    shown = [json.loads(run("jobs", "show", job_id, "--json", url=url).stdout) for job_id in (changed, removed)]
    assert (shown[0]["description"] in ("one", "other"), shown[0]["revision"]) == (True, 2)
    assert (shown[1]["description"], shown[1]["state"]) in (("one", "active"), ("", "deleted"))


async def test_files_are_applied_where_an_installation_insists_on_if_match(api_stack: ApiStack, tmp_path: Path) -> None:
    """Every job is created, changed and removed by the revision that was seen, or as one that is not there."""
    owner, (first, second) = unique("team"), [unique("as-code") for _ in range(2)]
    address = api_stack.server.options.address
    async with serving(database_url=api_stack.database_url, temporal_address=address, require_if_match=True) as api:
        url = f"http://{api.base_url.netloc.decode()}"
        for jobs, done in (
            ([job(first), job(second)], "2 created, 0 changed, 0 unchanged\n"),
            ([job(first, description="later")], "0 created, 1 changed, 1 removed, 0 unchanged\n"),
        ):
            command = ("apply", "-f", write(tmp_path, *jobs), "--owner", owner, "--prune")
            assert (await asyncio.to_thread(run, *command, url=url)).stdout.endswith(done)


async def test_a_job_is_steered_by_command_where_an_installation_insists_on_if_match(api_stack: ApiStack) -> None:
    """By the revision that was seen; whoever names none is told how, and nothing is done."""
    job_id, address = unique("steered"), api_stack.server.options.address
    async with serving(database_url=api_stack.database_url, temporal_address=address, require_if_match=True) as api:
        url = f"http://{api.base_url.netloc.decode()}"

        async def call(*command: str, expect: int = 0) -> Any:
            return await asyncio.to_thread(run, *command, url=url, expect=expect)

        await call("jobs", "create", "noop", "@daily", "--job-id", job_id)
        for command, state in (("pause", "paused"), ("resume", "active"), ("delete", "deleted")):
            assert "give --revision" in (await call("jobs", command, job_id, expect=2)).stderr
            await call("jobs", command, job_id, "--revision", "2", expect=1)
            await call("jobs", command, job_id, "--revision", "1")
            assert json.loads((await call("jobs", "show", job_id, "--json")).stdout)["state"] == state


def test_what_is_wrong_is_told_before_anything_is_done(api_stack: ApiStack, tmp_path: Path) -> None:
    """Two files, each with an error and a good job: neither is registered, and the exit code says that it is the input."""
    url, good = api_stack.api.url, unique("as-code")
    (tmp_path / "a.yaml").write_text(yaml.safe_dump([job(good), job("bad", schedule="0 0 30 2 *")], sort_keys=False))
    (tmp_path / "b.yaml").write_text(
        yaml.safe_dump(job("worse", exclude={"calendars": ["never-was"]}), sort_keys=False)
    )
    refused = run("apply", "-f", str(tmp_path), url=url, expect=2).stderr
    assert f"{tmp_path}/b.yaml:6: worse: exclude.calendars.0: there is no calendar 'never-was'" in refused
    (tmp_path / "b.yaml").write_text(yaml.safe_dump(job("worse", labels={OWNER_LABEL: "me"}), sort_keys=False))
    refused = run("apply", "-f", str(tmp_path), "--owner", "me", url=url, expect=2).stderr
    assert f"{tmp_path}/b.yaml:5: worse: labels.{OWNER_LABEL}: this label is not for files" in refused
    (tmp_path / "b.yaml").unlink()
    refused = run("apply", "-f", str(tmp_path), url=url, expect=2).stderr
    assert f"{tmp_path}/a.yaml:6: bad: schedule: " in refused
    run("jobs", "show", good, url=url, expect=1)
    assert "say --owner" in run("apply", "-f", str(tmp_path), "--prune", url=url, expect=2).stderr


def test_what_is_exported_changes_nothing_when_it_is_applied(api_stack: ApiStack, tmp_path: Path) -> None:
    """Calendars, targets, policies and payloads included, without the label that ``apply`` gives."""
    url, label, calendar = api_stack.api.url, unique("label"), unique("calendar")
    run("calendars", "put", calendar, "--date", "2026-12-24", url=url)
    jobs = [
        job(unique("as-code"), labels={"set": label}, business_days={"calendar": calendar, "roll": "next"}),
        job(unique("as-code"), labels={"set": label}, schedule={"rrule": "FREQ=DAILY;BYHOUR=9"}, max_attempts=7),
        job(
            unique("as-code"),
            labels={"set": label},
            target={"kind": "http", "url": "https://example.com/x", "headers": {"A": "b"}},
            payload={"times": ["2026-01-01", None, 1.5]},
            schedule="@every 15m",
            exclude={"dates": ["2026-12-25"], "calendars": [calendar]},
            enabled=False,
        ),
    ]
    run("apply", "-f", write(tmp_path, *jobs), "--owner", label, url=url)
    exported = run("export", "--label", f"set:{label}", url=url).stdout
    assert "applied-by" not in exported
    again = run("apply", "-f", "-", "--owner", label, stdin=exported, url=url)
    assert again.stdout == "0 created, 0 changed, 3 unchanged\n"


def test_unchanged_jobs_take_no_time_and_no_workflow_task(api_stack: ApiStack, tmp_path: Path) -> None:
    """Nothing is sent for them, whatever their number."""
    url = api_stack.api.url
    jobs = [job(unique("many"), labels={"number": str(number)}) for number in range(30)]
    folder = write(tmp_path, *jobs)
    run("apply", "-f", folder, url=url)
    revision = json.loads(run("jobs", "show", str(jobs[0]["job_id"]), "--json", url=url).stdout)["updated_at"]
    started = time.monotonic()
    assert run("apply", "-f", folder, url=url).stdout == "0 created, 0 changed, 30 unchanged\n"
    assert time.monotonic() - started < 20
    assert json.loads(run("jobs", "show", str(jobs[0]["job_id"]), "--json", url=url).stdout)["updated_at"] == revision
