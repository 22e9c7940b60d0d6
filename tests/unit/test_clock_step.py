"""Temporal's own clock is stepped: a day forward is an outage of a day, and a day back fires nothing twice."""

from collections import Counter
from datetime import timedelta

import pytest

from tests.unit.job_driver import Grid, JobDriver, at, every
from workflows.job import JobDefinition
from workflows.run import Outcome

HOUR = 3600
DAY = timedelta(days=1)
HOURS_BEFORE = 3


def hourly(missed_window: str) -> JobDriver:
    """A job that has fired for some hours."""
    fields = {"schedule": every(HOUR), "missed_window": missed_window, "max_missed": 5}
    driver = JobDriver(JobDefinition.model_validate(fields), grid=Grid(HOUR))
    driver.wake()
    pass_time(driver, HOURS_BEFORE * HOUR + 1)
    assert driver.started() == [HOUR, 2 * HOUR, 3 * HOUR]
    return driver


def pass_time(driver: JobDriver, seconds: float) -> None:
    """Let time pass minute by minute, with every run ending at once."""
    end = driver.now + timedelta(seconds=seconds)
    while driver.now < end:
        driver.go_to(min(end, driver.now + timedelta(minutes=1)))
        for run_id in list(driver.out):
            driver.end(run_id)


@pytest.mark.parametrize(("missed_window", "caught_up"), [("SKIP", 0), ("RUN_ONCE", 0), ("RUN_ALL", 5)])
def test_sb_114_a_clock_that_steps_a_day_forward_and_back_doubles_nothing(missed_window: str, caught_up: int) -> None:
    """Forward: the catch-up policy and its bound. Back: silence until the step is absorbed, and then the grid goes on."""
    driver = hourly(missed_window)
    driver.be_away(DAY)
    pass_time(driver, 600)
    assert len(driver.started()) == HOURS_BEFORE + caught_up + 1, (
        "the newest is live, and stands for all that is run once"
    )
    decided = driver.outcomes()
    assert sorted(decided) == [HOUR * n for n in range(1, HOURS_BEFORE + 24 + 1)], (
        "each hour of the day has its outcome"
    )

    driver.now -= DAY
    driver.wake()
    pass_time(driver, DAY.total_seconds() - 1200)
    assert driver.outcomes() == decided, "nothing happens in the time that has been before"

    pass_time(driver, 2 * HOUR + 1200)
    first_after = HOUR * (HOURS_BEFORE + 24 + 1)
    assert driver.started()[-2:] == [first_after, first_after + HOUR]
    assert max(Counter(driver.started()).values()) == 1
    assert driver.outcomes()[first_after] is Outcome.RAN
    assert driver.state.high_water == at(first_after + HOUR)
