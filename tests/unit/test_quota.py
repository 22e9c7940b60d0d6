"""Whether a job still fits, and how much it takes."""

import pytest

from activities.quota import Quota, Share, Usage, is_too_much
from api.quota import fires_per_minute
from workflows.schedule_input import ScheduleInput
from workflows.schedule_parser import parse_schedule

NEW = Share(None, is_counted=False)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("@every 1s", 60),
        ("* * * * *", 1),
        ("*/20 * * * * *", 3),
        ("0 9 * * *", 1 / 1440),
        ("0,1 9 * * 1", 1),
        ("2099-01-01T00:00:00Z", 0),
    ],
)
def test_a_job_counts_at_its_densest(schedule: str, expected: float) -> None:
    """Two fires a minute apart are one a minute, though there are two in a week. What fires once takes nothing."""
    parsed = parse_schedule(ScheduleInput(schedule=schedule), job_id="x")
    assert fires_per_minute(parsed.schedule, job_id="x") == pytest.approx(expected)


def test_without_a_quota_nothing_is_too_much() -> None:
    """Which is how an installation begins."""
    assert not is_too_much(Quota(), Usage(jobs=10**6, fires_per_minute=1e9), NEW, fires_per_minute=60)


def test_a_quota_is_used_up_to_its_last_job_and_fire() -> None:
    """The limit itself is allowed."""
    quota = Quota(jobs=3, fires_per_minute=10)
    assert not is_too_much(quota, Usage(jobs=2, fires_per_minute=9), NEW, fires_per_minute=1)
    assert is_too_much(quota, Usage(jobs=3, fires_per_minute=0), NEW, fires_per_minute=1)
    assert is_too_much(quota, Usage(jobs=2, fires_per_minute=9), NEW, fires_per_minute=1.5)
    assert is_too_much(Quota(jobs=0), Usage(), NEW, fires_per_minute=0)


def test_a_change_that_takes_no_more_is_never_refused() -> None:
    """A quota that was lowered below what there is keeps nobody from making it less."""
    quota, others, job = (
        Quota(jobs=1, fires_per_minute=1),
        Usage(jobs=5, fires_per_minute=50),
        Share(6, is_counted=True),
    )
    assert not is_too_much(quota, others, job, fires_per_minute=6)
    assert not is_too_much(quota, others, job, fires_per_minute=1)
    assert is_too_much(quota, others, job, fires_per_minute=7)
    assert not is_too_much(quota, others, Share(None, is_counted=True), fires_per_minute=6)


def test_a_tenant_without_its_own_quota_has_the_default_field_by_field() -> None:
    """One may be settled, and the other left."""
    default = Quota(jobs=100, fires_per_minute=60)
    assert Quota().or_default(default) == default
    assert Quota(jobs=0).or_default(default) == Quota(jobs=0, fires_per_minute=60)
    assert Quota(fires_per_minute=5).or_default(default) == Quota(jobs=100, fires_per_minute=5)
