"""Links to Temporal's Web UI."""

from datetime import UTC, datetime

from api.temporal_link import TemporalLinks
from workflows.run import Run

NOON = datetime(2026, 6, 8, 12, tzinfo=UTC)
LINKS = TemporalLinks(ui_url="http://localhost:8233/", namespace="default")


def test_a_link_names_one_workflow_whatever_is_in_its_id() -> None:
    """Slashes and colons of our ids are no part of the path."""
    assert LINKS.to_job(tenant="default", job_id="j_1") == (
        "http://localhost:8233/namespaces/default/workflows/job%2Fdefault%2Fj_1"
    )
    run = Run(scheduled_at=NOON, target_at=NOON, created_at=NOON, workflow_id="run/default/j:1", workflow_run_id="r-2")
    assert LINKS.to_run(run) == "http://localhost:8233/namespaces/default/workflows/run%2Fdefault%2Fj%3A1/r-2/history"


def test_there_is_no_link_to_nowhere() -> None:
    """Neither without a Web UI nor to a run that has no history yet."""
    assert TemporalLinks(ui_url=None, namespace="default").to_job(tenant="default", job_id="j") is None
    assert LINKS.to_run(Run(scheduled_at=NOON, target_at=NOON, created_at=NOON)) is None
