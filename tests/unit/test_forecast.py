"""How many fires are ahead, step by step: exactly as many as a walk over every minute finds."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities.queries import ScheduledJob
from api.cli_forecast import BAR_WIDTH, draw_bar
from api.forecast import ForecastAnswer, ForecastTally, Horizon
from api.forecast_service import read_horizon
from api.problem import InvalidRequest
from tests.unit.brute_force import PlainCron, list_fires
from tests.unit.schedules import EXAMPLES, at, cron
from workflows.fire_times import count_fires, jitter_offset, next_fires
from workflows.schedule import CronRule, Exclusions, IntervalRule, OneOffRule, Schedule

NOON = datetime(2026, 6, 8, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


def every(seconds: int, **fields: object) -> Schedule:
    """A grid of fires, without jitter."""
    rule = IntervalRule(every=timedelta(seconds=seconds))
    return Schedule.model_validate({"rule": rule, "jitter_window_seconds": 0.0} | fields)


def scheduled(schedule: Schedule, *, job_id: str = "job", now: datetime = NOON, **fields: object) -> ScheduledJob:
    """A job as the mirror shows it."""
    found = next_fires(schedule, job_id=job_id, after=now - SECOND, count=1)
    values: dict[str, object] = {
        "job_id": job_id,
        "name": job_id,
        "schedule": schedule.model_dump_json(),
        "next_run_at": found[0].nominal if found else None,
        "next_target_at": found[0].target if found else None,
        "started": 0,
        "resumes_at": None,
    }
    return ScheduledJob(**values | fields)  # type: ignore[arg-type]


def forecast(
    *jobs: ScheduledJob, steps: int = 24, step: timedelta = HOUR, start: datetime = NOON, now: datetime = NOON
) -> ForecastAnswer:
    """Count some jobs."""
    tally = ForecastTally(Horizon(start=start, step=step, steps=steps, now=now))
    for job in jobs:
        tally.add(job)
    return tally.answer()


def counts(answer: ForecastAnswer) -> list[int]:
    """Fires of each step."""
    return [each.fires for each in answer.steps]


class TestCount:
    """Of one schedule."""

    @pytest.mark.parametrize(
        ("zone", "change"),
        [
            ("America/New_York", "2026-03-08T07:00Z"),
            ("Europe/Berlin", "2026-10-25T01:00Z"),
            ("UTC", "2026-06-08T12:00Z"),
        ],
    )
    @pytest.mark.parametrize("step", [MINUTE, 7 * MINUTE, HOUR, timedelta(days=1)])
    @given(minutes=st.frozensets(st.integers(0, 59), min_size=1), hours=st.frozensets(st.integers(0, 23), min_size=1))
    @settings(max_examples=max(2, EXAMPLES // 4), deadline=None, derandomize=True)
    def test_it_is_what_a_walk_over_every_minute_finds(
        self, zone: str, change: str, step: timedelta, minutes: frozenset[int], hours: frozenset[int]
    ) -> None:
        """Over a change of the clock, too; sparse schedules and dense ones, short steps and long ones."""
        everything = frozenset(range(32))
        plain = PlainCron("", frozenset({0}), minutes, hours, everything, everything, everything, frozenset({"day"}))
        expression = f"{','.join(map(str, sorted(minutes)))} {','.join(map(str, sorted(hours)))} * * *"
        start, steps = at(change) - timedelta(hours=30), -(-timedelta(days=3) // step)
        fires = list_fires(
            plain.matches, zone, start - MINUTE, start + steps * step - MINUTE, MINUTE, gap="first_valid", fold="first"
        )
        expected = Counter((fire - start) // step for fire in fires)
        found = count_fires(
            cron(expression, zone), job_id="j", start=start, steps=steps, step=step, after=start - SECOND
        )
        assert {index: count for index, count in enumerate(found.per_step) if count} == expected
        assert found.first == (fires[0] if fires else None)

    @pytest.mark.parametrize("seconds", [1, 7, 60, 3_601])
    @pytest.mark.parametrize("width", [60, 600, 3_600, 86_400])
    def test_grids_are_counted_by_arithmetic(self, seconds: int, width: int) -> None:
        """Every second of a day costs no more than every hour."""
        start, after = NOON + 13 * SECOND, NOON + 100 * SECOND
        found = count_fires(every(seconds), job_id="j", start=start, steps=20, step=width * SECOND, after=after)
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        for index, count in enumerate(found.per_step):
            first = max(start + index * width * SECOND, after + SECOND)
            last = start + (index + 1) * width * SECOND - SECOND
            last_on_grid = (last - epoch) // (seconds * SECOND)
            before_first = (first - SECOND - epoch) // (seconds * SECOND)
            assert count == max(0, last_on_grid - before_first)

    def test_excluded_fires_are_none(self) -> None:
        """As the job would not run."""
        schedule = every(60, exclude=Exclusions(cron=("30-59 * * * *",)))
        found = count_fires(schedule, job_id="j", start=NOON, steps=2, step=HOUR / 2, after=NOON - SECOND)
        assert list(found.per_step) == [30, 0]


class TestTally:
    """Of many jobs."""

    def test_runs_are_counted_where_they_start(self) -> None:
        """With the jitter of each: the last minute of an hour may start in the next."""
        schedule = Schedule(rule=CronRule(expression="59 * * * *"), jitter_window_seconds=600)
        ids = [f"j{number}" for number in range(200)]
        offsets = {job_id: jitter_offset(schedule, job_id=job_id) for job_id in ids}
        # Where the fire of 11:59 is still to start, it is the job's next.
        jobs = [scheduled(schedule, job_id=each, now=NOON - min(offsets[each], 2 * MINUTE)) for each in ids]
        expected: Counter[datetime] = Counter()
        for offset in offsets.values():
            for hour in range(-1, 24):
                target = NOON + hour * HOUR + 59 * MINUTE + offset
                if NOON <= target < NOON + 24 * HOUR:
                    expected[target.replace(minute=0, second=0, microsecond=0)] += 1
        answer = forecast(*jobs)
        assert {each.at: each.fires for each in answer.steps if each.fires} == expected
        assert answer.fires == sum(expected.values())

    def test_fires_that_have_passed_are_not_ahead(self) -> None:
        """The first step may have begun."""
        now = NOON + 90 * SECOND
        assert counts(forecast(scheduled(every(60), now=now), steps=2, now=now)) == [58, 60]

    def test_what_is_used_up_held_or_paused_is_left_out(self) -> None:
        """A job counts from its next fire on, or from where it resumes; one of the same schedule beside it counts from now."""
        later = scheduled(every(600), job_id="held", next_run_at=NOON + 3 * HOUR, next_target_at=NOON + 3 * HOUR)
        resumed = scheduled(
            every(600), job_id="paused", next_run_at=None, next_target_at=None, resumes_at=NOON + 2 * HOUR
        )
        assert counts(forecast(later, steps=4)) == [0, 0, 0, 6]
        assert counts(forecast(resumed, steps=4)) == [0, 0, 5, 6]
        assert counts(forecast(scheduled(every(600)), later, resumed, steps=4)) == [6, 6, 11, 18]

    def test_max_runs_end_a_job(self) -> None:
        """Those that it had count."""
        job = scheduled(every(600, max_runs=10), started=2)
        assert counts(forecast(job, steps=4)) == [6, 2, 0, 0]
        assert counts(forecast(scheduled(every(600, max_runs=10), started=12), steps=4)) == [0, 0, 0, 0]

    def test_an_h_is_each_jobs_own(self) -> None:
        """Alike schedules that are hashed by id are not alike."""
        schedule = Schedule(rule=CronRule(expression="H 12 * * *"), time_critical=True)
        jobs = [scheduled(schedule, job_id=f"j{number}") for number in range(300)]
        answer = forecast(*jobs, steps=60, step=MINUTE)
        expected = Counter(job.next_run_at for job in jobs)
        assert {each.at: each.fires for each in answer.steps if each.fires} == expected
        assert len(expected) > 50

    def test_the_busiest_steps_are_named_with_the_jobs_that_make_them(self) -> None:
        """The busiest first; a flat day has none."""
        midnight = datetime(2026, 6, 9, tzinfo=UTC)
        daily = Schedule(rule=CronRule(expression="0 0 * * *"), jitter_window_seconds=0)
        jobs = [scheduled(daily, job_id=f"nightly-{number:02}") for number in range(40)]
        hourly = scheduled(every(900), job_id="quarterly")
        answer = forecast(*jobs, hourly)
        [spot, *others] = answer.hot_spots
        assert others == []
        assert (spot.at, spot.fires, spot.jobs) == (midnight, 44, 41)
        assert [(job.job_id, job.fires) for job in spot.busiest][:2] == [("quarterly", 4), ("nightly-00", 1)]
        assert len(spot.busiest) == 10
        assert spot.suggestion is not None
        assert "jitter_window_seconds of 3600 (1 hour) on the 40 jobs" in spot.suggestion
        assert forecast(hourly).hot_spots == []

    def test_a_step_that_has_begun_makes_no_others_hot(self) -> None:
        """It has no longer all of its fires."""
        now = NOON + 50 * MINUTE
        answer = forecast(scheduled(every(60), now=now), steps=4, now=now)
        assert counts(answer) == [10, 60, 60, 60]
        assert answer.hot_spots == []

    def test_what_jitter_cannot_spread_is_not_told_to(self) -> None:
        """Jobs to the second, and single times."""
        exact = Schedule(rule=CronRule(expression="0 0 * * *"), time_critical=True)
        once = Schedule(rule=OneOffRule(at=NOON + 5 * HOUR))
        answer = forecast(
            *(scheduled(each, job_id=f"{index}") for index, each in enumerate([exact, exact, once, once]))
        )
        assert [(spot.fires, spot.suggestion) for spot in answer.hot_spots] == [(2, None), (2, None)]

    def test_what_there_was_no_time_for_is_told(self) -> None:
        """And until when the steps are exact all the same."""
        tally = ForecastTally(Horizon(start=NOON, step=HOUR, steps=24, now=NOON))
        tally.add(scheduled(every(3_600)))
        tally.leave_out(7, next_fire=NOON + 5 * HOUR)
        answer = tally.answer()
        assert (answer.complete, answer.left_out, answer.exact_until) == (False, 7, NOON + 5 * HOUR)
        assert (answer.fires, answer.jobs) == (24, 1)

    def test_a_schedule_that_means_nothing_here_has_no_fires(self) -> None:
        """It keeps no other from being counted."""
        odd = Schedule(rule=CronRule(expression="0 * * * *"), timezone="Mars/Base")
        job = ScheduledJob(
            job_id="odd",
            name="odd",
            schedule=odd.model_dump_json(),
            next_run_at=NOON,
            next_target_at=NOON,
            started=0,
            resumes_at=None,
        )
        assert counts(forecast(job, scheduled(every(3_600)), steps=2)) == [1, 1]


class TestHorizon:
    """What is asked for."""

    def test_by_default_it_is_a_day_of_hours_from_the_present_one_on(self) -> None:
        """Steps lie on the hour."""
        horizon = read_horizon(start=None, end=None, step="1h", now=NOON + 17 * MINUTE)
        assert (horizon.start, horizon.step, horizon.steps) == (NOON, HOUR, 24)

    @pytest.mark.parametrize(("step", "expected"), [("900", 900), ("15m", 900), ("PT6H", 21_600), ("1h30m", 5_400)])
    def test_a_step_is_written_in_any_way(self, step: str, expected: int) -> None:
        """As intervals are; and seconds alone."""
        horizon = read_horizon(start=NOON, end=NOON + 7 * HOUR, step=step, now=NOON)
        assert (horizon.step.total_seconds(), horizon.steps) == (expected, -(-7 * 3_600 // expected))

    @pytest.mark.parametrize(
        ("start", "end", "step", "parameter"),
        [
            (NOON - HOUR, None, "1h", "from"),
            (NOON + timedelta(days=4_000), None, "1h", "from"),
            (datetime.max.replace(tzinfo=UTC), None, "1h", "from"),
            (NOON, NOON, "1h", "to"),
            (NOON, NOON - HOUR, "1h", "to"),
            (NOON, NOON + timedelta(days=32), "1h", "to"),
            (NOON, datetime.max.replace(tzinfo=UTC), "1h", "to"),
            (NOON, None, "1s", "step"),
            (NOON, None, "0", "step"),
            (NOON, None, "-5m", "step"),
            (NOON, None, "soon", "step"),
            (NOON, None, "1m", "step"),
            (NOON, None, "9" * 30, "step"),
            (NOON, None, "40d", "step"),
        ],
    )
    def test_what_is_wrong_is_refused_by_name(
        self, start: datetime, end: datetime | None, step: str, parameter: str
    ) -> None:
        """Nothing is counted that could take for ever."""
        with pytest.raises(InvalidRequest) as caught:
            read_horizon(start=start, end=end, step=step, now=NOON)
        assert [error.parameter for error in caught.value.errors] == [parameter]


def test_bars_are_drawn_to_an_eighth() -> None:
    """The longest is as wide as there is room, and the least shows."""
    assert draw_bar(100, most=100) == "█" * BAR_WIDTH
    assert draw_bar(1, most=100) == "▌"
    assert draw_bar(1, most=100_000) == "▏"
    assert draw_bar(0, most=100) == ""
