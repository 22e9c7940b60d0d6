"""What is made of a payload, by what is known of its job's workers."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import JsonValue

from api.payload_check import check_payload
from api.problem import InvalidRequest
from workflows.catalogue import AnnouncedActivity, Catalogue, WorkerVersion
from workflows.target import ActivityTarget

NOW = datetime(2026, 6, 8, 12, tzinfo=UTC)
TARGET = ActivityTarget(activity="send_report", task_queue="reports")

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "integer"}
UNUSABLE: dict[str, Any] = {"$ref": "#/nowhere"}


def catalogue(*schemas: dict[str, Any] | None, activity: str = "send_report") -> Catalogue:
    """Make a catalogue of versions that differ in one activity's schema."""
    versions = [
        WorkerVersion(version=str(number), seen_at=NOW, activities={activity: AnnouncedActivity(payload_schema=schema)})
        for number, schema in enumerate(schemas)
    ]
    return Catalogue(versions=tuple(versions))


def warnings(payload: JsonValue, known: Catalogue | None, *, polled: bool | None = True) -> tuple[str, ...]:
    """Check, and get the warnings."""
    return check_payload(payload, target=TARGET, catalogue=known, polled=polled)


def test_a_payload_that_fits_is_accepted_without_a_word() -> None:
    """The normal case."""
    assert warnings("weekly", catalogue(TEXT)) == ()


def test_a_payload_that_fits_no_version_is_refused_with_the_last_versions_reasons() -> None:
    """The pointer leads into the body of the request."""
    with pytest.raises(InvalidRequest) as caught:
        warnings({}, catalogue(NUMBER, TEXT))
    assert [(error.pointer, error.detail) for error in caught.value.errors] == [("/payload", "give a string")]


@pytest.mark.parametrize("schemas", [(TEXT, NUMBER), (NUMBER, TEXT)])
def test_a_payload_that_fits_one_of_two_versions_is_accepted_with_a_warning(schemas: tuple[Any, Any]) -> None:
    """During a deployment nobody knows which of them will run it."""
    [warning] = warnings("weekly", catalogue(*schemas))
    assert warning == (
        "a version of the worker that was there lately does not take this payload: payload: give a whole number"
    )


@pytest.mark.parametrize("known", [catalogue(None), catalogue(UNUSABLE), None, Catalogue()])
def test_a_payload_that_cannot_be_checked_is_accepted_with_a_warning(known: Catalogue | None) -> None:
    """Workers in other languages need not say what they take."""
    [warning] = warnings("weekly", known)
    assert warning.startswith(
        "the payload was not checked: of what activity 'send_report' takes on task queue 'reports'"
    )


@pytest.mark.parametrize("known", [catalogue(None), None])
def test_where_there_is_no_payload_there_is_nothing_to_warn_of(known: Catalogue | None) -> None:
    """Most jobs have none."""
    assert warnings(None, known) == ()


@pytest.mark.parametrize("polled", [False, None])
def test_a_queue_that_nobody_polls_is_told_by_the_jobs_health_alone(polled: bool | None) -> None:
    """Once is enough."""
    assert warnings("weekly", None, polled=polled) == ()


def test_a_version_that_does_not_say_gives_the_benefit_of_the_doubt() -> None:
    """It may take the payload."""
    [warning] = warnings({}, catalogue(None, TEXT))
    assert warning.startswith("a version of the worker that was there lately does not take this payload")


def test_an_activity_that_no_worker_names_is_a_warning_with_a_guess() -> None:
    """Its worker may come later; but mostly it is a slip of the pen."""
    [warning] = warnings("weekly", catalogue(TEXT, activity="send_reports"))
    assert warning == (
        "no worker of task queue 'reports' says that it has an activity 'send_report'; did you mean 'send_reports'?"
    )
    [warning] = warnings(None, catalogue(TEXT, activity="compact"))
    assert warning == "no worker of task queue 'reports' says that it has an activity 'send_report'"
