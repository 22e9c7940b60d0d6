"""What each release has recorded of its jobs, which every later one replays."""

from pathlib import Path

import pytest

from tests.replay.recordings import scenario_of

RELEASES = Path(__file__).parents[1] / "release"


@pytest.mark.parametrize(
    ("state", "scenario"),
    {
        "sleeping": "long-sleep",
        "changed asleep": "changed-while-sleeping",
        "running": "plain-fires",
        "running apart": "detached",
        "between two attempts": "retry",
        "buffered": "overlap-buffer-all",
        "paused": "paused-while-sleeping",
        "behind an open breaker": "downstream-outage",
        "without a mirror": "mirror-away",
        "catching up": "catch-up-run-all",
    }.items(),
)
def test_each_state_of_a_job_was_recorded_by_every_release(state: str, scenario: str) -> None:
    """SB-126: what a job is in when it is upgraded; all of it replays, above."""
    releases = sorted(path.parent for path in RELEASES.glob("*/SHA256SUMS"))
    assert releases
    for release in releases:
        kept = [Path(line.split()[-1]) for line in (release / "SHA256SUMS").read_text().splitlines()]
        histories = [path for path in kept if path.parent.name == "JobWorkflow" and path.name.endswith(".json.gz")]
        assert scenario in {scenario_of(path) for path in histories}, (release.name, state)
