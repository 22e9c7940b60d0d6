"""Idempotency keys: expected values by hand; weeks by the ISO 8601 rule (week 1 has the year's first Thursday)."""

import re
from datetime import UTC, datetime

import pytest

from workflows.idempotency_key import (
    DEFAULT_TEMPLATE,
    InvalidTemplate,
    check_template,
    is_constant,
    render_idempotency_key,
)
from workflows.job import JobDefinition


def render(template: str, scheduled_at: datetime, *, timezone: str = "UTC", request_id: str | None = None) -> str:
    return render_idempotency_key(
        template, tenant="default", job_id="j_1", scheduled_at=scheduled_at, timezone=timezone, request_id=request_id
    )


def test_the_default_of_a_job_is_the_default_template() -> None:
    """One default, wherever it is read from."""
    assert JobDefinition().idempotency_key_template == DEFAULT_TEMPLATE


@pytest.mark.parametrize(
    ("template", "scheduled_at", "timezone", "expected"),
    [
        (DEFAULT_TEMPLATE, datetime(2026, 6, 8, 13, tzinfo=UTC), "America/New_York", "j_1:1780923600"),
        ("report-{{week}}", datetime(2026, 6, 8, 13, tzinfo=UTC), "America/New_York", "report-2026-W24"),
        ("{{week}}", datetime(2027, 1, 1, 12, tzinfo=UTC), "UTC", "2026-W53"),
        ("{{ date }}", datetime(2026, 6, 8, 2, tzinfo=UTC), "America/New_York", "2026-06-07"),
        ("{{date}}", datetime(2026, 6, 8, 2, tzinfo=UTC), "UTC", "2026-06-08"),
        ("{{year}}/{{month}}", datetime(2026, 12, 31, 23, tzinfo=UTC), "Asia/Tokyo", "2027/2027-01"),
        ("{{quarter}}", datetime(2026, 6, 30, 12, tzinfo=UTC), "UTC", "2026-Q2"),
        ("{{scheduled_at}}", datetime(2026, 6, 8, 13, tzinfo=UTC), "Asia/Tokyo", "2026-06-08T13:00:00Z"),
        ("{{hour}}", datetime(2026, 11, 1, 5, tzinfo=UTC), "America/New_York", "2026-11-01T01-0400"),
        ("{{hour}}", datetime(2026, 11, 1, 6, tzinfo=UTC), "America/New_York", "2026-11-01T01-0500"),
        ("{{minute}}", datetime(2026, 6, 8, 13, 5, tzinfo=UTC), "UTC", "2026-06-08T13:05+0000"),
        ("{{tenant}}/{{job_id}}", datetime(2026, 6, 8, tzinfo=UTC), "UTC", "default/j_1"),
        ("no variables, {one brace}", datetime(2026, 6, 8, tzinfo=UTC), "UTC", "no variables, {one brace}"),
    ],
)
def test_a_template_is_rendered_for_the_local_time_of_the_fire(
    template: str, scheduled_at: datetime, timezone: str, expected: str
) -> None:
    """Dates and weeks are those of the job's zone; the two passes of an autumn hour have different keys."""
    check_template(template)
    assert render(template, scheduled_at, timezone=timezone) == expected


def test_only_the_default_template_gets_the_request_id_appended() -> None:
    """A manual run is an intent of its own, unless the owner's template says what counts as the same effect."""
    at = datetime(2026, 6, 8, 13, tzinfo=UTC)
    assert render(DEFAULT_TEMPLATE, at, request_id="r7") == "j_1:1780923600:r7"
    assert render("report-{{week}}", at, request_id="r7") == "report-2026-W24"
    assert render("{{week}}-{{request_id}}", at, request_id="r7") == "2026-W24-r7"
    assert render("{{week}}-{{request_id}}", at) == "2026-W24-"


@pytest.mark.parametrize(
    ("template", "position", "words"),
    [
        ("report-{{weak}}", 7, "{{weak}}"),
        ("{{}}", 0, "{{}}"),
        ("a-{{7*7}}", 2, "no partner"),
        ("a-{{week", 2, "no partner"),
        ("week}}", 4, "no partner"),
        ("caf\u00e9", 3, "ASCII"),
        ("a\nb", 1, "ASCII"),
        ("", None, "empty"),
        ("   ", None, "empty"),
        ("x" * 201, None, "201"),
    ],
)
def test_a_template_that_cannot_be_rendered_is_refused(template: str, position: int | None, words: str) -> None:
    """An unknown variable, a lone brace or an unprintable character is named with its position."""
    with pytest.raises(InvalidTemplate, match=re.escape(words)) as refusal:
        check_template(template)
    assert refusal.value.position == position


def test_a_template_that_names_no_time_is_known_as_constant() -> None:
    """All runs sharing one key is allowed, but deserves a warning."""
    assert is_constant("report-{{job_id}}")
    assert not is_constant("report-{{ week }}")
    assert not is_constant("{{request_id}}")
