"""What the command line shows of a job: words, and nothing that only a programmer can read."""

import pytest
from pydantic import JsonValue

from api.cli_table import print_job, show_field


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("state", "active", "active"),
        ("last_error", None, ""),
        ("stale", False, "no"),
        ("enabled", True, "yes"),
        ("lag_seconds", 0, "0 s"),
        ("max_delay_seconds", None, ""),
        ("health", {"ok": True, "reasons": []}, "ok"),
        ("health", {"ok": False, "reasons": ["it is overdue", "no worker polls"]}, "it is overdue; no worker polls"),
        ("schedule", "0 9 * * 1", "0 9 * * 1"),
        ("schedule", {"every": "PT10S", "anchor": "1970-01-01T00:00:00Z"}, "every PT10S, anchor 1970-01-01T00:00:00Z"),
        ("dst", {"gap": None, "fold": None}, ""),
        ("counts", {"started": 3, "dead": 0}, "started 3, dead 0"),
        ("labels", {"team": "pay"}, "team pay"),
        ("retry_on", ["timeout", "5xx"], "timeout, 5xx"),
        ("retry_on", [], ""),
        (
            "retry_backoff",
            {"kind": "fixed", "base_seconds": 1, "cap_seconds": 900},
            "kind fixed, base seconds 1, cap seconds 900",
        ),
        (
            "target",
            {"kind": "http", "url": "https://x.example", "headers": {"X": {"$secret": "x"}}, "body": None},
            'kind http, url https://x.example, headers {"X": {"$secret": "x"}}',
        ),
        ("payload", {"on": True, "off": None}, '{"on": true, "off": null}'),
        ("payload", "text", '"text"'),
    ],
)
def test_a_field_is_written_for_people(name: str, value: JsonValue, shown: str) -> None:
    """Nothing is written as Python would; what says nothing is left out; data is JSON."""
    assert show_field(name, value) == shown


def test_a_job_is_a_line_for_each_field_that_says_something(capsys: pytest.CaptureFixture[str]) -> None:
    """How it stands comes first; what looks like markup is text."""
    print_job({"owner": "", "timezone": "UTC", "description": "[bold]x[/]", "state": "paused", "job_id": "nightly"})
    assert capsys.readouterr().out.splitlines() == [
        "job_id: nightly",
        "state: paused",
        "timezone: UTC",
        "description: [bold]x[/]",
    ]
