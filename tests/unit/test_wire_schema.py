"""The schemas that authors in other languages work from."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter

from horarium import AttemptReport, JobRun, parse_attempt_report
from horarium.wire_schema import spell_schema, wire_schemas
from workflows.catalogue import Announcement

FOLDER = Path(__file__).parents[2] / "activities/sdk/schemas"

SCHEMAS: dict[str, Any] = {path.name: json.loads(path.read_text("utf-8")) for path in FOLDER.glob("*.json")}


def test_the_files_are_those_that_the_code_makes() -> None:
    """A field that is added stands in its file, too."""
    made = {name: spell_schema(schema) for name, schema in wire_schemas().items()}
    found = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.json")}
    assert found == made, "run: python -m horarium.wire_schema activities/sdk/schemas"


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_a_schema_is_one_and_its_example_fits(name: str) -> None:
    """Whoever generates types or reads examples from it gets what comes over the wire."""
    schema = SCHEMAS[name]
    Draft202012Validator.check_schema(schema)
    for example in schema["examples"]:
        Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(example)


def test_the_examples_are_read_by_the_code() -> None:
    """The other way round."""
    [run] = SCHEMAS["job-run.schema.json"]["examples"]
    assert TypeAdapter(JobRun[Any]).validate_python(run).attempt == 2
    [report] = SCHEMAS["attempt.schema.json"]["examples"]
    assert isinstance(parse_attempt_report(report), AttemptReport)
    [announcement] = SCHEMAS["announcement.schema.json"]["examples"]
    assert set(Announcement.model_validate(announcement).activities) == {"send_report", "compact"}


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_later_members_are_no_error(name: str) -> None:
    """Formats only grow, so nobody may refuse what is new."""
    schema = SCHEMAS[name]
    Draft202012Validator(schema).validate(schema["examples"][0] | {"of_a_later_release": True})
