"""The preview behind the API and the command line."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from api.preview import PreviewAnswer, dump_answers, preview, preview_each
from api.problem import NeverFires
from workflows.error import HorariumError

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
CASES = [json.loads(line) for line in (Path(__file__).parents[1] / "data" / "fires.jsonl").read_text().splitlines()]


def nominals(**body: Any) -> list[str]:
    answer = preview(body, now=NOW).model_dump(mode="json")
    return [fire["nominal"] for fire in answer["fires"]]


def test_after_is_now_unless_it_is_given_and_is_never_answered_itself() -> None:
    """Strictly after; a time without an offset is local in the schedule's zone."""
    assert nominals(schedule="@daily", count=1) == ["2026-06-02T00:00:00Z"]
    assert nominals(schedule="@daily", count=1, after="2026-06-02T00:00:00Z") == ["2026-06-03T00:00:00Z"]
    assert nominals(schedule="@daily", count=1, after="2026-06-01T23:59:59.999999Z") == ["2026-06-02T00:00:00Z"]
    tokyo = {"schedule": "0 9 * * *", "timezone": "Asia/Tokyo", "count": 1}
    assert nominals(**tokyo, after="2026-06-02T09:00:00") == ["2026-06-03T00:00:00Z"]
    assert nominals(**tokyo, after="2026-06-02T08:59:59+09:00") == ["2026-06-02T00:00:00Z"]


def test_a_fire_is_told_in_utc_and_on_the_clock_of_its_zone() -> None:
    """Nominal and target; without a job there is no jitter."""
    answer = preview({"schedule": "0 9 * * 1", "timezone": "America/New_York", "count": 1}, now=NOW)
    assert json.loads(answer.model_dump_json())["fires"] == [
        {"nominal": "2026-06-01T13:00:00Z", "target": "2026-06-01T13:00:00Z", "local": "2026-06-01T09:00:00-04:00"}
    ]


def test_with_a_job_id_the_target_has_its_jitter() -> None:
    """Nominal stays; the offset is the job's, less than the window, and always the same."""
    body: dict[str, Any] = {"schedule": "@hourly", "job_id": "a", "jitter_window_seconds": 600, "count": 2}
    first, second = preview(body, now=NOW).fires
    offset = first.target - first.nominal
    assert 0 < offset.total_seconds() < 600
    assert second.target - second.nominal == offset
    assert preview({**body, "job_id": "b"}, now=NOW).fires[0].target != first.target


def test_bounds_of_the_schedule_are_kept() -> None:
    """Start, end, number of runs, exclusions; a count of zero is a question too."""
    bounded = {"schedule": "@daily", "start_at": "2026-06-10T00:00:00Z", "end_at": "2026-06-12T00:00:00Z", "count": 9}
    assert len(nominals(**bounded)) == 3
    assert len(nominals(**bounded, max_runs=2)) == 2
    assert len(nominals(**bounded, exclude={"dates": ["2026-06-11"]})) == 2
    assert nominals(schedule="@daily", count=0) == []


def test_a_one_off_that_has_passed_has_no_fires_and_an_impossible_date_never_had() -> None:
    """The first is an answer, the second a mistake."""
    assert nominals(schedule="2020-01-01T00:00:00Z") == []
    with pytest.raises(NeverFires):
        preview({"schedule": "0 0 30 2 *"}, now=NOW)


def test_what_may_surprise_is_warned_of() -> None:
    """A zone that does not move an interval, a sign that is turned round, a step above its range."""
    assert preview({"schedule": "@every 1d", "timezone": "America/Los_Angeles"}, now=NOW).warnings
    assert preview({"schedule": "@daily", "timezone": "Etc/GMT+3"}, now=NOW).warnings
    assert preview({"schedule": "*/90 * * * *"}, now=NOW).warnings
    assert preview({"schedule": "@daily"}, now=NOW).description


def test_every_case_of_the_table_is_answered_as_it_says() -> None:
    """Fires are those expected; what is invalid is refused, and what is valid is not.

    Where a date is named that no year has, a schedule can be read and never fires; it is refused, and its fires are none.
    """
    bodies = [
        {"schedule": case["expr"], "timezone": case["tz"]}
        | ({"after": case["after"], "count": len(case["expect"])} if case["kind"] == "fires" else {})
        for case in CASES
    ]
    answers = json.loads(dump_answers(preview_each(bodies, now=NOW)))
    wrong = [case["id"] for case, answer in zip(CASES, answers, strict=True) if not is_as_expected(case, answer)]
    assert wrong == []


def is_as_expected(case: dict[str, Any], answer: dict[str, Any]) -> bool:
    if case["kind"] == "invalid":
        return answer.get("status") == 422 and "fires" not in answer
    fires = [datetime.fromisoformat(fire["nominal"]) for fire in answer["fires"]]
    if case["kind"] == "valid":
        return bool(fires) or answer.get("type") == "urn:horarium:problem:never-fires"
    return fires == [datetime.fromisoformat(each) for each in case["expect"]]


def test_a_bad_body_among_many_does_not_disturb_the_others() -> None:
    """Each has its answer in its place."""
    answers = [*preview_each([{"schedule": "@daily"}, None, {"schedule": "\ud800"}, {"schedule": "@daily"}], now=NOW)]
    assert [isinstance(answer, PreviewAnswer) for answer in answers] == [True, False, False, True]


@pytest.mark.parametrize("after", ["", "now", "2026-13-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "2026-06-01"])
def test_a_moment_that_is_none_is_refused(after: str) -> None:
    """With its place."""
    with pytest.raises(HorariumError, match=r"time|year"):
        preview({"schedule": "@daily", "after": after}, now=NOW)


@pytest.mark.parametrize("bound", ["0001-01-01T00:00:00+23:59", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00"])
def test_a_schedule_that_ends_with_the_first_moment_never_fires(bound: str) -> None:
    """Though there is no day before it to begin to look from."""
    with pytest.raises(NeverFires, match="end_at"):
        preview({"schedule": "0 9 * * 1", "start_at": bound, "end_at": bound}, now=NOW)
