"""Files of jobs: where in them something is wrong, and what applying them would do."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from api.apply_plan import OWNER_LABEL, Action, ApplyPlan, Present, make_plan, owner_errors, with_owner
from api.cli_apply import check_examples, job_file_schema
from api.cli_input import BadInput
from api.job_body import read_job
from api.job_document import job_document
from api.job_file import BadFiles, find_example_file, read_job_files, read_requests

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
ROOT = Path(__file__).parents[2]

GOOD = """
jobs:
- job_id: a
  name: noop
  schedule: "@daily"
- {job_id: b, name: noop, schedule: "0 9 * * 1", timezone: Europe/Berlin}
"""


def errors_of(folder: Path) -> list[str]:
    with pytest.raises(BadFiles) as refused:
        read_requests(read_job_files([str(folder)]), calendars={})
    return [str(error).removeprefix(f"{folder}/") for error in refused.value.errors]


def plan_for(text: str, *present: Present, folder: Path, owner: str | None = None, **options: Any) -> ApplyPlan:
    (folder / "jobs.yaml").write_text(text)
    found = read_job_files([str(folder)])
    found.jobs[:] = [with_owner(job, owner) for job in found.jobs]
    requests = read_requests(found, calendars={})
    given = {"prune": False, "take_over": False, **options}
    return make_plan(requests, {each.job_id: each for each in present}, owner=owner, now=NOW, **given)


def there(job_id: str, **body: Any) -> Present:
    request = read_job({"name": "noop", **body}, default_id=job_id)
    enabled = request.enabled is not False
    return Present(job_id=job_id, revision=3, body=job_document(request.definition, job_id=job_id, enabled=enabled))


class TestReading:
    """What files hold, and what is wrong in them."""

    def test_a_file_is_a_job_a_list_or_a_list_under_jobs_and_a_folder_is_all_of_its_files(self, tmp_path: Path) -> None:
        """YAML, several documents, JSON with tabs; hidden files and others are passed over."""
        (tmp_path / "below").mkdir()
        (tmp_path / "1.yaml").write_text(GOOD)
        (tmp_path / "2.yml").write_text("job_id: c\nname: noop\nschedule: '@daily'\n---\n- {job_id: d}\n---\n")
        (tmp_path / "below" / "3.json").write_text('{\n\t"job_id": "e"\n}')
        (tmp_path / ".hidden.yaml").write_text("nonsense")
        (tmp_path / "README.md").write_text("nonsense")
        assert [job.job_id for job in read_job_files([str(tmp_path)]).jobs] == ["a", "b", "c", "d", "e"]

    def test_all_that_is_wrong_in_all_files_is_told_at_once_with_its_line(self, tmp_path: Path) -> None:
        """The line of the field; of a field that is missing, that of the job."""
        (tmp_path / "1.yaml").write_text(
            "jobs:\n"
            "- job_id: a\n"
            "  name: noop\n"
            "  schedule: '61 * * * *'\n"
            "- job_id: b\n"
            "  schedule: '@daily'\n"
            "  max_retries: -1\n"
            "- name: noop\n"
            "  schedule: '@daily'\n"
        )
        (tmp_path / "2.yaml").write_text("job_id: a\nname: noop\nschedule: '@daily'\nlabels:\n  x: y\n  x: z\n")
        (tmp_path / "3.yaml").write_text("a: [\n")
        (tmp_path / "4.yaml").write_text("- 5\n")
        (tmp_path / "5.yaml").write_text("jobs: []\njob: {}\n")
        (tmp_path / "6.yaml").write_bytes(b"\xff\xfe\xff")
        first = tmp_path / "1.yaml"
        assert errors_of(tmp_path) == [
            "1.yaml:4: a: schedule: minute 61 is outside 0-59",
            "1.yaml:5: b: name: required",
            "1.yaml:7: b: max_retries: should be greater than or equal to 0",
            "1.yaml:8: job_id: required in a file: applied again, it must be found again",
            f"2.yaml:1: a: job_id: described at {first}:2 too",
            "2.yaml:6: the key 'x' occurs twice",
            "3.yaml:2: not YAML: expected the node content, but found '<stream end>'",
            "4.yaml:1: a job is an object",
            "5.yaml:2: there is no 'job' beside a list of jobs",
            "6.yaml:1: not UTF-8",
        ]

    def test_what_is_no_text_and_what_its_aliases_blow_up_is_refused_at_once(self, tmp_path: Path) -> None:
        """A control character, ten aliases in ten of ten of ten, and an alias within itself, each with its line."""
        layers = [f"  a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 10)}]" for number in range(1, 9)]
        start = "job_id: b\nname: noop\nschedule: '@daily'\npayload:\n  a0: &a0 [1]\n"
        (tmp_path / "1.yaml").write_bytes(b"job_id: a\nname: \x00\n")
        (tmp_path / "2.yaml").write_text(start + "\n".join(layers) + "\n")
        (tmp_path / "3.yaml").write_text("job_id: c\nname: noop\nschedule: '@daily'\npayload: &p [*p, *p]\n")
        (tmp_path / "4.yaml").write_text(
            "job_id: d\nname: noop\nschedule: '@daily'\npayload: {a: &p [1], b: [*p, *p]}\n"
        )
        assert errors_of(tmp_path) == [
            "1.yaml:2: not YAML: special characters are not allowed",
            "2.yaml:1: not YAML: aliases repeat more than 100000 values",
            "3.yaml:4: not YAML: an alias stands within its own anchor",
        ]

    def test_a_link_to_nothing_is_no_file_that_was_taken_away(self, tmp_path: Path) -> None:
        """With --prune its jobs would be removed."""
        (tmp_path / "1.yaml").write_text(GOOD)
        (tmp_path / "2.yaml").symlink_to(tmp_path / "nowhere")
        with pytest.raises(BadInput, match=r"2\.yaml: No such file"):
            read_job_files([str(tmp_path)])

    def test_times_stay_as_they_are_written(self, tmp_path: Path) -> None:
        """Local ones are the job's zone's, as in the API."""
        (tmp_path / "1.yaml").write_text("job_id: a\nname: noop\nschedule: 2030-01-01T09:00:00\ntimezone: Asia/Tokyo\n")
        [(_, request)] = read_requests(read_job_files([str(tmp_path)]), calendars={})
        rule = request.definition.schedule.rule.model_dump(mode="json")
        assert rule["local"] == "2030-01-01T09:00:00"


class TestPlan:
    """What is created, changed, left alone and removed."""

    def test_what_is_there_already_is_left_alone_however_it_is_spelled(self, tmp_path: Path) -> None:
        """Defaults, case and order make no difference; nor does a pause that the file says nothing of."""
        same = there("a", schedule="@daily", overlap="skip", max_retries=3, enabled=False)
        plan = plan_for(GOOD, same, folder=tmp_path)
        assert [(step.action, step.job_id) for step in plan.steps] == [(Action.CREATE, "b")]
        assert plan.unchanged == 1

    def test_each_field_that_changes_is_told(self, tmp_path: Path) -> None:
        """Old and new, with the revision that was seen."""
        [step] = plan_for(
            "{job_id: a, name: noop, schedule: '@hourly', labels: {x: '1'}, enabled: true}",
            there("a", schedule="@daily", labels={"x": "0"}, enabled=False, description="old"),
            folder=tmp_path,
        ).steps
        assert (step.action, step.revision) == (Action.CHANGE, 3)
        assert step.differences == (
            'labels.x: "0" -> "1"',
            "enabled: false -> true",
            'schedule: "@daily" -> "@hourly"',
            'description: "old" -> (none)',
        )

    def test_only_what_the_same_owner_applied_is_removed(self, tmp_path: Path) -> None:
        """Jobs of others, and those that nobody applied, stay."""
        present = (
            there("mine", schedule="@daily", labels={OWNER_LABEL: "me"}),
            there("yours", schedule="@daily", labels={OWNER_LABEL: "you"}),
            there("nobodys", schedule="@daily"),
        )
        plan = plan_for(GOOD, *present, folder=tmp_path, owner="me", prune=True)
        assert [(step.action, step.job_id) for step in plan.steps] == [
            (Action.CREATE, "a"),
            (Action.CREATE, "b"),
            (Action.PRUNE, "mine"),
        ]
        assert {step.body["labels"][OWNER_LABEL] for step in plan.steps if step.body} == {"me"}  # type: ignore[index,call-overload]

    @pytest.mark.parametrize("owner", [None, "me"])
    def test_the_jobs_of_another_owner_are_not_written(self, owner: str | None, tmp_path: Path) -> None:
        """Unless that is asked for."""
        theirs = there("a", schedule="@weekly", labels={OWNER_LABEL: "you"})
        with pytest.raises(BadFiles) as refused:
            plan_for(GOOD, theirs, folder=tmp_path, owner=owner)
        [error] = refused.value.errors
        assert (error.line, error.job_id) == (3, "a")
        assert "applied by 'you'" in error.detail
        plan = plan_for(GOOD, theirs, folder=tmp_path, owner=owner, take_over=True)
        assert [step.action for step in plan.steps] == [Action.CHANGE, Action.CREATE]

    def test_the_label_of_an_owner_is_refused_where_a_file_writes_it(self, tmp_path: Path) -> None:
        """With its line, and with the option that gives it: else whoever writes it could have another's jobs pruned."""
        text = f"job_id: a\nname: noop\nschedule: '@daily'\nlabels:\n  team: pay\n  {OWNER_LABEL}: me\n---\n"
        (tmp_path / "jobs.yaml").write_text(f"{text}job_id: b\nname: noop\nschedule: '@daily'\nlabels: {{team: pay}}\n")
        refused = [str(error) for error in owner_errors(read_job_files([str(tmp_path)]).jobs)]
        reason = "this label is not for files: --owner NAME gives it"
        assert refused == [f"{tmp_path}/jobs.yaml:6: a: labels.{OWNER_LABEL}: {reason}"]

    def test_a_job_that_would_never_fire_is_an_error_of_its_file_unless_it_is_there_and_done(
        self, tmp_path: Path
    ) -> None:
        """A one-off that has run stays in its file."""
        once = "{job_id: a, name: noop, schedule: '2020-01-01T00:00:00Z'}"
        with pytest.raises(BadFiles) as refused:
            plan_for(once, folder=tmp_path)
        assert "its time has passed" in str(refused.value)
        assert plan_for(once, there("a", schedule="2020-01-01T00:00:00Z"), folder=tmp_path).unchanged == 1
        assert len(plan_for(once[:-1] + ", if_past: skip}", folder=tmp_path).steps) == 1


def test_the_example_jobs_can_be_applied() -> None:
    """They are what a newcomer sees first."""
    check_examples()
    found = read_requests(read_job_files([str(find_example_file())]), calendars={})
    assert [request.job_id for _, request in found] == ["every-15-seconds", "fails-twice", "weekly-report"]


class TestSchema:
    """The JSON Schema that editors use."""

    def test_the_one_in_the_repository_is_current(self) -> None:
        """``horarium schema > temporal-dev/jobs.schema.json`` makes it."""
        assert json.loads((ROOT / "temporal-dev" / "jobs.schema.json").read_text()) == job_file_schema()

    def test_it_takes_the_examples_and_refuses_what_the_api_refuses(self) -> None:
        """A misspelled field, a job without id."""
        schema = job_file_schema()
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        examples = yaml.safe_load((ROOT / "temporal-dev" / "jobs.yaml").read_text())
        assert list(validator.iter_errors(examples)) == []
        good = {"job_id": "a", "name": "noop", "schedule": "@daily"}
        for fine in (good, [good], {"jobs": [good]}):
            assert validator.is_valid(fine)
        for bad in (
            {**good, "schedul": "x"},
            {"name": "noop", "schedule": "@daily"},
            {"jobs": good},
            {**good, "jobs": []},
        ):
            assert not validator.is_valid(bad)
