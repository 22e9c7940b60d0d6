"""The command line: what it shows, what it refuses, and how its process ends."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.api_stack import ApiStack
from tests.command import run, run_process
from tests.eventually import eventually
from tests.temporal_servers import unique

CASES = [json.loads(line) for line in (Path(__file__).parents[1] / "data" / "fires.jsonl").read_text().splitlines()]


class TestPreview:
    """``horarium preview`` needs no server."""

    def test_the_next_fires_are_shown(self) -> None:
        """The example of the documentation, and its JSON."""
        arguments = ("preview", "0 9 * * 1", "--timezone", "America/New_York", "--after", "2026-06-01T00:00:00Z")
        shown = run_process(*arguments, "--count", "2").stdout
        assert "2026-06-01T09:00:00-04:00  2026-06-01T13:00:00Z" in shown
        assert "2026-06-08T09:00:00-04:00  2026-06-08T13:00:00Z" in shown
        answer = json.loads(run(*arguments, "--count", "1", "--json").stdout)
        assert [fire["nominal"] for fire in answer["fires"]] == ["2026-06-01T13:00:00Z"]

    def test_all_cases_of_the_table_are_answered_at_once(self) -> None:
        """1,500 bodies, good and bad: pure JSON, exit code 0, a few seconds."""
        bodies = [
            {"schedule": case["expr"], "timezone": case["tz"]}
            | ({"after": case["after"], "count": len(case["expect"])} if case["kind"] == "fires" else {})
            for case in CASES
        ]
        started = time.monotonic()
        done = run_process("preview", "--batch", "-", stdin=json.dumps(bodies))
        assert time.monotonic() - started < 15
        answers = json.loads(done.stdout)
        assert done.stderr == ""
        for case, answer in zip(CASES, answers, strict=True):
            if case["kind"] == "fires":
                fires = [datetime.fromisoformat(fire["nominal"]) for fire in answer["fires"]]
                assert fires == [datetime.fromisoformat(each) for each in case["expect"]], case
            elif case["kind"] == "invalid":
                assert answer["status"] == 422, case
                assert "fires" not in answer

    def test_a_batch_may_stand_in_a_file_and_be_of_any_length(self, tmp_path: Path) -> None:
        """More than the API takes in one request."""
        path = tmp_path / "batch.json"
        path.write_text(json.dumps([{"schedule": "@daily", "count": 1}] * 2_500))
        assert len(json.loads(run("preview", "--batch", str(path)).stdout)) == 2_500

    @pytest.mark.parametrize(
        ("arguments", "stdin", "words"),
        [
            (["preview", "61 * * * *"], "", "schedule: minute 61 is outside 0-59"),
            (["preview", "@daily", "--timezone", "Mars/Base"], "", "timezone: 'Mars/Base' is not a known time zone"),
            (["preview", "@daily", "--after", "soon"], "", "after:"),
            (["preview", '{"every": '], "", "SCHEDULE: not JSON"),
            (["preview", "@daily", "--count", "many"], "", "--count"),
            (["preview"], "", "give a schedule"),
            (["preview", "@daily", "--batch", "-"], "", "not both"),
            (["preview", "--batch", "/nowhere.json"], "", "/nowhere.json: No such file or directory"),
            (["preview", "--batch", "-"], "{}", "expected a JSON list"),
            (["preview", "--batch", "-"], "[", "standard input: not JSON"),
            (["nonsense"], "", "nonsense"),
            (["jobs", "create", "-f", "-"], "a: [", "standard input: not YAML"),
            (["jobs", "create", "-f", "-"], "5", "expected an object"),
            (["jobs", "create", "noop", "@daily", "--payload", "{"], "", "--payload: not JSON"),
            (["jobs", "create", "noop", "@daily", "--label", "x"], "", "--label: give KEY=VALUE"),
            (["dead-letters", "redrive"], "", "give ids of dead runs, or --all"),
            (["dead-letters", "redrive", "x", "--all"], "", "give ids of dead runs, or --all"),
            (["dead-letters", "redrive", "x", "--rate", "5"], "", "are for --all"),
            (["downstreams", "reset"], "", "Missing argument"),
            (["jobs", "show", "a/b"], "", "JOB: give 1 to 128 letters"),
            (["jobs", "ledger", "a b"], "", "JOB: give 1 to 128 letters"),
            (["runs", "a/b"], "", "JOB: give 1 to 128 letters"),
            (["backfill", "list", ""], "", "JOB: give 1 to 128 letters"),
        ],
    )
    def test_what_is_wrong_is_one_line_and_exit_code_2(self, arguments: Sequence[str], stdin: str, words: str) -> None:
        """It names what was wrong, and shows no program."""
        done = run(*arguments, stdin=stdin, expect=2)
        assert done.stdout == ""
        assert words in done.stderr

    def test_a_process_ends_with_the_same_line_and_code(self) -> None:
        """Whether what was given is wrong, or cannot be done now."""
        assert run_process("preview", "61 * * * *", expect=2).stderr == run("preview", "61 * * * *", expect=2).stderr
        assert run_process("jobs", "list", expect=1).stderr == run("jobs", "list", expect=1).stderr

    def test_the_program_starts_at_once(self) -> None:
        """Neither the SDK of Temporal nor the web framework is loaded for it."""
        script = (
            "import sys; sys.argv = ['horarium', '--help']\nfrom api import cli\ntry:\n cli.app()\nexcept SystemExit:\n"
        )
        script += " print([name for name in ('temporalio', 'fastapi', 'sqlalchemy') if name in sys.modules])"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]"

    def test_the_version_is_that_of_the_package(self) -> None:
        """As its metadata has it, wherever it was installed from."""
        assert run_process("--version").stdout == f"horarium {version('horarium-server')}\n"

    def test_a_reader_that_goes_away_is_no_error(self) -> None:
        """``horarium ... | head``."""
        command = f"{sys.executable} -c 'from api.cli import main; main()' preview @hourly -n 1000 | head -1"
        done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr
        assert "Error" not in done.stderr


class TestJobs:
    """``horarium jobs`` and ``horarium runs``, over HTTP."""

    def test_a_job_lives_and_dies_by_the_command_line(self, api_stack: ApiStack) -> None:
        """Create, list, show, runs, delete; for people and as JSON."""
        url, job_id, label = api_stack.api.url, unique("cli"), unique("label")
        ask = partial(run_process, url=url)
        options = ("--job-id", job_id, "--timezone", "Europe/Berlin", "--label", f"team={label}", "--owner", "ops")
        created = ask("jobs", "create", "noop", "0 9 * * 1", *options)
        assert created.stdout.startswith(f"created {job_id} (noop); next run: 20")
        assert job_id in ask("jobs", "list", "--label", f"team={label}").stdout
        (listed,) = json.loads(ask("jobs", "list", "--label", f"team={label}", "--json").stdout)
        assert listed["owner"] == "ops"
        assert "Europe/Berlin" in ask("jobs", "show", job_id).stdout
        assert json.loads(ask("jobs", "show", job_id, "--json").stdout)["job_id"] == job_id
        assert ask("runs", job_id).stdout == "no runs\n"
        assert json.loads(ask("runs", job_id, "--json").stdout) == []
        assert "is a job" in ask("jobs", "create", "noop", "@daily", "--job-id", job_id, expect=1).stderr
        assert ask("jobs", "delete", job_id).stdout == f"deleted {job_id} (noop)\n"

    def test_jobs_come_from_files_of_json_and_yaml(self, api_stack: ApiStack, tmp_path: Path) -> None:
        """One, several, from standard input; options go before the file; times in YAML stay as they are written."""
        url, ids = api_stack.api.url, [unique("file") for _ in range(4)]
        yaml = f"jobs:\n- {{job_id: {ids[0]}, name: noop, schedule: '@daily'}}\n"
        yaml += f"- {{job_id: {ids[1]}, name: noop, schedule: 2030-01-01T09:00:00, timezone: Europe/Berlin}}\n"
        (tmp_path / "jobs.yaml").write_text(yaml)
        assert run("jobs", "create", "-f", str(tmp_path / "jobs.yaml"), url=url).stdout.count("created") == 2
        shown = json.loads(run("jobs", "show", ids[1], "--json", url=url).stdout)
        assert shown["next_run_at"] == "2030-01-01T08:00:00Z"

        body = {"job_id": ids[2], "name": "noop", "schedule": "@daily", "timezone": "Asia/Tokyo"}
        options = ("--timezone", "UTC", "--json")
        answer = run_process("jobs", "create", "-f", "-", *options, stdin=json.dumps(body), url=url).stdout
        assert json.loads(answer)["timezone"] == "UTC"
        (tmp_path / "one.yml").write_text(f"job_id: {ids[3]}\nname: noop\nschedule: '@daily'\nmax_retries: -1\n")
        refused = run("jobs", "create", "-f", str(tmp_path / "one.yml"), url=url, expect=2)
        assert refused.stderr == "horarium: max_retries: should be greater than or equal to 0\n"

    def test_runs_are_shown_with_their_errors_and_the_ledger_says_why_there_is_none(self, api_stack: ApiStack) -> None:
        """A run that fails, found by its status; and a pause, as what became of the fires in it."""
        url, job_id = api_stack.api.url, unique("flaky")
        options = ("--job-id", job_id, "--max-retries", "0", "--timeout-seconds", "10")
        run("jobs", "create", "flaky", "@every 1s", *options, url=url)
        asyncio.run(until_dead(api_stack, job_id))
        shown = run("runs", job_id, "--status", "failed", url=url).stdout
        assert "the downstream hung up" in shown
        assert "dead" in shown

        run("jobs", "pause", job_id, url=url)
        asyncio.run(until_paused_fires(api_stack, job_id))
        shown = run("jobs", "ledger", job_id, url=url).stdout
        assert [word in shown for word in ("ran", "paused", "the job was paused")] == [True] * 3
        first, *_, last = json.loads(run("jobs", "ledger", job_id, "--json", url=url).stdout)
        bounds = ("--from", last["first"], "--to", last["first"])
        (within,) = json.loads(run("jobs", "ledger", job_id, *bounds, "--json", url=url).stdout)
        assert (within["first"], within["count"], within["outcome"]) == (last["first"], 1, "paused")
        limited = run("jobs", "ledger", job_id, "--limit", "1", "--json", url=url)
        assert json.loads(limited.stdout) == [first]
        assert limited.stderr == "warning: there are later ones too; see --from and --limit\n"
        run("jobs", "delete", job_id, "--cancel-active", url=url)

    def test_a_job_is_edited_paused_resumed_and_triggered(self, api_stack: ApiStack) -> None:
        """And its runs are cancelled; each says in a line what was done, and as JSON what the API says."""
        url, job_id = api_stack.api.url, unique("steered")
        run("jobs", "create", "noop", "0 9 * * 1", "--job-id", job_id, url=url)
        edited = run("jobs", "edit", job_id, "--schedule", "@daily", "--set", "description=nightly", url=url).stdout
        assert edited.startswith(f"changed {job_id} (revision 2); next run: 20")
        again = run("jobs", "edit", job_id, "--set", "max_retries=1", "--set", "owner=null", "--json", url=url).stdout
        shown = json.loads(again)
        assert (shown["schedule"], shown["description"], shown["max_retries"]) == ("@daily", "nightly", 1)
        assert "revision" in run("jobs", "edit", job_id, "-z", "UTC", "--revision", "1", url=url, expect=1).stderr
        assert "nothing to change" in run("jobs", "edit", job_id, url=url, expect=2).stderr
        refused = run("jobs", "edit", job_id, "--set", "timeout_seconds=0", url=url, expect=2).stderr
        assert refused.startswith("horarium: timeout_seconds: ")

        paused = run("jobs", "pause", job_id, "--reason", "maintenance", "--by", "ops", url=url).stdout
        assert paused == f"paused {job_id} (noop)\n"
        assert "maintenance" in run("jobs", "show", job_id, url=url).stdout
        told = json.loads(run("jobs", "trigger", job_id, "--payload", "1", "--json", url=url).stdout)
        assert told["outcome"] == "started"
        assert run("jobs", "resume", job_id, url=url).stdout.startswith(f"{job_id} (noop) is active; next run: 20")
        skipped = run("jobs", "trigger", job_id, "--skip-next", "--overlap", "allow", url=url).stdout
        assert ", in the place of the fire of 20" in skipped
        line = run("runs", "cancel", told["run_id"], "--reason", "oops", url=url).stdout
        assert line.startswith(f"{told['run_id']} is ")
        assert told["run_id"] in run("runs", job_id, url=url).stdout
        assert told["run_id"] in run("runs", "list", job_id, "--json", url=url).stdout
        run("jobs", "delete", job_id, url=url)

    def test_the_fires_to_come_are_shown(self, api_stack: ApiStack) -> None:
        """With both clocks; none of a paused job. And of a range in which nothing fired, that nothing did."""
        url, job_id = api_stack.api.url, unique("upcoming")
        run("jobs", "create", "noop", "0 9 1 1 *", "-z", "Europe/Berlin", "--job-id", job_id, url=url)
        assert "-01-01T09:00:00+01:00" in run("jobs", "upcoming", job_id, url=url).stdout
        fires = json.loads(run("jobs", "upcoming", job_id, "-n", "2", "--json", url=url).stdout)
        assert [fire["nominal"][4:] for fire in fires] == ["-01-01T08:00:00Z"] * 2
        run("jobs", "pause", job_id, url=url)
        assert run("jobs", "upcoming", job_id, url=url).stdout == "no fires to come\n"
        assert run("jobs", "ledger", job_id, url=url).stdout == "no fires in this time\n"
        refused = run("jobs", "ledger", job_id, "--from", "2026-01-01", url=url, expect=2).stderr
        assert refused == "horarium: from: give a time as in RFC 3339, such as 2026-06-08T13:00:00Z\n"

    def test_what_is_not_there_and_who_does_not_answer_are_one_line(self, api_stack: ApiStack) -> None:
        """Exit code 1: nothing is wrong with what was given."""
        assert run("jobs", "show", "never-was", url=api_stack.api.url, expect=1).stderr.count("\n") == 1
        assert "cannot reach the API" in run("jobs", "list", expect=1).stderr
        assert "HORARIUM_API_URL" in run("jobs", "list", url="nonsense", expect=2).stderr


async def until_paused_fires(stack: ApiStack, job_id: str) -> None:
    async with stack.client() as api:

        async def are_told() -> Any:
            ledger = (await api.get(f"/jobs/{job_id}/ledger")).json()
            return len(ledger) > 1 and ledger[-1]["outcome"] == "paused"

        await eventually(are_told)


async def until_dead(stack: ApiStack, job_id: str) -> None:
    async with stack.client() as api:

        async def is_dead() -> Any:
            return (await api.get(f"/jobs/{job_id}/runs?status=dead")).json()

        await eventually(is_dead)
