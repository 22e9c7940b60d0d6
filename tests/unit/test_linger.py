"""Who was told several things stays awake for more; who was told one does not."""

from datetime import timedelta

import pytest

from tests.unit.job_driver import EPOCH, Grid, JobDriver, every
from workflows.job import JobDefinition, JobState
from workflows.linger import AFTER_CROWD, CROWDED, LARGEST_CROWD, LINGER, Linger

SHORT = timedelta(milliseconds=1)


def a_job(*, logic: int = 4) -> JobState:
    """Begun under a logic version."""
    driver = JobDriver(JobDefinition.model_validate({"schedule": every(60)}), grid=Grid(60))
    return driver.state.model_copy(update={"logic": logic})


def test_a_single_command_keeps_nobody_awake() -> None:
    """Nor does one that came long after another."""
    linger = Linger()
    assert not linger.stay_awake(now=EPOCH)
    linger.note_command(a_job(), now=EPOCH)
    assert not linger.stay_awake(now=EPOCH)
    later = EPOCH + LINGER + SHORT
    linger.note_command(a_job(), now=later)
    assert not linger.stay_awake(now=later)
    assert linger.look_at is None


def test_commands_that_come_together_do() -> None:
    """For as long as the constant says, and no longer."""
    linger = Linger()
    for _ in range(2):
        linger.note_command(a_job(), now=EPOCH)
    assert linger.stay_awake(now=EPOCH)
    assert linger.look_at == EPOCH + LINGER
    assert linger.stay_awake(now=EPOCH + LINGER - SHORT)
    assert not linger.stay_awake(now=EPOCH + LINGER)


def test_each_that_follows_makes_it_longer_and_moves_no_timer() -> None:
    """The job looks when it was to look, and finds that it is to stay awake until two seconds after the last."""
    linger, last = Linger(), EPOCH + LINGER
    for now in (EPOCH, EPOCH + SHORT, EPOCH + LINGER / 2, last):
        linger.note_command(a_job(), now=now)
        linger.stay_awake(now=now)
    assert linger.look_at == EPOCH + SHORT + LINGER
    assert linger.stay_awake(now=linger.look_at)
    assert linger.look_at == last + LINGER
    assert not linger.stay_awake(now=last + LINGER)


def test_a_job_that_only_could_not_sleep_looks_at_no_time() -> None:
    """Most jobs sleep on timers, and pay nothing for it."""
    linger = Linger()
    for _ in range(2):
        linger.note_command(a_job(), now=EPOCH)
    assert linger.look_at is None


def test_who_fires_on_time_goes_to_sleep_at_once() -> None:
    """It was alone, or nearly."""
    linger = Linger()
    linger.note_fire(a_job(), EPOCH, now=EPOCH + CROWDED - SHORT)
    assert not linger.stay_awake(now=EPOCH + CROWDED)


@pytest.mark.parametrize("late", [CROWDED, timedelta(seconds=3), timedelta(hours=3)])
def test_who_fires_late_lets_the_others_come_first(late: timedelta) -> None:
    """Longer where they are many, but not for hours where nobody was there for hours."""
    linger, now = Linger(), EPOCH + late
    linger.note_fire(a_job(), EPOCH, now=now)
    assert linger.stay_awake(now=now)
    assert linger.look_at is not None
    crowd = min(late * 4, LARGEST_CROWD)
    assert crowd + AFTER_CROWD <= linger.look_at - now <= crowd + 2 * AFTER_CROWD
    assert not linger.stay_awake(now=linger.look_at)


def test_a_run_begun_under_an_earlier_version_goes_to_sleep_as_it_did() -> None:
    """A replay of its history must set the same timers."""
    linger = Linger()
    for _ in range(2):
        linger.note_command(a_job(logic=3), now=EPOCH)
    assert not linger.stay_awake(now=EPOCH)
