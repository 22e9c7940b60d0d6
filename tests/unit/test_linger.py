"""Who was told several things stays awake for more; who was told one does not."""

from datetime import timedelta

import pytest

from tests.unit.job_driver import EPOCH, Grid, JobDriver, at, every
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


def a_due_job() -> JobState:
    """It knows its next fire, which is at ``FIRE``."""
    driver = JobDriver(JobDefinition.model_validate({"schedule": every(60)}), grid=Grid(60))
    driver.wake()
    return driver.state


FIRE = at(60)


def test_who_fires_on_time_goes_to_sleep_at_once() -> None:
    """It was alone, or nearly."""
    linger = Linger()
    linger.note_fire(a_due_job(), FIRE, now=FIRE + CROWDED - SHORT)
    assert not linger.stay_awake(now=FIRE + CROWDED)


@pytest.mark.parametrize("late", [CROWDED, timedelta(seconds=3), timedelta(hours=3)])
def test_who_fires_late_lets_the_others_come_first(late: timedelta) -> None:
    """Longer where they are many, but not for hours where nobody was there for hours. A command does not make it shorter."""
    linger, now = Linger(), FIRE + late
    linger.note_fire(a_due_job(), FIRE, now=now)
    for _ in range(2):
        linger.note_command(a_due_job(), now=now)
    assert linger.stay_awake(now=now)
    assert linger.look_at is not None
    least = min(late * 4, LARGEST_CROWD) + AFTER_CROWD
    assert least <= linger.look_at - now <= 2 * least
    assert not linger.stay_awake(now=linger.look_at)


def test_a_fire_that_nobody_carries_out_keeps_nobody_awake() -> None:
    """The schedule has changed since the job was woken ahead of it, or a run is in its way."""
    for state, fire in ((a_due_job(), FIRE + SHORT), (a_busy_job(), FIRE)):
        linger = Linger()
        linger.note_fire(state, fire, now=fire + 2 * CROWDED)
        assert not linger.stay_awake(now=fire + 2 * CROWDED)


def a_busy_job() -> JobState:
    """Somebody has triggered it before its fire."""
    driver = JobDriver(JobDefinition.model_validate({"schedule": every(60)}), grid=Grid(60))
    driver.wake()
    driver.trigger("now")
    assert driver.state.active
    return driver.state


def test_a_run_begun_under_an_earlier_version_goes_to_sleep_as_it_did() -> None:
    """A replay of its history must set the same timers."""
    linger = Linger()
    for _ in range(2):
        linger.note_command(a_job(logic=3), now=EPOCH)
    assert not linger.stay_awake(now=EPOCH)
